"""Two checks from scratch, after a replay: was any node ever over-committed, and does a restart give the same state?

Neither trusts the sums that the state keeps: the first adds up what each allocation holds, the second opens the log again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from fastplan.fit.demand import totals_of
from fastplan.fit.encode import CLAIM_FLAG_BITS, KIND_CORE, KIND_PORT, read_claim
from fastplan.fit.supply import NodeSupply, supply_of
from fastplan.fsm import StateMachine
from fastplan.state.alloc_records import NO_ROW, AllocFields
from fastplan.state.snapshot import StateReader
from fastplan.state.statuses import CLIENT_ENDED
from fastplan.structs import Allocation
from fastplan.structs.canonical import canonical_node


def over_committed_nodes(state: StateReader) -> list[str]:
    """Return the ids of the nodes on which, at any index of the log, the running allocations needed more than the node has; ascending.

    An allocation runs from the index that created it to the index at which its client said that it has ended. Looked at is every index at which a
    node gained an allocation: amounts are summed up anew, and each port, core and device instance must exist and have no other holder.
    """
    allocs = _Allocs(state)
    return [node.id for node in state.nodes() if _is_over_committed(supply_of(canonical_node(node)), allocs.on_node(node.id))]


class _Need(NamedTuple):
    """What an allocation holds and when: from `start` to `end`, indexes; what still runs has no end."""

    start: int
    end: int | None
    amounts: tuple[int, int, int]
    """MHz, MiB of memory and of disk."""
    claims: Sequence[int]


class _Allocs:
    """The allocations of a state as needs. Those of one shape have the same amounts, which are read from its record once."""

    def __init__(self, state: StateReader) -> None:
        self._state = state
        self._amounts: dict[int, tuple[int, int, int]] = {}

    def on_node(self, node_id: str) -> list[_Need]:
        """Return the allocations that name a node."""
        view = self._state.allocs_view
        needs = []
        for row in view.rows_of_node(view.node_ref(node_id), -1):
            fields = AllocFields(*view.fields(row))
            end = fields.modify_index if fields.client in CLIENT_ENDED else None
            needs.append(_Need(fields.create_index, end, self._amounts_of(row, fields), fields.claims))
        return needs

    def _amounts_of(self, row: int, fields: AllocFields) -> tuple[int, int, int]:
        amounts = self._amounts.get(fields.shape_row)
        if amounts is None:
            totals = totals_of(self._state.alloc_at(row))
            amounts = (totals.cpu_mhz, totals.memory_mib, totals.disk_mib)
            if not fields.irregular and fields.extra == NO_ROW:
                self._amounts[fields.shape_row] = amounts
        return amounts


def _is_over_committed(supply: NodeSupply, needs: Sequence[_Need]) -> bool:
    steps = [(need.start, 1, number) for number, need in enumerate(needs)]
    # At one index allocations end before others start: the log has no entry that does both here, and a stop would free the room.
    steps += [(need.end, 0, number) for number, need in enumerate(needs) if need.end is not None]
    has = (supply.cpu_mhz, supply.memory_mib, supply.disk_mib)
    held: set[int] = set()
    used = (0, 0, 0)
    running = 0
    for _, starts, number in sorted(steps):
        need = needs[number]
        if not starts:
            used = (used[0] - need.amounts[0], used[1] - need.amounts[1], used[2] - need.amounts[2])
            running -= 1
            held.difference_update(claim >> CLAIM_FLAG_BITS for claim in need.claims)
            continue
        used = (used[0] + need.amounts[0], used[1] + need.amounts[1], used[2] + need.amounts[2])
        running += 1
        if used[0] > has[0] or used[1] > has[1] or used[2] > has[2] or (supply.max_allocs and running > supply.max_allocs):
            return True
        for claim in need.claims:
            thing = claim >> CLAIM_FLAG_BITS
            if thing in held or not _exists(supply, claim):
                return True
            held.add(thing)
    return False


def _exists(supply: NodeSupply, claim: int) -> bool:
    """Return whether a node has a port, a core or a device instance and gives it away."""
    found = read_claim(claim)
    if isinstance(found.subject, tuple):
        return found.value in supply.devices.get(found.subject, ())
    if found.kind == KIND_CORE:
        return found.value in supply.cores
    assert isinstance(found.value, int)
    return found.kind == KIND_PORT and not any(first <= found.value <= last for first, last in supply.ports.reserved.get(found.subject, ()))


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
