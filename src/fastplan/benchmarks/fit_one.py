"""One node, one ask: `FitChecker.fits` as an embedder calls it, beside the reference."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fastplan.benchmarks.asks import Rows
from fastplan.benchmarks.clusters import Cluster
from fastplan.benchmarks.measuring import Answer, assert_equal, interleave, minima
from fastplan.fit import FitChecker, FitResult
from fastplan.fit.reference import check
from fastplan.fit.supply import supply_of


@dataclass(frozen=True, slots=True)
class Sizes:
    """*nodes* in the checker, *allocs_per_node* on each."""

    nodes: int
    allocs_per_node: int
    rounds: int


SIZES = {"toy": Sizes(40, 10, 3), "full": Sizes(200, 10, 400)}


class OneCase:
    """A node and an ask that fits, bound for both sides."""

    def __init__(self, nodes: int, allocs_per_node: int) -> None:
        cluster = Cluster(nodes, allocs_per_node)
        # The last of a few: the first ones pin cores and take devices.
        rows = Rows(cluster, 8)
        number = int(rows.nodes[-1])
        self._node = cluster.node(number)
        self._allocs = cluster.allocs_of(number)
        self._ask = rows.asks[-1]
        self._supply = supply_of(self._node)
        self._node_id = self._node.id
        self._checker = FitChecker(cluster.nodes(), [alloc for each in range(nodes) for alloc in cluster.allocs_of(each)])
        self._prepared = self._checker.prepare(self._ask)

    def prepared(self) -> FitResult:
        """Ask with what was prepared once: the subject."""
        return self._checker.fits(self._node_id, self._prepared)

    def unprepared(self) -> FitResult:
        """Ask with the record, which is taken apart each time."""
        return self._checker.fits(self._node_id, self._ask)

    def reference(self) -> FitResult:
        """Ask the reference, whose node was taken apart before: the baseline."""
        return FitResult.of(check(self._node, [*self._allocs, self._ask], supply=self._supply))

    def assert_equal(self) -> None:
        """All sides must agree, on what would be used too."""
        expected = self.reference()
        assert_equal(expected.fit, True, "the verdict on an ask that fits")
        for found in (self.prepared(), self.unprepared()):
            assert_equal((found.fit, found.reason, found.error, found.used), (expected.fit, expected.reason, expected.error, expected.used), "results of fits")


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `fit-one`."""
    case = OneCase(sizes.nodes, sizes.allocs_per_node)
    case.assert_equal()
    sides = {"prepared": case.prepared, "unprepared": case.unprepared, "reference": case.reference}
    best = minima(interleave(sides, rounds=sizes.rounds))
    figures = {
        "ns": best["prepared"],
        "ratio_reference": best["reference"] / best["prepared"],
        "unprepared_ns": best["unprepared"],
        "unprepared_ratio_reference": best["reference"] / best["unprepared"],
    }
    return Answer(
        figures,
        [
            f"one node of {sizes.nodes} with {sizes.allocs_per_node} allocations, an ask with 2 ports; results equal to the reference",
            f"prepared once {best['prepared']:,.0f} ns, taken apart each time {best['unprepared']:,.0f} ns, reference {best['reference']:,.0f} ns",
            f"fits is {figures['ratio_reference']:,.0f} × as fast as the reference",
        ],
    )
