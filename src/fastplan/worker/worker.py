"""The loop of one worker (worker-and-broker 6)."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol

from fastplan.clock import Clock
from fastplan.errors import FastplanError, IndexTimeout, PlanError
from fastplan.metrics import Metrics
from fastplan.scheduler.process import SCHEDULER_VERSION, process
from fastplan.scheduler.requests import CommittedPlan, CreateEval, ReblockEval, Request, Steps, SubmitPlan, SubmitReply, UpdateEval
from fastplan.scheduler.setting import Setting
from fastplan.state.plans import AnyPlan
from fastplan.state.snapshot import StateReader
from fastplan.structs import Evaluation
from fastplan.worker.back_off import FAST, SLOW, VERSION_MISMATCH, BackOff, Profile
from fastplan.worker.executor import Executor

logger = logging.getLogger("fastplan.worker")

QUEUES: Final = ("service", "batch", "system", "sysbatch")
"""Evaluations that every worker takes."""

_TRY_AGAIN: Final = ("No cluster leader", "plan queue is disabled")
"""Errors after which the same thing is sent again."""

_VERSION: Final = "calling scheduler version"


class WorkerStatus(enum.Enum):
    """Whether a worker works (worker-and-broker 6.1)."""

    STARTING = "Starting"
    STARTED = "Started"
    PAUSING = "Pausing"
    PAUSED = "Paused"
    RESUMING = "Resuming"
    STOPPING = "Stopping"
    STOPPED = "Stopped"


class WorkloadStatus(enum.Enum):
    """What a worker is doing."""

    RUNNING = "Running"
    WAITING_TO_DEQUEUE = "WaitingToDequeue"
    WAITING_FOR_INDEX = "WaitingForRaft"
    SCHEDULING = "Scheduling"
    SUBMITTING = "Submitting"
    BACK_OFF = "Backoff"
    PAUSED = "Paused"
    STOPPED = "Stopped"


class Dequeued(NamedTuple):
    """An evaluation that a worker holds. *wait_index*: the state must have it before anything is planned, 0 for the evaluation's own."""

    evaluation: Evaluation
    token: str
    wait_index: int


class Endpoints(Protocol):
    """The leader, as a worker sees it (worker-and-broker 4). Errors are those of `fastplan.errors`."""

    async def dequeue(self, queues: Sequence[str], timeout_s: float, version: int) -> Dequeued | None:
        """Return an evaluation of one of the queues, None if there is none in time."""
        ...

    async def ack(self, eval_id: str, token: str) -> None:
        """Say that an evaluation was handled."""
        ...

    async def nack(self, eval_id: str, token: str) -> None:
        """Give an evaluation back."""
        ...

    async def submit_plan(self, plan: AnyPlan) -> Any:
        """Verify and commit a plan; returns its `PlanResult`."""
        ...

    async def update_eval(self, evaluation: Evaluation, token: str) -> None:
        """Write the status of the evaluation that is held."""
        ...

    async def create_eval(self, evaluation: Evaluation, token: str) -> None:
        """Write an evaluation that follows the one that is held."""
        ...

    async def reblock_eval(self, evaluation: Evaluation, token: str) -> None:
        """Give the held evaluation, which is blocked still, to the tracker."""
        ...


class StateAccess(Protocol):
    """The state of the server on which a worker runs."""

    def latest_index(self) -> int:
        """Return the index of the state as it is now."""
        ...

    def snapshot(self) -> StateReader:
        """Return the state as it is now."""
        ...

    async def index_reached(self, index: int, timeout_s: float) -> None:
        """Wait until the state has *index*. Raises TimeoutError."""
        ...

    def queued_counts(self, namespace: str, job_id: str) -> Mapping[str, int]:
        """Return how many allocations of each group of a job wait for room, as the newest evaluation says."""
        ...


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Limits of a worker, in seconds (worker-and-broker 9)."""

    queues: Sequence[str] = QUEUES
    dequeue_timeout_s: float = 0.5
    index_limit_s: float = 5.0
    catch_up_limit_s: float = 50.0
    error_log_grace_s: float = 10.0
    dequeue_profile: Profile = FAST
    submit_profile: Profile = SLOW
    scheduler_version: int = field(default=SCHEDULER_VERSION)


class WorkerInfo(NamedTuple):
    """A worker at one moment; `started_s` is monotonic."""

    worker_id: str
    queues: tuple[str, ...]
    started_s: float
    status: WorkerStatus
    workload: WorkloadStatus


class WorkerMetrics:
    """The timers of all workers of a server (worker-and-broker 10)."""

    def __init__(self, metrics: Metrics) -> None:
        self.dequeue = metrics.timer("nomad.worker.dequeue_eval", "Time until a worker had an evaluation.")
        self.wait = metrics.timer("nomad.worker.wait_for_index", "Time until the state had the index that an evaluation needs.")
        self.schedule = metrics.timer("nomad.worker.invoke_scheduler", "Time of a scheduler, what it waits for included.")
        self.submit = metrics.timer("nomad.worker.submit_plan", "Time from handing a plan over to its answer, with the refresh of the state.")
        self.nacks = metrics.counter("fastplan.worker.nacks", "Evaluations that workers gave back.")


class Worker:
    """One worker: handles one evaluation at a time, as a coroutine on the event loop of its server; the scheduler computes where the executor says."""

    def __init__(
        self,
        worker_id: str,
        *,
        endpoints: Endpoints,
        state: StateAccess,
        clock: Clock,
        executor: Executor,
        new_setting: Callable[[], Setting],
        metrics: WorkerMetrics,
        is_shutting_down: Callable[[], bool] = lambda: False,
        settings: WorkerSettings | None = None,
        scheduler: Callable[[Evaluation, StateReader, Setting], Steps] = process,
    ) -> None:
        """*new_setting*: what a scheduler is told, made anew for each evaluation. *is_shutting_down*: whether the server ends. *scheduler*: handles one."""
        self.worker_id = worker_id
        self._endpoints = endpoints
        self._state = state
        self._clock = clock
        self._executor = executor
        self._new_setting = new_setting
        self._metrics = metrics
        self._is_shutting_down = is_shutting_down
        self._settings = settings or WorkerSettings()
        self._scheduler = scheduler
        self._started_s = clock.monotonic_s()
        self._status = WorkerStatus.STARTING
        self._workload = WorkloadStatus.RUNNING
        self._back_off = BackOff()
        self._stopping = asyncio.Event()
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._token = ""
        self._snapshot_index = 0
        self._plans = 0

    def info(self) -> WorkerInfo:
        """Return what the worker is and does."""
        return WorkerInfo(self.worker_id, tuple(self._settings.queues), self._started_s, self._status, self._workload)

    # --- pause, resume, stop (6.10) ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """Take no evaluation from now on; the one that is held is finished."""
        if self._status in (WorkerStatus.PAUSING, WorkerStatus.PAUSED, WorkerStatus.STOPPING, WorkerStatus.STOPPED):
            return
        self._status = WorkerStatus.PAUSING
        self._resumed.clear()

    def resume(self) -> None:
        """Take evaluations again."""
        if self._status is WorkerStatus.PAUSED:
            self._status = WorkerStatus.RESUMING
        elif self._status is WorkerStatus.PAUSING:
            self._status = WorkerStatus.STARTED
        else:
            return
        self._resumed.set()

    def stop(self) -> None:
        """End after the evaluation that is held; a worker that waits for an index gives it back."""
        if self._status is WorkerStatus.STOPPED:
            return
        self._status = WorkerStatus.STOPPING
        self._stopping.set()
        self._resumed.set()

    async def _pause_point(self) -> None:
        """Stand still while the worker is to pause."""
        if self._resumed.is_set():
            return
        before, self._workload = self._workload, WorkloadStatus.PAUSED
        # It may have been resumed and paused again before it woke.
        while not self._resumed.is_set():
            self._status = WorkerStatus.PAUSED
            await self._resumed.wait()
        self._workload = before
        if not self._stopping.is_set():
            self._status = WorkerStatus.STARTED

    # --- the loop (6.2) ---------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Handle evaluations until `stop`."""
        if not self._stopping.is_set() and self._status is WorkerStatus.STARTING:
            self._status = WorkerStatus.STARTED
        try:
            while not self._stopping.is_set():
                held = await self._dequeue()
                if held is None:
                    return
                if self._is_shutting_down():
                    await self._nack(held)
                    return
                if not await self._handle(held):
                    return
        finally:
            self._status = WorkerStatus.STOPPED
            self._workload = WorkloadStatus.STOPPED

    async def _handle(self, held: Dequeued) -> bool:
        """Handle one evaluation; return whether to go on."""
        wanted = held.wait_index or held.evaluation.modify_index or 1
        self._workload = WorkloadStatus.WAITING_FOR_INDEX
        try:
            with self._metrics.wait.time(self._clock):
                state = await self._snapshot_at(wanted, self._settings.index_limit_s)
        except IndexTimeout as error:
            logger.warning("worker %s: %s", self.worker_id, error)
            await self._nack(held)
            # The evaluation is free for others while this server catches up.
            await self._catch_up(wanted)
            return True
        if state is None:
            await self._nack(held)
            return False
        self._workload = WorkloadStatus.SCHEDULING
        try:
            with self._metrics.schedule.time(self._clock):
                await self._schedule(state, held)
        except Exception as error:
            # Whatever a scheduler does, the worker lives and the evaluation is tried again.
            level = logging.WARNING if isinstance(error, FastplanError) else logging.ERROR
            logger.log(level, "worker %s: evaluation %s failed: %s", self.worker_id, held.evaluation.id, error, exc_info=not isinstance(error, FastplanError))
            await self._nack(held)
            return True
        try:
            await self._endpoints.ack(held.evaluation.id, held.token)
        except FastplanError as error:
            # Not tried again: the nack timer is the safety net (6.9).
            logger.warning("worker %s: ack of evaluation %s failed: %s", self.worker_id, held.evaluation.id, error)
        return True

    async def _nack(self, held: Dequeued) -> None:
        self._metrics.nacks.add()
        try:
            await self._endpoints.nack(held.evaluation.id, held.token)
        except FastplanError as error:
            logger.warning("worker %s: nack of evaluation %s failed: %s", self.worker_id, held.evaluation.id, error)

    # --- fetching (6.3) ---------------------------------------------------------------------------------------------

    async def _dequeue(self) -> Dequeued | None:
        """Return the next evaluation, None only when the worker is to stop."""
        settings = self._settings
        start_s = self._clock.monotonic_s()
        while True:
            await self._pause_point()
            if self._stopping.is_set():
                return None
            self._workload = WorkloadStatus.WAITING_TO_DEQUEUE
            try:
                held = await self._endpoints.dequeue(settings.queues, settings.dequeue_timeout_s, settings.scheduler_version)
            except FastplanError as error:
                if self._clock.monotonic_s() - self._started_s > settings.error_log_grace_s and not self._stopping.is_set():
                    logger.warning("worker %s: no evaluation could be fetched: %s", self.worker_id, error)
                if await self._backed_off(VERSION_MISMATCH if _VERSION in str(error) else settings.dequeue_profile):
                    return None
                continue
            self._back_off.reset()
            if held is not None:
                self._metrics.dequeue.record(self._clock.monotonic_s() - start_s)
                self._workload = WorkloadStatus.RUNNING
                return held

    async def _backed_off(self, profile: Profile) -> bool:
        """Wait after a failure; return whether the worker is to stop."""
        before, self._workload = self._workload, WorkloadStatus.BACK_OFF
        try:
            return await self._stopped_within(self._back_off.next_delay_s(profile))
        finally:
            self._workload = before

    async def _stopped_within(self, delay_s: float) -> bool:
        try:
            await asyncio.wait_for(self._stopping.wait(), delay_s)
        except TimeoutError:
            return False
        return True

    # --- the state (6.5) --------------------------------------------------------------------------------------------

    async def _snapshot_at(self, index: int, limit_s: float, *, stoppable: bool = True) -> StateReader | None:
        """Return a snapshot that has *index*; None if the worker is told to stop while it waits. Raises IndexTimeout."""
        if self._state.latest_index() >= index:
            return self._state.snapshot()
        reached = asyncio.ensure_future(self._state.index_reached(index, limit_s))
        waits: set[asyncio.Future[Any]] = {reached}
        if stoppable:
            waits.add(asyncio.ensure_future(self._stopping.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if not reached.done():
                return None
            try:
                reached.result()
            except TimeoutError as error:
                raise IndexTimeout(limit_s, index) from error
        finally:
            for wait in waits:
                wait.cancel()
        return self._state.snapshot()

    async def _catch_up(self, index: int) -> None:
        try:
            await self._snapshot_at(index, self._settings.catch_up_limit_s)
        except IndexTimeout as error:
            logger.warning("worker %s: the state does not catch up: %s", self.worker_id, error)

    # --- the scheduler (6.6) ----------------------------------------------------------------------------------------

    async def _schedule(self, state: StateReader, held: Dequeued) -> None:
        self._token = held.token
        self._snapshot_index = state.latest_index()
        self._plans = 0
        steps = self._scheduler(held.evaluation.copy(), state, self._new_setting())
        answer: SubmitReply | None = None
        problem: FastplanError | None = None
        while True:
            request = await self._executor.run(_advance, steps, answer, problem)
            if request is None:
                return
            try:
                answer, problem = await self._perform(request), None
            except FastplanError as error:
                answer, problem = None, error

    async def _perform(self, request: Request) -> SubmitReply | None:
        if self._is_shutting_down():
            raise PlanError("shutdown while planning")
        if isinstance(request, SubmitPlan):
            self._workload = WorkloadStatus.SUBMITTING
            try:
                with self._metrics.submit.time(self._clock):
                    return await self._submit(request.plan)
            finally:
                self._workload = WorkloadStatus.SCHEDULING
        await self._write(request)
        return None

    async def _submit(self, plan: AnyPlan) -> SubmitReply:
        """Submit a plan, and refresh the state where the answer says so (6.7).

        The index of the first snapshot stays that of the run: an evaluation that is blocked later may be released once too often, never missed.
        """
        outgoing: Any = plan
        outgoing.eval_token = self._token
        outgoing.snapshot_index = self._snapshot_index
        # With the token it names the plan, however often it is sent.
        self._plans += 1
        outgoing.number = self._plans
        result: Any = await self._again(lambda: self._endpoints.submit_plan(plan))
        if result is None:
            raise PlanError("missing result")
        committed: CommittedPlan = result
        if not result.refresh_index:
            return SubmitReply(committed, None)
        state = await self._snapshot_at(result.refresh_index, self._settings.index_limit_s, stoppable=False)
        return SubmitReply(committed, state)

    async def _again(self, send: Callable[[], Any]) -> Any:
        """Send something, again and again while there is no leader to take it."""
        while True:
            try:
                answer = await send()
            except FastplanError as error:
                if not any(text in str(error) for text in _TRY_AGAIN) or await self._backed_off(self._settings.submit_profile):
                    raise
                continue
            self._back_off.reset()
            return answer

    async def _write(self, request: UpdateEval | CreateEval | ReblockEval) -> None:
        """Write an evaluation (6.8)."""
        evaluation = request.evaluation
        evaluation.snapshot_index = self._snapshot_index
        now_ns = self._clock.now_ns()
        if isinstance(request, CreateEval):
            evaluation.create_time = evaluation.modify_time = now_ns
            await self._again(lambda: self._endpoints.create_eval(evaluation, self._token))
            return
        evaluation.modify_time = now_ns if now_ns > evaluation.create_time else evaluation.create_time + 1
        if isinstance(request, UpdateEval):
            await self._again(lambda: self._endpoints.update_eval(evaluation, self._token))
            return
        known = self._state.queued_counts(evaluation.namespace, evaluation.job_id)
        if any(known[group] != queued for group, queued in evaluation.queued_allocations.items() if group in known):
            await self._again(lambda: self._endpoints.update_eval(evaluation, self._token))
        await self._again(lambda: self._endpoints.reblock_eval(evaluation, self._token))


def _advance(steps: Steps, answer: SubmitReply | None, problem: FastplanError | None) -> Request | None:
    """Let a scheduler go on until its next request; None at its end."""
    try:
        return steps.send(answer) if problem is None else steps.throw(problem)
    except StopIteration:
        return None
