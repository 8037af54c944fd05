"""Every record of the recorded answers loads, and comes back with the same keys and values in the same order."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest

from fastplan import Allocation, Deployment, Evaluation, Job, Node, Plan
from fastplan.structs import AllocatedResources, NetworkResource, Record, RequestedDevice
from tests.shared_data import shared_path

Found = Iterator[tuple[type[Record], Any]]
STEP = 25


def each(cls: type[Record], values: Any) -> Found:
    for value in values or ():
        if value is not None:
            yield cls, value


def with_jobs(allocs: Any, jobs: dict[str, Any]) -> Found:
    for alloc in allocs or ():
        yield Allocation, alloc | {"Job": jobs[alloc["Job"]]} if isinstance(alloc.get("Job"), str) else alloc


def on_one_node(given: Any) -> Found:
    if "node" in given:
        yield Node, given["node"]
    yield from each(Allocation, given.get("allocs"))
    yield from each(NetworkResource, given.get("asks"))
    yield from each(NetworkResource, given.get("task_asks"))


def plan(given: Any) -> Found:
    yield Plan, given["plan"]
    yield from each(Node, given["state"].get("nodes"))
    yield from each(Allocation, given["state"].get("allocs"))


def tasks_updated(given: Any) -> Found:
    yield Job, given["new_job"]
    yield Job, given["alloc_job"]


def reconcile_system(given: Any) -> Found:
    yield from each(Job, given["jobs"].values())
    yield from each(Node, given["ready_nodes"])
    yield from each(Node, (given["tainted"] or {}).values())
    yield from each(Deployment, [given["deployment"]])
    yield from with_jobs(given["live_allocs"], given["jobs"])
    for by_name in (given["terminal"] or {}).values():
        yield from with_jobs(by_name.values(), given["jobs"])


def schedule_system(given: Any) -> Found:
    state = given["state"]
    yield Evaluation, given["eval"]
    yield from each(Job, state["jobs"].values())
    yield from each(Node, state["nodes"])
    yield from each(Deployment, state["deployments"])
    yield from with_jobs(state["allocs"], state["jobs"])


def schedule_generic(given: Any) -> Found:
    state = given["State"]
    yield Evaluation, given["Eval"]
    yield from each(Job, [entry["Job"] for entry in state["Jobs"]])
    yield from each(Node, state["Nodes"])
    yield from each(Deployment, state["Deployments"])
    yield from each(Allocation, state["Allocs"])


def preempt(given: Any) -> Found:
    asks: dict[str, type[Record]] = {"task_group": AllocatedResources, "network": NetworkResource, "device": RequestedDevice}
    yield Node, given["node"]
    yield from each(Allocation, given["allocs"])
    yield asks[given["method"]], given["ask"]


KINDS = {
    "fit": on_one_node,
    "ports": on_one_node,
    "score": on_one_node,
    "constraints": on_one_node,
    "plan": plan,
    "tasks_updated": tasks_updated,
    "reconcile_system": reconcile_system,
    "schedule_system": schedule_system,
    "overlap": schedule_system,
    "schedule_generic": schedule_generic,
    "preempt": preempt,
}


def check(kind: str, step: int) -> None:
    checked = 0
    with gzip.open(shared_path("oracles", f"{kind}.jsonl.gz"), "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines):
            if number % step:
                continue
            for cls, value in KINDS[kind](json.loads(line)["input"]):
                text = json.dumps(value)
                record = cls.from_api(value)
                assert json.dumps(record.to_api()) == text
                assert json.dumps(value) == text
                assert record.copy() == record
                checked += 1
    assert checked


@pytest.mark.parametrize("kind", KINDS)
def test_some_recorded_inputs(kind: str) -> None:
    check(kind, STEP)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_all_recorded_inputs(kind: str) -> None:
    check(kind, 1)


def kind_of(value: dict[str, Any]) -> type[Record] | None:
    keys = value.keys()
    if "AllocatedResources" in keys or {"ClientStatus", "TaskGroup", "NodeID"} <= keys:
        return Allocation
    if {"TriggeredBy", "ID"} <= keys:
        return Evaluation
    if {"SchedulingEligibility", "Datacenter"} <= keys:
        return Node
    if {"JobCreateIndex", "TaskGroups"} <= keys:
        return Deployment
    return Job if {"TaskGroups", "Type", "Priority"} <= keys else None


def objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from objects(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from objects(inner)


def test_answers_of_a_real_server() -> None:
    seen: dict[type[Record], int] = {}
    for path in sorted(shared_path("oracles", "http").glob("*.json")):
        for value in objects(json.loads(path.read_text(encoding="utf-8"))["response"].get("body")):
            cls = kind_of(value)
            if cls is not None:
                assert json.dumps(cls.from_api(value).to_api()) == json.dumps(value), path.name
                seen[cls] = seen.get(cls, 0) + 1
    assert seen.keys() == {Allocation, Evaluation, Node, Deployment, Job}
