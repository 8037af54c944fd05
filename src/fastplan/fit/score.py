"""How well an allocation would sit on a node: the bin-pack and spread scores (schedulers.md 9.2)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from fastplan.errors import InvalidInput
from fastplan.fit.results import UsedResources
from fastplan.fit.supply import NodeSupply, supply_of
from fastplan.structs.canonical import canonical_node

if TYPE_CHECKING:
    from fastplan.structs import Node

BEST_SCORE = 18.0
"""The score of a perfect fit, before division by itself: 20 less the least possible sum of two powers of ten."""


def score_fit(node: Node, used: UsedResources, *, algorithm: Literal["binpack", "spread"] = "binpack") -> float:
    """Return how good *used* would look on *node*, from 0 (worst) to 18 (best) (schedulers.md 9.2).

    `binpack` prefers full nodes, `spread` empty ones. *used* includes the allocation to be placed; only CPU and memory count, as
    shares of what the node has after its reservations, taken off once. The result is finite for every input: a node without CPU or
    memory has nothing free of it, where Nomad divides by zero.

    Raises `InvalidInput` for another algorithm, or a node whose resources cannot be read.
    """
    resources = node.node_resources
    # A node with a topology is scored as it is: the canonical form would empty one that consists of an override alone (plan-apply 1.3, 3).
    has_topology = resources is not None and resources.processors.topology is not None
    supply = supply_of(node if has_topology else canonical_node(node))
    if supply.invalid is not None:
        raise supply.invalid.error()
    return score_on_supply(supply, used, algorithm)


def score_on_supply(supply: NodeSupply, used: UsedResources, algorithm: str) -> float:
    """Return what `score_fit` does, for a node that is taken apart already."""
    powers = _power_of_ten(_free_share(used.cpu_mhz, supply.cpu_mhz)) + _power_of_ten(_free_share(used.memory_mib, supply.memory_mib))
    if algorithm == "binpack":
        return min(max(20.0 - powers, 0.0), BEST_SCORE)
    if algorithm == "spread":
        return min(max(powers - 2.0, 0.0), BEST_SCORE)
    raise InvalidInput("algorithm", algorithm, '"binpack" or "spread"')


def _free_share(used: int, capacity: int) -> float:
    if capacity == 0:
        return 0.0 if used == 0 else (-math.inf if used > 0 else math.inf)
    try:
        return 1.0 - used / capacity
    except OverflowError:
        return -math.inf if (used > 0) == (capacity > 0) else math.inf


def _power_of_ten(exponent: float) -> float:
    try:
        return math.pow(10.0, exponent)
    except OverflowError:
        return math.inf
