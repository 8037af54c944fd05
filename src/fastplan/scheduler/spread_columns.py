"""The spread blocks of a group as numbers, for the kernel that ranks nodes (schedulers 9.7)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy
from numpy.typing import NDArray

from fastplan.scheduler._ranking import SpreadCounts
from fastplan.scheduler.feasible.sets import NodeKinds
from fastplan.scheduler.spread import REST, SpreadScorer
from fastplan.scheduler.targets import is_unique


class SpreadColumns:
    """Values by number, and the place of each node: nodes of one place have the same value of each attribute.

    `places` int32, one for each node. `counts` is the kernel's side.
    """

    def __init__(self, scorer: SpreadScorer, kinds: NodeKinds) -> None:
        """*scorer* is set to the group."""
        self._numbers: list[dict[str, int]] = []
        columns: list[NDArray[numpy.int64]] = []
        blocks: list[tuple[list[int | None], list[float | None] | None, float | None, float]] = []
        for wish, properties, counts in scorer.blocks:
            values, which = kinds.each(properties.value_of, apart=is_unique(wish.attribute))
            listed = [value for value in wish.desired if value != REST]
            named = dict.fromkeys([*listed, *counts, *(value for value in values if value is not None)])
            numbers = {value: number for number, value in enumerate(named)}
            of_answer = numpy.array([-1 if value is None else numbers[value] for value in values], numpy.int64)
            columns.append(of_answer[which])
            desired = [None if value == REST else wish.desired.get(value) for value in numbers] if wish.desired else None
            blocks.append((_counted(numbers, counts), desired, wish.desired.get(REST), scorer.share(wish)))
            self._numbers.append(numbers)
        by_node = numpy.column_stack(columns)
        places, self.places = numpy.unique(by_node, axis=0, return_inverse=True)
        self.places = numpy.ascontiguousarray(self.places.reshape(-1), numpy.int32)
        self.counts = SpreadCounts(blocks, numpy.ascontiguousarray(places, numpy.int32))

    @staticmethod
    def suits(scorer: SpreadScorer) -> bool:
        """Return whether numbers can say what the blocks of a group wish: not where less than nothing is wanted."""
        return all(share >= 0 for wish, _, _ in scorer.blocks for share in wish.desired.values())

    def recount(self, scorer: SpreadScorer) -> bool:
        """Take over what *scorer* has counted for the selection that begins; False if there are values that were not known."""
        known = all(numbers.keys() >= counts.keys() for numbers, (_, _, counts) in zip(self._numbers, scorer.blocks, strict=True))
        if known:
            self.counts.set_counts([_counted(numbers, counts) for numbers, (_, _, counts) in zip(self._numbers, scorer.blocks, strict=True)])
        return known


def _counted(numbers: Mapping[str, int], counts: Mapping[str, int]) -> list[int | None]:
    return [counts.get(value) for value in numbers]
