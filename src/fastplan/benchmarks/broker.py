"""The evaluation broker: evaluations a second through enqueue, dequeue and ack, beside a heap of objects that does the least of that."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastplan.benchmarks.measuring import Answer, assert_equal, interleave, minima
from fastplan.broker import BrokerMetrics, EvalBroker
from fastplan.clock import SystemClock
from fastplan.metrics import Metrics
from fastplan.structs import Evaluation

QUEUES = ("service",)
_SEED = 1


@dataclass(frozen=True, slots=True)
class Sizes:
    """*depth* evaluations are ready while *turns* more come and go, one in *jobs_shared* of a job that has another one already."""

    depth: int
    turns: int
    rounds: int
    jobs_shared: int = 10


SIZES = {"toy": Sizes(depth=100, turns=300, rounds=3), "full": Sizes(depth=10_000, turns=20_000, rounds=15)}


class PlainEntry:
    """What a plain heap holds: an object that knows its order."""

    __slots__ = ("create_index", "eval_id", "priority")

    def __init__(self, evaluation: Evaluation) -> None:
        self.eval_id = evaluation.id
        self.priority = evaluation.priority
        self.create_index = evaluation.create_index

    def __lt__(self, other: PlainEntry) -> bool:
        if self.priority != other.priority:
            return self.priority > other.priority
        return self.create_index < other.create_index


def evaluations(count: int, jobs_shared: int) -> list[Evaluation]:
    """Return random evaluations; one in *jobs_shared* is of the same job as the one before it, 0 for none."""
    chosen = random.Random(_SEED)
    made: list[Evaluation] = []
    for number in range(count):
        shared = bool(jobs_shared) and number % jobs_shared == jobs_shared - 1
        made.append(
            Evaluation(
                id=f"{chosen.getrandbits(128):032x}",
                namespace="default",
                priority=made[-1].priority if shared else chosen.choice((10, 50, 50, 50, 90)),
                type=QUEUES[0],
                job_id=made[-1].job_id if shared else f"job-{number}",
                status="pending",
                create_index=number,
                modify_index=number,
            )
        )
    return made


def through_broker(broker: EvalBroker, ready: Sequence[Evaluation], coming: Sequence[Evaluation], ids: list[str]) -> None:
    """Fill the broker with *ready*, then take each of *coming* in and hand one out; at last hand out the rest. Appends what was handed out to *ids*."""
    for evaluation in ready:
        broker.enqueue(evaluation)
    for evaluation in coming:
        broker.enqueue(evaluation)
        delivery = broker.dequeue(QUEUES)
        if delivery is not None:
            ids.append(delivery.evaluation.id)
            broker.ack(delivery.evaluation.id, delivery.token)
    while (delivery := broker.dequeue(QUEUES)) is not None:
        ids.append(delivery.evaluation.id)
        broker.ack(delivery.evaluation.id, delivery.token)


def through_heap(ready: Sequence[PlainEntry], coming: Sequence[PlainEntry], ids: list[str]) -> None:
    """Do the same with a bare heap: a token for each that is handed out, and an entry in a dict until it comes back. No jobs, no timers, no checks."""
    chosen = random.Random(_SEED)
    heap: list[PlainEntry] = []
    held: dict[str, str] = {}
    for entry in ready:
        heapq.heappush(heap, entry)
    for entry in coming:
        heapq.heappush(heap, entry)
        entry = heapq.heappop(heap)
        held[entry.eval_id] = f"{chosen.getrandbits(128):032x}"
        ids.append(entry.eval_id)
        del held[entry.eval_id]
    while heap:
        entry = heapq.heappop(heap)
        held[entry.eval_id] = f"{chosen.getrandbits(128):032x}"
        ids.append(entry.eval_id)
        del held[entry.eval_id]


class Sides:
    """Subject and baseline over the same evaluations."""

    def __init__(self, sizes: Sizes) -> None:
        alone = evaluations(sizes.depth + sizes.turns, 0)
        shared = evaluations(sizes.depth + sizes.turns, sizes.jobs_shared)
        entries = [PlainEntry(each) for each in alone]
        self.count = len(alone)
        self.ids: dict[str, list[str]] = {}

        def side(name: str, work: Callable[[list[str]], None]) -> Callable[[], None]:
            def run() -> None:
                ids = self.ids[name] = []
                work(ids)

            return run

        depth = sizes.depth
        self.work = {
            "broker": side("broker", lambda ids: through_broker(_broker(), alone[:depth], alone[depth:], ids)),
            "heap": side("heap", lambda ids: through_heap(entries[:depth], entries[depth:], ids)),
            "timed": side("timed", lambda ids: through_broker(_broker(BrokerMetrics(Metrics())), alone[:depth], alone[depth:], ids)),
            "shared": side("shared", lambda ids: through_broker(_broker(), shared[:depth], shared[depth:], ids)),
        }
        self._shared_jobs = {(each.namespace, each.job_id): each.id for each in shared}
        self._job_of = {each.id: each.job_id for each in shared}

    def assert_equal(self) -> None:
        """Where no job has two evaluations, the order is that of the heap; where jobs share, each job is served and nothing twice."""
        for run in self.work.values():
            run()
        assert_equal(len(self.ids["heap"]), self.count, "evaluations that went through the heap")
        for name in ("broker", "timed"):
            assert_equal(self.ids[name], self.ids["heap"], "the order in which evaluations are handed out")
        served = self.ids["shared"]
        assert_equal(len(set(served)), len(served), "evaluations that were handed out")
        assert_equal(len({self._job_of[eval_id] for eval_id in served}), len(self._shared_jobs), "jobs that were served")


def _broker(metrics: BrokerMetrics | None = None) -> EvalBroker:
    broker = EvalBroker(SystemClock(), None, random.Random(_SEED), metrics)
    broker.set_enabled(True)
    return broker


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `broker`."""
    sides = Sides(sizes)
    sides.assert_equal()
    best = minima(interleave(sides.work, rounds=sizes.rounds))
    per_s = {name: 1e9 * len(sides.ids[name]) / best[name] for name in sides.work}
    figures = {
        "evals_per_s": per_s["broker"],
        "of_heapq": per_s["broker"] / per_s["heap"],
        "heapq_evals_per_s": per_s["heap"],
        "timed_evals_per_s": per_s["timed"],
        "shared_jobs_evals_per_s": per_s["shared"],
    }
    return Answer(
        figures,
        [
            f"{sides.count:,} evaluations through enqueue, dequeue and ack, {sizes.depth:,} deep, a job each; handed out in the order of the heap",
            f"heap of objects, a token and a dict entry each: {per_s['heap']:,.0f} evaluations/s",
            f"broker: {per_s['broker']:,.0f} evaluations/s, {per_s['timed']:,.0f} with its timers, "
            f"{per_s['shared']:,.0f} where one in {sizes.jobs_shared} shares a job",
            f"the broker reaches {figures['of_heapq']:.0%} of the heap",
        ],
    )
