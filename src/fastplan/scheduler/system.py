"""The schedulers of system and sysbatch jobs: the same on every node (schedulers 4)."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from fastplan.scheduler.alloc_facts import LOST, NOT_NEEDED, TAINTED, UPDATING, by_age
from fastplan.scheduler.attempts import is_progress, placed_by_group, retry
from fastplan.scheduler.cluster_nodes import NO_NODES, stop_on_dead_nodes, tainted_nodes, usable_nodes
from fastplan.scheduler.context import Context
from fastplan.scheduler.evaluations import attempts_exhausted, finished, goes_on_later, refused_trigger, rolling_follow_up
from fastplan.scheduler.reconciler.node import Entry, SystemReconciliation, reconcile_nodes
from fastplan.scheduler.requests import CommittedPlan, CreateEval, Request, Steps, SubmitPlan, SubmitReply, UpdateEval
from fastplan.scheduler.setting import Setting
from fastplan.scheduler.system_columns import SystemColumns, system_columns
from fastplan.scheduler.system_counts import SystemCounts
from fastplan.scheduler.system_pace import SystemPace, stagger_ns
from fastplan.scheduler.system_placing import SystemPlacing
from fastplan.scheduler.system_rollout import SystemRollout
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, AllocMetric, Deployment, Evaluation, Job, PlanAnnotations, TaskGroup

_TRIGGERS: Final = frozenset(
    {
        "job-register",
        "job-deregister",
        "job-scaling",
        "node-update",
        "node-drain",
        "alloc-stop",
        "rolling-update",
        "queued-allocs",
        "failed-follow-up",
        "preemption",
        "deployment-watcher",
        "reconnect",
    }
)
_ATTEMPTS: Final = {"system": 5, "sysbatch": 2}


def process_system(evaluation: Evaluation, state: StateReader, setting: Setting) -> Steps:
    """Handle one evaluation of a system or sysbatch job."""
    accepted = _TRIGGERS
    if evaluation.type == "sysbatch":
        accepted |= {"periodic-job"}
    elif setting.strict:
        # The server wants a system job looked at that has lost an allocation; as recorded, the node waits for another reason.
        accepted |= {"alloc-failure"}
    if evaluation.triggered_by not in accepted:
        yield UpdateEval(finished(evaluation, "failed", refused_trigger(evaluation.triggered_by)))
        return
    run = _Run(evaluation, state, setting)
    limit = _ATTEMPTS[evaluation.type]
    done = yield from retry(limit, run.attempt, run.made_progress)
    yield UpdateEval(run.finish("complete") if done else run.finish("failed", attempts_exhausted(limit)))


class _Run:
    """The attempts for one evaluation; what an attempt finds replaces what the one before found."""

    def __init__(self, evaluation: Evaluation, state: StateReader, setting: Setting) -> None:
        self._evaluation = evaluation
        self._state = state
        self._setting = setting
        self._sysbatch = evaluation.type == "sysbatch"
        self._result: CommittedPlan | None = None
        self._next_eval = ""

    def made_progress(self) -> bool:
        return is_progress(self._result)

    def finish(self, status: str, description: str = "") -> Evaluation:
        return finished(
            self._evaluation,
            status,
            description,
            queued=self._counts.queued,
            failed=self._failed,
            next_eval=self._next_eval,
            deployment_id=self._rollout.deployment_id,
            desired_updates=self._counts.desired,
        )

    # --- one attempt (4.2) --------------------------------------------------------------------------------------------

    def attempt(self, number: int) -> Generator[Request, Any, bool]:
        evaluation, state, setting = self._evaluation, self._state, self._setting
        job = state.job(evaluation.namespace, evaluation.job_id)
        self._context = context = Context(evaluation, job, state, setting, attempt=number)
        self._counts = SystemCounts(job, sysbatch=self._sysbatch, strict=setting.strict)
        self._rollout = SystemRollout(job, self._latest_deployment(), setting, sysbatch=self._sysbatch)
        self._failed: dict[str, AllocMetric] = {}
        if evaluation.annotate_plan:
            context.draft.annotations = PlanAnnotations()
        held_back = yield from self._compute(job)
        if context.draft.annotations is not None:
            context.draft.annotations.desired_tg_updates = dict(self._counts.desired)
        if context.draft.is_noop() and not evaluation.annotate_plan:
            return True
        rolls_on = held_back and not self._next_eval and setting.strict and not setting.deployment_watcher
        if job is not None and rolls_on and not goes_on_later(state, evaluation, setting.now_ns()):
            follow_up = rolling_follow_up(evaluation, setting, stagger_ns(job, held_back))
            yield CreateEval(follow_up)
            self._next_eval = follow_up.id
        return (yield from self._submit())

    def _latest_deployment(self) -> Deployment | None:
        deployments = self._state.deployments_by_job(self._evaluation.namespace, self._evaluation.job_id)
        return max(deployments, key=lambda deployment: (deployment.create_index, deployment.id), default=None)

    def _submit(self) -> Generator[Request, Any, bool]:
        plan = self._context.draft.to_plan()
        reply: SubmitReply = yield SubmitPlan(plan)
        self._result = reply.result
        whole, _, _ = reply.result.full_commit(plan)
        self._counts.committed(placed_by_group(self._context.draft, reply.result, self._state, whole=whole))
        if reply.state is not None:
            self._state = reply.state
            return False
        return whole

    # --- what is to be done (4.3) -------------------------------------------------------------------------------------

    def _compute(self, job: Job | None) -> Generator[Request, Any, list[TaskGroup]]:
        """Fill the plan; return the groups of which destructive updates were held back."""
        context, rollout, strict = self._context, self._rollout, self._setting.strict
        usable = None if job is None or job.stop else usable_nodes(self._state, job, strict=strict)
        sorted_out = None if job is None or usable is None else system_columns(context, job, usable)
        if sorted_out is None:
            sorted_out = SystemColumns(NO_NODES if usable is None else usable.part(), context.job_allocs())
        nodes = sorted_out.nodes
        allocs = sorted(sorted_out.allocs, key=by_age)
        tainted = tainted_nodes(self._state, allocs)
        stop_on_dead_nodes(context.draft, allocs, tainted)
        live, terminal = _split(allocs)
        found = reconcile_nodes(
            job=job,
            ready_nodes=nodes.ready,
            not_ready_node_ids=nodes.not_ready,
            tainted=tainted,
            live_allocs=live,
            terminal_allocs=terminal,
            rollout=rollout.nodes,
            now_ns=self._setting.now_ns(),
            overlap=self._setting.overlap,
        )
        rollout.adopt(self._evaluation.priority)
        self._plan_stops(found)
        if job is None or job.stop:
            self._counts.start(found, (), (), ())
            rollout.finish(context.draft, found, (), (), self._counts.desired)
            return []
        placing = SystemPlacing(context, job, nodes._replace(ready=[*nodes.ready, *sorted_out.full]), rollout, self._counts)
        self._failed = placing.failed
        if strict:
            # What has ended on a node that may not be used has nothing to be updated (schedulers 4.6).
            found.update = [entry for entry in found.update if entry.alloc is None or not entry.alloc.is_terminal or placing.is_ready(entry.node_id)]
        in_place, destructive = placing.update_in_place([*found.update, *found.reconnecting])
        pace = SystemPace(job, found, destructive, rollout, strict=strict)
        for entry in pace.admitted:
            assert entry.alloc is not None
            context.draft.stop(entry.alloc, UPDATING)
        self._counts.start(found, in_place, destructive, pace.admitted)
        self._counts.start_in_columns(sorted_out.settled, sorted_out.fresh)
        if sorted_out.entries:
            found.place = sorted([*found.place, *sorted_out.entries], key=lambda entry: entry.node_id)
        yield from placing.place([*found.place, *pace.admitted], [*found.ignore, *in_place], sorted_out.settled, sorted_out.filtered)
        rollout.finish(context.draft, found, in_place, destructive, self._counts.desired)
        return pace.held_back_groups

    def _plan_stops(self, found: SystemReconciliation) -> None:
        draft = self._context.draft
        lists: tuple[tuple[list[Entry], str, str], ...] = ((found.stop, NOT_NEEDED, ""), (found.migrate, TAINTED, ""), (found.lost, LOST, "lost"))
        for entries, description, client_status in lists:
            for entry in entries:
                assert entry.alloc is not None
                draft.stop(entry.alloc, description, client_status)
        for entry in found.disconnecting:
            assert entry.alloc is not None
            draft.mark_unknown(entry.alloc)


def _split(allocs: list[Allocation]) -> tuple[list[Allocation], dict[str, dict[str, Allocation]]]:
    """Return the live allocations, and the newest terminal one of each name by node (schedulers 3.6)."""
    live = []
    terminal: dict[str, dict[str, Allocation]] = {}
    for alloc in allocs:
        if not alloc.is_terminal:
            live.append(alloc)
            continue
        by_name = terminal.setdefault(alloc.node_id, {})
        known = by_name.get(alloc.name)
        if known is None or known.create_index < alloc.create_index:
            by_name[alloc.name] = alloc
    return live, terminal
