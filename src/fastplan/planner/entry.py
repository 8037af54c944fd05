"""From a verdict to a log entry (plan-apply 6.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy

from fastplan import codec
from fastplan.columns.ids import key_of, texts_of
from fastplan.errors import InvalidInput, PlanError
from fastplan.fit.interning import text_of_number
from fastplan.planner.evaluate import Verified
from fastplan.planner.result import PlanResult
from fastplan.state import StateStore
from fastplan.state.plans import AnyPlan, PlanColumns
from fastplan.state.resource_shapes import ResourceShape
from fastplan.structs import Evaluation, Job

IdentityHook = Callable[[AnyPlan, PlanResult], Mapping[str, Mapping[str, str]]]
"""Signs workload identities: returns allocation id → task → identity, for the placements that need one. Raises `PlanError` to refuse the plan."""

KNOWN_MAX: Final = 4096
"""Jobs and shapes that are remembered from plan to plan."""


class EntryMaker:
    """Makes the entries of one leader."""

    def __init__(
        self,
        store: Callable[[], StateStore],
        applied: Callable[[], int],
        *,
        new_id: Callable[[], str],
        identity_hook: IdentityHook | None = None,
    ) -> None:
        """*store*, *applied*: of the state machine. *new_id*: ids of preemption evaluations."""
        self._store = store
        self._applied = applied
        self._new_id = new_id
        self._identity_hook = identity_hook
        self._identities: dict[int, Mapping[str, Mapping[str, str]]] = {}
        # Contents and rows of shapes by identity; a shape never changes and is kept here, so an identity means one shape.
        self._shapes: dict[int, tuple[ResourceShape, int | bytes]] = {}
        # What is known of a job by identity, as long as no job and no namespace changes: (job, namespace, whether this version is stored, obstacle).
        self._jobs: dict[int, tuple[Job, str, bool, PlanError | None]] = {}
        self._known_of: tuple[StateStore, int, int] | None = None

    # --- before verification ----------------------------------------------------------------------------------------

    def obstacle(self, plan: AnyPlan) -> PlanError | None:
        """Return the error of a plan that could not be written if there were anything to write, or None."""
        job = plan.job
        if job is None:
            return PlanError("plan missing embedded job")
        if not _is_unicode(plan.eval_id) or not _is_unicode(plan.eval_token):
            return PlanError("the evaluation or the token of the plan is no valid Unicode text")
        store = self._store()
        error = self._job(store, job)[3]
        if error is None and plan.eval_id and not store.has_eval(plan.eval_id):
            error = PlanError(f'unable to find eval id "{plan.eval_id}"')
        return error

    def _job(self, store: StateStore, job: Job) -> tuple[Job, str, bool, PlanError | None]:
        """Return (job, its namespace, whether state holds this version, what keeps its plans from being written)."""
        known_of = store, store.table_index("jobs"), store.table_index("namespaces")
        if known_of != self._known_of or len(self._jobs) > KNOWN_MAX or len(self._shapes) > KNOWN_MAX:
            self._jobs, self._shapes, self._known_of = {}, {}, known_of
        known = self._jobs.get(id(job))
        if known is None:
            namespace = job.namespace or "default"
            error = None if store.namespace(namespace) is not None else PlanError(f'namespace "{namespace}" not found for job "{job.id}"')
            known = self._jobs[id(job)] = job, namespace, store.jobs_view.row_of(namespace, job.id, job.version) is not None, error
        return known

    def needs_hook(self) -> bool:
        """Tell whether there is an identity hook."""
        return self._identity_hook is not None

    def run_hook(self, verdict: Verified) -> None:
        """Have the identities of a verdict's placements signed. Raises what the hook raises."""
        if self._identity_hook is not None:
            self._identities[id(verdict.plan)] = self._identity_hook(verdict.plan, verdict.outcome())
            if len(self._identities) > KNOWN_MAX:
                # Of a plan that was never written: there are never so many on their way.
                del self._identities[next(iter(self._identities))]

    # --- the entry --------------------------------------------------------------------------------------------------

    def key(self, plan: AnyPlan) -> bytes:
        """Return the key of a plan: the same when the same plan is sent again, another one for every other plan.

        Evaluation, token and the plan's number in the run (replication.md 1.2). For a plan that nobody has numbered, what it concerns and the index it
        was made at stand for the number. Empty for a plan without evaluation, and for one without number that only changes a deployment: writing that
        twice does no harm.
        """
        if not plan.eval_id or not _is_unicode(plan.eval_id) or not _is_unicode(plan.eval_token):
            return b""
        if plan.number:
            return codec.numbered_key(plan.eval_id, plan.eval_token, plan.number)
        try:
            columns = PlanColumns.from_plan(plan, self._store())
        except InvalidInput:
            return b""
        view = columns.view()
        if not (view.place_count or view.stop_count):
            return b""
        return codec.plan_key(view, plan.eval_id, plan.eval_token, plan.snapshot_index)

    def encode(self, verdict: Verified, now_ns: int) -> bytes:
        """Return the log entry of a verdict that has something to write.

        Raises `CodecError` for columns that contradict each other, and `PlanError` for a text in a record of the plan that is no valid Unicode.
        """
        try:
            return self._encode(verdict, now_ns)
        except UnicodeEncodeError as error:
            raise PlanError(f"the plan has a text that is no valid Unicode: {error.object!r}") from error

    def _encode(self, verdict: Verified, now_ns: int) -> bytes:
        plan, columns = verdict.plan, verdict.columns
        view = columns.view()
        result = verdict.outcome()
        store = self._store()
        job = plan.job
        assert job is not None
        _, namespace, stored, _ = self._job(store, job)
        accepted = None
        if result.partial or view.preempt_count or not result.kept:
            accepted = verdict.accepted if result.kept else numpy.zeros(len(columns.node_ids), numpy.uint8)
        cold = None
        if (
            not stored
            or columns.extras
            or view.preempt_count
            or plan.deployment is not None
            or plan.deployment_updates
            or result.ineligible_nodes
            or self._identities
        ):
            cold = self._cold(verdict, result, None if stored else job.to_api(), accepted, now_ns)
        answer = None
        if result.partial:
            answer = codec.encode_answer(codec.AnswerPart(list(result.rejected_nodes), result.refresh_index))
        return codec.encode_plan(
            view,
            columns.groups,
            columns.stop_notes,
            accepted,
            verdict.kept_preemptions if view.preempt_count else None,
            key_of(plan.eval_id) if plan.eval_id else None,
            namespace,
            job.id,
            job.version,
            now_ns,
            self._applied(),
            self._shape_parts(store, columns.shapes),
            answer,
            cold,
            text_of_number,
        )

    def _shape_parts(self, store: StateStore, shapes: list[ResourceShape]) -> list[int | bytes]:
        """Return for each shape the row that committed state has given it, or its content: a row that is only in flight may never be given."""
        parts = []
        for shape in shapes:
            known = self._shapes.get(id(shape))
            if known is None or not isinstance(known[1], int):
                row = store.shapes.find(shape)
                known = self._shapes[id(shape)] = (shape, codec.encode_shape(shape) if row is None else row)
            parts.append(known[1])
        return parts

    def _cold(self, verdict: Verified, result: PlanResult, job: dict[str, Any] | None, accepted: Any, now_ns: int) -> bytes | None:
        columns, plan = verdict.columns, verdict.plan
        identities = self._identities.pop(id(plan), {})
        extras: dict[int, dict[str, Any]] = {}
        if columns.extras:
            place = 0
            for node, (first, last) in enumerate(zip(columns.place_offsets[:-1].tolist(), columns.place_offsets[1:].tolist(), strict=True)):
                if accepted is not None and not accepted[node]:
                    continue
                for row in range(first, last):
                    extra = columns.extras.get(row)
                    if extra is not None:
                        extras[place] = extra.to_api()
                    place += 1
        deployment = result.deployment
        return codec.encode_cold(
            codec.ColdPart(
                job=job,
                extras=extras,
                deployment=None if deployment is None else deployment.to_api(),
                deployment_updates=[update.to_api() for update in result.deployment_updates],
                preemption_evals=self._preemption_evals(verdict, accepted, now_ns),
                ineligible_nodes=list(result.ineligible_nodes),
                identities={alloc_id: dict(tasks) for alloc_id, tasks in identities.items()},
            )
        )

    def _preemption_evals(self, verdict: Verified, accepted: Any, now_ns: int) -> list[dict[str, Any]]:
        """Return one evaluation for each job that loses allocations and is still registered (plan-apply 6.6 steps 7 and 8)."""
        columns = verdict.columns
        if not len(columns.preempt_ids):
            return []
        store = self._store()
        kept = numpy.repeat(accepted, numpy.diff(columns.preempt_offsets)).astype(bool) & verdict.kept_preemptions.astype(bool)
        evals = []
        seen = set()
        for alloc_id in texts_of(columns.preempt_ids[kept]):
            alloc = store.alloc(alloc_id)
            if alloc is None or (alloc.namespace, alloc.job_id) in seen:
                continue
            seen.add((alloc.namespace, alloc.job_id))
            job = store.job(alloc.namespace, alloc.job_id)
            if job is not None:
                evaluation = Evaluation(
                    id=self._new_id(),
                    namespace=alloc.namespace,
                    job_id=job.id,
                    type=job.type,
                    priority=job.priority,
                    triggered_by="preemption",
                    job_modify_index=job.modify_index,
                    status="pending",
                    create_time=now_ns,
                    modify_time=now_ns,
                )
                evals.append(evaluation.to_api())
        return evals


def _is_unicode(text: str) -> bool:
    """Return whether *text* can be written: whether there is no half of a surrogate pair in it."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
