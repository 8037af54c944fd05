"""The parts of one leader put together: state, state machine, durable log, submission, plan queue, applier. Whatever changes goes through the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from fastplan import codec
from fastplan.errors import Busy, QueueDisabled, StateError, StorageFailed
from fastplan.fsm import Refused, StateMachine
from fastplan.planner.applier import Applier
from fastplan.planner.entry import EntryMaker
from fastplan.planner.result import PlanResult
from fastplan.planner.submit import HeldEvaluations, SubmitEndpoint
from fastplan.planner.tracker import TrackerSettings
from fastplan.planner.view import OptimisticView
from fastplan.replay.shapes import id_maker, uuid_text
from fastplan.replication.contract import Status
from fastplan.replication.local import LocalReplicator, LocalSettings
from fastplan.rules import Rules
from fastplan.state import StateStore
from fastplan.state.plan_builder import ColumnarPlan
from fastplan.state.snapshot import StateSnapshot

_MIB: Final = 1 << 20
_UNWELL_S: Final = 10.0
"""How long a plan may take while something is wrong with the log."""
_ANSWER_S: Final = 60.0
"""How long it may take otherwise; it takes milliseconds."""


class TraceClock:
    """Stamps with the time of the trace; waits and durations are those of the machine."""

    def __init__(self, start_ns: int) -> None:
        self.trace_ns = start_ns

    def now_ns(self) -> int:
        """Return the time of the trace in Unix nanoseconds."""
        return self.trace_ns

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()


def log_settings(directory: Path, seed: int) -> LocalSettings:
    """Return the settings of the log of a replay. It is no server's log: the reserves for a disk that fills up are small."""
    cluster_id = id_maker(seed)(16, "cluster")
    return LocalSettings(directory=directory, node_id="replay", cluster_id=cluster_id, low_water_bytes=8 * _MIB, reserve_bytes=0, wal_bytes=8 * _MIB)


class Cluster:
    """A leader whose log lies in `directory`. All calls on one event loop, but `snapshot`."""

    def __init__(self, directory: Path, *, rules: Rules, clock: TraceClock, seed: int) -> None:
        self.directory = directory
        self.clock = clock
        self.machine = StateMachine()
        self._log = LocalReplicator(log_settings(directory, seed), self.machine)
        draw = id_maker(seed)
        self._applier = Applier(
            log=self._log,
            state=self.machine,
            new_view=lambda: OptimisticView(lambda: self.machine.store, rules),
            entries=EntryMaker(
                lambda: self.machine.store, lambda: self.machine.applied, new_id=lambda: uuid_text(draw(16, "preemption", self.machine.applied))
            ),
            clock=clock,
            # Workers with old snapshots are refused on purpose: the nodes are not to blame.
            tracker=TrackerSettings(enabled=False),
        )
        self.evaluations = HeldEvaluations(clock)
        self._endpoint: SubmitEndpoint[ColumnarPlan] | None = None

    @property
    def state(self) -> StateStore:
        """The state: to be read on the event loop, or through snapshots."""
        return self.machine.store

    async def open(self) -> None:
        """Recover what the log holds and lead. Raises what `LocalReplicator.start` raises."""
        await self._log.start()
        self._endpoint = SubmitEndpoint(self.state, self.evaluations, self._applier, self.clock, self._applier.metrics)
        self._applier.lead(self._log.status().term)

    async def close(self) -> None:
        """Answer what was submitted, flush and close. Harmless when it never opened."""
        self._applier.step_down()
        await self._log.stop()

    def snapshot(self) -> StateSnapshot:
        """Return the state as it is now; from any thread."""
        return self.machine.store.snapshot()

    def status(self) -> Status:
        """Return how the log is."""
        return self._log.status()

    async def write(self, commands: Sequence[tuple[codec.Command, int]]) -> None:
        """Commit commands, each with its time in Unix nanoseconds, by one flush.

        Raises StateError for one that the state machine refuses, StorageFailed where the disk fails or is nearly full.
        """
        if not commands:
            return
        entries = [codec.encode_command(command, time_ns) for command, time_ns in commands]
        try:
            committed = await self._log.propose_batch(entries, term=self._log.status().term)
        except Busy as problem:
            # Everything before has been awaited, so it is not too much work that is in the way.
            raise StorageFailed(str(problem)) from problem
        for result in committed.results:
            if isinstance(result, Refused):
                raise StateError(f"the state machine refuses an entry of the replay: {result.refused}")

    async def submit(self, plans: Sequence[ColumnarPlan]) -> list[tuple[PlanResult, float]]:
        """Verify and commit plans. Returns for each its result and how many seconds that took.

        Raises PlanError, and StorageFailed where the disk fails or is nearly full.
        """
        answers = [asyncio.ensure_future(self._submit(plan)) for plan in plans]
        missing = set(answers)
        for patience_s in (_UNWELL_S, _ANSWER_S):
            _, missing = await asyncio.wait(answers, timeout=patience_s)
            if not missing:
                break
            if self._log.status().health:
                # The applier waits for a log that has no room for as long as it takes; a replay does not.
                break
        if missing:
            for answer in missing:
                answer.cancel()
            await asyncio.wait(answers)
            raise StorageFailed(self._trouble())
        try:
            return await asyncio.gather(*answers)
        except QueueDisabled as problem:
            # The applier ends with a log that has failed.
            raise StorageFailed(self._trouble()) from problem

    async def _submit(self, plan: ColumnarPlan) -> tuple[PlanResult, float]:
        assert self._endpoint is not None
        start_s = self.clock.monotonic_s()
        result: PlanResult = await self._endpoint.submit(plan)
        return result, self.clock.monotonic_s() - start_s

    def _trouble(self) -> str:
        return "; ".join(self._log.status().health) or f"{self.directory}: the log takes no more plans"
