"""Allocations whose nodes go away and come back, and deployments of service jobs (schedulers 7.2, 7.5, 7.6, 7.9)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.rules import Rules
from fastplan.structs import Allocation, Deployment, Job
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job
from tests.scheduler.generic_cluster import BOTH_RULES, MINUTE_NS, Outcome, ago, down, failed_fields, newer, nodes, unknown_record, with_task

JOB_INDEX = {"JobModifyIndex": 200, "ModifyIndex": 200, "CreateIndex": 100}
SECOND_NS = 10**9
NOT_NEEDED = "alloc not needed due to job update"
RECONNECTED = "alloc not needed due to disconnected client reconnect"
LOST = "alloc is lost since its node is down"
both = pytest.mark.parametrize("rules", BOTH_RULES)
AT_ONCE = {"Delay": 0, "DelayFunction": "constant", "Unlimited": True}


def away(count: int = 1, *, strategy: str = "", replace: bool = True, reschedule: dict[str, Any] | None = None, **more: Any) -> Job:
    block = {"LostAfter": 5 * MINUTE_NS, "Replace": replace, "Reconcile": strategy}
    return service_job("web", group_api(count=count, Disconnect=block, ReschedulePolicy=reschedule or AT_ONCE, **more), **JOB_INDEX)


def cluster(first: str = "disconnected") -> list[Any]:
    return [down(ready_node("n0"), first), ready_node("n1")]


# --- disconnects -----------------------------------------------------------------------------------------------------------


@both
def test_an_allocation_on_a_node_that_went_away_is_unknown_and_replaced(rules: Rules) -> None:
    job = away()
    outcome = Outcome(job, cluster(), [running_alloc("a0", job, "n0")], rules=rules)
    marked = outcome.updated["a0"]
    assert (marked.client_status, marked.desired_status, marked.client_description) == ("unknown", "run", "alloc is unknown since its node is disconnected")
    assert [state and state.value for state in marked.alloc_states] == ["unknown"]
    assert (outcome.stopped, outcome.links) == ({}, {"web.web[0]": "a0"})
    (timeout,) = outcome.created
    assert (timeout.triggered_by, timeout.wait_until) == ("max-disconnect-timeout", "2027-01-15T08:05:00Z")
    assert timeout.status_description == "created for delayed disconnect timeout"
    assert marked.followup_eval_id == timeout.id


@both
def test_its_replacement_waits_for_the_delay_of_rescheduling(rules: Rules) -> None:
    job = away(reschedule={"Delay": 30 * SECOND_NS, "DelayFunction": "constant", "Unlimited": True})
    outcome = Outcome(job, cluster(), [running_alloc("a0", job, "n0")], rules=rules)
    assert outcome.placed == []
    assert sorted((each.triggered_by, each.wait_until) for each in outcome.created) == [
        ("alloc-reschedule", "2027-01-15T08:00:30Z"),
        ("max-disconnect-timeout", "2027-01-15T08:05:00Z"),
    ]


@both
def test_without_replacement_it_is_only_unknown(rules: Rules) -> None:
    job = away(replace=False)
    outcome = Outcome(job, cluster(), [running_alloc("a0", job, "n0")], rules=rules)
    assert (set(outcome.updated), outcome.placed, outcome.stopped) == ({"a0"}, [], {})
    assert [each.triggered_by for each in outcome.created] == ["max-disconnect-timeout"]


@both
def test_an_allocation_that_was_unknown_for_too_long_is_lost(rules: Rules) -> None:
    job = away()
    held = [running_alloc("a0", job, "n0", ClientStatus="unknown", **unknown_record(6 * MINUTE_NS))]
    outcome = Outcome(job, cluster(), held, rules=rules)
    assert (outcome.stopped, outcome.links) == ({"a0": LOST}, {"web.web[0]": "a0"})


@pytest.mark.parametrize(("rules", "created"), [(Rules.NOMAD, []), (Rules.STRICT, [("alloc-failure", "2027-01-15T08:01:05Z")])])
def test_what_was_unknown_for_too_long_is_replaced_once_its_client_had_time(rules: Rules, created: list[tuple[str, str]]) -> None:
    block = {"LostAfter": 5 * MINUTE_NS, "Replace": True, "StopOnClientAfter": MINUTE_NS}
    job = service_job("web", group_api(Disconnect=block), **JOB_INDEX)
    held = [running_alloc("a0", job, "n0", ClientStatus="unknown", **unknown_record(6 * MINUTE_NS))]
    outcome = Outcome(job, cluster(), held, rules=rules, triggered_by="max-disconnect-timeout", wait_until="2027-01-15T08:00:00Z")
    assert (outcome.stopped, outcome.placed) == ({"a0": LOST}, [])
    assert [(each.triggered_by, each.wait_until) for each in outcome.created] == created
    # As recorded the stop names an evaluation too, but there is none.
    assert outcome.stops[0].followup_eval_id != ""


@both
def test_a_pending_allocation_on_a_node_that_went_away_is_lost(rules: Rules) -> None:
    job = away()
    outcome = Outcome(job, cluster(), [running_alloc("a0", job, "n0", ClientStatus="pending")], rules=rules)
    assert outcome.stopped == {"a0": LOST}


@pytest.mark.parametrize(("rules", "stopped"), [(Rules.NOMAD, {"a0"}), (Rules.STRICT, set())])
def test_an_update_of_what_went_away(rules: Rules, stopped: set[str]) -> None:
    job = away(replace=False)
    changed = newer(job, TaskGroups=[with_task(job.to_api()["TaskGroups"][0], Env={"A": "1"})])
    outcome = Outcome(changed, cluster(), [running_alloc("a0", job, "n0")], versions=[job], rules=rules)
    assert set(outcome.stopped) == stopped
    assert len(outcome.placed) == len(stopped)
    assert outcome.updated["a0"].client_status == "unknown"


@pytest.mark.parametrize(("rules", "entries"), [(Rules.NOMAD, 2), (Rules.STRICT, 1)])
def test_a_small_update_of_what_went_away(rules: Rules, entries: int) -> None:
    job = away(replace=False)
    changed = newer(job, Priority=60)
    outcome = Outcome(changed, cluster(), [running_alloc("a0", job, "n0")], versions=[job], rules=rules)
    assert len(outcome.plans[-1].node_allocation["n0"]) == entries


@pytest.mark.parametrize(("rules", "entries"), [(Rules.NOMAD, [("unknown", ""), ("running", "no placement")]), (Rules.STRICT, [("unknown", "no placement")])])
def test_what_went_away_and_cannot_be_replaced_stays_unknown(rules: Rules, entries: list[tuple[str, str]]) -> None:
    job = away(cpu_mhz=9000)
    outcome = Outcome(job, cluster(), [running_alloc("a0", job, "n0", cpu_mhz=100)], rules=rules)
    written = outcome.plans[-1].node_allocation["n0"] or ()
    assert [(alloc.client_status, alloc.reschedule_tracker.last_reschedule if alloc.reschedule_tracker else "") for alloc in written] == entries


# --- reconnects ------------------------------------------------------------------------------------------------------------


def back(job: Job, **more: Any) -> Allocation:
    return running_alloc("old", job, "n0", **{"NextAllocation": "new", **unknown_record(MINUTE_NS), **more})


def replacement(job: Job, **more: Any) -> Allocation:
    return running_alloc("new", job, "n1", PreviousAllocation="old", **more)


def scored(value: float) -> dict[str, Any]:
    return {"Metrics": {"ScoreMetaData": [{"NodeID": "n0", "NormScore": value}]}}


def since(minutes: int, **more: Any) -> dict[str, Any]:
    return {"TaskStates": {"web": {"State": "running", "StartedAt": ago(minutes * MINUTE_NS), **more}}}


@pytest.mark.parametrize(
    ("strategy", "old", "new", "stopped"),
    [
        ("best_score", scored(0.3), scored(0.7), {"old": NOT_NEEDED}),
        ("best_score", scored(0.7), scored(0.7), {"new": RECONNECTED}),
        ("best_score", scored(0.3), {**scored(0.7), "ClientStatus": "pending"}, {"new": RECONNECTED}),
        ("best_score", {}, scored(0.1), {"old": NOT_NEEDED}),
        ("keep_original", scored(0.3), scored(0.7), {"new": RECONNECTED}),
        ("keep_replacement", scored(0.7), scored(0.3), {"old": NOT_NEEDED}),
        ("longest_running", since(9), since(5), {"new": RECONNECTED}),
        ("longest_running", since(5), since(9), {"old": NOT_NEEDED}),
        ("longest_running", since(9), since(5, LastRestart=ago(20 * MINUTE_NS)), {"old": NOT_NEEDED}),
        ("longest_running", {}, since(5), {"old": NOT_NEEDED}),
        ("longest_running", scored(0.3), scored(0.7), {"old": NOT_NEEDED}),
    ],
)
@both
def test_one_of_two_stays_when_a_node_comes_back(rules: Rules, strategy: str, old: dict[str, Any], new: dict[str, Any], stopped: dict[str, str]) -> None:
    job = away(strategy=strategy)
    outcome = Outcome(job, nodes(2), [back(job, **old), replacement(job, **new)], rules=rules)
    assert (outcome.stopped, outcome.placed) == (stopped, [])
    if "new" in stopped:
        assert [state and state.value for state in outcome.updated["old"].alloc_states] == ["unknown", "running"]


@both
def test_each_of_a_chain_of_replacements_is_compared(rules: Rules) -> None:
    job = away(strategy="longest_running")
    held = [back(job, **since(5)), replacement(job, NextAllocation="newest", **since(9)), running_alloc("newest", job, "n1", **since(1))]
    assert Outcome(job, nodes(2), held, rules=rules).stopped == {"old": NOT_NEEDED, "newest": RECONNECTED}


@both
def test_what_comes_back_in_an_older_version_is_stopped(rules: Rules) -> None:
    job = away(strategy="keep_original")
    changed = newer(job, Priority=60)
    outcome = Outcome(changed, nodes(2), [back(job), replacement(changed)], versions=[job], rules=rules)
    assert outcome.stopped == {"old": NOT_NEEDED}


@both
def test_what_failed_while_it_was_away_is_stopped(rules: Rules) -> None:
    job = away(strategy="keep_original")
    outcome = Outcome(job, nodes(2), [back(job, **failed_fields(MINUTE_NS)), replacement(job)], rules=rules)
    assert outcome.stopped == {"old": "alloc was rescheduled because it failed"}


@pytest.mark.parametrize(("rules", "placed"), [(Rules.NOMAD, 1), (Rules.STRICT, 0)])
def test_a_replacement_that_failed_and_lost_is_not_wanted_twice(rules: Rules, placed: int) -> None:
    job = away(strategy="keep_original")
    outcome = Outcome(job, nodes(2), [back(job), replacement(job, **failed_fields(MINUTE_NS))], rules=rules)
    assert "new" in outcome.stopped
    assert len(outcome.placed) == placed


@pytest.mark.parametrize(("rules", "written"), [(Rules.NOMAD, {"old"}), (Rules.STRICT, set())])
def test_what_comes_back_and_is_too_much_is_only_stopped(rules: Rules, written: set[str]) -> None:
    job = away(count=1)
    held = [running_alloc("here", job, "n1"), running_alloc("old", job, "n0", index=1, **unknown_record(MINUTE_NS))]
    outcome = Outcome(job, nodes(2), held, rules=rules)
    assert outcome.stopped == {"old": NOT_NEEDED}
    assert set(outcome.updated) == written


# --- deployments -------------------------------------------------------------------------------------------------------------


UPDATE = {"Update": {"MaxParallel": 2, "Canary": 0}}
CANARY = {"Update": {"MaxParallel": 2, "Canary": 2}}


def rolled(count: int, update: dict[str, Any]) -> tuple[Job, Job]:
    job = service_job("web", group_api(count=count, **update), **JOB_INDEX)
    return job, newer(job, TaskGroups=[with_task(group_api(count=count, **update), Env={"A": "1"})])


def deployment(job: Job, status: str = "running", **group: Any) -> Deployment:
    state = {"DesiredTotal": 4, "HealthyAllocs": 0, **group}
    fields = {"ID": "dep", "Namespace": "default", "JobID": "web", "JobVersion": job.version, "JobCreateIndex": job.create_index, "Status": status}
    return Deployment.from_api({**fields, "TaskGroups": {"web": state}, "CreateIndex": 400, "ModifyIndex": 401})


def deployed(alloc_id: str, job: Job, index: int, healthy: bool | None, *, canary: bool = False) -> Allocation:
    return running_alloc(alloc_id, job, "n0", index=index, cpu_mhz=100, DeploymentID="dep", DeploymentStatus={"Healthy": healthy, "Canary": canary})


def old_allocs(job: Job, indexes: list[int]) -> list[Allocation]:
    return [running_alloc(f"a{index}", job, "n0", index=index, cpu_mhz=100) for index in indexes]


@both
def test_a_new_version_begins_a_deployment(rules: Rules) -> None:
    job, changed = rolled(4, UPDATE)
    outcome = Outcome(changed, nodes(2), old_allocs(job, [0, 1, 2, 3]), versions=[job], rules=rules, deployment_watcher=True)
    made = outcome.plans[-1].deployment
    assert made is not None
    assert (made.status, made.job_version, made.task_groups["web"].desired_total) == ("running", 1, 4)
    assert set(outcome.stopped) == {"a0", "a1"}
    assert {alloc.deployment_id for alloc in outcome.placed} == {made.id}


@pytest.mark.parametrize(
    ("health", "replaced"),
    [([], 2), ([True, True], 2), ([None], 1), ([None, None], 0), ([False], 0)],
)
@both
def test_the_pace_of_a_deployment_goes_by_health(rules: Rules, health: list[bool | None], replaced: int) -> None:
    job, changed = rolled(4, UPDATE)
    new = [deployed(f"d{index}", changed, index, healthy) for index, healthy in enumerate(health)]
    held = [*new, *old_allocs(job, list(range(len(new), 4)))]
    outcome = Outcome(changed, nodes(2), held, versions=[job], deployments=[deployment(changed)], rules=rules, deployment_watcher=True)
    assert len(outcome.placed) == replaced


@pytest.mark.parametrize("status", ["paused", "failed"])
@both
def test_a_deployment_that_is_held_replaces_nothing(rules: Rules, status: str) -> None:
    job, changed = rolled(4, UPDATE)
    held = old_allocs(job, [0, 1, 2, 3])
    outcome = Outcome(changed, nodes(2), held, versions=[job], deployments=[deployment(changed, status)], rules=rules, deployment_watcher=True)
    assert (outcome.placed, outcome.stopped) == ([], {})


@both
def test_canaries_come_first(rules: Rules) -> None:
    job, changed = rolled(4, CANARY)
    outcome = Outcome(changed, nodes(2), old_allocs(job, [0, 1, 2, 3]), versions=[job], rules=rules, deployment_watcher=True)
    made = outcome.plans[-1].deployment
    assert made is not None
    assert (outcome.names, outcome.stopped) == (["web.web[0]", "web.web[1]"], {})
    assert all(alloc.deployment_status is not None and alloc.deployment_status.canary for alloc in outcome.placed)
    assert made.status_description == "Deployment is running but requires manual promotion"


@both
def test_after_promotion_what_the_canaries_stood_in_for_is_stopped(rules: Rules) -> None:
    job, changed = rolled(4, CANARY)
    canaries = [deployed("c0", changed, 0, True, canary=True), deployed("c1", changed, 1, True, canary=True)]
    promoted = deployment(changed, DesiredCanaries=2, PlacedCanaries=["c0", "c1"], Promoted=True, HealthyAllocs=2)
    held = [*old_allocs(job, [0, 1, 2, 3]), *canaries]
    outcome = Outcome(changed, nodes(2), held, versions=[job], deployments=[promoted], rules=rules, deployment_watcher=True)
    assert {name: why for name, why in outcome.stopped.items() if why == NOT_NEEDED} == {"a0": NOT_NEEDED, "a1": NOT_NEEDED}


@both
def test_what_is_lost_while_canaries_are_tried_comes_back_in_its_old_version(rules: Rules) -> None:
    job, changed = rolled(2, CANARY)
    canaries = [deployed("c0", changed, 0, True, canary=True), deployed("c1", changed, 1, True, canary=True)]
    trying = deployment(changed, DesiredCanaries=2, PlacedCanaries=["c0", "c1"])
    before = Deployment.from_api({**deployment(job, "successful").to_api(), "ID": "before", "CreateIndex": 300})
    held = [running_alloc("a0", job, "n1", index=0), running_alloc("a1", job, "n0", index=1), *canaries]
    gone = [ready_node("n0"), down(ready_node("n1"))]
    outcome = Outcome(changed, gone, held, versions=[job], deployments=[before, trying], rules=rules, deployment_watcher=True)
    (alloc,) = outcome.placed
    assert alloc.job is not None
    assert (alloc.previous_allocation, alloc.job.version, alloc.deployment_id) == ("a0", 0, "before")


@pytest.mark.parametrize(("rules", "deployment_id"), [(Rules.NOMAD, "before"), (Rules.STRICT, "dep")])
def test_what_is_placed_after_an_old_version_belongs_to_the_deployment(rules: Rules, deployment_id: str) -> None:
    groups = [group_api(count=2, **CANARY), group_api("zoo", **UPDATE)]
    job = service_job("web", *groups, **JOB_INDEX)
    changed = newer(job, TaskGroups=[with_task(groups[0], Env={"A": "1"}), groups[1]])
    canaries = [deployed("c0", changed, 0, True, canary=True), deployed("c1", changed, 1, True, canary=True)]
    trying = deployment(changed, DesiredCanaries=2, PlacedCanaries=["c0", "c1"])
    before = Deployment.from_api({**deployment(job, "successful").to_api(), "ID": "before", "CreateIndex": 300})
    held = [running_alloc("a0", job, "n1", index=0), running_alloc("a1", job, "n0", index=1), *canaries]
    gone = [ready_node("n0"), down(ready_node("n1"))]
    outcome = Outcome(changed, gone, held, versions=[job], deployments=[before, trying], rules=rules, deployment_watcher=True)
    assert {alloc.name: alloc.deployment_id for alloc in outcome.placed} == {"web.web[0]": "before", "web.zoo[0]": deployment_id}


@both
def test_a_deployment_that_has_all_it_wants_is_successful(rules: Rules) -> None:
    _, changed = rolled(1, UPDATE)
    done = deployment(changed, DesiredTotal=1, HealthyAllocs=1)
    outcome = Outcome(changed, nodes(1), [deployed("d0", changed, 0, True)], deployments=[done], rules=rules)
    (update,) = outcome.plans[-1].deployment_updates
    assert (update.deployment_id, update.status, update.status_description) == ("dep", "successful", "Deployment completed successfully")


@pytest.mark.parametrize(("rules", "plans"), [(Rules.NOMAD, 1), (Rules.STRICT, 0)])
def test_a_deployment_that_failed_stays_as_it_is_under_strict_rules(rules: Rules, plans: int) -> None:
    _, changed = rolled(1, UPDATE)
    over = deployment(changed, "failed", DesiredTotal=1, HealthyAllocs=1)
    assert len(Outcome(changed, nodes(1), [deployed("d0", changed, 0, True)], deployments=[over], rules=rules).plans) == plans


@both
def test_a_newer_version_and_a_stopped_job_cancel_the_deployment(rules: Rules) -> None:
    job, changed = rolled(1, UPDATE)
    held = old_allocs(job, [0])
    newest = Outcome(changed, nodes(1), held, versions=[job], deployments=[deployment(job)], rules=rules)
    stopped = Outcome(newer(job, Stop=True), nodes(1), held, versions=[job], deployments=[deployment(job)], rules=rules)
    assert [update.status_description for update in newest.plans[-1].deployment_updates] == ["Cancelled due to newer version of job"]
    assert [update.status_description for update in stopped.plans[-1].deployment_updates] == ["Cancelled because job is stopped"]


@pytest.mark.parametrize(
    ("rules", "links"),
    [(Rules.NOMAD, [("web.web[1]", "bad"), ("web.web[1]", "bad")]), (Rules.STRICT, [("web.web[0]", "gone"), ("web.web[1]", "bad")])],
)
def test_what_is_lost_while_a_deployment_is_held_is_replaced_once(rules: Rules, links: list[tuple[str, str]]) -> None:
    job = service_job("web", group_api(count=2, ReschedulePolicy=AT_ONCE, **UPDATE), **JOB_INDEX)
    held = [running_alloc("gone", job, "n0"), running_alloc("bad", job, "n1", index=1, **failed_fields(MINUTE_NS))]
    outcome = Outcome(job, cluster("down"), held, deployments=[deployment(job, "paused")], rules=rules)
    assert [(alloc.name, alloc.previous_allocation) for alloc in outcome.placed] == links


@both
def test_the_state_does_not_change_under_the_scheduler(rules: Rules) -> None:
    job, changed = rolled(4, CANARY)
    running = deployment(changed, "initializing")
    outcome = Outcome(changed, nodes(2), old_allocs(job, [0, 1, 2, 3]), versions=[job], deployments=[running], rules=rules)
    stored = outcome.harness.store.snapshot().deployment("dep")
    assert stored is not None
    assert stored.to_api() == running.to_api()
    assert outcome.plans[-1].deployment is not None
    assert outcome.plans[-1].deployment.task_groups["web"].desired_canaries == 2
