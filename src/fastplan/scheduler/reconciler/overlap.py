"""Several live allocations in one slot (schedulers 5): which one stays."""

from __future__ import annotations

import enum
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from fastplan.scheduler.difference import tasks_updated
from fastplan.structs import Allocation, Job

if TYPE_CHECKING:
    from fastplan.scheduler.reconciler.node import Entry, SystemReconciliation


class Kind(enum.IntEnum):
    """What becomes of a candidate if it stays: the least one does (schedulers 5.3)."""

    IGNORE = 0
    IN_PLACE = 1
    DESTRUCTIVE = 2
    RECONNECT = 3


class _Candidate(NamedTuple):
    entry: Entry
    kind: Kind

    @property
    def rank(self) -> tuple[int, int, int, str]:
        alloc = _alloc_of(self.entry)
        return self.kind, -_spec_index(alloc), -alloc.create_index, alloc.id


def _alloc_of(entry: Entry) -> Allocation:
    assert entry.alloc is not None
    return entry.alloc


def _spec_index(alloc: Allocation) -> int:
    return 0 if alloc.job is None else alloc.job.job_modify_index


def enforce(found: SystemReconciliation, job: Job) -> None:
    """Leave one candidate in each slot of a node and stop the others, whatever the pace of updates (schedulers 5.3, 5.4).

    Candidates are what would be ignored, updated or reconnected. A slot in which something is stopped that would have needed a destructive update is
    noted: it draws on the same allowance.
    """
    slots: dict[tuple[str, str], list[_Candidate]] = defaultdict(list)
    for entries, kind in ((found.ignore, Kind.IGNORE), (found.update, None), (found.reconnecting, Kind.RECONNECT)):
        for entry in entries:
            slots[entry.slot].append(_Candidate(entry, _update_kind(entry, job) if kind is None else kind))
    for slot, candidates in slots.items():
        if len(candidates) < 2:
            continue
        _, *extras = sorted(candidates, key=lambda candidate: candidate.rank)
        _stop(found, extras)
        if any(extra.kind is Kind.DESTRUCTIVE for extra in extras):
            found.charged.append(slot)


def _update_kind(entry: Entry, job: Job) -> Kind:
    """Return whether an update could be done in place, from the specifications alone. A node that is to be updated on is one of the job's."""
    alloc = _alloc_of(entry)
    if alloc.job is None or entry.group is None or tasks_updated(job, alloc.job, entry.group.name):
        return Kind.DESTRUCTIVE
    return Kind.IN_PLACE


def limit_by_count(found: SystemReconciliation) -> None:
    """Leave so many candidates of each name as the group has copies: ignored ones first, then updates, then reconnecting ones, each newest first.

    That is how it was once proposed (schedulers 5.2): it counts each name by itself, so a group of four may keep four of one name.
    """
    slots: dict[tuple[str, str], list[_Candidate]] = defaultdict(list)
    for entries, kind in ((found.ignore, Kind.IGNORE), (found.update, Kind.DESTRUCTIVE), (found.reconnecting, Kind.RECONNECT)):
        for entry in entries:
            slots[entry.slot].append(_Candidate(entry, kind))
    for candidates in slots.values():
        group = candidates[0].entry.group
        count = 1 if group is None else group.count
        if len(candidates) > count:
            _stop(found, sorted(candidates, key=lambda candidate: candidate.rank)[count:])


def _stop(found: SystemReconciliation, extras: list[_Candidate]) -> None:
    gone = {id(extra.entry) for extra in extras}
    for name in ("ignore", "update", "reconnecting"):
        entries = getattr(found, name)
        found.stop.extend(entry for entry in entries if id(entry) in gone)
        setattr(found, name, [entry for entry in entries if id(entry) not in gone])
