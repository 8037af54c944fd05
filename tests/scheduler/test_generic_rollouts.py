"""Random deployments under strict rules: each plan keeps the pace and says everything once, and once all is done there is nothing more to do."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fastplan.rules import Rules
from fastplan.state import StateStore
from fastplan.structs import Allocation, Evaluation, Job
from fastplan.testing import SchedulerHarness
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job
from tests.scheduler.generic_cluster import MINUTE_NS, NOW_NS, SECOND_NS, complete_fields, down, failed_fields, newer, unknown_record, with_task
from tests.sizes import sized

STEPS_MAX = 10


def random_group(rng: random.Random, name: str) -> dict[str, Any]:
    more: dict[str, Any] = {"Update": {"MaxParallel": rng.randint(1, 3), "Canary": rng.choice([0, 0, 1, 2])}}
    if rng.random() < 0.6:
        more["ReschedulePolicy"] = {"Delay": rng.choice([0, 30]) * SECOND_NS, "DelayFunction": "constant", "Unlimited": True}
    if rng.random() < 0.4:
        more["Disconnect"] = {"LostAfter": 5 * MINUTE_NS, "Replace": rng.random() < 0.7}
    return group_api(name, count=rng.randint(0, 5), cpu_mhz=300, **more)


def random_deployment(rng: random.Random, name: str, job: Job, canaries: dict[str, list[str]]) -> dict[str, Any]:
    status = rng.choice(["running", "running", "running", "paused", "failed", "successful", "pending"])
    groups = {
        group.name: {
            "DesiredTotal": group.count,
            "DesiredCanaries": rng.choice([0, group.update.canary if group.update is not None else 0]),
            "PlacedCanaries": canaries.get(group.name, []),
            "Promoted": rng.random() < 0.4,
            "HealthyAllocs": rng.randint(0, 3),
        }
        for group in job.task_groups
    }
    fields = {"ID": name, "Namespace": "default", "JobID": "web", "JobVersion": job.version, "JobCreateIndex": job.create_index}
    return {**fields, "Status": status, "TaskGroups": groups, "CreateIndex": 350 + job.version, "ModifyIndex": 360}


def random_dump(rng: random.Random) -> dict[str, Any]:
    """Return a state with one service job in two versions, each of which may have a deployment."""
    cluster = [ready_node(f"n{number}", cpu_mhz=9000) for number in range(rng.randint(1, 6))]
    for node in cluster[1:]:
        if rng.random() < 0.2:
            down(node, rng.choice(["down", "disconnected"]))
    groups = [random_group(rng, name) for name in ("web", "api")[: rng.randint(1, 2)]]
    job = service_job("web", *groups, JobModifyIndex=200, ModifyIndex=200, CreateIndex=100)
    counted = [with_task({**group, "Count": rng.randint(0, 5)}, Env={"A": "1"}) for group in groups]
    current = newer(job, **rng.choice([{"Priority": 60}, {"TaskGroups": counted}]))
    states: list[dict[str, Any]] = [
        {},
        {},
        {},
        {"ClientStatus": "pending"},
        failed_fields(0),
        failed_fields(MINUTE_NS),
        complete_fields(),
        {"ClientStatus": "unknown", **unknown_record(MINUTE_NS)},
        unknown_record(MINUTE_NS),
        {"DesiredTransition": {"Migrate": True}},
    ]
    allocs, canaries = [], {group["Name"]: list[str]() for group in groups}
    deployed = rng.random() < 0.7
    for number in range(rng.randint(0, 9)):
        owner, group = rng.choice([job, current]), rng.choice(groups)["Name"]
        fields = {"CreateIndex": 310 + number, "ModifyIndex": 500, "ModifyTime": NOW_NS - MINUTE_NS, **rng.choice(states)}
        if deployed and owner is current and rng.random() < 0.7:
            canary = rng.random() < 0.4
            fields |= {"DeploymentID": "new", "DeploymentStatus": {"Healthy": rng.choice([True, True, False, None]), "Canary": canary}}
            if canary:
                canaries[group].append(f"a{number}")
        alloc = running_alloc(f"a{number}", owner, rng.choice(cluster).id, group=group, index=rng.randint(0, 5), cpu_mhz=100, **fields)
        allocs.append({**alloc.to_api(), "Job": owner.to_api()})
    deployments = [random_deployment(rng, "old", job, {})] if rng.random() < 0.5 else []
    deployments += [random_deployment(rng, "new", current, canaries)] if deployed else []
    return {
        "nodes": [node.to_api() for node in cluster],
        "jobs": [current.to_api()],
        "job_versions": [job.to_api(), current.to_api()],
        "allocs": allocs,
        "deployments": deployments,
        "indexes": {"nodes": 1000, "jobs": 1000, "allocs": 1000, "deployments": 1000},
    }


def check_plan(plan: Any, job: Job, known: dict[str, Allocation]) -> None:
    stops = [alloc for allocs in plan.node_update.values() for alloc in allocs or ()]
    written = [alloc for allocs in plan.node_allocation.values() for alloc in allocs or ()]
    ids = [alloc.id for alloc in (*stops, *written)]
    assert len(ids) == len(set(ids)), "one allocation, two entries"
    replaced = [alloc.previous_allocation for alloc in written if alloc.id not in known and alloc.previous_allocation]
    assert len(replaced) == len(set(replaced)), "one allocation, two successors"
    for group in job.task_groups:
        updated = [alloc for alloc in stops if known[alloc.id].task_group == group.name and "being updated" in alloc.desired_description]
        assert group.update is not None
        assert len(updated) <= group.update.max_parallel


@pytest.mark.parametrize("seed", range(sized(80, 3000)))
def test_random_deployments_settle(seed: int) -> None:
    store = StateStore.from_dump(random_dump(random.Random(seed)))
    job = store.snapshot().job("default", "web")
    assert job is not None
    fields: dict[str, Any] = {"namespace": "default", "priority": 50, "type": "service", "job_id": "web", "triggered_by": "node-update", "status": "pending"}
    for step in range(STEPS_MAX):
        known = {alloc.id: alloc for alloc in store.snapshot().allocs_by_job("default", "web")}
        harness = SchedulerHarness(store, now_ns=NOW_NS, planner="commit", rules=Rules.STRICT, seed=step, deployment_watcher=True)
        harness.process(Evaluation(id=f"00000000-0000-4000-8000-{seed:06}{step:06}", **fields))
        for plan in harness.plans:
            check_plan(plan, job, known)
        if not harness.plans:
            break
    else:
        pytest.fail("it never came to rest")
    live = [alloc for alloc in store.snapshot().allocs_by_job("default", "web") if not alloc.is_terminal and alloc.client_status != "unknown"]
    for group in job.task_groups:
        steady = [alloc for alloc in live if alloc.task_group == group.name and not (alloc.deployment_status is not None and alloc.deployment_status.canary)]
        assert len(steady) <= group.count
