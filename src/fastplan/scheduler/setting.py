"""What a scheduler is told beside state and evaluation: rules, time, randomness."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

import numpy
from numpy.typing import NDArray

from fastplan.columns.ids import new_keys
from fastplan.rules import Rules

Overlap: TypeAlias = Literal["enforce", "pr16097", "head"]
"""What happens to several live allocations in one slot of a system job (schedulers 5.8)."""


@dataclass(frozen=True, slots=True)
class Setting:
    """How schedulers work here.

    `now_ns`: the wall clock in Unix nanoseconds. `randomness`: draws of ports and cores, and the ids of new objects; one per scheduler, as it is not safe
    to share. `deployment_watcher`: whether somebody watches deployments and creates the next evaluation of a roll-out; without one, rolling follow-ups are
    made under STRICT (schedulers 4.9, 7.8).
    """

    now_ns: Callable[[], int]
    rules: Rules = Rules.STRICT
    overlap: Overlap = "enforce"
    randomness: random.Random = field(default_factory=random.Random)
    deployment_watcher: bool = False

    @property
    def strict(self) -> bool:
        """Whether the repaired rules apply."""
        return self.rules is Rules.STRICT

    def new_id(self) -> str:
        """Return a fresh id."""
        return str(uuid.UUID(int=self.randomness.getrandbits(128), version=4))

    def new_keys(self, count: int) -> NDArray[numpy.uint8]:
        """Return fresh ids as keys of columns, uint8 (count, 16)."""
        return new_keys(self.randomness.randbytes(16 * count))
