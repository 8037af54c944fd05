"""Operations on nodes: whom they evaluate, and what they unblock (worker-and-broker 2.3, 5.4; schedulers 4.12)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.scheduler.classes import computed_class
from fastplan.server.operations import (
    Unblock,
    deregister_job,
    deregister_node,
    register_job,
    register_node,
    update_node_drain,
    update_node_eligibility,
    update_node_status,
)
from fastplan.structs import DrainStrategy, Evaluation, Node
from tests.server.operated import NOW, Operated, alloc, job, node

ROOM = [Unblock("class", computed_class="c"), Unblock("node", node_id="n1")]


@pytest.fixture
def site() -> Iterator[Operated]:
    """A ready node `n1` with a running allocation of `web`, a batch job's that is over, and a system job without one."""
    site = Operated()
    site.do(register_node, node())
    for job_id, kind, priority in (("web", "service", 60), ("done", "batch", 50), ("log", "system", 80), ("scan", "sysbatch", 50)):
        site.do(register_job, job(job_id, Type=kind, Priority=priority))
    site.apply(codec.UpsertAllocs([alloc("a"), alloc("b", "done", ClientStatus="complete")]))
    yield site
    site.check_replay()


def about(evaluations: list[Evaluation]) -> list[str]:
    return [evaluation.job_id for evaluation in evaluations]


# --- registering ------------------------------------------------------------------------------------------------------


def test_a_new_node_is_evaluated_for_system_jobs(site: Operated) -> None:
    (evaluation,) = site.do(register_node, node("n2"))
    assert (evaluation.job_id, evaluation.triggered_by, evaluation.type, evaluation.priority) == ("log", "node-update", "system", 80)
    assert (evaluation.node_id, evaluation.node_modify_index, evaluation.status) == ("n2", site.index, "pending")
    log = site.store.job("default", "log")
    assert log is not None
    assert evaluation.job_modify_index == log.modify_index
    # Plain registration unblocks nobody who waits for just this node.
    assert site.operation.unblocks == [Unblock("class", computed_class="c")]


@pytest.mark.parametrize("changes", [{"Status": "initializing"}, {"SchedulingEligibility": "ineligible"}, {"DrainStrategy": {"Deadline": 5}}])
def test_a_node_without_room_unblocks_nobody(site: Operated, changes: dict[str, Any]) -> None:
    assert about(site.do(register_node, node("n2", **changes))) == ["log"]
    assert site.operation.unblocks == []


def test_system_jobs_that_may_not_use_the_node_are_left_alone(site: Operated) -> None:
    site.apply(codec.UpsertNodePools([{"Name": "gpu"}]))
    site.do(register_job, job("elsewhere", Type="system", Datacenters=["dc2"]))
    site.do(register_job, job("pool", Type="system", NodePool="gpu"))
    site.do(register_job, job("every", Type="system", NodePool="all", Datacenters=["dc*"]))
    site.do(register_job, job("over", Type="system"))
    site.do(deregister_job, "default", "over", False)
    assert about(site.do(register_node, node("n2"))) == ["every", "log"]
    assert about(site.do(register_node, node("n3", NodePool="gpu"))) == ["every", "pool"]
    # A node that moves concerns those whom it leaves too.
    assert about(site.do(register_node, node("n2", Datacenter="dc2"))) == ["elsewhere", "every", "log"]


def test_a_node_again(site: Operated) -> None:
    assert site.do(register_node, node()) == []
    assert [type(command) for command in site.operation.commands] == [codec.UpsertNodes]
    assert site.do(register_node, node(HTTPAddr="1.2.3.4:1", Drivers={})) == []
    assert about(site.do(register_node, node(Attributes={"kernel.name": "linux"}))) == ["log", "web"]
    healthy = {"exec": {"Detected": True, "Healthy": True, "UpdateTime": "2026-12-01T00:00:00Z"}}
    assert about(site.do(register_node, node(Attributes={"kernel.name": "linux"}, Drivers=healthy))) == ["log", "web"]
    later = {"exec": {"Detected": True, "Healthy": True, "UpdateTime": "2026-12-02T00:00:00Z"}}
    assert about(site.do(register_node, node(Attributes={"kernel.name": "linux"}, Drivers=later))) == []
    assert about(site.do(register_node, node(Attributes={"kernel.name": "linux"}, Drivers=later, Status="down"))) == ["log", "web"]
    assert site.operation.unblocks == []


def test_a_node_of_an_older_layout_again(site: Operated) -> None:
    older = {"Resources": {"CPU": 4000, "MemoryMB": 8192, "DiskMB": 1000}, "NodeResources": {"Cpu": {"CpuShares": 4000, "TotalCpuCores": 4}}}
    for changes in (older, {"Resources": older["Resources"]}):
        site.do(register_node, node(**changes))
        # The state holds it in another form, which is no change.
        assert site.do(register_node, node(**changes)) == []


def test_a_node_again_keeps_what_operators_set(site: Operated) -> None:
    site.do(update_node_eligibility, "n1", False)
    site.do(register_node, node(SchedulingEligibility="eligible"))
    stored = site.store.node("n1")
    assert stored is not None
    assert (stored.scheduling_eligibility, stored.create_index) == ("ineligible", 1)
    site.do(update_node_drain, "n1", {"Deadline": 10**9})
    site.do(register_node, node())
    stored = site.store.node("n1")
    assert stored is not None
    assert stored.drain_strategy is not None
    assert (stored.drain_strategy.deadline, site.operation.unblocks) == (10**9, [])


def test_what_a_node_leaves_out(site: Operated) -> None:
    given = Node(id="bare", node_pool="new")
    site.do(register_node, given)
    stored = site.store.node("bare")
    assert stored is not None
    assert (stored.name, stored.datacenter, stored.status, stored.scheduling_eligibility) == ("bare", "dc1", "initializing", "eligible")
    assert (stored.computed_class, stored.status_updated_at) == (computed_class(stored), NOW // 10**9)
    assert site.store.node_pool("new") is not None
    assert given == Node(id="bare", node_pool="new")


def test_the_class_follows_what_a_node_has_become(site: Operated) -> None:
    site.do(register_node, node("n2", ComputedClass=""))
    first = site.store.node("n2")
    assert first is not None
    # As somebody sends it who has read it here.
    first.attributes = {"kernel.name": "linux"}
    site.do(register_node, first)
    second = site.store.node("n2")
    assert second is not None
    assert second.computed_class not in ("", first.computed_class)
    assert site.operation.unblocks == [Unblock("class", computed_class=second.computed_class)]
    second.attributes["unique.hostname"] = "a"
    site.do(register_node, second)
    third = site.store.node("n2")
    assert third is not None
    assert third.computed_class == second.computed_class
    # A class of one's own stays.
    third.computed_class = "mine"
    for attributes in ({"a": "b"}, {"a": "c"}):
        third.attributes = attributes
        site.do(register_node, third)
        found = site.store.node("n2")
        assert found is not None
        assert found.computed_class == "mine"


@pytest.mark.parametrize(
    ("changes", "path", "value"),
    [({"ID": ""}, "node.ID", ""), ({"Status": "odd"}, "node.Status", "odd"), ({"SchedulingEligibility": "maybe"}, "node.SchedulingEligibility", "maybe")],
)
def test_a_node_that_makes_no_sense(site: Operated, changes: dict[str, Any], path: str, value: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        site.work_out(register_node, node(**changes))
    assert (caught.value.path, caught.value.value) == (path, value)


# --- status -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["down", "disconnected"])
def test_a_node_goes_away_and_comes_back(site: Operated, status: str) -> None:
    evaluations = site.do(update_node_status, "n1", status)
    assert about(evaluations) == ["log", "web"]
    web = evaluations[1]
    assert (web.triggered_by, web.type, web.priority, web.node_id, web.node_modify_index) == ("node-update", "service", 60, "n1", site.index)
    assert site.operation.unblocks == []
    assert site.do(update_node_status, "n1", status) == []
    assert site.operation.entry() is None
    assert about(site.do(update_node_status, "n1", "ready")) == ["log", "web"]
    assert site.operation.unblocks == ROOM


def test_a_node_that_starts_is_no_news(site: Operated) -> None:
    assert site.do(update_node_status, "n1", "initializing") == []
    stored = site.store.node("n1")
    assert stored is not None
    assert stored.status == "initializing"


def test_a_closed_node_that_is_ready_unblocks_nobody(site: Operated) -> None:
    site.do(update_node_eligibility, "n1", False)
    site.do(update_node_status, "n1", "down")
    assert about(site.do(update_node_status, "n1", "ready")) == ["log", "web"]
    assert site.operation.unblocks == []


@pytest.mark.parametrize(
    ("kind", "desired", "client", "relevant"),
    [
        ("service", "run", "running", True),
        ("service", "stop", "running", True),
        ("service", "run", "complete", True),
        ("service", "run", "failed", True),
        ("service", "stop", "complete", False),
        ("service", "evict", "lost", False),
        ("service", "run", "unknown", True),
        ("batch", "run", "running", True),
        ("batch", "stop", "running", True),
        ("batch", "run", "complete", False),
        ("batch", "run", "failed", False),
        ("batch", "stop", "complete", False),
        ("sysbatch", "run", "running", True),
        ("sysbatch", "run", "complete", False),
    ],
)
def test_relevant_allocations(kind: str, desired: str, client: str, relevant: bool) -> None:
    site = Operated()
    site.do(register_node, node())
    site.do(register_job, job(Type=kind))
    site.apply(codec.UpsertAllocs([alloc("a", DesiredStatus=desired, ClientStatus=client)]))
    assert about(site.do(update_node_status, "n1", "down")) == ["web"] * relevant


def test_one_evaluation_for_each_job_purged_ones_too(site: Operated) -> None:
    site.apply(codec.UpsertNamespaces([{"Name": "dev"}]))
    site.do(register_job, job(Namespace="dev"))
    site.apply(codec.UpsertAllocs([alloc("c"), alloc("d", Namespace="dev"), alloc("e", "log"), alloc("f", NodeID="n9")]))
    site.do(deregister_job, "default", "web", True)
    evaluations = site.do(update_node_status, "n1", "down")
    assert [(each.namespace, each.job_id, each.type) for each in evaluations] == [
        ("default", "log", "system"),
        ("default", "web", "service"),
        ("dev", "web", "service"),
    ]


def test_status_of_what_is_not_there(site: Operated) -> None:
    with pytest.raises(StateError, match="node not found"):
        site.work_out(update_node_status, "ghost", "ready")
    with pytest.raises(InvalidInput) as caught:
        site.work_out(update_node_status, "n1", "tired")
    assert (caught.value.path, caught.value.value) == ("status", "tired")


# --- eligibility ------------------------------------------------------------------------------------------------------


def test_eligibility(site: Operated) -> None:
    assert site.do(update_node_eligibility, "n1", True) == []
    assert site.operation.entry() is None
    assert site.do(update_node_eligibility, "n1", False) == []
    assert len(site.operation.commands) == 1
    evaluations = site.do(update_node_eligibility, "n1", True)
    assert about(evaluations) == ["log", "web"]
    assert {each.node_modify_index for each in evaluations} == {site.index}
    assert site.operation.unblocks == ROOM
    site.do(update_node_status, "n1", "down")
    site.do(update_node_eligibility, "n1", False)
    site.do(update_node_eligibility, "n1", True)
    assert site.operation.unblocks == []


def test_a_draining_node_stays_closed(site: Operated) -> None:
    site.do(update_node_drain, "n1", {})
    with pytest.raises(StateError, match="can not set node's scheduling eligibility to eligible while it is draining"):
        site.work_out(update_node_eligibility, "n1", True)
    assert site.do(update_node_eligibility, "n1", False) == []
    with pytest.raises(StateError, match="node not found"):
        site.work_out(update_node_eligibility, "ghost", True)


# --- draining ---------------------------------------------------------------------------------------------------------


def add_batch_and_system_allocs(site: Operated) -> None:
    site.apply(
        codec.UpsertAllocs(
            [
                alloc("c", "done"),
                alloc("d", "log"),
                alloc("e", "scan"),
                alloc("f", DesiredStatus="stop"),
                alloc("g", ClientStatus="failed"),
                alloc("h", NodeID="n2"),
            ]
        )
    )


def marked(site: Operated) -> set[str]:
    return {each.id for each in site.store.allocs() if each.desired_transition.migrate}


@pytest.mark.parametrize(
    ("drain", "leaving", "jobs"),
    [
        ({}, {"a", "d"}, ["log", "web"]),
        ({"Deadline": 60 * 10**9, "IgnoreSystemJobs": True}, {"a"}, ["web"]),
        ({"Deadline": -1}, {"a", "c", "d", "e"}, ["done", "log", "scan", "web"]),
        (DrainStrategy(deadline=-1, ignore_system_jobs=True), {"a", "c", "e"}, ["done", "scan", "web"]),
    ],
)
def test_a_drain_marks_what_has_to_leave(site: Operated, drain: Any, leaving: set[str], jobs: list[str]) -> None:
    add_batch_and_system_allocs(site)
    evaluations = site.do(update_node_drain, "n1", drain)
    assert marked(site) == leaving
    assert about(evaluations) == jobs
    assert {(each.triggered_by, each.node_id, each.node_modify_index) for each in evaluations} == {("node-drain", "n1", site.index)}
    stored = site.store.node("n1")
    assert stored is not None
    assert (stored.scheduling_eligibility, site.operation.unblocks) == ("ineligible", [])


def test_times_of_a_drain(site: Operated) -> None:
    site.do(update_node_drain, "n1", {"Deadline": 10**9, "StartedAt": "2020-01-01T00:00:00Z"})
    stored = site.store.node("n1")
    assert stored is not None
    assert stored.drain_strategy is not None
    assert (stored.drain_strategy.started_at, stored.drain_strategy.force_deadline) == ("2027-01-15T08:00:00.123456789Z", "2027-01-15T08:00:01.123456789Z")
    site.do(update_node_drain, "n1", {"ForceDeadline": "2020-01-01T00:00:00Z"})
    stored = site.store.node("n1")
    assert stored is not None
    assert stored.drain_strategy is not None
    assert stored.drain_strategy.force_deadline == ""


def test_the_end_of_a_drain(site: Operated) -> None:
    site.do(update_node_drain, "n1", {})
    assert site.do(update_node_drain, "n1", None, mark_eligible=False) == []
    stored = site.store.node("n1")
    assert stored is not None
    assert (stored.drain_strategy, stored.scheduling_eligibility, site.operation.unblocks) == (None, "ineligible", [])
    site.do(update_node_drain, "n1", {})
    assert about(site.do(update_node_drain, "n1", None)) == ["log", "web"]
    stored = site.store.node("n1")
    assert stored is not None
    assert (stored.drain_strategy, stored.scheduling_eligibility, site.operation.unblocks) == (None, "eligible", ROOM)


def test_a_drain_that_makes_no_sense(site: Operated) -> None:
    with pytest.raises(StateError, match="node not found"):
        site.work_out(update_node_drain, "ghost", {})
    for wrong, path in (({"Deadline": "5m"}, "drain.Deadline"), ("now", "drain")):
        with pytest.raises(InvalidInput) as caught:
            site.work_out(update_node_drain, "n1", wrong)
        assert caught.value.path == path


# --- deregistering ----------------------------------------------------------------------------------------------------


def test_deregistering_a_node(site: Operated) -> None:
    evaluations = site.do(deregister_node, "n1")
    assert about(evaluations) == ["log", "web"]
    assert {(each.triggered_by, each.node_id, each.node_modify_index) for each in evaluations} == {("node-update", "n1", site.index)}
    assert site.store.node("n1") is None
    assert site.store.alloc("a") is not None
    assert site.operation.unblocks == []
    with pytest.raises(StateError, match="node not found"):
        site.work_out(deregister_node, "n1")
