"""What a server does while it leads (worker-and-broker 7)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Callable, Coroutine
from typing import Any

from fastplan import codec
from fastplan.broker import (
    FAILED_QUEUE,
    BlockedEvals,
    BrokerDisabled,
    BrokerGate,
    EvalBroker,
    canceled_copies,
    duplicate_copies,
    failed_and_follow_up,
    failed_copies,
)
from fastplan.errors import FastplanError
from fastplan.planner.applier import Applier
from fastplan.scheduler.process import JOB_TYPES
from fastplan.server.applied import AppliedEntries
from fastplan.server.commands import CommandWriter
from fastplan.server.config import ServerConfig
from fastplan.server.operations import Unblock
from fastplan.state import StateStore
from fastplan.structs import Evaluation

logger = logging.getLogger("fastplan.server")

CANCELABLE_BATCH = 728
"""Superseded evaluations that are written at a time (worker-and-broker 3.12)."""


class Leadership:
    """Broker, tracker, applier and reapers, switched on and off together. All calls on the event loop of the server."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        broker: EvalBroker,
        gate: BrokerGate,
        blocked: BlockedEvals,
        applier: Applier,
        applied: AppliedEntries,
        writer: CommandWriter,
        randomness: random.Random,
        new_id: Callable[[], str],
    ) -> None:
        self._config = config
        self._broker = broker
        self._gate = gate
        self._blocked = blocked
        self._applier = applier
        self._applied = applied
        self._writer = writer
        self._randomness = randomness
        self._new_id = new_id
        self._clock = config.time
        self._tasks: list[asyncio.Task[None]] = []
        self._cancelable = asyncio.Event()
        self._superseded: list[Evaluation] = []
        self._duplicates: list[Evaluation] = []
        self._unknown: list[Evaluation] = []
        self._unknown_came = asyncio.Event()

    @property
    def _store(self) -> StateStore:
        return self._applied.store

    # --- gain and loss ----------------------------------------------------------------------------------------------

    def gain(self, term: int) -> None:
        """Begin to lead; the state holds everything committed before. An earlier leadership ends first."""
        if self._writer.term is not None:
            self.lose()
        self._writer.term = term
        self._applier.lead(term)
        if not self._is_paused():
            self._enable()
        for work in (self._reap_failed, self._reap_cancelable, self._reap_duplicates, self._reap_unknown, self._unblock_failed, self._prune):
            self._tasks.append(asyncio.get_running_loop().create_task(self._while_leading(work)))

    def lose(self) -> None:
        """End. What workers hold is void: another leader delivers it again, under other tokens."""
        self._writer.term = None
        self._applier.step_down()
        self._disable()
        self.stop_reaping()
        self._superseded, self._duplicates = [], []
        self._unknown.clear()
        self._unknown_came.clear()

    def stop_reaping(self) -> None:
        """Begin nothing any more on one's own; workers may finish what they hold."""
        for task in self._tasks:
            task.cancel()
        self._tasks = []

    def _is_paused(self) -> bool:
        config = self._store.scheduler_config()
        return config is not None and bool(config.get("PauseEvalBroker"))

    def _enable(self) -> None:
        self._broker.set_enabled(True)
        self._blocked.set_enabled(True)
        self._applied.follow_evals(self._written)
        self._restore()

    def _disable(self) -> None:
        self._applied.follow_evals(None)
        self._broker.set_enabled(False)
        self._blocked.set_enabled(False)

    def follow_pause_switch(self) -> None:
        """Switch broker and tracker as the scheduler configuration says, after it has changed."""
        if self._writer.term is None or self._broker.enabled is not self._is_paused():
            return
        if self._is_paused():
            self._disable()
        else:
            self._enable()

    def _restore(self) -> None:
        """Take up the evaluations that the state holds (worker-and-broker 7)."""
        store = self._store
        for evaluation in store.evals():
            if evaluation.status in ("pending", "blocked") and evaluation.type not in JOB_TYPES:
                self._note_unknown(evaluation)
            elif evaluation.status == "pending":
                self._broker.restore(evaluation)
            elif evaluation.status == "blocked":
                if self._config.restore_unblock_check and max(store.table_index("nodes"), store.table_index("allocs")) > evaluation.snapshot_index:
                    self._broker.restore(evaluation)
                else:
                    self._blocked.block(evaluation)

    def _written(self, evaluations: list[Evaluation]) -> None:
        """Hand evaluations that entries wrote to whoever waits for their like (worker-and-broker 2.2)."""
        pending: list[tuple[Evaluation, str]] = []
        for evaluation in evaluations:
            if evaluation.status in ("pending", "blocked") and evaluation.type not in JOB_TYPES:
                self._note_unknown(evaluation)
            elif evaluation.status == "pending":
                pending.append((evaluation, ""))
            elif evaluation.status == "blocked":
                self._blocked.block(evaluation)
            elif evaluation.status == "complete" and not evaluation.failed_tg_allocs:
                self._blocked.untrack(evaluation.namespace, evaluation.job_id)
        if pending:
            self._broker.enqueue_all(pending)

    def _note_unknown(self, evaluation: Evaluation) -> None:
        self._unknown.append(evaluation)
        self._unknown_came.set()

    @property
    def unknown(self) -> int:
        """How many evaluations wait for their end because no scheduler takes them."""
        return len(self._unknown)

    def unblock(self, unblock: Unblock, index: int) -> None:
        """Let evaluations go on for which room has appeared at *index* (worker-and-broker 5.4)."""
        match unblock.kind:
            case "class":
                self._blocked.unblock(unblock.computed_class, index)
            case "class_and_quota":
                self._blocked.unblock_class_and_quota(unblock.computed_class, unblock.quota, index)
            case "node":
                self._blocked.unblock_node(unblock.node_id)

    # --- reapers ----------------------------------------------------------------------------------------------------

    def acked(self) -> None:
        """Look for superseded evaluations: an ack may have left some."""
        self._cancelable.set()

    async def _while_leading(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Repeat *work* until the leadership ends. What fails is tried again: it is still there."""
        while True:
            try:
                await work()
            except Exception as error:
                logger.log(
                    logging.WARNING if isinstance(error, FastplanError) else logging.ERROR,
                    "%s failed: %s",
                    work.__name__.strip("_"),
                    error,
                    exc_info=not isinstance(error, FastplanError),
                )
                await asyncio.sleep(self._config.reap_interval_s)

    async def _write(self, evaluations: list[Evaluation]) -> None:
        await self._writer.write(codec.UpsertEvals([evaluation.to_api() for evaluation in evaluations]))

    async def _reap_failed(self) -> None:
        """Fail for good what was delivered too often, and try again much later (worker-and-broker 3.13)."""
        try:
            delivery = await self._gate.dequeue((FAILED_QUEUE,), self._config.reap_interval_s)
        except BrokerDisabled:
            # An operator has paused it; from now on the gate waits.
            return
        if delivery is None:
            return
        evaluation = delivery.evaluation
        if evaluation.type != "_core":
            job_exists = self._store.jobs_view.get(evaluation.namespace or "default", evaluation.job_id) is not None
            await self._write(
                failed_and_follow_up(
                    evaluation,
                    job_exists=job_exists,
                    delivery_limit=self._config.delivery_limit,
                    baseline_s=self._config.failed_follow_up_baseline_s,
                    range_s=self._config.failed_follow_up_range_s,
                    randomness=self._randomness,
                    now_ns=self._clock.now_ns(),
                    new_id=self._new_id,
                )
            )
        self._broker.ack(evaluation.id, delivery.token)

    async def _reap_cancelable(self) -> None:
        """Cancel what a newer evaluation of the same job has made needless (worker-and-broker 3.12)."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._cancelable.wait(), self._config.reap_cancelable_interval_s)
        self._cancelable.clear()
        while True:
            # What could not be written stays in the list.
            self._superseded += self._broker.cancelable(CANCELABLE_BATCH - len(self._superseded))
            if not self._superseded:
                return
            await self._write(canceled_copies(self._superseded, self._clock.now_ns()))
            self._superseded = []

    async def _reap_duplicates(self) -> None:
        """Cancel blocked evaluations of jobs that have a newer one (worker-and-broker 5.7)."""
        await asyncio.sleep(self._config.reap_interval_s)
        self._duplicates += self._blocked.duplicates()
        if self._duplicates:
            await self._write(duplicate_copies(self._duplicates, self._clock.now_ns()))
            self._duplicates = []

    async def _reap_unknown(self) -> None:
        """Fail evaluations that no scheduler takes: nobody would ever ack them, and others of their job would wait for that."""
        await self._unknown_came.wait()
        ending = list(self._unknown)
        await self._write(failed_copies(ending, self._clock.now_ns(), lambda evaluation: f"unknown scheduler '{evaluation.type}'"))
        del self._unknown[: len(ending)]
        if not self._unknown:
            self._unknown_came.clear()

    async def _unblock_failed(self) -> None:
        await asyncio.sleep(self._config.unblock_failed_interval_s)
        self._blocked.unblock_failed()

    async def _prune(self) -> None:
        await asyncio.sleep(self._config.prune_interval_s)
        self._blocked.prune()
