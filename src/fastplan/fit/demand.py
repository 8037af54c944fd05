"""What an allocation asks of a node (plan-apply 1.5, 1.6, 2.3, 2.7, 2.8, 3.4), taken out of canonical records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fastplan.errors import InvalidInput
from fastplan.fit.port_ranges import PORT_COUNT
from fastplan.fit.supply import DeviceKind

if TYPE_CHECKING:
    from fastplan.structs import AllocatedResources, Allocation, Job, NetworkResource, TaskLifecycle

CORE_COUNT = 65536
"""Core ids are 0 to 65535."""

_SINGLE_WRITER = "single-node-single-writer"
_LARGEST_AMOUNT = 2**62


class Totals(NamedTuple):
    """The amounts that one allocation needs, lifecycles taken into account (plan-apply 2.3), and its pinned cores."""

    cpu_mhz: int
    memory_mib: int
    memory_max_mib: int
    disk_mib: int
    cores: frozenset[int]


class PortUse(NamedTuple):
    """One port that an allocation holds on an address; `ignores_collision` lets it join a port that is already in use."""

    address: str
    port: int
    ignores_collision: bool


class PortList(NamedTuple):
    """Ports that are booked together and share one reason text (plan-apply 3.4, 3.6).

    `network` is None for `Shared.Ports`; `task` names the task of a task network and is None for a network of the group.
    """

    uses: list[PortUse]
    network: NetworkResource | None = None
    task: str | None = None


class VolumeClaim(NamedTuple):
    """One volume request of an allocation's group; an exclusive one tolerates no other claim on its source (plan-apply 2.8)."""

    source: str
    exclusive: bool


class DeviceUse(NamedTuple):
    """One device instance that an allocation holds (plan-apply 2.7)."""

    kind: DeviceKind
    instance_id: str


@dataclass(frozen=True, slots=True)
class AllocDemand:
    """Everything that one allocation asks of a node, as plain values.

    `ports` are in the order in which they are booked (plan-apply 3.4), tasks by name. `devices` and `volumes` likewise keep their order.
    `volumes` is empty when no job is attached. `irregular` is empty, or says why only the ordered reference can judge this allocation:
    parts that cannot be read, negative or huge amounts, numbers out of range, or the same port or device twice.
    An allocation that is client-terminal still shows what it would ask.
    """

    cpu_mhz: int = 0
    memory_mib: int = 0
    memory_max_mib: int = 0
    disk_mib: int = 0
    cores: tuple[int, ...] = ()
    ports: tuple[PortUse, ...] = ()
    devices: tuple[DeviceUse, ...] = ()
    volumes: tuple[VolumeClaim, ...] = ()
    client_terminal: bool = False
    server_terminal: bool = False
    irregular: str = ""


def demand_of(alloc: Allocation) -> AllocDemand:
    """Return what canonical *alloc* asks; nothing is raised, what cannot be read makes it `irregular`."""
    try:
        totals = totals_of(alloc)
        ports = tuple(use for booked in port_lists(alloc) for use in booked.uses)
        devices = tuple(device_uses(alloc))
        volumes = tuple(volume_claims(alloc, alloc.job))
    except InvalidInput as problem:
        return AllocDemand(client_terminal=alloc.is_client_terminal, server_terminal=alloc.is_server_terminal, irregular=str(problem))
    return AllocDemand(
        *totals[:4],
        cores=tuple(sorted(totals.cores)),
        ports=ports,
        devices=devices,
        volumes=volumes,
        client_terminal=alloc.is_client_terminal,
        server_terminal=alloc.is_server_terminal,
        irregular=_irregularity(alloc, totals, ports, devices),
    )


def _irregularity(alloc: Allocation, totals: Totals, ports: tuple[PortUse, ...], devices: tuple[DeviceUse, ...]) -> str:
    if (negative := negative_amount(alloc)) is not None:
        return str(negative)
    if max(totals[:4]) > _LARGEST_AMOUNT:
        return "an amount is beyond 62 bits"
    if any(not 0 <= core < CORE_COUNT for core in totals.cores):
        return "a core id is out of range"
    if any(not 0 <= use.port < PORT_COUNT for use in ports):
        return "a port is out of range"
    if len({use[:2] for use in ports}) < len(ports):
        return "a port is held twice"
    if len(set(devices)) < len(devices):
        return "a device instance is held twice"
    return ""


def resources_of(alloc: Allocation) -> AllocatedResources:
    """Return the allocated resources of a canonical *alloc*. Raises `InvalidInput` when there are none (plan-apply 2.10)."""
    if alloc.allocated_resources is None:
        raise InvalidInput(f"alloc {alloc.id}.AllocatedResources", None, "resources of a live allocation")
    return alloc.allocated_resources


def totals_of(alloc: Allocation, *, never_negative: bool = False) -> Totals:
    """Return the amounts of one canonical allocation (plan-apply 2.3). Raises `InvalidInput` where something needed is null.

    With *never_negative* a negative amount of a task counts as nothing, so that it cannot make room for others.
    """
    resources = resources_of(alloc)
    lifecycles = resources.task_lifecycles
    before, main, after = [0, 0, 0], [0, 0, 0], [0, 0, 0]
    pinned_cpu_mhz = 0
    cores: set[int] = set()
    for name, task in resources.tasks.items():
        if task is None:
            raise InvalidInput(f"alloc {alloc.id}.AllocatedResources.Tasks[{name}]", None, "an object")
        cpu_mhz = task.cpu.cpu_shares
        memory_mib = task.memory.memory_mb
        if never_negative:
            cpu_mhz, memory_mib = max(cpu_mhz, 0), max(memory_mib, 0)
        memory_max_mib = task.memory.memory_max_mb or memory_mib
        if task.cpu.reserved_cores:
            # Cores and their MHz are held for the whole life of the allocation, whatever the phase of the task.
            pinned_cpu_mhz += cpu_mhz
            cores.update(task.cpu.reserved_cores)
            cpu_mhz = 0
        for phase in _phases(lifecycles.get(name), before, main, after):
            phase[0] += cpu_mhz
            phase[1] += memory_mib
            phase[2] += memory_max_mib
    memory_mib = max(before[1], main[1], after[1])
    disk_mib = resources.shared.disk_mb
    return Totals(
        cpu_mhz=pinned_cpu_mhz + max(before[0], main[0], after[0]),
        memory_mib=memory_mib,
        memory_max_mib=max(before[2], main[2], after[2]) or memory_mib,
        disk_mib=max(disk_mib, 0) if never_negative else disk_mib,
        cores=frozenset(cores),
    )


def _phases(lifecycle: TaskLifecycle | None, before: list[int], main: list[int], after: list[int]) -> tuple[list[int], ...]:
    """Return the phases in which a task runs; a lifecycle with an unknown or empty hook belongs to none."""
    if lifecycle is None or lifecycle.hook == "poststart":
        return (main,)
    if lifecycle.hook == "prestart":
        # A sidecar stays beside the main tasks.
        return (before, main) if lifecycle.sidecar else (before,)
    return (after,) if lifecycle.hook == "poststop" else ()


def negative_amount(alloc: Allocation) -> InvalidInput | None:
    """Return the error that names the first negative CPU, memory or disk amount of a canonical allocation, if there is one."""
    resources = resources_of(alloc)
    path = f"alloc {alloc.id}.AllocatedResources"
    for name, task in sorted(resources.tasks.items()):
        if task is not None and task.cpu.cpu_shares < 0:
            return InvalidInput(f"{path}.Tasks[{name}].Cpu.CpuShares", task.cpu.cpu_shares, "integer ≥ 0")
        if task is not None and task.memory.memory_mb < 0:
            return InvalidInput(f"{path}.Tasks[{name}].Memory.MemoryMB", task.memory.memory_mb, "integer ≥ 0")
    if resources.shared.disk_mb < 0:
        return InvalidInput(f"{path}.Shared.DiskMB", resources.shared.disk_mb, "integer ≥ 0")
    return None


def port_lists(alloc: Allocation) -> Iterator[PortList]:
    """Yield what a canonical allocation books, in order (plan-apply 3.4).

    `Shared.Ports` hides every network; otherwise all networks of the group count, but only the first of each task, tasks by name.
    Without allocated resources nothing is booked. Raises `InvalidInput` at a null network.
    """
    resources = alloc.allocated_resources
    if resources is None:
        return
    shared = resources.shared
    if shared.ports:
        yield PortList([PortUse(port.host_ip, port.value, port.ignore_collision) for port in shared.ports])
        return
    for index, network in enumerate(shared.networks):
        if network is None:
            raise InvalidInput(f"alloc {alloc.id}.AllocatedResources.Shared.Networks[{index}]", None, "an object")
        yield PortList(_network_uses(network), network)
    for name, task in sorted(resources.tasks.items()):
        if task is None or not task.networks:
            continue
        network = task.networks[0]
        if network is None:
            raise InvalidInput(f"alloc {alloc.id}.AllocatedResources.Tasks[{name}].Networks[0]", None, "an object")
        yield PortList(_network_uses(network), network, name)


def _network_uses(network: NetworkResource) -> list[PortUse]:
    # The ports' own IgnoreCollision is not read on this path.
    return [PortUse(network.ip, port.value, False) for ports in (network.reserved_ports, network.dynamic_ports) for port in ports]


def device_uses(alloc: Allocation) -> Iterator[DeviceUse]:
    """Yield the device instances of a canonical allocation, tasks by name. Raises `InvalidInput` at a null entry."""
    resources = alloc.allocated_resources
    if resources is None:
        return
    for name, task in sorted(resources.tasks.items()):
        for index, device in enumerate(task.devices if task is not None else ()):
            if device is None:
                raise InvalidInput(f"alloc {alloc.id}.AllocatedResources.Tasks[{name}].Devices[{index}]", None, "an object")
            kind = (device.vendor, device.type, device.name)
            for instance_id in device.device_ids:
                yield DeviceUse(kind, instance_id)


def volume_claims(alloc: Allocation, job: Job | None) -> Iterator[VolumeClaim]:
    """Yield the volume requests of the allocation's group in *job*; none without a job (plan-apply 2.8).

    The key is the bare source, whatever the type of the volume. Raises `InvalidInput` when the job lacks the group or a request is null.
    """
    if job is None:
        return
    group = job.group(alloc.task_group)
    if group is None:
        raise InvalidInput(f"alloc {alloc.id}.TaskGroup", alloc.task_group, "a group of the attached job")
    for name, request in group.volumes.items():
        if request is None:
            raise InvalidInput(f"alloc {alloc.id}.Job.TaskGroups[{group.name}].Volumes[{name}]", None, "an object")
        yield VolumeClaim(request.source, request.access_mode == _SINGLE_WRITER)
