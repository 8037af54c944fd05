"""Evaluating a plan in the plainest Python (plan-apply 5): oracle of the property tests, baseline of the benchmarks, judge of irregular nodes.

Records in, records out; neither the state nor the plan changes.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from fastplan.errors import InvalidInput, PlanError, Reason
from fastplan.fit.demand import AllocDemand, demand_of
from fastplan.fit.lists import alloc_subset, remove_allocs
from fastplan.fit.reference import check
from fastplan.planner.result import FITS, Accepted, AllocMap, NodeVerdict, PlanResult, refusal
from fastplan.planner.rules import Rules
from fastplan.structs import Allocation, Job, Node, Plan, canonical_alloc


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


OverQuota = Callable[[StateReader, Plan], bool]
"""The quota hook: does the plan go over quota? (plan-apply 5.8)"""

_NODE_GATES = {"disconnected": Reason.NODE_DISCONNECTED, "down": Reason.NODE_DOWN, "ready": Reason.FITS}


def evaluate_plan(state: StateReader, plan: Plan, rules: Rules = Rules.STRICT, *, over_quota: OverQuota | None = None) -> PlanResult:
    """Return what of *plan* is acceptable on *state* (plan-apply 5). Raises PlanError where the plan as a whole fails."""
    node_update = _resolved(state, plan.node_update)
    node_preemptions = _resolved(state, plan.node_preemptions)
    if over_quota is not None and over_quota(state, plan):
        return PlanResult(plan, counts=(0, 0), make_accepted=_never, kept=False, refresh_index=refresh_index(state))

    accepted = Accepted({}, {}, {})
    refused: dict[str, NodeVerdict] = {}
    for node_id in sorted(plan.node_update.keys() | plan.node_allocation.keys()):
        verdict = evaluate_node_plan(state, plan, node_id, rules)
        if verdict.error:
            raise PlanError(verdict.error)
        if not verdict.fit:
            refused[node_id] = verdict
            if plan.all_at_once:
                break
            continue
        if stops := node_update.get(node_id):
            accepted.node_update[node_id] = stops
        if placements := plan.node_allocation.get(node_id):
            accepted.node_allocation[node_id] = placements
        if plan.node_preemptions.get(node_id) is not None:
            accepted.node_preemptions[node_id] = _not_ended(state, node_preemptions[node_id])

    if not refused:
        return PlanResult(plan, counts=_counts(accepted), make_accepted=lambda result: accepted)
    refresh = refresh_index(state)
    if refresh == 0:
        raise PlanError("partialCommit with RefreshIndex of 0")
    kept = not plan.all_at_once
    return PlanResult(
        plan, counts=_counts(accepted), make_accepted=lambda result: accepted, make_refused=lambda: refused, kept=kept, refresh_index=refresh
    )


def evaluate_node_plan(state: StateReader, plan: Plan, node_id: str, rules: Rules = Rules.STRICT) -> NodeVerdict:
    """Return what is thought of the part of *plan* that concerns one node (plan-apply 5.2); the numbers are those of its table."""
    placements = [canonical_alloc(alloc) for alloc in plan.node_allocation.get(node_id) or ()]
    # 1: stops are always acceptable, even on a node that does not exist.
    if not placements:
        return FITS
    # 3
    node = state.node(node_id)
    if node is None:
        return refusal(Reason.NODE_MISSING)
    strict = rules is Rules.STRICT
    if strict and _names_another_node(state, plan, node_id, placements):
        return refusal(Reason.OTHER_NODE)
    # 4 to 6
    gate = _NODE_GATES.get(node.status, Reason.NODE_NOT_READY)
    if gate is not Reason.FITS and not _passes(gate, placements):
        return refusal(gate)
    stored = state.allocs_by_node(node_id)
    leaving = [*(plan.node_update.get(node_id) or ()), *(plan.node_preemptions.get(node_id) or ()), *placements]
    if strict:
        return _evaluate_strictly(node, gate, stored, leaving, placements, _job_of(state, plan))
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
    ready = gate is Reason.FITS
    if (not ready or alloc_subset(existing, placements)) and not _adds_load(existing, placements, job):
        return FITS
    if ready and node.scheduling_eligibility == "ineligible":
        return refusal(Reason.NODE_INELIGIBLE)
    proposed = [*remove_allocs(running, leaving), *placements]
    verdict = check(node, proposed, strict=True, new_ids={alloc.id for alloc in placements}, plan_job=job)
    return NodeVerdict(verdict.code is Reason.FITS, verdict.reason, "", verdict.code)


def _passes(gate: Reason, placements: Sequence[Allocation]) -> bool:
    """Return whether a node that is not ready accepts the *placements* because of their client statuses (plan-apply 5.2, rows 4 to 6)."""
    if gate is Reason.NODE_DISCONNECTED:
        return all(alloc.client_status == "unknown" for alloc in placements)
    if gate is Reason.NODE_DOWN:
        return all(alloc.client_status == "lost" or (alloc.client_status == "unknown" and not alloc.replaceable_on_disconnect) for alloc in placements)
    return False


def _names_another_node(state: StateReader, plan: Plan, node_id: str, placements: Sequence[Allocation]) -> bool:
    """Return whether a placement belongs to another node: by its own NodeID, by the state, or because the plan lists it under two nodes."""
    for alloc in placements:
        stored = state.alloc(alloc.id)
        if alloc.node_id not in ("", node_id) or (stored is not None and stored.node_id != node_id):
            return True
    own = {alloc.id for alloc in placements}
    return any(alloc.id in own for other_id, others in plan.node_allocation.items() if other_id != node_id for alloc in others or ())


def _job_of(state: StateReader, plan: Plan) -> Job | None:
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
        if before is None or _grows(demand_of(before), demand_of(_with_job(alloc, job))):
            return True
    return False


def _with_job(alloc: Allocation, job: Job | None) -> Allocation:
    if alloc.job is not None or job is None:
        return alloc
    alloc = copy.copy(alloc)
    alloc.job = job
    return alloc


def _grows(before: AllocDemand, after: AllocDemand) -> bool:
    """Return whether *after* needs more than *before* in any amount, or claims anything else. What is irregular must not change at all."""
    if before.irregular or after.irregular:
        return before != after
    if after.cpu_mhz > before.cpu_mhz or after.memory_mib > before.memory_mib or after.disk_mib > before.disk_mib:
        return True
    held = [Counter(each) for each in (before.cores, before.ports, before.devices, before.volumes)]
    wanted = [Counter(each) for each in (after.cores, after.ports, after.devices, after.volumes)]
    return not all(want <= hold for want, hold in zip(wanted, held, strict=True))


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


def _resolved(state: StateReader, diffs: Mapping[str, Iterable[Allocation] | None]) -> AllocMap:
    """Return the whole allocations that stops or preemptions make of the stored ones. Raises PlanError for an unknown id (plan-apply 5.4)."""
    result: AllocMap = {}
    for node_id in sorted(diffs):
        allocs = result[node_id] = []
        for diff in diffs[node_id] or ():
            stored = state.alloc(diff.id)
            if stored is None:
                raise PlanError(f"alloc {diff.id} doesn't exist")
            allocs.append(changed(stored, diff))
    return result


def _not_ended(state: StateReader, preemptions: Iterable[Allocation]) -> list[Allocation]:
    """Return the preemptions whose stored allocation is not terminal (plan-apply 5.5)."""
    return [alloc for alloc in preemptions if (stored := state.alloc(alloc.id)) is not None and not stored.is_terminal]


def _counts(accepted: Accepted) -> tuple[int, int]:
    return sum(map(len, accepted.node_update.values())), sum(map(len, accepted.node_allocation.values()))


def _never(result: PlanResult) -> Accepted:
    raise AssertionError("nothing of this plan is in the result")
