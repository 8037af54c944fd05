"""The server: everything put together, embedded by default (worker-and-broker 7)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from fastplan import codec
from fastplan.broker import BlockedEvals, BlockedMetrics, BlockedSettings, BrokerGate, BrokerMetrics, BrokerSettings, EvalBroker
from fastplan.errors import Closed, NotLeader, OutcomeUnknown
from fastplan.fsm import StateMachine
from fastplan.metrics import Metrics
from fastplan.planner.applier import Applier
from fastplan.planner.entry import EntryMaker
from fastplan.planner.result import PlanResult
from fastplan.planner.submit import SubmitEndpoint
from fastplan.planner.tracker import TrackerSettings
from fastplan.planner.view import OptimisticView
from fastplan.replication import Gained, Lost, Stopped
from fastplan.replication.local import LocalReplicator, LocalSettings
from fastplan.rules import Rules
from fastplan.scheduler.config import default_scheduler_config
from fastplan.scheduler.setting import Setting
from fastplan.server import operations
from fastplan.server.applied import AppliedEntries
from fastplan.server.commands import CommandWriter
from fastplan.server.config import ServerConfig
from fastplan.server.dry_run import DryRun, dry_run, registered
from fastplan.server.endpoints import LeaderEndpoints
from fastplan.server.leadership import Leadership
from fastplan.server.locks import SubjectLocks
from fastplan.server.operations import Operation
from fastplan.state import StateReader, StateSnapshot, StateStore
from fastplan.state.plans import AnyPlan
from fastplan.structs import Allocation, DrainStrategy, Job, Node
from fastplan.worker import Executor, InlineExecutor, StateAccess, ThreadExecutor, Worker, WorkerMetrics, WorkerSettings

logger = logging.getLogger("fastplan.server")

FIRST_ENTRIES_AGAIN_S: Final = 0.05
"""A leadership that ends while a server begins is waited out so long."""

CLOSE_S: Final = 10.0
"""How long workers may take to finish what they hold when the server ends."""


@dataclass(frozen=True, slots=True)
class Written:
    """What an operation wrote: the index of its entry, 0 if nothing had to be written, and the evaluations that it created."""

    index: int
    evaluation_ids: tuple[str, ...]


class _State:
    """The state of this server, for its workers. Meets `fastplan.worker.StateAccess`."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine

    def latest_index(self) -> int:
        return self._machine.store.latest_index()

    def snapshot(self) -> StateReader:
        return self._machine.store.snapshot()

    async def index_reached(self, index: int, timeout_s: float) -> None:
        await self._machine.store.index_reached(index, timeout_s)

    def queued_counts(self, namespace: str, job_id: str) -> Mapping[str, int]:
        return operations.queued_counts(self._machine.store, namespace, job_id)


class Server:
    """One server with log, state, broker, applier and workers. An async context manager; all calls on the event loop that entered it.

    Operations return what they wrote, when it is durable and applied. They raise StateError for what does not exist or may not be done, InvalidInput for
    what makes no sense, NotLeader while the server does not lead, and what the log says. Whoever stops waiting for an operation does not undo it. A
    server begins once; before it has begun and after it has ended, calls raise Closed.
    """

    def __init__(
        self,
        config: ServerConfig | None = None,
        *,
        new_log: Callable[[StateMachine], Any] | None = None,
        executor: Executor | None = None,
        seen_by_worker: Callable[[StateAccess], StateAccess] | None = None,
        on_plan: Callable[[AnyPlan, PlanResult, float], None] | None = None,
    ) -> None:
        """*new_log*: makes the log, a `Replicator`, around the state machine. *executor*: where schedulers compute. None: as the configuration says.

        *seen_by_worker*: what a worker sees instead of the state, one call for each. *on_plan*: told of each plan of a worker that was answered, and how
        many seconds that took.
        """
        self.config = config or ServerConfig()
        self.metrics = Metrics()
        clock = self.config.time
        self._clock = clock
        seed = self.config.seed
        self._randomness = random.Random(seed)
        self._ids = random.Random(self._randomness.getrandbits(128))
        # Of their own: what is only tried must not change what happens later.
        self._dry_runs = random.Random(None if seed is None else f"{seed} dry runs")
        self.machine = StateMachine(metrics=self.metrics, clock=clock)
        self._new_log = new_log
        self._seen_by_worker = seen_by_worker
        self._on_plan = on_plan
        self._executor = executor or (ThreadExecutor(self.config.workers) if self.config.executor == "threads" else InlineExecutor())
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._log: Any = None
        self._applied = AppliedEntries(self.machine)
        self.broker = EvalBroker(clock, self._broker_settings(), random.Random(self._randomness.getrandbits(128)), BrokerMetrics(self.metrics))
        self.gate = BrokerGate(self.broker, clock)
        blocked_settings = BlockedSettings(prune_threshold_s=self.config.prune_threshold_s)
        self.blocked = BlockedEvals(clock, blocked_settings, self.broker.enqueue_all, BlockedMetrics(self.metrics))
        self._workers: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._leads = asyncio.Event()
        self._operating: set[asyncio.Task[Written]] = set()
        self._failure: Exception | None = Closed("the server has not begun")
        self._begun = False
        self._shutting_down = False
        self._locks = SubjectLocks()

    def _broker_settings(self) -> BrokerSettings:
        config = self.config
        return BrokerSettings(
            nack_timeout_s=config.nack_timeout_s,
            delivery_limit=config.delivery_limit,
            initial_nack_delay_s=config.initial_nack_delay_s,
            subsequent_nack_delay_s=config.subsequent_nack_delay_s,
            fair_share=config.fair_share,
        )

    # --- life -------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        """Recover, lead, and start the workers. Raises the errors of the log, which is then closed, and Closed for a server that has begun before."""
        if self._begun:
            raise Closed("a server begins once")
        self._begun = True
        self._log = self._open_log()
        self._failure = None
        events = self._log.events()
        self._writer = CommandWriter(self._log, self._clock)
        self._applier = self._make_applier()
        self._leadership = Leadership(
            self.config,
            broker=self.broker,
            gate=self.gate,
            blocked=self.blocked,
            applier=self._applier,
            applied=self._applied,
            writer=self._writer,
            randomness=self._randomness,
            new_id=self._new_id,
        )
        try:
            await self._log.start()
            self._draw_anew()
            self._tasks.append(asyncio.get_running_loop().create_task(self._follow(events)))
            await self._make_first_entries()
        except BaseException:
            await self._close()
            raise
        self._start_workers()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Let workers finish what they hold, answer what was submitted, flush and close."""
        await self._close()

    def _draw_anew(self) -> None:
        """Draw other ids than an earlier run with this seed has drawn before the log ended where it ends."""
        if self.config.seed is not None and self.machine.applied:
            self._randomness.seed(f"{self.config.seed} {self.machine.applied}")
            self._ids.seed(self._randomness.getrandbits(128))

    def _open_log(self) -> Any:
        if self._new_log is not None:
            return self._new_log(self.machine)
        directory = self.config.data_dir
        if directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="fastplan-server-")
            directory = self._directory.name
        settings = LocalSettings(
            directory=Path(directory), node_id="server", low_water_bytes=self.config.low_water_bytes, reserve_bytes=self.config.reserve_bytes
        )
        return LocalReplicator(settings, self.machine)

    def _make_applier(self) -> Applier:
        tracked = self.config.rules is Rules.STRICT if self.config.rejection_tracker is None else self.config.rejection_tracker
        return Applier(
            log=self._log,
            state=self._applied,
            new_view=lambda: OptimisticView(lambda: self.machine.store, self.config.rules),
            entries=EntryMaker(lambda: self.machine.store, lambda: self.machine.applied, new_id=self._new_id),
            clock=self._clock,
            metrics=self.metrics,
            tracker=TrackerSettings(enabled=tracked),
        )

    async def _make_first_entries(self) -> None:
        """Write what every cluster has from its first day: the scheduler configuration with its defaults (schedulers 1.4)."""
        while True:
            await self._leads.wait()
            self._check_alive()
            try:
                if self.machine.store.scheduler_config() is None:
                    await self._writer.write(codec.SetSchedulerConfig(default_scheduler_config()))
            except (NotLeader, OutcomeUnknown) as error:
                logger.warning("the first entries are to be written again: %s", error)
                await asyncio.sleep(FIRST_ENTRIES_AGAIN_S)
            else:
                return

    def _start_workers(self) -> None:
        config = self.config
        plans: SubmitEndpoint[Any] = SubmitEndpoint(_Jobs(self.machine), self.broker, self._applier, self._clock, self._applier.metrics)
        self._endpoints = LeaderEndpoints(
            broker=self.broker,
            gate=self.gate,
            blocked=self.blocked,
            writer=self._writer,
            plans=plans,
            store=lambda: self.machine.store,
            on_ack=self._leadership.acked,
            on_plan=self._on_plan,
            clock=self._clock,
        )
        metrics = WorkerMetrics(self.metrics)
        for number in range(config.workers):
            worker = Worker(
                f"worker-{number}",
                endpoints=self._endpoints,
                state=_State(self.machine) if self._seen_by_worker is None else self._seen_by_worker(_State(self.machine)),
                clock=self._clock,
                executor=self._executor,
                new_setting=self._new_setting,
                metrics=metrics,
                is_shutting_down=lambda: self._shutting_down,
                settings=WorkerSettings(index_limit_s=config.index_limit_s, catch_up_limit_s=10 * config.index_limit_s),
            )
            self._workers.append(worker)
            self._tasks.append(asyncio.get_running_loop().create_task(worker.run()))
        if self._writer.term is not None:
            self._pause_workers()

    def _new_setting(self, seeds: random.Random | None = None) -> Setting:
        return Setting(
            now_ns=self._clock.now_ns,
            rules=self.config.rules,
            overlap=self.config.overlap,
            randomness=random.Random((seeds or self._ids).getrandbits(128)),
            deployment_watcher=self.config.deployment_watcher,
        )

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self._ids.getrandbits(128), version=4))

    async def _close(self) -> None:
        for worker in self._workers:
            worker.stop()
        if self._log is not None:
            self._leadership.stop_reaping()
        # Workers that only wait for work end at once.
        self.gate.close()
        running = self._tasks[1:]
        if running:
            await asyncio.wait(running, timeout=CLOSE_S)
        # What is still at work waits for a log that takes nothing.
        self._shutting_down = True
        if self._log is not None:
            if self._writer.term is not None:
                self._leadership.lose()
            await self._applier.drained()
            await self._log.stop()
        if self._operating:
            _, waiting = await asyncio.wait(self._operating, timeout=CLOSE_S)
            for task in waiting:
                task.cancel()
        self._failure = self._failure or Closed("the server has ended")
        if self._tasks:
            self._tasks[0].cancel()
            await asyncio.wait(self._tasks)
        if self._workers:
            self._executor.close()
        if self._directory is not None:
            with contextlib.suppress(OSError):
                self._directory.cleanup()

    async def _follow(self, events: Any) -> None:
        """Lead and cease to lead as the log says, in the order of worker-and-broker 7."""
        async for event in events:
            if isinstance(event, Gained):
                self._pause_workers()
                try:
                    self._leadership.gain(event.term)
                except Exception as error:
                    # A defect. Nobody may go on waiting for this server, nor think that it leads.
                    logger.exception("the server cannot lead")
                    self._fail(error)
                    return
                self._leads.set()
            elif isinstance(event, Lost):
                self._leads.clear()
                self._cease()
            elif isinstance(event, Stopped):
                if event.error is not None:
                    logger.error("the log has stopped: %s", event.error)
                self._fail(event.error or Closed("the server has ended"))
                return

    def _cease(self) -> None:
        self._leadership.lose()
        for worker in self._workers:
            worker.resume()

    def _fail(self, error: Exception) -> None:
        """Be useless from now on, and let whoever waits for the server hear it."""
        self._failure = error
        self._cease()
        self._leads.set()

    def _pause_workers(self) -> None:
        """Spare a leader: three quarters of its workers pause (worker-and-broker 6.11)."""
        count = len(self._workers)
        if self.config.pause_when_leading and count > 1:
            for worker in self._workers[: 3 * count // 4]:
                worker.pause()

    # --- reading ----------------------------------------------------------------------------------------------------

    def snapshot(self) -> StateSnapshot:
        """Return the state as it is now; it never changes, and may be read in any thread."""
        return self.machine.store.snapshot()

    def latest_index(self) -> int:
        """Return the index of the last change of the state."""
        return self.machine.store.latest_index()

    async def wait_for_index(self, index: int, timeout_s: float) -> None:
        """Wait until the state has *index*. Raises TimeoutError."""
        await self.machine.store.index_reached(index, timeout_s)

    def report(self) -> dict[str, dict[str, Any]]:
        """Return every figure of this server by name, brought up to date now (worker-and-broker 10). `metrics` alone lags behind: most gauges are only
        worked out here.
        """
        self._check_alive()
        self.broker.report()
        self.blocked.report()
        self._applier.report()
        return self.metrics.snapshot()

    @property
    def workers(self) -> Sequence[Worker]:
        """The workers."""
        return tuple(self._workers)

    async def settled(self, timeout_s: float) -> None:
        """Wait until there is nothing to do: no evaluation ready, held or waiting for another one of its job, no plan queued or in flight.

        Evaluations that are delayed or blocked do not count. Never moves the clock, but what is due by now is done. Raises TimeoutError, which says what
        is left, and what has stopped the log.
        """
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        quiet = 0
        while True:
            self._check_alive()
            self.broker.advance()
            left = self._left()
            quiet = 0 if left else quiet + 1
            if quiet > 2:
                return
            if left and loop.time() >= deadline_s:
                raise TimeoutError(f"after {timeout_s:g} s there are still {', '.join(left)}")
            # A few turns of the loop at once: what is on its way between two parts shows up in one of them.
            await asyncio.sleep(0 if not left else 0.001)

    def _left(self) -> list[str]:
        stats = self.broker.stats()
        pipeline = self._applier.pipeline
        counts = (
            (stats.total_ready, "ready evaluations"),
            (stats.total_unacked, "evaluations held by workers"),
            (stats.total_pending, "evaluations that wait for another one of their job"),
            (len(self._applier.queue), "queued plans"),
            (pipeline.unfinished() if pipeline is not None else 0, "plans in flight"),
            (self._writer.writing, "commands on their way"),
            (self._leadership.unknown, "evaluations that no scheduler takes"),
        )
        return [f"{count} {what}" for count, what in counts if count]

    def _check_alive(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)

    # --- operations -------------------------------------------------------------------------------------------------

    async def _operate(self, work: Callable[[StateStore], Operation], *subjects: tuple[str, ...]) -> Written:
        """Work out an operation on the newest state and commit it; one at a time for each subject.

        It goes on when its caller is cancelled: once the log has it, the next one on the subject must see it, and who waits for room must hear of it.
        """
        self._check_alive()
        if self._writer.term is None:
            raise NotLeader("No cluster leader")
        task = asyncio.get_running_loop().create_task(self._perform(work, subjects))
        self._operating.add(task)
        task.add_done_callback(self._operated)
        return await asyncio.shield(task)

    def _operated(self, task: asyncio.Task[Written]) -> None:
        self._operating.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.debug("an operation failed: %s", task.exception())

    async def _perform(self, work: Callable[[StateStore], Operation], subjects: tuple[tuple[str, ...], ...]) -> Written:
        async with self._locks.holding(*subjects):
            operation = work(self.machine.store)
            index = await self._writer.write(operation.entry())
        for unblock in operation.unblocks:
            self._leadership.unblock(unblock, index)
        return Written(index, tuple(evaluation.id for evaluation in operation.evaluations))

    async def register_job(self, job: Job) -> Written:
        """Register a job, or its next version, and have it scheduled."""
        return await self._operate(lambda state: operations.register_job(state, job, **self._stamps()), _job_key(job.namespace, job.id))

    async def deregister_job(self, namespace: str, job_id: str, purge: bool = False) -> Written:
        """Stop a job, or forget it altogether; its allocations are stopped."""
        return await self._operate(
            lambda state: operations.deregister_job(state, namespace, job_id, purge=purge, **self._stamps()), _job_key(namespace, job_id)
        )

    async def scale_job(self, namespace: str, job_id: str, group: str, count: int) -> Written:
        """Set the count of a group."""
        return await self._operate(lambda state: operations.scale_job(state, namespace, job_id, group, count, **self._stamps()), _job_key(namespace, job_id))

    async def dispatch_job(self, namespace: str, job_id: str, payload: bytes = b"", meta: Mapping[str, str] | None = None) -> Written:
        """Start a child of a parameterised job."""
        return await self._operate(
            lambda state: operations.dispatch_job(state, namespace, job_id, payload, dict(meta or {}), **self._stamps()), _job_key(namespace, job_id)
        )

    async def register_node(self, node: Node) -> Written:
        """Register a node, or what has changed of it."""
        return await self._operate(lambda state: operations.register_node(state, node, **self._stamps()), ("node", node.id))

    async def update_node_status(self, node_id: str, status: str) -> Written:
        """Set the status of a node."""
        return await self._operate(lambda state: operations.update_node_status(state, node_id, status, **self._stamps()), ("node", node_id))

    async def update_node_eligibility(self, node_id: str, eligible: bool) -> Written:
        """Open or close a node for placements."""
        return await self._operate(lambda state: operations.update_node_eligibility(state, node_id, eligible, **self._stamps()), ("node", node_id))

    async def update_node_drain(self, node_id: str, drain: DrainStrategy | Mapping[str, Any] | None) -> Written:
        """Begin or, with None, end the drain of a node."""
        return await self._operate(lambda state: operations.update_node_drain(state, node_id, drain, **self._stamps()), ("node", node_id))

    async def deregister_node(self, node_id: str) -> Written:
        """Forget a node."""
        return await self._operate(lambda state: operations.deregister_node(state, node_id, **self._stamps()), ("node", node_id))

    async def update_allocs_from_client(self, allocs: Sequence[Allocation]) -> Written:
        """Write what clients say about their allocations."""
        return await self._operate(lambda state: operations.update_allocs_from_client(state, allocs, **self._stamps()))

    async def stop_alloc(self, alloc_id: str) -> Written:
        """Have an allocation stopped and placed elsewhere."""
        return await self._operate(lambda state: operations.stop_alloc(state, alloc_id, **self._stamps()), ("allocs", alloc_id))

    async def promote_deployment(self, deployment_id: str, groups: Sequence[str] | None = None) -> Written:
        """Promote the canaries of a deployment, of all groups or of some."""
        return await self._operate(lambda state: operations.promote_deployment(state, deployment_id, groups, **self._stamps()), ("deployment", deployment_id))

    async def pause_deployment(self, deployment_id: str, paused: bool) -> Written:
        """Pause a deployment, or go on with it."""
        return await self._operate(lambda state: operations.pause_deployment(state, deployment_id, paused, **self._stamps()), ("deployment", deployment_id))

    async def fail_deployment(self, deployment_id: str) -> Written:
        """Fail a deployment; its job may return to an earlier version."""
        deployment = self.machine.store.deployment(deployment_id)
        # It may write the next version of the job.
        subjects = [] if deployment is None else [_job_key(deployment.namespace, deployment.job_id)]
        return await self._operate(lambda state: operations.fail_deployment(state, deployment_id, **self._stamps()), ("deployment", deployment_id), *subjects)

    async def upsert_namespace(self, namespace: Mapping[str, Any]) -> Written:
        """Register a namespace, in the shape of the API, or what has changed of it."""
        self._check_alive()
        return Written(await self._writer.write(codec.UpsertNamespaces([dict(namespace)])), ())

    async def set_scheduler_config(self, config: Mapping[str, Any]) -> Written:
        """Replace the scheduler configuration, in the shape of the API; `PauseEvalBroker` takes effect at once."""
        self._check_alive()
        index = await self._writer.write(codec.SetSchedulerConfig(dict(config)))
        self._leadership.follow_pause_switch()
        return Written(index, ())

    async def plan_job(self, job: Job) -> DryRun:
        """Tell what registering a job would lead to; nothing is written."""
        self._check_alive()
        setting = self._new_setting(self._dry_runs)
        complete = registered(self.machine.store, job, setting)
        outcome: DryRun = await self._executor.run(dry_run, self.snapshot(), complete, setting)
        return outcome

    def _stamps(self) -> dict[str, Any]:
        return {"now_ns": self._clock.now_ns(), "new_id": self._new_id}


class _Jobs:
    """The registered jobs, for plans that name theirs."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine

    def job(self, namespace: str, job_id: str) -> Job | None:
        return self._machine.store.job(namespace, job_id)


def _job_key(namespace: str, job_id: str) -> tuple[str, ...]:
    return "job", namespace or "default", job_id
