"""What one copy of a task group needs, as counts: before a node is known, no port, core or device instance is chosen (schedulers.md 9.2, 9.3)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fastplan.errors import InvalidInput
from fastplan.fit.demand import VolumeClaim, totals_of, volume_claims
from fastplan.fit.supply import DeviceKind
from fastplan.structs import AllocatedCpu, AllocatedMemory, AllocatedResources, AllocatedSharedResources, AllocatedTaskResources, Allocation

if TYPE_CHECKING:
    from fastplan.structs import Job, NetworkResource, Port, Task, TaskGroup

DEFAULT_NETWORK = "default"
"""The host network of a port that names none, as job registration fills it in (plan-apply 3.7)."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A number of instances of any device kind that the pattern matches: (type), (vendor, type) or (vendor, type, name)."""

    pattern: tuple[str, ...]
    count: int

    def matches(self, kind: DeviceKind) -> bool:
        """Return whether instances of *kind* (vendor, type, name) will do."""
        vendor, device_type, name = kind
        return self.pattern == ((device_type,), (vendor, device_type), (vendor, device_type, name))[len(self.pattern) - 1]

    def contains(self, other: DeviceRequest) -> bool:
        """Return whether every kind that *other* matches is matched here too. Two patterns contain each other or share nothing."""
        if len(other.pattern) < len(self.pattern):
            return False
        if len(self.pattern) == 1 and len(other.pattern) > 1:
            return other.pattern[1] == self.pattern[0]
        return other.pattern[: len(self.pattern)] == self.pattern


class TaskNeed(NamedTuple):
    """What one task needs besides shared things: MHz without pinned cores, MiB, cores to pin, device instances, and its own (legacy) network."""

    name: str
    cpu_mhz: int
    memory_mib: int
    memory_max_mib: int
    cores: int
    devices: tuple[DeviceRequest, ...]
    network: NetworkResource | None


@dataclass(frozen=True, slots=True)
class GroupNeed:
    """What one copy of a group needs. MHz and MiB; lifecycles are taken into account in the sums, and `cpu_mhz` is without pinned cores.

    `static_ports` and `dynamic_ports` are those of the group's network, host networks filled in.
    """

    job: Job
    group: TaskGroup
    tasks: tuple[TaskNeed, ...]
    network: NetworkResource | None
    static_ports: tuple[Port, ...]
    dynamic_ports: tuple[Port, ...]
    volumes: tuple[VolumeClaim, ...]
    cpu_mhz: int
    memory_mib: int
    memory_max_mib: int
    disk_mib: int

    @property
    def cores(self) -> int:
        """Cores to pin for all tasks together."""
        return sum(task.cores for task in self.tasks)

    @property
    def device_requests(self) -> list[DeviceRequest]:
        """The device requests of all tasks, in order."""
        return [request for task in self.tasks for request in task.devices]

    @property
    def has_task_networks(self) -> bool:
        """Whether some task asks for a network of its own, the older kind."""
        return any(task.network is not None for task in self.tasks)


def group_need(job: Job, group_name: str) -> GroupNeed:
    """Return what one copy of a group of *job* needs. Raises `InvalidInput` for an unknown group, a null entry or a negative amount."""
    group = next((group for group in job.task_groups or () if group.name == group_name), None)
    if group is None:
        raise InvalidInput(f"job {job.id}.TaskGroups", group_name, "the name of one of its groups")
    path = f"job {job.id}.TaskGroups[{group_name}]"
    tasks = tuple(_task_need(task, f"{path}.Tasks[{task.name}]") for task in group.tasks or ())
    disk_mib = _amount(group.ephemeral_disk.size_mb if group.ephemeral_disk is not None else 0, f"{path}.EphemeralDisk.SizeMB")
    network = next((network for network in group.networks or () if network is not None), None)
    totals = totals_of(Allocation(id=f"{job.id}/{group_name}", allocated_resources=_template(group, tasks, disk_mib)))
    return GroupNeed(
        job=job,
        group=group,
        tasks=tasks,
        network=network,
        static_ports=_on_networks(network.reserved_ports if network is not None else ()),
        dynamic_ports=_on_networks(network.dynamic_ports if network is not None else ()),
        volumes=tuple(volume_claims(Allocation(id=f"{job.id}/{group_name}", task_group=group_name), job)),
        cpu_mhz=totals.cpu_mhz,
        memory_mib=totals.memory_mib,
        memory_max_mib=totals.memory_max_mib,
        disk_mib=totals.disk_mib,
    )


def _task_need(task: Task, path: str) -> TaskNeed:
    asked = task.resources
    if asked is None:
        return TaskNeed(task.name, 0, 0, 0, 0, (), None)
    requests: list[DeviceRequest] = []
    for index, device in enumerate(asked.devices or ()):
        if device is None:
            raise InvalidInput(f"{path}.Resources.Devices[{index}]", None, "an object")
        requests.append(DeviceRequest(tuple(device.name.split("/", 2)), _amount(device.count, f"{path}.Resources.Devices[{index}].Count")))
    cores = _amount(asked.cores, f"{path}.Resources.Cores")
    return TaskNeed(
        name=task.name,
        # Pinned cores bring their own MHz, whatever number the task says.
        cpu_mhz=0 if cores else _amount(asked.cpu, f"{path}.Resources.CPU"),
        memory_mib=_amount(asked.memory_mb, f"{path}.Resources.MemoryMB") + _amount(asked.secrets_mb, f"{path}.Resources.SecretsMB"),
        memory_max_mib=asked.memory_max_mb,
        cores=cores,
        devices=tuple(requests),
        network=next((network for network in asked.networks or () if network is not None), None),
    )


def _template(group: TaskGroup, tasks: Iterable[TaskNeed], disk_mib: int) -> AllocatedResources:
    return AllocatedResources(
        tasks={
            task.name: AllocatedTaskResources(
                cpu=AllocatedCpu(cpu_shares=task.cpu_mhz), memory=AllocatedMemory(memory_mb=task.memory_mib, memory_max_mb=task.memory_max_mib)
            )
            for task in tasks
        },
        task_lifecycles={task.name: task.lifecycle for task in group.tasks or ()},
        shared=AllocatedSharedResources(disk_mb=disk_mib),
    )


def _on_networks(ports: Iterable[Port]) -> tuple[Port, ...]:
    named: list[Port] = []
    for port in ports:
        if not port.host_network:
            port = port.copy()
            port.host_network = DEFAULT_NETWORK
        named.append(port)
    return tuple(named)


def _amount(value: int, path: str) -> int:
    if value < 0:
        raise InvalidInput(path, value, "integer ≥ 0")
    return value
