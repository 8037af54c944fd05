"""The submit endpoint: job look-up, token check, queue, answer (plan-apply 7.5)."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from fastplan.clock import Clock
from fastplan.errors import PlanError, TokenRejected
from fastplan.planner.metrics import PlanMetrics

NOT_OUTSTANDING = "evaluation is not outstanding"
TOKEN_MISMATCH = "evaluation token does not match"
NACK_TIMEOUT_REACHED = "evaluation nack timeout reached"


class OutstandingEvaluations(Protocol):
    """The evaluations that workers hold, as the evaluation broker knows them."""

    def pause_nack(self, eval_id: str, token: str) -> None:
        """Stop the redelivery timer of an evaluation. Raises `TokenRejected` with one of the three texts of plan-apply 7.5."""
        ...

    def resume_nack(self, eval_id: str, token: str) -> None:
        """Start the redelivery timer again, with its full time. Raises `TokenRejected` like `pause_nack`."""
        ...


@dataclass(slots=True)
class _Delivery:
    token: str
    deadline_s: float
    paused: bool = False


class HeldEvaluations:
    """Evaluations held by workers of this process: handed out, paused, resumed, given back.

    Complete for a caller that hands out its own evaluations, such as a replay; the evaluation broker does the same and
    redelivers. A timer has fired when its time is over, whether or not anybody looked; the evaluation is then no longer
    its holder's.
    """

    def __init__(self, clock: Clock, nack_timeout_s: float = 60.0) -> None:
        self._clock = clock
        self._nack_timeout_s = nack_timeout_s
        self._held: dict[str, _Delivery] = {}

    def deliver(self, eval_id: str, token: str | None = None) -> str:
        """Hand the evaluation to a worker, taking it from an earlier one, and return the token of this delivery."""
        token = token or secrets.token_hex(16)
        self._held[eval_id] = _Delivery(token, self._clock.monotonic_s() + self._nack_timeout_s)
        return token

    def settle(self, eval_id: str, token: str) -> None:
        """Take the evaluation back from its holder (ack or nack). Raises `TokenRejected`."""
        self._find(eval_id, token)
        del self._held[eval_id]

    def pause_nack(self, eval_id: str, token: str) -> None:
        """See `OutstandingEvaluations`."""
        delivery = self._find(eval_id, token)
        if delivery.paused or self._clock.monotonic_s() >= delivery.deadline_s:
            raise TokenRejected(NACK_TIMEOUT_REACHED)
        delivery.paused = True

    def resume_nack(self, eval_id: str, token: str) -> None:
        """See `OutstandingEvaluations`."""
        delivery = self._find(eval_id, token)
        delivery.paused = False
        delivery.deadline_s = self._clock.monotonic_s() + self._nack_timeout_s

    def is_paused(self, eval_id: str) -> bool:
        """Tell whether the timer of an outstanding evaluation stands still."""
        delivery = self._held.get(eval_id)
        return delivery is not None and delivery.paused

    def __len__(self) -> int:
        return len(self._held)

    def _find(self, eval_id: str, token: str) -> _Delivery:
        delivery = self._held.get(eval_id)
        if delivery is None:
            raise TokenRejected(NOT_OUTSTANDING)
        if delivery.token != token:
            raise TokenRejected(TOKEN_MISMATCH)
        return delivery


class SubmittedPlan(Protocol):
    """What the endpoint reads of a plan."""

    eval_id: str
    eval_token: str
    job: Any
    job_info: Any


P_contra = TypeVar("P_contra", bound=SubmittedPlan, contravariant=True)


class Planner(Protocol[P_contra]):
    """Where the endpoint hands plans to: the applier."""

    def enqueue(self, plan: P_contra) -> Awaitable[Any]:
        """Queue a plan; awaiting what is returned gives its result. Raises `QueueDisabled`."""
        ...


class Jobs(Protocol):
    """Where the endpoint looks jobs up: the current state, not a snapshot."""

    def job(self, namespace: str, job_id: str) -> Any | None:
        """Return the registered job, or `None`."""
        ...


P = TypeVar("P", bound=SubmittedPlan)


class SubmitEndpoint(Generic[P]):
    """Takes plans from workers. The checks run before the queue; nothing checks the token again behind it."""

    def __init__(self, jobs: Jobs, evaluations: OutstandingEvaluations, planner: Planner[P], clock: Clock, metrics: PlanMetrics) -> None:
        self._jobs = jobs
        self._evaluations = evaluations
        self._planner = planner
        self._clock = clock
        self._metrics = metrics

    async def submit(self, plan: P | None) -> Any:
        """Verify and commit *plan* and return its `PlanResult` (the reply's index is its `alloc_index`).

        The job is attached to the plan when it carries only job info. Raises `PlanError`: a nil plan, no job info, a job
        that does not exist, `TokenRejected`, `QueueDisabled`, or what the applier and the log answer.
        """
        start_s = self._clock.monotonic_s()
        try:
            if plan is None:
                raise PlanError("cannot submit nil plan")
            if plan.job is None:
                self._attach_job(plan)
            self._evaluations.pause_nack(plan.eval_id, plan.eval_token)
            try:
                return await self._planner.enqueue(plan)
            finally:
                self._resume(plan)
        finally:
            self._metrics.submit.record(self._clock.monotonic_s() - start_s)

    def _attach_job(self, plan: P) -> None:
        info = plan.job_info
        if info is None:
            raise PlanError("cannot submit plan without job info")
        job = self._jobs.job(info.namespace, info.id)
        if job is None:
            raise PlanError(f'job "{info.id}" in namespace "{info.namespace}" not found')
        plan.job = job

    def _resume(self, plan: P) -> None:
        try:
            self._evaluations.resume_nack(plan.eval_id, plan.eval_token)
        except TokenRejected:
            # The evaluation was acked or redelivered while the plan was on its way: its timer is somebody else's now.
            return
