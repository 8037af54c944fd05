"""Many rows in one call: `FitChecker.fits_rows` with full semantics, beside the reference and beside NumPy on the resources alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy
from numpy.typing import NDArray

from fastplan.benchmarks.asks import BoundNodes, NumpyRows, ReferenceRows, Rows
from fastplan.benchmarks.clusters import Cluster
from fastplan.benchmarks.measuring import Answer, Work, assert_equal, interleave, minima
from fastplan.fit import FitChecker

FAILING = (0.0, 0.01, 0.5)


@dataclass(frozen=True, slots=True)
class Sizes:
    """*nodes* × *allocs_per_node* and *rows* for the main figure; *loads* are compared at *nodes*, *small* and *large* at the same load.

    *batches*: rows in a call, for the grid."""

    nodes: int
    allocs_per_node: int
    rows: int
    loads: tuple[int, int]
    small: int
    large: int
    batches: tuple[int, ...]
    rounds: int
    reference_rounds: int


SIZES = {
    "toy": Sizes(128, 10, 64, (10, 20), 64, 256, (1, 64), 3, 1),
    "full": Sizes(10_000, 10, 4_096, (10, 50), 1_000, 100_000, (1, 8, 64, 512, 4_096), 100, 2),
}


class BatchCase:
    """Rows bound once for each side."""

    def __init__(self, checker: FitChecker, rows: Rows) -> None:
        self.rows = rows
        self._checker = checker
        place_of = {node_id: row for row, node_id in enumerate(checker.node_ids)}
        self._node_rows = numpy.array([place_of[rows.cluster.node_ids[node]] for node in rows.nodes.tolist()], numpy.int64)
        self._asks = checker.prepare_many(rows.asks)

    def compiled(self) -> NDArray[numpy.int8]:
        """Return the verdicts of the checker: the subject."""
        return self._checker.fits_rows(self._node_rows, self._asks)

    def assert_equal(self, reference: NDArray[numpy.int8]) -> None:
        """The checker, the reference and the way in which the rows were made to fail must agree."""
        assert_equal(self.compiled(), reference, "verdicts of fits_rows")
        assert_equal(reference, self.rows.expected, "verdicts of the reference")


def checker_of(cluster: Cluster) -> FitChecker:
    """Return a checker of a cluster, bound to its columns."""
    return cluster.store().snapshot().fit_checker()


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `fit-batch`."""
    cluster = Cluster(sizes.nodes, sizes.allocs_per_node)
    checker = checker_of(cluster)
    bound = BoundNodes(cluster)
    quick: dict[str, Work] = {}
    slow: dict[str, Work] = {}
    for failing in FAILING:
        rows = Rows(cluster, sizes.rows, failing=failing)
        case, arrays, reference = BatchCase(checker, rows), NumpyRows(rows), ReferenceRows(rows, bound)
        codes = reference.codes()
        case.assert_equal(codes)
        known = numpy.isin(codes, NumpyRows.KNOWN)
        assert_equal(arrays.codes()[known], codes[known], "verdicts of NumPy on resources")
        quick |= {f"compiled {failing}": case.compiled, f"numpy {failing}": arrays.codes}
        slow |= {f"compiled {failing}": case.compiled, f"reference {failing}": reference.codes}
    first = minima(interleave(slow, rounds=sizes.reference_rounds))
    second = minima(interleave(quick, rounds=sizes.rounds))
    best = {name: min(found[name] for found in (first, second) if name in found) / sizes.rows for name in quick | slow}
    compiled, arrays_ns, reference_ns = ([best[f"{side} {failing}"] for failing in FAILING] for side in ("compiled", "numpy", "reference"))
    grid_lines, load_ratio, size_ratio = _grid(sizes, checker)
    figures = {
        "ns_per_row": max(compiled),
        "ratio_reference": min(slow / fast for slow, fast in zip(reference_ns, compiled, strict=True)),
        "ratio_numpy": min(slow / fast for slow, fast in zip(arrays_ns, compiled, strict=True)),
        "load_50_over_10": load_ratio,
        "size_100k_over_1k": size_ratio,
    }
    return Answer(
        figures,
        [
            f"{sizes.nodes:,} nodes × {sizes.allocs_per_node} allocations, {sizes.rows:,} random rows, 2 ports each; verdicts equal to the reference",
            *(
                f"{failing:.0%} failing: fits_rows {ours:,.1f} ns a row; reference {theirs:,.0f}; NumPy without ports, cores and devices {numpys:,.1f}"
                for failing, ours, theirs, numpys in zip(FAILING, compiled, reference_ns, arrays_ns, strict=True)
            ),
            *grid_lines,
            f"fits_rows is {figures['ratio_reference']:,.0f} × as fast as the reference",
        ],
    )


def _grid(sizes: Sizes, checker: FitChecker) -> tuple[list[str], float, float]:
    """Measure nodes × load × rows × ports; return lines, cost at the higher load over the lower, and cost at the larger size over the smaller."""
    low, high = sizes.loads
    checkers = {
        (sizes.nodes, low): checker,
        (sizes.nodes, high): checker_of(Cluster(sizes.nodes, high)),
        (sizes.small, low): checker_of(Cluster(sizes.small, low)),
        (sizes.large, low): checker_of(Cluster(sizes.large, low)),
    }
    lines = ["ns a row, rows in a call: " + ", ".join(f"{count:,}" for count in sizes.batches)]
    cost: dict[tuple[int, int, bool], list[float]] = {(*shape, ports): [] for shape in checkers for ports in (False, True)}
    for (nodes, load), one in checkers.items():
        failing = BatchCase(one, Rows(Cluster(nodes, load), sizes.rows, failing=0.5))
        assert_equal(failing.compiled(), failing.rows.expected, "verdicts of fits_rows")
    for count in sizes.batches:
        cases = {
            (nodes, load, ports): BatchCase(one, Rows(Cluster(nodes, load), count, ports=ports))
            for (nodes, load), one in checkers.items()
            for ports in (False, True)
        }
        for case in cases.values():
            assert_equal(case.compiled(), case.rows.expected, "verdicts of fits_rows")
        times = minima(interleave({_name(*shape): case.compiled for shape, case in cases.items()}, rounds=sizes.rounds))
        for shape in cases:
            cost[shape].append(times[_name(*shape)] / count)
    for shape, costs in cost.items():
        lines.append(f"  {_name(*shape)}: " + ", ".join(f"{each:,.1f}" for each in costs))
    last = {shape: costs[-1] for shape, costs in cost.items()}
    load_ratio = last[sizes.nodes, high, True] / last[sizes.nodes, low, True]
    return lines, load_ratio, last[sizes.large, low, True] / last[sizes.small, low, True]


def _name(nodes: int, load: int, ports: bool) -> str:
    return f"{nodes:,} nodes × {load}, {2 if ports else 0} ports"
