"""Updating an allocation where it is (schedulers 4.7, 6.1)."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Protocol

from fastplan.scheduler.alloc_facts import IN_PLACE
from fastplan.scheduler.cluster_nodes import in_scope
from fastplan.scheduler.stack import SelectOptions
from fastplan.structs import AllocatedResources, Allocation, Job, Node, TaskGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fastplan.scheduler.context import Context
    from fastplan.scheduler.rank import RankedNode


class Stack(Protocol):
    """What chooses nodes."""

    def set_nodes(self, nodes: Sequence[Node]) -> None: ...
    def select(self, group: TaskGroup, options: SelectOptions = ...) -> RankedNode | None: ...


def select_in_place(context: Context, stack: Stack, job: Job, group: TaskGroup, alloc: Allocation, *, preempt: bool = False) -> AllocatedResources | None:
    """Return what an allocation would hold after an update on its own node, None if it cannot stay there.

    The allocation itself is out of the way while the stack looks. What it holds of ports, devices and cores it keeps.
    """
    node = context.node(alloc.node_id)
    if node is None or not in_scope(node, job, strict=context.setting.strict):
        return None
    stack.set_nodes([node])
    context.draft.stop(alloc, IN_PLACE)
    option = stack.select(group, SelectOptions(alloc_name=alloc.name, preempt=preempt))
    context.draft.pop_stop(alloc)
    return None if option is None else option.resources


def carry_over(resources: AllocatedResources, held: AllocatedResources | None, *, cores: bool) -> AllocatedResources:
    """Return *resources* with the networks, ports and devices that are held already; with *cores*, the reserved cores too."""
    carried = resources.copy()
    if held is None:
        return carried
    for name, task in carried.tasks.items():
        before = held.tasks.get(name)
        if task is None or before is None:
            continue
        task.networks = copy.copy(before.networks)
        task.devices = copy.copy(before.devices)
        if cores:
            task.cpu.reserved_cores = list(before.cpu.reserved_cores)
    carried.shared.networks = copy.copy(held.shared.networks)
    carried.shared.ports = copy.copy(held.shared.ports)
    return carried
