"""How the cost of a row grows with the cluster: plans verified and allocations committed at five sizes, as the exponent of a log–log fit."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

from fastplan.benchmarks.asks import Rows
from fastplan.benchmarks.clusters import AllocColumns, Cluster
from fastplan.benchmarks.evaluate_plan import build_plan
from fastplan.benchmarks.fit_batch import BatchCase
from fastplan.benchmarks.measuring import Answer, assert_equal, interleave, log_slope, minima, uncollected
from fastplan.columns.ids import texts_of
from fastplan.planner import PlanResult, evaluate_plan

BATCH = 1_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """*nodes*: the sizes of the clusters, each with *allocs_per_node*; plans of *rows* nodes, batches of at most 1,000 commits."""

    nodes: tuple[int, ...]
    allocs_per_node: int
    rows: int
    rounds: int


SIZES = {"toy": Sizes((64, 128, 256), 10, 30, 3), "full": Sizes((1_000, 3_000, 10_000, 30_000, 100_000), 10, 900, 40)}


class ScaledCase:
    """One cluster: a plan to verify, rows to check, and batches that are committed and taken back."""

    def __init__(self, nodes: int, allocs_per_node: int, rows: int) -> None:
        self.cluster = Cluster(nodes, allocs_per_node)
        self.store = self.cluster.store()
        placements = Rows(self.cluster, rows, distinct=True)
        self._verified_on = self.store.snapshot()
        self._plan = build_plan(self.store, placements)
        self.batch = BatchCase(self._verified_on.fit_checker(), Rows(self.cluster, 4 * rows))
        self._live = self.store.snapshot()
        self._slot = allocs_per_node
        self._waiting: list[AllocColumns] = []

    def verify(self) -> PlanResult:
        """Evaluate the plan, none of which is refused."""
        self._plan.columns.bound = None
        return evaluate_plan(self._verified_on, self._plan)

    def next_batch(self) -> AllocColumns:
        """Return up to 1,000 new allocations on random nodes."""
        if not self._waiting:
            ids = self.cluster.fresh_ids(1)
            self._waiting = list(self.cluster.batches(self.store, range(self._slot, self._slot + 1), size=BATCH, ids=ids))
        return self._waiting.pop()

    def commit_ns(self, columns: AllocColumns) -> float:
        """Commit a batch, renew the snapshot, and return the nanoseconds of one allocation. Then take the batch back, so that the load stays."""
        index = self.store.latest_index() + 1
        before = self.store.alloc_count()
        with uncollected():
            start = perf_counter_ns()
            self.store.insert_rows(index, index, *columns)
            self._live = self.store.snapshot()
            elapsed_ns = perf_counter_ns() - start
        assert_equal(self._live.alloc_count(), before + len(columns.ids), "allocations in the snapshot")
        self.store.delete_allocs(index + 1, texts_of(columns.ids))
        return elapsed_ns / len(columns.ids)


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `scaling`: minima of rounds in which every size has its turn."""
    cases = {nodes: ScaledCase(nodes, sizes.allocs_per_node, sizes.rows) for nodes in sizes.nodes}
    for case in cases.values():
        assert_equal(case.verify().rejected_nodes, (), "refused nodes")
        assert_equal(case.batch.compiled(), case.batch.rows.expected, "verdicts of fits_rows")
    verify = minima(interleave({str(nodes): case.verify for nodes, case in cases.items()}, rounds=sizes.rounds))
    check = minima(interleave({str(nodes): case.batch.compiled for nodes, case in cases.items()}, rounds=sizes.rounds))
    commits: dict[int, list[float]] = {nodes: [] for nodes in sizes.nodes}
    for _ in range(sizes.rounds):
        for nodes, case in cases.items():
            commits[nodes].append(case.commit_ns(case.next_batch()))
    verify_ns = [verify[str(nodes)] / sizes.rows for nodes in sizes.nodes]
    check_ns = [check[str(nodes)] / (4 * sizes.rows) for nodes in sizes.nodes]
    commit_ns = [min(commits[nodes]) for nodes in sizes.nodes]
    figures = {
        "slope_verify": log_slope(sizes.nodes, verify_ns),
        "slope_commit": log_slope(sizes.nodes, commit_ns),
        "slope_check": log_slope(sizes.nodes, check_ns),
    }
    return Answer(
        figures,
        [
            f"{', '.join(f'{nodes:,}' for nodes in sizes.nodes)} nodes × {sizes.allocs_per_node} allocations; ns a row at each size",
            f"verify, {sizes.rows:,} rows a plan: {_shown(verify_ns)}",
            f"check alone, {4 * sizes.rows:,} rows: {_shown(check_ns)}; slope {figures['slope_check']:.2f}",
            f"commit, {BATCH:,} a batch with a live snapshot: {_shown(commit_ns)}",
            f"slope of verify {figures['slope_verify']:.2f}, of commit {figures['slope_commit']:.2f}",
        ],
    )


def _shown(costs: list[float]) -> str:
    return ", ".join(f"{cost:,.0f}" for cost in costs)
