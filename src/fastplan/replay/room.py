"""Which tasks are sure to find a place, whatever becomes of the others that are placed at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy
from numpy.typing import NDArray

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
        for place, (shape, copies) in enumerate(tasks):
            total += copies
            kinds.add((shape, copies))
            if len({shape for shape, _ in kinds}) == 1 and self.for_copies(shape) >= total:
                continue
            if not all(self._left_after(shape, total - copies) >= copies for shape, copies in kinds):
                return place
        return len(tasks)

    def _left_after(self, shape: int, spoiled_nodes: int) -> int:
        left = self._sums(shape)
        return int(left[spoiled_nodes]) if spoiled_nodes < len(left) else 0

    def _sums(self, shape: int) -> NDArray[numpy.int64]:
        """Return at *i* how many copies fit when the *i* nodes with the most room are spoiled."""
        left = self._left.get(shape)
        if left is None:
            headroom = self._headroom(shape)
            ascending = numpy.sort(headroom[headroom > 0])
            left = self._left[shape] = numpy.cumsum(ascending)[::-1]
        return left
