"""The applier in the plainest Python: the reference verifies records over records, JSON goes to a file, one plan after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from fastplan.benchmarks.log import RawFile
from fastplan.benchmarks.record_state import RecordState
from fastplan.planner import reference
from fastplan.planner.result import PlanResult
from fastplan.structs import Plan

_FILE_BYTES = 32 << 20


class ReferenceApplier:
    """Takes plans, commits them, answers. With *group_commit* all that wait are flushed together, else each plan alone."""

    def __init__(self, state: RecordState, path: Path, *, group_commit: bool) -> None:
        self.syncs = 0
        self._state = state
        self._file = RawFile(path, _FILE_BYTES)
        self._limit = None if group_commit else 1
        self._thread = ThreadPoolExecutor(1)
        self._waiting: list[tuple[Plan, asyncio.Future[PlanResult]]] = []
        self._running: asyncio.Task[None] | None = None

    async def submit(self, plan: Plan) -> PlanResult:
        """Return the result of *plan* when it is durable."""
        answer: asyncio.Future[PlanResult] = asyncio.get_running_loop().create_future()
        self._waiting.append((plan, answer))
        if self._running is None:
            self._running = asyncio.create_task(self._run())
        return await answer

    def close(self) -> None:
        """End the thread and close the file."""
        self._thread.shutdown()
        self._file.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            taken = self._waiting[: self._limit]
            del self._waiting[: self._limit]
            results = [self._apply(plan) for plan, _ in taken]
            await loop.run_in_executor(self._thread, self._file.append, b"".join(entry for _, entry in results))
            self.syncs += 1
            for (_, answer), (result, _) in zip(taken, results, strict=True):
                answer.set_result(result)
        self._running = None

    def _apply(self, plan: Plan) -> tuple[PlanResult, bytes]:
        result = reference.evaluate_plan(self._state, plan)
        entry = msgspec.json.encode(result.to_api())
        self._state.insert([alloc for allocs in result.node_allocation.values() for alloc in allocs])
        return result, entry


async def answers(applier: ReferenceApplier, plans: Sequence[Plan]) -> list[PlanResult]:
    """Submit all *plans* at once and return their results."""
    return await asyncio.gather(*(applier.submit(plan) for plan in plans))
