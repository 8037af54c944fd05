"""An executor that decides from a seed how long the computation of a scheduler takes, and whether it breaks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastplan.errors import StateError
from fastplan.scheduler.requests import SubmitReply


@dataclass(frozen=True, slots=True)
class Pace:
    """How schedulers run: seconds that a step takes on average, the share of steps that take *slow_s* instead, and of steps that end in an error."""

    step_s: float = 0.02
    slow_share: float = 0.0
    slow_s: float = 0.0
    error_share: float = 0.0


class SeededExecutor:
    """Lets time pass before each step of a scheduler: others go on meanwhile, and the snapshot that the step works on grows old."""

    def __init__(self, randomness: random.Random, pace: Pace, hears: Callable[[SubmitReply], None]) -> None:
        """*hears*: is told each answer to a plan that a scheduler gets."""
        self._random = randomness
        self._hears = hears
        self.pace = pace
        self.running = 0
        self.most_running = 0

    async def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call *function* after a while. Raises what it raises, and now and then a StateError instead."""
        for argument in arguments:
            if isinstance(argument, SubmitReply):
                self._hears(argument)
        pace, draw = self.pace, self._random.random()
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(pace.slow_s if draw < pace.slow_share else self._random.expovariate(1 / pace.step_s))
            if draw >= 1 - pace.error_share:
                raise StateError("the scheduler broke down")
            return function(*arguments)
        finally:
            self.running -= 1

    def close(self) -> None:
        """Nothing is held."""
