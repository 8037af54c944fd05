"""What allocations ask and nodes offer, as plain values for the compiled check."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.fit.demand import DeviceUse, PortUse, VolumeClaim, demand_of
from fastplan.fit.supply import supply_of
from fastplan.structs import canonical_node
from tests.fit.fixture_f import FIVE, SIX, alloc, gpu, load, load_node, network, node_f, port, volume_job, with_networks


def demand(one: dict[str, Any]) -> Any:
    return demand_of(*load(one))


def test_everything_an_allocation_asks():
    asked = demand(
        alloc(
            300, 200, 70, memory_max=900, cores=(3, 1), devices=[gpu("g1", "g0")], ports=[port(8001), port(80, SIX, ignore=True)],
            Job=volume_job("single-node-single-writer", ""), client="pending", desired="stop",
        )
    )  # fmt: skip
    assert (asked.cpu_mhz, asked.memory_mib, asked.memory_max_mib, asked.disk_mib, asked.cores) == (300, 200, 900, 70, (1, 3))
    assert asked.ports == (PortUse(FIVE, 8001, False), PortUse(SIX, 80, True))
    assert asked.devices == (DeviceUse(("acme", "gpu", "x1"), "g1"), DeviceUse(("acme", "gpu", "x1"), "g0"))
    assert asked.volumes == (VolumeClaim("d", True), VolumeClaim("d", False))
    assert (asked.client_terminal, asked.server_terminal, asked.irregular) == (False, True, "")


def test_ports_of_networks_in_the_order_of_booking():
    asked = demand(with_networks("a", group=[network(1, dynamic=(2,)), network(3, address=SIX)], tasks={"z": [network(6)], "b": [network(4, 5), network(9)]}))
    assert [use.port for use in asked.ports] == [1, 2, 3, 4, 5, 6]
    assert [use.address for use in asked.ports] == [FIVE, FIVE, SIX, FIVE, FIVE, FIVE]


def test_terminal_allocation_still_shows_what_it_asks():
    asked = demand(alloc(300, client="lost"))
    assert (asked.client_terminal, asked.cpu_mhz) == (True, 300)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        ({"ID": "a"}, "AllocatedResources"),
        (alloc(Job=volume_job("", group="other")), "TaskGroup"),
        (alloc(-1), "CpuShares"),
        (alloc(1, 1, -1), "DiskMB"),
        (alloc(2**63 - 1), "62 bits"),
        (alloc(ports=[port(65536)]), "out of range"),
        (alloc(ports=[port(-1)]), "out of range"),
        (alloc(ports=[port(8000), port(8000, ignore=True)]), "port is held twice"),
        (alloc(devices=[gpu("g0"), gpu("g0")]), "device instance is held twice"),
    ],
)
def test_irregular_allocations_say_why(one, why):
    assert why in demand(one).irregular


def test_everything_a_node_offers():
    supply = supply_of(canonical_node(load_node(node_f() | {"NodeMaxAllocs": 7})))
    assert (supply.node_id, supply.cpu_mhz, supply.memory_mib, supply.disk_mib, supply.max_allocs) == ("node-f", 7500, 15000, 48000, 7)
    assert supply.cores == {0, 1, 2, 3}
    assert supply.devices == {("acme", "gpu", "x1"): ("g0", "g1")}
    assert supply.ports.reserved == {FIVE: ((22, 22), (9100, 9102)), SIX: ((22, 22), (8443, 8443), (9100, 9102))}
    assert supply.ports.host_networks == {"default": (FIVE,), "alt": (SIX,)}
    assert (supply.ports.error, supply.ports.dynamic_range, supply.invalid, supply.devices_invalid) == ("", (20000, 32000), None, None)


def test_nodes_share_their_reserved_ranges():
    first, second = (supply_of(canonical_node(load_node())).ports.reserved for _ in range(2))
    assert first[FIVE] is second[FIVE]


def test_speed_of_a_core_is_the_first_known():
    node = node_f()
    node["NodeResources"]["Processors"]["Topology"]["Cores"] = [
        {"ID": 0, "BaseSpeed": 1000, "MaxSpeed": 9, "GuessSpeed": 9},
        {"ID": 1, "MaxSpeed": 200, "GuessSpeed": 9},
        {"ID": 2, "GuessSpeed": 30},
        {"ID": 3, "BaseSpeed": 4, "Disable": True},
    ]
    node["ReservedResources"] = None
    supply = supply_of(load_node(node))
    assert (supply.cpu_mhz, set(supply.cores)) == (1234, {0, 1, 2})


def test_withheld_compute_plays_no_part():
    node = node_f()
    node["NodeResources"]["Processors"]["Topology"]["OverrideWitholdCompute"] = 5000
    assert supply_of(load_node(node)).cpu_mhz == 7500


def test_unreadable_parts_of_a_node_are_named():
    assert supply_of(load_node({"ID": "bare"})).invalid is not None
    node = node_f()
    node["NodeResources"]["Devices"] = [None]
    node["NodeResources"]["NodeNetworks"] = [None]
    supply = supply_of(load_node(node))
    assert supply.devices_invalid is not None
    assert supply.devices_invalid.path == "node.NodeResources.Devices[0]"
    assert supply.ports.invalid is not None
    assert supply.ports.invalid.path == "node.NodeResources.NodeNetworks[0]"
