"""One scheduler run on a fixed state, without server, broker and log."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy

from fastplan.errors import InvalidInput, PlanError, Reason, StateError
from fastplan.fsm import Refused, StateMachine
from fastplan.planner.entry import EntryMaker
from fastplan.planner.evaluate import Verified
from fastplan.planner.result import NOTHING, Accepted, NodeVerdict, PlanResult, refusal
from fastplan.rules import Rules
from fastplan.scheduler.process import process
from fastplan.scheduler.requests import CreateEval, ReblockEval, Request, SubmitPlan, SubmitReply, UpdateEval
from fastplan.scheduler.setting import Overlap, Setting
from fastplan.state import StateStore
from fastplan.state.plans import AnyPlan, PlanColumns
from fastplan.structs import Evaluation

PlannerMode: TypeAlias = Literal["commit", "accept", "reject", "reject_always", "reject_once", "reject_no_state", "error", "half-then-commit"]
"""What becomes of submitted plans.

`commit`: written whole. `accept`: acknowledged whole, nothing is written. `reject`, `reject_always`: refused, an equal fresh snapshot comes back.
`reject_once`: that for the first plan, then `accept`. `reject_no_state`: refused, no snapshot comes back. `error`: "plan queue is down" is raised.
`half-then-commit`: of the first plan the first half of its nodes is written (ids of stops and allocations together, ascending, rounded down) and a fresh
snapshot comes back; later plans are written whole.
"""

_REJECTED: Final = refusal(Reason.NODE_NOT_READY)


class SchedulerHarness:
    """Runs the scheduler of an evaluation's type on a state, with a planner that does as it is told; one `process` each.

    `plans` has what was submitted, the last one last; `evals` the updates of the processed evaluation; `created_evals` the blocked ones and the
    follow-ups; `reblocked_evals` what went back to the tracker; `store` the state, as the planner has changed it.
    """

    def __init__(
        self,
        store: StateStore,
        *,
        now_ns: int,
        planner: PlannerMode = "commit",
        rules: Rules = Rules.STRICT,
        overlap: Overlap = "enforce",
        seed: int = 0,
        deployment_watcher: bool = False,
    ) -> None:
        """Start on *store*, which is the harness's own from now on. *seed*: random draws and new ids. Raises InvalidInput for an unknown planner or overlap."""
        if planner not in get_args(PlannerMode):
            raise InvalidInput("planner", planner, f"one of {', '.join(get_args(PlannerMode))}")
        if overlap not in get_args(Overlap):
            raise InvalidInput("overlap", overlap, f"one of {', '.join(get_args(Overlap))}")
        self.store = store
        self.plans: list[AnyPlan] = []
        self.evals: list[Evaluation] = []
        self.created_evals: list[Evaluation] = []
        self.reblocked_evals: list[Evaluation] = []
        self._planner = planner
        self._setting = Setting(now_ns=lambda: now_ns, rules=rules, overlap=overlap, randomness=random.Random(seed), deployment_watcher=deployment_watcher)
        self._machine = StateMachine(store)
        self._entries = EntryMaker(lambda: store, lambda: self._machine.applied, new_id=self._setting.new_id)
        self._processed = False

    @classmethod
    def from_dump(
        cls,
        dump: Mapping[str, Any] | str | os.PathLike[str],
        *,
        now_ns: int,
        planner: PlannerMode = "commit",
        rules: Rules = Rules.STRICT,
        overlap: Overlap = "enforce",
        seed: int = 0,
        deployment_watcher: bool = False,
    ) -> SchedulerHarness:
        """Start on the state of a dump (`StateStore.from_dump`), at an instant at which the clock stands still: Unix nanoseconds."""
        store = StateStore.from_dump(dump)
        return cls(store, now_ns=now_ns, planner=planner, rules=rules, overlap=overlap, seed=seed, deployment_watcher=deployment_watcher)

    def process(self, evaluation: Evaluation) -> None:
        """Run the scheduler of the evaluation's type to its end. Raises what leaves the scheduler, and StateError at the second call."""
        if self._processed:
            raise StateError("a harness processes one evaluation")
        self._processed = True
        if self.store.eval(evaluation.id) is None and evaluation.id:
            # A plan is written only for an evaluation that exists; the index of the state is not touched by that.
            self.store.put_eval(evaluation.copy())
        steps = process(evaluation.copy(), self.store.snapshot(), self._setting)
        answer: SubmitReply | None = None
        while True:
            try:
                request = steps.send(answer)
                while True:
                    try:
                        answer = self._perform(request)
                        break
                    except PlanError as error:
                        request = steps.throw(error)
            except StopIteration:
                return

    def _perform(self, request: Request) -> SubmitReply | None:
        match request:
            case SubmitPlan(plan):
                self.plans.append(plan)
                return self._submit(plan)
            case UpdateEval(evaluation):
                self.evals.append(evaluation.copy())
            case CreateEval(evaluation):
                self.created_evals.append(evaluation.copy())
            case ReblockEval(evaluation):
                self.reblocked_evals.append(evaluation.copy())
        return None

    def _submit(self, plan: AnyPlan) -> SubmitReply:
        first = len(self.plans) == 1
        match self._planner:
            case "error":
                raise PlanError("plan queue is down")
            case "commit":
                return self._commit(plan, whole=True)
            case "half-then-commit":
                return self._commit(plan, whole=not first)
            case "reject_no_state":
                return self._refuse(plan, fresh=False)
            case "reject" | "reject_always":
                return self._refuse(plan, fresh=True)
            case "reject_once" if first:
                return self._refuse(plan, fresh=True)
        return SubmitReply(_whole(plan), None)

    def _refuse(self, plan: AnyPlan, *, fresh: bool) -> SubmitReply:
        refused = dict.fromkeys(sorted({*plan.node_update, *plan.node_allocation}), _REJECTED)
        result = PlanResult(plan, NOTHING, refused=refused, kept=False, refresh_index=self.store.latest_index())
        return SubmitReply(result, self.store.snapshot() if fresh else None)

    def _commit(self, plan: AnyPlan, *, whole: bool) -> SubmitReply:
        """Write the plan, or its part on the first half of its nodes, as the log's state machine does."""
        if plan.job is None:
            # Of a purged job without allocations: there is nothing that the log would take.
            return SubmitReply(_whole(plan), None)
        columns = PlanColumns.from_plan(plan, self.store)
        count = len(columns.node_ids)
        codes = numpy.zeros(count, numpy.int8)
        result = _whole(plan)
        if not whole:
            node_ids = sorted({*plan.node_update, *plan.node_allocation})
            kept = set(node_ids[: len(node_ids) // 2])
            codes[[i for i, node_id in enumerate(columns.node_ids) if node_id not in kept]] = Reason.NODE_NOT_READY
            result = _part(plan, kept)
        verified = Verified(plan, columns, codes, False)
        verified.kept_preemptions = numpy.ones(len(columns.preempt_ids), numpy.uint8)
        verified.result = result
        index = self.store.latest_index() + 1
        (answer,) = self._machine.apply([(index, 1, self._entries.encode(verified, self._setting.now_ns()), b"")])
        if isinstance(answer, Refused):
            raise PlanError(answer.refused)
        return SubmitReply(result, None if whole else self.store.snapshot())


def _whole(plan: AnyPlan) -> PlanResult:
    """Return the answer to a plan that was accepted as it is."""
    return PlanResult(plan, lambda _: _accepted(plan, None))


def _part(plan: AnyPlan, kept: set[str]) -> PlanResult:
    refused: dict[str, NodeVerdict] = dict.fromkeys(sorted({*plan.node_update, *plan.node_allocation} - kept), _REJECTED)
    return PlanResult(plan, lambda _: _accepted(plan, kept), refused=refused, refresh_index=1)


def _accepted(plan: AnyPlan, kept: set[str] | None) -> Accepted:
    def part(entries: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        return {node_id: list(allocs or ()) for node_id, allocs in entries().items() if kept is None or node_id in kept}

    return Accepted(part(lambda: plan.node_update), part(lambda: plan.node_allocation), part(lambda: plan.node_preemptions))
