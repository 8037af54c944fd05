"""One evaluation goes on with a rolling update, however many look at the job meanwhile (schedulers 4.9, 7.8)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.scheduler.evaluations import goes_on_later
from fastplan.state import StateStore
from fastplan.structs import Evaluation
from fastplan.testing import SchedulerHarness
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job, system_job

NOW_NS = 1_800_000_000_000_000_000
SECOND_NS = 10**9


def waiting(**changes: Any) -> dict[str, Any]:
    """Return an evaluation that goes on with an update five seconds from now."""
    given = {"ID": "waits", "Namespace": "default", "JobID": "web", "Type": "service", "Priority": 50, "Status": "pending", "TriggeredBy": "rolling-update"}
    return {**given, "CreateTime": NOW_NS - 2 * SECOND_NS, "Wait": 7 * SECOND_NS, **changes}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"Wait": 2 * SECOND_NS}, False),
        ({"Status": "complete"}, False),
        ({"TriggeredBy": "node-update"}, False),
        ({"ID": "this"}, False),
        ({"JobID": "other"}, False),
    ],
)
def test_another_one_goes_on_if_it_still_waits(changes: dict[str, Any], expected: bool) -> None:
    store = StateStore.from_dump({"evals": [waiting(**changes)]})
    this = Evaluation(id="this", namespace="default", job_id="web", type="service")
    assert goes_on_later(store.snapshot(), this, NOW_NS) is expected


@pytest.mark.parametrize(("others", "followed"), [([], True), ([waiting()], False), ([waiting(Wait=SECOND_NS)], True)])
@pytest.mark.parametrize("build", [service_job, system_job])
def test_no_second_follow_up_is_made(build: Any, others: list[dict[str, Any]], followed: bool) -> None:
    update = {"MaxParallel": 1, "Stagger": 7 * SECOND_NS}
    index = {"CreateIndex": 10, "ModifyIndex": 10, "JobModifyIndex": 10}
    old = build("web", group_api(count=2), Update=update, **index)
    new = build("web", group_api(count=2, cpu_mhz=600), Update=update, Version=1, **index | {"ModifyIndex": 20, "JobModifyIndex": 20})
    for job in (old, new):
        job.task_groups[0].update = None if job.type == "system" else job.update
    allocs = [running_alloc(f"a{place}", old, f"n{place}", index=place if old.type == "service" else 0, CreateIndex=15, ModifyIndex=15) for place in range(2)]
    dump = {
        "nodes": [ready_node(f"n{place}").to_api() for place in range(2)],
        "jobs": [new.to_api()],
        "job_versions": [old.to_api(), new.to_api()],
        "allocs": [alloc.to_api() for alloc in allocs],
        "evals": others,
        "indexes": {"nodes": 30, "jobs": 30, "allocs": 30, "evals": 30},
    }
    harness = SchedulerHarness.from_dump(dump, now_ns=NOW_NS)
    harness.process(Evaluation(id="this", namespace="default", job_id="web", type=new.type, priority=50, triggered_by="job-register", status="pending"))
    assert len(harness.plans) == 1
    assert [each.triggered_by for each in harness.created_evals] == (["rolling-update"] if followed else [])
