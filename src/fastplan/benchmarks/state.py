"""The state store: commits of new allocations, random status updates, snapshots, and memory for each allocation."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

import numpy
from numpy.typing import NDArray

from fastplan.benchmarks.clusters import AllocColumns, Cluster
from fastplan.benchmarks.measuring import Answer, assert_equal, uncollected
from fastplan.benchmarks.memory import measure_child
from fastplan.state import StateStore
from fastplan.state.statuses import CLIENT_PENDING, CLIENT_RUNNING

BATCH = 1_000

PlainRow = tuple[bytes, int, int, int, int, int, tuple[int, int, int], tuple[int, ...]]
"""Id, node, group, job version, evaluation, name index, amounts, claims."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Commits into *nodes* × *allocs_per_node* allocations, *rounds* more for each node; the child has *child_nodes* × *child_allocs_per_node*."""

    nodes: int
    allocs_per_node: int
    rounds: int
    child_nodes: int
    child_allocs_per_node: int
    extras: int


SIZES = {"toy": Sizes(200, 3, 3, 100, 10, 200), "full": Sizes(10_000, 10, 20, 20_000, 50, 20_000)}


class PlainAlloc:
    """An allocation of the plain store: one object."""

    __slots__ = ("alloc_id", "amounts", "claims", "eval_ref", "group", "index", "name_index", "node", "status", "version")

    alloc_id: bytes
    node: int
    group: int
    version: int
    eval_ref: int
    name_index: int
    amounts: tuple[int, int, int]
    claims: tuple[int, ...]
    index: int
    status: int


class PlainStore:
    """What one would write first: objects and dicts, with the same indexes and sums, without snapshots."""

    def __init__(self) -> None:
        self.by_id: dict[bytes, PlainAlloc] = {}
        self.by_node: defaultdict[int, dict[bytes, PlainAlloc]] = defaultdict(dict)
        self.by_group: defaultdict[int, dict[bytes, PlainAlloc]] = defaultdict(dict)
        self.by_eval: defaultdict[int, dict[bytes, PlainAlloc]] = defaultdict(dict)
        self.used: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0, 0])

    def insert(self, index: int, rows: list[PlainRow]) -> None:
        """Insert allocations."""
        for alloc_id, node, group, version, eval_ref, name_index, amounts, claims in rows:
            alloc = PlainAlloc()
            alloc.alloc_id = alloc_id
            alloc.node = node
            alloc.group = group
            alloc.version = version
            alloc.eval_ref = eval_ref
            alloc.name_index = name_index
            alloc.amounts = amounts
            alloc.claims = claims
            alloc.index = index
            alloc.status = CLIENT_RUNNING
            self.by_id[alloc_id] = alloc
            self.by_node[node][alloc_id] = alloc
            self.by_group[group][alloc_id] = alloc
            self.by_eval[eval_ref][alloc_id] = alloc
            used = self.used[node]
            used[0] += amounts[0]
            used[1] += amounts[1]
            used[2] += amounts[2]


def plain_rows(store: StateStore, columns: AllocColumns) -> list[PlainRow]:
    """Return the rows that a plain store inserts for the same columns."""
    shapes = store.shapes.items
    claims = columns.claims.tolist()
    offsets = columns.claim_offsets.tolist()
    return [
        (
            columns.ids[n].tobytes(),
            node,
            group,
            version,
            int(columns.eval_refs[0]),
            name_index,
            (shapes[shape].cpu_mhz, shapes[shape].memory_mib, shapes[shape].disk_mib),
            tuple(claims[offsets[n] : offsets[n + 1]]),
        )
        for n, (node, group, version, shape, name_index) in enumerate(
            zip(
                columns.node_rows.tolist(),
                columns.group_rows.tolist(),
                columns.job_version_rows.tolist(),
                columns.shape_rows.tolist(),
                columns.name_index.tolist(),
                strict=True,
            )
        )
    ]


class CommitCase:
    """A state, and a plain store with the same contents, that grow by the same batches."""

    def __init__(self, nodes: int, allocs_per_node: int) -> None:
        self.cluster = Cluster(nodes, allocs_per_node)
        self.store = self.cluster.store()
        self.plain = PlainStore()
        self.snapshot = self.store.snapshot()
        self._next_slot = allocs_per_node
        rows = self.store.allocs_view.live_rows()
        assert_equal(len(rows), nodes * allocs_per_node, "allocations in the state")

    def next_batches(self) -> list[AllocColumns]:
        """Return one more allocation for each node, as batches."""
        slot = self._next_slot
        self._next_slot += 1
        return list(self.cluster.batches(self.store, range(slot, slot + 1), size=BATCH, ids=self.cluster.fresh_ids(1)))

    def commit(self, columns: AllocColumns) -> None:
        """Insert a batch and renew the snapshot: the subject."""
        index = self.store.latest_index() + 1
        self.store.insert_rows(index, index, *columns)
        self.snapshot = self.store.snapshot()

    def commit_plainly(self, rows: list[PlainRow]) -> None:
        """Insert the same into the plain store: the baseline."""
        self.plain.insert(self.store.latest_index(), rows)

    def random_updates(self, random: numpy.random.Generator, live: NDArray[numpy.uint32]) -> tuple[NDArray[numpy.uint32], NDArray[numpy.uint8]]:
        """Return rows and statuses of a batch of random status updates."""
        count = min(BATCH, len(live))
        return random.choice(live, count, replace=False), random.choice(numpy.array([CLIENT_PENDING, CLIENT_RUNNING], numpy.uint8), count)

    def update(self, rows: NDArray[numpy.uint32], statuses: NDArray[numpy.uint8]) -> None:
        """Write client statuses and renew the snapshot."""
        index = self.store.latest_index() + 1
        self.store.update_client_status(index, index, rows, statuses)
        self.snapshot = self.store.snapshot()

    def assert_consistent(self, before: dict[int, tuple[int, int, int]]) -> None:
        """What both stores have gained must be equal, node by node. *before*: what was used before the first common batch."""
        for node_id in self.cluster.node_ids[:: max(1, self.cluster.node_count // 500)]:
            row = self.store.node_row(node_id)
            assert row is not None
            use = self.store.node_used(node_id)
            assert use is not None
            gained = [now - then for now, then in zip(use[:3], before[row], strict=True)]
            assert_equal(gained, self.plain.used[row], f"use of node {node_id}")
            in_plain = len(self.plain.by_node[row]) + self.cluster.allocs_per_node
            assert_equal(len(self.store.allocs_view.rows_of_node(self.store.allocs_view.node_ref(node_id))), in_plain, f"allocations of node {node_id}")

    def used(self) -> dict[int, tuple[int, int, int]]:
        """Return what is used on each node row."""
        found = {}
        for node_id in self.cluster.node_ids:
            row, use = self.store.node_row(node_id), self.store.node_used(node_id)
            assert row is not None
            assert use is not None
            found[row] = (use.cpu_mhz, use.memory_mib, use.disk_mib)
        return found


def _timed(work: Callable[..., object], *arguments: object) -> int:
    start = perf_counter_ns()
    work(*arguments)
    return perf_counter_ns() - start


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `state`: both stores take the same batches in turn; memory and snapshots are measured in a child process."""
    case = CommitCase(sizes.nodes, sizes.allocs_per_node)
    before = case.used()
    old = case.store.snapshot()
    old_use = [old.node_used(node_id) for node_id in case.cluster.node_ids[:100]]
    times: dict[str, list[float]] = {"store": [], "plain": [], "update": []}
    random = numpy.random.default_rng(2)
    mean_ns = 0.0
    for _ in range(sizes.rounds):
        batches = case.next_batches()
        prepared = [plain_rows(case.store, columns) for columns in batches]
        live = case.store.allocs_view.live_rows()
        updates = [case.random_updates(random, live) for _ in batches]
        with uncollected():
            commits = [_timed(case.commit, columns) / len(columns.ids) for columns in batches]
            plain = [_timed(case.commit_plainly, rows) / len(rows) for rows in prepared]
            changes = [_timed(case.update, numbers, statuses) / len(numbers) for numbers, statuses in updates]
        mean_ns += sum(cost * len(columns.ids) for cost, columns in zip(commits, batches, strict=True)) / sizes.nodes / sizes.rounds
        # A batch takes a millisecond: the middle one of a round had the processor for itself, and still pays for what grows now and then.
        for side, costs in (("store", commits), ("plain", plain), ("update", changes)):
            times[side].append(statistics.median(costs))
    case.assert_consistent(before)
    assert_equal([old.node_used(node_id) for node_id in case.cluster.node_ids[:100]], old_use, "what an old snapshot says")
    child = measure_child(sizes.child_nodes, sizes.child_allocs_per_node, sizes.extras)
    figures = {
        "commit_ns": min(times["store"]),
        "commit_mean_ns": mean_ns,
        "update_ns": min(times["update"]),
        "ratio_plain": min(times["plain"]) / min(times["store"]),
        **child,
    }
    first, last = sizes.nodes * sizes.allocs_per_node, sizes.nodes * (sizes.allocs_per_node + sizes.rounds)
    children = sizes.child_nodes * sizes.child_allocs_per_node
    return Answer(
        figures,
        [
            f"{sizes.nodes:,} nodes, {first:,} growing to {last:,} allocations with 2 ports each",
            f"batches of {min(BATCH, sizes.nodes):,}, the snapshot renewed after each",
            f"commit {figures['commit_ns']:,.0f} ns an allocation (mean {figures['commit_mean_ns']:,.0f})",
            f"random status update {figures['update_ns']:,.0f} ns; objects and dicts without snapshots {min(times['plain']):,.0f} ns a commit",
            f"child with {sizes.child_nodes:,} nodes, {children:,} allocations: snapshot {child['snapshot_us']:,.1f} µs",
            f"private memory {child['bytes_per_alloc']:,.0f} bytes an allocation; {child['extra_bytes']:,.0f} more with task states and deployment health",
            f"commit is {figures['ratio_plain']:.1f} × as fast as objects and dicts",
        ],
    )
