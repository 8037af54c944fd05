"""The durable applier end to end: 256 submitters in a closed loop, beside the bare loop and two reference appliers; then an open loop for latency."""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy

from fastplan.benchmarks.bare_loop import BareLoop, BarePlan
from fastplan.benchmarks.clusters import Cluster
from fastplan.benchmarks.leader import Leader, closed_loop, open_loop
from fastplan.benchmarks.measuring import Answer, assert_equal, file_system, quantile
from fastplan.benchmarks.plan_source import PlanSource, Submission
from fastplan.benchmarks.record_state import RecordState
from fastplan.benchmarks.reference_applier import ReferenceApplier, answers
from fastplan.planner.result import PlanResult
from fastplan.state import StateStore

CONFLICTS = (0.01, 0.1)


@dataclass(frozen=True, slots=True)
class Sizes:
    """*nodes* × *allocs_per_node* before the first plan; *rounds* of *submitters* × *plans_each* plans of *rows* placements."""

    nodes: int
    allocs_per_node: int
    submitters: int
    rows: int
    plans_each: int
    rounds: int
    open_plans: int


SIZES = {"toy": Sizes(320, 6, 8, 10, 3, 2, 30), "full": Sizes(10_000, 10, 256, 10, 16, 5, 8_192)}


@contextmanager
def settled_heap() -> Iterator[None]:
    """Keep what is there out of the sight of the garbage collector: a server has no pile of prepared plans."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def assert_answers(submissions: Sequence[Submission], results: Sequence[PlanResult]) -> None:
    """Every plan must have been refused where it was made to fail, and committed elsewhere."""
    assert_equal([result.rejected_nodes for result in results], [submission.refused for submission in submissions], "refused nodes")
    assert_equal(all(result.alloc_index > 0 for result in results), True, "that every plan has an index in the log")


async def _bare_round(loop: BareLoop, plans: Sequence[BarePlan], submitters: int) -> float:
    async def submit(first: int) -> None:
        for number in range(first, len(plans), submitters):
            await loop.submit(plans[number])

    start = time.perf_counter()
    await asyncio.gather(*(submit(first) for first in range(submitters)))
    return len(plans) / (time.perf_counter() - start)


def _accepted(results: Sequence[PlanResult]) -> list[dict[str, list[str]]]:
    return [{node_id: [alloc.id for alloc in allocs] for node_id, allocs in result.node_allocation.items()} for result in results]


def _contents(store: StateStore, cluster: Cluster) -> list[object]:
    """Return what two equal states have in common: how much there is, and what every node uses."""
    return [store.alloc_count(), [store.node_used(node_id) for node_id in cluster.node_ids]]


class _Run:
    """One run of the question; its steps follow each other on one event loop."""

    def __init__(self, sizes: Sizes, directory: Path) -> None:
        self.sizes = sizes
        self.directory = directory
        self.cluster = Cluster(sizes.nodes, sizes.allocs_per_node)
        self.pool = max(4 * sizes.submitters, min(sizes.open_plans, 4_096))
        self.leader = Leader(self.cluster, directory / "log", evaluations=self.pool)
        self.source = PlanSource(self.cluster, self.leader.machine.store, sizes.rows)
        self.placed = 0
        self.lines: list[str] = []
        self.figures: dict[str, float] = {}

    async def measure(self) -> None:
        bare = BareLoop(numpy.full((self.sizes.nodes, 4), 10**11, numpy.int64), self.directory / "bare")
        async with self.leader:
            reference_rates = await self._compare_with_references()
            await self._race(bare)
            for share in CONFLICTS:
                await self._conflicts(share)
            await self._open()
            contents = _contents(self.leader.machine.store, self.cluster)
            expected = self.sizes.nodes * self.sizes.allocs_per_node + self.placed
            assert_equal(self.leader.machine.store.alloc_count(), expected, "allocations in the state")
        bare.close()
        assert_equal(_contents(await self.leader.reopened(), self.cluster), contents, "the state after a restart")
        self.lines.append(f"reference appliers: one flush a plan {reference_rates[0]:,.0f} plans/s, group commit {reference_rates[1]:,.0f}")
        self.lines.append(f"after a restart the log gives back all {self.placed:,} placements; every refusal was the one that was planned")
        self.figures["ratio_reference"] = self.figures["plans_per_s"] / max(reference_rates)

    def _take(self, count: int, pool: int, conflicts: float = 0.0) -> list[Submission]:
        submissions = self.source.take(count, self.leader.held[:pool], conflicts=conflicts)
        self.placed += count * self.sizes.rows - sum(len(submission.refused) for submission in submissions)
        return submissions

    async def _compare_with_references(self) -> list[float]:
        """Send the same plans through the leader and both reference appliers; return the references' plans a second."""
        sizes = self.sizes
        submissions = self._take(sizes.submitters, sizes.submitters, conflicts=0.1)
        records = [submission.plan.to_record() for submission in submissions]
        results, _, _ = await closed_loop(self.leader, [submission.plan for submission in submissions], sizes.submitters)
        assert_answers(submissions, results)
        found = _accepted(results)
        number_of = {node_id: number for number, node_id in enumerate(self.cluster.node_ids)}
        nodes = sorted({number_of[node_id] for record in records for node_id in record.node_allocation})
        rates = []
        for group_commit in (False, True):
            applier = ReferenceApplier(RecordState(self.cluster, nodes), self.directory / f"reference-{group_commit}", group_commit=group_commit)
            with settled_heap():
                start = time.perf_counter()
                expected = await answers(applier, records)
                rates.append(len(records) / (time.perf_counter() - start))
            applier.close()
            assert_equal([result.rejected_nodes for result in expected], [submission.refused for submission in submissions], "refused nodes of the reference")
            assert_equal(found, _accepted(expected), "accepted placements")
        return rates

    async def _race(self, bare: BareLoop) -> None:
        sizes = self.sizes
        per_s: list[float] = []
        bare_per_s: list[float] = []
        latencies: list[float] = []
        plans = syncs = 0
        for _ in range(sizes.rounds):
            submissions = self._take(sizes.submitters * sizes.plans_each, sizes.submitters)
            mine = [submission.plan for submission in submissions]
            bares = [submission.bare for submission in submissions]
            with settled_heap():
                bare_per_s.append(await _bare_round(bare, bares, sizes.submitters))
                before = self.leader.syncs
                results, waited, seconds = await closed_loop(self.leader, mine, sizes.submitters)
                syncs += self.leader.syncs - before
                bare_per_s.append(await _bare_round(bare, bares, sizes.submitters))
            assert_answers(submissions, results)
            per_s.append(len(submissions) / seconds)
            latencies += waited
            plans += len(submissions)
        self.figures |= {
            "plans_per_s": statistics.median(per_s),
            "placements_per_s": statistics.median(per_s) * sizes.rows,
            "of_bare_loop": statistics.median(per_s) / statistics.median(bare_per_s),
            "plans_per_sync": plans / syncs,
            "bare_plans_per_s": statistics.median(bare_per_s),
            "closed_p50_ms": 1e3 * quantile(latencies, 0.5),
            "closed_p99_ms": 1e3 * quantile(latencies, 0.99),
        }
        self.lines += [
            f"closed loop, {sizes.submitters} submitters × {sizes.rows} placements: {self.figures['plans_per_s']:,.0f} plans/s (best {max(per_s):,.0f}), "
            f"{self.figures['plans_per_sync']:,.0f} a flush, p50 {self.figures['closed_p50_ms']:,.1f} ms, p99 {self.figures['closed_p99_ms']:,.1f} ms",
            f"bare loop: {self.figures['bare_plans_per_s']:,.0f} plans/s",
        ]

    async def _conflicts(self, share: float) -> None:
        sizes = self.sizes
        submissions = self._take(sizes.submitters * sizes.plans_each, sizes.submitters, conflicts=share)
        with settled_heap():
            results, _, seconds = await closed_loop(self.leader, [submission.plan for submission in submissions], sizes.submitters)
        assert_answers(submissions, results)
        per_s = len(submissions) / seconds
        self.figures[f"plans_per_s_conflicts_{share:.0%}".rstrip("%")] = per_s
        refused = sum(len(submission.refused) for submission in submissions)
        self.lines.append(f"{share:.0%} of plans in conflict: {per_s:,.0f} plans/s, {refused} of {len(submissions) * sizes.rows:,} rows refused")

    async def _open(self) -> None:
        per_s = self.figures["plans_per_s"] / 2
        submissions = self._take(self.sizes.open_plans, self.pool)
        with settled_heap():
            results, latencies = await open_loop(self.leader, [submission.plan for submission in submissions], per_s)
        assert_answers(submissions, results)
        self.figures |= {"p50_ms": 1e3 * quantile(latencies, 0.5), "p99_ms": 1e3 * quantile(latencies, 0.99)}
        self.lines.append(f"open loop at {per_s:,.0f} plans/s: p50 {self.figures['p50_ms']:,.1f} ms, p99 {self.figures['p99_ms']:,.1f} ms")


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `applier`; `p50_ms` and `p99_ms` are those of the open loop at half of the maximum."""
    run = _Run(sizes, directory)
    asyncio.run(run.measure())
    heading = f"{sizes.nodes:,} nodes × {sizes.allocs_per_node} allocations, {sizes.rows} placements with 2 ports a plan, on {file_system(str(directory))}"
    closing = f"the applier reaches {run.figures['of_bare_loop']:.0%} of the bare loop and {run.figures['ratio_reference']:,.0f} × the better reference"
    return Answer(run.figures, [heading, *run.lines, closing])
