"""What must hold of a cluster at any moment, whatever has happened to it. Each checker returns sentences about what does not hold: an empty list is well."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

from fastplan.broker import EvalBroker
from fastplan.errors import InvalidInput
from fastplan.fit import allocs_fit
from fastplan.fit.demand import totals_of
from fastplan.state import StateReader
from fastplan.structs import Allocation

_BY_NODE_AND_NAME = ("system", "sysbatch")


def over_committed(state: StateReader, shrunk: Iterable[str] = ()) -> list[str]:
    """Return where the allocations that are terminal on neither side need more than their node has (design: what counts as used).

    *shrunk*: ids of nodes that supply less than they did, of which nothing is said.
    """
    found = []
    for node in state.nodes():
        if node.id in shrunk:
            continue
        live = state.allocs_by_node(node.id, terminal=False)
        try:
            result = allocs_fit(node, live)
        except InvalidInput as error:
            found.append(f"node {node.id}: {error}")
            continue
        if not result.fit or result.error:
            found.append(f"node {node.id}: {result.error or result.reason} with {len(live)} allocations")
    return found


def doubled_slots(state: StateReader) -> list[str]:
    """Return the slots of system and sysbatch jobs, node and name, in which more than one allocation is told to run and has not ended (schedulers 5.3)."""
    found = []
    for job in state.jobs():
        if job.type not in _BY_NODE_AND_NAME:
            continue
        slots: dict[tuple[str, str], list[str]] = defaultdict(list)
        for alloc in state.allocs_by_job(job.namespace, job.id, terminal=False):
            slots[alloc.node_id, alloc.name].append(alloc.id)
        found += [f"node {node_id} has {len(ids)} of {name}: {', '.join(ids)}" for (node_id, name), ids in sorted(slots.items()) if len(ids) > 1]
    return found


def doubled_names(state: StateReader) -> list[str]:
    """Return the names of service jobs that more than one allocation carries which is told to run and has not ended, canaries and unknown ones aside."""
    found = []
    for job in state.jobs():
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
