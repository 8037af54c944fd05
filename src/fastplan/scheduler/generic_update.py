"""What an update of an allocation of a service or batch job takes (schedulers 6.1)."""

from __future__ import annotations

import copy
from typing import Literal

from fastplan.scheduler.cluster_nodes import in_scope
from fastplan.scheduler.context import Context
from fastplan.scheduler.difference import tasks_updated
from fastplan.scheduler.in_place import Stack, carry_over, select_in_place
from fastplan.structs import Allocation, TaskGroup


class GenericUpdate:
    """Tells for an allocation whether its new version can stay where it is."""

    def __init__(self, context: Context, stack: Stack) -> None:
        self._context = context
        self._stack = stack

    def __call__(self, alloc: Allocation, group: TaskGroup) -> Allocation | Literal["ignore", "destructive"]:
        """Return the new version of an allocation that is updated in place, or what else is to be done."""
        job = self._context.job
        assert job is not None
        if alloc.job is not None and alloc.job.job_modify_index == job.job_modify_index:
            return "ignore"
        if alloc.job is None or tasks_updated(job, alloc.job, group.name):
            return "destructive"
        if alloc.is_terminal:
            return "ignore"
        updated = copy.copy(alloc)
        updated.eval_id = self._context.evaluation.id
        node = self._context.node(alloc.node_id)
        if node is None or not in_scope(node, job, strict=self._context.setting.strict):
            return "destructive"
        if self._stays_for_sure(alloc, group):
            return updated
        resources = select_in_place(self._context, self._stack, job, group, alloc)
        if resources is None:
            return "destructive"
        updated.allocated_resources = carry_over(resources, alloc.allocated_resources, cores=True)
        return updated

    def _stays_for_sure(self, alloc: Allocation, group: TaskGroup) -> bool:
        """Return whether the stack need not be asked: only how long allocations may run has changed.

        As recorded, that is taken for granted of any change once the old version limited the run.
        """
        old = alloc.group
        if old is None or not old.max_run_duration:
            return False
        return not self._context.setting.strict or old.max_run_duration != group.max_run_duration
