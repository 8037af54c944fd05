"""The allocations of a state store: written as records, as plans and clients bring them, and as columns, many at once."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.columns.ids import keys_of, text_of
from fastplan.errors import StateError
from fastplan.fit.demand import demand_of
from fastplan.fit.encode import encode_demand
from fastplan.state.alloc_records import NO_ROW, StopNote, name_index_of
from fastplan.state.resource_shapes import ResourceShape
from fastplan.state.statuses import client_number, desired_number
from fastplan.state.store_core import StoreCore
from fastplan.structs import Allocation, canonical_alloc

KEEP = 255
"""As a status number: leave it as it is."""


class AllocWriter(StoreCore):
    """Writes allocations. A method that raises has changed nothing."""

    # --- as records -----------------------------------------------------------------------------------------------

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

    def rewrite_allocs(self, index: int, time_ns: int, allocs: Iterable[Allocation]) -> None:
        """Write records over stored ones with all that they say: for changes of servers other than plans. They keep node, group and job; unknown ids are
        passed over. The records are kept.
        """
        with self.batch():
            for alloc in allocs:
                row = self.allocs_view.find(alloc.id)
                if row < 0:
                    continue
                fields = self.allocs_view.fields(row)
                alloc.modify_index = alloc.alloc_modify_index = index
                alloc.modify_time = time_ns
                alloc.job = None
                self._write_alloc(row, alloc, fields[16], fields[12])
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

    # --- as columns -----------------------------------------------------------------------------------------------

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
            for position, extra in (extras or {}).items():
                if extra.previous_allocation:
                    self._set_next(extra.previous_allocation, text_of(ids[position]))
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
