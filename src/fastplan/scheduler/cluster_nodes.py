"""The nodes of a job: which are ready, and which are tainted (schedulers 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.scheduler.alloc_facts import LOST
from fastplan.scheduler.draft import PlanDraft
from fastplan.scheduler.globs import is_in_pool, matches_datacenter, node_in_pool
from fastplan.scheduler.node_columns import node_columns
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
    datacenter. `by_datacenter`: how many are ready in each datacenter.
    """

    ready: list[Node]
    not_ready: set[str]
    by_datacenter: dict[str, int]


NO_NODES = JobNodes([], set(), {})


def in_scope(node: Node, job: Job, *, strict: bool = True) -> bool:
    """Return whether a node is in a datacenter and in the pool of a job. *strict*: how patterns are read, see `globs`."""
    return matches_datacenter(job.datacenters, node.datacenter, strict=strict) and node_in_pool(job.node_pool, node)


def job_nodes(state: StateReader, job: Job, *, strict: bool = True) -> JobNodes:
    """Return the nodes of a job; the records are shared, not to be changed. *strict*: how patterns of datacenters are read, see `globs`."""
    columns = node_columns(state)
    in_pool = numpy.array([is_in_pool(job.node_pool, name) for name in columns.pool_names], numpy.bool_)[columns.pools]
    in_datacenter = numpy.array([matches_datacenter(job.datacenters, name, strict=strict) for name in columns.datacenter_names], numpy.bool_)
    usable = numpy.flatnonzero(in_pool & columns.ready & in_datacenter[columns.datacenters])
    counts = numpy.bincount(columns.datacenters[usable], minlength=len(columns.datacenter_names)).tolist()
    records = columns.records
    return JobNodes(
        ready=ReadyNodes(records, usable),
        not_ready={records[place].id for place in numpy.flatnonzero(in_pool & ~columns.ready).tolist()},
        by_datacenter={name: count for name, count in zip(columns.datacenter_names, counts, strict=True) if count},
    )


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
