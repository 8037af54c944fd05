"""System and sysbatch jobs against the recorded answers: sorting, whole evaluations, and several allocations in one slot as the original leaves them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from fastplan import Allocation, Deployment, Evaluation, Job, Node, Plan
from fastplan.fit.demand import totals_of
from fastplan.rules import Rules
from fastplan.scheduler.reconciler.node import SystemReconciliation, reconcile_nodes
from fastplan.scheduler.reconciler.node_rollout import NodeRollout
from fastplan.structs.times import time_ns
from fastplan.testing import SchedulerHarness
from tests.shared_data import shared_path

Api = dict[str, Any]


def recorded(name: str) -> Iterator[Api]:
    with gzip.open(shared_path("oracles", f"{name}.jsonl.gz"), "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def with_job(alloc: Api, jobs: Api) -> Api:
    return {**alloc, "Job": jobs[alloc["Job"]]}


def in_order(records: Any) -> list[Any]:
    return sorted(records, key=lambda record: json.dumps(record, sort_keys=True))


# --- sorting -----------------------------------------------------------------------------------------------------------

SORTED = ("place", "update", "migrate", "stop", "ignore", "lost", "disconnecting", "reconnecting")


def sort(given: Api) -> tuple[SystemReconciliation, NodeRollout]:
    jobs = given["jobs"]
    job = Job.from_api(jobs[given["job"]]) if given["job"] else None
    rollout = NodeRollout(job, Deployment.from_api(given["deployment"]) if given["deployment"] else None, strict=False)
    found = reconcile_nodes(
        job=job,
        ready_nodes=[Node.from_api(node) for node in given["ready_nodes"]],
        not_ready_node_ids=set(given["not_ready_node_ids"]),
        tainted={node_id: node and Node.from_api(node) for node_id, node in given["tainted"].items()},
        live_allocs=[Allocation.from_api(with_job(alloc, jobs)) for alloc in given["live_allocs"]],
        terminal_allocs={
            node_id: {name: Allocation.from_api(with_job(alloc, jobs)) for name, alloc in allocs.items()} for node_id, allocs in given["terminal"].items()
        },
        rollout=rollout,
        now_ns=time_ns(given["now"], "now"),
        overlap="head",
    )
    return found, rollout


def entries(records: Any, name: str) -> list[Any]:
    keys = ("node_id", "name", "alloc_id", "group", *(("canary",) if name == "update" else ()))
    return in_order([[record[key] or "" for key in keys] for record in records])


def updates_of(updates: Any) -> list[Any]:
    return in_order([update["deployment_id"], update["status"], update["status_description"]] for update in updates)


def test_recorded_sorting() -> None:
    for case in recorded("reconcile_system"):
        answer = case["answer"]
        found, rollout = sort(case["input"])
        for name in SORTED:
            got = [
                {"node_id": entry.node_id, "name": entry.name, "alloc_id": entry.alloc_id, "group": entry.task_group, "canary": entry.canary}
                for entry in getattr(found, name)
            ]
            assert entries(got, name) == entries(answer[name], name), (case["id"], name)
        # What becomes of deployments: that a new one runs is said of it later here, and even of one that is given up again there.
        current = answer["deployment_current"] or {"id": "", "groups": {}}
        groups = {**(rollout.current.task_groups if rollout.current is not None else {}), **rollout.begun}
        assert sorted(groups) == sorted(current["groups"] or {}), case["id"]
        assert ("NEW" if rollout.is_new else rollout.current.id if rollout.current is not None else "") == current["id"], case["id"]
        assert (rollout.old.id if rollout.old is not None else None) == answer["deployment_old"], case["id"]
        told = [{"deployment_id": each.deployment_id, "status": each.status, "status_description": each.status_description} for each in rollout.updates]
        assert updates_of(told) == updates_of(each for each in answer["deployment_updates"] if each["deployment_id"] != "NEW"), case["id"]


# --- whole evaluations -------------------------------------------------------------------------------------------------

METRICS = {
    "nodes_evaluated": "NodesEvaluated",
    "nodes_filtered": "NodesFiltered",
    "nodes_exhausted": "NodesExhausted",
    "nodes_in_pool": "NodesInPool",
    "node_pool": "NodePool",
    "nodes_available": "NodesAvailable",
    "coalesced_failures": "CoalescedFailures",
    "constraint_filtered": "ConstraintFiltered",
    "class_filtered": "ClassFiltered",
    "dimension_exhausted": "DimensionExhausted",
    "class_exhausted": "ClassExhausted",
}
GROUP_STATE = {
    "auto_promote": "AutoPromote",
    "auto_revert": "AutoRevert",
    "desired_canaries": "DesiredCanaries",
    "desired_total": "DesiredTotal",
    "progress_deadline": "ProgressDeadline",
    "promoted": "Promoted",
}
EVALUATION = {
    "class_eligibility": "ClassEligibility",
    "escaped_computed_class": "EscapedComputedClass",
    "node_id": "NodeID",
    "priority": "Priority",
    "status": "Status",
    "status_description": "StatusDescription",
    "triggered_by": "TriggeredBy",
    "type": "Type",
}


def plain(value: Any) -> Any:
    """Without zero values, at any depth: absent and zero mean the same; lists of records in one order."""
    if isinstance(value, list):
        return in_order(plain(each) for each in value)
    if isinstance(value, dict):
        kept = {key: plain(each) for key, each in value.items()}
        return {key: each for key, each in kept.items() if each}
    return value


def named(api: Api, keys: dict[str, str]) -> Api:
    return {name: api.get(key) for name, key in keys.items()}


class Recorded:
    """One recorded evaluation run anew, told in the words of the recorded answers."""

    def __init__(self, case: Api) -> None:
        given, state = case["input"], case["input"]["state"]
        jobs = state["jobs"]
        stored = [with_job(alloc, jobs) for alloc in state.get("allocs") or []]
        self.stored = {alloc["ID"]: alloc for alloc in stored}
        self.deployments = {deployment["ID"] for deployment in state.get("deployments") or []}
        dump = {
            "nodes": state["nodes"],
            "node_pools": state.get("node_pools") or [],
            "jobs": [jobs[label] for label in state.get("current_jobs") or []],
            "job_versions": list(jobs.values()),
            "allocs": stored,
            "deployments": state.get("deployments") or [],
            "scheduler_config": state["scheduler_config"],
            "indexes": dict.fromkeys(("nodes", "jobs", "allocs", "deployments", "evals"), state["index"]),
        }
        harness = SchedulerHarness.from_dump(dump, now_ns=time_ns(given["now"], "now"), planner=given["planner"], rules=Rules.NOMAD, overlap="head")
        harness.process(Evaluation.from_api(given["eval"]))
        self.plans = [plan.to_api() for plan in harness.plans if isinstance(plan, Plan)]
        self.final = harness.evals[-1].to_api()
        self.created = [each.to_api() for each in harness.created_evals]
        self.first = {
            alloc["ID"]: f"FIRST {alloc['Name']}@{alloc['NodeID']}"
            for plan in (self.plans[:-1] if given["planner"] == "half-then-commit" else [])
            for alloc in self.entries(plan, "NodeAllocation")
            if alloc["ID"] not in self.stored
        }
        self.plan = self.plans[-1] if self.plans else {}
        self.placed = [alloc for alloc in self.entries(self.plan, "NodeAllocation") if not self.is_known(alloc["ID"])]
        self.updated = [alloc for alloc in self.entries(self.plan, "NodeAllocation") if self.is_known(alloc["ID"])]
        self.new = {alloc["ID"]: f"{alloc['Name']}@{alloc['NodeID']}" for alloc in self.placed}

    @staticmethod
    def entries(plan: Api, key: str) -> list[Api]:
        return [{**alloc, "NodeID": node_id} for node_id, allocs in (plan.get(key) or {}).items() for alloc in allocs]

    def is_known(self, alloc_id: str) -> bool:
        return alloc_id in self.stored or alloc_id in self.first

    def name(self, alloc_id: str) -> str:
        return self.first.get(alloc_id) or (f"NEW {self.new[alloc_id]}" if alloc_id in self.new else alloc_id)

    def deployment(self, deployment_id: str | None) -> str:
        return "" if not deployment_id else deployment_id if deployment_id in self.deployments else "NEW"

    def totals(self, alloc: Api) -> Api:
        totals = totals_of(Allocation.from_api({"AllocatedResources": alloc["AllocatedResources"]}))
        return {"cpu": totals.cpu_mhz, "memory_mb": totals.memory_mib, "disk_mb": totals.disk_mib, "deployment_id": self.deployment(alloc.get("DeploymentID"))}

    def placement(self, alloc: Api) -> Api:
        links = {
            "previous_allocation": self.name(alloc.get("PreviousAllocation") or ""),
            "preempted_allocations": sorted(map(self.name, alloc.get("PreemptedAllocations") or [])),
        }
        canary = (alloc.get("DeploymentStatus") or {}).get("Canary")
        return {"name": alloc["Name"], "group": alloc["TaskGroup"], "canary": canary, **self.totals(alloc), **links}

    def stop(self, alloc: Api) -> Api:
        before = self.stored.get(alloc["ID"], {}).get("ClientStatus") or "pending"
        statuses = {"desired_status": alloc.get("DesiredStatus") or "stop", "client_status": alloc.get("ClientStatus") or before}
        return {"id": self.name(alloc["ID"]), "node_id": alloc["NodeID"], **statuses, "desired_description": alloc.get("DesiredDescription")}

    def in_place(self, alloc: Api) -> Api:
        return {
            "id": self.name(alloc["ID"]),
            "client_status": alloc.get("ClientStatus"),
            "alloc_states": len(alloc.get("AllocStates") or []),
            **self.totals(alloc),
        }

    def failed(self) -> Api:
        exhausted = {"CPU": "cpu", "MemoryMB": "memory_mb"}
        return {
            group: {
                **named(metric, METRICS),
                "resources_exhausted": {
                    task: {name: asked.get(key) for key, name in exhausted.items()} for task, asked in (metric.get("ResourcesExhausted") or {}).items()
                },
            }
            for group, metric in (self.final.get("FailedTGAllocs") or {}).items()
        }

    def plan_deployment(self) -> Api:
        deployment = self.plan.get("Deployment")
        if not deployment:
            return {}
        groups = {
            group: {**named(state, GROUP_STATE), "placed_canaries": sorted(map(self.name, state.get("PlacedCanaries") or []))}
            for group, state in (deployment.get("TaskGroups") or {}).items()
        }
        told = {"job_version": deployment.get("JobVersion"), "status": deployment["Status"], "status_description": deployment["StatusDescription"]}
        return {"id": self.deployment(deployment["ID"]), **told, "groups": groups}

    def told(self) -> Api:
        placements: dict[str, list[Api]] = {}
        for alloc in self.placed:
            placements.setdefault(alloc["NodeID"], []).append(self.placement(alloc))
        evictions = self.entries(self.plan, "NodePreemptions")
        desired = (self.final.get("PlanAnnotations") or {}).get("DesiredTGUpdates") or {}
        annotations = self.plan.get("Annotations")
        return {
            "eval_status": self.final["Status"],
            "eval_status_description": self.final.get("StatusDescription"),
            "eval_deployment_id": self.deployment(self.final.get("DeploymentID")),
            "failed_tg_allocs": self.failed(),
            "desired_tg_updates": {group: {_snake(key): count for key, count in counts.items()} for group, counts in desired.items()},
            "plans_submitted": len(self.plans),
            "plan_annotated": annotations is not None,
            "annotated_preemptions": sorted(stub["ID"] for stub in (annotations or {}).get("PreemptedAllocs") or []),
            "place": placements,
            "stop": [self.stop(alloc) for alloc in self.entries(self.plan, "NodeUpdate")],
            "in_place": [self.in_place(alloc) for alloc in self.updated if alloc.get("ClientStatus") != "unknown"],
            "unknown": [self.name(alloc["ID"]) for alloc in self.updated if alloc.get("ClientStatus") == "unknown"],
            "preempted": [
                {"id": alloc["ID"], "node_id": alloc["NodeID"], "desired_status": "evict", "by": self.new.get(alloc["PreemptedByAllocation"])}
                for alloc in evictions
            ],
            "blocked_evals": [self.evaluation(each) for each in self.created if each["Status"] == "blocked"],
            "follow_up_evals": [self.evaluation(each) for each in self.created if each["Status"] != "blocked"],
            "deployment": self.plan_deployment(),
            "deployment_updates": [
                {"deployment_id": self.deployment(each["DeploymentID"]), "status": each["Status"], "status_description": each["StatusDescription"]}
                for each in self.plan.get("DeploymentUpdates") or []
            ],
        }

    @staticmethod
    def evaluation(api: Api) -> Api:
        return {**named(api, EVALUATION), "failed_groups": sorted(api.get("FailedTGAllocs") or {})}


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key).lstrip("_")


def canonical(answer: Api, key: str) -> Any:
    """Return a part of a recorded answer as `told` has it."""
    value = answer.get(key)
    if key in ("blocked_evals", "follow_up_evals"):
        return plain([{name: each[name] for name in recorded_keys(value)} for each in value or []])
    if key == "deployment" and value:
        kept = ("id", "job_version", "status", "status_description")
        groups = {group: {name: state.get(name) for name in (*GROUP_STATE, "placed_canaries")} for group, state in value["groups"].items()}
        return plain({**{name: value.get(name) for name in kept}, "groups": groups})
    return plain(value)


def recorded_keys(records: Any) -> set[str]:
    """Return the keys by which evaluations are compared: those that were recorded of some."""
    return {key for record in records or [] for key in record if key in EVALUATION or key == "failed_groups"} or {"status"}


def check(case: Api, answer: Api) -> None:
    run = Recorded(case)
    told = run.told()
    loose = set(case["order_dependent"])
    for key, got in told.items():
        if key in answer and key not in loose:
            if key in ("blocked_evals", "follow_up_evals"):
                got = [{name: each[name] for name in recorded_keys(answer[key])} for each in got]
            assert (plain(got) or None) == (canonical(answer, key) or None), (case["id"], key)
    if "queued_allocations" not in loose:
        # Here zero is not the same as absent.
        assert (run.final.get("QueuedAllocations") or {}) == (answer["queued_allocations"] or {}), case["id"]
    if any_order := case.get("answer_any_order"):
        counts = {
            "placed_by_group": dict(Counter(alloc["TaskGroup"] for alloc in run.placed)),
            "stops_by_description": dict(Counter(stop["desired_description"] or "" for stop in told["stop"])),
            "in_place_count": len(told["in_place"]),
            "preempted_count": len(told["preempted"]),
            "blocked_count": len(told["blocked_evals"]),
        }
        for key, count in counts.items():
            if key in any_order:
                assert plain(count) == plain(any_order[key]), (case["id"], key)


@pytest.mark.parametrize("part", range(4))
def test_recorded_evaluations(part: int) -> None:
    for number, case in enumerate(recorded("schedule_system")):
        if number % 4 == part:
            check(case, case["answer"])


def test_recorded_overlap() -> None:
    for case in recorded("overlap"):
        check(case, case["answer_head"])
