"""What one allocation of a group takes of every node alike, if amounts can say it."""

from __future__ import annotations

from dataclasses import dataclass

from fastplan.errors import InvalidInput
from fastplan.fit.demand import negative_amount, totals_of
from fastplan.fit.encode import AMOUNT_LIMIT
from fastplan.scheduler.group_ask import GroupAsk
from fastplan.structs import AllocatedCpu, AllocatedResources, AllocatedSharedResources, AllocatedTaskResources, Allocation


@dataclass(frozen=True, slots=True)
class GroupAmounts:
    """MHz and MiB; the MHz of `cores` come on top, on each node at its speed. `resources`: what each gets where that is the same on every node, else None."""

    cpu_mhz: int
    memory_mib: int
    disk_mib: int
    cores: int
    resources: AllocatedResources | None

    @classmethod
    def of(cls, ask: GroupAsk) -> GroupAmounts | None:
        """Return what a group asks; None where a score or a verdict depends on more than amounts, or an amount is out of range."""
        devices = [device for task in ask.tasks for device in task.devices]
        if any(device.affinities for device in devices):
            return None
        tasks: dict[str, AllocatedTaskResources | None] = {
            task.name: AllocatedTaskResources(cpu=AllocatedCpu(cpu_shares=0 if task.cores else task.cpu_mhz), memory=task.memory.copy()) for task in ask.tasks
        }
        resources = AllocatedResources(tasks=tasks, task_lifecycles=dict(ask.lifecycles), shared=AllocatedSharedResources(disk_mb=ask.disk_mib))
        probe = Allocation(allocated_resources=resources)
        try:
            totals = totals_of(probe)
        except InvalidInput:
            return None
        cores = sum(task.cores for task in ask.tasks if task.cores > 0)
        if negative_amount(probe) is not None or max(*totals[:4], cores) > AMOUNT_LIMIT:
            return None
        chosen = ask.network is not None or cores or devices or any(task.network is not None for task in ask.tasks)
        return cls(totals.cpu_mhz, totals.memory_mib, totals.disk_mib, cores, None if chosen else resources)
