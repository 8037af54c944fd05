"""What clients, operators and drains say about allocations, as the state machine writes it (plan-apply 6.10, steps 7 and 8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fastplan.fsm.deployments import count_allocs
from fastplan.fsm.jobs import jobs_of_rows, refresh_statuses
from fastplan.state import StateStore
from fastplan.structs import Allocation, DesiredTransition

TRANSITION_FLAGS: Final = ("migrate", "reschedule", "force_reschedule", "no_shutdown_delay", "migrate_disable_placement")


def update_from_client(store: StateStore, index: int, now_ns: int, records: Sequence[Allocation]) -> None:
    """Write what clients say, and what follows: the counters of deployments and the statuses of jobs.

    Whether an allocation is a canary is not the client's to say, and a client that says nothing about health leaves what it said before.
    """
    before: dict[str, Allocation | None] = {}
    for record in records:
        said = record.deployment_status
        stored = None if said is None else store.alloc(record.id)
        if said is None or stored is None:
            continue
        before.setdefault(record.id, stored)
        said.modify_index = index
        if stored.deployment_status is not None:
            said.canary = stored.deployment_status.canary
            if said.healthy is None:
                said.healthy, said.timestamp = stored.deployment_status.healthy, stored.deployment_status.timestamp
    store.update_allocs_from_client(index, records)
    if before:
        written = [alloc for alloc in map(store.alloc, before) if alloc is not None]
        count_allocs(store, index, now_ns, written, before)
    rows = [row for row in map(store.allocs_view.find, (record.id for record in records)) if row >= 0]
    refresh_statuses(store, jobs_of_rows(store, rows))


def set_transitions(store: StateStore, index: int, now_ns: int, transitions: Mapping[str, DesiredTransition]) -> None:
    """Note what is wanted of allocations; flags that are not set leave what was noted before. Unknown ids are passed over."""
    changed = []
    for alloc_id, transition in transitions.items():
        alloc = store.alloc(alloc_id)
        if alloc is None:
            continue
        for flag in TRANSITION_FLAGS:
            value = getattr(transition, flag)
            if value is not None:
                setattr(alloc.desired_transition, flag, value)
        changed.append(alloc)
    store.rewrite_allocs(index, now_ns, changed)
