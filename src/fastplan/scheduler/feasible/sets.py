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
        self._class_names, class_of_kind = numpy.unique([nodes[place].node_class for place in self._first.tolist()], return_inverse=True)
        self.classes: NDArray[numpy.int64] = class_of_kind[self._kind_of]
        """The number of each node's class, int64."""

    def each(self, answer: Callable[[Node], T], *, apart: bool) -> tuple[list[T], NDArray[numpy.int64]]:
        """Return different answers, and for each node which one holds. *apart*: nodes of one kind may differ."""
        if apart:
            return [answer(node) for node in self.nodes], numpy.arange(len(self.nodes))
        return [answer(self.nodes[place]) for place in self._first.tolist()], self._kind_of

    def class_name(self, number: int) -> str:
        """Return the name of a class."""
        return str(self._class_names[number])

    def feasible(self, feasibility: Feasibility) -> FeasibleSet:
        """Return the nodes without a lasting problem, for the job and group that *feasibility* is set to."""
        problems, which = self.each(feasibility.lasting_problem, apart=feasibility.tells_nodes_apart)
        usable = numpy.array([problem is None for problem in problems], numpy.bool_)[which] if problems else numpy.empty(0, numpy.bool_)
        filtered: Counter[tuple[str, str]] = Counter()
        failing = numpy.flatnonzero(~usable)
        pairs, counts = numpy.unique(which[failing] * (len(self._class_names) or 1) + self.classes[failing], return_counts=True)
        for pair, count in zip(pairs.tolist(), counts.tolist(), strict=True):
            answer, number = divmod(pair, len(self._class_names))
            problem = problems[answer]
            assert problem is not None
            filtered[problem.reason, self.class_name(number)] += count
        return FeasibleSet(numpy.flatnonzero(usable), filtered)
