"""Waiting for an evaluation on an event loop (worker-and-broker 3.4, 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from fastplan.broker.evals import Delivery, EvalBroker
from fastplan.clock import Clock

_LEAST_S: Final = 0.0001
"""A deadline that is nearly due is looked at again no sooner than this: clocks of different grain must not make the loop spin."""

_SURELY_S: Final = 0.000001
"""The broker is told the time so much after a deadline, so that no rounding makes it a moment too early."""

_LOOK_AGAIN_S: Final = 10.0
"""The broker is told the time at least so often while something waits: the wall clock may have been set forward."""


class _Waiter(NamedTuple):
    woken: asyncio.Future[None]
    queues: tuple[str, ...]


class BrokerGate:
    """Lets coroutines wait for a broker, and tells it the time. All calls on one event loop.

    One evaluation wakes one caller, who wakes the next if there is more: however many wait, an evaluation costs the same.
    """

    def __init__(self, broker: EvalBroker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._was_on = broker.enabled
        self._waiters: list[_Waiter] = []
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._held_back = False
        broker.set_listener(self._heard)

    async def dequeue(self, queues: Sequence[str], timeout_s: float | None) -> Delivery | None:
        """Return an evaluation of one of the queues, None if there is none in time; a time of None waits for ever.

        The time is that of the whole call, however often it wakes up in between. While the broker is off this waits, and looks once when it was switched.
        Raises BrokerDisabled if the broker is switched off meanwhile.
        """
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # A timer of another loop would never fire.
            self._loop, self._timer = loop, None
        deadline_s = None if timeout_s is None else loop.time() + timeout_s
        was_on = self._broker.enabled
        self._arm()
        try:
            while not self._closed:
                if not self._held_back and (was_on or self._broker.enabled):
                    delivery = self._broker.dequeue(queues)
                    if delivery is not None or not was_on:
                        self._arm()
                        return delivery
                left_s = None if deadline_s is None else deadline_s - loop.time()
                if left_s is not None and left_s <= 0:
                    return None
                # Somebody else may have taken what this call was woken for, and left something for another.
                self._wake_next()
                waiter = _Waiter(loop.create_future(), tuple(queues))
                self._waiters.append(waiter)
                try:
                    await asyncio.wait((waiter.woken,), timeout=left_s)
                finally:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
            return None
        finally:
            # There may be more, also when this call was woken and cancelled before it could look.
            self._wake_next()

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return len(self._waiters)

    def hold_back(self) -> None:
        """Give nothing out from now on, so that what comes meanwhile is given out in order of its priority, whenever it came."""
        self._held_back = True

    def give_out(self) -> None:
        """Give out what there is, after `hold_back`."""
        self._held_back = False
        self._wake_next()

    def close(self) -> None:
        """Leave the broker alone from now on; whoever waits gets nothing."""
        self._closed = True
        self._broker.set_listener(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wake_all()

    def _heard(self) -> None:
        if self._broker.enabled is self._was_on:
            self._wake_next()
        else:
            self._was_on = self._broker.enabled
            self._wake_all()
        self._arm()

    def _wake_next(self) -> None:
        """Wake the first caller for whom there is something."""
        if self._held_back:
            return
        in_vain = set()
        for place, waiter in enumerate(self._waiters):
            if waiter.queues in in_vain:
                continue
            if self._broker.has_ready(waiter.queues):
                del self._waiters[place]
                waiter.woken.set_result(None)
                return
            in_vain.add(waiter.queues)

    def _wake_all(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter.woken.set_result(None)

    def _arm(self) -> None:
        """Have the broker told the time when it next needs it. A timer that is early does no harm: it leads to another one."""
        if self._closed or self._loop is None or self._loop.is_closed():
            return
        deadline_s = self._broker.next_deadline_s()
        if deadline_s is None:
            return
        delay_s = min(max(deadline_s - self._clock.monotonic_s() + _SURELY_S, _LEAST_S), _LOOK_AGAIN_S)
        when_s = self._loop.time() + delay_s
        if self._timer is not None:
            if self._timer.when() <= when_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(when_s, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._broker.advance()
        self._arm()
