"""Random clusters under strict rules, with every evaluation that a scheduler creates handled when its time has come: nothing is left short."""

from __future__ import annotations

import heapq
import itertools
import random
from typing import Any

import pytest

from fastplan.rules import Rules
from fastplan.state import StateStore
from fastplan.structs import Evaluation
from fastplan.structs.times import time_ns, time_text
from fastplan.testing import SchedulerHarness
from fastplan.testing.builders import batch_job, group_api, ready_node, running_alloc, service_job
from tests.scheduler.generic_cluster import MINUTE_NS, NOW_NS, SECOND_NS, complete_fields, down, failed_fields, newer, unknown_record, with_task
from tests.sizes import sized

EVALUATIONS_MAX = 40


def random_group(rng: random.Random, name: str) -> dict[str, Any]:
    more: dict[str, Any] = {}
    if rng.random() < 0.8:
        delays = {
            "Delay": rng.choice([0, 30, 90]) * SECOND_NS,
            "DelayFunction": rng.choice(["constant", "exponential", "fibonacci"]),
            "MaxDelay": 5 * MINUTE_NS,
        }
        more["ReschedulePolicy"] = {**delays, "Unlimited": True}
    if rng.random() < 0.5:
        strategy = rng.choice(["", "keep_original", "keep_replacement", "best_score", "longest_running"])
        times = {"LostAfter": rng.choice([0, 5]) * MINUTE_NS, "StopOnClientAfter": rng.choice([0, 0, 1]) * MINUTE_NS}
        more["Disconnect"] = {**times, "Replace": rng.random() < 0.7, "Reconcile": strategy}
    if rng.random() < 0.3:
        more["Update"] = {"MaxParallel": rng.randint(1, 3), "Stagger": 10 * SECOND_NS}
    return group_api(name, count=rng.randint(0, 5), cpu_mhz=300, **more)


def random_dump(rng: random.Random) -> tuple[dict[str, Any], str]:
    """Return a state with one job of up to two groups in up to two versions, and the job's type."""
    cluster = [ready_node(f"n{number}", cpu_mhz=9000) for number in range(rng.randint(2, 6))]
    for node in cluster[1:]:
        if rng.random() < 0.3:
            down(node, rng.choice(["down", "disconnected"]))
    groups = [random_group(rng, name) for name in ("web", "api")[: rng.randint(1, 2)]]
    job = rng.choice([service_job, batch_job])("web", *groups, JobModifyIndex=200, ModifyIndex=200, CreateIndex=100)
    counted = [with_task({**group, "Count": rng.randint(0, 5)}, Env={"A": "1"}) for group in groups]
    current = newer(job, **rng.choice([{"Priority": 60}, {"TaskGroups": counted}]))
    states: list[dict[str, Any]] = [
        {},
        {},
        {"ClientStatus": "pending"},
        failed_fields(0),
        failed_fields(20 * SECOND_NS),
        failed_fields(MINUTE_NS),
        complete_fields(),
        {"ClientStatus": "unknown", **unknown_record(rng.randint(1, 9) * MINUTE_NS)},
        unknown_record(MINUTE_NS),
        {"DesiredTransition": {"Migrate": True}},
        {"DesiredStatus": "stop", "ClientStatus": "complete"},
    ]
    allocs = []
    for number in range(rng.randint(0, 8)):
        fields = {"CreateIndex": 300 + number, "ModifyIndex": 500, "ModifyTime": NOW_NS - MINUTE_NS, **rng.choice(states)}
        owner, group = rng.choice([job, current]), rng.choice(groups)["Name"]
        alloc = running_alloc(f"a{number}", owner, rng.choice(cluster).id, group=group, index=rng.randint(0, 6), cpu_mhz=100, **fields)
        allocs.append({**alloc.to_api(), "Job": owner.to_api()})
    dump = {
        "nodes": [node.to_api() for node in cluster],
        "jobs": [current.to_api()],
        "job_versions": [job.to_api(), current.to_api()],
        "allocs": allocs,
        "indexes": {"nodes": 1000, "jobs": 1000, "allocs": 1000},
    }
    return dump, job.type


def handle_all(store: StateStore, job_type: str, seed: int) -> None:
    """Handle an evaluation and all that follow from it, in the order of their times."""
    numbers = itertools.count()
    waiting: list[tuple[int, int, Evaluation]] = []

    def expect(at_ns: int, evaluation: Evaluation) -> None:
        heapq.heappush(waiting, (at_ns, next(numbers), evaluation))

    given: dict[str, Any] = {"namespace": "default", "priority": 50, "type": job_type, "job_id": "web", "triggered_by": "node-update", "status": "pending"}
    # The first one was delayed itself, the second one was not.
    expect(NOW_NS, Evaluation(id=f"00000000-0000-4000-8000-{seed:012}", wait_until=time_text(NOW_NS), **given))
    expect(NOW_NS, Evaluation(id=f"00000000-0000-4000-9000-{seed:012}", **given))
    while waiting:
        now_ns, number, evaluation = heapq.heappop(waiting)
        assert number < EVALUATIONS_MAX, "it never comes to rest"
        harness = SchedulerHarness(store, now_ns=now_ns, planner="commit", rules=Rules.STRICT, seed=number)
        harness.process(evaluation)
        for created in harness.created_evals:
            assert created.status == "pending", "there is room for all"
            expect(time_ns(created.wait_until, "WaitUntil") if created.wait_until else now_ns + created.wait, created)


@pytest.mark.parametrize("seed", range(sized(60, 2000)))
def test_whoever_is_to_come_back_comes_and_nothing_is_left_short(seed: int) -> None:
    dump, job_type = random_dump(random.Random(seed))
    store = StateStore.from_dump(dump)
    handle_all(store, job_type, seed)
    state = store.snapshot()
    job = state.job("default", "web")
    assert job is not None
    for group in job.task_groups:
        wanted = [alloc for alloc in state.allocs_by_job("default", "web") if alloc.task_group == group.name and alloc.desired_status == "run"]
        # What has ended keeps its name where it is not to run again: without a policy, and work that is done.
        kept = [alloc for alloc in wanted if alloc.client_status == "failed" or (job_type == "batch" and alloc.client_status == "complete")]
        live = [alloc for alloc in wanted if not alloc.is_client_terminal]
        assert len(live) + len(kept) >= group.count
        if group.reschedule_policy is not None and len(live) < group.count:
            assert [alloc.id for alloc in kept if alloc.client_status == "failed" and alloc.job is not None and alloc.job.version == job.version] == []
