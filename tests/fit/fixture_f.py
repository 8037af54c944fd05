"""Node F and its allocations: the fixture of plan-apply 10, as dicts in the shape of the API."""

from __future__ import annotations

from typing import Any

from fastplan import Allocation, Node

FIVE, SIX = "10.1.0.5", "10.1.0.6"


def node_f() -> dict[str, Any]:
    """Supply after reservations: CPU 7500, memory 15000, disk 48000, cores 0 to 3, devices g0 and g1."""
    return {
        "ID": "node-f",
        "Status": "ready",
        "SchedulingEligibility": "eligible",
        "NodeResources": {
            "Processors": {"Topology": {"Cores": [{"ID": core, "BaseSpeed": 2000} for core in range(4)]}},
            "Memory": {"MemoryMB": 16000},
            "Disk": {"DiskMB": 50000},
            "NodeNetworks": [
                {
                    "Device": "eth0",
                    "Addresses": [{"Alias": "default", "Address": FIVE}, {"Alias": "alt", "Address": SIX, "ReservedPorts": "8443"}],
                }
            ],
            "Devices": [
                {
                    "Vendor": "acme",
                    "Type": "gpu",
                    "Name": "x1",
                    "Instances": [{"ID": "g0", "Healthy": True}, {"ID": "g1", "Healthy": True}, {"ID": "g2", "Healthy": False}],
                }
            ],
        },
        "ReservedResources": {
            "Cpu": {"CpuShares": 500},
            "Memory": {"MemoryMB": 1000},
            "Disk": {"DiskMB": 2000},
            "Networks": {"ReservedHostPorts": "22,9100-9102"},
        },
    }


def task(cpu: int = 100, memory: int = 100, *, memory_max: int = 0, cores: tuple[int, ...] = (), devices: list[Any] | None = None) -> dict[str, Any]:
    """A task: MHz, MiB, pinned cores, device entries."""
    return {
        "Cpu": {"CpuShares": cpu, "ReservedCores": list(cores)},
        "Memory": {"MemoryMB": memory, "MemoryMaxMB": memory_max},
        "Devices": devices or [],
    }


def gpu(*instance_ids: str, name: str = "x1") -> dict[str, Any]:
    """A device entry of a task."""
    return {"Vendor": "acme", "Type": "gpu", "Name": name, "DeviceIDs": list(instance_ids)}


def alloc(
    cpu: int = 100,
    memory: int = 100,
    disk: int = 0,
    *,
    id: str = "a",
    memory_max: int = 0,
    cores: tuple[int, ...] = (),
    devices: list[Any] | None = None,
    ports: list[dict[str, Any]] | None = None,
    desired: str = "run",
    client: str = "running",
    **more: Any,
) -> dict[str, Any]:
    """A(cpu, memory, disk): one main task called t. *more* are further keys of the allocation."""
    return {
        "ID": id,
        "DesiredStatus": desired,
        "ClientStatus": client,
        "TaskGroup": "web",
        "AllocatedResources": {
            "Tasks": {"t": task(cpu, memory, memory_max=memory_max, cores=cores, devices=devices)},
            "Shared": {"DiskMB": disk, "Ports": ports or []},
        },
        **more,
    }


def phases(**tasks: tuple[dict[str, Any], str, bool]) -> dict[str, Any]:
    """An allocation of several tasks, each with its resources, hook ("main": no lifecycle) and whether it is a sidecar."""
    return {
        "ID": "a",
        "AllocatedResources": {
            "Tasks": {name: resources for name, (resources, _, _) in tasks.items()},
            "TaskLifecycles": {name: None if hook == "main" else {"Hook": hook, "Sidecar": sidecar} for name, (_, hook, sidecar) in tasks.items()},
        },
    }


def port(value: int, address: str = FIVE, *, ignore: bool = False) -> dict[str, Any]:
    """An entry of `Shared.Ports`."""
    return {"Label": f"p{value}", "Value": value, "HostIP": address, "IgnoreCollision": ignore}


def network(*static: int, dynamic: tuple[int, ...] = (), address: str = FIVE, mbits: int = 0) -> dict[str, Any]:
    """A network object with static and dynamic ports."""
    return {
        "Device": "eth0",
        "IP": address,
        "MBits": mbits,
        "ReservedPorts": [{"Label": f"s{value}", "Value": value} for value in static],
        "DynamicPorts": [{"Label": f"d{value}", "Value": value} for value in dynamic],
    }


def with_networks(id: str, *, group: list[Any] | None = None, tasks: dict[str, list[Any]] | None = None, ports: list[Any] | None = None) -> dict[str, Any]:
    """An allocation whose group and tasks have networks."""
    made = alloc(id=id, ports=ports)
    made["AllocatedResources"]["Shared"]["Networks"] = group or []
    for name, networks in (tasks or {}).items():
        made["AllocatedResources"]["Tasks"][name] = task() | {"Networks": networks}
    return made


def volume_job(*modes: str, group: str = "web", source: str = "d") -> dict[str, Any]:
    """A job whose group asks for *source* once for each access mode."""
    return {"ID": "job", "TaskGroups": [{"Name": group, "Volumes": {f"v{index}": {"Source": source, "AccessMode": mode} for index, mode in enumerate(modes)}}]}


def load_node(node: dict[str, Any] | None = None) -> Node:
    """The record of a node, of F by default."""
    return Node.from_api(node_f() if node is None else node)


def load(*allocs: dict[str, Any]) -> list[Allocation]:
    """The records of allocations."""
    return [Allocation.from_api(one) for one in allocs]
