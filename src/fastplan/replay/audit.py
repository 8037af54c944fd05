"""Two checks from scratch, after a replay: was any node ever over-committed, and does a restart give the same state?

Neither trusts the sums that the state keeps: the first adds up records with the reference, the second opens the log again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from fastplan.errors import InvalidInput
from fastplan.fit import allocs_fit
from fastplan.fsm import StateMachine
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, Node


def over_committed_nodes(state: StateReader) -> list[str]:
    """Return the ids of the nodes on which, at any index of the log, the running allocations needed more than the node has; ascending.

    An allocation runs from the index that created it to the index at which its client said that it has ended. Only the moments before an
    end and the last one are looked at: between them the load only grows.
    """
    return [node.id for node in state.nodes() if any(not _fits(node, allocs) for allocs in _peaks(state.allocs_by_node(node.id)))]


def _fits(node: Node, allocs: list[Allocation]) -> bool:
    try:
        return allocs_fit(node, allocs).fit
    except InvalidInput:
        return False


def _peaks(allocs: list[Allocation]) -> Iterator[list[Allocation]]:
    """Yield what ran on a node at each moment at which its load was about to fall, and what runs at last, as records that count."""
    steps = [(alloc.create_index, 0, number) for number, alloc in enumerate(allocs)]
    steps += [(alloc.modify_index, 1, number) for number, alloc in enumerate(allocs) if alloc.is_client_terminal]
    for alloc in allocs:
        if alloc.is_client_terminal:
            alloc.client_status = "running"
    running: dict[int, Allocation] = {}
    grew = False
    # At one index allocations end before others start: the log has no entry that does both here, and a stop would free the room.
    for _, is_end, number in sorted(steps, key=lambda step: (step[0], -step[1])):
        if is_end:
            if grew:
                yield list(running.values())
            grew = False
            running.pop(number, None)
        else:
            running[number] = allocs[number]
            grew = True
    if grew:
        yield list(running.values())


def restart_differences(before: StateMachine, after: StateMachine) -> list[str]:
    """Return in what two state machines differ: names of tables, or `keys`; empty if they hold the same.

    Equal snapshots are proof. Snapshots may differ where the states are the same, because rows are numbered otherwise after a restart from one: then
    every record is compared in the shape of the API, and every index.
    """
    if before.applied == after.applied and _digest(before) == _digest(after):
        return []
    differing = [] if list(before.keys.items()) == list(after.keys.items()) else ["keys"]
    left, right = before.store.snapshot(), after.store.snapshot()
    for (name, one), (_, other) in zip(_small_tables(left), _small_tables(right), strict=True):
        if one != other:
            differing.append(name)
    if not _equal_allocs(left, right):
        differing.append("allocs")
    return differing


def _digest(machine: StateMachine) -> bytes:
    digest = hashlib.blake2b(digest_size=32)
    for chunk in machine.snapshot():
        digest.update(chunk)
    return digest.digest()


def _small_tables(state: StateReader) -> Iterator[tuple[str, Any]]:
    yield "nodes", [node.to_api() for node in state.nodes()]
    yield "node_pools", state.node_pools()
    yield "namespaces", state.namespaces()
    jobs = state.jobs()
    yield "jobs", [job.to_api() for job in jobs]
    yield "job_versions", [version.to_api() for job in jobs for version in state.job_versions(job.namespace, job.id)]
    yield "evals", [evaluation.to_api() for evaluation in state.evals()]
    yield "deployments", [deployment.to_api() for deployment in state.deployments()]
    yield "scheduler_config", state.scheduler_config()
    yield "indexes", state.table_indexes()


def _equal_allocs(before: StateReader, after: StateReader) -> bool:
    """Compare allocation by allocation, so that neither state is there as records as a whole."""
    if before.alloc_count() != after.alloc_count():
        return False
    for row in before.allocs_view.live_rows().tolist():
        alloc = before.alloc_at(row)
        other = after.alloc(alloc.id)
        if other is None or _without_job(alloc) != _without_job(other):
            return False
    return True


def _without_job(alloc: Allocation) -> tuple[dict[str, Any], tuple[str, str, int] | None]:
    """Return an allocation in the API's shape, and which job it has: jobs are compared as a table."""
    job, alloc.job = alloc.job, None
    return alloc.to_api(), None if job is None else (job.namespace, job.id, job.version)
