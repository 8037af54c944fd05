"""What would happen: a scheduler run on a state with one job more, of which nothing is written."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

from fastplan import codec
from fastplan.errors import StateError
from fastplan.planner import evaluate_plan
from fastplan.scheduler.evaluations import derived
from fastplan.scheduler.process import process
from fastplan.scheduler.requests import CreateEval, SubmitPlan, SubmitReply, UpdateEval
from fastplan.scheduler.setting import Setting
from fastplan.server.operations import register_job
from fastplan.state.jobs import JobsView
from fastplan.state.plans import AnyPlan
from fastplan.state.snapshot import StateReader, StateSnapshot
from fastplan.structs import AllocMetric, DesiredUpdates, Evaluation, Job


@dataclass(slots=True)
class DryRun:
    """What a job's registration would lead to.

    `plan`: what would be planned, None for nothing. `refused`: node id → why the applier would refuse its part; with a fresh state that is empty.
    `failed`: group → why some of it found no room. `queued`: group → how many. `desired`: group → counts of changes. `created`: evaluations that would
    wait or follow. `job_modify_index`: of the job that is registered now, 0 without one.
    """

    job: Job
    job_modify_index: int
    plan: AnyPlan | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, AllocMetric | None] = field(default_factory=dict)
    queued: Mapping[str, int] = field(default_factory=dict)
    desired: Mapping[str, DesiredUpdates | None] = field(default_factory=dict)
    created: list[Evaluation] = field(default_factory=list)


class _JobsWithOneMore(JobsView):
    """Jobs as they would be if one were registered."""

    __slots__ = ("_added",)

    def __init__(self, base: JobsView, added: Job) -> None:
        super().__init__(base.versions, base.current, base.lookup, base.groups, base.system)
        self._added = added

    def get(self, namespace: str, job_id: str, version: int | None = None) -> Job | None:
        if (namespace, job_id) == (self._added.namespace, self._added.id) and version in (None, self._added.version):
            return self._added
        return super().get(namespace, job_id, version)


def with_job(snapshot: StateSnapshot, job: Job) -> StateReader:
    """Return a state in which *job* is registered, without touching *snapshot*."""
    twin = copy.copy(snapshot)
    twin.jobs_view = _JobsWithOneMore(snapshot.jobs_view, job)
    return twin


def registered(state: StateReader, job: Job, setting: Setting) -> Job:
    """Return *job* as a registration would store it. Raises what the registration raises, and StateError for one that would change nothing and has none."""
    operation = register_job(state, job, setting.now_ns(), setting.new_id)
    written = next((command for command in operation.commands if isinstance(command, codec.UpsertJob)), None)
    complete = Job.from_api(written.job) if written is not None else state.job(job.namespace, job.id)
    if complete is None:
        raise StateError(f"job {job.id} would not be registered")
    return complete


def dry_run(snapshot: StateSnapshot, job: Job, setting: Setting) -> DryRun:
    """Run the scheduler of *job*, which is complete as a registration would leave it, at the next index. Raises what the scheduler raises."""
    known = snapshot.job(job.namespace, job.id)
    index = snapshot.latest_index() + 1
    job = job.copy()
    job.create_index = index if known is None else known.create_index
    job.modify_index = index
    if known is None or known.version != job.version:
        job.job_modify_index = index
    outcome = DryRun(job, 0 if known is None else known.job_modify_index)
    parent = Evaluation(id=setting.new_id(), namespace=job.namespace, priority=job.priority, type=job.type, job_id=job.id, job_modify_index=index)
    evaluation = derived(parent, setting, status="pending", trigger="job-register")
    evaluation.annotate_plan = True
    steps = process(evaluation, with_job(snapshot, job), setting)
    answer: SubmitReply | None = None
    while True:
        try:
            request = steps.send(answer)
        except StopIteration:
            return outcome
        answer = None
        if isinstance(request, SubmitPlan):
            outcome.plan = request.plan
            result = evaluate_plan(snapshot, request.plan, setting.rules)
            outcome.refused = result.reasons
            # What is refused would be planned anew on newer state; here there is none.
            answer = SubmitReply(result, None)
        elif isinstance(request, UpdateEval):
            updated = request.evaluation
            outcome.failed, outcome.queued = updated.failed_tg_allocs, updated.queued_allocations
            if updated.plan_annotations is not None:
                outcome.desired = updated.plan_annotations.desired_tg_updates
        elif isinstance(request, CreateEval):
            outcome.created.append(request.evaluation)
