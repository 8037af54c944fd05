"""Evaluations in the state machine (worker-and-broker 2.2), what is wanted of allocations, and what evaluations count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastplan import codec
from fastplan.fsm import Refused
from fastplan.scheduler.config import config_of
from fastplan.server.operations import default_scheduler_config, queued_counts, register_job, register_node
from tests.server.operated import NOW, Operated, alloc, job, node


@pytest.fixture
def site() -> Iterator[Operated]:
    site = Operated()
    site.do(register_node, node())
    (site.first,) = site.do(register_job, job())  # type: ignore[attr-defined]
    yield site
    site.check_replay()


def evaluation(eval_id: str, status: str, job_id: str = "web", **changes: Any) -> dict[str, Any]:
    return {"ID": eval_id, "Namespace": "default", "JobID": job_id, "Status": status, **changes}


def upsert(site: Operated, *evals: dict[str, Any]) -> Refused | None:
    return site.apply(codec.UpsertEvals(list(evals)))


def statuses(site: Operated) -> dict[str, str]:
    return {each.id: each.status for each in site.store.evals() if not each.id.startswith("0000")}


def test_success_cancels_what_is_blocked(site: Operated) -> None:
    upsert(site, evaluation("b1", "blocked"), evaluation("b2", "blocked"), evaluation("other", "blocked", "api"), evaluation("p", "pending"))
    upsert(site, evaluation("dev", "blocked", Namespace="dev"))
    upsert(site, evaluation("ok", "complete"))
    assert statuses(site) == {"b1": "canceled", "b2": "canceled", "other": "blocked", "p": "pending", "dev": "blocked", "ok": "complete"}
    canceled = site.store.eval("b1")
    assert canceled is not None
    assert (canceled.status_description, canceled.modify_index, canceled.modify_time) == ('evaluation "ok" successful', site.index, NOW)
    assert canceled.create_index == site.index - 2


@pytest.mark.parametrize(
    "finished",
    [
        evaluation("x", "complete", FailedTGAllocs={"g": {"NodesEvaluated": 1}}),
        evaluation("x", "failed"),
        evaluation("x", "canceled"),
        evaluation("x", "pending"),
    ],
)
def test_nothing_else_cancels(site: Operated, finished: dict[str, Any]) -> None:
    upsert(site, evaluation("b", "blocked"))
    upsert(site, finished)
    assert statuses(site)["b"] == "blocked"


def test_order_within_one_command(site: Operated) -> None:
    upsert(site, evaluation("b1", "blocked"), evaluation("ok", "complete"), evaluation("b2", "blocked"))
    assert statuses(site) == {"b1": "canceled", "ok": "complete", "b2": "blocked"}


@pytest.mark.parametrize("status", ["cancelled", "done", "PENDING"])
def test_a_status_that_there_is_not_changes_nothing(site: Operated, status: str) -> None:
    before = site.store.to_dump()
    refused = upsert(site, evaluation("ok", "complete"), evaluation("x", status))
    assert isinstance(refused, Refused)
    assert "evals[1].Status" in refused.refused
    assert status in refused.refused
    assert site.store.to_dump() == before


def test_indexes_of_the_entry(site: Operated) -> None:
    new = {"ID": "new", "TaskGroups": []}
    evals = [
        evaluation("a", "pending", "new"),
        evaluation("b", "pending", "web"),
        evaluation("c", "pending", "new", JobModifyIndex=1, NodeID="n1", NodeModifyIndex=1),
    ]
    site.apply(codec.Batch([codec.UpsertJob(new), codec.UpdateNodeStatus("n1", "down"), codec.UpsertEvals([*evals, evaluation("d", "pending", NodeID="n1")])]))
    found = {each.id: (each.job_modify_index, each.node_modify_index) for each in site.store.evals() if len(each.id) == 1}
    assert found == {"a": (site.index, 0), "b": (0, 0), "c": (1, 1), "d": (0, site.index)}
    # Outside of such an entry nothing is filled in.
    upsert(site, evaluation("e", "pending", NodeID="n1"))
    alone = site.store.eval("e")
    assert alone is not None
    assert (alone.job_modify_index, alone.node_modify_index) == (0, 0)


def test_the_status_of_a_job_follows_its_evaluations(site: Operated) -> None:
    def status() -> str:
        found = site.store.job("default", "web")
        assert found is not None
        return found.status

    modify_index = site.store.job("default", "web").modify_index  # type: ignore[union-attr]
    assert status() == "pending"
    upsert(site, site.first.to_api() | {"Status": "complete", "FailedTGAllocs": {"g": {}}})  # type: ignore[attr-defined]
    assert status() == "dead"
    upsert(site, evaluation("b", "blocked"))
    assert status() == "pending"
    site.apply(codec.UpsertAllocs([alloc("a")]))
    upsert(site, evaluation("b", "complete"))
    assert status() == "running"
    assert site.store.job("default", "web").modify_index == modify_index  # type: ignore[union-attr]


def test_a_dispatched_job_is_not_a_template(site: Operated) -> None:
    site.apply(codec.UpsertJob({"ID": "child", "Type": "batch", "ParameterizedJob": {}, "Dispatched": True}))
    site.apply(codec.UpsertJob({"ID": "parent", "Type": "batch", "ParameterizedJob": {}}))
    assert [each.status for each in site.store.jobs() if each.id != "web"] == ["pending", "running"]


# --- what is wanted of allocations ------------------------------------------------------------------------------------


def test_wishes_add_up(site: Operated) -> None:
    site.apply(codec.UpsertAllocs([alloc("a"), alloc("b")]))
    before = site.store.snapshot()
    assert site.apply(codec.UpdateAllocDesiredTransitions({"a": {"Migrate": True}, "ghost": {"Migrate": True}})) is None
    assert site.apply(codec.UpdateAllocDesiredTransitions({"a": {"ForceReschedule": True, "Migrate": None}})) is None
    a, b, old = site.store.alloc("a"), site.store.alloc("b"), before.alloc("a")
    assert a is not None
    assert b is not None
    assert old is not None
    assert (a.desired_transition.migrate, a.desired_transition.force_reschedule, a.desired_transition.reschedule) == (True, True, None)
    assert (a.modify_index, a.alloc_modify_index, a.create_index, a.modify_time) == (site.index, site.index, site.index - 2, NOW)
    assert (b.desired_transition.migrate, old.desired_transition.migrate) == (None, None)
    used = site.store.node_used("n1")
    assert used == before.node_used("n1")
    site.store.from_dump(site.store.to_dump())


def test_a_wish_that_cannot_be_read(site: Operated) -> None:
    site.apply(codec.UpsertAllocs([alloc("a")]))
    refused = site.apply(codec.UpdateAllocDesiredTransitions({"a": {"Migrate": "yes"}}))
    assert isinstance(refused, Refused)
    assert "transitions[a].DesiredTransition.Migrate" in refused.refused


def test_wishes_keep_what_a_plan_wrote(site: Operated) -> None:
    ports = {
        "Shared": {"Ports": [{"Label": "http", "Value": 8080, "HostIP": "10.0.0.1"}]},
        "Tasks": {"t": {"Cpu": {"CpuShares": 5}, "Memory": {"MemoryMB": 7}}},
    }
    site.apply(codec.UpsertAllocs([alloc("a", AllocatedResources=ports, Metrics={"NodesEvaluated": 3}, PreviousAllocation="z")]))
    before = site.store.alloc("a")
    site.apply(codec.UpdateAllocDesiredTransitions({"a": {"Migrate": True}}))
    after = site.store.alloc("a")
    assert before is not None
    assert after is not None
    assert after.desired_transition.migrate is True
    for record in (before, after):
        record.desired_transition.migrate = None
        record.modify_index = record.alloc_modify_index = record.modify_time = 0
        record.node_name = ""
    assert after == before


def test_promoting_what_has_ended_is_refused(site: Operated) -> None:
    for command in (
        codec.PromoteDeployment("ghost"),
        codec.Batch([codec.UpsertDeployment({"ID": "d", "JobID": "web", "Status": "failed"}), codec.PromoteDeployment("d")]),
    ):
        refused = site.apply(command)
        assert isinstance(refused, Refused)
        assert "does not exist or is not active" in refused.refused


# --- queued allocations -----------------------------------------------------------------------------------------------


def test_queued_counts(site: Operated) -> None:
    groups = [{"Name": name, "Tasks": [{"Name": "t", "Driver": "exec"}]} for name in ("g", "h", "i")]
    site.do(register_job, job(TaskGroups=groups))
    assert queued_counts(site.store, "default", "web") == {}
    upsert(site, evaluation("z", "complete", QueuedAllocations={"g": 4, "h": 1, "gone": 9}, FailedTGAllocs={"g": {}}))
    assert queued_counts(site.store, "default", "web") == {"g": 4, "h": 1}
    upsert(site, evaluation("a", "blocked", QueuedAllocations={"g": 2}))
    upsert(site, evaluation("b", "blocked", "api", QueuedAllocations={"g": 7}))
    assert queued_counts(site.store, "", "web") == {"g": 2, "h": 1}
    upsert(site, evaluation("n", "pending"))
    assert queued_counts(site.store, "default", "web") == {"g": 2, "h": 1}
    # What is canceled says nothing any more.
    upsert(site, evaluation("c", "complete", QueuedAllocations={"g": 0}))
    assert queued_counts(site.store, "default", "web") == {"g": 0, "h": 1}
    assert queued_counts(site.store.snapshot(), "default", "web") == {"g": 0, "h": 1}
    assert queued_counts(site.store, "default", "ghost") == {}


def test_the_first_configuration(site: Operated) -> None:
    site.apply(codec.SetSchedulerConfig(default_scheduler_config()))
    config = config_of(site.store, site.store.job("default", "web"))
    assert (config.algorithm, config.memory_oversubscription, config.node_limit) == ("binpack", False, 100)
    assert [config.preemption_enabled(kind) for kind in ("system", "sysbatch", "service", "batch")] == [True, False, False, False]
