"""What stacks choose under strict rules the applier accepts: random clusters, ports, cores, devices, volumes, victims."""

from __future__ import annotations

import random
from typing import Any

from fastplan.planner import evaluate_plan
from fastplan.rules import Rules
from fastplan.structs import Allocation, Job, Node
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job
from tests.scheduler.ranking import Site
from tests.sizes import sized

PREEMPTING = {"SchedulerAlgorithm": "binpack", "PreemptionConfig": {"ServiceSchedulerEnabled": True}}
ADDRESS = "10.0.0.1"


def random_node(rng: random.Random, number: int) -> Node:
    node = ready_node(f"n{number}", cpu_mhz=rng.choice((2000, 4000)), memory_mib=rng.choice((1024, 4096)), disk_mib=2000)
    api = node.to_api()
    instances = [{"ID": f"g{instance}", "Healthy": rng.random() < 0.8} for instance in range(rng.randrange(4))]
    api["NodeResources"]["Devices"] = [{"Vendor": "nvidia", "Type": "gpu", "Name": "T4", "Instances": instances}]
    api["NodeResources"]["MaxDynamicPort"] = 20000 + rng.randrange(4)
    api["NodeMaxAllocs"] = rng.choice((0, 0, 4))
    api["HostVolumes"] = {"data": {"Name": "data", "Path": "/data"}}
    return Node.from_api(api)


def random_group(rng: random.Random) -> dict[str, Any]:
    group = group_api(count=4, cpu_mhz=rng.choice((200, 900)), memory_mib=rng.choice((100, 700)))
    resources = group["Tasks"][0]["Resources"]
    if rng.random() < 0.3:
        resources["Cores"] = rng.randrange(1, 3)
    if rng.random() < 0.3:
        resources["Devices"] = [{"Name": "gpu", "Count": rng.randrange(1, 3)}]
    if rng.random() < 0.5:
        ports: dict[str, list[dict[str, Any]]] = {"DynamicPorts": [{"Label": "http", "HostNetwork": "default"}]}
        if rng.random() < 0.4:
            ports["ReservedPorts"] = [{"Label": "admin", "Value": rng.choice((80, 20001)), "HostNetwork": "default"}]
        group["Networks"] = [{"Mode": "host", **ports}]
    if rng.random() < 0.3:
        mode = rng.choice(("single-node-single-writer", "multi-node-multi-writer"))
        group["Volumes"] = {"data": {"Name": "data", "Type": "host", "Source": "data", "AccessMode": mode}}
    return group


def random_alloc(rng: random.Random, number: int, job: Job, node: Node) -> Allocation:
    task: dict[str, Any] = {"Cpu": {"CpuShares": rng.choice((100, 800))}, "Memory": {"MemoryMB": rng.choice((50, 600))}}
    if rng.random() < 0.3:
        task["Cpu"]["ReservedCores"] = [rng.randrange(4)]
    if rng.random() < 0.3:
        task["Devices"] = [{"Vendor": "nvidia", "Type": "gpu", "Name": "T4", "DeviceIDs": [f"g{rng.randrange(3)}"]}]
    shared: dict[str, Any] = {"DiskMB": 300}
    if rng.random() < 0.4:
        port = rng.choice((80, 20000, 20001))
        shared["Ports"] = [{"Label": "http", "Value": port, "HostIP": ADDRESS}]
        shared["Networks"] = [{"Mode": "host", "IP": ADDRESS, "ReservedPorts": [{"Label": "http", "Value": port}]}]
    return running_alloc(
        f"a{number}",
        job,
        node.id,
        index=number,
        AllocatedResources={"Tasks": {"web": task}, "Shared": shared},
        DesiredStatus=rng.choice(("run", "run", "stop")),
    )


def test_plans_are_accepted_as_a_whole():
    placed = evicted = 0
    for seed in range(sized(150, 3000)):
        new, victims = place_and_verify(random.Random(seed))
        placed += new
        evicted += victims
    assert placed > 150
    assert evicted > 15


def place_and_verify(rng: random.Random) -> tuple[int, int]:
    """Place up to four allocations, let the applier judge, and return how many were placed, and how many have to give way."""
    nodes = [random_node(rng, number) for number in range(3)]
    job = service_job("web", random_group(rng), Priority=70)
    owners = [service_job(f"other-{priority}", random_group(rng), Priority=priority) for priority in (20, 50, 65)]
    allocs = [random_alloc(rng, number, rng.choice(owners), rng.choice(nodes)) for number in range(rng.randrange(9))]
    site = Site(job, nodes, allocs, rules=Rules.STRICT, config=PREEMPTING)
    for alloc in allocs:
        stored = site.state.alloc(alloc.id)
        if stored is not None and rng.random() < 0.2:
            site.context.draft.stop(stored, "test")
    placed = 0
    for _ in range(4):
        if site.place() is not None or site.place(preempt=True) is not None:
            placed += 1
    plan = site.context.draft.to_plan()
    result = evaluate_plan(site.state, plan, rules=Rules.STRICT)
    assert not result.rejected_nodes
    assert result.full_commit(plan) == (True, placed, placed)
    return placed, sum(len(victims) for victims in site.context.draft.node_preemptions.values())
