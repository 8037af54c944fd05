"""What one allocation of a group asks of a node, taken out of the group once (schedulers 9.2, 9.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastplan.fit.group import DEFAULT_NETWORK
from fastplan.structs import AllocatedMemory, NetworkResource, RequestedDevice, Task, TaskGroup, TaskLifecycle


@dataclass(frozen=True, slots=True)
class TaskAsk:
    """One task. `cpu_mhz` counts where no cores are asked; `network` is the older network of a single task; `numa` how cores may lie."""

    name: str
    cpu_mhz: int
    memory: AllocatedMemory
    cores: int
    numa: str
    network: NetworkResource | None
    devices: tuple[RequestedDevice, ...]


@dataclass(frozen=True, slots=True)
class GroupAsk:
    """One allocation of a group. `network` is that of the group, host networks filled in where they are left out."""

    group: TaskGroup
    tasks: tuple[TaskAsk, ...]
    lifecycles: dict[str, TaskLifecycle | None]
    network: NetworkResource | None
    disk_mib: int

    @classmethod
    def of(cls, group: TaskGroup, *, oversubscription: bool) -> GroupAsk:
        """Take a group apart. Without *oversubscription* of memory burst limits do not count."""
        network = next((network for network in group.networks if network is not None), None)
        return cls(
            group=group,
            tasks=tuple(_task_ask(task, oversubscription) for task in group.tasks),
            lifecycles={task.name: task.lifecycle for task in group.tasks},
            network=None if network is None else _on_named_networks(network),
            disk_mib=0 if group.ephemeral_disk is None else group.ephemeral_disk.size_mb,
        )


def _task_ask(task: Task, oversubscription: bool) -> TaskAsk:
    asked = task.resources
    if asked is None:
        return TaskAsk(task.name, 0, AllocatedMemory(), 0, "", None, ())
    burst_mib = asked.memory_max_mb if oversubscription else 0
    if burst_mib > 0:
        burst_mib += asked.secrets_mb
    return TaskAsk(
        name=task.name,
        cpu_mhz=asked.cpu,
        memory=AllocatedMemory(memory_mb=asked.memory_mb + asked.secrets_mb, memory_max_mb=burst_mib),
        cores=asked.cores,
        numa=_numa_affinity(asked.numa),
        network=next((network for network in asked.networks if network is not None), None),
        devices=tuple(device for device in asked.devices if device is not None),
    )


def _numa_affinity(numa: Any) -> str:
    affinity = numa.get("Affinity") if isinstance(numa, dict) else None
    return affinity if isinstance(affinity, str) else ""


def _on_named_networks(network: NetworkResource) -> NetworkResource:
    named = network.copy()
    for port in [*named.reserved_ports, *named.dynamic_ports]:
        port.host_network = port.host_network or DEFAULT_NETWORK
    return named
