"""The schedulers of service and batch jobs (schedulers 7)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from fastplan.errors import SchedulerError
from fastplan.scheduler.attempts import is_progress, placed_by_group, retry
from fastplan.scheduler.cluster_nodes import stop_on_dead_nodes, tainted_nodes
from fastplan.scheduler.context import Context
from fastplan.scheduler.evaluations import (
    PLACEMENT_CONFLICTS,
    attempts_exhausted,
    blocked,
    finished,
    goes_on_later,
    refused_trigger,
    rolling_follow_up,
)
from fastplan.scheduler.every_node import EveryNodeStack
from fastplan.scheduler.generic_placing import GenericPlacing
from fastplan.scheduler.generic_update import GenericUpdate
from fastplan.scheduler.reconciler.cluster import ClusterReconciler
from fastplan.scheduler.reconciler.results import Reconciliation
from fastplan.scheduler.requests import CommittedPlan, CreateEval, ReblockEval, Request, Steps, SubmitPlan, SubmitReply, UpdateEval
from fastplan.scheduler.reschedule import takes_notes
from fastplan.scheduler.setting import Setting
from fastplan.scheduler.stack import GenericStack
from fastplan.scheduler.system_pace import stagger_ns
from fastplan.state.snapshot import StateReader
from fastplan.structs import AllocMetric, Deployment, DesiredUpdates, Evaluation, PlanAnnotations, TaskGroup
from fastplan.structs.times import time_ns

_TRIGGERS: Final = frozenset(
    {
        "job-register",
        "job-deregister",
        "periodic-job",
        "node-drain",
        "node-update",
        "alloc-stop",
        "rolling-update",
        "deployment-watcher",
        "failed-follow-up",
        "max-plan-attempts",
        "alloc-failure",
        "queued-allocs",
        "preemption",
        "job-scaling",
        "max-disconnect-timeout",
        "reconnect",
        "alloc-reschedule",
    }
)
_ATTEMPTS: Final = {"service": 5, "batch": 2}

NO_REFRESH: Final = "missing state refresh after partial commit"


def process_generic(evaluation: Evaluation, state: StateReader, setting: Setting) -> Steps:
    """Handle one evaluation of a service or batch job."""
    if evaluation.triggered_by not in _TRIGGERS:
        yield UpdateEval(finished(evaluation, "failed", refused_trigger(evaluation.triggered_by)))
        return
    run = _Run(evaluation, state, setting)
    limit = _ATTEMPTS[evaluation.type]
    done = yield from retry(limit, run.attempt, run.made_progress)
    if not done:
        yield from run.give_up(attempts_exhausted(limit))
    elif evaluation.status == "blocked" and run.failed:
        yield ReblockEval(run.reblocked())
    else:
        yield UpdateEval(run.finish("complete"))


class _Run:
    """The attempts for one evaluation."""

    def __init__(self, evaluation: Evaluation, state: StateReader, setting: Setting) -> None:
        self._evaluation = evaluation
        self._state = state
        self._setting = setting
        self._batch = evaluation.type == "batch"
        self._result: CommittedPlan | None = None
        self._blocked_id = ""
        self._next_eval = ""
        self._has_follow_up = False
        self._deployment: Deployment | None = None
        self._queued: dict[str, int] = {}
        self._desired: dict[str, DesiredUpdates] = {}
        self._refused: frozenset[str] = frozenset()
        self.failed: dict[str, AllocMetric] = {}

    def made_progress(self) -> bool:
        return is_progress(self._result)

    # --- the end (7.1) ----------------------------------------------------------------------------------------------

    def finish(self, status: str, description: str = "") -> Evaluation:
        return finished(
            self._evaluation,
            status,
            description,
            queued=self._queued,
            failed=self.failed,
            blocked_eval=self._blocked_id,
            next_eval=self._next_eval,
            deployment_id="" if self._deployment is None else self._deployment.id,
            desired_updates=self._desired,
        )

    def give_up(self, description: str) -> Generator[Request, Any, None]:
        """Fail, but leave somebody to try again."""
        waiting = self._blocked(trigger="max-plan-attempts", description=PLACEMENT_CONFLICTS)
        yield CreateEval(waiting)
        self._blocked_id = waiting.id
        yield UpdateEval(self.finish("failed", description))

    def reblocked(self) -> Evaluation:
        twin = self._evaluation.copy()
        twin.failed_tg_allocs = dict(self.failed)
        twin.queued_allocations = dict(self._queued)
        # Unlike a new one it says what is known of classes even where a constraint tells nodes of one class apart; whoever waits for it looks at that first.
        twin.escaped_computed_class = self._context.eligibility.escaped()
        twin.class_eligibility = self._context.eligibility.classes()
        return twin

    def _blocked(self, **more: str) -> Evaluation:
        return blocked(self._evaluation, self._setting, self._context.eligibility, self.failed, **more)

    # --- one attempt (7.1) ------------------------------------------------------------------------------------------

    def attempt(self, number: int) -> Generator[Request, Any, bool]:
        evaluation, setting = self._evaluation, self._setting
        job = self._state.job(evaluation.namespace, evaluation.job_id)
        self._context = context = Context(evaluation, job, self._state, setting, attempt=number, refused_node_ids=self._refused)
        self._queued, self.failed, self._desired = {}, {}, {}
        self._deployment = None if self._batch else self._latest_deployment()
        reconciled = self._compute()
        draft = context.draft
        if evaluation.annotate_plan:
            draft.annotations = PlanAnnotations(desired_tg_updates=dict(self._desired), preempted_allocs=self._placing.annotated)
        follow_ups = [each for group in reconciled.follow_ups.values() for each in group]
        wait_until_ns = time_ns(evaluation.wait_until, "eval.WaitUntil") if evaluation.wait_until else 0
        may_block = not follow_ups or setting.now_ns() >= wait_until_ns
        if self.failed and evaluation.status != "blocked" and not self._blocked_id and may_block:
            waiting = self._blocked()
            yield CreateEval(waiting)
            self._blocked_id = waiting.id
        nothing_to_write = draft.is_noop() and not evaluation.annotate_plan
        if follow_ups and (setting.strict or not (wait_until_ns or nothing_to_write)):
            # As recorded, those of a delayed evaluation are named but never created.
            for each in follow_ups:
                each.previous_eval = evaluation.id
                yield CreateEval(each)
                self._next_eval = each.id
        if nothing_to_write:
            return True
        yield from self._roll_on(reconciled.held_back_groups)
        return (yield from self._submit())

    def _latest_deployment(self) -> Deployment | None:
        deployments = self._state.deployments_by_job(self._evaluation.namespace, self._evaluation.job_id)
        return max(deployments, key=lambda deployment: (deployment.create_index, deployment.id), default=None)

    def _roll_on(self, held_back: list[TaskGroup]) -> Generator[Request, Any, None]:
        """Have the next step of an update done later, where nobody watches a deployment (schedulers 4.9, 7.8)."""
        job = self._context.job
        wanted = held_back and self._setting.strict and not self._setting.deployment_watcher and job is not None
        if not wanted or self._has_follow_up or goes_on_later(self._state, self._evaluation, self._setting.now_ns()):
            return
        assert job is not None
        follow_up = rolling_follow_up(self._evaluation, self._setting, stagger_ns(job, held_back))
        yield CreateEval(follow_up)
        self._next_eval = follow_up.id
        self._has_follow_up = True

    def _submit(self) -> Generator[Request, Any, bool]:
        draft = self._context.draft
        plan = draft.to_plan()
        reply: SubmitReply = yield SubmitPlan(plan)
        self._result = reply.result
        whole, _, _ = reply.result.full_commit(plan)
        for group, count in placed_by_group(draft, reply.result, self._state, whole=whole).items():
            if group in self._queued:
                self._queued[group] -= count
        self._refused |= frozenset(reply.result.rejected_nodes)
        if reply.state is not None:
            self._state = reply.state
            self._deployment = None
            return False
        if not whole:
            raise SchedulerError(NO_REFRESH)
        return True

    # --- what is to be done -----------------------------------------------------------------------------------------

    def _compute(self) -> Reconciliation:
        context, evaluation = self._context, self._evaluation
        job, draft = context.job, context.draft
        allocs = context.job_allocs()
        tainted = tainted_nodes(self._state, allocs)
        stop_on_dead_nodes(draft, allocs, tainted)
        stack = (EveryNodeStack if self._setting.strict else GenericStack)(context, batch=self._batch)
        if job is not None and not job.stop:
            stack.set_job(job)
        reconciler = ClusterReconciler(
            evaluation=evaluation,
            job=job,
            job_id=evaluation.job_id,
            batch=self._batch,
            allocs=allocs,
            tainted=tainted,
            deployment=self._deployment,
            update_test=GenericUpdate(context, stack),
            setting=self._setting,
        )
        reconciled = reconciler.reconcile()
        self._desired = reconciled.desired
        draft.deployment = reconciled.deployment
        draft.deployment_updates = reconciled.deployment_updates
        if reconciled.deployment is not None:
            self._deployment = reconciled.deployment
        for stop in reconciled.stop:
            draft.stop(stop.alloc, stop.description, stop.client_status, stop.followup_eval_id)
        for alloc in [*reconciled.disconnect_updates.values(), *reconciled.reconnect_updates.values()]:
            draft.place(alloc)
        deployment_id = "" if self._deployment is None else self._deployment.id
        for alloc in reconciled.in_place:
            if alloc.deployment_id != deployment_id:
                alloc.deployment_id = deployment_id
                alloc.deployment_status = None
            draft.place(alloc)
        for alloc in reconciled.attribute_updates.values():
            if takes_notes(alloc, self._state.node(alloc.node_id)) or not self._setting.strict:
                draft.place(alloc)
        self._count_queued(reconciled)
        self._placing = GenericPlacing(context, stack, self._deployment, self.failed, reconciled)
        if job is not None and not job.stop:
            self._placing.place_all([*reconciled.destructive, *reconciled.place])
        return reconciled

    def _count_queued(self, reconciled: Reconciliation) -> None:
        job = self._context.job
        wanted = [*reconciled.destructive, *reconciled.place]
        if not wanted or self._setting.strict:
            # As recorded, groups with nothing to place are missing as soon as any group places.
            self._queued.update({group.name: 0 for group in ([] if job is None else job.task_groups)})
        for each in wanted:
            self._queued[each.group.name] = self._queued.get(each.group.name, 0) + 1
