"""A system job on many nodes: its first placement, and a pass that finds nothing to do; in columns, beside the plain path that looks at each node."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns
from unittest import mock

from fastplan.benchmarks.measuring import Answer, assert_equal, interleave, minima, uncollected
from fastplan.scheduler import system
from fastplan.scheduler.process import process
from fastplan.scheduler.requests import SubmitPlan, UpdateEval
from fastplan.scheduler.setting import Setting
from fastplan.state import StateStore
from fastplan.state.plans import AnyPlan, PlanColumns
from fastplan.state.snapshot import StateReader
from fastplan.structs import Evaluation
from fastplan.testing.builders import group_api, ready_node, system_job
from fastplan.testing.harness import SchedulerHarness

_SEED = 1
_NOW_NS = 1_700_000_000_000_000_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """One daemon on each of so many *nodes*; the plain path runs *plain_rounds* times."""

    nodes: int
    rounds: int
    plain_rounds: int


SIZES = {"toy": Sizes(nodes=100, rounds=3, plain_rounds=1), "full": Sizes(nodes=100_000, rounds=9, plain_rounds=1)}


@contextlib.contextmanager
def plain_path() -> Iterator[None]:
    """Have each node looked at inside the block."""
    with mock.patch.object(system, "system_columns", return_value=None):
        yield


class Cases:
    """The state before and after the job was placed."""

    def __init__(self, sizes: Sizes) -> None:
        nodes = [ready_node(f"node-{number:06}", cpu_mhz=16_000, Meta={"rack": f"rack-{number % 100}"}) for number in range(sizes.nodes)]
        job = system_job("agent", group_api("agent", cpu_mhz=100, memory_mib=100))
        store = StateStore.from_dump({"nodes": [node.to_api() for node in nodes], "jobs": [job.to_api()]})
        self._evaluation = Evaluation(
            id="5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e11", namespace="default", job_id="agent", type="system", triggered_by="job-register", priority=50
        )
        self._empty = store.snapshot()
        harness = SchedulerHarness(store, now_ns=_NOW_NS, seed=_SEED)
        harness.process(self._evaluation)
        self._placed = harness.store.snapshot()
        self.node_count = sizes.nodes
        self.work: dict[str, Callable[[], object]] = {"first": self.first, "noop": self.noop}

    def _run(self, state: StateReader) -> AnyPlan | Evaluation:
        """Run the scheduler until it submits a plan or ends without one."""
        steps = process(self._evaluation.copy(), state, Setting(now_ns=lambda: _NOW_NS, randomness=random.Random(_SEED)))
        for request in steps:
            if isinstance(request, SubmitPlan):
                steps.close()
                return request.plan
            if isinstance(request, UpdateEval):
                return request.evaluation
        raise AssertionError("the scheduler has done nothing")

    def first(self) -> AnyPlan:
        """Return the plan that places the job everywhere."""
        plan = self._run(self._empty)
        assert not isinstance(plan, Evaluation)
        return plan

    def noop(self) -> Evaluation:
        """Return the finished evaluation of a pass without a plan."""
        evaluation = self._run(self._placed)
        assert isinstance(evaluation, Evaluation)
        return evaluation

    def assert_equal(self, plan: AnyPlan, evaluation: Evaluation) -> None:
        """The columns do what the plain path has done: *plan* and *evaluation* are its answers."""
        own, plain = (PlanColumns.of(each, self._empty) for each in (self.first(), plan))
        assert_equal(own.node_ids, plain.node_ids, "the nodes that are placed on")
        assert_equal(own.place_offsets, plain.place_offsets, "the placements on each node")
        assert_equal(len(own.alloc_ids), self.node_count, "placements in the plan")
        assert_equal(self.noop().to_api(), evaluation.to_api(), "the evaluation of a pass without changes")

    def plain_ns(self, rounds: int) -> dict[str, float]:
        """Return the best time of the plain path, after comparing its answers."""
        with plain_path():
            answers = self.first(), self.noop()
            times = {"first": [_time_ns(self.first) for _ in range(rounds)], "noop": [_time_ns(self.noop) for _ in range(rounds)]}
        self.assert_equal(*answers)
        return minima(times)


def _time_ns(work: Callable[[], object]) -> float:
    with uncollected():
        start = perf_counter_ns()
        work()
        return perf_counter_ns() - start


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `system`."""
    cases = Cases(sizes)
    plain = cases.plain_ns(sizes.plain_rounds)
    best = minima(interleave(cases.work, rounds=sizes.rounds))
    figures = {
        "first_ms": best["first"] / 1e6,
        "noop_ms": best["noop"] / 1e6,
        "ratio_first": plain["first"] / best["first"],
        "ratio_noop": plain["noop"] / best["noop"],
    }
    return Answer(
        figures,
        [
            f"a system job on {sizes.nodes:,} nodes",
            f"plain path: first placement {plain['first'] / 1e6:,.0f} ms, pass without changes {plain['noop'] / 1e6:,.0f} ms",
            f"columns: first placement {figures['first_ms']:,.1f} ms, pass without changes {figures['noop_ms']:,.2f} ms",
            f"columns are {figures['ratio_first']:,.0f} times and {figures['ratio_noop']:,.0f} times as fast",
        ],
    )
