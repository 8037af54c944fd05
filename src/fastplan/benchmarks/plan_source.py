"""Plans for the applier: placements on random nodes, of which some do not fit because somebody else was faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from fastplan.benchmarks.bare_loop import BarePlan
from fastplan.benchmarks.clusters import Cluster, Place, amounts
from fastplan.fit.encode import CLAIM_FLAG_BITS
from fastplan.state import StateStore
from fastplan.state.plan_builder import ColumnarPlan, PlanBuilder
from fastplan.state.resource_shapes import shape_of
from fastplan.structs import Job

PRIORITY = 50
_TOO_MANY_MHZ = 10**6
_MORE_THAN_ANY_NODE = 10**12


@dataclass(frozen=True, slots=True)
class Submission:
    """A plan in columns, what the bare loop gets for it, and the ids of the nodes on which it is refused."""

    plan: ColumnarPlan
    bare: BarePlan
    refused: tuple[str, ...]


class PlanSource:
    """Makes plans of *rows* placements, one a node. No two plans want the same ports, so what is not made to fail fits in any order."""

    def __init__(self, cluster: Cluster, store: StateStore, rows: int, *, seed: int = 7) -> None:
        self._cluster = cluster
        self._store = store
        self._snapshot = store.snapshot()
        self._rows = rows
        self._random = numpy.random.default_rng(seed)
        self._slot = cluster.allocs_per_node
        self._open = numpy.flatnonzero(~cluster.is_full).astype(numpy.int64)
        self._waiting: list[tuple[NDArray[numpy.int64], NDArray[numpy.int64], list[NDArray[numpy.uint64]]]] = []
        self._jobs = [job for job in (store.job("default", job.id) for job in cluster.jobs()) if job is not None]
        self._shapes = cluster.shapes
        specimen = cluster.resources(0, Place(0, (20_000, 20_001), (), ()))
        task = specimen.tasks["server"]
        assert task is not None
        task.cpu.cpu_shares = _TOO_MANY_MHZ
        self._too_large, _ = shape_of(specimen)
        self._made = 0

    def take(self, count: int, evaluations: Sequence[tuple[str, str]], *, conflicts: float = 0.0) -> list[Submission]:
        """Return *count* plans for *evaluations* (id, token) in turn; the share *conflicts* of them is refused on one node each."""
        conflicting = numpy.zeros(count, bool)
        conflicting[self._random.permutation(count)[: round(count * conflicts)]] = True
        return [self._make(*evaluations[number % len(evaluations)], conflicting[number]) for number in range(count)]

    def _make(self, eval_id: str, token: str, conflicts: bool) -> Submission:
        if not self._waiting:
            self._fill()
        nodes, shapes, claims = self._waiting.pop()
        number = self._made
        self._made += 1
        job, group = self._group_of(int(shapes[0]), number)
        builder = PlanBuilder(
            self._snapshot,
            job,
            eval_id=eval_id,
            eval_token=token,
            priority=PRIORITY,
            snapshot_index=self._snapshot.latest_index(),
            randomness=self._random.bytes,
        )
        asks = numpy.ones((len(nodes), 4), numpy.int64)
        asks[:, :3] = [amounts(shape) for shape in shapes.tolist()]
        rows = [self._row(node) for node in nodes.tolist()]
        for position, (row, shape) in enumerate(zip(rows, shapes.tolist(), strict=True)):
            chosen, held = self._shapes[shape], claims[position]
            if conflicts and position == 0:
                asks[0, 0] = _MORE_THAN_ANY_NODE
                if number % 2:
                    # Another plan has used up the processors, ...
                    chosen, held = self._too_large, held[:2]
                else:
                    # ... or taken the second port.
                    taken = self._cluster.place(int(nodes[0]), 0).ports[1]
                    address = held[1] >> numpy.uint64(34) << numpy.uint64(34)
                    held = numpy.array([held[0], address | numpy.uint64(taken << CLAIM_FLAG_BITS), *held[2:]], numpy.uint64)
            builder.place(row, chosen, group, number * self._rows + position, held)
        bare = BarePlan(PRIORITY, numpy.array(rows, numpy.uint32), asks)
        plan = builder.build()
        # As a worker does; the numbers of a run need not follow each other.
        plan.number = number + 1
        return Submission(plan, bare, (self._cluster.node_ids[int(nodes[0])],) if conflicts else ())

    def _group_of(self, shape: int, number: int) -> tuple[Job, str]:
        """Return a job and its group that asks for *shape*: the groups of a job have four shapes, and the jobs take turns."""
        first = shape // 4
        alike = range(first % len(self._jobs), len(self._jobs), -(-len(self._shapes) // 4))
        return self._jobs[alike[number % len(alike)]], f"group-{shape % 4}"

    def _row(self, node: int) -> int:
        row = self._snapshot.node_row(self._cluster.node_ids[node])
        assert row is not None
        return row

    def _fill(self) -> None:
        """Cut one more slot of all nodes into the rows of plans.

        A plan places copies of one task group, which all ask the same: nodes whose free slot has the same shape come together, in random order, and
        only what is left over of each shape shares plans.
        """
        order = self._random.permutation(self._open)
        shapes, offsets, claims = self._cluster.claims(order, self._slot)
        self._slot += 1
        pieces = numpy.split(claims, offsets[1:-1].tolist())
        whole: list[list[int]] = []
        rest: list[int] = []
        for shape in numpy.unique(shapes).tolist():
            alike = numpy.flatnonzero(shapes == shape).tolist()
            cut = len(alike) - len(alike) % self._rows
            whole += [alike[start : start + self._rows] for start in range(0, cut, self._rows)]
            rest += alike[cut:]
        whole += [rest[start : start + self._rows] for start in range(0, len(rest) - self._rows + 1, self._rows)]
        for number in self._random.permutation(len(whole)).tolist():
            rows = whole[number]
            self._waiting.append((order[rows], shapes[rows], [pieces[row] for row in rows]))
