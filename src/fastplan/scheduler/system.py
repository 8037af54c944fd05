"""The schedulers of system and sysbatch jobs: the same on every node (schedulers 4)."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Generator
from typing import Any, Final

from fastplan.scheduler.alloc_facts import LOST, NOT_NEEDED, TAINTED, UPDATING, by_age
from fastplan.scheduler.attempts import is_progress, placed_by_group, retry
from fastplan.scheduler.cluster_nodes import NO_NODES, job_nodes, stop_on_dead_nodes, tainted_nodes
from fastplan.scheduler.context import Context
from fastplan.scheduler.difference import tasks_updated
from fastplan.scheduler.evaluations import attempts_exhausted, blocked, finished, refused_trigger, rolling_follow_up
from fastplan.scheduler.in_place import carry_over, select_in_place
from fastplan.scheduler.metrics import exhaust_resources
from fastplan.scheduler.rank import RankedNode
from fastplan.scheduler.reconciler.node import Entry, SystemReconciliation, reconcile_system
from fastplan.scheduler.requests import CommittedPlan, CreateEval, Request, Steps, SubmitPlan, SubmitReply, UpdateEval
from fastplan.scheduler.setting import Setting
from fastplan.scheduler.stack import SelectOptions, SystemStack
from fastplan.scheduler.system_pace import SystemPace, stagger_ns
from fastplan.scheduler.system_rollout import SystemRollout
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, AllocDeploymentStatus, AllocMetric, DesiredUpdates, Evaluation, Node, PlanAnnotations, TaskGroup

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

_WRAP: Final = 2**64


def process_system(evaluation: Evaluation, state: StateReader, setting: Setting) -> Steps:
    """Handle one evaluation of a system or sysbatch job."""
    accepted = _TRIGGERS | {"periodic-job"} if evaluation.type == "sysbatch" else _TRIGGERS
    if evaluation.triggered_by not in accepted:
        yield UpdateEval(finished(evaluation, "failed", refused_trigger(evaluation.triggered_by)))
        return
    run = _Run(evaluation, state, setting)
    limit = _ATTEMPTS[evaluation.type]
    done = yield from retry(limit, run.attempt, run.made_progress)
    yield UpdateEval(run.finish("complete") if done else run.finish("failed", attempts_exhausted(limit)))


class _Run:
    """The attempts for one evaluation."""

    def __init__(self, evaluation: Evaluation, state: StateReader, setting: Setting) -> None:
        self._evaluation = evaluation
        self._state = state
        self._setting = setting
        self._sysbatch = evaluation.type == "sysbatch"
        self._result: CommittedPlan | None = None
        self._next_eval = ""
        self._queued: dict[str, int] = {}
        self._failed: dict[str, AllocMetric] = {}
        self._desired: dict[str, DesiredUpdates] = {}
        self._rollout = SystemRollout(None, None, strict=setting.strict)

    def made_progress(self) -> bool:
        return is_progress(self._result)

    def finish(self, status: str, description: str = "") -> Evaluation:
        return finished(
            self._evaluation,
            status,
            description,
            queued=self._queued,
            failed=self._failed,
            next_eval=self._next_eval,
            deployment_id=self._rollout.deployment_id,
            desired_updates=self._desired,
        )

    # --- one attempt (4.2) ------------------------------------------------------------------------------------------

    def attempt(self, number: int) -> Generator[Request, Any, bool]:
        evaluation, state = self._evaluation, self._state
        job = state.job(evaluation.namespace, evaluation.job_id)
        if job is not None and job.stop:
            nodes = NO_NODES
        else:
            nodes = NO_NODES if job is None else job_nodes(state, job, strict=self._setting.strict)
        self._queued, self._failed, self._desired = {}, {}, {}
        self._context = context = Context(evaluation, job, state, self._setting, attempt=number)
        self._job = job
        self._nodes = nodes
        self._ready = {node.id: node for node in nodes.ready}
        self._stack = SystemStack(context)
        if job is not None and not job.stop:
            self._stack.set_job(job)
        if evaluation.annotate_plan:
            context.draft.annotations = PlanAnnotations()
        held_back = yield from self._compute()
        if context.draft.annotations is not None:
            context.draft.annotations.desired_tg_updates = dict(self._desired)
        if context.draft.is_noop() and not evaluation.annotate_plan:
            return True
        if held_back and not self._next_eval and self._setting.strict and not self._setting.deployment_watcher:
            assert job is not None
            follow_up = rolling_follow_up(evaluation, self._setting, stagger_ns(job, held_back))
            yield CreateEval(follow_up)
            self._next_eval = follow_up.id
        return (yield from self._submit())

    def _submit(self) -> Generator[Request, Any, bool]:
        plan = self._context.draft.to_plan()
        reply: SubmitReply = yield SubmitPlan(plan)
        self._result = reply.result
        whole, _, _ = reply.result.full_commit(plan)
        for group, count in placed_by_group(self._context.draft, reply.result, self._state, whole=whole).items():
            if group in self._queued:
                self._queued[group] -= count
        if reply.state is not None:
            self._state = reply.state
            return False
        return whole

    # --- what is to be done (4.3) -----------------------------------------------------------------------------------

    def _compute(self) -> Generator[Request, Any, list[TaskGroup]]:
        """Fill the plan; return the groups of which destructive updates were held back."""
        context, job = self._context, self._job
        allocs = sorted(context.job_allocs(), key=by_age)
        tainted = tainted_nodes(self._state, allocs)
        stop_on_dead_nodes(context.draft, allocs, tainted)
        live, terminal = _split(allocs)
        self._rollout = SystemRollout(job, None if self._sysbatch else self._latest_deployment(), strict=self._setting.strict)
        found = reconcile_system(
            job=job,
            ready_nodes=self._nodes.ready,
            not_ready_node_ids=self._nodes.not_ready,
            tainted=tainted,
            live_allocs=live,
            terminal_allocs=terminal,
            deployment=self._rollout.current,
            now_ns=self._setting.now_ns(),
            overlap=self._setting.overlap,
        )
        if self._setting.strict:
            # What has ended on a node that may not be used has nothing to be updated (schedulers 4.6).
            found.update = [entry for entry in found.update if entry.alloc is None or not entry.alloc.is_terminal or entry.node_id in self._ready]
        self._plan_stops(found)
        in_place, destructive = self._update_in_place([*found.update, *found.reconnecting])
        pace = SystemPace(job, found, destructive, self._rollout, strict=self._setting.strict)
        for entry in pace.admitted:
            assert entry.alloc is not None
            context.draft.stop(entry.alloc, UPDATING)
        place = [*found.place, *pace.admitted]
        self._count(found, in_place, destructive, place)
        yield from self._place(place, found, in_place)
        self._rollout.finish(context, self._setting, found, self._desired)
        return pace.held_back_groups

    def _latest_deployment(self) -> Any:
        deployments = self._state.deployments_by_job(self._evaluation.namespace, self._evaluation.job_id)
        return max(deployments, key=lambda deployment: (deployment.create_index, deployment.id), default=None)

    def _plan_stops(self, found: SystemReconciliation) -> None:
        draft = self._context.draft
        for entries, description, client_status in ((found.stop, NOT_NEEDED, ""), (found.migrate, TAINTED, ""), (found.lost, LOST, "lost")):
            for entry in entries:
                assert entry.alloc is not None
                draft.stop(entry.alloc, description, client_status)
        for entry in found.disconnecting:
            assert entry.alloc is not None
            draft.mark_unknown(entry.alloc)

    # --- updates in place (4.7) -------------------------------------------------------------------------------------

    def _update_in_place(self, entries: list[Entry]) -> tuple[list[Entry], list[Entry]]:
        """Update what can stay where it is; return the entries that were, and those that have to be replaced."""
        in_place, destructive = [], []
        for entry in entries:
            (in_place if self._is_updated(entry) else destructive).append(entry)
        return in_place, destructive

    def _is_updated(self, entry: Entry) -> bool:
        alloc, job, group = entry.alloc, self._job, entry.group
        assert alloc is not None
        assert job is not None
        assert group is not None
        if alloc.job is None or tasks_updated(job, alloc.job, group.name):
            return False
        if alloc.is_terminal:
            return True
        preempt = not self._setting.strict and self._context.config.preemption_enabled(job.type)
        resources = select_in_place(self._context, self._stack, job, group, alloc, preempt=preempt)
        if resources is None:
            return False
        updated = copy.copy(alloc)
        updated.eval_id = self._evaluation.id
        updated.allocated_resources = carry_over(resources, alloc.allocated_resources, cores=self._setting.strict)
        updated.metrics = self._context.metrics.finish()
        updated.deployment_id = self._rollout.latest_id
        updated.deployment_status = None
        self._context.draft.place(updated)
        return True

    # --- counts (3.4, 4.3 step 7) -----------------------------------------------------------------------------------

    def _count(self, found: SystemReconciliation, in_place: list[Entry], destructive: list[Entry], place: list[Entry]) -> None:
        job = self._job
        if job is not None and not job.stop:
            self._queued = {group.name: 0 for group in job.task_groups}
        if self._sysbatch and place and not self._setting.strict:
            # As recorded: as soon as anything is to be placed, groups with nothing to place are missing.
            self._queued = {}
        for entry in place:
            self._queued[_group_of(entry)] = self._queued.get(_group_of(entry), 0) + 1
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
                counts = self._desired_of(_group_of(entry))
                setattr(counts, name, getattr(counts, name) + 1)
        for entry in found.stop:
            # A stop counts for the group that it had, whether the job has that group or not.
            self._desired_of(entry.alloc.task_group if entry.alloc is not None else "").stop += 1
        # Of a system job every node counts that is a candidate of the group, whether anything has to be placed there or not (schedulers 3.4).
        for entry in found.place if self._sysbatch else [*found.ignore, *in_place, *destructive, *found.place]:
            self._desired_of(_group_of(entry)).place += 1

    def _desired_of(self, group: str) -> DesiredUpdates:
        return self._desired.setdefault(group, DesiredUpdates())

    def _one_place_less(self, group: str) -> None:
        counts = self._desired_of(group)
        if counts.place > 0 or self._setting.strict:
            counts.place = max(counts.place - 1, 0)
        else:
            # As recorded: an unsigned number goes below zero.
            counts.place = (counts.place - 1) % _WRAP

    # --- placing (4.10) ---------------------------------------------------------------------------------------------

    def _place(self, place: list[Entry], found: SystemReconciliation, in_place: list[Entry]) -> Generator[Request, Any, None]:
        kept = Counter(_group_of(entry) for entry in [*found.ignore, *in_place])
        filtered: dict[str, AllocMetric] = {}
        for entry in place:
            node = self._ready.get(entry.node_id)
            if node is None:
                continue
            group = entry.group
            assert group is not None
            option = self._select(node, group, entry.name)
            if option is not None:
                self._add(entry, group, option)
                continue
            metric = self._context.metrics.finish()
            if metric.nodes_filtered:
                self._queued[group.name] -= 1
                self._one_place_less(group.name)
                merged = _merged(filtered.get(group.name), metric)
                filtered[group.name] = merged
                if self._queued[group.name] <= 0 and not kept[group.name]:
                    self._failed[group.name] = merged
            else:
                yield from self._exhausted(node, group, metric)
            self._rollout.note_failure(entry)

    def _select(self, node: Node, group: TaskGroup, name: str) -> RankedNode | None:
        assert self._job is not None
        self._stack.set_nodes([node])
        return self._stack.select(group, SelectOptions(alloc_name=name, preempt=self._context.config.preemption_enabled(self._job.type)))

    def _exhausted(self, node: Node, group: TaskGroup, metric: AllocMetric) -> Generator[Request, Any, None]:
        """Note that a feasible node has no room; the first one of a group gets a blocked evaluation (4.11)."""
        if not self._sysbatch:
            self._one_place_less(group.name)
        known = self._failed.get(group.name)
        if known is not None:
            known.coalesced_failures += 1
            exhaust_resources(known, group)
            return
        assert self._job is not None
        metric.nodes_available = dict(self._nodes.by_datacenter)
        metric.nodes_in_pool = len(self._nodes.ready)
        metric.node_pool = self._job.node_pool
        exhaust_resources(metric, group)
        self._failed[group.name] = metric
        yield CreateEval(blocked(self._evaluation, self._setting, self._context.eligibility, self._failed, node_id=node.id))

    def _add(self, entry: Entry, group: TaskGroup, option: RankedNode) -> None:
        """Put a new allocation into the plan, and whom it evicts."""
        context, job = self._context, self._job
        assert job is not None
        alloc = Allocation(
            id=self._setting.new_id(),
            namespace=job.namespace,
            eval_id=self._evaluation.id,
            name=entry.name,
            job_id=job.id,
            task_group=group.name,
            metrics=context.metrics.finish(),
            node_id=option.node.id,
            node_name=option.node.name,
            allocated_resources=option.resources,
            desired_status="run",
            client_status="pending",
            previous_allocation=entry.alloc_id,
            deployment_id=self._rollout.active_id,
        )
        if entry.canary and self._rollout.active_id:
            alloc.deployment_status = AllocDeploymentStatus(canary=True)
        for victim in option.preempted:
            context.draft.preempt(victim, alloc.id)
            alloc.preempted_allocations.append(victim.id)
            if context.draft.annotations is not None:
                context.draft.annotations.preempted_allocs.append({"ID": victim.id, "JobID": victim.job_id, "TaskGroup": victim.task_group})
                self._desired_of(group.name).preemptions += 1
        context.draft.place(alloc)
        self._rollout.note_placement(entry, alloc)


def _group_of(entry: Entry) -> str:
    return "" if entry.group is None else entry.group.name


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


def _merged(sums: AllocMetric | None, metric: AllocMetric) -> AllocMetric:
    """Return the sum of what several selections filtered; the pool and what is available are told of exhausted nodes only."""
    if sums is None:
        sums = AllocMetric()
    sums.nodes_evaluated += metric.nodes_evaluated
    sums.nodes_filtered += metric.nodes_filtered
    for name in ("class_filtered", "constraint_filtered"):
        counts: dict[str, int] = getattr(sums, name)
        for key, count in getattr(metric, name).items():
            counts[key] = counts.get(key, 0) + count
    return sums
