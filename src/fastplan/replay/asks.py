"""What the tasks of a workload ask of nodes: prepared once, good for every checker."""

from __future__ import annotations

from collections import Counter

import numpy
from numpy.typing import NDArray

from fastplan.fit import FitChecker
from fastplan.fit.asks import PreparedAsk
from fastplan.fit.encode import KIND_DEVICE, KIND_SHIFT, SUBJECT_SHIFT
from fastplan.replay.shapes import GROUP, TaskShape
from fastplan.state.resource_shapes import ResourceShape, shape_of
from fastplan.structs import AllocatedResources


class ShapeAsks:
    """The asks of one task shape, of which any will do."""

    def __init__(self, shape: TaskShape, empty: FitChecker) -> None:
        """*empty*: the cluster without any allocation."""
        self.shape = shape
        self.asks = [empty.prepare((job, GROUP)) for job in shape.asks()]
        self.plain = not (shape.cores or shape.gpus or shape.static_ports or shape.dynamic_ports)
        """Whether a copy claims nothing that only one can hold: then all copies hold the same."""
        self._shapes: dict[tuple[object, ...], ResourceShape] = {}
        self.never_fits = "" if any(empty.mask(ask).any() for ask in self.asks) else self._lacking(empty)
        """What is lacking even on the empty cluster, on most nodes; empty if a copy fits somewhere."""

    def headroom(self, checker: FitChecker) -> NDArray[numpy.int64]:
        """Return for each node how many copies fit; at most one is counted where ports, cores or GPUs would have to be chosen to know."""
        if self.plain:
            return checker.headroom(self.asks[0])
        fits: NDArray[numpy.bool_] = numpy.logical_or.reduce([checker.mask(ask) for ask in self.asks])
        return fits.astype(numpy.int64)

    def shape_of(self, ask: PreparedAsk, chosen: PreparedAsk) -> tuple[ResourceShape, NDArray[numpy.uint64]]:
        """Return shape and claims, uint64 in slot order, of what *ask*, one of `asks`, was given on a node, as `FitChecker.choose` says.

        Without ports, what a copy is given follows from the amounts and the kinds of its devices: then the shape is known from an earlier one.
        """
        numbers = chosen.numbers
        claims = numpy.frombuffer(numbers.claims, numpy.uint64)
        if self.shape.static_ports or self.shape.dynamic_ports:
            shape, claims = shape_of(_resources(chosen))
            return self._shapes.setdefault((shape,), shape), claims
        kinds = (claims >> SUBJECT_SHIFT)[claims >> KIND_SHIFT == KIND_DEVICE]
        key = (id(ask), numbers.cpu_mhz, numbers.memory_mib, numbers.memory_max_mib, numbers.disk_mib, kinds.tobytes())
        known = self._shapes.get(key)
        if known is None:
            shape, _ = shape_of(_resources(chosen))
            known = self._shapes[key] = self._shapes.setdefault((shape,), shape)
        return known, claims

    def _lacking(self, empty: FitChecker) -> str:
        """Return the dimension that fails first on most nodes. With several asks a node lacks what the last of them says."""
        first: dict[str, str] = {}
        for ask in self.asks:
            for node in empty.explain(ask):
                if node.failing:
                    first[node.node_id] = node.failing[0].dimension
        counts = Counter(first.values())
        return min(counts, key=lambda dimension: (-counts[dimension], dimension)) if counts else "nodes"


def _resources(chosen: PreparedAsk) -> AllocatedResources:
    resources = chosen.allocs[0].allocated_resources
    assert resources is not None
    return resources
