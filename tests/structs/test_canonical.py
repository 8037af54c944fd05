"""Canonical nodes and allocations, and what lossy sources leave open (plan-apply 1.3, 1.4, 1.7, 1.13)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan import Allocation, Node
from fastplan.structs import Topology, canonical_alloc, canonical_node, lossy_dimensions

COMPLETE: dict[str, Any] = {
    "ID": "n",
    "Drain": False,
    "DrainStrategy": None,
    "SchedulingEligibility": "eligible",
    "NodeMaxAllocs": 0,
    "NodeResources": {"NodeNetworks": [], "Processors": {"Topology": {"Cores": [{"ID": 0, "BaseSpeed": 1000}]}}},
}


def resources_of(data: dict[str, Any]) -> dict[str, Any]:
    node = Node.from_api({"NodeResources": data})
    result = canonical_node(node)
    assert node.to_api() == {"NodeResources": data}, "the input changed"
    again = canonical_node(result)
    assert again is result, "canonical form is not stable"
    assert result.node_resources is not None
    return result.node_resources.to_api()


@pytest.mark.parametrize(
    ("data", "eligibility"),
    [
        ({}, "eligible"),
        ({"SchedulingEligibility": "ineligible"}, "ineligible"),
        ({"SchedulingEligibility": "eligible", "DrainStrategy": {}}, "ineligible"),
        ({"Drain": True}, "ineligible"),
        ({"Drain": True, "DrainStrategy": None}, "eligible"),
        ({"Drain": False, "SchedulingEligibility": "eligible"}, "eligible"),
        ({"SchedulingEligibility": "maybe"}, "maybe"),
    ],
)
def test_eligibility(data: dict[str, Any], eligibility: str) -> None:
    assert canonical_node(Node.from_api(data)).scheduling_eligibility == eligibility


def test_a_canonical_node_is_returned_as_it_is() -> None:
    node = Node.from_api(COMPLETE)
    assert canonical_node(node) is node


def test_topology_from_reservable_cores() -> None:
    got = resources_of({"Cpu": {"CpuShares": 1000, "TotalCpuCores": 8, "ReservableCpuCores": [2, 5, 7]}, "NodeNetworks": []})
    assert got["Processors"] == {
        "Topology": {"OverrideTotalCompute": 1000, "Cores": [{"ID": 2, "GuessSpeed": 333}, {"ID": 5, "GuessSpeed": 333}, {"ID": 7, "GuessSpeed": 333}]}
    }


def test_topology_from_the_number_of_cores() -> None:
    got = resources_of({"Cpu": {"CpuShares": 1001, "TotalCpuCores": 2}, "NodeNetworks": []})
    assert got["Processors"]["Topology"]["Cores"] == [{"GuessSpeed": 500}, {"ID": 1, "GuessSpeed": 500}]


@pytest.mark.parametrize("cpu", [{}, {"CpuShares": 1000}, {"TotalCpuCores": 4}])
def test_no_topology_without_shares_and_cores(cpu: dict[str, Any]) -> None:
    assert "Processors" not in resources_of({"Cpu": cpu, "NodeNetworks": []})
    # Only where host networks are absent too, it becomes the empty one.
    assert resources_of({"Cpu": cpu})["Processors"] == {"Topology": {}}


def test_topology_is_kept_where_it_is_given() -> None:
    data = {"Cpu": {"CpuShares": 5, "TotalCpuCores": 1}, "NodeNetworks": [], "Processors": {"Topology": {"OverrideTotalCompute": 7}}}
    assert resources_of(data) == data
    # Without host networks a topology without cores loses its override.
    assert resources_of({"Processors": {"Topology": {"OverrideTotalCompute": 7}}}) == {"Processors": {"Topology": {}}}
    cores: dict[str, Any] = {"Processors": {"Topology": {"OverrideTotalCompute": 7, "Cores": [{}]}}}
    assert resources_of(cores) == cores


def test_host_networks_from_legacy_networks() -> None:
    cores: dict[str, Any] = {"Topology": {"Cores": [{}]}}
    got = resources_of({"Processors": cores, "Networks": [{"Mode": "host", "Device": "eth0", "IP": "10.0.0.1", "MBits": 1000}, {"Mode": "bridge"}, None]})
    assert got["NodeNetworks"] == [
        {"Mode": "host", "Device": "eth0", "Speed": 1000, "Addresses": [{"Alias": "default", "Address": "10.0.0.1"}]},
        {"Mode": "bridge"},
        None,
    ]
    assert resources_of({"Processors": cores, "Networks": [{"IP": "10.0.0.1"}], "NodeNetworks": []})["NodeNetworks"] == []
    assert resources_of({"Processors": cores, "Networks": []})["NodeNetworks"] == []
    assert "NodeNetworks" not in resources_of({"Processors": cores})


def test_node_of_the_layout_before_the_split() -> None:
    data = {
        "ID": "old",
        "Resources": {"CPU": 4000, "MemoryMB": 8000, "DiskMB": 100, "Networks": [{"Device": "eth0", "IP": "10.0.0.1", "MBits": 100}]},
        "Reserved": {"CPU": 100, "MemoryMB": 200, "DiskMB": 10, "Networks": [{"IP": "10.0.0.1", "ReservedPorts": [{"Value": 22}]}]},
    }
    node = Node.from_api(data)
    got = canonical_node(node)
    assert canonical_node(got) is got
    assert node.to_api() == data
    assert got.to_api() == data | {
        "SchedulingEligibility": "eligible",
        "NodeResources": {
            "Memory": {"MemoryMB": 8000},
            "Disk": {"DiskMB": 100},
            "Networks": [{"Device": "eth0", "IP": "10.0.0.1", "MBits": 100}],
            "NodeNetworks": [],
            "Processors": {"Topology": {"OverrideTotalCompute": 4000}},
        },
        "ReservedResources": {"Cpu": {"CpuShares": 100}, "Memory": {"MemoryMB": 200}, "Disk": {"DiskMB": 10}},
    }
    for record in (node, got, got.copy()):
        assert [network.to_api() for network in record.legacy_reserved_networks if network] == [{"IP": "10.0.0.1", "ReservedPorts": [{"Value": 22}]}]


def test_both_layouts_present_only_the_newer_counts() -> None:
    node = Node.from_api(COMPLETE | {"Resources": {"CPU": 1}, "Reserved": {"Networks": [{"IP": "10.0.0.1"}]}})
    assert canonical_node(node) is node
    assert node.legacy_reserved_networks == []


def test_supply_of_a_topology() -> None:
    cores = [
        {"ID": 3, "BaseSpeed": 1, "MaxSpeed": 10, "GuessSpeed": 100},
        {"ID": 1, "MaxSpeed": 20, "GuessSpeed": 200, "Disable": True},
        {"ID": 2, "GuessSpeed": 300},
    ]
    topology = Topology.from_api({"Cores": cores, "OverrideWitholdCompute": 50})
    assert (topology.total_compute_mhz, topology.usable_cores) == (321, [3, 2])
    topology.override_total_compute = 77
    assert topology.total_compute_mhz == 77


def alloc_resources(data: dict[str, Any]) -> dict[str, Any] | None:
    alloc = Allocation.from_api(data)
    result = canonical_alloc(alloc)
    assert alloc.to_api() == data, "the input changed"
    assert canonical_alloc(result) is result
    return None if result.allocated_resources is None else result.allocated_resources.to_api()


def test_alloc_from_task_resources() -> None:
    network = {"IP": "10.0.0.1", "ReservedPorts": [{"Value": 80}]}
    data = {
        "TaskResources": {
            "web": {"CPU": 100, "MemoryMB": 64, "MemoryMaxMB": 128, "DiskMB": 5, "Cores": 2, "Networks": [network], "Devices": [{"Name": "gpu"}]},
            "x": None,
        },
        "SharedResources": {"DiskMB": 300, "CPU": 7, "Networks": [{"IP": "10.0.0.2"}]},
        "Resources": {"CPU": 1},
    }
    assert alloc_resources(data) == {
        "Tasks": {"web": {"Cpu": {"CpuShares": 100}, "Memory": {"MemoryMB": 64}, "Networks": [network]}, "x": None},
        "Shared": {"DiskMB": 300, "Networks": [{"IP": "10.0.0.2"}]},
    }
    assert alloc_resources({"TaskResources": {}}) == {}


def test_alloc_from_whole_resources() -> None:
    data = {"Resources": {"CPU": 100, "MemoryMB": 64, "MemoryMaxMB": 128, "DiskMB": 5, "Networks": [{"IP": "10.0.0.1"}]}}
    assert alloc_resources(data) == {"Tasks": {"main": {"Cpu": {"CpuShares": 100}, "Memory": {"MemoryMB": 64, "MemoryMaxMB": 128}}}, "Shared": {"DiskMB": 5}}


def test_alloc_without_resources_stays_without() -> None:
    assert alloc_resources({"ID": "stub"}) is None
    assert alloc_resources({"SharedResources": {"DiskMB": 1}}) is None


def test_canonical_alloc_keeps_todays_layout() -> None:
    alloc = Allocation.from_api({"AllocatedResources": {}, "TaskResources": {"web": {"CPU": 1}}})
    assert canonical_alloc(alloc) is alloc


def test_canonical_parts_share_nothing_with_the_input() -> None:
    alloc = Allocation.from_api({"TaskResources": {"web": {"Networks": [{"IP": "1"}]}}})
    made = canonical_alloc(alloc)
    assert made.allocated_resources is not None
    web = made.allocated_resources.tasks["web"]
    assert web is not None
    assert web.networks[0] is not None
    web.networks[0].ip = "2"
    assert alloc.to_api() == {"TaskResources": {"web": {"Networks": [{"IP": "1"}]}}}


@pytest.mark.parametrize(
    ("data", "open_dimensions"),
    [
        (COMPLETE, set()),
        ({"ID": "stub", "Drain": False}, {"cpu", "memory", "disk", "cores", "port", "device", "max_allocs"}),
        ({"Drain": False, "NodeResources": COMPLETE["NodeResources"]}, {"max_allocs"}),
        ({"NodeMaxAllocs": 0, "NodeResources": {"Cpu": {"CpuShares": 1}}}, {"cores", "port"}),
        ({"NodeMaxAllocs": 0, "Resources": {"CPU": 1}}, {"cores", "device"}),
    ],
)
def test_what_a_node_leaves_open(data: dict[str, Any], open_dimensions: set[str]) -> None:
    found = lossy_dimensions(Node.from_api(data))
    assert set(found) == open_dimensions
    assert all(found.values())


@pytest.mark.parametrize(
    ("data", "open_dimensions"),
    [
        ({"Job": {}, "AllocatedResources": {"TaskLifecycles": None}}, set()),
        ({"AllocatedResources": {"TaskLifecycles": None}}, {"host_volume"}),
        ({"ClientStatus": "complete"}, set()),
        ({"Job": {}}, {"cpu", "memory", "disk", "cores", "port", "device"}),
        ({"Job": {}, "AllocatedResources": {"Tasks": {"t": {"Cpu": {"CpuShares": 1}}}}}, {"cpu", "memory", "cores"}),
        ({"Job": {}, "AllocatedResources": {"Tasks": {"t": {"Cpu": {"ReservedCores": None}}}, "Shared": {"Ports": [{}]}}}, {"cpu", "memory", "port"}),
        ({"Job": {}, "TaskResources": {}}, {"cores", "device"}),
        ({"Job": {}, "Resources": {}}, {"cores", "device", "port"}),
    ],
)
def test_what_an_allocation_leaves_open(data: dict[str, Any], open_dimensions: set[str]) -> None:
    assert set(lossy_dimensions(Allocation.from_api(data))) == open_dimensions
