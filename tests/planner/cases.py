"""The fixtures of plan-apply 10.3 and 10.4: a store with nodes like F, and plans on it, from dicts in the shape of the API."""

from __future__ import annotations

import copy
from typing import Any

from fastplan import Plan
from fastplan.planner import NodeVerdict, Rules, evaluate_node_plan, evaluate_plan, reference
from fastplan.state import StateSnapshot, StateStore
from tests.fit.fixture_f import alloc, node_f

F, G = "node-f", "node-g"


def node(node_id: str = F, **changes: Any) -> dict[str, Any]:
    """A node like F."""
    return node_f() | {"ID": node_id} | changes


def on(node_id: str, *allocs: dict[str, Any]) -> list[dict[str, Any]]:
    """Allocations as stored on, or placed on, a node."""
    return [{"NodeID": node_id, "Namespace": "default", "JobID": "job", **copy.deepcopy(one)} for one in allocs]


def snapshot(*stored: dict[str, Any], nodes: list[dict[str, Any]] | None = None, **dump: Any) -> StateSnapshot:
    """A snapshot with node F, or *nodes*, and allocations."""
    content: dict[str, Any] = {"nodes": [node()] if nodes is None else nodes, "allocs": list(stored), "indexes": {"nodes": 1001}}
    return StateStore.from_dump(content | dump).snapshot()


def plan(
    placements: dict[str, list[dict[str, Any]]] | None = None,
    *,
    stops: dict[str, list[dict[str, Any]]] | None = None,
    preemptions: dict[str, list[dict[str, Any]]] | None = None,
    **fields: Any,
) -> Plan:
    """A plan: node id → allocations, which get the node's id unless they name another."""
    placed = {node_id: on(node_id, *allocs) for node_id, allocs in (placements or {}).items()}
    return Plan.from_api({"EvalID": "e", "NodeAllocation": placed, "NodeUpdate": stops or {}, "NodePreemptions": preemptions or {}, **fields})


def verdict(state: StateSnapshot, proposal: Plan, rules: Rules, node_id: str = F) -> NodeVerdict:
    """The verdict on a node, asked for in all three ways, which must agree: alone, and as part of the plan in either implementation."""
    alone = evaluate_node_plan(state, proposal, node_id, rules)
    if not alone.error:
        for evaluate in (evaluate_plan, reference.evaluate_plan):
            assert evaluate(state, proposal, rules).reasons == ({} if alone.fit else {node_id: alone.reason})
    return alone


__all__ = ["F", "G", "alloc", "node", "on", "plan", "snapshot", "verdict"]
