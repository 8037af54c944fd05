"""Choosing what a copy of a group gets on a node: the lowest free ports, cores and device instances (schedulers.md 9.3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from fastplan.errors import PortsUnavailable, Reason
from fastplan.fit.demand import DeviceUse
from fastplan.fit.encode import KIND_CORE, KIND_DEVICE, KIND_PORT, Claim, core_speeds
from fastplan.fit.group import DeviceRequest, GroupNeed, TaskNeed
from fastplan.fit.port_ranges import PORT_COUNT
from fastplan.fit.ports import PortIndex
from fastplan.fit.supply import NodeSupply
from fastplan.structs import AllocatedResources, Allocation

if TYPE_CHECKING:
    from fastplan.structs import Node, Port


class Refusal(NamedTuple):
    """Why nothing can be chosen: the reason and its detail."""

    code: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Held:
    """What is held on a node: ports by address, cores, device instances."""

    ports: dict[str, set[int]]
    cores: set[int]
    devices: set[DeviceUse]

    @classmethod
    def of(cls, claims: Iterable[Claim]) -> Held:
        """Sort claims by what they are on."""
        held = cls({}, set(), set())
        for claim in claims:
            if claim.kind == KIND_PORT:
                held.ports.setdefault(str(claim.subject), set()).add(int(claim.value))
            elif claim.kind == KIND_CORE:
                held.cores.add(int(claim.value))
            elif claim.kind == KIND_DEVICE and isinstance(claim.subject, tuple):
                held.devices.add(DeviceUse(claim.subject, str(claim.value)))
        return held


def place(need: GroupNeed, node: Node, supply: NodeSupply, held: Held, allocs: Callable[[], Sequence[Allocation]]) -> dict[str, Any] | Refusal:
    """Return the `AllocatedResources` (API shape) of one more copy on a canonical node, or why something cannot be chosen.

    Whether the sums fit is not looked at. *held* is what others hold; *allocs* gives them whole, which only networks of single tasks need.
    """
    # In the order of the checks: cores, ports, devices (plan-apply 2.2).
    free_cores = sorted(supply.cores - held.cores) if need.cores else []
    if len(free_cores) < need.cores:
        return Refusal(Reason.CORES, "")
    ports = _ports(need, supply, held)
    if isinstance(ports, Refusal):
        return ports
    speeds = core_speeds(node) if need.cores else {}
    devices = _devices(need, supply, held)
    if isinstance(devices, Refusal):
        return devices
    tasks: dict[str, Any] = {}
    for task in need.tasks:
        cores, free_cores = free_cores[: task.cores], free_cores[task.cores :]
        tasks[task.name] = _task_resources(task, cores, speeds, devices)
    resources = {
        "Tasks": tasks,
        "TaskLifecycles": {task.name: None if task.lifecycle is None else task.lifecycle.to_api() for task in need.group.tasks or ()},
        "Shared": {"DiskMB": need.disk_mib, "Networks": _group_networks(need, ports), "Ports": ports},
    }
    if need.has_task_networks:
        return _with_task_networks(need, resources, supply, allocs())
    return resources


def _ports(need: GroupNeed, supply: NodeSupply, held: Held) -> list[dict[str, Any]] | Refusal:
    offers: list[dict[str, Any]] = []
    offered: set[int] = set()
    for port in need.static_ports:
        addresses = supply.ports.host_networks.get(port.host_network, ())
        if not addresses:
            return _no_addresses(port)
        if not 0 <= port.value < PORT_COUNT:
            return Refusal(Reason.ALLOC_PORTS, f"invalid port {port.value} (out of range)")
        address = next((address for address in addresses if port.ignore_collision or not is_taken(supply, held, address, port.value)), None)
        if address is None:
            return Refusal(Reason.ALLOC_PORTS, f"reserved port collision {port.label}={port.value}")
        offers.append(_offer(port, port.value, port.to, address))
        offered.add(port.value)
    for port in need.dynamic_ports:
        addresses = supply.ports.host_networks.get(port.host_network, ())
        if not addresses:
            return _no_addresses(port)
        for address in addresses:
            value = _lowest_free(supply, held.ports.get(address, ()), offered, address)
            if value is not None:
                offers.append(_offer(port, value, value if port.to == -1 else port.to, address))
                offered.add(value)
                break
        else:
            return Refusal(Reason.ALLOC_PORTS, "dynamic port selection failed")
    return offers


def _no_addresses(port: Port) -> Refusal:
    return Refusal(Reason.ALLOC_PORTS, f"no addresses available for {port.host_network} network")


def _offer(port: Port, value: int, to: int, address: str) -> dict[str, Any]:
    offer = {"Label": port.label, "Value": value, "To": to, "HostIP": address}
    return {**offer, "IgnoreCollision": True} if port.ignore_collision else offer


def is_taken(supply: NodeSupply, held: Held, address: str, port: int) -> bool:
    """Return whether a port of an address is held or reserved."""
    return port in held.ports.get(address, ()) or any(first <= port <= last for first, last in supply.ports.reserved.get(address, ()))


def _lowest_free(supply: NodeSupply, used: Collection[int], offered: set[int], address: str) -> int | None:
    low, high = supply.ports.dynamic_range
    reserved = iter(supply.ports.reserved.get(address, ()))
    first, last = next(reserved, (PORT_COUNT, PORT_COUNT))
    port = low
    # An inverted range still offers its lower bound.
    while port <= min(max(low, high), PORT_COUNT - 1):
        while last < port:
            first, last = next(reserved, (PORT_COUNT, PORT_COUNT))
        if first <= port:
            port = last + 1
        elif port in used or port in offered:
            port += 1
        else:
            return port
    return None


def _devices(need: GroupNeed, supply: NodeSupply, held: Held) -> dict[int, list[DeviceUse]] | Refusal:
    """Return the instances for each request, by identity of the request. Narrow patterns choose first, so that wide ones take nothing they need."""
    free = {kind: sorted(instance for instance in instances if DeviceUse(kind, instance) not in held.devices) for kind, instances in supply.devices.items()}
    chosen: dict[int, list[DeviceUse]] = {}
    for request in sorted(need.device_requests, key=lambda request: -len(request.pattern)):
        kinds = sorted(kind for kind in free if request.matches(kind))
        # Instances of one kind if one kind has enough of them.
        kinds.sort(key=lambda kind: len(free[kind]) < request.count)
        taken: list[DeviceUse] = []
        for kind in kinds:
            count = request.count - len(taken)
            taken.extend(DeviceUse(kind, instance) for instance in free[kind][:count])
            free[kind] = free[kind][count:]
        if len(taken) < request.count:
            return Refusal(Reason.DEVICES, "/".join(request.pattern))
        chosen[id(request)] = taken
    return chosen


def _task_resources(task: TaskNeed, cores: list[int], speeds: dict[int, int], devices: dict[int, list[DeviceUse]]) -> dict[str, Any]:
    cpu: dict[str, Any] = {"CpuShares": task.cpu_mhz}
    if cores:
        cpu = {"CpuShares": sum(speeds.get(core, 0) for core in cores), "ReservedCores": cores}
    resources: dict[str, Any] = {"Cpu": cpu, "Memory": {"MemoryMB": task.memory_mib, "MemoryMaxMB": task.memory_max_mib}}
    groups = [group for request in task.devices for group in _device_groups(request, devices[id(request)])]
    if groups:
        resources["Devices"] = groups
    return resources


def _device_groups(request: DeviceRequest, taken: list[DeviceUse]) -> list[dict[str, Any]]:
    by_kind: dict[tuple[str, str, str], list[str]] = {}
    for use in taken:
        by_kind.setdefault(use.kind, []).append(use.instance_id)
    return [{"Vendor": vendor, "Type": device_type, "Name": name, "DeviceIDs": ids} for (vendor, device_type, name), ids in by_kind.items()]


def _group_networks(need: GroupNeed, ports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the network of the group with the chosen ports; `Shared.Ports` is what counts (plan-apply 3.4)."""
    if need.network is None:
        return []
    static_count = len(need.static_ports)
    asked = [*need.static_ports, *need.dynamic_ports]
    filled = [
        {"Label": port.label, "Value": offer["Value"], "To": offer["To"], "HostNetwork": port.host_network} for port, offer in zip(asked, ports, strict=True)
    ]
    network: dict[str, Any] = {"Mode": need.network.mode}
    if ports:
        network |= {"IP": ports[0]["HostIP"], "ReservedPorts": filled[:static_count], "DynamicPorts": filled[static_count:]}
    return [network]


def _with_task_networks(need: GroupNeed, resources: dict[str, Any], supply: NodeSupply, allocs: Sequence[Allocation]) -> dict[str, Any] | Refusal:
    """Add the older networks of single tasks, for which bandwidth counts."""
    index = PortIndex.of(supply.ports)
    index.add_canonical_allocs(allocs)
    index.add_canonical_allocs([Allocation(allocated_resources=AllocatedResources.from_api({"Shared": resources["Shared"]}))])
    for task in need.tasks:
        if task.network is None:
            continue
        try:
            offer = index.assign_task(task.network.to_api())
        except PortsUnavailable as problem:
            return Refusal(Reason.ALLOC_PORTS, str(problem))
        network = {
            "Device": offer.device,
            "IP": offer.ip,
            "MBits": offer.mbits,
            "ReservedPorts": [{"Label": port.label, "Value": port.value, "To": port.to} for port in offer.reserved_ports],
            "DynamicPorts": [{"Label": port.label, "Value": port.value, "To": port.to} for port in offer.dynamic_ports],
        }
        resources["Tasks"][task.name]["Networks"] = [network]
        index.add_canonical_allocs([Allocation(allocated_resources=AllocatedResources.from_api({"Tasks": {task.name: {"Networks": [network]}}}))])
    return resources
