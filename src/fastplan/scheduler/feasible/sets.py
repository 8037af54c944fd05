"""Which of many nodes a group may use whatever the plan holds: each check once for all nodes that it cannot tell apart (schedulers 8)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy
from numpy.typing import NDArray

from fastplan.scheduler.feasible.chain import Feasibility
from fastplan.structs import Node

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FeasibleSet:
    """`usable` int64: places in a list of nodes. `filtered`: (reason, node class) → how many others there are."""

    usable: NDArray[numpy.int64]
    filtered: Counter[tuple[str, str]]


class NodeKinds:
    """A list of nodes and their kinds (`node_columns`): works out once a kind what is the same for all of its nodes."""

    def __init__(self, nodes: Sequence[Node], kinds: NDArray[numpy.int32]) -> None:
        """*kinds*: int32, one for each node."""
        self.nodes = nodes
        _, self._first, self._kind_of = numpy.unique(kinds, return_index=True, return_inverse=True)

    def each(self, answer: Callable[[Node], T], *, apart: bool) -> tuple[list[T], NDArray[numpy.int64]]:
        """Return different answers, and for each node which one holds. *apart*: nodes of one kind may differ."""
        if apart:
            return [answer(node) for node in self.nodes], numpy.arange(len(self.nodes))
        return [answer(self.nodes[place]) for place in self._first.tolist()], self._kind_of

    def feasible(self, feasibility: Feasibility) -> FeasibleSet:
        """Return the nodes without a lasting problem, for the job and group that *feasibility* is set to."""
        problems, which = self.each(feasibility.lasting_problem, apart=feasibility.tells_nodes_apart)
        usable = numpy.array([problem is None for problem in problems], numpy.bool_)[which] if problems else numpy.empty(0, numpy.bool_)
        filtered: Counter[tuple[str, str]] = Counter()
        for place in numpy.flatnonzero(~usable).tolist():
            problem = problems[which[place]]
            assert problem is not None
            filtered[problem.reason, self.nodes[place].node_class] += 1
        return FeasibleSet(numpy.flatnonzero(usable), filtered)
