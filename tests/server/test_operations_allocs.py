"""What clients report, and stopping an allocation (worker-and-broker 2.3, 5.4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.server.operations import Unblock, deregister_job, register_job, register_node, stop_alloc, update_allocs_from_client
from fastplan.structs import Allocation
from tests.server.operated import NOW, Operated, alloc, job, node

ROOM = [Unblock("class_and_quota", computed_class="c"), Unblock("node", node_id="n1")]


@pytest.fixture
def site() -> Iterator[Operated]:
    site = Operated()
    site.do(register_node, node())
    for job_id, kind in (("web", "service"), ("work", "batch"), ("log", "system"), ("scan", "sysbatch")):
        site.do(register_job, job(job_id, Type=kind, Priority=60))
    site.apply(codec.UpsertAllocs([alloc("a"), alloc("w", "work"), alloc("l", "log"), alloc("s", "scan")]))
    yield site
    site.check_replay()


def report(alloc_id: str, status: str, **changes: Any) -> Allocation:
    return Allocation.from_api({"ID": alloc_id, "ClientStatus": status, **changes})


def test_what_clients_say_is_stored(site: Operated) -> None:
    states = {"t": {"State": "running", "StartedAt": "2026-12-01T00:00:00Z"}}
    said = report("a", "running", ClientDescription="Tasks are running", TaskStates=states)
    assert site.do(update_allocs_from_client, [said]) == []
    stored = site.store.alloc("a")
    assert stored is not None
    assert (stored.client_status, stored.client_description, stored.task_states["t"].state) == ("running", "Tasks are running", "running")  # type: ignore[union-attr]
    assert (stored.modify_index, stored.alloc_modify_index, stored.modify_time) == (site.index, site.index - 1, NOW)
    assert site.operation.unblocks == []


@pytest.mark.parametrize("status", ["complete", "failed"])
def test_the_end_of_an_allocation_makes_room_once(site: Operated, status: str) -> None:
    site.do(update_allocs_from_client, [report("a", status), report("w", status)])
    assert site.operation.unblocks == ROOM
    site.do(update_allocs_from_client, [report("a", status)])
    assert (site.operation.unblocks, site.operation.evaluations) == ([], [])


@pytest.mark.parametrize("status", ["lost", "unknown", "running", "pending"])
def test_nothing_else_makes_room(site: Operated, status: str) -> None:
    site.do(update_allocs_from_client, [report("a", status)])
    assert (site.operation.unblocks, site.operation.evaluations) == ([], [])


def test_room_on_a_node_that_is_gone(site: Operated) -> None:
    site.apply(codec.DeleteNodes(["n1"]))
    site.do(update_allocs_from_client, [report("a", "complete")])
    assert site.operation.unblocks == []


@pytest.mark.parametrize(("alloc_id", "evaluated"), [("a", "web"), ("w", "work"), ("l", "log"), ("s", None)])
def test_a_failure_evaluates_jobs_that_replace(site: Operated, alloc_id: str, evaluated: str | None) -> None:
    evaluations = site.do(update_allocs_from_client, [report(alloc_id, "failed")])
    assert [(each.job_id, each.triggered_by, each.priority, each.status) for each in evaluations] == [
        (job_id, "alloc-failure", 60, "pending") for job_id in (evaluated,) if job_id
    ]


@pytest.mark.parametrize("changes", [{"DesiredStatus": "stop"}, {"FollowupEvalID": "e"}])
def test_a_failure_that_calls_for_nothing(site: Operated, changes: dict[str, Any]) -> None:
    site.apply(codec.UpsertAllocs([alloc("b", **changes)]))
    assert site.do(update_allocs_from_client, [report("b", "failed")]) == []
    assert site.operation.unblocks == ROOM


def test_failures_of_jobs_that_do_not_reschedule_or_are_stopped(site: Operated) -> None:
    never = [{"Name": "g", "ReschedulePolicy": {"Attempts": 0, "Unlimited": False}, "Tasks": [{"Name": "t", "Driver": "exec"}]}]
    site.do(register_job, job("never", TaskGroups=never))
    site.apply(codec.UpsertAllocs([alloc("n", "never")]))
    assert site.do(update_allocs_from_client, [report("n", "failed")]) == []
    site.do(deregister_job, "default", "web", False)
    assert site.do(update_allocs_from_client, [report("a", "failed")]) == []


def test_one_evaluation_for_each_job_and_reason(site: Operated) -> None:
    site.apply(codec.UpsertAllocs([alloc("b"), alloc("u", ClientStatus="unknown"), alloc("v", ClientStatus="unknown")]))
    evaluations = site.do(update_allocs_from_client, [report("a", "failed"), report("b", "failed"), report("u", "running"), report("v", "running")])
    assert [(each.job_id, each.triggered_by) for each in evaluations] == [("web", "alloc-failure"), ("web", "reconnect")]


def test_later_reports_in_one_call(site: Operated) -> None:
    site.apply(codec.UpsertAllocs([alloc("u", ClientStatus="unknown")]))
    evaluations = site.do(update_allocs_from_client, [report("u", "running"), report("u", "complete")])
    assert [each.triggered_by for each in evaluations] == ["reconnect"]
    assert site.operation.unblocks == ROOM
    stored = site.store.alloc("u")
    assert stored is not None
    assert stored.client_status == "complete"


def test_still_unknown_is_no_reconnect(site: Operated) -> None:
    site.apply(codec.UpsertAllocs([alloc("u", ClientStatus="unknown")]))
    assert site.do(update_allocs_from_client, [report("u", "unknown")]) == []


def test_unknown_ids_are_passed_over(site: Operated) -> None:
    assert site.do(update_allocs_from_client, [report("ghost", "failed")]) == []
    assert site.operation.entry() is None
    site.do(update_allocs_from_client, [report("ghost", "failed"), report("a", "complete")])
    assert site.operation.unblocks == ROOM


@pytest.mark.parametrize("status", ["", "dead"])
def test_a_status_that_there_is_not(site: Operated, status: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        site.work_out(update_allocs_from_client, [report("a", "running"), report("w", status)])
    assert (caught.value.path, caught.value.value) == ("allocs[1].ClientStatus", status)


def test_the_status_of_the_job_follows(site: Operated) -> None:
    (evaluation,) = site.do(register_job, job("short", Type="batch"))
    site.apply(codec.UpsertAllocs([alloc("x", "short")]))
    site.do(update_allocs_from_client, [report("x", "running")])
    stored = site.store.job("default", "short")
    assert stored is not None
    assert stored.status == "running"
    site.do(update_allocs_from_client, [report("x", "complete")])
    site.apply(codec.UpsertEvals([evaluation.to_api() | {"Status": "complete"}]))
    stored = site.store.job("default", "short")
    assert stored is not None
    assert stored.status == "dead"


# --- health -----------------------------------------------------------------------------------------------------------


def deployed(site: Operated, status: str = "running") -> None:
    groups = {"g": {"DesiredTotal": 2, "DesiredCanaries": 1, "PlacedCanaries": ["d"], "PlacedAllocs": 2, "ProgressDeadline": 10**9}}
    site.apply(codec.UpsertDeployment({"ID": "dep", "JobID": "web", "Status": status, "TaskGroups": groups}))
    placed = alloc("d", DeploymentID="dep", DeploymentStatus={"Canary": True})
    site.apply(codec.UpsertAllocs([placed, alloc("e", DeploymentID="dep")]))


def test_health_is_counted_and_lets_the_deployment_go_on(site: Operated) -> None:
    deployed(site)
    healthy = {"Healthy": True, "Timestamp": "2026-12-01T00:00:00Z"}
    (evaluation,) = site.do(update_allocs_from_client, [report("d", "running", DeploymentStatus=healthy), report("e", "running", DeploymentStatus=healthy)])
    assert (evaluation.triggered_by, evaluation.deployment_id, evaluation.job_id) == ("deployment-watcher", "dep", "web")
    deployment = site.store.deployment("dep")
    assert deployment is not None
    group = deployment.task_groups["g"]
    assert (group.healthy_allocs, group.unhealthy_allocs, group.placed_allocs, group.require_progress_by) == (2, 0, 2, NOW + 10**9)
    stored = site.store.alloc("d")
    assert stored is not None
    assert stored.deployment_status is not None
    assert (stored.deployment_status.canary, stored.deployment_status.healthy, stored.deployment_status.modify_index) == (True, True, site.index)
    # The same again is no news, and neither is a report that says nothing of health.
    assert site.do(update_allocs_from_client, [report("d", "running", DeploymentStatus=healthy), report("e", "running", DeploymentStatus={})]) == []
    stored = site.store.alloc("e")
    assert stored is not None
    assert stored.deployment_status is not None
    assert stored.deployment_status.healthy is True
    (evaluation,) = site.do(update_allocs_from_client, [report("d", "running", DeploymentStatus={"Healthy": False})])
    deployment = site.store.deployment("dep")
    assert deployment is not None
    assert (deployment.task_groups["g"].healthy_allocs, deployment.task_groups["g"].unhealthy_allocs) == (1, 1)


def test_health_after_the_end_of_a_deployment(site: Operated) -> None:
    deployed(site, "failed")
    assert site.do(update_allocs_from_client, [report("d", "running", DeploymentStatus={"Healthy": True})]) == []


# --- stopping ---------------------------------------------------------------------------------------------------------


def test_stopping(site: Operated) -> None:
    (evaluation,) = site.do(stop_alloc, "a")
    web = site.store.job("default", "web")
    assert web is not None
    assert (evaluation.triggered_by, evaluation.job_id, evaluation.type, evaluation.priority) == ("alloc-stop", "web", "service", 60)
    assert (evaluation.job_modify_index, evaluation.node_id) == (web.modify_index, "")
    stored = site.store.alloc("a")
    assert stored is not None
    assert (stored.desired_status, stored.client_status, stored.desired_transition.migrate) == ("run", "running", True)
    assert (stored.desired_transition.no_shutdown_delay, stored.desired_transition.reschedule) == (False, None)
    assert (stored.modify_index, stored.alloc_modify_index, stored.create_index) == (site.index, site.index, site.index - 1)
    assert stored.job is not None
    assert site.operation.unblocks == []
    # Once more, with more wishes: those of before stay.
    assert len(site.do(stop_alloc, "a", no_shutdown_delay=True, reschedule=True)) == 1
    stored = site.store.alloc("a")
    assert stored is not None
    wishes = stored.desired_transition
    assert (wishes.migrate, wishes.no_shutdown_delay, wishes.reschedule, wishes.force_reschedule) == (True, True, True, None)


def test_stopping_an_allocation_of_a_purged_job(site: Operated) -> None:
    site.do(deregister_job, "default", "web", True)
    (evaluation,) = site.do(stop_alloc, "a")
    assert (evaluation.job_id, evaluation.type) == ("web", "service")


def test_stopping_what_is_not_there(site: Operated) -> None:
    with pytest.raises(StateError, match="allocation not found"):
        site.work_out(stop_alloc, "ghost")
    site.apply(codec.UpsertAllocs([alloc("orphan", "nobody")]))
    with pytest.raises(StateError, match='job "nobody" of allocation orphan not found'):
        site.work_out(stop_alloc, "orphan")
