"""Plan entries applied to the store (plan-apply 6.10).

Most plans are *plain*: columns only, new allocations of a registered job. Plain plans that follow each other are gathered and
written by one call into the store. Every other plan is looked at on its own, everything that could refuse it before anything is
written: an entry that is refused changes nothing.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.codec import ColdPart, PlanEntry, decode_cold, decode_shape, gather
from fastplan.columns.ids import text_of, texts_of
from fastplan.errors import CodecError, FastplanError
from fastplan.fit.interning import number_of
from fastplan.fsm.deployments import check_promotion, count_allocs, update_status, write_plan_deployment
from fastplan.fsm.jobs import JobKey, jobs_of_rows, refresh_statuses
from fastplan.fsm.results import Refused
from fastplan.state import StateStore
from fastplan.state.alloc_records import NO_ROW, alloc_name, preemption_note
from fastplan.state.statuses import CLIENT_TEXTS, client_number
from fastplan.structs import Allocation, Deployment, DeploymentUpdate, Evaluation, Job

KEEP: Final = 255
"""As a client status number: as it is."""

REFUSED_KEPT: Final = 64
"""Refused plans that later ones may have been verified on; more than fit into a pipeline at once."""

RESTS_ON_REFUSED: Final = "the plan was verified on another one that was refused"

JOBS_KEPT: Final = 4096
"""Job versions whose rows are remembered from run to run."""

Rows = NDArray[numpy.uint32]


class _JobRows(NamedTuple):
    """What a plain plan says of its job, as rows of the store."""

    key: JobKey
    version: int
    shapes: Rows
    groups: Rows


class PlanWriter:
    """Writes plan entries. `add` takes a plain plan into the run, `flush` writes the run, `apply` handles any plan on its own."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        # Refused plans: (index, ids of the nodes on which they would have made room). What was verified on top of them is refused too.
        self.refused: deque[tuple[int, frozenset[str]]] = deque(maxlen=REFUSED_KEPT)
        # Rows of current job versions, their shapes and groups, by the bytes that name them; they stand until a job is written.
        self._jobs: dict[tuple[int, bytes], _JobRows] = {}
        self._jobs_index = 0
        self._clear()

    def _clear(self) -> None:
        # Of each plan: index of the entry, the plan, its evaluation, and the rows of its job. Tuples would keep the collector busy.
        self.indexes: list[int] = []
        self.plans: list[PlanEntry] = []
        self._eval_ids: list[str] = []
        self._job_rows: list[_JobRows] = []
        self._stops: list[tuple[int, Rows, Rows, NDArray[numpy.uint8]]] = []
        self._preemptions: list[tuple[int, Rows, Rows]] = []
        self._ended: set[int] = set()

    @property
    def waiting(self) -> int:
        """Plans in the run."""
        return len(self.plans)

    # --- plain plans ------------------------------------------------------------------------------------------------

    def add(self, index: int, plan: PlanEntry) -> bool:
        """Take *plan*, the entry at *index*, into the run. False if it has to be looked at on its own."""
        store = self._store
        if plan.cold is not None or (self.refused and self.refused[-1][0] > plan.verified_at):
            return False
        eval_id = plan.eval_id
        if eval_id and not store.has_eval(eval_id):
            return False
        job = self._rows_of(plan)
        if job is None:
            return False
        if (plan.stop_count or plan.preemption_count) and not self._add_ended(plan):
            return False
        self.indexes.append(index)
        self.plans.append(plan)
        self._eval_ids.append(eval_id)
        self._job_rows.append(job)
        return True

    def _add_ended(self, plan: PlanEntry) -> bool:
        """Take what the next plan ends into the run. False if it has to be looked at on its own."""
        stops = preemptions = None
        if plan.stop_count:
            stops = self._find(plan.stops()[0])
            if stops is None:
                return False
        if plan.preemption_count:
            preemptions = self._find(plan.preemptions()[0])
            if preemptions is None:
                return False
        number = len(self.plans)
        if stops is not None:
            self._stops.append((number, *self._stop_columns(plan, stops)))
            self._ended.update(stops.tolist())
        if preemptions is not None:
            self._preemptions.append((number, preemptions, self._preemption_notes(plan)))
            self._ended.update(preemptions.tolist())
        return True

    def _rows_of(self, plan: PlanEntry) -> _JobRows | None:
        """Return the rows of the plan's job version, shapes and groups; None unless the job is registered and not stopped, and all of them are known."""
        if not self.plans:
            # Nobody writes jobs while plans are gathered.
            jobs_index = self._store.table_index("jobs")
            if jobs_index != self._jobs_index or len(self._jobs) > JOBS_KEPT:
                self._jobs, self._jobs_index = {}, jobs_index
        name = (plan.job_version, plan.job_part)
        found = self._jobs.get(name)
        if found is not None:
            return found
        store, jobs = self._store, self._store.jobs_view
        namespace, job_id = plan.namespace, plan.job_id
        current = jobs.get(namespace, job_id)
        version_row = None if current is None or current.stop else jobs.row_of(namespace, job_id, plan.job_version)
        known = len(store.shapes.items)
        if version_row is None or any(isinstance(shape, int) and shape >= known for shape in plan.shapes):
            return None
        shapes = [shape if isinstance(shape, int) else store.intern_shape(decode_shape(shape)) for shape in plan.shapes]
        groups = [jobs.groups.intern(namespace, job_id, group) for group in plan.groups]
        found = _JobRows((namespace, job_id), version_row, numpy.array(shapes, numpy.uint32), numpy.array(groups, numpy.uint32))
        if version_row == jobs.row_of(namespace, job_id):
            # An older version may be forgotten with its last allocation.
            self._jobs[name] = found
        return found

    def _find(self, keys: NDArray[numpy.uint8]) -> Rows | None:
        """Return the rows of allocations, None if one is not stored, or concerned twice in this run."""
        rows = self._store.allocs_view.find_rows(keys)
        listed = rows.tolist()
        if NO_ROW in listed or len(set(listed)) < len(listed) or not self._ended.isdisjoint(listed):
            return None
        return rows

    def _stop_columns(self, plan: PlanEntry, rows: Rows) -> tuple[Rows, Rows, NDArray[numpy.uint8]]:
        _, note_index = plan.stops()
        notes = numpy.array([self._store.note(description, follow_up) for description, _, follow_up in plan.notes], numpy.uint32)
        clients = numpy.array([client_number(client) if client else KEEP for _, client, _ in plan.notes], numpy.uint8)
        return rows, notes[note_index], clients[note_index]

    def _preemption_notes(self, plan: PlanEntry) -> Rows:
        notes = self._store.notes
        return numpy.array([notes.intern(preemption_note(preemptor)) for preemptor in texts_of(plan.preemptions()[1])], numpy.uint32)

    def flush(self) -> list[Refused | None]:
        """Write the run and return one result for each of its plans."""
        if not self.plans:
            return []
        store = self._store
        indexes, plans, jobs = self.indexes, self.plans, self._job_rows
        plan_numbers, ids, node_rows, groups, shapes, names, clients, offsets, claims, gone, twins = gather(
            plans, [job.shapes for job in jobs], [job.groups for job in jobs], store.nodes_view, number_of
        )
        if gone or twins or (store.allocs_view.find_rows(ids) != NO_ROW).any():
            # An update in place, an id that comes twice, or a node that is gone: rare, and each plan by itself knows what to do.
            self._clear()
            return [self.apply(index, plan) for index, plan in zip(indexes, plans, strict=True)]
        table = store.allocs_view
        last, last_ns = indexes[-1], plans[-1].time_ns
        stamps = table.add_stamps(numpy.array(indexes, numpy.uint64), numpy.array([plan.time_ns for plan in plans], numpy.int64))
        if len(ids):
            versions = numpy.array([job.version for job in jobs], numpy.uint32)
            evals = numpy.array([table.intern_eval(eval_id) for eval_id in self._eval_ids], numpy.uint32)
            store.insert_rows(
                last,
                last_ns,
                ids,
                node_rows,
                groups,
                versions[plan_numbers],
                evals[plan_numbers],
                shapes,
                names,
                clients,
                offsets,
                claims,
                stamps=stamps[plan_numbers],
            )
        if self._stops:
            numbers = numpy.concatenate([numpy.full(len(rows), number) for number, rows, _, _ in self._stops])
            rows, notes, statuses = (numpy.concatenate([each[place] for each in self._stops]) for place in (1, 2, 3))
            store.stop_rows(last, last_ns, rows, notes, statuses, stamps=stamps[numbers])
        if self._preemptions:
            numbers = numpy.concatenate([numpy.full(len(rows), number) for number, rows, _ in self._preemptions])
            rows, notes = (numpy.concatenate([each[place] for each in self._preemptions]) for place in (1, 2))
            store.preempt_rows(last, last_ns, rows, notes, stamps=stamps[numbers])
        store.touch_evals((index, eval_id) for index, eval_id in zip(indexes, self._eval_ids, strict=True) if eval_id)
        store.touch(last, "allocs")
        refresh_statuses(store, [*{job.key for job in jobs}, *jobs_of_rows(store, self._ended)])
        results: list[Refused | None] = [None] * len(plans)
        self._clear()
        return results

    # --- any plan ---------------------------------------------------------------------------------------------------

    def apply(self, index: int, plan: PlanEntry) -> Refused | None:
        """Apply one plan. The run must be empty."""
        try:
            work = _PlanWork(self._store, index, plan, decode_cold(plan), self)
            work.check()
        except FastplanError as error:
            if isinstance(error, CodecError):
                raise
            self.refused.append((index, frozenset(self.freed_nodes(plan))))
            return Refused(str(error))
        work.write()
        return None

    def freed_nodes(self, plan: PlanEntry) -> Iterator[str]:
        """Yield the ids of the nodes on which *plan* ends or rewrites something that is stored."""
        table = self._store.allocs_view
        placed = self.columns(plan, numpy.zeros(len(plan.shapes), numpy.uint32), numpy.zeros(len(plan.groups), numpy.uint32))[1]
        for keys in (plan.stops()[0], plan.preemptions()[0], placed):
            for row in table.find_rows(keys).tolist():
                if row != NO_ROW:
                    yield table.node_id_of_ref(table.row_state(row)[0])

    def columns(self, plan: PlanEntry, shape_rows: Rows, group_rows: Rows) -> Any:
        """Return what `gather` makes of one plan."""
        return gather([plan], [shape_rows], [group_rows], self._store.nodes_view, number_of)


class _Unwritable(FastplanError):
    """Why a plan entry is refused."""


class _PlanWork:
    """One plan entry: checked completely, then written completely."""

    def __init__(self, store: StateStore, index: int, plan: PlanEntry, cold: ColdPart, writer: PlanWriter) -> None:
        self.store = store
        self.index = index
        self.plan = plan
        self.cold = cold
        self.writer = writer

    # Whatever can refuse the entry stands in `check`, in the order of plan-apply 6.10; `write` cannot fail.

    def check(self) -> None:
        """Raise what refuses the entry."""
        plan, cold, store = self.plan, self.cold, self.store
        table = store.allocs_view
        self.stop_rows = self._resolve(plan.stops()[0])
        self.preempt_rows = self._resolve(plan.preemptions()[0])
        for node_id in cold.ineligible_nodes:
            if store.node_row(node_id) is None:
                raise _Unwritable("node not found")
        self.deployment = None if cold.deployment is None else Deployment.from_api(cold.deployment)
        if self.deployment is not None:
            check_promotion(store, self.deployment)
        self.updates = [DeploymentUpdate.from_api(update) for update in cold.deployment_updates]
        self.evals = [Evaluation.from_api(evaluation) for evaluation in cold.preemption_evals]
        self.eval_id = plan.eval_id
        if self.eval_id and not store.has_eval(self.eval_id):
            raise _Unwritable(f'unable to find eval id "{self.eval_id}"')
        self._check_job()
        self._check_columns()
        rows = table.find_rows(self.ids).tolist()
        self.stored = [row != NO_ROW for row in rows]
        self._check_refused_before()
        self._make_records()

    def _resolve(self, keys: NDArray[numpy.uint8]) -> Rows:
        rows = self.store.allocs_view.find_rows(keys)
        for place, row in enumerate(rows.tolist()):
            if row == NO_ROW:
                raise _Unwritable(f"alloc {text_of(keys[place])} doesn't exist")
        return rows

    def _check_job(self) -> None:
        plan, jobs = self.plan, self.store.jobs_view
        self.job: Job | None = None
        self.job_gone = False
        if self.cold.job is not None:
            self.job = Job.from_api(self.cold.job)
            self.job.namespace = self.job.namespace or "default"
        elif plan.job_id:
            found = jobs.get(plan.namespace, plan.job_id, plan.job_version)
            current = jobs.get(plan.namespace, plan.job_id)
            if found is None and current is not None:
                raise _Unwritable(f'version {plan.job_version} of job "{plan.job_id}" in namespace "{plan.namespace}" is not known')
            self.job = found
            self.job_gone = found is None

    def _check_columns(self) -> None:
        shapes = self.store.shapes.items
        for shape in self.plan.shapes:
            if isinstance(shape, int) and shape >= len(shapes):
                raise _Unwritable(f"resource shape {shape} is not known")
        # Contents are interned when the plan is written: a refused plan leaves nothing behind.
        self.shapes = [shapes[shape] if isinstance(shape, int) else decode_shape(shape) for shape in self.plan.shapes]
        numbers = numpy.arange(max(len(self.shapes), len(self.plan.groups)), dtype=numpy.uint32)
        columns = self.writer.columns(self.plan, numbers[: len(self.shapes)], numbers[: len(self.plan.groups)])
        _, self.ids, self.node_rows, self.groups, self.shape_numbers, self.names, self.clients, self.offsets, self.claims, gone, self.twins = columns
        if gone:
            rows, generations, _ = self.plan.nodes()
            for row, generation in zip(rows.tolist(), generations.tolist(), strict=True):
                if self.store.node_id(row) is None or self.store.node_generation(row) != generation:
                    raise _Unwritable("node does not exist")

    def _check_refused_before(self) -> None:
        """Refuse what was verified on a plan that was refused in the meantime: room that the other did not make."""
        later = [freed for index, freed in self.writer.refused if index > self.plan.verified_at]
        if later:
            node_ids = {self.store.node_id(row) for row in set(self.node_rows.tolist())}
            if not all(freed.isdisjoint(node_ids) for freed in later):
                raise _Unwritable(RESTS_ON_REFUSED)

    def _make_records(self) -> None:
        """Make the records of the placements that cannot be written as columns: those with an extra, those stored already, and twins."""
        self.records: list[Allocation] = []
        self.column_places: list[int] = []
        plan, store = self.plan, self.store
        current = store.jobs_view.get(plan.namespace, plan.job_id)
        job_serves = current is not None and not current.stop
        ids = texts_of(self.ids)
        for place, alloc_id in enumerate(ids):
            extra = self.cold.extras.get(place)
            plain = extra is None and alloc_id not in self.cold.identities
            if plain and not self.stored[place] and not self.twins and self.job is not None:
                if job_serves:
                    self.column_places.append(place)
                continue
            record = self._record(place, alloc_id, extra)
            if record.job is None and self.job is not None and not record.is_terminal:
                record.job = self.job
            if not self.stored[place]:
                if record.job is None and (record.is_terminal or not self.job_gone):
                    raise _Unwritable(f'attempting to upsert allocation "{alloc_id}" without a job')
                registered = store.jobs_view.get(record.namespace or "default", record.job_id)
                if registered is None or registered.stop:
                    # Silently left out: the answer lists it, and the worker finds out (plan-apply 6.10 step 7).
                    continue
            self.records.append(record)

    def _record(self, place: int, alloc_id: str, extra: dict[str, Any] | None) -> Allocation:
        """Return the whole allocation of a placement."""
        plan, now_ns = self.plan, self.plan.time_ns
        claims = self.claims[self.offsets[place] : self.offsets[place + 1]].tolist()
        data = dict(extra or {})
        if identities := self.cold.identities.get(alloc_id):
            # An identity that is there already is kept (plan-apply 6.6 step 6).
            data["SignedIdentities"] = {**identities, **(data.get("SignedIdentities") or {})}
        record = Allocation.from_api(data)
        record.node_id = self.store.node_id(int(self.node_rows[place])) or record.node_id
        record.namespace = record.namespace or plan.namespace
        record.job_id = record.job_id or plan.job_id
        record.task_group = record.task_group or plan.groups[self.groups[place]]
        if not record.id:
            # The columns say the rest; a whole record says it itself.
            record.eval_id = self.eval_id
            record.name = record.name or alloc_name(plan.job_id, record.task_group, int(self.names[place]))
            record.desired_status = record.desired_status or "run"
            record.client_status = record.client_status or CLIENT_TEXTS[self.clients[place]]
        record.id = alloc_id
        if record.allocated_resources is None:
            record.allocated_resources = self.shapes[self.shape_numbers[place]].resources(claims)
        record.create_time = record.create_time or now_ns
        record.modify_time = now_ns
        return record

    def write(self) -> None:
        """Write everything, in the order of plan-apply 6.10."""
        store, index, plan, cold = self.store, self.index, self.plan, self.cold
        now_ns = plan.time_ns
        for node_id in cold.ineligible_nodes:
            event = {
                "Message": "Node marked as ineligible for scheduling due to multiple plan rejections",
                "Subsystem": "Scheduler",
                "Timestamp": now_ns,
                "CreateIndex": index,
            }
            store.update_node_eligibility(index, node_id, "ineligible", updated_at=now_ns // 10**9, event=event)
        if self.deployment is not None:
            write_plan_deployment(store, index, now_ns, self.deployment)
        for update in self.updates:
            if not update_status(store, index, now_ns, update):
                break
        if self.eval_id:
            store.touch_evals([(index, self.eval_id)])
        before = self._deployment_facts()
        if self.column_places:
            self._insert_columns()
        if self.records:
            store.upsert_allocs(index, self.records)
            # A record that changes node, group or job of a stored allocation moves it to another row.
            self.stop_rows, self.preempt_rows = self._resolve(plan.stops()[0]), self._resolve(plan.preemptions()[0])
        count_allocs(store, index, now_ns, self.records, before)
        if len(self.stop_rows):
            rows, notes, clients = self.writer._stop_columns(plan, self.stop_rows)
            for place in range(len(rows)):
                one = slice(place, place + 1)
                store.stop_rows(index, now_ns, rows[one], notes[one], clients[one])
        if len(self.preempt_rows):
            notes = self.writer._preemption_notes(plan)
            for place in range(len(self.preempt_rows)):
                one = slice(place, place + 1)
                store.preempt_rows(index, now_ns, self.preempt_rows[one], notes[one])
        store.touch(index, "allocs")
        if self.evals:
            store.upsert_evals(index, self.evals)
        touched = {(record.namespace, record.job_id) for record in self.records} | {(plan.namespace, plan.job_id)}
        refresh_statuses(store, [*touched, *jobs_of_rows(store, [*self.stop_rows.tolist(), *self.preempt_rows.tolist()])])

    def _deployment_facts(self) -> dict[str, Allocation | None]:
        """Return the stored versions of the records about to be written that belong to a deployment."""
        return {record.id: self.store.alloc(record.id) for record in self.records if record.deployment_id}

    def _insert_columns(self) -> None:
        store, plan = self.store, self.plan
        places = numpy.array(self.column_places)
        shape_rows = numpy.array([store.intern_shape(shape) for shape in self.shapes], numpy.uint32)
        group_rows = numpy.array([store.jobs_view.groups.intern(plan.namespace, plan.job_id, name) for name in plan.groups], numpy.uint32)
        version_row = store.jobs_view.row_of(plan.namespace, plan.job_id, plan.job_version)
        if version_row is None:
            assert self.job is not None
            version_row = store.jobs_view.embed(copy.copy(self.job))
        lengths = numpy.diff(self.offsets)[places]
        claims = [self.claims[self.offsets[place] : self.offsets[place + 1]] for place in self.column_places]
        store.insert_rows(
            self.index,
            plan.time_ns,
            self.ids[places],
            self.node_rows[places],
            group_rows[self.groups[places]],
            numpy.array([version_row], numpy.uint32),
            numpy.array([store.allocs_view.intern_eval(self.eval_id)], numpy.uint32),
            shape_rows[self.shape_numbers[places]],
            self.names[places],
            self.clients[places],
            numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.uint32),
            numpy.concatenate(claims).astype(numpy.uint64),
        )
