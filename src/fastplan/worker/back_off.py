"""How long a worker waits after a failure (worker-and-broker 6.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Profile:
    """A series of delays in seconds: `base_s`, then `growth` times as long after each failure, `limit_s` at most. No delay for a base that is not positive."""

    base_s: float
    limit_s: float
    growth: int = 2

    def delay_s(self, failures: int) -> float:
        """Return the delay after *failures* earlier failures. Any number is fine: nothing is worked out beyond the limit."""
        if self.base_s <= 0:
            return 0.0
        delay_s = self.base_s
        for _ in range(failures):
            if delay_s >= self.limit_s or self.growth <= 1:
                break
            delay_s *= self.growth
        return min(delay_s, self.limit_s)


FAST: Final = Profile(0.020, 10.0)
"""After an evaluation could not be fetched."""

SLOW: Final = Profile(0.5, 10.0)
"""Before a plan or an evaluation is sent again."""

VERSION_MISMATCH: Final = Profile(30.0, 30.0)
"""While the leader serves schedulers of another version."""

SEED: Final = Profile(0.020, 5.0, growth=4)
"""As the earliest workers did it."""


class BackOff:
    """The count of failures of one worker, which fetching and sending share."""

    def __init__(self) -> None:
        self.failures = 0

    def next_delay_s(self, profile: Profile) -> float:
        """Return how long to wait now, and count the failure."""
        delay_s = profile.delay_s(self.failures)
        self.failures += 1
        return delay_s

    def reset(self) -> None:
        """Begin anew: something worked."""
        self.failures = 0
