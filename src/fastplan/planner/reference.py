"""Evaluating a plan in the plainest Python (plan-apply 5): oracle of the property tests, baseline of the benchmarks, judge of irregular nodes.

Records in, records out; neither the state nor the plan changes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple, Protocol

from fastplan.errors import InvalidInput, PlanError, Reason
from fastplan.fit.demand import AllocDemand, demand_of
from fastplan.fit.lists import alloc_subset, remove_allocs
from fastplan.fit.reference import check
from fastplan.planner.result import FITS, NOTHING, Accepted, AllocMap, NodeVerdict, PlanResult, refusal
from fastplan.rules import Rules
from fastplan.state.plans import AllocsByNode, AnyPlan, with_job_of
from fastplan.structs import Allocation, Job, Node, canonical_alloc


class StateReader(Protocol):
    """What evaluation reads of a state: a snapshot, or a snapshot with plans in flight on top."""

    def node(self, node_id: str) -> Node | None:
        """Return the canonical node, None if it does not exist."""
        ...

    def alloc(self, alloc_id: str) -> Allocation | None:
        """Return the stored allocation, None if it does not exist."""
        ...

    def allocs_by_node(self, node_id: str) -> Sequence[Allocation]:
        """Return the stored allocations of a node, terminal ones included, ascending by id."""
        ...

    def job(self, namespace: str, job_id: str) -> Job | None:
        """Return the registered job, None if it does not exist."""
        ...

    def table_index(self, name: str) -> int:
        """Return the index of the last write of a table (`nodes`, `allocs`), 0 before the first."""
        ...


OverQuota = Callable[[StateReader, AnyPlan], bool]
"""The quota hook: does the plan go over quota? (plan-apply 5.8)"""

NO_REFRESH_INDEX = "partialCommit with RefreshIndex of 0"

_NODE_GATES = {"disconnected": Reason.NODE_DISCONNECTED, "down": Reason.NODE_DOWN, "ready": Reason.FITS}


def evaluate_plan(state: StateReader, plan: AnyPlan, rules: Rules = Rules.STRICT, *, over_quota: OverQuota | None = None) -> PlanResult:
    """Return what of *plan* is acceptable on *state* (plan-apply 5). Raises PlanError where the plan as a whole fails."""
    changes = resolve(state, plan)
    if over_quota is not None and over_quota(state, plan):
        return PlanResult(plan, NOTHING, kept=False, refresh_index=refresh_index(state))
    repeated = repeated_ids(plan)
    refused: dict[str, NodeVerdict] = {}
    for node_id in evaluated_nodes(plan):
        verdict = judge(state, plan, node_id, rules, repeated)
        if verdict.error:
            raise PlanError(verdict.error)
        if not verdict.fit:
            refused[node_id] = verdict
            if plan.all_at_once:
                break
    if not refused:
        return PlanResult(plan, accepted_parts(state, plan, changes, refused))
    refresh = refresh_index(state)
    if refresh == 0:
        raise PlanError(NO_REFRESH_INDEX)
    if plan.all_at_once:
        return PlanResult(plan, NOTHING, refused=refused, kept=False, refresh_index=refresh)
    return PlanResult(plan, accepted_parts(state, plan, changes, refused), refused=refused, refresh_index=refresh)


def evaluated_nodes(plan: AnyPlan) -> list[str]:
    """Return the nodes that are looked at, ascending: those that are only preempted on are not (plan-apply 5.5)."""
    return sorted(plan.node_update.keys() | plan.node_allocation.keys())


def accepted_parts(state: StateReader, plan: AnyPlan, changes: Changes, refused: Container[str]) -> Accepted:
    """Return what is left of *plan* without the *refused* nodes (plan-apply 5.5)."""
    accepted = Accepted({}, {}, {})
    for node_id in evaluated_nodes(plan):
        if node_id in refused:
            continue
        if stops := changes.node_update.get(node_id):
            accepted.node_update[node_id] = stops
        if placements := plan.node_allocation.get(node_id):
            accepted.node_allocation[node_id] = list(placements)
        if plan.node_preemptions.get(node_id) is not None:
            accepted.node_preemptions[node_id] = _not_ended(state, changes.node_preemptions[node_id])
    return accepted


def evaluate_node_plan(state: StateReader, plan: AnyPlan, node_id: str, rules: Rules = Rules.STRICT) -> NodeVerdict:
    """Return what is thought of the part of *plan* that concerns one node (plan-apply 5.2)."""
    return judge(state, plan, node_id, rules, repeated_ids(plan))


def judge(state: StateReader, plan: AnyPlan, node_id: str, rules: Rules, repeated: Container[str]) -> NodeVerdict:
    """Return the verdict on one node; the numbers are those of the table in plan-apply 5.2. *repeated*: ids that the plan places on several nodes."""
    placements = [canonical_alloc(alloc) for alloc in plan.node_allocation.get(node_id) or ()]
    # 1: stops are always acceptable, even on a node that does not exist.
    if not placements:
        return FITS
    # 3
    node = state.node(node_id)
    if node is None:
        return refusal(Reason.NODE_MISSING)
    strict = rules is Rules.STRICT
    if strict and _names_another_node(state, node_id, placements, repeated):
        return refusal(Reason.OTHER_NODE)
    # 4 to 6
    gate = _NODE_GATES.get(node.status, Reason.NODE_NOT_READY)
    if gate is not Reason.FITS and not _passes(gate, placements):
        return refusal(gate)
    stored = state.allocs_by_node(node_id)
    leaving = [*(plan.node_update.get(node_id) or ()), *(plan.node_preemptions.get(node_id) or ()), *placements]
    if strict:
        return _evaluate_strictly(node, gate, stored, leaving, placements, job_of(state, plan))
    if gate is not Reason.FITS:
        return FITS
    # 8: in-place updates are not checked against the resources.
    existing = [alloc for alloc in stored if not alloc.is_terminal]
    if alloc_subset(existing, placements):
        return FITS
    # 9
    if node.scheduling_eligibility == "ineligible":
        return refusal(Reason.NODE_INELIGIBLE)
    # 10
    try:
        verdict = check(node, [*remove_allocs(existing, leaving), *placements])
    except InvalidInput as problem:
        return NodeVerdict(False, "", str(problem), Reason.INVALID)
    return NodeVerdict(verdict.code is Reason.FITS, verdict.reason, verdict.error, verdict.code)


def _evaluate_strictly(
    node: Node, gate: Reason, stored: Sequence[Allocation], leaving: Sequence[Allocation], placements: Sequence[Allocation], job: Job | None
) -> NodeVerdict:
    """Return the verdict from row 8 on under strict rules: whatever adds to the node's load is checked, against what is physically there."""
    running = [alloc for alloc in stored if not alloc.is_client_terminal]
    existing = [alloc for alloc in running if not alloc.is_server_terminal]
    placements = _as_written(running, placements)
    ready = gate is Reason.FITS
    if (not ready or alloc_subset(existing, placements)) and not _adds_load(existing, placements, job):
        return FITS
    if ready and node.scheduling_eligibility == "ineligible":
        return refusal(Reason.NODE_INELIGIBLE)
    proposed = [*remove_allocs(running, leaving), *placements]
    verdict = check(node, proposed, strict=True, new_ids={alloc.id for alloc in placements}, plan_job=job)
    return NodeVerdict(verdict.code is Reason.FITS, verdict.reason, "", verdict.code)


def _as_written(running: Sequence[Allocation], placements: Sequence[Allocation]) -> list[Allocation]:
    """Return *placements* with the client statuses that they will have: an update does not end what its client has not ended (plan-apply 6.10 step 7)."""
    statuses = {alloc.id: alloc.client_status for alloc in running}
    written = []
    for alloc in placements:
        if alloc.is_client_terminal and alloc.client_status != "lost" and alloc.id in statuses:
            alloc = copy.copy(alloc)
            alloc.client_status = statuses[alloc.id]
        elif not alloc.is_client_terminal:
            statuses.setdefault(alloc.id, alloc.client_status)
        written.append(alloc)
    return written


def _passes(gate: Reason, placements: Sequence[Allocation]) -> bool:
    """Return whether a node that is not ready accepts the *placements* because of their client statuses (plan-apply 5.2, rows 4 to 6)."""
    if gate is Reason.NODE_DISCONNECTED:
        return all(alloc.client_status == "unknown" for alloc in placements)
    if gate is Reason.NODE_DOWN:
        return all(alloc.client_status == "lost" or (alloc.client_status == "unknown" and not alloc.replaceable_on_disconnect) for alloc in placements)
    return False


def _names_another_node(state: StateReader, node_id: str, placements: Sequence[Allocation], repeated: Container[str]) -> bool:
    """Return whether a placement belongs to another node: by its own NodeID, by the state, or because the plan lists it under two nodes."""
    for alloc in placements:
        if alloc.node_id not in ("", node_id) or alloc.id in repeated:
            return True
        stored = state.alloc(alloc.id)
        if stored is not None and stored.node_id != node_id:
            return True
    return False


def repeated_ids(plan: AnyPlan) -> set[str]:
    """Return the ids that *plan* places on more than one node."""
    node_of: dict[str, str] = {}
    repeated: set[str] = set()
    for node_id, allocs in plan.node_allocation.items():
        for alloc in allocs or ():
            if node_of.setdefault(alloc.id, node_id) != node_id:
                repeated.add(alloc.id)
    return repeated


def job_of(state: StateReader, plan: AnyPlan) -> Job | None:
    """Return the job of *plan*: carried along, or looked up as on submission (plan-apply 7.5)."""
    if plan.job is not None or plan.job_info is None:
        return plan.job
    return state.job(plan.job_info.namespace, plan.job_info.id)


def _adds_load(existing: Sequence[Allocation], placements: Sequence[Allocation], job: Job | None) -> bool:
    """Return whether a placement needs anything that its stored version does not hold already. The end of an allocation needs nothing."""
    held = {alloc.id: alloc for alloc in existing}
    for alloc in placements:
        if alloc.is_client_terminal:
            continue
        # An id that comes twice counts twice, so its second entry is an addition.
        before = held.pop(alloc.id, None)
        if before is None:
            return True
        after = alloc if alloc.job is not None or job is None else with_job_of(alloc, job)
        if _grows(demand_of(before), demand_of(after)):
            return True
    return False


def _grows(before: AllocDemand, after: AllocDemand) -> bool:
    """Return whether *after* needs more than *before* in any amount, or claims anything else. What is irregular must not change at all."""
    if before.irregular or after.irregular:
        return before != after
    if after.cpu_mhz > before.cpu_mhz or after.memory_mib > before.memory_mib or after.disk_mib > before.disk_mib:
        return True
    wanted = (*after.cores, *after.ports, *after.devices, *after.volumes)
    return not set(wanted).issubset((*before.cores, *before.ports, *before.devices, *before.volumes))


def refresh_index(state: StateReader) -> int:
    """Return the index that a worker must reach before it tries again (plan-apply 5.6)."""
    return max(state.table_index("nodes"), state.table_index("allocs"))


def changed(stored: Allocation, diff: Allocation) -> Allocation:
    """Return a copy of a *stored* allocation with a stop or preemption applied (plan-apply 5.4); nested records are shared."""
    alloc = copy.copy(stored)
    if diff.preempted_by_allocation:
        alloc.preempted_by_allocation = diff.preempted_by_allocation
        alloc.desired_description = f"Preempted by alloc ID {diff.preempted_by_allocation}"
        alloc.desired_status = "evict"
    else:
        alloc.desired_description = diff.desired_description
        alloc.desired_status = "stop"
        alloc.alloc_states = diff.alloc_states
        alloc.client_status = diff.client_status or alloc.client_status
        alloc.followup_eval_id = diff.followup_eval_id or alloc.followup_eval_id
    alloc.modify_time = diff.modify_time or alloc.modify_time
    return alloc


class Changes(NamedTuple):
    """Stops and preemptions as whole allocations with the change applied, by node (plan-apply 5.1)."""

    node_update: AllocMap
    node_preemptions: AllocMap


def resolve(state: StateReader, plan: AnyPlan) -> Changes:
    """Return the whole allocations that the stops and preemptions of *plan* make of the stored ones. Raises PlanError for an unknown id (plan-apply 5.4)."""
    return Changes(_resolved(state, plan.node_update), _resolved(state, plan.node_preemptions))


def _resolved(state: StateReader, diffs: AllocsByNode) -> AllocMap:
    result: AllocMap = {}
    for node_id in sorted(diffs):
        allocs = result[node_id] = []
        for diff in diffs[node_id] or ():
            stored = state.alloc(diff.id)
            if stored is None:
                raise PlanError(unknown_alloc(diff.id))
            allocs.append(changed(stored, diff))
    return result


def unknown_alloc(alloc_id: str) -> str:
    """Return the text for a stop or preemption of an allocation that is not stored."""
    return f"alloc {alloc_id} doesn't exist"


def _not_ended(state: StateReader, preemptions: Iterable[Allocation]) -> list[Allocation]:
    """Return the preemptions whose stored allocation is not terminal (plan-apply 5.5)."""
    return [alloc for alloc in preemptions if (stored := state.alloc(alloc.id)) is not None and not stored.is_terminal]
