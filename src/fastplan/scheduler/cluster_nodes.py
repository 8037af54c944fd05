"""The nodes of a job: which are ready, and which are tainted (schedulers 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final, NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.scheduler.alloc_facts import LOST
from fastplan.scheduler.draft import PlanDraft
from fastplan.scheduler.feasible.sets import NodeKinds
from fastplan.scheduler.globs import is_in_pool, matches_datacenter, node_in_pool
from fastplan.scheduler.node_columns import NodeColumns, node_columns
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, Job, Node

SCOPES_MAX: Final = 64
"""So many combinations of pool and datacenters are remembered."""


class ReadyNodes(list[Node]):
    """Nodes, ascending by id; not to be changed. `places` int64 (n): where they stand in *columns*."""

    def __init__(self, columns: NodeColumns, places: NDArray[numpy.int64]) -> None:
        super().__init__(columns.records[place] for place in places.tolist())
        self.places = places
        self._columns = columns

    @cached_property
    def rows(self) -> NDArray[numpy.uint32]:
        """Their rows in the node table."""
        return self._columns.rows[self.places]

    @cached_property
    def kinds(self) -> NodeKinds:
        """What may be said of several of them at once."""
        return NodeKinds(self, self._columns.kinds[self.places])

    @cached_property
    def index_by_id(self) -> dict[str, int]:
        """Where each of them stands in this list."""
        return {node.id: index for index, node in enumerate(self)}


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
            ready=ReadyNodes(columns, usable),
            not_ready={columns.records[place].id for place in numpy.flatnonzero(not_ready).tolist()},
            by_datacenter=self.by_datacenter(),
            ready_count=len(self.usable),
        )


def in_scope(node: Node, job: Job, *, strict: bool = True) -> bool:
    """Return whether a node is in a datacenter and in the pool of a job. *strict*: how patterns are read, see `globs`."""
    return matches_datacenter(job.datacenters, node.datacenter, strict=strict) and node_in_pool(job.node_pool, node)


def job_nodes(state: StateReader, job: Job, *, strict: bool = True) -> JobNodes:
    """Return the nodes of a job; shared, not to be changed. *strict*: how patterns of datacenters are read, see `globs`."""
    usable = usable_nodes(state, job, strict=strict)
    key = ("job nodes", *_scope(job, strict))
    nodes: JobNodes | None = usable.columns.derived.get(key)
    if nodes is None:
        nodes = usable.columns.derived[key] = usable.part()
    return nodes


def usable_nodes(state: StateReader, job: Job, *, strict: bool = True) -> UsableNodes:
    """Return the nodes of a job as columns; see `job_nodes`."""
    columns = node_columns(state)
    key = ("usable nodes", *_scope(job, strict))
    usable: UsableNodes | None = columns.derived.get(key)
    if usable is None:
        in_pool = numpy.array([is_in_pool(job.node_pool, name) for name in columns.pool_names], numpy.bool_)[columns.pools]
        in_datacenter = numpy.array([matches_datacenter(job.datacenters, name, strict=strict) for name in columns.datacenter_names], numpy.bool_)
        usable = UsableNodes(columns, numpy.flatnonzero(in_pool & columns.ready & in_datacenter[columns.datacenters]), in_pool)
        if len(columns.derived) > SCOPES_MAX:
            columns.derived.clear()
        columns.derived[key] = usable
    return usable


def _scope(job: Job, strict: bool) -> tuple[object, ...]:
    return job.node_pool, tuple(job.datacenters), strict


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
