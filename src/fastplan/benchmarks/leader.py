"""A leader for the benchmarks: state, state machine, durable log, submission and applier, put together as a server does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from fastplan.benchmarks.clusters import Cluster
from fastplan.clock import SystemClock
from fastplan.columns.ids import new_keys, texts_of
from fastplan.fsm import StateMachine
from fastplan.planner.applier import Applier
from fastplan.planner.entry import EntryMaker
from fastplan.planner.result import PlanResult
from fastplan.planner.submit import HeldEvaluations, SubmitEndpoint
from fastplan.planner.view import OptimisticView
from fastplan.replication import LocalReplicator, LocalSettings
from fastplan.state import StateStore
from fastplan.state.plan_builder import ColumnarPlan
from fastplan.structs import Evaluation

_BEFORE_THE_LOG = 1


class Leader:
    """A server that leads: everything between a submitted plan and its durable, applied result. All calls on one event loop."""

    def __init__(self, cluster: Cluster, directory: Path, *, evaluations: int) -> None:
        """*evaluations*: so many can be held by submitters at once, each with one plan on its way."""
        self._cluster = cluster
        clock = SystemClock()
        self.evaluations = HeldEvaluations(clock, nack_timeout_s=3600.0)
        ids = texts_of(new_keys(cluster.random.bytes(16 * evaluations)))
        self.held = [(eval_id, self.evaluations.deliver(eval_id)) for eval_id in ids]
        self._eval_ids = ids
        self.machine = StateMachine(self._initial_store())
        self._settings = LocalSettings(directory=directory, reserve_bytes=0)
        self._log = LocalReplicator(self._settings, self.machine)
        self._applier = Applier(
            log=self._log,
            state=self.machine,
            new_view=lambda: OptimisticView(lambda: self.machine.store),
            entries=EntryMaker(lambda: self.machine.store, lambda: self.machine.applied, new_id=lambda: texts_of(new_keys(cluster.random.bytes(16)))[0]),
            clock=clock,
        )
        self._endpoint: SubmitEndpoint[ColumnarPlan] = SubmitEndpoint(self.machine.store, self.evaluations, self._applier, clock, self._applier.metrics)

    def _initial_store(self) -> StateStore:
        """Return the state from before the log: what a first snapshot would hold."""
        store = self._cluster.store(_BEFORE_THE_LOG)
        evals = [
            Evaluation(id=eval_id, namespace="default", job_id="job-0", type="service", priority=50, status="pending", triggered_by="job-register")
            for eval_id in self._eval_ids
        ]
        store.upsert_evals(_BEFORE_THE_LOG, evals)
        return store

    async def __aenter__(self) -> Leader:
        await self._log.start()
        self._applier.lead(self._log.status().term)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._applier.step_down()
        await self._log.stop()

    async def submit(self, plan: ColumnarPlan) -> PlanResult:
        """Verify and commit a plan as a worker has it done: token check, queue, verdict, log, state, answer."""
        result: PlanResult = await self._endpoint.submit(plan)
        return result

    @property
    def syncs(self) -> int:
        """Flushes of the log so far."""
        return self._log.status().syncs

    async def reopened(self) -> StateStore:
        """Return the state that a restart finds: the one from before the log, and all entries of the log applied. Only when this leader has ended."""
        machine = StateMachine(self._initial_store())
        log = LocalReplicator(self._settings, machine)
        await log.start()
        await log.stop()
        return machine.store


async def closed_loop(leader: Leader, plans: Sequence[ColumnarPlan], submitters: int) -> tuple[list[PlanResult], list[float], float]:
    """Have *submitters* submit their share of *plans* one after the other; return results, latencies and the whole time in seconds."""
    results: dict[int, PlanResult] = {}
    latencies: list[float] = []

    async def submit(first: int) -> None:
        for number in range(first, len(plans), submitters):
            start = time.perf_counter()
            results[number] = await leader.submit(plans[number])
            latencies.append(time.perf_counter() - start)

    start = time.perf_counter()
    await asyncio.gather(*(submit(first) for first in range(submitters)))
    seconds = time.perf_counter() - start
    return [results[number] for number in range(len(plans))], latencies, seconds


async def open_loop(leader: Leader, plans: Sequence[ColumnarPlan], per_s: float) -> tuple[list[PlanResult], list[float]]:
    """Submit *plans* at a steady rate, whether or not the ones before are answered; return results, and latencies from when each was due."""
    loop = asyncio.get_running_loop()
    latencies: list[float] = []

    async def submit(plan: ColumnarPlan, due_s: float) -> PlanResult:
        result = await leader.submit(plan)
        latencies.append(loop.time() - due_s)
        return result

    tasks = []
    start = loop.time()
    for number, plan in enumerate(plans):
        due_s = start + number / per_s
        if due_s > loop.time():
            await asyncio.sleep(due_s - loop.time())
        tasks.append(loop.create_task(submit(plan, due_s)))
    return list(await asyncio.gather(*tasks)), latencies
