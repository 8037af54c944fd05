"""The plan queue: highest priority first, then order of arrival (plan-apply 7.1 to 7.4).

The queue is plain data under one lock. It never waits by itself except in `dequeue`, which blocks a thread; `dequeue_async`
waits on an event loop (and so under virtual time), and the applier, which must never wait, uses `drain` and a listener.
All waiters are woken by every arrival and look again, so no wake-up is lost however many takers there are.
"""

from __future__ import annotations

import asyncio
import heapq
import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from fastplan.clock import Clock
from fastplan.errors import QueueDisabled


class QueuedPlan(Protocol):
    """What the queue asks of a plan."""

    @property
    def priority(self) -> int:
        """Return the priority of the evaluation."""
        ...


P = TypeVar("P", bound=QueuedPlan)

_answer_lock = threading.Lock()


class PendingPlan(Generic[P]):
    """A plan on its way, and the one-shot future of its answer (plan-apply 7.3).

    `await pending` on any event loop, or `pending.wait(timeout_s)` in a thread. Exactly one answer, a result or an error,
    is ever given; a second one is an error in the program. `key` is for the applier: the key of the plan's log entry, empty for
    a plan without one, None until somebody has worked it out.
    """

    __slots__ = ("_error", "_listeners", "_loop", "_result", "_waiter", "answered", "enqueued_s", "key", "plan")

    def __init__(self, plan: P, enqueued_s: float) -> None:
        self.plan = plan
        self.enqueued_s = enqueued_s
        self.key: bytes | None = None
        self.answered = False
        self._result: Any = None
        self._error: BaseException | None = None
        # The first waiter on an event loop; nearly always the only one, so it needs no list.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._listeners: list[Callable[[], None]] | None = None

    def answer(self, result: Any, error: BaseException | None = None) -> None:
        """Give the answer and wake whoever waits for it."""
        with _answer_lock:
            if self.answered:
                raise RuntimeError("a plan is answered twice")
            self._result = result
            self._error = error
            self.answered = True
            listeners = self._listeners
            self._listeners = None
        if self._waiter is not None and self._loop is not None:
            _wake(self._loop, self._waiter)
        if listeners is not None:
            for listener in listeners:
                listener()

    def result(self) -> Any:
        """Return the result that was given, or raise the error that was given. Only after the answer."""
        if not self.answered:
            raise RuntimeError("the plan is not answered yet")
        if self._error is not None:
            raise self._error
        return self._result

    def wait(self, timeout_s: float | None = None) -> Any:
        """Block this thread until the answer is there; return or raise it. `TimeoutError` after *timeout_s* seconds (`None`: never)."""
        done = threading.Event()
        if self.add_listener(done.set) and not done.wait(timeout_s):
            raise TimeoutError(f"no answer to the plan within {timeout_s} s")
        return self.result()

    def add_listener(self, listener: Callable[[], None]) -> bool:
        """Have *listener* called once when the answer is given. False, and no call, if it has been given already."""
        with _answer_lock:
            if self.answered:
                return False
            if self._listeners is None:
                self._listeners = [listener]
            else:
                self._listeners.append(listener)
            return True

    def __await__(self) -> Generator[Any, None, Any]:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        with _answer_lock:
            waits = not self.answered
            if waits and self._waiter is None:
                self._loop, self._waiter = loop, waiter
        if waits and (self._waiter is waiter or self.add_listener(lambda: _wake(loop, waiter))):
            yield from waiter
        return self.result()


def _wake(loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
    """Resolve *waiter*, which belongs to *loop*, from whatever thread this is. A waiter that was cancelled is left alone."""
    try:
        here = asyncio.get_running_loop() is loop
    except RuntimeError:
        here = False
    if here:
        _resolve(waiter)
    elif not loop.is_closed():
        loop.call_soon_threadsafe(_resolve, waiter)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


@dataclass(frozen=True, slots=True)
class QueueStats:
    """A copy of the figures of the queue."""

    depth: int
    """Plans queued and not yet taken."""


class PlanQueue(Generic[P]):
    """Plans that wait to be verified. A new queue is disabled: only a leader enables it.

    A taker that waits while the queue is disabled gets `QueueDisabled`, also if the queue has been enabled again before
    it could look; a plan already taken is not affected.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # One lock under two names: a condition can be waited for, a bare lock is entered at a third of the cost.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        # (−priority, sequence number, plan): the number makes ties first in, first out, and keeps plans from being compared.
        self._heap: list[tuple[int, int, PendingPlan[P]]] = []
        self._sequence = 0
        self._enabled = False
        self._period = 0
        self._blocked_threads = 0
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._listener: Callable[[], None] | None = None

    @property
    def enabled(self) -> bool:
        """Tell whether plans are taken in."""
        return self._enabled

    def set_enabled(self, enabled: bool) -> None:
        """Switch the queue on, or off with a flush. Switching it off again flushes again; on again changes nothing."""
        with self._changed:
            if enabled:
                self._enabled = True
                return
            self._enabled = False
            self._period += 1
        self.flush()

    def flush(self) -> None:
        """Answer every queued plan with `QueueDisabled` ("plan queue flushed") and wake all waiters."""
        with self._changed:
            flushed = sorted(self._heap)
            self._heap = []
        for _, _, pending in flushed:
            pending.answer(None, QueueDisabled("plan queue flushed"))
        self._wake_all()

    def enqueue(self, plan: P) -> PendingPlan[P]:
        """Queue *plan* and return the future of its answer. Raises `QueueDisabled`."""
        with self._lock:
            if not self._enabled:
                raise QueueDisabled("plan queue is disabled")
            self._sequence += 1
            pending = PendingPlan(plan, self._clock.monotonic_s())
            heapq.heappush(self._heap, (-plan.priority, self._sequence, pending))
            nobody_waits = not self._blocked_threads and not self._waiters
        if not nobody_waits:
            self._wake_all()
        if self._listener is not None:
            self._listener()
        return pending

    def drain(self, limit: int) -> list[PendingPlan[P]]:
        """Take up to *limit* plans, best first, without waiting. Raises `QueueDisabled`."""
        with self._lock:
            if not self._enabled:
                raise QueueDisabled("plan queue is disabled")
            heap = self._heap
            if len(heap) <= limit:
                heap.sort()
                self._heap = []
                return [pending for _, _, pending in heap]
            return [heapq.heappop(heap)[2] for _ in range(limit)]

    def dequeue(self, timeout_s: float | None = 0) -> PendingPlan[P] | None:
        """Take the best plan, blocking this thread while there is none. Raises `QueueDisabled`.

        After *timeout_s* seconds the answer is `None`; 0 and `None` wait for ever (plan-apply 7.2).
        """
        deadline_s = self._deadline(timeout_s)
        with self._changed:
            period = self._period
            while True:
                pending = self._take(period)
                if pending is not None:
                    return pending
                remaining_s = None if deadline_s is None else deadline_s - self._clock.monotonic_s()
                if remaining_s is not None and remaining_s <= 0:
                    return None
                self._blocked_threads += 1
                try:
                    self._changed.wait(remaining_s)
                finally:
                    self._blocked_threads -= 1

    async def dequeue_async(self, timeout_s: float | None = 0) -> PendingPlan[P] | None:
        """Like `dequeue`, waiting on the running event loop instead of blocking the thread."""
        loop = asyncio.get_running_loop()
        deadline_s = self._deadline(timeout_s)
        period = self._period
        while True:
            with self._changed:
                pending = self._take(period)
                if pending is not None:
                    return pending
                remaining_s = None if deadline_s is None else deadline_s - self._clock.monotonic_s()
                if remaining_s is not None and remaining_s <= 0:
                    return None
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiters.append((loop, waiter))
            timer = None if remaining_s is None else loop.call_later(remaining_s, _resolve, waiter)
            try:
                await waiter
            finally:
                if timer is not None:
                    timer.cancel()
                with self._changed:
                    self._waiters = [each for each in self._waiters if each[1] is not waiter]

    def set_listener(self, listener: Callable[[], None] | None) -> None:
        """Have *listener* called, in the thread of the submitter, after every arrival and every flush."""
        self._listener = listener

    def stats(self) -> QueueStats:
        """Return the depth: plans queued and not yet taken."""
        return QueueStats(len(self._heap))

    def __len__(self) -> int:
        return len(self._heap)

    def _deadline(self, timeout_s: float | None) -> float | None:
        return self._clock.monotonic_s() + timeout_s if timeout_s else None

    def _take(self, period: int) -> PendingPlan[P] | None:
        if not self._enabled or self._period != period:
            raise QueueDisabled("plan queue is disabled")
        return heapq.heappop(self._heap)[2] if self._heap else None

    def _wake_all(self) -> None:
        with self._changed:
            self._changed.notify_all()
            waiters = self._waiters
            self._waiters = []
        for loop, waiter in waiters:
            _wake(loop, waiter)
        if self._listener is not None and not self._enabled:
            self._listener()
