"""Random clusters in which everything happens that the fit check knows: built from a seed, in the shape of the API."""

from __future__ import annotations

import random
from typing import Any

from fastplan.structs import Allocation, Job, Node

ADDRESSES = ["10.0.0.1", "10.0.0.2", "fe80::1"]
ALIASES = ["default", "public"]
KINDS = [("nvidia", "gpu", "a100"), ("nvidia", "gpu", "t4"), ("intel", "fpga", "f10")]
SOURCES = ["data", "logs"]


def random_node(rng: random.Random, number: int, *, odd: float = 0.15) -> Node:
    """Return a node; with the probability *odd* something about it is odd."""
    core_count = rng.choice([0, 2, 4, 8])
    resources: dict[str, Any] = {
        "Processors": {
            "Topology": {
                "Cores": [{"ID": core, "BaseSpeed": 1000, "Disable": rng.random() < 0.1} for core in range(core_count)],
                "OverrideTotalCompute": rng.choice([0, 0, 6000]) if core_count else 4000,
            }
        },
        "Memory": {"MemoryMB": rng.choice([1000, 4000, 8000])},
        "Disk": {"DiskMB": rng.choice([500, 10_000])},
        "NodeNetworks": [
            {
                "Mode": "host",
                "Device": "eth0",
                "Addresses": [
                    {"Alias": rng.choice(ALIASES), "Address": address, "ReservedPorts": rng.choice(["", "", "8001", "8003-8006"])}
                    for address in rng.sample(ADDRESSES, rng.randint(0, 3))
                ],
            }
        ],
        "Devices": [
            {
                "Vendor": vendor,
                "Type": device_type,
                "Name": name,
                "Instances": [{"ID": f"{name}-{instance}", "Healthy": rng.random() < 0.85} for instance in range(rng.randint(1, 4))],
            }
            for vendor, device_type, name in rng.sample(KINDS, rng.randint(0, 2))
        ],
        "MinDynamicPort": rng.choice([0, 8000, 8000]),
        "MaxDynamicPort": rng.choice([0, 8010, 8012]),
    }
    if not resources["MinDynamicPort"] or not resources["MaxDynamicPort"]:
        resources["MinDynamicPort"] = resources["MaxDynamicPort"] = 0
    node: dict[str, Any] = {
        "ID": f"node-{number:03}",
        "Status": rng.choice(["ready", "ready", "ready", "down", "initializing"]),
        "SchedulingEligibility": rng.choice(["eligible", "eligible", "ineligible"]),
        "NodeMaxAllocs": rng.choice([0, 0, 0, 3, 6]),
        "NodeResources": resources,
        "ReservedResources": {
            "Cpu": {"CpuShares": rng.choice([0, 500]), "ReservedCpuCores": rng.choice([[], [0]])},
            "Memory": {"MemoryMB": rng.choice([0, 100])},
            "Networks": {"ReservedHostPorts": rng.choice(["", "22", "8000-8001"])},
        },
    }
    if rng.random() < odd:
        twist = rng.randrange(6)
        if twist == 0:
            node["ReservedResources"]["Networks"]["ReservedHostPorts"] = "80,x"
        elif twist == 1:
            node["ReservedResources"]["Networks"]["ReservedHostPorts"] = "65530-65536"
        elif twist == 2:
            node["ReservedResources"]["Memory"]["MemoryMB"] = 100_000
        elif twist == 3:
            del node["NodeResources"]
        elif twist == 4:
            node["NodeMaxAllocs"] = -1
        else:
            resources["Memory"]["MemoryMB"] = 2**60
    return Node.from_api(node)


def random_job(rng: random.Random, number: int) -> Job:
    """Return a job with one group `g`, for groups that are asked for and volumes that are claimed."""
    tasks = []
    for task in range(rng.randint(1, 2)):
        pattern = rng.choice(["gpu", "nvidia/gpu", "nvidia/gpu/a100", "fpga"])
        tasks.append(
            {
                "Name": f"t{task}",
                "Resources": {
                    "CPU": rng.choice([0, 100, 700]),
                    "Cores": rng.choice([0, 0, 0, 1, 2]),
                    "MemoryMB": rng.choice([10, 300, 900]),
                    "Devices": [{"Name": pattern, "Count": rng.randint(1, 2)}] if rng.random() < 0.25 else [],
                },
                "Lifecycle": rng.choice([None, None, {"Hook": "prestart", "Sidecar": rng.random() < 0.5}]),
            }
        )
    static = [
        {"Label": f"s{index}", "Value": rng.choice([8002, 8003, 9000]), "HostNetwork": rng.choice(["", *ALIASES])} for index in range(rng.choice([0, 0, 1, 2]))
    ]
    dynamic = [{"Label": f"d{index}", "To": rng.choice([0, -1, 80]), "HostNetwork": rng.choice(["", *ALIASES])} for index in range(rng.choice([0, 0, 1, 2, 4]))]
    volumes = {
        source: {"Name": source, "Source": source, "AccessMode": rng.choice(["single-node-writer", "single-node-single-writer", ""])}
        for source in rng.sample(SOURCES, rng.choice([0, 0, 0, 1]))
    }
    group = {
        "Name": "g",
        "Count": 1,
        "Tasks": tasks,
        "Networks": [{"Mode": "host", "ReservedPorts": static, "DynamicPorts": dynamic}] if static or dynamic else [],
        "EphemeralDisk": {"SizeMB": rng.choice([0, 50])},
        "Volumes": volumes,
    }
    return Job.from_api({"ID": f"job-{number}", "Namespace": "default", "Type": "service", "TaskGroups": [group]})


def random_alloc(rng: random.Random, alloc_id: str, node_id: str, *, odd: float = 0.08) -> Allocation:
    """Return an allocation that may collide with others of its node; with the probability *odd* something about it is odd."""
    ports = [
        {"Label": f"p{index}", "Value": rng.randint(8000, 8030), "HostIP": rng.choice([*ADDRESSES, "203.0.113.9"]), "IgnoreCollision": rng.random() < 0.1}
        for index in range(rng.choice([0, 0, 1, 2]))
    ]
    tasks: dict[str, Any] = {}
    for task in range(rng.randint(1, 2)):
        devices = []
        if rng.random() < 0.2:
            vendor, device_type, name = rng.choice(KINDS)
            devices = [{"Vendor": vendor, "Type": device_type, "Name": name, "DeviceIDs": [f"{name}-{rng.randint(0, 4)}"]}]
        tasks[f"t{task}"] = {
            "Cpu": {"CpuShares": rng.choice([0, 100, 500]), "ReservedCores": rng.sample(range(9), rng.choice([0, 0, 0, 0, 1]))},
            "Memory": {"MemoryMB": rng.choice([0, 50, 400]), "MemoryMaxMB": rng.choice([0, 0, 800, -1])},
            "Devices": devices,
        }
    resources: dict[str, Any] = {"Tasks": tasks, "Shared": {"DiskMB": rng.choice([0, 0, 20]), "Ports": ports}}
    if not ports and rng.random() < 0.3:
        resources["Shared"]["Networks"] = [{"Device": "eth0", "IP": rng.choice(ADDRESSES), "ReservedPorts": [{"Label": "n", "Value": rng.randint(8000, 8030)}]}]
    alloc: dict[str, Any] = {
        "ID": alloc_id,
        "NodeID": node_id,
        "Name": f"job.g[{alloc_id}]",
        "TaskGroup": "g",
        "DesiredStatus": rng.choice(["run", "run", "run", "stop", "evict"]),
        "ClientStatus": rng.choice(["pending", "running", "running", "running", "unknown", "complete"]),
        "AllocatedResources": resources,
    }
    if rng.random() < 0.2:
        volumes = {source: {"Source": source, "AccessMode": rng.choice(["single-node-single-writer", "", ""])} for source in rng.sample(SOURCES, 1)}
        alloc["Job"] = {"ID": "job", "TaskGroups": [{"Name": "g", "Volumes": volumes}]}
    if rng.random() < odd:
        twist = rng.randrange(7)
        if twist == 0:
            tasks["t0"]["Cpu"]["CpuShares"] = -500
        elif twist == 1:
            tasks["t0"]["Memory"]["MemoryMB"] = 2**61
        elif twist == 2:
            resources["Shared"]["Ports"] = [{"Label": "x", "Value": rng.choice([-1, 65_536, 70_000]), "HostIP": ADDRESSES[0]}]
        elif twist == 3:
            resources["Shared"]["Ports"] = [{"Label": label, "Value": 8020, "HostIP": ADDRESSES[0]} for label in "xy"]
        elif twist == 4:
            tasks["t0"]["Devices"] = [{"Vendor": "nvidia", "Type": "gpu", "Name": "a100", "DeviceIDs": ["a100-0", "a100-0"]}]
        elif twist == 5:
            alloc["Job"] = {"ID": "job", "TaskGroups": [{"Name": "other"}]}
        else:
            del alloc["AllocatedResources"]
    return Allocation.from_api(alloc)


def random_cluster(rng: random.Random, nodes: int, allocs: int, *, odd: float = 0.1) -> tuple[list[Node], list[Allocation]]:
    """Return nodes and allocations on them, about *allocs* a node."""
    made = [random_node(rng, number, odd=odd) for number in range(nodes)]
    bound: list[Allocation] = []
    for node in made:
        for _ in range(rng.randint(0, 2 * allocs)):
            bound.append(random_alloc(rng, f"alloc-{len(bound):04}", node.id, odd=odd))
    rng.shuffle(bound)
    return made, bound
