"""Plans verified from Python: `evaluate_plan` with a real result, beside the reference of plan evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy

from fastplan.benchmarks.asks import Rows
from fastplan.benchmarks.clusters import Cluster
from fastplan.benchmarks.measuring import Answer, Work, assert_equal, interleave, minima
from fastplan.benchmarks.record_state import RecordState
from fastplan.planner import evaluate_plan, reference
from fastplan.planner.result import PlanResult
from fastplan.state import StateStore
from fastplan.state.plan_builder import ColumnarPlan, PlanBuilder
from fastplan.state.resource_shapes import ResourceShape, shape_of

REFUSED = (0.0, 0.01, 0.5)


@dataclass(frozen=True, slots=True)
class Sizes:
    """*nodes* × *allocs_per_node*; plans for so many nodes each, one placement a node."""

    nodes: int
    allocs_per_node: int
    plans: tuple[int, ...]
    rounds: int
    reference_rounds: int


SIZES = {"toy": Sizes(64, 10, (1, 10, 30), 3, 1), "full": Sizes(4_000, 10, (1, 10, 100, 1_000), 100, 3)}

Answered = tuple[tuple[str, ...], int]
"""Ids of the refused nodes, and the index to refresh to."""


def build_plan(store: StateStore, rows: Rows, *, eval_id: str = "") -> ColumnarPlan:
    """Return a plan in columns that places every ask of *rows* on its node."""
    snapshot = store.snapshot()
    job = store.job("default", rows.asks[0].job_id)
    random = numpy.random.default_rng(11)
    builder = PlanBuilder(snapshot, job, eval_id=eval_id, priority=50, snapshot_index=snapshot.latest_index(), randomness=random.bytes)
    shapes: dict[ResourceShape, ResourceShape] = {}
    for number, (node, ask) in enumerate(zip(rows.nodes.tolist(), rows.asks, strict=True)):
        assert ask.allocated_resources is not None
        shape, claims = shape_of(ask.allocated_resources)
        node_row = snapshot.node_row(rows.cluster.node_ids[node])
        assert node_row is not None
        builder.place(node_row, shapes.setdefault(shape, shape), ask.task_group, number, claims, alloc_id=ask.id)
    return builder.build()


class PlanCase:
    """A plan, bound for both sides."""

    def __init__(self, store: StateStore, rows: Rows) -> None:
        self._snapshot = store.snapshot()
        self._plan = build_plan(store, rows)
        self._record = self._plan.to_record()
        self._records = RecordState(rows.cluster, rows.nodes.tolist())
        self._refused = tuple(sorted(rows.cluster.node_ids[node] for node in rows.nodes[rows.expected != 0].tolist()))

    def compiled(self) -> PlanResult:
        """Evaluate the plan in columns: the subject. Binding its arrays for the compiled code counts, because a plan is evaluated once."""
        self._plan.columns.bound = None
        result = evaluate_plan(self._snapshot, self._plan)
        _ = result.rejected_nodes, result.refresh_index
        return result

    def reference(self) -> PlanResult:
        """Evaluate the same plan as records over a state of records: the baseline."""
        result = reference.evaluate_plan(self._records, self._record)
        _ = result.rejected_nodes, result.refresh_index
        return result

    def assert_equal(self) -> None:
        """Both sides must refuse the same nodes for the same reasons, and accept the same placements."""
        found, expected = self.compiled(), self.reference()
        assert_equal(found.rejected_nodes, self._refused, "refused nodes")
        assert_equal(found.reasons, expected.reasons, "reasons")
        assert_equal(found.refresh_index != 0, expected.refresh_index != 0, "whether there is an index to refresh to")
        accepted = [{node: [alloc.id for alloc in allocs] for node, allocs in result.node_allocation.items()} for result in (found, expected)]
        assert_equal(accepted[0], accepted[1], "accepted placements")


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `evaluate-plan`."""
    cluster = Cluster(sizes.nodes, sizes.allocs_per_node)
    store = cluster.store()
    cases = {(count, refused): PlanCase(store, Rows(cluster, count, failing=refused, distinct=True)) for count in sizes.plans for refused in REFUSED}
    slow: dict[str, Work] = {}
    quick: dict[str, Work] = {}
    for (count, refused), case in cases.items():
        case.assert_equal()
        quick[f"compiled {count} {refused}"] = slow[f"compiled {count} {refused}"] = case.compiled
        slow[f"reference {count} {refused}"] = case.reference
    first = minima(interleave(slow, rounds=sizes.reference_rounds))
    second = minima(interleave(quick, rounds=sizes.rounds))
    best_us = {name: min(found[name] for found in (first, second) if name in found) / 1e3 for name in slow}
    lines = [
        f"{sizes.nodes:,} nodes × {sizes.allocs_per_node} allocations, one placement with 2 ports a node, the plan in columns; results equal to the reference"
    ]
    for count in sizes.plans:
        parts = []
        for refused in REFUSED:
            ours, theirs = best_us[f"compiled {count} {refused}"], best_us[f"reference {count} {refused}"]
            parts.append(f"{refused:.0%} refused {ours:,.1f} µs, {theirs / ours:,.0f} ×")
        lines.append(f"{count:,} nodes: " + "; ".join(parts))
    small, large = sizes.plans[1], sizes.plans[-1]
    ratio = {count: best_us[f"reference {count} 0.01"] / best_us[f"compiled {count} 0.01"] for count in (small, large)}
    figures = {"us_10": best_us[f"compiled {small} 0.01"], "us_1000": best_us[f"compiled {large} 0.01"], "ratio_10": ratio[small], "ratio_1000": ratio[large]}
    lines.append(f"evaluate_plan is {ratio[small]:,.0f} and {ratio[large]:,.0f} × as fast as the reference for {small} and {large:,} nodes")
    return Answer(figures, lines)
