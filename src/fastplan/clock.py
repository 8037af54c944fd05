"""Time as a dependency: everything that waits or stamps takes a `Clock`, so tests and simulations run under virtual time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What fastplan asks of a clock."""

    def now_ns(self) -> int:
        """Return the wall clock in Unix nanoseconds; it may jump. Only for stamps in replicated data."""
        ...

    def monotonic_s(self) -> float:
        """Return a time in seconds that never goes back. For waits, windows and durations."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now_ns(self) -> int:
        """Return Unix nanoseconds."""
        return time.time_ns()

    def monotonic_s(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()
