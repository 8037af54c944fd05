"""Plans against the recorded answers, by the compiled verification and by the reference; one failing case names its id."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from fastplan import Plan
from fastplan.errors import PlanError
from fastplan.planner import Rules, evaluate_node_plan, evaluate_plan, reference
from fastplan.state import StateStore
from tests.shared_data import shared_path


def recorded() -> Iterator[dict[str, Any]]:
    with gzip.open(shared_path("oracles", "plan.jsonl.gz"), "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def ids(allocs: dict[str, Any] | None) -> dict[str, list[str]]:
    return {node_id: [alloc["ID"] for alloc in each] for node_id, each in (allocs or {}).items()}


def told(evaluate: Any, snapshot: Any, plan: Plan) -> dict[str, Any]:
    """The answer in the form of the recorded ones."""
    try:
        result = evaluate(snapshot, plan, Rules.NOMAD)
    except PlanError as problem:
        return {"error": str(problem)}
    api = result.to_api()
    canaries = {} if result.deployment is None else {name: group.placed_canaries for name, group in result.deployment.task_groups.items()}
    full_commit, expected, actual = result.full_commit(plan)
    return {
        "error": "",
        "node_update": ids(api.get("NodeUpdate")),
        "node_allocation": ids(api.get("NodeAllocation")),
        "node_preemptions": ids(api.get("NodePreemptions")),
        "rejected_nodes": api.get("RejectedNodes") or [],
        "refresh_index": result.refresh_index,
        "deployment_present": result.deployment is not None,
        "deployment_canaries": {name: each for name, each in canaries.items() if each},
        "deployment_updates": len(result.deployment_updates),
        "full_commit": full_commit,
        "expected": expected,
        "actual": actual,
        "is_noop": result.is_noop(),
        "changed": {
            alloc["ID"]: [alloc.get(key) or "" for key in ("DesiredStatus", "ClientStatus", "DesiredDescription", "PreemptedByAllocation", "FollowupEvalID")]
            for key in ("NodeUpdate", "NodePreemptions")
            for allocs in (api.get(key) or {}).values()
            for alloc in allocs
        },
    }


def wanted(answer: dict[str, Any]) -> dict[str, Any]:
    if answer["error"]:
        return {"error": answer["error"].removeprefix("1 error occurred:").strip(" \n\t*")}
    keys = ("error", "refresh_index", "deployment_present", "deployment_updates", "full_commit", "expected", "actual", "is_noop")
    return {
        **{key: answer[key] for key in keys},
        "node_update": {node_id: each for node_id, each in (answer["node_update"] or {}).items() if each},
        "node_allocation": {node_id: each for node_id, each in (answer["node_allocation"] or {}).items() if each},
        "node_preemptions": {node_id: each or [] for node_id, each in (answer["node_preemptions"] or {}).items()},
        # By our rule the lowest id is the one that is named (plan-apply 12).
        "rejected_nodes": [min(answer["rejected_one_of"])] if "rejected_one_of" in answer else answer["rejected_nodes"] or [],
        "deployment_canaries": {name: each for name, each in (answer.get("deployment_canaries") or {}).items() if each},
        "changed": {
            alloc_id: [change.get(key) or "" for key in ("desired_status", "client_status", "desired_description", "preempted_by", "followup_eval")]
            for alloc_id, change in (answer.get("changed") or {}).items()
        },
    }


def differing(every: int) -> list[str]:
    """The ids of the cases that are answered otherwise, of every so manieth case; in all three ways, and with plans that stay as they are."""
    found = []
    count = 0
    for number, case in enumerate(recorded()):
        if number % every:
            continue
        count += 1
        answer = case["answer"]
        plan = Plan.from_api(case["input"]["plan"])
        before = plan.to_api()
        snapshot = StateStore.from_dump(case["input"]["state"]).snapshot()
        nodes = {
            node_id: {"fit": one.fit, "reason": one.reason, "error": one.error}
            for node_id in answer.get("per_node") or {}
            for one in [evaluate_node_plan(snapshot, plan, node_id, Rules.NOMAD)]
        }
        told_of_nodes = {node_id: {"error": "", **want} for node_id, want in (answer.get("per_node") or {}).items()}
        told_of_plan = [told(evaluate, snapshot, plan) for evaluate in (evaluate_plan, reference.evaluate_plan)]
        if nodes != told_of_nodes or told_of_plan != [wanted(answer)] * 2 or plan.to_api() != before:
            found.append(case["id"])
    assert count > 2000 / every
    return found


def test_plans_are_answered_as_recorded() -> None:
    assert differing(every=5) == []


@pytest.mark.slow
def test_all_plans_are_answered_as_recorded() -> None:
    assert differing(every=1) == []
