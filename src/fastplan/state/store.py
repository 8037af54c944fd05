"""The state store: everything the cluster is known to be, written by one writer and read through snapshots (docs/architecture.md, "State")."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, NamedTuple, TypeVar

import numpy
from numpy.typing import NDArray

from fastplan.columns._blocks import Domain
from fastplan.columns.ids import keys_of
from fastplan.errors import StateError
from fastplan.fit._nodes import NodeTable
from fastplan.fit.demand import demand_of
from fastplan.fit.encode import encode_demand, encode_node, status_flags
from fastplan.state import transfer
from fastplan.state._allocs import AllocTable
from fastplan.state.alloc_records import NO_ROW, Notes, StopNote, name_index_of
from fastplan.state.compaction import compacted
from fastplan.state.jobs import JobTable
from fastplan.state.named import read_named, read_opaque
from fastplan.state.records import RecordMap, RecordTable
from fastplan.state.resource_shapes import ResourceShape
from fastplan.state.shapes import Shapes
from fastplan.state.snapshot import StateReader, StateSnapshot
from fastplan.state.statuses import client_number, desired_number
from fastplan.state.waits import IndexGate
from fastplan.structs import Allocation, Deployment, Evaluation, Job, Node, canonical_alloc, canonical_node

KEEP = 255
"""As a status number: leave it as it is."""


class StateStore(StateReader):
    """The state, for its one writer: the state machine, or a loader before there is a log.

    Every writing method takes the index of the log entry that it belongs to, which becomes the last index of the tables it writes. Records given to it
    are copied. A method that raises has changed nothing. What belongs to one entry is written inside `with store.batch():`, so that nobody sees a half.
    """

    nodes_view: NodeTable
    allocs_view: AllocTable
    jobs_view: JobTable
    _node_records: RecordTable[Node]
    _node_rows: RecordMap[str, int]
    _extras: RecordTable[Allocation | bytes]
    _evals: RecordMap[str, Evaluation]
    _evals_of_job: RecordMap[tuple[str, str], tuple[str, ...]]
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
        self.undecided: list[str] = []
        """What the dump leaves open: references it does not hold, and what its source cannot say (plan-apply 1.13)."""

    @classmethod
    def from_dump(cls, dump: Mapping[str, Any] | str | PathLike[str]) -> StateStore:
        """Return a store with the contents of a dump: a mapping, or a path of a JSON file or of a folder of them (`nodes.json`, `allocs.json`, …).

        Keys, each optional: `nodes`, `node_pools`, `namespaces`, `jobs` (registered now), `job_versions` (all that can be looked up), `allocs` (`Job`
        embedded, or looked up by namespace, `JobID` and `JobVersion`), `evals`, `deployments`, `scheduler_config`, `indexes` (table → last index; where
        one is left out, the largest `ModifyIndex`). References to what the dump does not hold are listed by `undecided`.
        Raises InvalidInput naming file, path and value for anything that cannot be read, an unknown key, and an id twice in one table.
        """
        from fastplan.state.dump import load_dump

        store = cls()
        load_dump(store, dump)
        return store

    @classmethod
    def load(cls, frames: Iterable[bytes]) -> StateStore:
        """Return a store with what `StateSnapshot.save` gave. Raises CodecError for what cannot be read, VersionUnsupported for another format."""
        store = cls()
        transfer.load(store, frames)
        return store

    # --- snapshots and waiting ------------------------------------------------------------------------------------

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

    # --- nodes ----------------------------------------------------------------------------------------------------

    def upsert_node(self, index: int, node: Node) -> None:
        """Write a node, in canonical form (plan-apply 1.3). Allocations that name it count on it from now on."""
        with self.batch():
            twin = node.copy()
            row = self._node_rows.get(node.id)
            twin.create_index = index if row is None else self._node_records[row].create_index
            twin.modify_index = index
            self.put_node(twin)
            self.touch(index, "nodes")

    def put_node(self, node: Node, reserved_row: int | None = None) -> None:
        """Write a node as it is, its indexes included, outside of the log: for loaders. *node* is kept. *reserved_row*: a row without supply for it."""
        node = canonical_node(node)
        numbers = encode_node(node)
        flags = status_flags(node.status, node.scheduling_eligibility)
        row = self._node_rows.get(node.id)
        if row is None:
            if reserved_row is None:
                row, _ = self.nodes_view.allocate(numbers, flags)
            else:
                row = reserved_row
                self.nodes_view.set_supply(row, numbers)
                self.nodes_view.set_status(row, flags)
            self._node_rows.set(node.id, row)
            self.allocs_view.bind_node(self.allocs_view.intern_node(node.id), row)
        else:
            if self.nodes_view.set_supply(row, numbers):
                self.allocs_view.recount_node(self.allocs_view.intern_node(node.id))
            self.nodes_view.set_status(row, flags)
        self._node_records.set(row, node)

    def delete_node(self, index: int, node_id: str) -> None:
        """Forget a node; its allocations stay and keep its id. Raises StateError if it does not exist."""
        with self.batch():
            row = self._required_node(node_id)
            self.allocs_view.unbind_node(self.allocs_view.intern_node(node_id))
            self.nodes_view.free(row)
            self._node_rows.delete(node_id)
            self._node_records.set(row, None)
            self.touch(index, "nodes")

    def update_node_status(self, index: int, node_id: str, status: str, *, updated_at: int | None = None) -> None:
        """Set a node's status; *updated_at* in Unix seconds, as the API has it. Raises StateError if the node does not exist."""
        self._change_node(index, node_id, status=status, status_updated_at=updated_at)

    def update_node_eligibility(
        self, index: int, node_id: str, eligibility: str, *, updated_at: int | None = None, event: dict[str, Any] | None = None
    ) -> None:
        """Set a node's scheduling eligibility and append *event*, if given, to its events. Raises StateError if the node does not exist."""
        self._change_node(index, node_id, scheduling_eligibility=eligibility, status_updated_at=updated_at, event=event)

    def _change_node(self, index: int, node_id: str, *, event: dict[str, Any] | None = None, **changes: Any) -> None:
        with self.batch():
            row = self._required_node(node_id)
            twin = copy.copy(self._node_records[row])
            for name, value in changes.items():
                if value is not None:
                    setattr(twin, name, value)
            if event is not None:
                twin.events = [*twin.events, event]
            twin.modify_index = index
            self.nodes_view.set_status(row, status_flags(twin.status, twin.scheduling_eligibility))
            self._node_records.set(row, twin)
            self.touch(index, "nodes")

    def _required_node(self, node_id: str) -> int:
        row = self._node_rows.get(node_id)
        if row is None:
            raise StateError(f"node {node_id} does not exist")
        return row

    # --- jobs -----------------------------------------------------------------------------------------------------

    def upsert_job(self, index: int, job: Job) -> int:
        """Register a job and return its version row. Versions that allocations use stay, and the newest few.

        `CreateIndex` of a registered job is kept, `ModifyIndex` and `JobModifyIndex` become *index*; the version number is the caller's to raise.
        """
        with self.batch():
            twin = job.copy()
            twin.namespace = twin.namespace or "default"
            known = self.jobs_view.get(twin.namespace, twin.id)
            twin.create_index = index if known is None else known.create_index
            twin.modify_index = twin.job_modify_index = index
            row = self.jobs_view.register(twin)
            self.jobs_view.prune(twin.namespace, twin.id, self.allocs_view.version_uses)
            self.touch(index, "jobs")
            return row

    def delete_job(self, index: int, namespace: str, job_id: str) -> None:
        """Forget a job and its versions; its allocations keep theirs. Raises StateError if it is not registered."""
        with self.batch():
            namespace = namespace or "default"
            if self.jobs_view.row_of(namespace, job_id) is None:
                raise StateError(f"job {job_id} does not exist in namespace {namespace}")
            self.jobs_view.deregister(namespace, job_id)
            self.touch(index, "jobs")

    # --- allocations, as records ----------------------------------------------------------------------------------

    def upsert_allocs(self, index: int, allocs: Iterable[Allocation]) -> None:
        """Write allocations as plan-apply 6.10 step 7 says. A new one needs no job here.

        An existing one keeps `CreateIndex`, task states, next allocation, the client's status and description (unless the new status is lost or unknown),
        and its job if none is attached. The allocation named by `PreviousAllocation` gets this one as its next.
        """
        with self.batch():
            fresh: dict[str, Allocation] = {}
            linked: list[tuple[str, str]] = []
            for alloc in allocs:
                if alloc.id in fresh:
                    self.put_allocs(list(fresh.values()))
                    fresh = {}
                row = self.allocs_view.find(alloc.id)
                twin = _without_job(alloc)
                twin.job = alloc.job
                twin.modify_index = twin.alloc_modify_index = index
                if row < 0:
                    twin.create_index = index
                    fresh[alloc.id] = twin
                else:
                    self._update_alloc(row, twin)
                linked.append((alloc.previous_allocation, alloc.id))
            self.put_allocs(list(fresh.values()))
            for previous, alloc_id in linked:
                if previous:
                    self._set_next(previous, alloc_id)
            self.touch(index, "allocs")

    def put_allocs(self, allocs: Sequence[Allocation]) -> None:
        """Insert new allocations as they are, their indexes included, outside of the log: for loaders. The records are kept.

        Raises StateError for an id that is stored already; then none has been inserted.
        """
        if not allocs:
            return
        table = self.allocs_view
        rows = [self._encode(alloc) for alloc in allocs]
        stamps = [self._stamps(alloc) for alloc in allocs]
        extras = [self._extras.add(alloc) for alloc in allocs]
        counts = [len(row.claims) // 8 for row in rows]
        try:
            table.insert_rows(
                _numbers([modified for _, modified, _ in stamps]),
                keys_of([alloc.id for alloc in allocs]),
                _numbers([table.intern_node(alloc.node_id) for alloc in allocs]),
                _numbers([row.group_row for row in rows]),
                _numbers([row.version_row for row in rows]),
                _numbers([table.intern_eval(alloc.eval_id) for alloc in allocs]),
                _numbers([row.shape_row for row in rows]),
                numpy.array([row.name_index for row in rows], numpy.int32),
                numpy.array([client_number(alloc.client_status) for alloc in allocs], numpy.uint8),
                numpy.cumsum([0, *counts], dtype=numpy.uint32),
                numpy.frombuffer(b"".join(row.claims for row in rows), numpy.uint64),
                desired_status=numpy.array([desired_number(alloc.desired_status) for alloc in allocs], numpy.uint8),
                irregular=numpy.array([row.irregular for row in rows], numpy.uint8),
                extras=_numbers(extras),
                create_stamps=_numbers([created for created, _, _ in stamps]),
                alloc_modify_stamps=_numbers([modified_by_server for _, _, modified_by_server in stamps]),
            )
        except StateError:
            for extra in extras:
                self._extras.free(extra)
            raise

    def _stamps(self, alloc: Allocation) -> tuple[int, int, int]:
        """Return the stamps of creation, of the last change, and of the last change by a server."""
        stamp = self.allocs_view.stamp
        modified = stamp(alloc.modify_index, alloc.modify_time)
        # Of the last one only the index is looked at.
        by_server = modified if alloc.alloc_modify_index == alloc.modify_index else stamp(alloc.alloc_modify_index, 0)
        unchanged = alloc.create_index == alloc.modify_index and alloc.create_time == alloc.modify_time
        return modified if unchanged else stamp(alloc.create_index, alloc.create_time), modified, by_server

    def _encode(self, alloc: Allocation, version_row: int | None = None) -> _Encoded:
        """Return the numbers of *alloc*, which becomes the extra: its job is taken off. *version_row*: its job if none is attached."""
        alloc.namespace = alloc.namespace or "default"
        if alloc.job is not None:
            job = alloc.job
            if not job.namespace:
                job = copy.copy(job)
                job.namespace = alloc.namespace
            version_row = self.jobs_view.embed(job)
        elif version_row is None:
            version = alloc.job_version if alloc.is_given("job_version") else None
            found = self.jobs_view.row_of(alloc.namespace, alloc.job_id, version)
            version_row = NO_ROW if found is None else found
        alloc.job = self.job_of_row(version_row)
        numbers = encode_demand(demand_of(canonical_alloc(alloc)))
        alloc.job = None
        return _Encoded(
            self.jobs_view.groups.intern(alloc.namespace, alloc.job_id, alloc.task_group),
            version_row,
            self.intern_shape(ResourceShape(*numbers[:4], irregular=numbers.irregular)),
            name_index_of(alloc.name, alloc.job_id, alloc.task_group),
            numbers.claims,
            numbers.irregular,
        )

    def intern_shape(self, shape: ResourceShape) -> int:
        """Return the row of a resource shape, giving it one if it is new."""
        known = len(self.shapes.items)
        row = self.shapes.intern(shape)
        if row == known:
            self.allocs_view.set_shape(row, shape.cpu_mhz, shape.memory_mib, shape.memory_max_mib, shape.disk_mib, shape.irregular)
        return row

    def put_extra(self, extra: Allocation | bytes) -> int:
        """Keep what columns do not hold of an allocation, as a partial record without job, and return its number. *extra* is kept.

        Bytes are the record in the API's shape as MessagePack, read when somebody wants it.
        """
        return self._extras.add(extra)

    def _update_alloc(self, row: int, alloc: Allocation) -> None:
        """Write *alloc*, which is kept, over the stored one in *row* (plan-apply 6.10 step 7)."""
        table = self.allocs_view
        stored = self.alloc_at(row)
        fields = table.fields(row)
        extra, version_row = fields[16], fields[12]
        alloc.create_index, alloc.create_time = stored.create_index, stored.create_time
        alloc.task_states = stored.task_states
        alloc.next_allocation = stored.next_allocation or alloc.next_allocation
        if alloc.client_status not in ("lost", "unknown"):
            alloc.client_status, alloc.client_description = stored.client_status, stored.client_description
        if _identity(alloc) != _identity(stored):
            # Identities never change, so an allocation that moves gets a new one.
            if alloc.job is None:
                alloc.job = stored.job
            self._delete_rows([row])
            self.put_allocs([alloc])
            return
        self._write_alloc(row, alloc, extra, version_row)

    def _write_alloc(self, row: int, alloc: Allocation, extra: int, version_row: int | None) -> None:
        """Make *alloc*, which is kept, the record of *row*, without a stop note."""
        table = self.allocs_view
        encoded = self._encode(alloc, version_row)
        _, modified, modified_by_server = self._stamps(alloc)
        if extra == NO_ROW:
            extra = self._extras.add(alloc)
        else:
            self._extras.set(extra, alloc)
        table.update_row(
            row,
            modified,
            modified_by_server,
            desired_number(alloc.desired_status),
            client_number(alloc.client_status),
            encoded.version_row,
            table.intern_eval(alloc.eval_id),
            encoded.shape_row,
            numpy.frombuffer(encoded.claims, numpy.uint64),
            encoded.irregular,
            extra,
            NO_ROW,
        )

    def _set_next(self, alloc_id: str, next_id: str) -> None:
        """Note in an allocation, if it is stored, which one replaces it."""
        row = self.allocs_view.find(alloc_id)
        if row < 0:
            return
        extra = self.allocs_view.fields(row)[16]
        if extra == NO_ROW:
            self.allocs_view.set_extra(row, self._extras.add(Allocation(next_allocation=next_id)))
        else:
            record = copy.copy(self.extra(extra))
            record.next_allocation = next_id
            self._extras.set(extra, record)

    def update_allocs_from_client(self, index: int, allocs: Iterable[Allocation]) -> None:
        """Write what clients say of their allocations: status, description, task and deployment states. Unknown ids are passed over.

        `AllocModifyIndex` stays: it moves only when the servers change something.
        """
        with self.batch():
            for alloc in allocs:
                row = self.allocs_view.find(alloc.id)
                if row < 0:
                    continue
                stamp = self.allocs_view.stamp(index, alloc.modify_time)
                known = client_number(alloc.client_status)
                self.allocs_view.update_client_status(_numbers([stamp]), _numbers([row]), numpy.array([known], numpy.uint8))
                extra = self.allocs_view.fields(row)[16]
                said = {name: getattr(alloc, name) for name in _CLIENT_FIELDS if getattr(alloc, name)}
                if alloc.client_status and not known:
                    said["client_status"] = alloc.client_status
                if not said:
                    continue
                record = Allocation() if extra == NO_ROW else copy.copy(self.extra(extra))
                if extra == NO_ROW:
                    record.client_status = alloc.client_status
                for name, value in said.items():
                    setattr(record, name, copy.deepcopy(value))
                if extra == NO_ROW:
                    self.allocs_view.set_extra(row, self._extras.add(record))
                else:
                    self._extras.set(extra, record)
            self.touch(index, "allocs")

    def delete_allocs(self, index: int, alloc_ids: Iterable[str]) -> None:
        """Forget allocations. Unknown ids are passed over."""
        with self.batch():
            rows = {self.allocs_view.find(alloc_id) for alloc_id in alloc_ids}
            self._delete_rows(sorted(row for row in rows if row >= 0))
            self.touch(index, "allocs")

    def _delete_rows(self, rows: Sequence[int]) -> None:
        for extra in self.allocs_view.delete_rows(_numbers(rows)):
            self._extras.free(extra)

    # --- allocations, as columns ----------------------------------------------------------------------------------

    def stamp(self, index: int, time_ns: int) -> int:
        """Return the number of (index, Unix nanoseconds) that rows written by one entry refer to."""
        return self.allocs_view.stamp(index, time_ns)

    def note(self, description: str = "", followup_eval_id: str = "", preempted_by: str = "") -> int:
        """Return the number of a stop note, for `stop_rows` and `preempt_rows` (`alloc_records.preemption_note` has the text of a preemption)."""
        return self.notes.intern(StopNote(description, followup_eval_id, preempted_by))

    def insert_rows(
        self,
        index: int,
        time_ns: int,
        ids: NDArray[numpy.uint8],
        node_rows: NDArray[numpy.uint32],
        group_rows: NDArray[numpy.uint32],
        job_version_rows: NDArray[numpy.uint32],
        eval_refs: NDArray[numpy.uint32],
        shape_rows: NDArray[numpy.uint32],
        name_index: NDArray[numpy.int32],
        client_status: NDArray[numpy.uint8],
        claim_offsets: NDArray[numpy.uint32],
        claims: NDArray[numpy.uint64],
        *,
        stamps: NDArray[numpy.uint32] | None = None,
        node_ids: Mapping[int, str] | None = None,
        extras: Mapping[int, Allocation] | None = None,
    ) -> int:
        """Insert n new allocations, told to run, from columns (plan-apply 6.10 step 7), and return the row of the first; the others follow.

        ids uint8 (n, 16), node_rows uint32 (n), claim_offsets uint32 (n + 1), claims uint64 (m) in slot order of the shapes, volumes behind; the other
        arrays have n entries or one for all. group_rows: `jobs_view.groups.intern`; job_version_rows: `jobs_view`; eval_refs: `allocs_view.intern_eval`;
        shape_rows: `intern_shape`; name_index −1 where the name stands in the extra; client_status: numbers of `statuses`. NO_ROW for no job or evaluation.
        *stamps*, uint32 (n), where the rows belong to several entries, of which *index* is the last. *node_ids*: ids of nodes that do not exist, by position
        in the batch, where node_rows says NO_ROW. *extras*: what the columns do not hold, by position, as partial records without job; they are kept.

        Raises StateError for an id that is stored already or a number that does not exist, ValueError for arrays that do not belong together; then nothing
        has been inserted.
        """
        table = self.allocs_view
        with self.batch():
            refs = table.refs_of_rows(node_rows)
            for position, node_id in (node_ids or {}).items():
                refs[position] = table.intern_node(node_id)
            numbers = None
            if extras:
                numbers = numpy.full(len(ids), NO_ROW, numpy.uint32)
                for position, extra in extras.items():
                    numbers[position] = self._extras.add(extra)
            if stamps is None:
                stamps = _numbers([table.stamp(index, time_ns)])
            try:
                first = table.insert_rows(
                    stamps,
                    ids,
                    refs,
                    group_rows,
                    job_version_rows,
                    eval_refs,
                    shape_rows,
                    name_index,
                    client_status,
                    claim_offsets,
                    claims,
                    extras=numbers,
                )
            except (StateError, ValueError):
                for position in extras or ():
                    self._extras.free(int(numbers[position]))  # type: ignore[index]  # there are numbers where there are extras
                raise
            for extra in (extras or {}).values():
                if extra.previous_allocation:
                    self._set_next(extra.previous_allocation, extra.id)
            self.touch(index, "allocs")
            return first

    def update_client_status(
        self, index: int, time_ns: int, rows: NDArray[numpy.uint32], statuses: NDArray[numpy.uint8], *, stamps: NDArray[numpy.uint32] | None = None
    ) -> None:
        """Set client statuses: rows uint32 (n), statuses uint8 (n or 1); *stamps* as of `insert_rows`. `AllocModifyIndex` stays.

        Raises StateError for a row or status that does not exist; then nothing has changed.
        """
        with self.batch():
            self.allocs_view.update_client_status(_numbers([self.stamp(index, time_ns)]) if stamps is None else stamps, rows, statuses)
            self.touch(index, "allocs")

    def stop_rows(
        self,
        index: int,
        time_ns: int,
        rows: NDArray[numpy.uint32],
        notes: NDArray[numpy.uint32],
        client_status: NDArray[numpy.uint8],
        *,
        stamps: NDArray[numpy.uint32] | None = None,
    ) -> None:
        """Tell allocations to stop (plan-apply 5.4, 6.10): rows uint32 (n); notes (`note`) and client_status (a number, or KEEP) have n entries or one.

        `AllocStates` are emptied, as by a stop without states. *stamps* as of `insert_rows`. Raises StateError for a row or number that does not exist;
        then nothing has changed.
        """
        with self.batch():
            written = self.allocs_view.stop_rows(_numbers([self.stamp(index, time_ns)]) if stamps is None else stamps, rows, notes, client_status)
            self._merge_notes(written, stopped=True)
            self.touch(index, "allocs")

    def preempt_rows(
        self, index: int, time_ns: int, rows: NDArray[numpy.uint32], notes: NDArray[numpy.uint32], *, stamps: NDArray[numpy.uint32] | None = None
    ) -> None:
        """Evict allocations in favour of others (plan-apply 5.4, 6.10); arguments as of `stop_rows`."""
        with self.batch():
            written = self.allocs_view.preempt_rows(_numbers([self.stamp(index, time_ns)]) if stamps is None else stamps, rows, notes)
            self._merge_notes(written, stopped=False)
            self.touch(index, "allocs")

    def _merge_notes(self, written: list[tuple[int, int, int]], *, stopped: bool) -> None:
        """Put notes over older notes, and take the states off that a stop empties. *written*: (row, its note before, its extra)."""
        for row, older, extra in written:
            if older != NO_ROW:
                note = self.notes.items[self.allocs_view.fields(row)[17]].over(self.notes.items[older])
                self.allocs_view.set_note(row, self.notes.intern(note))
            if stopped and extra != NO_ROW and self.extra(extra).alloc_states:
                record = copy.copy(self.extra(extra))
                record.alloc_states = []
                self._extras.set(extra, record)

    # --- evaluations and the rest ---------------------------------------------------------------------------------

    def upsert_evals(self, index: int, evals: Iterable[Evaluation]) -> None:
        """Write evaluations; `CreateIndex` of a stored one is kept."""
        with self.batch():
            for evaluation in evals:
                twin = evaluation.copy()
                known = self._evals.get(twin.id)
                twin.create_index = index if known is None else known.create_index
                twin.modify_index = index
                self.put_eval(twin)
            self.touch(index, "evals")

    def has_eval(self, eval_id: str) -> bool:
        """Return whether an evaluation exists, without copying it."""
        return eval_id in self._evals

    def touch_eval(self, index: int, eval_id: str) -> None:
        """Set the modify index of an evaluation that exists: a plan of it was committed (plan-apply 6.10 step 5)."""
        twin = copy.copy(self._evals[eval_id])
        twin.modify_index = index
        self._evals.set(eval_id, twin)
        self.touch(index, "evals")

    def put_eval(self, evaluation: Evaluation) -> None:
        """Write an evaluation as it is, outside of the log: for loaders. It is kept."""
        evaluation.namespace = evaluation.namespace or "default"
        _put_owned(self._evals, self._evals_of_job, evaluation)

    def delete_evals(self, index: int, eval_ids: Iterable[str], alloc_ids: Iterable[str] = ()) -> None:
        """Forget evaluations, and allocations with them. Unknown ids are passed over."""
        with self.batch():
            for eval_id in eval_ids:
                _delete_owned(self._evals, self._evals_of_job, eval_id)
            self.touch(index, "evals")
            alloc_ids = list(alloc_ids)
            if alloc_ids:
                self.delete_allocs(index, alloc_ids)

    def upsert_deployment(self, index: int, deployment: Deployment) -> None:
        """Write a deployment; `CreateIndex` of a stored one is kept."""
        with self.batch():
            twin = deployment.copy()
            known = self._deployments.get(twin.id)
            twin.create_index = index if known is None else known.create_index
            twin.modify_index = index
            self.put_deployment(twin)
            self.touch(index, "deployments")

    def put_deployment(self, deployment: Deployment) -> None:
        """Write a deployment as it is, outside of the log: for loaders. It is kept."""
        deployment.namespace = deployment.namespace or "default"
        _put_owned(self._deployments, self._deployments_of_job, deployment)

    def delete_deployments(self, index: int, deployment_ids: Iterable[str]) -> None:
        """Forget deployments. Unknown ids are passed over."""
        with self.batch():
            for deployment_id in deployment_ids:
                _delete_owned(self._deployments, self._deployments_of_job, deployment_id)
            self.touch(index, "deployments")

    def upsert_node_pool(self, index: int, pool: Mapping[str, Any]) -> None:
        """Write a node pool in the API's shape. Raises InvalidInput naming path and value."""
        name, record = read_named(pool, "node_pool")
        with self.batch():
            self._node_pools = {**self._node_pools, name: record}
            self.touch(index, "node_pools")

    def upsert_namespace(self, index: int, namespace: Mapping[str, Any]) -> None:
        """Write a namespace in the API's shape. Raises InvalidInput naming path and value."""
        name, record = read_named(namespace, "namespace")
        with self.batch():
            self._namespaces = {**self._namespaces, name: record}
            self.touch(index, "namespaces")

    def set_scheduler_config(self, index: int, config: Mapping[str, Any]) -> None:
        """Set the scheduler configuration, in the API's shape. Raises InvalidInput naming path and value."""
        record = read_opaque(config, "scheduler_config")
        with self.batch():
            self._scheduler_config = record
            self.touch(index, "scheduler_config")

    def restore_named(self, *, pools: dict[str, dict[str, Any]], namespaces: dict[str, dict[str, Any]], config: dict[str, Any] | None) -> None:
        """Add node pools and namespaces and set the configuration, outside of the log: for loaders. The records are kept."""
        self._node_pools = {**self._node_pools, **pools}
        self._namespaces = {**self._namespaces, **namespaces}
        self._scheduler_config = config


class _Encoded(NamedTuple):
    """An allocation record in numbers."""

    group_row: int
    version_row: int
    shape_row: int
    name_index: int
    claims: bytes
    irregular: bool


_CLIENT_FIELDS = ("client_description", "task_states", "deployment_status", "alloc_states")


def _numbers(values: Sequence[int]) -> NDArray[numpy.uint32]:
    return numpy.array(values, numpy.uint32)


def _identity(alloc: Allocation) -> tuple[str, str, str, str]:
    return alloc.node_id, alloc.namespace or "default", alloc.job_id, alloc.task_group


def _without_job(alloc: Allocation) -> Allocation:
    """Return a copy of *alloc* that has no job."""
    bare = copy.copy(alloc)
    bare.job = None
    return bare.copy()


_Owned = TypeVar("_Owned", bound=Evaluation | Deployment)


def _put_owned(records: RecordMap[str, _Owned], of_job: RecordMap[tuple[str, str], tuple[str, ...]], record: _Owned) -> None:
    """Write a record that belongs to a job, and the list of its job's records."""
    known = records.get(record.id)
    if known is not None and (known.namespace, known.job_id) != (record.namespace, record.job_id):
        _delete_owned(records, of_job, record.id)
        known = None
    records.set(record.id, record)
    if known is None:
        key = (record.namespace, record.job_id)
        of_job.set(key, (*of_job.get(key, ()), record.id))


def _delete_owned(records: RecordMap[str, _Owned], of_job: RecordMap[tuple[str, str], tuple[str, ...]], record_id: str) -> None:
    known = records.get(record_id)
    if known is None:
        return
    key: tuple[str, str] = (known.namespace, known.job_id)
    records.delete(record_id)
    left = tuple(other for other in of_job[key] if other != record_id)
    if left:
        of_job.set(key, left)
    else:
        of_job.delete(key)
