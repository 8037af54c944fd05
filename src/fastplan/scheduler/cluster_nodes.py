"""The nodes of a job: which are ready, and which are tainted (schedulers 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.scheduler.alloc_facts import LOST
from fastplan.scheduler.draft import PlanDraft
from fastplan.scheduler.globs import is_in_pool, matches_datacenter, node_in_pool
from fastplan.scheduler.node_columns import NodeColumns, node_columns
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, Job, Node


class ReadyNodes(list[Node]):
    """Nodes, ascending by id, and `places`, int64 (n): where they stand in the columns of the state's nodes."""

    places: NDArray[numpy.int64]

    def __init__(self, records: Sequence[Node], places: NDArray[numpy.int64]) -> None:
        super().__init__(records[place] for place in places.tolist())
        self.places = places


class JobNodes(NamedTuple):
    """The nodes that a job may use.

    `ready`: ready nodes of the pool in a datacenter of the job, ascending by id. `not_ready`: ids of nodes of the pool that are not ready, whatever their
    datacenter. `by_datacenter`: how many are ready in each datacenter. `ready_count`: how many in all, also where `ready` has some of them only.
    """

    ready: list[Node]
    not_ready: set[str]
    by_datacenter: dict[str, int]
    ready_count: int


NO_NODES = JobNodes([], set(), {}, 0)


class UsableNodes(NamedTuple):
    """The same in columns: `usable` int64, places of the ready nodes in *columns*; `in_pool` bool, by place."""

    columns: NodeColumns
    usable: NDArray[numpy.int64]
    in_pool: NDArray[numpy.bool_]

    def by_datacenter(self) -> dict[str, int]:
        """Return how many are ready in each datacenter."""
        names = self.columns.datacenter_names
        counts = numpy.bincount(self.columns.datacenters[self.usable], minlength=len(names)).tolist()
        return {name: count for name, count in zip(names, counts, strict=True) if count}

    def part(self, chosen: NDArray[numpy.bool_] | None = None) -> JobNodes:
        """Return the records of the nodes that are *chosen*, bool by place, or of all."""
        columns, usable = self.columns, self.usable
        not_ready = self.in_pool & ~columns.ready
        if chosen is not None:
            usable, not_ready = usable[chosen[usable]], not_ready & chosen
        return JobNodes(
            ready=ReadyNodes(columns.records, usable),
            not_ready={columns.records[place].id for place in numpy.flatnonzero(not_ready).tolist()},
            by_datacenter=self.by_datacenter(),
            ready_count=len(self.usable),
        )


def in_scope(node: Node, job: Job, *, strict: bool = True) -> bool:
    """Return whether a node is in a datacenter and in the pool of a job. *strict*: how patterns are read, see `globs`."""
    return matches_datacenter(job.datacenters, node.datacenter, strict=strict) and node_in_pool(job.node_pool, node)


def job_nodes(state: StateReader, job: Job, *, strict: bool = True) -> JobNodes:
    """Return the nodes of a job; the records are shared, not to be changed. *strict*: how patterns of datacenters are read, see `globs`."""
    return usable_nodes(state, job, strict=strict).part()


def usable_nodes(state: StateReader, job: Job, *, strict: bool = True) -> UsableNodes:
    """Return the nodes of a job as columns; see `job_nodes`."""
    columns = node_columns(state)
    in_pool = numpy.array([is_in_pool(job.node_pool, name) for name in columns.pool_names], numpy.bool_)[columns.pools]
    in_datacenter = numpy.array([matches_datacenter(job.datacenters, name, strict=strict) for name in columns.datacenter_names], numpy.bool_)
    return UsableNodes(columns, numpy.flatnonzero(in_pool & columns.ready & in_datacenter[columns.datacenters]), in_pool)


def node_records(state: StateReader) -> Iterator[Node]:
    """Yield the records of all nodes, ascending by id; shared, not to be changed."""
    for node_id in state.node_ids():
        node = node_record(state, node_id)
        if node is not None:
            yield node


def node_record(state: StateReader, node_id: str) -> Node | None:
    """Return the record of a node, None if it does not exist; shared, not to be changed."""
    row = state.node_row(node_id)
    return None if row is None else state.node_record(row)


def is_draining(node: Node) -> bool:
    """Return whether a node is being emptied."""
    return node.drain_strategy is not None or node.drain


def tainted_nodes(state: StateReader, allocs: Iterable[Allocation]) -> dict[str, Node | None]:
    """Return those nodes of *allocs* that are gone (None), down, disconnected or draining. Nodes that are merely ineligible are not among them."""
    tainted: dict[str, Node | None] = {}
    for node_id in dict.fromkeys(alloc.node_id for alloc in allocs):
        node = node_record(state, node_id)
        if node is None or node.status in ("down", "disconnected") or is_draining(node):
            tainted[node_id] = node
    return tainted


def stop_on_dead_nodes(draft: PlanDraft, allocs: Iterable[Allocation], tainted: dict[str, Node | None]) -> None:
    """Mark what was told to stop, and whose node died meanwhile, as lost (schedulers 3.3)."""
    for alloc in allocs:
        if alloc.node_id not in tainted:
            continue
        node = tainted[alloc.node_id]
        if node is not None and node.status != "down":
            continue
        if alloc.is_server_terminal and alloc.client_status in ("running", "pending"):
            draft.stop(alloc, LOST, "lost")
