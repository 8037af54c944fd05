"""Committed state with plans in flight on top, read as records: what the reference looks at where compiled code cannot decide (plan-apply 6.9)."""

from __future__ import annotations

import copy
from collections.abc import Iterable

from fastplan.columns.ids import key_of
from fastplan.planner import reference
from fastplan.planner._overlay import Overlay
from fastplan.state.plan_builder import placement_record, preemption_record, stop_record
from fastplan.state.plans import AnyPlan
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, Job, Node, canonical_alloc

PLACE, STOP, PREEMPT = range(3)

Change = tuple[AnyPlan, int, int]


class InFlightState:
    """A state as it will be once the plans in flight are committed; a `reference.StateReader`. Plans in flight are the owners in the overlay."""

    def __init__(self, state: StateReader, overlay: Overlay) -> None:
        self._state = state
        self._overlay = overlay

    def node(self, node_id: str) -> Node | None:
        """Return the canonical node, None if it does not exist; plans do not change nodes."""
        return self._state.node(node_id)

    def job(self, namespace: str, job_id: str) -> Job | None:
        """Return the registered job, None if it does not exist; plans do not change jobs."""
        return self._state.job(namespace, job_id)

    def table_index(self, name: str) -> int:
        """Return the index of the last committed write of a table."""
        return self._state.table_index(name)

    def alloc(self, alloc_id: str) -> Allocation | None:
        """Return the allocation as it will be, None if it does not exist."""
        stored = self._state.alloc(alloc_id)
        placed = self._overlay.placement(key_of(alloc_id))
        if stored is not None:
            node_id = stored.node_id
        elif placed is not None:
            node_id = _node_of(*placed)
        else:
            return None
        return self._after([] if stored is None else [stored], node_id).get(alloc_id)

    def allocs_by_node(self, node_id: str) -> list[Allocation]:
        """Return the allocations of a node as they will be, ascending by id."""
        allocs = self._after(self._state.allocs_by_node(node_id), node_id)
        return [alloc for _, alloc in sorted(allocs.items()) if alloc.node_id == node_id]

    def _changes(self, node_id: str) -> list[Change]:
        """Return what is in flight on a node, in dispatch order."""
        if self._overlay.odd_count:
            return self._overlay.all_changes()
        row = self._state.node_row(node_id)
        return [] if row is None else self._overlay.changes_on(row, self._state.node_generation(row))

    def _after(self, stored: Iterable[Allocation], node_id: str) -> dict[str, Allocation]:
        """Return what becomes of the *stored* allocations of a node and of whatever else is in flight there, by id (plan-apply 6.10, steps 1, 6 and 7)."""
        allocs: dict[str, Allocation | None] = {alloc.id: alloc for alloc in stored}
        for plan, kind, row in self._changes(node_id):
            columns = plan._columns
            if kind == PLACE:
                change = _placed(plan, row)
            else:
                change = stop_record(columns, row) if kind == STOP else preemption_record(columns, row)
            # One that comes from another node is known there.
            before = allocs[change.id] if change.id in allocs else self._state.alloc(change.id)
            if kind == PLACE:
                allocs[change.id] = change if before is None else _updated(before, change)
            else:
                allocs[change.id] = None if before is None else reference.changed(before, change)
        return {alloc_id: alloc for alloc_id, alloc in allocs.items() if alloc is not None}


def _node_of(plan: AnyPlan, row: int) -> str:
    """Return the node on which a plan makes the placement in a row."""
    columns = plan._columns
    index = int(columns.place_offsets.searchsorted(row, side="right")) - 1
    node_id: str = columns.node_ids[index]
    return node_id


def _placed(plan: AnyPlan, row: int) -> Allocation:
    """Return a placement with its node and the job that it will have."""
    node_id = _node_of(plan, row)
    alloc = copy.copy(canonical_alloc(placement_record(plan._columns, row, node_id, plan.eval_id, plan.job)))
    alloc.node_id = alloc.node_id or node_id
    if alloc.job is None:
        alloc.job = plan.job
    return alloc


def _updated(stored: Allocation, alloc: Allocation) -> Allocation:
    """Return *alloc* written over *stored*: the client's word stays, unless the plan says that it is lost or unknown."""
    if alloc.client_status not in ("lost", "unknown"):
        alloc.client_status, alloc.client_description = stored.client_status, stored.client_description
    if alloc.job is None:
        alloc.job = stored.job
    return alloc
