"""The ceiling of an applier in Python: an event loop, a heap, a few additions, one flush for each batch. No semantics, no results, no ids."""

from __future__ import annotations

import asyncio
import heapq
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.benchmarks._bare_loop import check_and_commit
from fastplan.benchmarks.log import RawFile

_BATCH_PLANS = 1_024
_FILE_BYTES = 64 << 20


class BarePlan(NamedTuple):
    """What a bare plan is: its priority, its nodes uint32 (n), and what it asks of each, int64 (n, 4)."""

    priority: int
    rows: NDArray[numpy.uint32]
    asks: NDArray[numpy.int64]


class BareLoop:
    """Takes plans, commits them, answers with the number of accepted rows: submit → heap → verify → flush in a thread → answer.

    One batch is flushed while the next one is verified.
    """

    def __init__(self, free: NDArray[numpy.int64], path: Path) -> None:
        """*free*: int64 (nodes, 4), what is left on each node; changed by what is committed."""
        self.syncs = 0
        self._free = free
        self._file = RawFile(path, _FILE_BYTES)
        self._thread = ThreadPoolExecutor(1)
        self._heap: list[tuple[int, int, BarePlan, asyncio.Future[int]]] = []
        self._submitted = 0
        self._scheduled = False
        self._flushing = False
        self._verified: tuple[list[asyncio.Future[int]], Sequence[int], bytes] | None = None

    async def submit(self, plan: BarePlan) -> int:
        """Return how many rows of *plan* were committed."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[int] = loop.create_future()
        self._submitted += 1
        heapq.heappush(self._heap, (-plan.priority, self._submitted, plan, answer))
        if not self._scheduled:
            self._scheduled = True
            loop.call_soon(self._pump)
        return await answer

    def close(self) -> None:
        """End the thread and close the file."""
        self._thread.shutdown()
        self._file.close()

    def _pump(self) -> None:
        self._scheduled = False
        if self._verified is None and self._heap:
            self._verified = self._verify()
        if self._verified is not None and not self._flushing:
            answers, fitted, batch = self._verified
            self._verified = None
            self._flushing = True
            flushed = asyncio.get_running_loop().run_in_executor(self._thread, self._flush, batch)
            flushed.add_done_callback(lambda done: self._answer(done, answers, fitted))
            if self._heap:
                self._verified = self._verify()

    def _verify(self) -> tuple[list[asyncio.Future[int]], Sequence[int], bytes]:
        taken = [heapq.heappop(self._heap) for _ in range(min(len(self._heap), _BATCH_PLANS))]
        rows = numpy.concatenate([plan.rows for _, _, plan, _ in taken])
        asks = numpy.concatenate([plan.asks for _, _, plan, _ in taken])
        accepted = numpy.empty(len(rows), numpy.uint8)
        check_and_commit(self._free, rows, asks, accepted)
        ends = numpy.cumsum([len(plan.rows) for _, _, plan, _ in taken])
        sums = numpy.concatenate([[0], numpy.cumsum(accepted, dtype=numpy.int64)])[ends]
        return [answer for _, _, _, answer in taken], numpy.diff(sums, prepend=0).tolist(), rows.tobytes() + asks.tobytes() + accepted.tobytes()

    def _flush(self, batch: bytes) -> None:
        self._file.append(zlib.crc32(batch).to_bytes(4, "little") + batch)

    def _answer(self, flushed: asyncio.Future[None], answers: Sequence[asyncio.Future[int]], fitted: Sequence[int]) -> None:
        self._flushing = False
        self.syncs += 1
        problem = flushed.exception()
        for answer, count in zip(answers, fitted, strict=True):
            if problem is None:
                answer.set_result(count)
            else:
                answer.set_exception(problem)
        self._pump()
