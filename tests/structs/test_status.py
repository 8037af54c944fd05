"""Status predicates, group lookup and plans (plan-apply 1.8 to 1.11)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan import Allocation, Job, Plan
from fastplan.structs import DeploymentUpdate, PlanAnnotations


@pytest.mark.parametrize(
    ("client", "desired", "client_terminal", "server_terminal"),
    [
        ("", "", False, False),
        ("pending", "run", False, False),
        ("running", "run", False, False),
        ("unknown", "run", False, False),
        ("complete", "run", True, False),
        ("failed", "run", True, False),
        ("lost", "stop", True, True),
        ("running", "stop", False, True),
        ("running", "evict", False, True),
        ("running", "failed", False, False),
    ],
)
def test_terminal(client: str, desired: str, client_terminal: bool, server_terminal: bool) -> None:
    alloc = Allocation(client_status=client, desired_status=desired)
    assert (alloc.is_client_terminal, alloc.is_server_terminal, alloc.is_terminal) == (client_terminal, server_terminal, client_terminal or server_terminal)


@pytest.mark.parametrize(
    ("job", "replaceable"),
    [
        (None, True),
        ({"TaskGroups": [{"Name": "other", "Disconnect": {"Replace": False}}]}, True),
        ({"TaskGroups": [{"Name": "g"}]}, True),
        ({"TaskGroups": [{"Name": "g", "Disconnect": {}}]}, True),
        ({"TaskGroups": [{"Name": "g", "Disconnect": {"Replace": True}}]}, True),
        ({"TaskGroups": [{"Name": "g", "Disconnect": {"Replace": False}}, {"Name": "g"}]}, False),
    ],
)
def test_replaceable_on_disconnect(job: dict[str, Any] | None, replaceable: bool) -> None:
    assert Allocation.from_api({"TaskGroup": "g", "Job": job}).replaceable_on_disconnect is replaceable


def test_first_group_of_a_name_wins() -> None:
    job = Job.from_api({"TaskGroups": [{"Name": "a", "Count": 1}, {"Name": "a", "Count": 2}]})
    group = job.group("a")
    assert group is not None
    assert group.count == 1
    assert job.group("b") is None


def test_noop_plan() -> None:
    assert Plan().is_noop()
    assert Plan(node_preemptions={"n": []}, annotations=PlanAnnotations()).is_noop()
    assert not Plan(node_update={"n": []}).is_noop()
    assert not Plan(node_allocation={"n": []}).is_noop()
    assert not Plan(deployment_updates=[DeploymentUpdate()]).is_noop()
    assert not Plan.from_api({"Deployment": {}}).is_noop()
    assert Plan.from_api({"Deployment": None, "NodeUpdate": None}).is_noop()


def test_a_null_list_of_a_plan_is_kept() -> None:
    data: dict[str, Any] = {"NodePreemptions": {"n1": None, "n2": []}}
    plan = Plan.from_api(data)
    assert plan.node_preemptions == {"n1": None, "n2": []}
    assert plan.to_api() == data


def test_cached_columns_stay_behind() -> None:
    plan = Plan(priority=5)
    plan._columns = object()
    assert plan.to_api() == {"Priority": 5}
    twin = plan.copy()
    assert twin._columns is None
    assert twin == plan
