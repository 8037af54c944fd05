"""How well a node keeps a group spread over the values of an attribute (schedulers 9.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from fastplan.scheduler.feasible.property_set import PropertySet
from fastplan.structs import Job, Node, Spread, TaskGroup

if TYPE_CHECKING:
    from fastplan.scheduler.context import Context

WORST: Final = -1.0
"""The score of a node without the attribute, or with a value that is not wanted."""

REST: Final = "*"
"""The target that all values share that are not listed."""


@dataclass(frozen=True, slots=True)
class SpreadWish:
    """One spread block: its weight, and how many allocations each value should get; no targets: the same number everywhere."""

    attribute: str
    weight: int
    desired: Mapping[str, float]


def wish_of(spread: Spread, count: int) -> SpreadWish:
    """Return what a spread block wants of *count* allocations; what its targets leave belongs to all other values together."""
    desired = {target.value: target.percent / 100.0 * count for target in spread.spread_target if target is not None}
    total = 0.0
    for share in desired.values():
        total += share
    if 0 < total < count:
        desired[REST] = count - total
    return SpreadWish(spread.attribute, spread.weight, desired)


class SpreadScorer:
    """Scores nodes by the spreads of a job and its groups.

    As recorded, the sum of weights grows with every group, and when the job is set again; and what a target of zero per cent scores depends on what was
    scored before. Under strict rules both are worked out for each selection anew.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._strict = context.setting.strict
        self._job = Job()
        self._wishes: dict[str, dict[str, SpreadWish]] = {}
        self._total_weight = 0
        self._lowest_boost = WORST
        self._properties: dict[tuple[str, str], PropertySet] = {}
        self._blocks: list[tuple[SpreadWish, PropertySet, Mapping[str, int]]] = []

    def set_job(self, job: Job) -> None:
        """Say whose groups are spread."""
        self._job = job
        self._wishes = {}
        self._properties = {}

    def set_group(self, group: TaskGroup) -> None:
        """Begin a selection for a group: its allocations are counted as the plan stands now."""
        own = [spread for spread in group.spreads if spread is not None]
        of_job = [spread for spread in self._job.spreads if spread is not None]
        if self._strict or group.name not in self._wishes:
            if self._strict:
                self._total_weight = 0
            # Of one attribute at both levels the block of the job counts, twice.
            self._wishes[group.name] = {spread.attribute: wish_of(spread, group.count) for spread in [*own, *of_job]}
            self._total_weight += sum(spread.weight for spread in [*own, *of_job])
        wishes = self._wishes[group.name]
        self._blocks = []
        for spread in [*of_job, *own]:
            key = (spread.attribute, group.name)
            properties = self._properties.get(key)
            if properties is None:
                properties = self._properties[key] = PropertySet(self._context, self._job, spread.attribute, group.name)
            self._blocks.append((wishes[spread.attribute], properties, properties.counts()))
        if self._strict:
            self._lowest_boost = self._lowest_of_targets()

    @property
    def has_spreads(self) -> bool:
        """Whether the group is to be spread over anything."""
        return bool(self._blocks)

    @property
    def blocks(self) -> list[tuple[SpreadWish, PropertySet, Mapping[str, int]]]:
        """The blocks of the group: what is wished, where the values come from, and how many allocations each value has now."""
        return self._blocks

    def share(self, wish: SpreadWish) -> float:
        """Return the weight of a block as a share of all weights."""
        return wish.weight / self._total_weight if self._total_weight else 0.0

    def score(self, node: Node) -> float:
        """Return the sum of what each block says of a node; not bounded."""
        total = 0.0
        for wish, properties, counts in self._blocks:
            value = properties.value_of(node)
            if value is None:
                total += WORST
            elif wish.desired:
                total += self._targeted(wish, value, counts)
            else:
                total += even_boost(value, counts)
        return total

    def _targeted(self, wish: SpreadWish, value: str, counts: Mapping[str, int]) -> float:
        # Under strict rules a value that is called like the rest is one of the rest.
        desired = None if self._strict and value == REST else wish.desired.get(value)
        used = counts.get(value, 0)
        if desired is None:
            desired = wish.desired.get(REST)
            if desired is None:
                return WORST
            used = sum(count for other, count in counts.items() if other not in wish.desired or (self._strict and other == REST))
        if desired == 0:
            return self._lowest_boost
        boost = self._boost(wish, desired, used)
        if not self._strict:
            self._lowest_boost = min(self._lowest_boost, boost)
        return boost

    def _boost(self, wish: SpreadWish, desired: float, used: int) -> float:
        return (desired - (used + 1)) / desired * self.share(wish)

    def _lowest_of_targets(self) -> float:
        """Return the lowest score of any listed value, whether a node with it comes by or not: it must not depend on the order of nodes."""
        lowest = WORST
        for wish, _, counts in self._blocks:
            for value, desired in wish.desired.items():
                if desired and value != REST:
                    lowest = min(lowest, self._boost(wish, desired, counts.get(value, 0)))
        return lowest


def even_boost(value: str, counts: Mapping[str, int]) -> float:
    """Return the score of a value where all are to hold the same number: *counts* are those of the values that occur (schedulers 9.7)."""
    if not counts:
        return 0.0
    count = counts.get(value, 0)
    least, most = min(counts.values()), max(counts.values())
    if count != least:
        return WORST if least == 0 else (least - count) / least
    if least == most:
        return WORST
    return 1.0 if least == 0 else (most - least) / least
