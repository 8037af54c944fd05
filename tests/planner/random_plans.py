"""Random clusters and plans, small and full of conflicts, as dicts in the shape of the API; and a plain way to apply what was accepted."""

from __future__ import annotations

import random
import uuid
from typing import Any

import numpy

from fastplan import Allocation, Plan
from fastplan.planner import PlanResult
from fastplan.state import StateStore
from fastplan.state.statuses import client_number

ADDRESSES = ("10.0.0.1", "10.0.0.2")
CLIENTS = ("pending", "running", "running", "running", "unknown", "complete", "failed", "lost", "weird")
JOB: dict[str, Any] = {
    "ID": "planned",
    "Namespace": "default",
    "TaskGroups": [
        {"Name": "web"},
        {"Name": "shared", "Volumes": {"v": {"Source": "d", "AccessMode": "multi-node-reader-only"}}},
        {"Name": "single", "Volumes": {"v": {"Source": "d", "AccessMode": "single-node-single-writer"}}},
        {"Name": "twice", "Volumes": {"v": {"Source": "e", "AccessMode": ""}, "w": {"Source": "e", "AccessMode": ""}}},
        {"Name": "stays", "Disconnect": {"Replace": False}},
    ],
}
GROUPS = ("web", "web", "web", "shared", "single", "twice", "stays")


def new_id(rng: random.Random) -> str:
    """A new id: mostly a UUID."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4)) if rng.random() < 0.9 else f"odd-{rng.getrandbits(32)}"


def random_node(rng: random.Random, node_id: str) -> dict[str, Any]:
    """A node with little room."""
    cores = rng.choice((0, 4, 4))
    node: dict[str, Any] = {
        "ID": node_id,
        "Status": rng.choice(("ready",) * 8 + ("down", "disconnected", "initializing")),
        "SchedulingEligibility": rng.choice(("eligible",) * 5 + ("ineligible", "odd")),
        "NodeMaxAllocs": rng.choice((0, 0, 0, 4, 6)),
        "NodeResources": {
            "Processors": {"Topology": {"OverrideTotalCompute": 4000, "Cores": [{"ID": core, "BaseSpeed": 1000} for core in range(cores)]}},
            "Memory": {"MemoryMB": 4000},
            "Disk": {"DiskMB": 4000},
            "NodeNetworks": [{"Device": "eth0", "Addresses": [{"Alias": "default", "Address": address} for address in ADDRESSES]}],
            "Devices": [{"Vendor": "acme", "Type": "gpu", "Name": "x1", "Instances": [{"ID": f"g{i}", "Healthy": i < 2} for i in range(3)]}],
        },
    }
    if rng.random() < 0.1:
        node["ReservedResources"] = {"Networks": {"ReservedHostPorts": rng.choice(("8001", "8000-8003", "x"))}}
    if rng.random() < 0.04:
        del node["NodeResources"]
    return node


def random_resources(rng: random.Random, odd: float) -> dict[str, Any] | None:
    """What an allocation holds; with probability *odd* something that only the reference understands."""
    amounts = [rng.choice((100, 300, 500, 1000)) for _ in range(3)]
    if rng.random() < 0.02:
        amounts[rng.randrange(3)] = 5000
    resources: dict[str, Any] = {"Tasks": {"t": {"Cpu": {"CpuShares": amounts[0]}, "Memory": {"MemoryMB": amounts[1]}}}, "Shared": {"DiskMB": amounts[2]}}
    if rng.random() < 0.3:
        resources["Shared"]["Ports"] = [
            {"Label": str(i), "Value": value, "HostIP": rng.choice(ADDRESSES), "IgnoreCollision": rng.random() < odd}
            for i, value in enumerate(rng.sample(range(8000, 8012), rng.randint(1, 2)))
        ]
    elif rng.random() < 0.1:
        resources["Tasks"]["t"]["Networks"] = [{"Device": "eth0", "IP": ADDRESSES[0], "DynamicPorts": [{"Label": "d", "Value": rng.randrange(8000, 8012)}]}]
    if rng.random() < 0.12:
        resources["Tasks"]["t"]["Cpu"]["ReservedCores"] = rng.sample(range(5), rng.randint(1, 2))
    if rng.random() < 0.12:
        resources["Tasks"]["t"]["Devices"] = [
            {"Vendor": "acme", "Type": "gpu", "Name": rng.choice(("x1", "x1", "x9")), "DeviceIDs": [rng.choice(("g0", "g1", "g2"))]}
        ]
    if rng.random() < odd:
        odder = rng.randrange(5)
        if odder == 0:
            resources["Tasks"]["t"]["Memory"]["MemoryMB"] = -500
        elif odder == 1:
            resources["Tasks"]["t"]["Cpu"]["CpuShares"] = 2**60
        elif odder == 2:
            resources["Shared"]["Ports"] = [{"Value": 8000, "HostIP": ADDRESSES[0]}, {"Value": 70000, "HostIP": ADDRESSES[0]}]
        elif odder == 3:
            resources["Shared"]["Ports"] = [{"Value": 8005, "HostIP": ADDRESSES[0]}] * 2
        else:
            return None
    return resources


def random_alloc(rng: random.Random, alloc_id: str, node_id: str, odd: float) -> dict[str, Any]:
    """An allocation of the planned job, without the job."""
    group = rng.choice(GROUPS)
    return {
        "ID": alloc_id,
        "NodeID": node_id,
        "Namespace": "default",
        "JobID": "planned",
        "TaskGroup": group,
        "Name": f"planned.{group}[{rng.randrange(9)}]",
        "DesiredStatus": "run",
        "ClientStatus": "pending",
        "AllocatedResources": random_resources(rng, odd),
    }


def random_dump(rng: random.Random, odd: float, nodes: int = 5) -> dict[str, Any]:
    """A cluster whose nodes hold a few allocations in all statuses."""
    node_ids = sorted(new_id(rng) for _ in range(nodes))
    allocs = []
    for node_id in node_ids:
        for _ in range(rng.randint(0, 6)):
            alloc = random_alloc(rng, new_id(rng), node_id, odd)
            alloc |= {"ClientStatus": rng.choice(CLIENTS), "DesiredStatus": rng.choice(("run", "run", "run", "stop", "evict")), "Job": JOB}
            allocs.append(alloc)
    return {
        "nodes": [random_node(rng, node_id) for node_id in node_ids],
        "jobs": [JOB],
        "allocs": allocs,
        "indexes": {"nodes": rng.choice((0, 1001)), "allocs": rng.choice((0, 1001, 2000))},
    }


def random_plan(rng: random.Random, dump: dict[str, Any], odd: float, placed: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A plan for the cluster; *placed* are allocations of earlier plans that it may change too."""
    known = [*dump["allocs"], *(placed or ())]
    plan: dict[str, Any] = {"EvalID": new_id(rng), "AllAtOnce": rng.random() < 0.15, "NodeUpdate": {}, "NodeAllocation": {}, "NodePreemptions": {}}
    plan |= rng.choice(({"Job": JOB}, {"Job": JOB}, {"JobInfo": {"ID": "planned", "Namespace": "default"}}, {}))
    node_ids = [node["ID"] for node in dump["nodes"]]
    if rng.random() < 0.1:
        node_ids.append(new_id(rng))
    for node_id in rng.sample(node_ids, rng.randint(1, len(node_ids))):
        here = [alloc for alloc in known if alloc["NodeID"] == node_id]
        placements = []
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3))):
            kind = rng.random()
            if here and kind < 0.3:
                old = rng.choice(here)
                alloc = {**old, "Job": None, "DesiredStatus": "run"}
                if rng.random() < 0.6:
                    alloc["AllocatedResources"] = random_resources(rng, odd)
            else:
                alloc = random_alloc(rng, new_id(rng), node_id, odd)
            if rng.random() < 0.15:
                alloc["ClientStatus"] = rng.choice(("unknown", "lost", "running"))
            if rng.random() < odd / 2:
                alloc["NodeID"] = rng.choice((*node_ids, ""))
            if rng.random() < 0.1:
                alloc["Job"] = JOB
            placements.append(alloc)
            if rng.random() < odd / 2:
                placements.append(alloc)
        if placements or rng.random() < odd:
            plan["NodeAllocation"][node_id] = placements
        if here and rng.random() < 0.4:
            plan["NodeUpdate"][node_id] = [
                {"ID": rng.choice(here)["ID"], "DesiredDescription": "done", "ClientStatus": rng.choice(("", "", "lost", "unknown"))}
                for _ in range(rng.randint(1, 2))
            ]
        if here and rng.random() < 0.25:
            plan["NodePreemptions"][node_id] = [{"ID": rng.choice(here)["ID"], "PreemptedByAllocation": new_id(rng)} for _ in range(rng.randint(1, 2))]
    if known and rng.random() < odd / 4:
        plan["NodeUpdate"].setdefault(rng.choice(node_ids), []).append({"ID": rng.choice(known)["ID"]})
    if rng.random() < odd / 8:
        plan["NodePreemptions"].setdefault(rng.choice(node_ids), []).append({"ID": "nobody"})
    if rng.random() < 0.2:
        some = [alloc["ID"] for allocs in plan["NodeAllocation"].values() for alloc in allocs]
        plan["Deployment"] = {"ID": new_id(rng), "TaskGroups": {"web": {"PlacedCanaries": some[:3]}}}
    return plan


def apply(store: StateStore, index: int, plan: Plan, result: PlanResult) -> None:
    """Write the accepted part of *plan* to *store* in the plainest way (plan-apply 6.10)."""
    with store.batch():
        for node_id, allocs in result.node_allocation.items():
            for alloc in allocs:
                twin = alloc.copy()
                twin.node_id = twin.node_id or node_id
                twin.job = twin.job or plan.job
                store.upsert_allocs(index, [twin])
        table = store.allocs_view
        stamp = numpy.array([table.stamp(index, 0)], numpy.uint32)
        for node_id, stops in plan.node_update.items():
            for stop in stops or ():
                if node_id in result.node_update:
                    status = numpy.array([client_number(stop.client_status) if stop.client_status else 255], numpy.uint8)
                    table.stop_rows(stamp, _row(store, stop), numpy.array([store.note(stop.desired_description)], numpy.uint32), status)
        for preemptions in result.node_preemptions.values():
            for preemption in preemptions:
                note = store.note("evicted", preempted_by=preemption.preempted_by_allocation)
                table.preempt_rows(stamp, _row(store, preemption), numpy.array([note], numpy.uint32))
        store.touch(index, "allocs")


def _row(store: StateStore, alloc: Allocation) -> Any:
    return numpy.array([store.allocs_view.find(alloc.id)], numpy.uint32)
