"""What all parts of the state store rest on: its tables, snapshots of them, and the gate for those who wait for an index."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from fastplan.columns._blocks import Domain
from fastplan.fit import FitChecker
from fastplan.fit._nodes import NodeTable
from fastplan.fit.checker import View
from fastplan.state._allocs import AllocTable
from fastplan.state.alloc_records import Notes
from fastplan.state.compaction import compacted
from fastplan.state.jobs import JobTable
from fastplan.state.records import RecordMap, RecordTable
from fastplan.state.shapes import Shapes
from fastplan.state.snapshot import StateReader, StateSnapshot
from fastplan.state.waits import IndexGate
from fastplan.structs import Allocation, Deployment, Evaluation, Node


class StoreCore(StateReader):
    """The tables of a store, for its one writer."""

    nodes_view: NodeTable
    allocs_view: AllocTable
    jobs_view: JobTable
    _node_records: RecordTable[Node]
    _node_rows: RecordMap[str, int]
    _extras: RecordTable[Allocation | bytes]
    _evals: RecordMap[str, Evaluation]
    _evals_of_job: RecordMap[tuple[str, str], tuple[str, ...]]
    _open_evals_of_job: RecordMap[tuple[str, str], tuple[str, ...]]
    _deployments: RecordMap[str, Deployment]
    _deployments_of_job: RecordMap[tuple[str, str], tuple[str, ...]]

    def __init__(self) -> None:
        self._domain = Domain()
        self.nodes_view = NodeTable(self._domain)
        self.allocs_view = AllocTable(self.nodes_view)
        self.jobs_view = JobTable()
        self.shapes = Shapes()
        self.notes = Notes()
        self._node_records = RecordTable()
        self._node_rows = RecordMap()
        self._extras = RecordTable()
        self._evals = RecordMap()
        self._evals_of_job = RecordMap()
        self._open_evals_of_job = RecordMap()
        self._deployments = RecordMap()
        self._deployments_of_job = RecordMap()
        self._node_pools = {}
        self._namespaces = {"default": {"Name": "default", "Description": "Default shared namespace"}}
        self._scheduler_config = None
        self._indexes = {}
        self._latest_index = 0
        self._gate = IndexGate()
        self._lock = threading.RLock()
        self._batches = 0
        self._written_evals: dict[str, Evaluation] | None = None
        self.undecided: list[str] = []
        """What the dump leaves open: references it does not hold, and what its source cannot say (plan-apply 1.13)."""

    def snapshot(self) -> StateSnapshot:
        """Return the state as it is now, in O(1); may be called from any thread, and waits while a batch is open in another one."""
        with self._lock:
            pin = self._domain.pin()
            snapshot = StateSnapshot()
            snapshot.nodes_view = self.nodes_view.view(pin)
            snapshot.allocs_view = self.allocs_view.view(pin)
            snapshot.jobs_view = self.jobs_view.view()
            snapshot.shapes = self.shapes
            snapshot.notes = self.notes
            snapshot._node_records = self._node_records.view()
            snapshot._node_rows = self._node_rows.view()
            snapshot._extras = self._extras.view()
            snapshot._evals = self._evals.view()
            snapshot._evals_of_job = self._evals_of_job.view()
            snapshot._open_evals_of_job = self._open_evals_of_job.view()
            snapshot._deployments = self._deployments.view()
            snapshot._deployments_of_job = self._deployments_of_job.view()
            snapshot._node_pools = self._node_pools
            snapshot._namespaces = self._namespaces
            snapshot._scheduler_config = self._scheduler_config
            snapshot._indexes = self._indexes.copy()
            snapshot._latest_index = self._latest_index
            snapshot.shape_count = len(self.shapes.items)
            snapshot.group_count = len(self.jobs_view.groups.keys)
            snapshot.undecided = self.undecided
            return snapshot

    def fit_checker(self, view: View = "scheduler") -> FitChecker:
        """Return a checker on the state as it is now, in O(1); it does not follow what is written later."""
        return self.snapshot().fit_checker(view)

    @contextlib.contextmanager
    def batch(self) -> Iterator[None]:
        """Hold snapshots of other threads, and those who wait for an index, back until the end of the block."""
        with self._lock:
            self._batches += 1
            try:
                yield
            finally:
                self._batches -= 1
                if self._batches == 0:
                    for version in self.allocs_view.take_unused_versions():
                        if not self.allocs_view.version_uses(version):
                            self.jobs_view.release(version)
                    if self.allocs_view.is_wasteful:
                        self.compact()
                    self._gate.advance(self._latest_index)

    def compact(self) -> None:
        """Write the allocations anew, without rows of deleted ones and the like. Their row numbers change, and with them `allocs_view.generation`.

        Done at the end of a batch when more than half is of no use; snapshots keep the old table.
        """
        self.allocs_view, self.notes = compacted(self.allocs_view, self.nodes_view, self.shapes, self.notes)

    def wait_for_index(self, index: int, timeout_s: float) -> None:
        """Block this thread until the state has reached *index*. Raises TimeoutError after *timeout_s* seconds."""
        self._gate.wait(index, timeout_s)

    async def index_reached(self, index: int, timeout_s: float) -> None:
        """Wait in a coroutine until the state has reached *index*. Raises TimeoutError after *timeout_s* seconds."""
        await self._gate.reached(index, timeout_s)

    def touch(self, index: int, *tables: str) -> None:
        """Set the last index of tables that were written, or that count as written, by the entry at *index*."""
        for table in tables:
            self._indexes[table] = index
        if index > self._latest_index:
            self._latest_index = index
        if self._batches == 0:
            self._gate.advance(self._latest_index)
