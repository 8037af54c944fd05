"""The scheduler harness: what each planner mode does with a plan, and what is kept of a run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from fastplan.errors import InvalidInput, PlanError, SchedulerError, StateError
from fastplan.rules import Rules
from fastplan.structs import Evaluation
from fastplan.testing import SchedulerHarness
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job

NOW_NS = 1_800_000_000 * 10**9
NODE_IDS = [f"n{number}" for number in range(5)]


def dump(count: int = 5, **group: Any) -> dict[str, Any]:
    """Five nodes, and a service job that spreads *count* allocations over them because one node holds one."""
    job = service_job("web", group_api(count=count, cpu_mhz=2500, **group), CreateIndex=9, ModifyIndex=9, JobModifyIndex=9)
    return {"nodes": [ready_node(node_id).to_api() for node_id in NODE_IDS], "jobs": [job.to_api()], "indexes": {"nodes": 10, "jobs": 9}}


def evaluation(**changes: Any) -> Evaluation:
    """The evaluation that a registration makes."""
    return Evaluation(
        **{
            "id": "e1",
            "namespace": "default",
            "priority": 50,
            "type": "service",
            "job_id": "web",
            "triggered_by": "job-register",
            "status": "pending",
            **changes,
        }
    )


def run(planner: Any, *, state: dict[str, Any] | None = None, **options: Any) -> SchedulerHarness:
    harness = SchedulerHarness.from_dump(dump() if state is None else state, now_ns=NOW_NS, planner=planner, **options)
    harness.process(evaluation())
    return harness


def written(harness: SchedulerHarness) -> list[str]:
    """The nodes on which the store has allocations, ascending."""
    return sorted(alloc.node_id for alloc in harness.store.snapshot().allocs_by_job("default", "web"))


def asked(harness: SchedulerHarness) -> list[list[str]]:
    """The nodes that each plan places on, ascending."""
    return [sorted(node_id for node_id, allocs in plan.node_allocation.items() for _ in allocs or ()) for plan in harness.plans]


def statuses(harness: SchedulerHarness) -> list[str]:
    return [update.status for update in harness.evals]


def test_commit_writes_the_whole_plan() -> None:
    harness = run("commit")
    assert asked(harness) == [NODE_IDS]
    assert written(harness) == NODE_IDS
    assert statuses(harness) == ["complete"]
    assert harness.store.latest_index() == 11
    placed = {alloc.id: alloc for allocs in harness.plans[0].node_allocation.values() for alloc in allocs or ()}
    for alloc in harness.store.snapshot().allocs_by_job("default", "web"):
        assert (alloc.create_index, alloc.modify_index, alloc.create_time, alloc.eval_id) == (11, 11, NOW_NS, "e1")
        assert placed[alloc.id].node_id == alloc.node_id


def test_accept_acknowledges_and_writes_nothing() -> None:
    harness = run("accept")
    assert asked(harness) == [NODE_IDS]
    assert written(harness) == []
    assert statuses(harness) == ["complete"]
    assert harness.store.latest_index() == 10


@pytest.mark.parametrize("rules", Rules)
@pytest.mark.parametrize("planner", ["reject", "reject_always"])
def test_reject_ends_after_the_attempts_of_a_service_job(planner: str, rules: Rules) -> None:
    """An equal fresh snapshot comes back, so there is no progress: five attempts, then failed, and a blocked evaluation goes on (schedulers 1.5)."""
    harness = run(planner, rules=rules)
    assert asked(harness) == [NODE_IDS] * 5
    assert written(harness) == []
    assert statuses(harness) == ["failed"]
    (blocked,) = harness.created_evals
    assert (blocked.status, blocked.triggered_by) == ("blocked", "max-plan-attempts")


def test_reject_once_accepts_the_second_plan() -> None:
    harness = run("reject_once")
    assert asked(harness) == [NODE_IDS] * 2
    assert written(harness) == []
    assert statuses(harness) == ["complete"]


def test_reject_without_state_leaves_the_scheduler_nothing_to_go_on_with() -> None:
    """A refusal without newer state is an error that leaves the scheduler (schedulers, G27)."""
    harness = SchedulerHarness.from_dump(dump(), now_ns=NOW_NS, planner="reject_no_state")
    with pytest.raises(SchedulerError, match="missing state refresh after partial commit"):
        harness.process(evaluation())
    assert len(harness.plans) == 1
    assert written(harness) == []


def test_error_is_raised_and_leaves_the_scheduler() -> None:
    harness = SchedulerHarness.from_dump(dump(), now_ns=NOW_NS, planner="error")
    with pytest.raises(PlanError, match=r"^plan queue is down$"):
        harness.process(evaluation())
    assert len(harness.plans) == 1


def test_half_then_commit_writes_the_first_half_of_the_nodes_and_then_all() -> None:
    """Of five nodes the first two, by id; the next plan places what is missing, and is written whole."""
    harness = run("half-then-commit")
    first, second = asked(harness)
    assert first == NODE_IDS
    assert second == ["n2", "n3", "n4"]
    assert written(harness) == NODE_IDS
    assert statuses(harness) == ["complete"]
    assert harness.store.latest_index() == 12
    assert {alloc.create_index for alloc in harness.store.snapshot().allocs_by_node("n1")} == {11}
    assert {alloc.create_index for alloc in harness.store.snapshot().allocs_by_node("n2")} == {12}


def test_half_then_commit_counts_stops_among_the_nodes() -> None:
    """One stop on n0 and placements on the others: the stop is in the first half and is written, n2 to n4 are refused."""
    state = dump(count=3)
    job = service_job("web", group_api(count=3, cpu_mhz=2500), CreateIndex=9, ModifyIndex=9, JobModifyIndex=9)
    state["nodes"][0]["Status"] = "down"
    lost = running_alloc("a0", job, "n0", cpu_mhz=2500, CreateIndex=9, ModifyIndex=9).to_api()
    state["allocs"] = [{**lost, "Job": job.to_api()}]
    harness = run("half-then-commit", state=state)
    assert harness.plans[0].node_update.keys() == {"n0"}
    alloc = harness.store.snapshot().alloc("a0")
    assert alloc is not None
    assert (alloc.desired_status, alloc.modify_index) == ("stop", 11)
    live = [alloc for alloc in harness.store.snapshot().allocs_by_job("default", "web") if not alloc.is_server_terminal]
    assert sorted(alloc.name for alloc in live) == ["web.web[0]", "web.web[1]", "web.web[2]"]


@pytest.mark.parametrize("planner", ["commit", "accept"])
def test_what_found_no_room_waits_in_a_created_evaluation(planner: str) -> None:
    harness = run(planner, state=dump(count=7))
    (update,) = harness.evals
    (blocked,) = harness.created_evals
    assert update.blocked_eval == blocked.id
    assert blocked.status == "blocked"
    assert update.queued_allocations == {"web": 2}
    assert harness.reblocked_evals == []


def test_a_blocked_evaluation_that_finds_no_room_goes_back() -> None:
    state = {**dump(), "nodes": []}
    harness = SchedulerHarness.from_dump(state, now_ns=NOW_NS)
    harness.process(evaluation(status="blocked", triggered_by="queued-allocs"))
    assert [entry.id for entry in harness.reblocked_evals] == ["e1"]
    assert harness.created_evals == []
    assert harness.plans == []


def test_updates_carry_the_desired_counts() -> None:
    (update,) = run("accept").evals
    assert update.plan_annotations is not None
    counts = update.plan_annotations.desired_tg_updates["web"]
    assert counts is not None
    assert counts.place == 5


def test_records_are_copies() -> None:
    """What a run leaves behind shares nothing with what was handed in."""
    given = evaluation()
    harness = SchedulerHarness.from_dump(dump(), now_ns=NOW_NS)
    harness.process(given)
    assert (given.status, given.queued_allocations) == ("pending", {})
    (update,) = harness.evals
    update.status = "canceled"
    stored = harness.store.eval("e1")
    assert stored is not None
    assert stored.status == "pending"


def test_the_seed_decides_ids() -> None:
    ids = [{alloc.id for alloc in run("commit", seed=seed).store.snapshot().allocs_by_job("default", "web")} for seed in (1, 1, 2)]
    assert ids[0] == ids[1]
    assert not ids[0] & ids[2]


def test_a_harness_processes_one_evaluation() -> None:
    harness = run("commit")
    with pytest.raises(StateError, match="processes one evaluation"):
        harness.process(evaluation(id="e2"))


@pytest.mark.parametrize(("option", "value"), [("planner", "commit_twice"), ("planner", ""), ("overlap", "ignore")])
def test_unknown_options_are_named(option: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        SchedulerHarness.from_dump(dump(), now_ns=NOW_NS, **{option: value})
    assert (caught.value.path, caught.value.value) == (option, value)


def test_a_dump_may_be_a_file(tmp_path: Any) -> None:
    path = tmp_path / "dump.json"
    path.write_bytes(msgspec.json.encode(dump()))
    harness = SchedulerHarness.from_dump(path, now_ns=NOW_NS)
    harness.process(evaluation())
    assert written(harness) == NODE_IDS
