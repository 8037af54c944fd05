"""Random clusters under strict rules: what a scheduler decides holds, and once all is done there is nothing more to do."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fastplan.rules import Rules
from fastplan.state import StateStore
from fastplan.structs import Evaluation
from fastplan.testing import SchedulerHarness
from fastplan.testing.builders import batch_job, group_api, ready_node, running_alloc, service_job
from fastplan.testing.invariants import over_committed
from tests.scheduler.generic_cluster import MINUTE_NS, NOW_NS, complete_fields, down, failed_fields, newer, unknown_record, with_task

RESCHEDULE = {"Delay": 0, "DelayFunction": "constant", "Unlimited": True}
DISCONNECT = {"LostAfter": 5 * MINUTE_NS, "Replace": True}


def random_dump(rng: random.Random) -> tuple[dict[str, Any], str]:
    """Return a state with one job in up to two versions, and the job's type."""
    cluster = [ready_node(f"n{number}", cpu_mhz=rng.choice([1000, 4000])) for number in range(rng.randint(1, 6))]
    for node in cluster:
        if rng.random() < 0.2:
            down(node, rng.choice(["down", "disconnected"]))
    more: dict[str, Any] = {"ReschedulePolicy": RESCHEDULE}
    if rng.random() < 0.5:
        more["Disconnect"] = DISCONNECT
    make = rng.choice([service_job, batch_job])
    group = group_api(count=rng.randint(0, 6), cpu_mhz=300, **more)
    job = make("web", group, JobModifyIndex=200, ModifyIndex=200, CreateIndex=100)
    changes = [{}, {"Priority": 60}, {"TaskGroups": [with_task({**group, "Count": rng.randint(0, 6)}, Env={"A": "1"})]}]
    current = newer(job, **rng.choice(changes))
    states: list[dict[str, Any]] = [
        {},
        {},
        failed_fields(MINUTE_NS),
        complete_fields(),
        {"ClientStatus": "unknown", **unknown_record(rng.randint(1, 9) * MINUTE_NS)},
        unknown_record(MINUTE_NS),
        {"DesiredTransition": {"Migrate": True}},
        {"DesiredStatus": "stop", "ClientStatus": "complete"},
    ]
    allocs = []
    for number in range(rng.randint(0, 8)):
        state = rng.choice(states)
        fields = {"CreateIndex": 300 + number, "ModifyIndex": 500, "ModifyTime": NOW_NS - MINUTE_NS, **state}
        owner = rng.choice([job, current])
        alloc = running_alloc(f"a{number}", owner, rng.choice(cluster).id, index=rng.randint(0, 7), cpu_mhz=100, **fields)
        allocs.append({**alloc.to_api(), "Job": owner.to_api()})
    dump = {
        "nodes": [node.to_api() for node in cluster],
        "jobs": [current.to_api()],
        "job_versions": [job.to_api(), current.to_api()],
        "allocs": allocs,
        "indexes": {"nodes": 1000, "jobs": 1000, "allocs": 1000},
    }
    return dump, job.type


def evaluate(store: StateStore, job_type: str, name: str, seed: int) -> SchedulerHarness:
    harness = SchedulerHarness(store, now_ns=NOW_NS, planner="commit", rules=Rules.STRICT, seed=seed)
    harness.process(Evaluation(id=name, namespace="default", priority=50, type=job_type, job_id="web", triggered_by="node-update", status="pending"))
    return harness


@pytest.mark.parametrize("seed", range(60))
def test_random_clusters_settle(seed: int) -> None:
    dump, job_type = random_dump(random.Random(seed))
    store = StateStore.from_dump(dump)
    over_before = set(over_committed(store.snapshot()))
    job = store.snapshot().job("default", "web")
    assert job is not None
    for step in range(8):
        harness = evaluate(store, job_type, f"00000000-0000-4000-8000-{seed:06}{step:06}", step)
        # An allocation is either updated or stopped, and once.
        for plan in harness.plans:
            ids = [alloc.id for entries in (plan.node_update, plan.node_allocation) for allocs in entries.values() for alloc in allocs or ()]
            assert len(ids) == len(set(ids))
        if not harness.plans or any(each.status == "blocked" for each in harness.created_evals):
            break
    else:
        pytest.fail("it never came to rest")
    state = store.snapshot()
    assert set(over_committed(state)) <= over_before
    running = [alloc for alloc in state.allocs_by_job("default", "web") if not alloc.is_terminal and alloc.client_status != "unknown"]
    assert len(running) <= job.task_groups[0].count
