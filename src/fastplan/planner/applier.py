"""The applier: drives the plan pipeline on an event loop, for as long as this server leads (plan-apply 6.1)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from fastplan.clock import Clock
from fastplan.errors import ReplicationError
from fastplan.metrics import Metrics
from fastplan.planner.metrics import PlanMetrics
from fastplan.planner.pipeline import Entries, Log, Pending, Pipeline, PipelineSettings, View
from fastplan.planner.queue import PlanQueue
from fastplan.planner.tracker import RejectionTracker, TrackerSettings
from fastplan.state.plans import AnyPlan

logger = logging.getLogger("fastplan.planner")


TIMER_LEAST_S: Final = 0.001
"""A deadline that is nearly due is looked at again no sooner than this: clocks of different grain must not make the loop spin."""


class AppliedState(Protocol):
    """What the applier asks of the state machine."""

    @property
    def foreign_changes(self) -> int:
        """How many entries other than plans have been applied so far."""
        ...

    def result_of(self, key: bytes) -> Any:
        """Return what became of the entry with *key*, None if it is not among the recent ones."""
        ...

    def set_listener(self, listener: Callable[[], None] | None) -> None:
        """Have *listener* called after every batch of entries that was applied."""
        ...


class WaitingLog(Log, Protocol):
    """A log that can be waited for."""

    async def ready(self) -> None:
        """Wait until there is room for entries."""
        ...

    async def barrier(self, timeout_s: float | None = None) -> int:
        """Wait until everything proposed before is applied."""
        ...


class Applier:
    """Takes plans, commits them, answers. All calls on one event loop; `enqueue` also from other threads.

    Every leadership gets a pipeline of its own, so a leadership that is lost and regained at once is served by exactly one
    (plan-apply 6.1): the old pipeline only answers what it had sent.
    """

    def __init__(
        self,
        *,
        log: WaitingLog,
        state: AppliedState,
        new_view: Callable[[], View],
        entries: Entries,
        clock: Clock,
        metrics: Metrics | None = None,
        settings: PipelineSettings | None = None,
        tracker: TrackerSettings | None = None,
    ) -> None:
        """*new_view*: makes the view of a leadership, with nothing in flight. Raises `InvalidInput` for settings that make no sense."""
        self.metrics = PlanMetrics(metrics if metrics is not None else Metrics())
        self.queue: PlanQueue[AnyPlan] = PlanQueue(clock)
        self.tracker = RejectionTracker(clock, tracker)
        self.pipeline: Pipeline | None = None
        self.generation = 0
        self._log = log
        self._state = state
        self._new_view = new_view
        self._entries = entries
        self._clock = clock
        self._settings = settings or PipelineSettings()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pump_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: set[int] = set()

    # --- for submitters ---------------------------------------------------------------------------------------------

    def enqueue(self, plan: AnyPlan) -> Pending:
        """Queue a plan; await what is returned for its `PlanResult`, or the error. Raises `QueueDisabled`."""
        return self.queue.enqueue(plan)

    async def submit(self, plan: AnyPlan) -> Any:
        """Queue a plan and return its `PlanResult`. Raises `PlanError`, or what the log said."""
        return await self.queue.enqueue(plan)

    # --- leadership -------------------------------------------------------------------------------------------------

    def lead(self, term: int) -> None:
        """Begin to serve under leadership *term*; state holds everything committed before it."""
        self.step_down()
        self._loop = asyncio.get_running_loop()
        self.generation += 1
        self.pipeline = Pipeline(
            term=term,
            queue=self.queue,
            view=self._new_view(),
            entries=self._entries,
            log=self._log,
            changes=lambda: self._state.foreign_changes,
            recall=self._state.result_of,
            clock=self._clock,
            tracker=self.tracker,
            metrics=self.metrics,
            settings=self._settings,
        )
        self._state.set_listener(self._wake)
        self.queue.set_listener(self._wake)
        self.queue.set_enabled(True)

    def step_down(self) -> None:
        """End the leadership: what is queued is flushed, what was sent is answered as the log decides. Harmless without one."""
        pipeline = self.pipeline
        if pipeline is None:
            return
        self.pipeline = None
        self.queue.set_listener(None)
        self.queue.set_enabled(False)
        self._state.set_listener(None)
        pipeline.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def drained(self) -> None:
        """Wait until nothing is queued, verified or in flight."""
        while len(self.queue) or (self.pipeline is not None and self.pipeline.unfinished()) or self._tasks:
            if self._tasks:
                await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
            else:
                await asyncio.sleep(0.001)

    def report(self) -> None:
        """Refresh the gauges that are read once a second (plan-apply 7.4, 9)."""
        self.metrics.queue_depth.set(len(self.queue))
        self.metrics.node_score.replace(self.tracker.scores())

    # --- driving ----------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Have the pipeline look once, soon: whatever arrives until then is taken as one batch."""
        if self._pump_scheduled or self._loop is None:
            return
        self._pump_scheduled = True
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._loop.call_soon(self._pump)
        else:
            self._loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        self._pump_scheduled = False
        if self.pipeline is not None:
            self._drive(self.pipeline, self.pipeline.pump)

    def _drive(self, pipeline: Pipeline, step: Callable[[], None]) -> None:
        """Let a pipeline work, then arrange for it to be called when there is more to do."""
        try:
            step()
        except Exception as error:
            # A defect: nothing may be verified on a view that is not understood any more, and nobody may be left waiting.
            logger.exception("the plan applier failed")
            pipeline.abandon(error)
        for batch in pipeline.in_flight:
            if id(batch) not in self._watched:
                self._watched.add(id(batch))
                self._spawn(self._watch(pipeline, batch))
        if pipeline is not self.pipeline:
            return
        if pipeline.stopped:
            # The log said so before the event that ends this leadership arrived, or something failed.
            logger.warning("the plan pipeline of term %d has stopped", pipeline.term)
            self.step_down()
            return
        if pipeline.needs_barrier or pipeline.needs_room:
            if not pipeline.resuming:
                pipeline.resuming = True
                self._spawn(self._resume(pipeline))
            return
        deadline_s = pipeline.next_deadline_s()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline_s is not None and self._loop is not None:
            self._timer = self._loop.call_later(max(deadline_s - self._clock.monotonic_s(), TIMER_LEAST_S), self._wake)

    async def _watch(self, pipeline: Pipeline, batch: Any) -> None:
        """Call the pipeline when a batch has ended; it reads the outcome itself."""
        try:
            await batch.handle
        except ReplicationError as error:
            logger.warning("a batch of %d plans failed: %s", len(batch.plans), error)
        finally:
            self._watched.discard(id(batch))
        self._drive(pipeline, pipeline.pump)

    async def _resume(self, pipeline: Pipeline) -> None:
        """Wait for the log on behalf of a pipeline that holds back."""
        try:
            if pipeline.needs_barrier:
                await self._log.barrier()
            else:
                await self._log.ready()
        except (ReplicationError, TimeoutError) as error:
            logger.warning("the plan pipeline of term %d stops: %s", pipeline.term, error)
            pipeline.resuming = False
            pipeline.stop()
            self._drive(pipeline, pipeline.pump)
            return
        pipeline.resuming = False
        self._drive(pipeline, pipeline.resume)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
