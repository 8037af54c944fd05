"""Promoting, pausing and failing deployments (worker-and-broker 2.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.server.operations import fail_deployment, pause_deployment, promote_deployment, register_job, register_node
from fastplan.structs import Deployment, Evaluation
from tests.server.operated import NOW, Operated, alloc, job, node


@pytest.fixture
def site() -> Iterator[Operated]:
    """Version 2 of `web` is being deployed: groups `g` and `h` with one healthy canary each, group `i` without any."""
    site = Operated()
    site.do(register_node, node())
    for priority in (40, 50, 60):
        site.do(register_job, job(Priority=priority))
    site.apply(codec.UpsertDeployment(deployment()))
    health = {"Canary": True, "Healthy": True}
    site.apply(codec.UpsertAllocs([alloc("g1", DeploymentStatus=health), alloc("h1", DeploymentStatus=health)]))
    yield site
    site.check_replay()


def deployment(**changes: Any) -> dict[str, Any]:
    groups = {
        "g": {"DesiredCanaries": 1, "DesiredTotal": 3, "PlacedCanaries": ["g1"], "PlacedAllocs": 1, "ProgressDeadline": 10**9, "AutoRevert": True},
        "h": {"DesiredCanaries": 1, "DesiredTotal": 3, "PlacedCanaries": ["h1"], "PlacedAllocs": 1},
        "i": {"DesiredTotal": 1},
    }
    return {
        "ID": "dep",
        "Namespace": "default",
        "JobID": "web",
        "JobVersion": 2,
        "Status": "running",
        "StatusDescription": "Deployment is running but requires manual promotion",
        "EvalPriority": 77,
        "TaskGroups": groups,
        **changes,
    }


def stored(site: Operated) -> Deployment:
    found = site.store.deployment("dep")
    assert found is not None
    return found


def check_evaluation(site: Operated, evaluations: list[Evaluation]) -> None:
    (evaluation,) = evaluations
    assert (evaluation.triggered_by, evaluation.job_id, evaluation.type, evaluation.priority) == ("deployment-watcher", "web", "service", 77)
    assert (evaluation.deployment_id, evaluation.status, evaluation.create_index) == ("dep", "pending", site.index)
    assert site.operation.unblocks == []


def test_promoting_all(site: Operated) -> None:
    check_evaluation(site, site.do(promote_deployment, "dep", None))
    found = stored(site)
    assert {name: group.promoted for name, group in found.task_groups.items()} == {"g": True, "h": True, "i": False}
    assert (found.status, found.status_description, found.modify_time) == ("running", "Deployment is running", NOW)
    for alloc_id in ("g1", "h1"):
        canary = site.store.alloc(alloc_id)
        assert canary is not None
        assert canary.deployment_status is not None
        assert (canary.deployment_status.canary, canary.deployment_status.healthy, canary.alloc_modify_index) == (False, True, site.index)
    assert found.task_groups["g"].placed_canaries == ["g1"]


def test_promoting_some(site: Operated) -> None:
    check_evaluation(site, site.do(promote_deployment, "dep", ["h", "nope"]))
    found = stored(site)
    assert {name: group.promoted for name, group in found.task_groups.items()} == {"g": False, "h": True, "i": False}
    assert found.status_description == "Deployment is running but requires manual promotion"
    canary = site.store.alloc("g1")
    assert canary is not None
    assert canary.deployment_status is not None
    assert canary.deployment_status.canary is True
    check_evaluation(site, site.do(promote_deployment, "dep", ["nope"]))


def test_canaries_that_are_not_healthy_yet(site: Operated) -> None:
    site.apply(codec.UpsertAllocs([alloc("g1", DeploymentStatus={"Canary": True}), alloc("h1", DeploymentStatus={"Canary": True, "Healthy": False})]))
    with pytest.raises(StateError) as caught:
        site.work_out(promote_deployment, "dep", ["g"])
    assert str(caught.value) == '1 error occurred:\n\t* Task group "g" has 0/1 healthy allocations\n\n'
    with pytest.raises(StateError) as caught:
        site.work_out(promote_deployment, "dep", None)
    assert str(caught.value).startswith("2 errors occurred:\n")


def test_no_canaries(site: Operated) -> None:
    site.apply(codec.UpsertDeployment(deployment(TaskGroups={"g": {"DesiredTotal": 3}})))
    with pytest.raises(StateError, match="no canaries to promote"):
        site.work_out(promote_deployment, "dep", None)
    with pytest.raises(InvalidInput):
        site.work_out(promote_deployment, "dep", "g")


def test_pausing_and_going_on(site: Operated) -> None:
    assert site.do(pause_deployment, "dep", True) == []
    found = stored(site)
    assert (found.status, found.status_description, found.task_groups["g"].require_progress_by) == ("paused", "Deployment is paused", NOW + 10**9)
    check_evaluation(site, site.do(pause_deployment, "dep", False))
    assert (stored(site).status, stored(site).status_description) == ("running", "Deployment is running")


def test_failing_without_a_stable_version(site: Operated) -> None:
    check_evaluation(site, site.do(fail_deployment, "dep"))
    assert (stored(site).status, stored(site).status_description) == ("failed", "Deployment marked as failed - no stable job version to auto revert to")
    found = site.store.job("default", "web")
    assert found is not None
    assert (found.version, found.priority) == (2, 60)


def mark_stable(site: Operated, version: int) -> None:
    site.apply(codec.UpsertDeployment({"ID": f"old{version}", "Namespace": "default", "JobID": "web", "JobVersion": version, "Status": "running"}))
    site.apply(codec.UpdateDeploymentStatus(f"old{version}", "successful", "done"))


def test_failing_reverts_to_the_newest_stable_version(site: Operated) -> None:
    mark_stable(site, 0)
    mark_stable(site, 1)
    check_evaluation(site, site.do(fail_deployment, "dep", now_ns=NOW + 99))
    assert stored(site).status_description == "Deployment marked as failed - rolling back to job version 1"
    found = site.store.job("default", "web")
    assert found is not None
    assert (found.version, found.priority, found.stable, found.submit_time, found.job_modify_index) == (3, 50, True, NOW, site.index)


def test_failing_does_not_revert_to_the_same(site: Operated) -> None:
    mark_stable(site, 1)
    site.do(register_job, job(Priority=50))
    site.apply(codec.UpsertDeployment(deployment(JobVersion=3)))
    site.do(fail_deployment, "dep")
    end = " - not rolling back to stable job version 1 as current job has same specification"
    assert stored(site).status_description == "Deployment marked as failed" + end
    found = site.store.job("default", "web")
    assert found is not None
    assert found.version == 3


def test_failing_without_auto_revert(site: Operated) -> None:
    mark_stable(site, 1)
    site.apply(codec.UpsertDeployment(deployment(TaskGroups={"g": {"DesiredTotal": 3}})))
    site.do(fail_deployment, "dep")
    assert stored(site).status_description == "Deployment marked as failed"
    found = site.store.job("default", "web")
    assert found is not None
    assert found.version == 2


def test_a_deployment_whose_job_is_gone(site: Operated) -> None:
    site.apply(codec.DeleteJob("default", "web"))
    assert site.do(fail_deployment, "dep") == []
    assert stored(site).status == "failed"


@pytest.mark.parametrize(
    ("operation", "inputs", "verb"),
    [(promote_deployment, (None,), "promote"), (pause_deployment, (True,), "pause"), (pause_deployment, (False,), "resume"), (fail_deployment, (), "fail")],
)
@pytest.mark.parametrize("status", ["successful", "failed", "cancelled"])
def test_a_deployment_that_has_ended_or_never_was(site: Operated, operation: Any, inputs: tuple[Any, ...], verb: str, status: str) -> None:
    site.apply(codec.UpsertDeployment(deployment(Status=status)))
    with pytest.raises(StateError, match=f"can't {verb} terminal deployment"):
        site.work_out(operation, "dep", *inputs)
    with pytest.raises(StateError, match="deployment not found"):
        site.work_out(operation, "ghost", *inputs)
