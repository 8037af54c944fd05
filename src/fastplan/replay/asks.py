"""What the tasks of a workload ask of nodes: prepared once, good for every checker."""

from __future__ import annotations

from collections import Counter

import numpy
from numpy.typing import NDArray

from fastplan.fit import FitChecker
from fastplan.replay.shapes import GROUP, TaskShape
from fastplan.state.resource_shapes import ResourceShape


class ShapeAsks:
    """The asks of one task shape, of which any will do."""

    def __init__(self, shape: TaskShape, empty: FitChecker) -> None:
        """*empty*: the cluster without any allocation."""
        self.shape = shape
        self.asks = [empty.prepare((job, GROUP)) for job in shape.asks()]
        self.plain = not (shape.cores or shape.gpus or shape.static_ports or shape.dynamic_ports)
        """Whether a copy claims nothing that only one can hold: then all copies hold the same."""
        self.plain_shape: ResourceShape | None = None
        """What every copy holds, if `plain` and once somebody has found out."""
        self._shapes: dict[ResourceShape, ResourceShape] = {}
        self.never_fits = "" if any(empty.mask(ask).any() for ask in self.asks) else self._lacking(empty)
        """What is lacking even on the empty cluster, on most nodes; empty if a copy fits somewhere."""

    def headroom(self, checker: FitChecker) -> NDArray[numpy.int64]:
        """Return for each node how many copies fit; at most one is counted where ports, cores or GPUs would have to be chosen to know."""
        if self.plain:
            return checker.headroom(self.asks[0])
        fits: NDArray[numpy.bool_] = numpy.logical_or.reduce([checker.mask(ask) for ask in self.asks])
        return fits.astype(numpy.int64)

    def same_shape(self, shape: ResourceShape) -> ResourceShape:
        """Return the one object that stands for all shapes equal to *shape*."""
        return self._shapes.setdefault(shape, shape)

    def _lacking(self, empty: FitChecker) -> str:
        """Return the dimension that fails first on most nodes. With several asks a node lacks what the last of them says."""
        first: dict[str, str] = {}
        for ask in self.asks:
            for node in empty.explain(ask):
                if node.failing:
                    first[node.node_id] = node.failing[0].dimension
        counts = Counter(first.values())
        return min(counts, key=lambda dimension: (-counts[dimension], dimension)) if counts else "nodes"
