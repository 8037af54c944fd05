"""Which nodes are looked at, how many, and which one is taken (schedulers 10)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from fastplan.structs import Node

if TYPE_CHECKING:
    from fastplan.scheduler.rank import RankedNode

POOR_SCORE: Final = 0.0
"""Options that score no more than this are set aside."""

MOST_SET_ASIDE: Final = 3
"""How many poor options are set aside at most."""

FEWEST_OPTIONS: Final = 2
"""How many options are compared at least."""


def visiting_order(nodes: Sequence[Node], eval_id: str, snapshot_index: int) -> list[Node]:
    """Return *nodes* in an order that evaluation and snapshot determine, so that workers do not all begin with the same node (schedulers 10.2)."""
    shuffled = list(nodes)
    tail = int.from_bytes(eval_id.encode()[-8:], "big")
    random.Random((tail ^ snapshot_index) >> 2).shuffle(shuffled)
    return shuffled


def option_limit(node_count: int, *, batch: bool) -> int:
    """Return how many options are compared without affinities and spreads: 2 for batch jobs, else log₂ of the nodes (schedulers 10.3)."""
    if batch or node_count < 1:
        return FEWEST_OPTIONS
    return max(FEWEST_OPTIONS, (node_count - 1).bit_length())


class NodeSource:
    """Nodes in visiting order. Each round goes on where the last one stopped, and ends after all nodes were seen once (schedulers 10.1)."""

    def __init__(self) -> None:
        self.nodes: Sequence[Node] = ()
        self._offset = 0

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Start anew with other nodes."""
        self.nodes = nodes
        self._offset = 0

    def round(self) -> Iterator[Node]:
        """Yield the nodes of one selection."""
        for _ in range(len(self.nodes)):
            if self._offset >= len(self.nodes):
                self._offset = 0
            self._offset += 1
            yield self.nodes[self._offset - 1]


def limited(options: Iterable[RankedNode], limit: int) -> Iterator[RankedNode]:
    """Yield at most *limit* options; the first few poor ones come last, and only if there are not enough others (schedulers 10.4)."""
    source = iter(options)
    set_aside: list[RankedNode] = []
    handed_out = 0
    while handed_out < limit:
        option = next(source, None)
        while option is not None and option.final_score <= POOR_SCORE and len(set_aside) < MOST_SET_ASIDE:
            set_aside.append(option)
            option = next(source, None)
        if option is None:
            break
        handed_out += 1
        yield option
    yield from set_aside[: limit - handed_out]


def best(options: Iterable[RankedNode], key: Callable[[RankedNode], float | tuple[int, int]]) -> RankedNode | None:
    """Return the option with the greatest key, the first one of equals (schedulers 10.5)."""
    return max(options, key=key, default=None)
