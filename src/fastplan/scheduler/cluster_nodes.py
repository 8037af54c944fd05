"""The nodes of a job: which are ready, and which are tainted (schedulers 3.1, 3.2)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from fastplan.scheduler.alloc_facts import LOST
from fastplan.scheduler.draft import PlanDraft
from fastplan.scheduler.globs import matches_datacenter, node_in_pool
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, Job, Node


class JobNodes(NamedTuple):
    """The nodes that a job may use.

    `ready`: ready nodes of the pool in a datacenter of the job, ascending by id. `not_ready`: ids of nodes of the pool that are not ready, whatever their
    datacenter. `by_datacenter`: how many are ready in each datacenter.
    """

    ready: list[Node]
    not_ready: set[str]
    by_datacenter: dict[str, int]


NO_NODES = JobNodes([], set(), {})


def is_ready(node: Node) -> bool:
    """Return whether a node takes placements: ready, not draining, eligible (schedulers 2.6)."""
    return node.status == "ready" and node.drain_strategy is None and not node.drain and node.scheduling_eligibility == "eligible"


def in_scope(node: Node, job: Job, *, strict: bool = True) -> bool:
    """Return whether a node is in a datacenter and in the pool of a job. *strict*: how patterns are read, see `globs`."""
    return matches_datacenter(job.datacenters, node.datacenter, strict=strict) and node_in_pool(job.node_pool, node)


def job_nodes(state: StateReader, job: Job, *, strict: bool = True) -> JobNodes:
    """Return the nodes of a job; the records are shared, not to be changed. *strict*: how patterns of datacenters are read, see `globs`."""
    nodes = JobNodes([], set(), {})
    for node in node_records(state):
        if not node_in_pool(job.node_pool, node):
            continue
        if not is_ready(node):
            nodes.not_ready.add(node.id)
        elif matches_datacenter(job.datacenters, node.datacenter, strict=strict):
            nodes.ready.append(node)
            nodes.by_datacenter[node.datacenter] = nodes.by_datacenter.get(node.datacenter, 0) + 1
    return nodes


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
