"""Which tasks are sure to find a place, whatever becomes of the others that are placed at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy
from numpy.typing import NDArray

NO_LIMIT: Final = 2**63
Headroom = Callable[[int], NDArray[numpy.int64]]
"""Shape number → how many copies fit on each node."""


class Room:
    """How much room one snapshot has for each shape; looked at when somebody asks."""

    def __init__(self, headroom: Headroom) -> None:
        self._headroom = headroom
        self._left: dict[int, NDArray[numpy.int64]] = {}

    def for_copies(self, shape: int) -> int:
        """Return how many copies of a shape fit, nothing else being placed."""
        left = self._sums(shape)
        return int(left[0]) if len(left) else 0

    def safe_prefix(self, tasks: Sequence[tuple[int, int]]) -> int:
        """Return how many of *tasks*, (shape, copies) from the first on, are safe together.

        A copy of another task spoils at most one node. So a task is safe if the nodes that are left when the best ones are spoiled, one by each
        copy of all others, have room for it; and tasks of one shape are safe if there is room for all their copies.
        """
        total = 0
        kinds: set[tuple[int, int]] = set()
        shapes: set[int] = set()
        most = NO_LIMIT
        for place, (shape, copies) in enumerate(tasks):
            total += copies
            shapes.add(shape)
            if (shape, copies) not in kinds:
                kinds.add((shape, copies))
                most = min(most, self._safe_total(shape, copies))
            if total > most and (len(shapes) > 1 or self.for_copies(shape) < total):
                return place
        return len(tasks)

    def _safe_total(self, shape: int, copies: int) -> int:
        """Return how many copies there may be of all tasks, so that one of so many copies of a shape is safe; -1 if it is not even alone."""
        if copies == 0:
            return NO_LIMIT
        left = self._sums(shape)
        # Descending: so many nodes, less one, may be spoiled.
        return copies + len(left) - 1 - int(numpy.searchsorted(left[::-1], copies)) if len(left) and left[0] >= copies else -1

    def _sums(self, shape: int) -> NDArray[numpy.int64]:
        """Return at *i* how many copies fit when the *i* nodes with the most room are spoiled."""
        left = self._left.get(shape)
        if left is None:
            headroom = self._headroom(shape)
            ascending = numpy.sort(headroom[headroom > 0])
            left = self._left[shape] = numpy.cumsum(ascending)[::-1]
        return left
