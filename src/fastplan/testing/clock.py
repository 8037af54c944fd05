"""Virtual time: a clock that moves only when told to, and an event loop that moves it instead of sleeping."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

EPOCH_NS = 1_700_000_000_000_000_000
"""The wall clock at virtual second 0, in Unix nanoseconds."""


class VirtualClock:
    """A clock that stands still until `advance`. Wall time and monotonic time move together; `jump_wall` moves the wall clock alone."""

    def __init__(self, start_ns: int = EPOCH_NS) -> None:
        self._start_ns = start_ns
        self._elapsed_ns = 0

    def now_ns(self) -> int:
        """Return Unix nanoseconds."""
        return self._start_ns + self._elapsed_ns

    def monotonic_s(self) -> float:
        """Return the virtual seconds since the start."""
        return self._elapsed_ns / 1e9

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass. Raises `ValueError` for a negative number: time never goes back."""
        if seconds < 0:
            raise ValueError(f"time cannot go back by {-seconds} s")
        self._elapsed_ns += round(seconds * 1e9)

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or a time server does."""
        self._start_ns += round(seconds * 1e9)


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that lets virtual time pass where a real one would sleep."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            # Nothing is scheduled: only another thread could go on from here, and under virtual time there is none.
            raise RuntimeError("the virtual event loop waits for ever: every task waits for something that nobody will do")
        if timeout > 0:
            # At least the nanosecond that the clock can show, or a timer that is almost due would never be.
            self._clock.advance(max(timeout, 1e-9))
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An asyncio loop under a `VirtualClock`: timers fire in order, at once, and the clock shows the time they asked for.

    Without threads and sockets a run is a function of its inputs: the loop serves what is ready first in, first out.
    """

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(_JumpingSelector(clock))
        self._virtual_clock = clock
        # Timers closer together than this fire in one step; virtual time is exact to the nanosecond.
        self._clock_resolution = 1e-9

    def time(self) -> float:
        """Return the monotonic seconds of the clock."""
        return self._virtual_clock.monotonic_s()


def run_virtual(main: Coroutine[Any, Any, T], clock: VirtualClock) -> T:
    """Run *main* to its end under *clock* and return its result.

    Raises what *main* raises, and `RuntimeError` if everything waits for something that nobody will do.
    """
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        return runner.run(main)
