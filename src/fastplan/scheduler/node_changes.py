"""What a plan in the making changes on its nodes, as differences to the state's columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from fastplan.errors import InvalidInput
from fastplan.fit.demand import totals_of
from fastplan.scheduler.context import Context
from fastplan.state.copies import Copies
from fastplan.structs import Allocation, Job
from fastplan.structs.canonical import canonical_alloc


@dataclass(slots=True)
class Change:
    """What becomes free on a node: MHz, MiB, and how many allocations more it takes. `copies`: of the group there are now, copies in columns apart."""

    cpu_mhz: int = 0
    memory_mib: int = 0
    disk_mib: int = 0
    slots: int = 0
    copies: int = 0

    def free(self, alloc: Allocation, sign: int) -> None:
        """Count what an allocation holds, once more free (1) or taken (−1)."""
        self.slots += sign
        if alloc.is_client_terminal:
            return
        try:
            totals = totals_of(canonical_alloc(alloc), never_negative=True)
        except InvalidInput:
            # A node with such an allocation is not regular, and nobody asks for its amounts.
            return
        self.cpu_mhz += sign * totals.cpu_mhz
        self.memory_mib += sign * totals.memory_mib
        self.disk_mib += sign * totals.disk_mib


class NodeChanges:
    """Looks at the records of a draft, node by node, for one group of a job. Copies in columns are not among them."""

    def __init__(self, context: Context, job: Job, group: str) -> None:
        self._context = context
        self._job = job
        self._group = group
        self._of_job: dict[str, list[Allocation]] = {}
        for alloc in context.job_allocs():
            if not alloc.is_client_terminal:
                self._of_job.setdefault(alloc.node_id, []).append(alloc)

    def nodes_of_job(self) -> list[str]:
        """Return the ids of the nodes with allocations of the evaluated job in the state."""
        return list(self._of_job)

    def on(self, node_id: str) -> Change:
        """Return what changes on a node."""
        draft, state = self._context.draft, self._context.state
        change = Change()
        gone = {entry.id for entries in (draft.node_update, draft.node_preemptions) for entry in entries.get(node_id, ())}
        placed = {entry.id: entry for entry in draft.node_allocation.get(node_id, ())}
        for alloc_id in gone | placed.keys():
            stored = state.alloc(alloc_id)
            if stored is not None and not stored.is_client_terminal and stored.node_id == node_id:
                change.free(stored, 1)
        for entry in placed.values():
            change.free(entry, -1)
        here = {alloc.id: alloc for alloc in self._of_job.get(node_id, ()) if alloc.id not in gone}
        change.copies = sum(self.is_of_group(alloc) for alloc in {**here, **placed}.values())
        return change

    def is_of_group(self, alloc: Allocation) -> bool:
        """Return whether an allocation is one of the group."""
        return alloc.task_group == self._group and alloc.job_id == self._job.id and alloc.namespace == self._job.namespace

    def has_neighbour(self, node_id: str) -> bool:
        """Return whether a node has an allocation of the job, of whichever group."""
        draft, job = self._context.draft, self._job
        gone = {entry.id for entries in (draft.node_update, draft.node_preemptions) for entry in entries.get(node_id, ())}
        if any(alloc.id not in gone for alloc in self._of_job.get(node_id, ())):
            return True
        return any(entry.job_id == job.id and entry.namespace == job.namespace for entry in draft.node_allocation.get(node_id, ()))


class CopiesOnNodes:
    """What copies in columns take of each of many candidates: int64 (n) each."""

    def __init__(self, rows: NDArray[numpy.uint32], row_count: int, group: str) -> None:
        """*rows* of the candidates in a node table of *row_count* rows."""
        self._index_of = numpy.full(row_count, -1, numpy.int64)
        self._index_of[rows] = numpy.arange(len(rows))
        self._group = group
        self.cpu_mhz = numpy.zeros(len(rows), numpy.int64)
        self.memory_mib = numpy.zeros(len(rows), numpy.int64)
        self.disk_mib = numpy.zeros(len(rows), numpy.int64)
        self.all_copies = numpy.zeros(len(rows), numpy.int64)
        self.of_group = numpy.zeros(len(rows), numpy.int64)

    def add(self, copies: Copies) -> list[int]:
        """Count copies; return the candidates that have any of them."""
        indexes = self._index_of[copies.node_rows]
        touched, counts = numpy.unique(indexes[indexes >= 0], return_counts=True)
        shape = copies.shape
        self.cpu_mhz[touched] += counts * shape.cpu_mhz
        self.memory_mib[touched] += counts * shape.memory_mib
        self.disk_mib[touched] += counts * shape.disk_mib
        self.all_copies[touched] += counts
        if copies.group == self._group:
            self.of_group[touched] += counts
        found: list[int] = touched.tolist()
        return found

    def add_to(self, change: Change, index: int) -> None:
        """Count in a change what the copies on a candidate take."""
        change.cpu_mhz -= int(self.cpu_mhz[index])
        change.memory_mib -= int(self.memory_mib[index])
        change.disk_mib -= int(self.disk_mib[index])
        change.slots -= int(self.all_copies[index])
        change.copies += int(self.of_group[index])
