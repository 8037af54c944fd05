"""What evaluations of system and sysbatch jobs tell in numbers: queued allocations and desired changes (schedulers 3.4, 3.5, 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from fastplan.scheduler.reconciler.node import Entry, SystemReconciliation
from fastplan.structs import DesiredUpdates, Job

_WRAP: Final = 2**64


class SystemCounts:
    """`queued`: by group, what is to be placed and was not. `desired`: by group, how many allocations change in which way."""

    def __init__(self, job: Job | None, *, sysbatch: bool, strict: bool) -> None:
        self.queued: dict[str, int] = {}
        self.desired: dict[str, DesiredUpdates] = {}
        self._job = None if job is None or job.stop else job
        self._sysbatch = sysbatch
        self._strict = strict

    def of(self, group: str) -> DesiredUpdates:
        """Return the changes of a group."""
        counts = self.desired.get(group)
        if counts is None:
            counts = self.desired[group] = DesiredUpdates()
        return counts

    def start(self, found: SystemReconciliation, in_place: Sequence[Entry], destructive: Sequence[Entry], admitted: Sequence[Entry]) -> None:
        """Count what is to be done. *admitted*: those of *destructive* that are done now."""
        if self._job is not None and (self._strict or not (self._sysbatch and (found.place or admitted))):
            # As recorded, groups of a sysbatch job with nothing to place are missing as soon as anything is to be placed.
            self.queued = {group.name: 0 for group in self._job.task_groups}
        for entries in (found.place, admitted):
            for entry in entries:
                self.queued[entry.group_name] = self.queued.get(entry.group_name, 0) + 1
        lists = (
            ("ignore", found.ignore),
            ("migrate", found.migrate),
            ("in_place_update", in_place),
            ("destructive_update", destructive),
            ("disconnect", found.disconnecting),
            ("reconnect", found.reconnecting),
        )
        for name, entries in lists:
            for entry in entries:
                counts = self.of(entry.group_name)
                setattr(counts, name, getattr(counts, name) + 1)
        for entry in found.stop:
            # A stop counts for the group that it had, whether the job has that group or not.
            self.of("" if entry.alloc is None else entry.alloc.task_group).stop += 1
        # Of a system job every node counts that is a candidate of the group, whether anything has to be placed there or not.
        for entries in (found.place,) if self._sysbatch else (found.ignore, in_place, destructive, found.place):
            for entry in entries:
                self.of(entry.group_name).place += 1

    def start_in_columns(self, settled: Mapping[str, int], fresh: Mapping[str, int]) -> None:
        """Count what was not looked at one by one: by group, what is left alone, and what is to be placed."""
        for name, count in settled.items():
            counts = self.of(name)
            counts.ignore += count
            counts.place += 0 if self._sysbatch else count
        for name, count in fresh.items():
            self.queued[name] = self.queued.get(name, 0) + count
            self.of(name).place += count

    def filtered(self, group: str, count: int = 1) -> int:
        """Note that so many nodes do not suit a group; return what is left in its queue."""
        self.queued[group] -= count
        self._less_places(group, count)
        return self.queued[group]

    def exhausted(self, group: str) -> None:
        """Note that a node has no room for a group."""
        if not self._sysbatch:
            self._less_places(group, 1)

    def committed(self, placed: Mapping[str, int]) -> None:
        """Take from the queue what was placed, by group."""
        for group, count in placed.items():
            if group in self.queued:
                self.queued[group] -= count

    def _less_places(self, group: str, count: int) -> None:
        counts = self.of(group)
        # As recorded, an unsigned number goes below zero.
        counts.place = max(counts.place - count, 0) if self._strict else (counts.place - count) % _WRAP
