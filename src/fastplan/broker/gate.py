"""Waiting for an evaluation on an event loop (worker-and-broker 3.4, 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fastplan.broker.evals import Delivery, EvalBroker
from fastplan.clock import Clock

_LEAST_S = 0.001
"""A deadline that is nearly due is looked at again no sooner than this: clocks of different grain must not make the loop spin."""


class BrokerGate:
    """Lets coroutines wait for a broker, and tells it the time. All calls on one event loop."""

    def __init__(self, broker: EvalBroker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._waiters: list[asyncio.Future[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        broker.set_listener(self._heard)

    async def dequeue(self, queues: Sequence[str], timeout_s: float) -> Delivery | None:
        """Return an evaluation of one of the queues, None if there is none in time.

        While the broker is off this waits for it to be switched on. The time is that of the whole call, however often it wakes up in between.
        """
        self._loop = asyncio.get_running_loop()
        deadline_s = self._loop.time() + timeout_s
        while True:
            self._arm()
            if self._broker.enabled:
                delivery = self._broker.dequeue(queues)
                if delivery is not None:
                    self._arm()
                    return delivery
            left_s = deadline_s - self._loop.time()
            if left_s <= 0:
                return None
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._waiters.append(waiter)
            try:
                await asyncio.wait((waiter,), timeout=left_s)
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)

    def close(self) -> None:
        """Leave the broker alone from now on; whoever waits looks once more."""
        self._broker.set_listener(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake()

    def _heard(self) -> None:
        self._wake()
        self._arm()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _arm(self) -> None:
        """Have the broker told the time when it next needs it."""
        if self._loop is None or self._loop.is_closed():
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_s = self._broker.next_deadline_s()
        if deadline_s is not None:
            self._timer = self._loop.call_later(max(deadline_s - self._clock.monotonic_s(), _LEAST_S), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._broker.advance()
        self._arm()
