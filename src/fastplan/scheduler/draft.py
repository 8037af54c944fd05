"""The plan that a scheduler is making (schedulers 2.8), and what is proposed on a node while it does (3.7)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable

from fastplan.scheduler.alloc_facts import UNKNOWN, with_client_status
from fastplan.state.copies import Copies, plan_with_copies
from fastplan.state.plans import AnyPlan, with_job_of
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, Deployment, DeploymentUpdate, Evaluation, Job, Plan, PlanAnnotations

Entries = dict[str, list[Allocation]]
"""Node id → allocations in plan order."""


class PlanDraft:
    """A plan in the making.

    Allocations in it are copies without job; the job of the plan is theirs, unless they carry one of their own. `copies` are placements of many equal
    allocations that stay columns.
    """

    __slots__ = (
        "_now_ns",
        "_state",
        "_stored",
        "changes",
        "all_at_once",
        "annotations",
        "copies",
        "deployment",
        "deployment_updates",
        "eval_id",
        "job",
        "node_allocation",
        "node_preemptions",
        "node_update",
        "priority",
    )

    def __init__(self, evaluation: Evaluation, job: Job | None, state: StateReader, now_ns: Callable[[], int]) -> None:
        """Start a plan for an evaluation on a state. *now_ns* stamps what is recorded of changed client statuses."""
        self.eval_id = evaluation.id
        self.priority = evaluation.priority
        self.job = job
        self.all_at_once = job is not None and job.all_at_once
        self.node_update: Entries = {}
        self.node_allocation: Entries = {}
        self.node_preemptions: Entries = {}
        self.copies: list[Copies] = []
        self.changes: list[str | Allocation | Copies] = []
        """What has changed since the start: an allocation that was placed or updated, copies, or the id of a node where something else did."""
        self.deployment: Deployment | None = None
        self.deployment_updates: list[DeploymentUpdate] = []
        self.annotations: PlanAnnotations | None = None
        self._state = state
        self._now_ns = now_ns
        self._stored: dict[str, list[Allocation]] = {}

    # --- entries --------------------------------------------------------------------------------------------------

    def stop(self, alloc: Allocation, description: str, client_status: str = "", followup_eval_id: str = "") -> Allocation:
        """Stop an allocation, and return the entry. A plan of a purged job takes the job of the first allocation that has one."""
        entry = with_client_status(alloc, client_status, self._now_ns()) if client_status else copy.copy(alloc)
        if self.job is None and alloc.job is not None:
            self.job = alloc.job
        entry.job = None
        entry.desired_status = "stop"
        entry.desired_description = description
        if followup_eval_id:
            entry.followup_eval_id = followup_eval_id
        self.node_update.setdefault(alloc.node_id, []).append(entry)
        self.changes.append(alloc.node_id)
        return entry

    def pop_stop(self, alloc: Allocation) -> None:
        """Take the last stop of a node back, if it is that of *alloc*."""
        entries = self.node_update.get(alloc.node_id)
        if entries and entries[-1].id == alloc.id:
            self.drop_stop(alloc.node_id, len(entries) - 1)

    def drop_stop(self, node_id: str, place: int) -> None:
        """Take the stop at a *place* in the list of a node back."""
        entries = self.node_update[node_id]
        del entries[place]
        if not entries:
            del self.node_update[node_id]
        self.changes.append(node_id)

    def place(self, alloc: Allocation, job: Job | None = None) -> None:
        """Add a placement, or the new version of an allocation. *job*: another one than the plan's."""
        entry = alloc if alloc.job is job else copy.copy(alloc)
        entry.job = job
        self.node_allocation.setdefault(alloc.node_id, []).append(entry)
        self.changes.append(entry)

    def mark_unknown(self, alloc: Allocation) -> None:
        """Say that nobody knows what an allocation does: its node is disconnected. *alloc* is changed already."""
        self.place(alloc)

    def preempt(self, alloc: Allocation, by_alloc_id: str) -> None:
        """Evict an allocation in favour of another one."""
        entry = Allocation(
            id=alloc.id,
            namespace=alloc.namespace,
            job_id=alloc.job_id,
            node_id=alloc.node_id,
            task_group=alloc.task_group,
            allocated_resources=alloc.allocated_resources,
            desired_status="evict",
            desired_description=f"Preempted by alloc ID {by_alloc_id}",
            preempted_by_allocation=by_alloc_id,
        )
        # Only to look at: what gives way is told apart by its job's priority and migration limit.
        entry.job = alloc.job
        self.node_preemptions.setdefault(alloc.node_id, []).append(entry)
        self.changes.append(alloc.node_id)

    def withdraw(self, alloc: Allocation, *, evictions: bool) -> None:
        """Take a placement back; with *evictions* also those in its favour."""
        _drop(self.node_allocation, alloc.node_id, lambda entry: entry.id == alloc.id)
        if evictions:
            _drop(self.node_preemptions, alloc.node_id, lambda entry: entry.preempted_by_allocation == alloc.id)
        self.changes.append(alloc.node_id)

    def keep(self, alloc: Allocation) -> None:
        """Take all stops of an allocation back."""
        _drop(self.node_update, alloc.node_id, lambda entry: entry.id == alloc.id)
        self.changes.append(alloc.node_id)

    def add_copies(self, copies: Copies) -> None:
        """Place many equal allocations."""
        self.copies.append(copies)
        self.changes.append(copies)

    def is_noop(self) -> bool:
        """Return whether nothing changes: preemptions and annotations do not count."""
        return not (self.node_update or self.node_allocation or self.copies or self.deployment_updates) and self.deployment is None

    # --- what is proposed -----------------------------------------------------------------------------------------

    def stored_allocs(self, node_id: str) -> list[Allocation]:
        """Return what holds something on a node in the state, in the order of `by_age`; shared, not to be changed."""
        found = self._stored.get(node_id)
        if found is None:
            found = self._stored[node_id] = sorted(self._state.allocs_held_on(node_id), key=lambda alloc: (alloc.create_index, alloc.id))
        return found

    def proposed_allocs(self, node_id: str) -> list[Allocation]:
        """Return what would count on a node if the plan were committed as it is (schedulers 3.7); each with its job; shared, not to be changed.

        What is told to stop counts until its client says that it has ended, unless this very plan stops it.
        """
        gone = {entry.id for entries in (self.node_update, self.node_preemptions) for entry in entries.get(node_id, ())}
        proposed = {alloc.id: alloc for alloc in self.stored_allocs(node_id) if alloc.id not in gone}
        for entry in self._placed(node_id):
            proposed[entry.id] = entry if entry.job is not None or self.job is None else with_job_of(entry, self.job)
        return list(proposed.values())

    def placed_allocs(self) -> Iterable[Allocation]:
        """Yield all that the plan places or updates, whatever the node."""
        for entries in self.node_allocation.values():
            yield from entries
        for copies in self.copies:
            yield from copies.records(self._state, self.eval_id, self.job)

    def _placed(self, node_id: str) -> Iterable[Allocation]:
        yield from self.node_allocation.get(node_id, ())
        row = self._state.node_row(node_id) if self.copies else None
        for copies in self.copies if row is not None else ():
            yield from copies.records(self._state, self.eval_id, self.job, row)

    # --- the plan -------------------------------------------------------------------------------------------------

    def to_plan(self) -> AnyPlan:
        """Return the finished plan. Token and snapshot index are filled in by whoever submits it."""
        plan = Plan(
            eval_id=self.eval_id,
            priority=self.priority,
            all_at_once=self.all_at_once,
            job=self.job,
            node_update=dict(self.node_update),
            node_allocation=dict(self.node_allocation),
            node_preemptions={node_id: [_without_job(entry) for entry in entries] for node_id, entries in self.node_preemptions.items()},
            deployment=self.deployment,
            deployment_updates=self.deployment_updates,
            annotations=self.annotations,
        )
        return plan_with_copies(plan, self.copies, self._state) if self.copies else plan


def _drop(entries: Entries, node_id: str, is_gone: Callable[[Allocation], bool]) -> None:
    """Remove entries of a node; a node without entries is not listed."""
    kept = [entry for entry in entries.get(node_id, ()) if not is_gone(entry)]
    if kept:
        entries[node_id] = kept
    else:
        entries.pop(node_id, None)


def _without_job(alloc: Allocation) -> Allocation:
    twin = copy.copy(alloc)
    twin.job = None
    return twin


def unknown_copy(alloc: Allocation, now_ns: int) -> Allocation:
    """Return a copy of an allocation whose node is disconnected (schedulers 4.5 rule 7)."""
    twin = with_client_status(alloc, "unknown", now_ns)
    twin.client_description = UNKNOWN
    return twin
