"""The leader as its workers see it (worker-and-broker 4)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fastplan import codec
from fastplan.broker import BlockedEvals, BrokerError, BrokerGate, EvalBroker
from fastplan.clock import Clock
from fastplan.errors import StateError
from fastplan.planner.submit import SubmitEndpoint
from fastplan.scheduler.process import SCHEDULER_VERSION
from fastplan.server.commands import CommandWriter
from fastplan.state import StateStore
from fastplan.state.plans import AnyPlan
from fastplan.structs import Evaluation
from fastplan.worker import Dequeued

DEFAULT_TIMEOUT_S = 1.0


class LeaderEndpoints:
    """Evaluations and plans, for workers of this process. Meets `fastplan.worker.Endpoints`."""

    def __init__(
        self,
        *,
        broker: EvalBroker,
        gate: BrokerGate,
        blocked: BlockedEvals,
        writer: CommandWriter,
        plans: SubmitEndpoint[Any],
        store: Callable[[], StateStore],
        on_ack: Callable[[], None],
        clock: Clock,
        on_plan: Callable[[AnyPlan, Any, float], None] | None = None,
    ) -> None:
        """*on_ack*: called after each ack, which may have left evaluations to cancel. *on_plan*: told of each plan, its result and the seconds it took."""
        self._broker = broker
        self._gate = gate
        self._blocked = blocked
        self._writer = writer
        self._plans = plans
        self._store = store
        self._on_ack = on_ack
        self._clock = clock
        self._on_plan = on_plan

    async def dequeue(self, queues: Sequence[str], timeout_s: float, version: int) -> Dequeued | None:
        """Return an evaluation, None if there is none in time or while the broker is off."""
        if not queues:
            raise BrokerError("dequeue requires at least one scheduler type")
        if version != SCHEDULER_VERSION:
            raise BrokerError(f"dequeue disallowed: calling scheduler version is {version}; leader version is {SCHEDULER_VERSION}")
        delivery = await self._gate.dequeue(queues, timeout_s if timeout_s > 0 else DEFAULT_TIMEOUT_S)
        if delivery is None:
            return None
        evaluation = delivery.evaluation
        newest = self._store().newest_eval_index(evaluation.namespace, evaluation.job_id)
        return Dequeued(evaluation, delivery.token, max(evaluation.modify_index, newest))

    async def ack(self, eval_id: str, token: str) -> None:
        """Take an evaluation as handled."""
        self._broker.ack(eval_id, token)
        self._on_ack()

    async def nack(self, eval_id: str, token: str) -> None:
        """Take an evaluation back; it is delivered again, or fails for good."""
        self._broker.nack(eval_id, token)

    async def submit_plan(self, plan: AnyPlan) -> Any:
        """Verify and commit a plan; the evaluation is not taken away from its worker meanwhile."""
        start_s = self._clock.monotonic_s()
        result = await self._plans.submit(plan)
        if self._on_plan is not None:
            self._on_plan(plan, result, self._clock.monotonic_s() - start_s)
        return result

    async def update_eval(self, evaluation: Evaluation, token: str) -> None:
        """Write the status of an evaluation that its worker holds."""
        self._broker.outstanding_reset(evaluation.id, token)
        await self._write(evaluation)

    async def create_eval(self, evaluation: Evaluation, token: str) -> None:
        """Write an evaluation that follows one that its worker holds."""
        self._broker.outstanding_reset(evaluation.previous_eval, token)
        if self._store().has_eval(evaluation.id):
            raise StateError("evaluation already exists")
        await self._write(evaluation)

    async def reblock_eval(self, evaluation: Evaluation, token: str) -> None:
        """Give an evaluation back to the tracker; nothing is written."""
        self._broker.outstanding_reset(evaluation.id, token)
        stored = self._store().eval(evaluation.id)
        if stored is None:
            raise StateError("evaluation does not exist")
        if stored.status != "blocked":
            raise StateError("evaluation not blocked")
        self._blocked.reblock(evaluation, token)

    async def _write(self, evaluation: Evaluation) -> None:
        await self._writer.write(codec.UpsertEvals([evaluation.to_api()]))
