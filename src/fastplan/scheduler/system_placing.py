"""Placing system and sysbatch jobs: each new allocation on one node that is given (schedulers 4.7, 4.10, 4.11)."""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from fastplan.scheduler.cluster_nodes import JobNodes
from fastplan.scheduler.context import Context
from fastplan.scheduler.difference import tasks_updated
from fastplan.scheduler.evaluations import blocked
from fastplan.scheduler.in_place import carry_over, select_in_place
from fastplan.scheduler.metrics import exhaust_resources
from fastplan.scheduler.rank import RankedNode
from fastplan.scheduler.reconciler.node import Entry
from fastplan.scheduler.requests import CreateEval, Request
from fastplan.scheduler.stack import SelectOptions, SystemStack
from fastplan.scheduler.system_counts import SystemCounts
from fastplan.scheduler.system_rollout import SystemRollout
from fastplan.structs import Allocation, AllocMetric, Evaluation, Job, Node, TaskGroup


class SystemPlacing:
    """Places the entries of one attempt for a job that is not stopped. `failed`: groups that found no room, or no node that suits them at all."""

    def __init__(self, context: Context, job: Job, nodes: JobNodes, rollout: SystemRollout, counts: SystemCounts) -> None:
        self.failed: dict[str, AllocMetric] = {}
        self._context = context
        self._setting = context.setting
        self._job = job
        self._nodes = nodes
        self._ready = {node.id: node for node in nodes.ready}
        self._rollout = rollout
        self._counts = counts
        self._waiting: dict[str, Evaluation] = {}
        self._preempts = context.config.preemption_enabled(job.type)
        self._stack = SystemStack(context)
        self._stack.set_job(job)

    def is_ready(self, node_id: str) -> bool:
        """Return whether a node is one that the job may use."""
        return node_id in self._ready

    # --- updates in place (4.7) ---------------------------------------------------------------------------------------

    def update_in_place(self, entries: Iterable[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Update what can stay where it is; return the entries that were, and those that have to be replaced.

        As recorded, the last entry takes the place of one that was updated, so the order of the others is not that of the nodes.
        """
        in_place: list[Entry] = []
        destructive: list[Entry] = []
        waiting = deque(entries)
        while waiting:
            entry = waiting.popleft()
            if not self._is_updated(entry):
                destructive.append(entry)
                continue
            in_place.append(entry)
            if not self._setting.strict:
                waiting.rotate(1)
        return in_place, destructive

    def _is_updated(self, entry: Entry) -> bool:
        alloc, group = entry.alloc, entry.group
        assert alloc is not None
        assert group is not None
        if alloc.job is None or tasks_updated(self._job, alloc.job, group.name):
            return False
        if alloc.is_terminal:
            return True
        # As recorded, others may seem to give way to what stays where it is, and are not evicted.
        preempt = not self._setting.strict and self._preempts
        resources = select_in_place(self._context, self._stack, self._job, group, alloc, preempt=preempt)
        if resources is None:
            return False
        updated = copy.copy(alloc)
        updated.eval_id = self._context.evaluation.id
        updated.allocated_resources = carry_over(resources, alloc.allocated_resources, cores=self._setting.strict)
        updated.metrics = self._context.metrics.finish()
        updated.deployment_id = self._rollout.updated_id
        updated.deployment_status = None
        self._context.draft.place(updated)
        return True

    # --- placing (4.10) -----------------------------------------------------------------------------------------------

    def place(
        self, entries: Iterable[Entry], staying: Sequence[Entry], settled: Mapping[str, int], filtered: dict[str, AllocMetric]
    ) -> Generator[Request, Any, None]:
        """Place what can be placed. *staying*: what is left alone or was updated in place, *settled*: how many others of each group are.

        *filtered*: what is known of nodes that do not suit a group, by group.
        """
        kept = Counter(settled)
        kept.update(entry.group_name for entry in staying)
        for name, metric in filtered.items():
            if self._counts.filtered(name, metric.nodes_filtered) <= 0 and not kept[name]:
                self.failed[name] = metric
        full: tuple[str, str] | None = None
        metric = AllocMetric()
        for entry in entries:
            node, group = self._ready.get(entry.node_id), entry.group
            if node is None or group is None:
                continue
            # Where one copy found no room there is none for the next: a group may have very many, and the node is as it was.
            if full != (node.id, group.name):
                option = self._select(node, group, entry.name)
                if option is not None:
                    full = None
                    self._add(entry, group, option)
                    continue
                metric = self._context.metrics.finish()
                full = None if metric.nodes_filtered or _names_volumes(group) else (node.id, group.name)
            self._rollout.note_failure(entry)
            if self._setting.strict and entry.alloc is not None and entry.alloc.is_terminal:
                # It has ended, so there is nothing to be stopped again unless it is replaced.
                self._context.draft.keep(entry.alloc)
            if not metric.nodes_filtered:
                yield from self._exhausted(node, group, metric)
                continue
            merged = filtered[group.name] = _merged(filtered.get(group.name), metric)
            if self._counts.filtered(group.name) <= 0 and not kept[group.name]:
                self.failed[group.name] = merged
        for waiting in self._waiting.values():
            waiting.failed_tg_allocs = dict(self.failed)
            yield CreateEval(waiting)

    def _select(self, node: Node, group: TaskGroup, name: str) -> RankedNode | None:
        self._stack.set_nodes([node])
        return self._stack.select(group, SelectOptions(alloc_name=name, preempt=self._preempts))

    def _exhausted(self, node: Node, group: TaskGroup, metric: AllocMetric) -> Generator[Request, Any, None]:
        """Note that a feasible node has no room; the first one of a group gets a blocked evaluation (4.11).

        As recorded, the same node gets another one for each group, of which the tracker keeps the last.
        """
        self._counts.exhausted(group.name)
        known = self.failed.get(group.name)
        if known is not None:
            known.coalesced_failures += 1
            exhaust_resources(known, group)
            return
        metric.nodes_available = dict(self._nodes.by_datacenter)
        metric.nodes_in_pool = self._nodes.ready_count
        metric.node_pool = self._job.node_pool
        exhaust_resources(metric, group)
        self.failed[group.name] = metric
        if node.id in self._waiting:
            return
        waiting = blocked(self._context.evaluation, self._setting, self._context.eligibility, self.failed, node_id=node.id)
        if self._setting.strict:
            self._waiting[node.id] = waiting
        else:
            yield CreateEval(waiting)

    def _add(self, entry: Entry, group: TaskGroup, option: RankedNode) -> None:
        """Put a new allocation into the plan, and whom it evicts."""
        context, job = self._context, self._job
        alloc = Allocation(
            id=self._setting.new_id(),
            namespace=job.namespace,
            eval_id=context.evaluation.id,
            name=entry.name,
            job_id=job.id,
            task_group=group.name,
            metrics=context.metrics.finish(),
            node_id=option.node.id,
            node_name=option.node.name,
            allocated_resources=option.resources,
            desired_status="run",
            client_status="pending",
            previous_allocation=entry.alloc_id,
            deployment_id=self._rollout.active_id,
        )
        for victim in option.preempted:
            context.draft.preempt(victim, alloc.id)
            alloc.preempted_allocations.append(victim.id)
            if context.draft.annotations is not None:
                context.draft.annotations.preempted_allocs.append({"ID": victim.id, "JobID": victim.job_id, "TaskGroup": victim.task_group})
                self._counts.of(group.name).preemptions += 1
        self._rollout.note_placement(entry, alloc)
        context.draft.place(alloc)


def _names_volumes(group: TaskGroup) -> bool:
    """Return whether each allocation of a group has volumes of its own, so that a node may suit one and not the other."""
    return any(request is not None and request.per_alloc for request in group.volumes.values())


def _merged(sums: AllocMetric | None, metric: AllocMetric) -> AllocMetric:
    """Return the sum of what several selections filtered; the pool and what is available are told of exhausted nodes only."""
    if sums is None:
        sums = AllocMetric()
    sums.nodes_evaluated += metric.nodes_evaluated
    sums.nodes_filtered += metric.nodes_filtered
    for name in ("class_filtered", "constraint_filtered"):
        counts: dict[str, int] = getattr(sums, name)
        for key, count in getattr(metric, name).items():
            counts[key] = counts.get(key, 0) + count
    return sums
