"""Placing a service job with every feasible node scored: the kernel inside a whole scheduler run, beside the plain path that scores node after node."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from fastplan.benchmarks.measuring import Answer, assert_equal, interleave, minima
from fastplan.rules import Rules
from fastplan.scheduler.cluster_nodes import job_nodes
from fastplan.scheduler.context import Context
from fastplan.scheduler.every_node import EveryNodeStack
from fastplan.scheduler.process import process
from fastplan.scheduler.requests import SubmitPlan
from fastplan.scheduler.setting import Setting
from fastplan.scheduler.stack import GenericStack
from fastplan.state import StateStore
from fastplan.state.plans import AnyPlan
from fastplan.structs import Allocation, Evaluation, Job
from fastplan.testing.builders import group_api, ready_node, service_job

_SEED = 1
_NOW_NS = 1_700_000_000_000_000_000
_RACK = "${meta.rack}"


@dataclass(frozen=True, slots=True)
class Sizes:
    """*copies* of a job on *nodes* in *racks*; *identical* copies of another one; the plain path places the first *plain* of them."""

    nodes: int
    racks: int
    copies: int
    identical: int
    plain: int
    rounds: int


SIZES = {
    "toy": Sizes(nodes=60, racks=6, copies=20, identical=40, plain=5, rounds=3),
    "full": Sizes(nodes=5_000, racks=100, copies=600, identical=10_000, plain=3, rounds=9),
}


class Case:
    """A job that is to be placed on a state; made once, placed as often as one likes: nothing is written."""

    def __init__(self, sizes: Sizes, count: int, *, spread: bool) -> None:
        chosen = random.Random(_SEED)
        nodes = [
            ready_node(
                f"node-{number:05}",
                cpu_mhz=chosen.choice((16_000, 20_000, 32_000)),
                memory_mib=chosen.choice((32_768, 65_536)),
                Meta={"rack": f"rack-{number % sizes.racks}"},
            )
            for number in range(sizes.nodes)
        ]
        more: dict[str, Any] = {"Spreads": [{"Attribute": _RACK, "Weight": 100}]} if spread else {}
        job = service_job("web", group_api("web", count=count, cpu_mhz=100, memory_mib=100, **more))
        self.store = StateStore.from_dump({"nodes": [node.to_api() for node in nodes], "jobs": [job.to_api()]})
        self.state = self.store.snapshot()
        self.evaluation = Evaluation(
            id="5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e11", namespace="default", job_id="web", type="service", triggered_by="job-register", priority=50
        )
        self.count = count

    def _setting(self, rules: Rules = Rules.STRICT) -> Setting:
        return Setting(now_ns=lambda: _NOW_NS, rules=rules, randomness=random.Random(_SEED))

    def schedule(self, rules: Rules = Rules.STRICT) -> AnyPlan:
        """Run the scheduler until it submits its plan, and return that."""
        steps = process(self.evaluation.copy(), self.state, self._setting(rules))
        for request in steps:
            if isinstance(request, SubmitPlan):
                steps.close()
                return request.plan
        raise AssertionError("the scheduler has not submitted a plan")

    def _stack(self, kind: Callable[..., GenericStack]) -> tuple[Context, GenericStack, Job]:
        job = self.state.job("default", "web")
        assert job is not None
        context = Context(self.evaluation, job, self.state, self._setting())
        stack = kind(context, batch=False)
        stack.set_job(job)
        stack.set_nodes(job_nodes(self.state, job).ready)
        return context, stack, job

    def chosen_by_kernel(self) -> list[str]:
        """Return the node of each copy, in the order in which they were chosen."""
        _, stack, job = self._stack(EveryNodeStack)
        assert isinstance(stack, EveryNodeStack)
        selected = stack.select_copies(job.task_groups[0], self.count, frozenset())
        assert selected is not None
        return [self.state.node_id(row) or "" for row in selected.rows.tolist()]

    def chosen_plainly(self, count: int) -> list[str]:
        """Return the nodes of the first copies, each chosen by a look at every node."""
        context, stack, job = self._stack(GenericStack)
        chosen: list[str] = []
        for number in range(count):
            option = stack.select(job.task_groups[0])
            assert option is not None
            chosen.append(option.node.id)
            alloc = Allocation(
                id=f"alloc-{number}",
                namespace=job.namespace,
                job_id=job.id,
                task_group=job.task_groups[0].name,
                node_id=option.node.id,
                allocated_resources=option.resources,
            )
            context.draft.place(alloc)
        return chosen

    def assert_equal(self, plain: int) -> None:
        """Kernel and plain path choose the same nodes, and the plan places every copy."""
        assert_equal(self.chosen_by_kernel()[:plain], self.chosen_plainly(plain), "the nodes that are chosen")
        placed = sum(len(allocs or ()) for allocs in self.schedule().node_allocation.values())
        assert_equal(placed, self.count, "placements in the plan")


class Cases:
    """One job without and one with an even spread over racks, and many equal copies."""

    def __init__(self, sizes: Sizes) -> None:
        self.sizes = sizes
        self.alone = Case(sizes, sizes.copies, spread=False)
        self.spread = Case(sizes, sizes.copies, spread=True)
        self.identical = Case(sizes, sizes.identical, spread=False)
        self.work: dict[str, Callable[[], object]] = {
            "kernel": self.alone.schedule,
            "spread": self.spread.schedule,
            "identical": self.identical.schedule,
            "sampling": lambda: self.alone.schedule(Rules.NOMAD),
        }

    def assert_equal(self) -> None:
        """Each case is what the plain path says."""
        for case in (self.alone, self.spread, self.identical):
            case.assert_equal(self.sizes.plain)

    def plain_per_s(self, case: Case) -> float:
        """Return how many placements a second the plain path makes."""
        start = perf_counter()
        case.chosen_plainly(self.sizes.plain)
        return self.sizes.plain / (perf_counter() - start)


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `placement`."""
    cases = Cases(sizes)
    cases.assert_equal()
    best = minima(interleave(cases.work, rounds=sizes.rounds))
    plain_per_s = max(cases.plain_per_s(cases.alone) for _ in range(2))
    plain_spread_per_s = max(cases.plain_per_s(cases.spread) for _ in range(2))
    counts = {"kernel": sizes.copies, "spread": sizes.copies, "identical": sizes.identical, "sampling": sizes.copies}
    per_s = {name: 1e9 * count / best[name] for name, count in counts.items()}
    figures = {
        "placements_per_s": per_s["kernel"],
        "ratio_reference": per_s["kernel"] / plain_per_s,
        "spread_placements_per_s": per_s["spread"],
        "ratio_spread_reference": per_s["spread"] / plain_spread_per_s,
        "identical_placements_per_s": per_s["identical"],
        "sampling_placements_per_s": per_s["sampling"],
    }
    return Answer(
        figures,
        [
            f"{sizes.copies:,} copies of a service job on {sizes.nodes:,} nodes in {sizes.racks} racks, every node scored; from evaluation to plan",
            f"plain path: {plain_per_s:,.1f} placements/s, {plain_spread_per_s:,.1f} with an even spread over racks",
            f"kernel: {per_s['kernel']:,.0f} placements/s, {per_s['spread']:,.0f} with the spread; {sizes.identical:,} copies: {per_s['identical']:,.0f}",
            f"a few sampled nodes scored plainly, as under Nomad's rules: {per_s['sampling']:,.0f} placements/s",
            f"the kernel places {figures['ratio_reference']:,.0f} times as fast as the plain path",
        ],
    )
