"""Who gives way (schedulers 9.8, 11): rows R24 to R28, known faults 93 and 94, and the recorded answers."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from fastplan.fit.demand import Totals
from fastplan.fit.supply import supply_of
from fastplan.scheduler.preempt_calls import preempt_for_device, preempt_for_network, preempt_for_task_group
from fastplan.scheduler.preempt_devices import victims_for_device
from fastplan.scheduler.preempt_network import victims_for_network
from fastplan.scheduler.preemption import Preemptor, distance, net_priority, preemption_score
from fastplan.structs import Allocation, NetworkResource, Node
from fastplan.structs.canonical import canonical_node
from fastplan.testing.builders import ready_node, running_alloc, service_job
from tests.shared_data import shared_path

CHOOSE = {"task_group": preempt_for_task_group, "network": preempt_for_network, "device": preempt_for_device}
HIGH = {"ID": "high", "Namespace": "default", "Priority": 100}


def amounts(cpu_mhz: int, memory_mib: int, disk_mib: int) -> Totals:
    return Totals(cpu_mhz, memory_mib, 0, disk_mib, frozenset())


def ask(cpu_mhz: int = 0, memory_mib: int = 0) -> dict[str, Any]:
    return {"Tasks": {"web": {"Cpu": {"CpuShares": cpu_mhz}, "Memory": {"MemoryMB": memory_mib}}}}


def low_alloc(alloc_id: str, node: Node, *, priority: int = 20, job_id: str = "", max_parallel: int = 0, **amounts: int) -> Allocation:
    migrate = {"Migrate": {"MaxParallel": max_parallel}} if max_parallel else {}
    job = service_job(job_id or f"job-of-{alloc_id}", {"Name": "web", "Count": 3, **migrate}, Priority=priority)
    return running_alloc(alloc_id, job, node.id, **amounts)


def test_recorded_answers():
    differing, methods = [], set()
    with gzip.open(shared_path("oracles", "preempt.jsonl.gz"), "rt", encoding="utf-8") as lines:
        for case in map(json.loads, lines):
            given = case["input"]
            methods.add(given["method"])
            jobs = {
                job_id: {
                    "ID": job_id,
                    "Namespace": job["Namespace"],
                    "Priority": job["Priority"],
                    "TaskGroups": [{"Name": job["TaskGroup"], "Migrate": {"MaxParallel": job["MigrateMaxParallel"]}}],
                }
                for job_id, job in given["jobs"].items()
            }
            allocs = [Allocation.from_api({**alloc, "Job": jobs[alloc["JobID"]]}) for alloc in given["allocs"]]
            victims = CHOOSE[given["method"]](Node.from_api(given["node"]), allocs, given["ask"], given["job"], given["already_preempted"])
            if (None if victims is None else sorted(victims)) != case["answer"]["preempt"]:
                differing.append(case["id"])
    assert methods == set(CHOOSE)
    assert differing == []


@pytest.mark.parametrize(("alloc", "expected"), [((1024, 400, 1024), 0.928), ((8192, 200, 1024), 3.152), ((2048, 500, 4096), 0.023)])
def test_r24_distance(alloc, expected):
    assert distance(amounts(2048, 512, 4096), amounts(*alloc)) == pytest.approx(expected, abs=5e-4)


def test_what_is_not_asked_is_no_distance():
    assert distance(amounts(1000, 0, 0), amounts(500, 4096, 100)) == 0.5


def test_r25_superfluous_victims_are_left_out():
    node = ready_node("n1", cpu_mhz=2000, memory_mib=2000)
    # The small one is nearer to what is asked, the large one alone is enough.
    allocs = [low_alloc("small", node, cpu_mhz=900, memory_mib=500), low_alloc("large", node, cpu_mhz=1100, memory_mib=1500)]
    assert preempt_for_task_group(node, allocs, ask(1050, 550), HIGH, []) == ["large"]


def test_r26_the_migration_limit_steers_to_another_job():
    node = ready_node("n1", cpu_mhz=2000, memory_mib=2000)
    allocs = [low_alloc("a", node, job_id="limited", max_parallel=1, cpu_mhz=1000), low_alloc("b", node, job_id="free", cpu_mhz=900)]
    preempted = {"Namespace": "default", "JobID": "limited", "TaskGroup": "web"}
    assert preempt_for_task_group(node, allocs, ask(900, 10), HIGH, []) == ["b"]
    assert preempt_for_task_group(node, allocs, ask(1000, 10), HIGH, []) == ["a"]
    assert preempt_for_task_group(node, allocs, ask(1000, 10), HIGH, [preempted]) == ["b"]


@pytest.mark.parametrize(("strict", "expected"), [(False, ["victim"]), (True, None)])
def test_r27_allocations_of_the_job_itself_count_as_used_under_strict_rules_only(strict, expected):
    node = ready_node("n1", cpu_mhz=2000, memory_mib=2000)
    own = running_alloc("own", service_job("high", Priority=100), node.id, cpu_mhz=1200)
    preemptor = Preemptor(namespace="default", job_id="high", priority=100, strict=strict)
    victims = preemptor.for_resources(supply_of(canonical_node(node)), [own, low_alloc("victim", node, cpu_mhz=800)], amounts(1500, 10, 0))
    assert (None if victims is None else [alloc.id for alloc in victims]) == expected


def test_r28_many_low_ones_go_rather_than_one_high_one():
    node = ready_node("n1")
    twenties = [low_alloc(name, node, priority=20) for name in "ab"]
    forty_five = [low_alloc("c", node, priority=45)]
    assert (net_priority(twenties), net_priority(forty_five)) == (22.0, 46.0)
    assert preemption_score(twenties) > preemption_score(forty_five) > 0.9


def test_fault_93_missing_parts_count_as_nothing():
    node = ready_node("n1", cpu_mhz=1000)
    empty = low_alloc("empty", node)
    empty.allocated_resources = None
    assert preempt_for_task_group(node, [empty, low_alloc("full", node, cpu_mhz=1000)], ask(600, 10), HIGH, []) == ["full"]
    assert preempt_for_network(node, [empty, low_alloc("full", node)], {"ReservedPorts": [{"Label": "http", "Value": 80}]}, HIGH, []) is None
    assert preempt_for_device(node, [empty, low_alloc("full", node)], {"Name": "gpu", "Count": 1}, HIGH, []) is None


def test_fault_94_several_small_ones_make_room_for_a_large_one():
    node = ready_node("n1", memory_mib=600)
    allocs = [low_alloc(name, node, priority=1, cpu_mhz=10, memory_mib=200) for name in "abc"]
    victims = preempt_for_task_group(node, allocs, ask(10, 250), HIGH, [])
    assert victims is not None
    assert len(victims) == 2
    assert preempt_for_task_group(node, allocs, ask(10, 250), {**HIGH, "Priority": 10}, []) is None


def test_lower_priorities_go_first():
    node = ready_node("n1", cpu_mhz=1000)
    allocs = [low_alloc("twenty", node, priority=20, cpu_mhz=500), low_alloc("ten", node, priority=10, cpu_mhz=500)]
    assert preempt_for_task_group(node, allocs, ask(500, 10), HIGH, []) == ["ten"]


def test_of_equals_the_one_with_the_lowest_id_goes():
    node = ready_node("n1", cpu_mhz=1000)
    allocs = [low_alloc(name, node, cpu_mhz=500) for name in "ba"]
    assert preempt_for_task_group(node, allocs, ask(500, 10), HIGH, []) == ["a"]


def test_pinned_cores_are_part_of_what_must_be_free():
    node = ready_node("n1", cpu_mhz=4000)
    pinned = {"Tasks": {"web": {"Cpu": {"CpuShares": 2000, "ReservedCores": [0, 1]}, "Memory": {"MemoryMB": 1}}}}
    allocs = [low_alloc("plain", node, cpu_mhz=2000), low_alloc("pinned", node)]
    allocs[1].allocated_resources = Allocation.from_api({"AllocatedResources": pinned}).allocated_resources
    assert preempt_for_task_group(node, allocs, pinned, HIGH, []) == ["pinned"]


def on_network(node: Node, alloc_id: str, *ports: int, mbits: int = 0, priority: int = 20) -> Allocation:
    alloc = low_alloc(alloc_id, node, priority=priority)
    network = {"Device": "eth0", "IP": "10.0.0.1", "MBits": mbits, "ReservedPorts": [{"Label": f"p{port}", "Value": port} for port in ports]}
    alloc.allocated_resources = Allocation.from_api({"AllocatedResources": {"Tasks": {"web": {"Networks": [network]}}}}).allocated_resources
    return alloc


def network_node() -> Node:
    node = ready_node("n1")
    assert node.node_resources is not None
    node.node_resources.networks = [NetworkResource(device="eth0", ip="10.0.0.1", cidr="10.0.0.1/32", mbits=1000)]
    return node


@pytest.mark.parametrize(("strict", "expected"), [(False, {"a"}), (True, {"a", "b"})])
def test_every_holder_of_a_port_goes_under_strict_rules_only(strict, expected):
    node = network_node()
    wanted = NetworkResource.from_api({"ReservedPorts": [{"Label": "x", "Value": 80}, {"Label": "y", "Value": 81}]}, "ask")
    preemptor = Preemptor(namespace="default", job_id="high", priority=100, strict=strict)
    allocs = [on_network(node, "a", 80), on_network(node, "b", 81), on_network(node, "c", 82)]
    victims = victims_for_network(preemptor, supply_of(canonical_node(node)), allocs, wanted)
    assert victims is not None
    assert {alloc.id for alloc in victims} == expected


def test_a_device_on_which_nobody_is_in_the_way_is_passed_over():
    node = network_node()
    shared = {"Shared": {"Networks": [{"Mode": "host", "ReservedPorts": [{"Label": "x", "Value": 80}]}]}}
    holder = low_alloc("holder", node)
    holder.allocated_resources = Allocation.from_api({"AllocatedResources": shared}).allocated_resources
    wanted = {"ReservedPorts": [{"Label": "x", "Value": 80}]}
    assert preempt_for_network(node, [on_network(node, "a", 443), holder], wanted, HIGH, []) == ["holder"]


def test_a_port_of_somebody_too_important_rules_the_device_out():
    node = network_node()
    wanted = {"ReservedPorts": [{"Label": "x", "Value": 80}, {"Label": "y", "Value": 81}]}
    assert preempt_for_network(node, [on_network(node, "a", 80), on_network(node, "b", 81, priority=95)], wanted, HIGH, []) is None


def test_bandwidth_beyond_the_device_is_hopeless():
    node = network_node()
    allocs = [on_network(node, "a", mbits=500), on_network(node, "b", mbits=500)]
    assert preempt_for_network(node, allocs, {"MBits": 1001}, HIGH, []) is None
    assert preempt_for_network(node, allocs, {"MBits": 1000}, HIGH, []) == ["a", "b"]
    assert preempt_for_network(node, allocs, {"MBits": 500}, HIGH, []) == ["a"]


def device_node(**counts: int) -> Node:
    """A node with so many instances of each kind: a0, a1 …"""
    devices = [
        {"Vendor": "nvidia", "Type": "gpu", "Name": kind, "Instances": [{"ID": f"{kind}{number}", "Healthy": True} for number in range(count)]}
        for kind, count in counts.items()
    ]
    node = ready_node("n1").to_api()
    return Node.from_api({**node, "NodeResources": {**node["NodeResources"], "Devices": devices}})


def device_holder(node: Node, alloc_id: str, kind: str, numbers: list[int], priority: int) -> Allocation:
    alloc = low_alloc(alloc_id, node, priority=priority)
    held = {"Vendor": "nvidia", "Type": "gpu", "Name": kind, "DeviceIDs": [f"{kind}{number}" for number in numbers]}
    alloc.allocated_resources = Allocation.from_api({"AllocatedResources": {"Tasks": {"web": {"Devices": [held]}}}}).allocated_resources
    return alloc


@pytest.mark.parametrize(("strict", "expected"), [(False, {"one", "two"}), (True, {"two"})])
def test_free_instances_spare_holders_under_strict_rules_only(strict, expected):
    node = device_node(a=4)
    allocs = [device_holder(node, "one", "a", [0], 20), device_holder(node, "two", "a", [1, 2], 30)]
    preemptor = Preemptor(namespace="default", job_id="high", priority=100, strict=strict)
    victims = victims_for_device(preemptor, supply_of(canonical_node(node)), allocs, lambda kind: True, 3)
    assert victims is not None
    assert {alloc.id for alloc in victims} == expected


def test_of_several_kinds_the_one_whose_victims_matter_least():
    node = device_node(a=2, b=2)
    allocs = [
        device_holder(node, "one", "a", [0], 20),
        device_holder(node, "two", "a", [1], 20),
        device_holder(node, "three", "b", [0], 20),
        device_holder(node, "four", "b", [1], 30),
    ]
    # Twenty twice counts once: 20 against 50.
    assert preempt_for_device(node, allocs, {"Name": "gpu", "Count": 2}, HIGH, []) == ["one", "two"]
    assert preempt_for_device(node, allocs, {"Name": "nvidia/gpu/b", "Count": 2}, HIGH, []) == ["three", "four"]
    assert preempt_for_device(node, allocs, {"Name": "gpu", "Count": 3}, HIGH, []) is None
