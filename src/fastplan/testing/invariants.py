"""What must hold of a cluster at any moment, whatever has happened to it. Each checker returns sentences about what does not hold: an empty list is well."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from fastplan.broker import EvalBroker
from fastplan.errors import InvalidInput
from fastplan.fit import allocs_fit
from fastplan.fit.demand import totals_of
from fastplan.state import StateReader
from fastplan.structs import Allocation, Job, Node

JobKey = tuple[str, str]
"""Namespace and job id."""

_BY_NODE_AND_NAME = ("system", "sysbatch")


def over_committed(state: StateReader, shrunk: Iterable[str] = (), node_ids: Iterable[str] | None = None) -> list[str]:
    """Return where the allocations that are terminal on neither side need more than their node has (design: what counts as used).

    *shrunk*: ids of nodes that supply less than they did, of which nothing is said. *node_ids*: the nodes to look at, None for all.
    """
    found = []
    for node in _nodes(state, node_ids):
        if node.id not in shrunk:
            found += _overload(node, state.allocs_by_node(node.id, terminal=False))
    return found


def placed_without_room(state: StateReader, index: int, job: JobKey, verified_at: int, *, preempts: bool = False) -> list[str]:
    """Return where the plan that was written at *index*, the last one, has placed something although there was no room or the node takes nothing.

    As strict rules have it: everything whose client has not ended counts, but for what the same plan has stopped or evicted. *job*: of the plan.
    *verified_at*: the index of the state on which it was verified; nothing is said of nodes that changed after that, while the plan was on its way.
    *preempts*: the job may evict others. Then only what is told to run counts: the plan may have counted on the room of one that was told to stop before,
    and whose eviction is not written.
    """
    found = []
    for node_id, placed in sorted(_on_nodes(alloc for alloc in state.allocs_by_job(*job) if alloc.create_index == index).items()):
        node = state.node(node_id)
        if node is None or node.modify_index > verified_at:
            continue
        if node.status != "ready" or node.scheduling_eligibility != "eligible":
            names = ", ".join(alloc.id for alloc in placed)
            found.append(f"node {node_id} is {node.status} and {node.scheduling_eligibility}, and {names} was placed on it")
        there = [alloc for alloc in state.allocs_by_node(node_id) if not alloc.is_client_terminal]
        found += _overload(node, [alloc for alloc in there if not alloc.is_server_terminal or not (preempts or alloc.alloc_modify_index == index)])
    return found


def _nodes(state: StateReader, node_ids: Iterable[str] | None) -> list[Node]:
    if node_ids is None:
        return state.nodes()
    return [node for node in map(state.node, node_ids) if node is not None]


def _on_nodes(allocs: Iterable[Allocation]) -> dict[str, list[Allocation]]:
    by_node: dict[str, list[Allocation]] = defaultdict(list)
    for alloc in allocs:
        by_node[alloc.node_id].append(alloc)
    return by_node


def _overload(node: Node, allocs: list[Allocation]) -> list[str]:
    """Return why allocations do not fit a node together; empty if they do."""
    try:
        result = allocs_fit(node, allocs)
    except InvalidInput as error:
        return [f"node {node.id}: {error}"]
    if result.fit and not result.error:
        return []
    return [f"node {node.id}: {result.error or result.reason} with {len(allocs)} allocations"]


def doubled_slots(state: StateReader, jobs: Iterable[Job] | None = None) -> list[str]:
    """Return the slots of system and sysbatch jobs, node and name, in which more than one allocation is told to run and has not ended (schedulers 5.3).

    *jobs*: those to look at, None for all.
    """
    found = []
    for job in state.jobs() if jobs is None else jobs:
        if job.type not in _BY_NODE_AND_NAME:
            continue
        slots: dict[tuple[str, str], list[str]] = defaultdict(list)
        for alloc in state.allocs_by_job(job.namespace, job.id, terminal=False):
            slots[alloc.node_id, alloc.name].append(alloc.id)
        found += [f"node {node_id} has {len(ids)} of {name}: {', '.join(ids)}" for (node_id, name), ids in sorted(slots.items()) if len(ids) > 1]
    return found


def doubled_names(state: StateReader, jobs: Iterable[Job] | None = None) -> list[str]:
    """Return the names of service jobs that more than one allocation carries which is told to run and has not ended, canaries and unknown ones aside.

    *jobs*: those to look at, None for all.
    """
    found = []
    for job in state.jobs() if jobs is None else jobs:
        if job.type != "service":
            continue
        names = Counter(alloc.name for alloc in state.allocs_by_job(job.namespace, job.id, terminal=False) if _counts(alloc))
        found += [f"{count} allocations are called {name}" for name, count in sorted(names.items()) if count > 1]
    return found


def _counts(alloc: Allocation) -> bool:
    is_canary = alloc.deployment_status is not None and alloc.deployment_status.canary
    return alloc.client_status != "unknown" and not is_canary


def wrong_sums(state: StateReader) -> list[str]:
    """Return the nodes whose `used`, which is kept from change to change, is not the sum over their allocations."""
    found = []
    for node_id in state.node_ids():
        used = state.node_used(node_id)
        totals = [totals_of(alloc) for alloc in state.allocs_by_node(node_id) if not alloc.is_client_terminal]
        sums = (*(sum(getattr(total, name) for total in totals) for name in ("cpu_mhz", "memory_mib", "disk_mib")), len(totals))
        if used is None or tuple(used) != sums:
            found.append(f"node {node_id}: used is {used}, the sum is {sums}")
    return found


def badly_held(broker: EvalBroker, state: StateReader) -> list[str]:
    """Return the evaluations that nobody has although they are pending, and what the broker's own figures contradict.

    Only when nothing is on its way between the log and the broker.
    """
    found = broker.contradictions()
    if not broker.enabled:
        return found
    known = broker.known_ids()
    found += [
        f"evaluation {evaluation.id} is pending and lost" for evaluation in state.evals() if evaluation.status == "pending" and evaluation.id not in known
    ]
    return found
