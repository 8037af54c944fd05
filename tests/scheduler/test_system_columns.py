"""System jobs sorted and placed in columns, beside the plain path that looks at each node: the same becomes of every allocation."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest

from fastplan.scheduler import system, system_columns
from fastplan.state import StateStore
from fastplan.state.statuses import CLIENT_COMPLETE, CLIENT_RUNNING, CLIENT_UNKNOWN
from fastplan.structs import Evaluation, Job, Node
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job, sysbatch_job, system_job
from fastplan.testing.harness import SchedulerHarness

NOW_NS = 1_700_000_000_000_000_000
EVAL_ID = "5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e11"


def random_dump(rng: random.Random) -> tuple[dict[str, Any], Job]:
    nodes = [random_node(rng, number) for number in range(rng.randint(0, 12))]
    kind = system_job if rng.random() < 0.8 else sysbatch_job
    constraint = {"LTarget": "${meta.rack}", "Operand": "=", "RTarget": "r1"}
    groups = [
        group_api(
            name,
            count=rng.choice((0, 1, 1, 1)),
            cpu_mhz=rng.choice((100, 100, 2500)),
            Constraints=[constraint] if rng.random() < 0.3 else [],
            EphemeralDisk=None,
        )
        for name in ("a", "b")
    ]
    job = kind("agent", *groups, Datacenters=["dc1"], Priority=60, Version=1, JobModifyIndex=10)
    old = Job.from_api({**job.to_api(), "Version": 0, "JobModifyIndex": 5})
    other = service_job("other", Priority=50)
    allocs = []
    for node in nodes if rng.random() < 0.8 else []:
        for group in ("a", "b", "gone"):
            for number in range(rng.choice((0, 1, 1, 1, 2)) if group != "gone" else rng.random() < 0.1):
                more: dict[str, Any] = {"CreateIndex": rng.randint(1, 9)}
                if rng.random() < 0.2:
                    more |= {
                        "DesiredStatus": rng.choice(("run", "stop", "evict")),
                        "ClientStatus": rng.choice(("pending", "complete", "failed", "unknown", "running")),
                    }
                version = old if rng.random() < 0.2 else job
                alloc = running_alloc(f"{node.id}-{group}-{number}", version, node.id, group=group, index=0, cpu_mhz=100, **more)
                allocs.append({**alloc.to_api(), "Job": None, "JobVersion": version.version})
        if rng.random() < 0.3:
            allocs.append(running_alloc(f"{node.id}-other", other, node.id, cpu_mhz=rng.choice((500, 3800))).to_api())
    dump = {"nodes": [node.to_api() for node in nodes], "jobs": [job.to_api(), other.to_api()], "allocs": allocs}
    for listed in allocs:
        if listed["JobID"] == "agent":
            listed["Job"] = (old if listed["JobVersion"] == 0 else job).to_api()
    return dump, job


def random_node(rng: random.Random, number: int) -> Node:
    states: tuple[dict[str, Any], ...] = (
        {},
        {},
        {},
        {},
        {"Status": "down"},
        {"SchedulingEligibility": "ineligible"},
        {"Drain": True, "DrainStrategy": {}},
        {"Status": "disconnected"},
    )
    return ready_node(
        f"n{number:02}",
        datacenter=rng.choice(("dc1", "dc1", "dc1", "dc2")),
        Meta={"rack": rng.choice(("r1", "r1", "r2"))},
        **rng.choice(states),
        **({"NodeMaxAllocs": rng.randint(1, 3)} if rng.random() < 0.2 else {}),
        **({"ReservedResources": {"Networks": {"ReservedHostPorts": "nonsense"}}} if rng.random() < 0.1 else {}),
    )


def random_store(seed: int) -> tuple[StateStore, Job]:
    """Return a state with a job; in every other one the job has been placed before, and things have happened since."""
    rng = random.Random(seed)
    dump, job = random_dump(rng)
    if seed % 2:
        return StateStore.from_dump(dump), job
    store = StateStore.from_dump({**dump, "allocs": [alloc for alloc in dump["allocs"] if alloc["JobID"] != job.id]})
    SchedulerHarness(store, now_ns=NOW_NS, seed=seed).process(evaluation_of(job))
    for alloc in sorted(store.allocs(), key=lambda alloc: (alloc.node_id, alloc.name)):
        if alloc.job_id == job.id and rng.random() < 0.4:
            status = rng.choice((CLIENT_RUNNING, CLIENT_RUNNING, CLIENT_UNKNOWN, CLIENT_COMPLETE))
            row = numpy.array([store.allocs_view.find(alloc.id)], numpy.uint32)
            store.update_client_status(store.latest_index() + 1, NOW_NS, row, numpy.array([status], numpy.uint8))
    for node in store.nodes():
        if rng.random() < 0.2:
            store.update_node_status(store.latest_index() + 1, node.id, rng.choice(("down", "disconnected", "ready")))
    for number in range(50, 50 + rng.randint(0, 4)):
        store.upsert_node(store.latest_index() + 1, random_node(rng, number))
    return store, job


def evaluation_of(job: Job) -> Evaluation:
    return Evaluation(id=EVAL_ID, namespace="default", job_id=job.id, type=job.type, triggered_by="job-register", priority=60, status="pending")


def outcome(seed: int) -> dict[str, Any]:
    store, job = random_store(seed)
    harness = SchedulerHarness(store, now_ns=NOW_NS, seed=1)
    harness.process(evaluation_of(job))
    final = harness.evals[-1]
    allocs = [alloc for alloc in harness.store.allocs() if alloc.job_id == job.id]
    return {
        "allocs": sorted((alloc.node_id, alloc.name, alloc.desired_status, alloc.client_status, alloc.desired_description) for alloc in allocs),
        "resources": sorted((alloc.node_id, alloc.name, str(alloc.allocated_resources)) for alloc in allocs),
        "others": sorted((alloc.id, alloc.desired_status) for alloc in harness.store.allocs() if alloc.job_id != job.id),
        "status": final.status,
        "queued": final.queued_allocations,
        "failed": {name: metric.to_api() for name, metric in final.failed_tg_allocs.items() if metric is not None},
        "desired": final.to_api().get("PlanAnnotations"),
        "waiting": sorted(waiting.node_id for waiting in harness.created_evals),
        "plans": len(harness.plans),
    }


@pytest.mark.parametrize("seed", range(250))
def test_columns_and_plain_path_do_the_same(seed, monkeypatch):
    found = outcome(seed)
    monkeypatch.setattr(system, "system_columns", lambda *_: None)
    assert outcome(seed) == found


def test_the_random_cases_use_the_columns(monkeypatch):
    used = {"settled": 0, "fresh": 0, "filtered": 0, "full": 0, "left": 0}
    sort = system_columns.system_columns

    def counting(*arguments: Any) -> Any:
        result = sort(*arguments)
        assert result is not None
        used["settled"] += sum(result.settled.values())
        used["fresh"] += sum(result.fresh.values())
        used["filtered"] += len(result.filtered)
        used["full"] += len(result.full)
        used["left"] += len(result.allocs)
        return result

    monkeypatch.setattr(system, "system_columns", counting)
    for seed in range(60):
        outcome(seed)
    assert all(count > 5 for count in used.values()), used


def test_what_runs_everywhere_needs_no_plan():
    nodes = [ready_node(f"n{number}") for number in range(20)]
    job = system_job("agent", group_api("a", cpu_mhz=100), group_api("b", cpu_mhz=100))
    store = StateStore.from_dump({"nodes": [node.to_api() for node in nodes], "jobs": [job.to_api()]})
    evaluation = Evaluation(id=EVAL_ID, namespace="default", job_id="agent", type="system", triggered_by="job-register", priority=50)
    first = SchedulerHarness(store, now_ns=NOW_NS)
    first.process(evaluation)
    assert len(store.allocs()) == 40
    second = SchedulerHarness(store, now_ns=NOW_NS)
    second.process(evaluation)
    assert second.plans == []
    assert second.evals[-1].queued_allocations == {"a": 0, "b": 0}
