"""Operations on nodes: register, status, eligibility, drain, deregister (worker-and-broker 2.3, 5.4)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.scheduler.classes import computed_class
from fastplan.scheduler.cluster_nodes import is_draining
from fastplan.scheduler.node_columns import is_ready
from fastplan.server.operations.evaluations import (
    NODE_DRAIN,
    RUN_TO_COMPLETION,
    NewId,
    NodeAlloc,
    allocs_on_node,
    job_evaluation,
    node_evaluations,
)
from fastplan.server.operations.jobs import BUILT_IN_POOLS
from fastplan.server.operations.operation import Operation, Unblock
from fastplan.state.snapshot import StateReader
from fastplan.structs import DrainStrategy, Evaluation, Node, canonical_node
from fastplan.structs.times import time_text

STATUSES: Final = ("initializing", "ready", "down", "disconnected")

FEASIBILITY_FIELDS: Final = (
    "datacenter",
    "node_pool",
    "node_class",
    "computed_class",
    "attributes",
    "meta",
    "host_volumes",
    "host_networks",
    "node_resources",
    "reserved_resources",
    "resources",
    "reserved",
    "node_max_allocs",
)
"""What decides where something fits and is allowed; drivers are compared apart, because their update times say nothing."""


def register_node(state: StateReader, node: Node, now_ns: int, new_id: NewId) -> Operation:
    """Register a node, or what has become of it. *node* is not changed.

    Left out, its name is its id, its datacenter `dc1`, its pool `default` and its status `initializing`; the computed class is worked out. A registered
    node keeps its eligibility and its drain, which operators set and clients do not know. A node pool that does not exist is made. Jobs are evaluated for
    a new node, one that became ready, down or disconnected, and one that changed in what decides feasibility. Raises InvalidInput for a node without id,
    or with a status or eligibility that there is not.
    """
    new = node.copy()
    _check_node(new)
    old = state.node(new.id)
    new.name = new.name or new.id
    new.datacenter = new.datacenter or "dc1"
    new.status = new.status or "initializing"
    if old is None:
        new.scheduling_eligibility = new.scheduling_eligibility or ("ineligible" if is_draining(new) else "eligible")
    else:
        new.scheduling_eligibility, new.drain, new.drain_strategy, new.last_drain = (
            old.scheduling_eligibility,
            old.drain,
            old.drain_strategy,
            old.last_drain,
        )
        new.events = new.events or old.events
    new.node_pool = new.node_pool or "default"
    new.computed_class = _class_of(new, old)
    if old is None or old.status != new.status or not new.status_updated_at:
        new.status_updated_at = now_ns // 10**9
    commands: list[codec.Single] = []
    if new.node_pool not in BUILT_IN_POOLS and state.node_pool(new.node_pool) is None:
        commands.append(codec.UpsertNodePools([{"Name": new.node_pool}]))
    commands.append(codec.UpsertNodes([new.to_api()]))
    evaluations: list[Evaluation] = []
    if old is None or _status_matters(old.status, new.status) or _feasibility(old) != _feasibility(canonical_node(new)):
        evaluations = node_evaluations(state, new.id, [new] if old is None else [old, new], now_ns, new_id)
    return Operation(commands, evaluations, [Unblock("class", computed_class=new.computed_class)] if is_ready(new) else [])


def update_node_status(state: StateReader, node_id: str, status: str, now_ns: int, new_id: NewId) -> Operation:
    """Set the status of a node; the status that it has is nothing to do.

    Jobs are evaluated when it becomes ready, down or disconnected. Raises StateError for a node that does not exist, InvalidInput for a status that
    there is not.
    """
    node = _node(state, node_id)
    _check_status("status", status)
    if node.status == status:
        return Operation()
    changed = copy.copy(node)
    changed.status = status
    evaluations = node_evaluations(state, node_id, [changed], now_ns, new_id) if _status_matters(node.status, status) else []
    return Operation([codec.UpdateNodeStatus(node_id, status)], evaluations, _room_on(changed))


def update_node_eligibility(state: StateReader, node_id: str, eligible: bool, now_ns: int, new_id: NewId) -> Operation:
    """Set whether a node takes new work; what it says already is nothing to do. Jobs are evaluated when it becomes eligible.

    Raises StateError for a node that does not exist, and for making a node eligible that is being drained.
    """
    node = _node(state, node_id)
    if eligible and is_draining(node):
        raise StateError("can not set node's scheduling eligibility to eligible while it is draining")
    eligibility = "eligible" if eligible else "ineligible"
    if node.scheduling_eligibility == eligibility:
        return Operation()
    changed = copy.copy(node)
    changed.scheduling_eligibility = eligibility
    command = codec.UpdateNodeEligibility(node_id, eligibility)
    return Operation([command], *_opened(state, changed, now_ns, new_id) if eligible else ())


def update_node_drain(
    state: StateReader, node_id: str, drain: DrainStrategy | Mapping[str, Any] | None, now_ns: int, new_id: NewId, *, mark_eligible: bool = True
) -> Operation:
    """Drain a node, or end its drain with None; *mark_eligible*: it then takes new work, and jobs are evaluated.

    The service allocations on it are marked for migration at once, those of system jobs too unless the drain ignores them, and their jobs are evaluated.
    Batch and sysbatch allocations may end by themselves, unless the deadline is negative, which forces the drain. Nobody acts on a deadline in the
    future: it is stored, with the times that follow from it. Raises StateError for a node that does not exist, InvalidInput for a drain that cannot be read.
    """
    node = _node(state, node_id)
    if drain is None:
        changed = copy.copy(node)
        changed.drain, changed.drain_strategy = False, None
        changed.scheduling_eligibility = "eligible" if mark_eligible else "ineligible"
        command = codec.UpdateNodeDrain(node_id, None, mark_eligible)
        return Operation([command], *_opened(state, changed, now_ns, new_id) if mark_eligible else ())
    strategy = _strategy(drain)
    strategy.started_at = time_text(now_ns)
    strategy.force_deadline = time_text(now_ns + strategy.deadline) if strategy.deadline > 0 else ""
    commands: list[codec.Single] = [codec.UpdateNodeDrain(node_id, strategy.to_api())]
    leaving = [alloc for alloc in allocs_on_node(state, node_id) if _leaves(alloc, strategy)]
    if leaving:
        commands.append(codec.UpdateAllocDesiredTransitions({alloc.fields.id: {"Migrate": True} for alloc in leaving}))
    jobs = {(alloc.job.namespace, alloc.job.id): alloc.job for alloc in leaving}
    evaluations = []
    for _, job in sorted(jobs.items()):
        evaluation = job_evaluation(job, NODE_DRAIN, now_ns, new_id, job_modify_index=job.modify_index)
        evaluation.node_id = node_id
        evaluations.append(evaluation)
    return Operation(commands, evaluations)


def deregister_node(state: StateReader, node_id: str, now_ns: int, new_id: NewId) -> Operation:
    """Forget a node; its allocations stay until their jobs have been evaluated. Raises StateError for a node that does not exist."""
    node = _node(state, node_id)
    return Operation([codec.DeleteNodes([node_id])], node_evaluations(state, node_id, [node], now_ns, new_id))


# --- parts ------------------------------------------------------------------------------------------------------------


def _node(state: StateReader, node_id: str) -> Node:
    """Return the record of a node, shared, not to be changed. Raises StateError if it does not exist."""
    row = state.node_row(node_id)
    node = None if row is None else state.node_record(row)
    if node is None:
        raise StateError("node not found")
    return node


def _check_node(node: Node) -> None:
    if not node.id:
        raise InvalidInput("node.ID", node.id, "text that is not empty")
    if node.status:
        _check_status("node.Status", node.status)
    if node.scheduling_eligibility not in ("", "eligible", "ineligible"):
        wording = f'invalid scheduling eligibility "{node.scheduling_eligibility}"'
        raise InvalidInput("node.SchedulingEligibility", node.scheduling_eligibility, "eligible or ineligible", wording=wording)


def _check_status(path: str, status: str) -> None:
    if status not in STATUSES:
        raise InvalidInput(path, status, f"one of {', '.join(STATUSES)}")


def _strategy(drain: DrainStrategy | Mapping[str, Any]) -> DrainStrategy:
    if isinstance(drain, DrainStrategy):
        return drain.copy()
    if not isinstance(drain, Mapping):
        raise InvalidInput("drain", drain, "object")
    return DrainStrategy.from_api(dict(drain), "drain")


def _leaves(alloc: NodeAlloc, drain: DrainStrategy) -> bool:
    """Return whether an allocation has to leave its node now."""
    if alloc.is_client_terminal or alloc.is_server_terminal:
        return False
    if alloc.job.type in RUN_TO_COMPLETION:
        return drain.deadline < 0
    return alloc.job.type != "system" or not drain.ignore_system_jobs


def _status_matters(old: str, new: str) -> bool:
    """Return whether jobs have to be looked at after this change of a node's status."""
    return old != new and new in ("ready", "down", "disconnected")


def _feasibility(node: Node) -> tuple[object, ...]:
    drivers = {name: None if driver is None else (driver.detected, driver.healthy) for name, driver in node.drivers.items()}
    return (*(getattr(node, name) for name in FEASIBILITY_FIELDS), drivers)


def _class_of(new: Node, old: Node | None) -> str:
    """Return the computed class of a node that registers: the one that it brings, unless that was worked out here for what it used to be."""
    if old is not None and new.computed_class == old.computed_class == _worked_out(old):
        return _worked_out(new)
    return computed_class(new)


def _worked_out(node: Node) -> str:
    twin = copy.copy(node)
    twin.computed_class = ""
    return computed_class(twin)


def _room_on(node: Node) -> list[Unblock]:
    """Return what a node that may have become ready unblocks."""
    if not is_ready(node):
        return []
    return [Unblock("class", computed_class=node.computed_class), Unblock("node", node_id=node.id)]


def _opened(state: StateReader, node: Node, now_ns: int, new_id: NewId) -> tuple[list[Evaluation], list[Unblock]]:
    """Return what a node that has become eligible calls for."""
    return node_evaluations(state, node.id, [node], now_ns, new_id), _room_on(node)
