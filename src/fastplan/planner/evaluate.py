"""Evaluating a plan (plan-apply 5): the public functions."""

from __future__ import annotations

from fastplan.planner import reference
from fastplan.planner.reference import OverQuota, StateReader
from fastplan.planner.result import NodeVerdict, PlanResult
from fastplan.planner.rules import Rules
from fastplan.structs import Plan


def evaluate_plan(snapshot: StateReader, plan: Plan, rules: Rules = Rules.STRICT, *, over_quota: OverQuota | None = None) -> PlanResult:
    """Return what of *plan* is acceptable on *snapshot*; neither changes (plan-apply 5).

    *over_quota* is the quota hook (plan-apply 5.8): a plan for which it returns True is answered without looking at its nodes.

    Raises PlanError where the plan as a whole fails: an unknown id among its stops and preemptions (`alloc X doesn't exist`), a refusal without an index
    to refresh to, and under `Rules.NOMAD` a node where the check ends with an error.
    """
    return reference.evaluate_plan(snapshot, plan, rules, over_quota=over_quota)


def evaluate_node_plan(snapshot: StateReader, plan: Plan, node_id: str, rules: Rules = Rules.STRICT) -> NodeVerdict:
    """Return what is thought of the part of *plan* that concerns one node, whatever the others say (plan-apply 5.2)."""
    return reference.evaluate_node_plan(snapshot, plan, node_id, rules)
