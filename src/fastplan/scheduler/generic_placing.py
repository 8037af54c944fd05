"""Finding nodes for the new allocations of service and batch jobs (schedulers 7.7)."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Sequence
from typing import Any, Final

import numpy

from fastplan.scheduler.alloc_facts import UPDATING, index_in
from fastplan.scheduler.cluster_nodes import JobNodes, job_nodes
from fastplan.scheduler.context import Context
from fastplan.scheduler.every_node import EveryNodeStack, SelectedCopies
from fastplan.scheduler.metrics import exhaust_resources
from fastplan.scheduler.node_columns import is_ready
from fastplan.scheduler.rank import RankedNode
from fastplan.scheduler.reconciler.results import Placement, Reconciliation
from fastplan.scheduler.reconciler.rollout import ACTIVE
from fastplan.scheduler.reschedule import NO_PLACEMENT, OK, takes_notes, tracker_after, with_note
from fastplan.scheduler.stack import GenericStack, SelectOptions
from fastplan.state.copies import Copies
from fastplan.state.resource_shapes import shape_of
from fastplan.structs import Allocation, AllocDeploymentStatus, AllocMetric, Deployment, DesiredUpdates, Job, Node, TaskGroup

FEWEST_COPIES: Final = 2
"""So many equal allocations are placed with one look at the nodes."""


class GenericPlacing:
    """The placements of one attempt. What finds no node goes to *failed*, one entry a group."""

    def __init__(
        self, context: Context, stack: GenericStack, deployment: Deployment | None, failed: dict[str, AllocMetric], reconciled: Reconciliation
    ) -> None:
        self._context = context
        self._stack = stack
        self._deployment = deployment
        self._deployment_id = self._current_deployment_id()
        self._failed = failed
        self._reconciled = reconciled
        self._strict = context.setting.strict
        self.annotated: list[Any] = []
        """Who gives way, for people."""

    def _current_deployment_id(self) -> str:
        deployment = self._deployment
        return deployment.id if deployment is not None and deployment.status in ACTIVE else ""

    def place_all(self, placements: Sequence[Placement]) -> None:
        """Place as much as there is room for, in order."""
        if not placements:
            return
        job = self._context.job
        assert job is not None
        self._nodes = job_nodes(self._context.state, job, strict=self._strict)
        self._stack.set_nodes(self._nodes.ready)
        waiting = deque(placements)
        while waiting:
            run = self._equal_run(waiting)
            if not self._place_copies(run, job):
                for placement in run:
                    self._place(placement, job)

    # --- many copies ------------------------------------------------------------------------------------------------

    def _equal_run(self, waiting: deque[Placement]) -> list[Placement]:
        """Take the next placement, and those after it that nothing tells apart from it."""
        run = [waiting.popleft()]
        if self._strict and _is_plain(run[0]):
            while waiting and waiting[0].group is run[0].group and _is_plain(waiting[0]):
                run.append(waiting.popleft())
        return run

    def _place_copies(self, run: list[Placement], job: Job) -> bool:
        """Place equal allocations with one look at the nodes; return False, with nothing done, where each needs one of its own."""
        group, stack = run[0].group, self._stack
        if len(run) < FEWEST_COPIES or not isinstance(stack, EveryNodeStack) or group.name in self._failed:
            return False
        context = self._context
        selected = stack.select_copies(group, len(run), frozenset(context.refused_node_ids))
        if selected is None:
            return False
        placed = run[: len(selected.rows)]
        self._deployment_id = self._current_deployment_id()
        if self._deployment_id or context.evaluation.annotate_plan:
            self._add_records(placed, job, selected)
        elif placed:
            shape, _ = shape_of(selected.resources)
            indexes = [index_in(self._new_name(placement, job), job.id, group.name) for placement in placed]
            alloc_ids = context.setting.new_keys(len(placed))
            context.draft.add_copies(Copies(group.name, shape, alloc_ids, selected.rows, numpy.array(indexes, numpy.int32)))
        selected.note_placed()
        for placement in run[len(placed) :]:
            self._place(placement, job)
        return True

    def _add_records(self, placements: Sequence[Placement], job: Job, selected: SelectedCopies) -> None:
        """Place allocations that carry what columns do not hold."""
        state = self._context.state
        metric = self._finished_metric(self._nodes, job)
        for placement, row in zip(placements, selected.rows.tolist(), strict=True):
            node = state.node_record(row)
            assert node is not None
            option = RankedNode(node, selected.resources)
            self._add(placement, placement.group, option, metric, None)

    def _finished_metric(self, nodes: JobNodes, job: Job) -> AllocMetric:
        metric = self._context.metrics.finish()
        metric.nodes_available = dict(nodes.by_datacenter)
        metric.nodes_in_pool = nodes.ready_count
        metric.node_pool = job.node_pool
        return metric

    # --- one after the other ----------------------------------------------------------------------------------------

    def _place(self, placement: Placement, job: Job) -> None:
        group, nodes = placement.group, self._nodes
        if self._strict:
            # As recorded, what follows a placement of an earlier version keeps the deployment of that.
            self._deployment_id = self._current_deployment_id()
        downgraded = self._downgraded(placement) if placement.downgrade else None
        if downgraded is not None:
            old_job, deployment = downgraded
            self._deployment_id = "" if deployment is None else deployment.id
            old_group = old_job.group(group.name)
            if old_group is not None and old_job.version != job.version:
                group = old_group
                nodes = job_nodes(self._context.state, old_job, strict=self._strict)
                self._stack.set_job(old_job)
                self._stack.set_nodes(nodes.ready)
        known = self._failed.get(group.name)
        if known is not None:
            known.coalesced_failures += 1
            exhaust_resources(known, group)
            self._undo(placement, coalesced=True)
            return
        draft = self._context.draft
        if placement.replaced is not None:
            draft.stop(placement.replaced, UPDATING)
        option = self._select(placement, group, job)
        metric = self._finished_metric(nodes, job)
        if group is not placement.group:
            self._stack.set_job(job)
            self._stack.set_nodes(self._nodes.ready)
        if option is not None:
            self._add(placement, group, option, metric, None if downgraded is None else downgraded[0])
            return
        exhaust_resources(metric, group)
        self._failed[group.name] = metric
        if placement.replaced is not None:
            draft.pop_stop(placement.replaced)
        self._undo(placement, coalesced=False)

    # --- choosing ---------------------------------------------------------------------------------------------------

    def _select(self, placement: Placement, group: TaskGroup, job: Job) -> RankedNode | None:
        previous = placement.previous
        penalties: set[str] = set(self._context.refused_node_ids) if self._strict else set()
        if previous is not None:
            if previous.client_status == "failed":
                penalties.add(previous.node_id)
            if previous.reschedule_tracker is not None:
                penalties.update(event.prev_node_id for event in previous.reschedule_tracker.events if event is not None)
        preferred = self._preferred(placement, group, job)
        options = SelectOptions(frozenset(penalties), preferred, alloc_name=placement.name)
        option = self._stack.select(group, options)
        if option is None and self._context.config.preemption_enabled(job.type):
            option = self._stack.select(group, SelectOptions(frozenset(penalties), preferred, preempt=True, alloc_name=placement.name))
        return option

    def _preferred(self, placement: Placement, group: TaskGroup, job: Job) -> Sequence[Node]:
        """Return the node on which the data of the previous allocation lie."""
        previous, disk = placement.previous, group.ephemeral_disk
        if previous is None or disk is None or not (disk.sticky or disk.migrate):
            return ()
        node = self._context.node(previous.node_id)
        if node is None or not is_ready(node) or previous.job is None:
            return ()
        return [node] if previous.job.node_pool == job.node_pool and previous.job.datacenters == job.datacenters else ()

    def _downgraded(self, placement: Placement) -> tuple[Job, Deployment | None] | None:
        """Return the version of the job that was promoted last, and its deployment: what is no canary keeps it."""
        state, evaluation = self._context.state, self._context.evaluation
        least = 0 if placement.previous is None or placement.previous.job is None else placement.previous.job.version
        deployments = state.deployments_by_job(evaluation.namespace, evaluation.job_id)
        for deployment in sorted(deployments, key=lambda each: -each.job_version):
            group = deployment.task_groups.get(placement.group.name)
            if group is not None and (group.promoted or group.desired_canaries == 0):
                job = state.job(evaluation.namespace, evaluation.job_id, deployment.job_version)
                return None if job is None or job.version < least else (job, deployment)
        job = state.job(evaluation.namespace, evaluation.job_id, least)
        if job is not None and job.update.max_parallel == 0:
            return job, None
        return None

    # --- results ----------------------------------------------------------------------------------------------------

    def _add(self, placement: Placement, group: TaskGroup, option: RankedNode, metric: AllocMetric, old_job: Job | None) -> None:
        context, previous = self._context, placement.previous
        job = context.job
        assert job is not None
        name = self._new_name(placement, job)
        alloc = Allocation(
            id=context.setting.new_id(),
            namespace=job.namespace,
            eval_id=context.evaluation.id,
            name=name,
            job_id=job.id,
            task_group=group.name,
            metrics=metric,
            node_id=option.node.id,
            node_name=option.node.name,
            allocated_resources=option.resources,
            desired_status="run",
            client_status="pending",
            deployment_id=self._deployment_id,
        )
        if previous is not None:
            alloc.previous_allocation = previous.id
            if placement.reschedule:
                alloc.reschedule_tracker = tracker_after(previous, context.setting.now_ns())
                self._note_rescheduled(previous)
        if placement.canary and self._deployment is not None:
            alloc.deployment_status = AllocDeploymentStatus(canary=True)
        self._preempt(alloc, option, group)
        context.draft.place(alloc, old_job if old_job is not None and group is not placement.group else None)

    def _new_name(self, placement: Placement, job: Job) -> str:
        names = self._reconciled.names.get(placement.group.name)
        if names is None:
            return placement.name
        return names.exchanged(placement.name, index_in(placement.name, job.id, placement.group.name))

    def _preempt(self, alloc: Allocation, option: RankedNode, group: TaskGroup) -> None:
        for victim in option.preempted:
            self._context.draft.preempt(victim, alloc.id)
            alloc.preempted_allocations.append(victim.id)
            self.annotated.append({"ID": victim.id, "JobID": victim.job_id, "TaskGroup": victim.task_group})
            self._reconciled.desired.setdefault(group.name, DesiredUpdates()).preemptions += 1

    def _note_rescheduled(self, previous: Allocation) -> None:
        """Note on the stop of an allocation that its replacement has a place.

        As recorded, the stored allocation takes the place of the stop, so that the stop loses its description.
        """
        entries = self._context.draft.node_update.get(previous.node_id, [])
        for place, entry in enumerate(entries):
            if entry.id == previous.id:
                entries[place] = with_note(entry if self._strict else previous, OK, _without_job)
                return

    def _undo(self, placement: Placement, *, coalesced: bool) -> None:
        """Let the predecessor of an allocation that found no place be, with a note.

        As recorded, those that come after the first failure of their group are stopped all the same.
        """
        previous = placement.previous
        if not placement.reschedule or previous is None or (coalesced and not self._strict):
            return
        draft = self._context.draft
        entries = draft.node_update.get(previous.node_id, [])
        newest = next((place for place in reversed(range(len(entries))) if entries[place].id == previous.id), None)
        if newest is not None:
            draft.drop_stop(previous.node_id, newest)
        written = draft.node_allocation.get(previous.node_id, [])
        for place, entry in enumerate(written if self._strict else ()):
            if entry.id == previous.id:
                # It is unknown from now on; as recorded, a second entry takes that back.
                written[place] = with_note(entry, NO_PLACEMENT, copy.copy)
                return
        if takes_notes(previous, self._context.state.node(previous.node_id)) or not self._strict:
            draft.place(with_note(previous, NO_PLACEMENT, copy.copy))


def _is_plain(placement: Placement) -> bool:
    """Return whether nothing tells a placement apart from others of its group."""
    return placement.previous is None and placement.replaced is None and not (placement.canary or placement.downgrade or placement.reschedule)


def _without_job(alloc: Allocation) -> Allocation:
    twin = copy.copy(alloc)
    twin.job = None
    return twin
