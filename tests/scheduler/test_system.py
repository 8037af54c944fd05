"""Placing, updating and stopping system jobs under both rule sets (schedulers 4; table 13.2)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.errors import SchedulerError
from fastplan.rules import Rules
from fastplan.scheduler import system
from fastplan.scheduler.requests import SubmitPlan, SubmitReply, UpdateEval
from fastplan.scheduler.setting import Setting
from fastplan.scheduler.system import process_system
from fastplan.structs import DesiredUpdates, Evaluation, Job, Node, Plan
from fastplan.testing import SchedulerHarness
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job
from tests.scheduler.system_cluster import (
    BOTH_RULES,
    LOST,
    MINUTE_NS,
    NOT_NEEDED,
    NOW_NS,
    SECOND_NS,
    TAINTED,
    UPDATING,
    Allocs,
    Cluster,
    Outcome,
    changed,
    down,
    draining,
    ineligible,
    job_of,
    nodes,
    reconnecting,
    unknown_since,
)

both = pytest.mark.parametrize("rules", BOTH_RULES)

SYSTEM = job_of("system")
OF = Allocs(SYSTEM)
LARGE = {"cpu_mhz": 9000}
EVALUATION = Evaluation(id="e", namespace="default", priority=50, type="system", job_id="agent", triggered_by="job-register", status="pending")


def run(job: Job | None, cluster: list[Node], allocs: Any = (), *, rules: Rules, **more: Any) -> Outcome:
    return Cluster(job, cluster, allocs, rules=rules, **more).run()


def limited(max_parallel: int, *groups: dict[str, Any], **more: Any) -> Job:
    return job_of("system", *groups, Update={"MaxParallel": max_parallel, "Stagger": 45 * SECOND_NS}, **more)


def on_each(make: Any, count: int, **more: Any) -> list[Any]:
    return [make(f"a{node}", f"n{node}", **more) for node in range(count)]


def constrained(left: str, operand: str, right: str = "") -> dict[str, Any]:
    return {"Constraints": [{"LTarget": left, "Operand": operand, "RTarget": right}]}


# --- placing -----------------------------------------------------------------------------------------------------------


@both
def test_s1_a_new_job_runs_once_on_every_node(rules: Rules) -> None:
    outcome = run(SYSTEM, nodes(10), rules=rules)
    assert outcome.placed_nodes == sorted(f"n{node}" for node in range(10))
    assert {name for _, name in outcome.placed} == {"agent.web[0]"}
    assert (outcome.final.status, outcome.final.queued_allocations, outcome.created) == ("complete", {"web": 0}, [])


@both
def test_s2_without_nodes_nothing_is_planned(rules: Rules) -> None:
    outcome = run(SYSTEM, [], rules=rules)
    assert outcome.is_idle
    assert (outcome.final.status, outcome.final.queued_allocations) == ("complete", {"web": 0})


@both
def test_s3_a_new_node_gets_its_own(rules: Rules) -> None:
    outcome = Cluster(SYSTEM, nodes(3), on_each(OF.cur, 2), rules=rules).run(triggered_by="node-update")
    assert (outcome.placed_nodes, outcome.stops) == (["n2"], {})


@both
def test_s4_registered_again_without_change(rules: Rules) -> None:
    assert run(SYSTEM, nodes(3), on_each(OF.cur, 3), rules=rules).is_idle


@both
def test_s11_a_group_that_is_counted_down_to_zero(rules: Rules) -> None:
    before = job_of("system", group_api("a"), group_api("b"))
    of = Allocs(before)
    allocs = [of.cur("one", group="a"), of.cur("two", group="b")]
    job = job_of("system", group_api("a", count=0), group_api("b"))
    outcome = run(job, nodes(1), allocs, rules=rules)
    assert (outcome.stops, outcome.updated, outcome.placed) == ({"one": NOT_NEEDED}, {}, {})


@both
def test_s22_s23_what_failed_is_placed_anew_where_it_was(rules: Rules) -> None:
    failed = [OF.cur("old", ci=5, ClientStatus="failed"), OF.cur("new", ci=9, ClientStatus="failed")]
    assert run(SYSTEM, nodes(1), failed[:1], rules=rules).links == {("n0", "agent.web[0]"): "old"}
    for order in (1, -1):
        assert run(SYSTEM, nodes(1), failed[::order], rules=rules).links == {("n0", "agent.web[0]"): "new"}


@both
def test_s24_but_not_where_nothing_may_be_placed(rules: Rules) -> None:
    assert run(SYSTEM, [ineligible(node) for node in nodes(1)], [OF.cur("a", ClientStatus="failed")], rules=rules).is_idle


@both
def test_s25_what_is_stopped_is_replaced_by_the_next_evaluation(rules: Rules) -> None:
    cluster = Cluster(SYSTEM, nodes(1), [OF.cur("a", DesiredTransition={"Migrate": True})], rules=rules)
    first = cluster.run()
    assert (first.stops, first.placed) == ({"a": TAINTED}, {})
    assert cluster.run().links == {("n0", "agent.web[0]"): "a"}


@both
def test_s61_names_begin_with_the_name_of_the_job(rules: Rules) -> None:
    cluster = Cluster(job_of("system", Name="shown"), nodes(1), rules=rules)
    assert set(cluster.run().placed) == {("n0", "shown.web[0]")}
    assert cluster.run().is_idle


@both
def test_s62_only_nodes_of_the_pool_are_used(rules: Rules) -> None:
    job = job_of("system", NodePool="gpu")
    of = Allocs(job)
    pooled = changed(ready_node("n1"), node_pool="gpu")
    outcome = run(job, [ready_node("n0"), pooled], [of.cur("a", "n0")], rules=rules)
    assert (outcome.placed_nodes, outcome.stops) == (["n1"], {"a": NOT_NEEDED})


# --- updates -----------------------------------------------------------------------------------------------------------


@both
def test_s5_without_a_limit_all_are_replaced(rules: Rules) -> None:
    outcome = run(SYSTEM, nodes(10), on_each(OF.old_d, 10), rules=rules)
    assert outcome.stops == {f"a{node}": UPDATING for node in range(10)}
    assert outcome.links == {(f"n{node}", "agent.web[0]"): f"a{node}" for node in range(10)}
    assert outcome.created == []


def test_s6_s7_with_a_limit_one_step_follows_the_other() -> None:
    job = limited(5)
    of = Allocs(job)
    cluster = Cluster(job, nodes(10), on_each(of.old_d, 10))
    first = cluster.run()
    assert set(first.stops) == {f"a{node}" for node in range(5)}
    assert first.placed_nodes == [f"n{node}" for node in range(5)]
    (follow_up,) = first.created
    assert (follow_up.status, follow_up.triggered_by, follow_up.type, follow_up.wait) == ("pending", "rolling-update", "system", 45 * SECOND_NS)
    assert (follow_up.job_id, follow_up.priority, follow_up.previous_eval) == ("agent", 50, first.final.id)
    assert first.final.next_eval == follow_up.id
    second = cluster.run(triggered_by="rolling-update")
    assert set(second.stops) == {f"a{node}" for node in range(5, 10)}
    assert second.created == []
    assert cluster.run(triggered_by="rolling-update").is_idle


@pytest.mark.parametrize(("rules", "watcher"), [(Rules.NOMAD, False), (Rules.STRICT, True)])
def test_no_follow_up_where_a_watcher_of_deployments_goes_on(rules: Rules, watcher: bool) -> None:
    job = limited(1)
    of = Allocs(job)
    outcome = run(job, nodes(2), on_each(of.old_d, 2), rules=rules, deployment_watcher=watcher)
    assert (set(outcome.stops), outcome.created) == ({"a0"}, [])


@both
def test_s8_updates_in_place_know_no_limit(rules: Rules) -> None:
    job = limited(1)
    of = Allocs(job)
    cluster = Cluster(job, nodes(10), on_each(of.old_i, 10), rules=rules)
    outcome = cluster.run()
    assert set(outcome.updated) == {f"a{node}" for node in range(10)}
    assert (outcome.stops, outcome.placed, outcome.created) == ({}, {}, [])
    # S67: they do not count as placed.
    assert outcome.final.queued_allocations == {"web": 0}
    assert {alloc.eval_id for alloc in outcome.updated.values()} == {outcome.final.id}
    assert cluster.run().is_idle


def test_s9_some_in_place_and_some_not() -> None:
    job = limited(2)
    of = Allocs(job)
    allocs = [*(of.old_i(f"i{node}", f"n{node}") for node in range(3)), *(of.old_d(f"d{node}", f"n{node}") for node in range(3, 7))]
    outcome = run(job, nodes(7), allocs, rules=Rules.STRICT)
    assert set(outcome.updated) == {"i0", "i1", "i2"}
    assert set(outcome.stops) == {"d3", "d4"}
    assert len(outcome.follow_ups) == 1


@pytest.mark.parametrize(
    ("job_limit", "limits", "per_group", "admitted"),
    [
        (0, {"a": 2}, {"a": 4}, 2),
        (0, {"a": None}, {"a": 4}, 4),
        (2, {"a": None}, {"a": 4}, 2),
        (10, {"a": 3}, {"a": 5}, 3),
        (0, {"a": 2, "b": 4}, {"a": 4, "b": 4}, 6),
        (2, {"a": 4, "b": None}, {"a": 4, "b": 4}, 6),
        (2, {"a": None, "b": None}, {"a": 4, "b": 4}, 4),
        (0, {"a": 1, "b": 2}, {"a": 3, "b": 3}, 3),
    ],
)
@both
def test_s10_each_group_has_its_limit(rules: Rules, job_limit: int, limits: dict[str, int | None], per_group: dict[str, int], admitted: int) -> None:
    groups = [group_api(name, **({} if limit is None else {"Update": {"MaxParallel": limit}})) for name, limit in limits.items()]
    job = job_of("system", *groups, Update={"MaxParallel": job_limit})
    of = Allocs(job)
    allocs = [of.old_d(f"{name}{node}", f"n{node}", group=name) for name, count in per_group.items() for node in range(count)]
    outcome = run(job, nodes(5), allocs, rules=rules)
    assert list(outcome.stops.values()) == [UPDATING] * admitted
    assert outcome.final.queued_allocations == dict.fromkeys(limits, 0)


@pytest.mark.parametrize(("staggers", "wait_s"), [({"a": 20, "b": 10}, 10), ({"a": 20, "b": 0}, 20), ({"a": 0, "b": 0}, 60)])
def test_the_shortest_stagger_of_those_held_back_counts(staggers: dict[str, int], wait_s: int) -> None:
    groups = [group_api(name, Update={"MaxParallel": 1, "Stagger": stagger_s * SECOND_NS}) for name, stagger_s in staggers.items()]
    job = job_of("system", *groups, group_api("quick", Update={"MaxParallel": 9, "Stagger": SECOND_NS}), Update={"Stagger": 60 * SECOND_NS})
    of = Allocs(job)
    allocs = [of.old_d(f"{name}{node}", f"n{node}", group=name) for name in ("a", "b", "quick") for node in range(2)]
    (follow_up,) = run(job, nodes(2), allocs, rules=Rules.STRICT).follow_ups
    assert follow_up.wait == wait_s * SECOND_NS


def test_without_any_stagger_thirty_seconds_pass() -> None:
    job = job_of("system", Update={"MaxParallel": 1})
    (follow_up,) = run(job, nodes(2), on_each(Allocs(job).old_d, 2), rules=Rules.STRICT).follow_ups
    assert follow_up.wait == 30 * SECOND_NS


@both
def test_s12_what_is_outside_the_datacenters_is_stopped_the_rest_updated(rules: Rules) -> None:
    job = job_of("system", Datacenters=["dc1"])
    of = Allocs(job)
    outcome = run(job, [ready_node("n0"), ready_node("n1", datacenter="dc2")], on_each(of.old_i, 2), rules=rules)
    assert (outcome.stops, set(outcome.updated)) == ({"a1": NOT_NEEDED}, {"a0"})


@both
def test_s13_not_ready_counts_before_the_datacenter_does(rules: Rules) -> None:
    job = job_of("system", Datacenters=["dc1"])
    elsewhere = [ineligible(ready_node("n0", datacenter="dc2"))]
    assert run(job, elsewhere, [Allocs(job).cur("a")], rules=rules).is_idle
    assert run(job, elsewhere, [Allocs(job).old_i("a")], rules=rules).stops == {"a": NOT_NEEDED}


@both
def test_fault_79_a_pattern_that_covers_the_same_nodes_changes_nothing(rules: Rules) -> None:
    for pattern in ("*", "dc*"):
        job = job_of("system", Datacenters=[pattern])
        outcome = run(job, [ready_node("n0"), ready_node("n1", datacenter="eu")], [Allocs(job).old_i("a0")], rules=rules)
        assert (outcome.stops, set(outcome.updated)) == ({}, {"a0"})
        assert outcome.placed_nodes == (["n1"] if pattern == "*" else [])


@both
def test_s38_what_may_not_run_there_any_more_is_stopped_all_the_same(rules: Rules) -> None:
    job = job_of("system", **constrained("${attr.arch}", "=", "arm64"))
    outcome = run(job, nodes(1), [Allocs(job).old_d("a0")], rules=rules)
    assert (outcome.stops, outcome.placed) == ({"a0": UPDATING}, {})
    assert outcome.blocked == []


@both
def test_an_update_without_room_stops_the_old_one_too(rules: Rules) -> None:
    job = job_of("system", group_api(**LARGE))
    outcome = run(job, nodes(1), [Allocs(job).old_d("a0")], rules=rules)
    assert (outcome.stops, outcome.placed, outcome.final.queued_allocations) == ({"a0": UPDATING}, {}, {"web": 1})
    assert len(outcome.blocked) == 1


@both
def test_s65_a_full_node_takes_the_smaller_version(rules: Rules) -> None:
    job = job_of("system", group_api(memory_mib=100))
    before = job_of("system", group_api(memory_mib=8000), index=100, version=1)
    outcome = run(job, nodes(1), [running_alloc("a", before, "n0", memory_mib=8000)], rules=rules)
    assert (outcome.stops, outcome.placed_nodes) == ({"a": UPDATING}, ["n0"])


@both
def test_an_update_in_place_keeps_what_it_holds(rules: Rules) -> None:
    held = {
        "Tasks": {"web": {"Cpu": {"CpuShares": 500, "ReservedCores": [2]}, "Memory": {"MemoryMB": 256}}},
        "Shared": {"DiskMB": 300, "Ports": [{"Label": "http", "Value": 25000, "HostIP": "10.0.0.1"}]},
    }
    job = job_of("system", group_api(Networks=[{"Mode": "host", "DynamicPorts": [{"Label": "http", "HostNetwork": "default"}]}]))
    outcome = run(job, nodes(1), [Allocs(job).old_i("a", AllocatedResources=held)], rules=rules)
    resources = outcome.updated["a"].allocated_resources
    assert resources is not None
    assert [port.value for port in resources.shared.ports] == [25000]
    # As recorded, cores are not carried over by system jobs.
    task = resources.tasks["web"]
    assert task is not None
    assert task.cpu.reserved_cores == ([2] if rules is Rules.STRICT else [])


@both
def test_an_update_in_place_of_what_has_no_resources(rules: Rules) -> None:
    outcome = run(SYSTEM, nodes(1), [OF.old_i("a", AllocatedResources=None)], rules=rules)
    assert set(outcome.updated) == {"a"}


# --- nodes that go and come --------------------------------------------------------------------------------------------


@both
def test_s14_a_stopped_job_stops_everywhere(rules: Rules) -> None:
    outcome = Cluster(job_of("system", Stop=True), nodes(3), on_each(OF.cur, 3), rules=rules).run(triggered_by="job-deregister")
    assert outcome.stops == {f"a{node}": NOT_NEEDED for node in range(3)}
    assert (outcome.final.status, outcome.final.queued_allocations) == ("complete", {})
    # Even on a node that is down they are stopped, not lost.
    gone = run(job_of("system", Stop=True), [down(node) for node in nodes(1)], [OF.cur("a")], rules=rules)
    assert gone.stops == {"a": NOT_NEEDED}


@both
def test_a_purged_job_without_allocations_is_done(rules: Rules) -> None:
    outcome = run(None, nodes(2), rules=rules)
    assert outcome.is_idle
    assert (outcome.final.status, outcome.final.queued_allocations) == ("complete", {})


@both
def test_s15_s17_on_a_node_that_is_down_or_gone_it_is_lost(rules: Rules) -> None:
    for cluster in ([down(node) for node in nodes(1)], []):
        outcome = Cluster(SYSTEM, cluster, [OF.cur("a")], rules=rules).run(triggered_by="node-update")
        assert (outcome.stops, outcome.client_statuses, outcome.placed) == ({"a": LOST}, {"a": "lost"}, {})
        assert (outcome.final.status, outcome.final.queued_allocations) == ("complete", {"web": 0})


@both
def test_s16_what_was_told_to_stop_is_lost_with_its_node(rules: Rules) -> None:
    outcome = run(SYSTEM, [down(node) for node in nodes(1)], [OF.cur("a", DesiredStatus="stop")], rules=rules)
    assert (outcome.stops, outcome.client_statuses) == ({"a": LOST}, {"a": "lost"})


@both
def test_s18_s19_the_drainer_says_when(rules: Rules) -> None:
    drained = [draining(node) for node in nodes(1)]
    outcome = Cluster(SYSTEM, drained, [OF.cur("a", DesiredTransition={"Migrate": True})], rules=rules).run(triggered_by="node-drain")
    assert (outcome.stops, outcome.placed) == ({"a": TAINTED}, {})
    assert run(SYSTEM, drained, [OF.cur("a")], rules=rules).is_idle


@both
def test_fault_77_a_drained_node_that_comes_back_gets_one(rules: Rules) -> None:
    cluster = Cluster(SYSTEM, nodes(1), [OF.cur("a", DesiredStatus="stop", ClientStatus="complete")], rules=rules)
    assert cluster.run(triggered_by="node-update").placed_nodes == ["n0"]
    assert cluster.run(triggered_by="node-update").is_idle


@both
def test_s20_s21_a_closed_node_keeps_what_is_current(rules: Rules) -> None:
    closed = [ineligible(node) for node in nodes(1)]
    assert run(SYSTEM, closed, [OF.cur("a")], rules=rules).is_idle
    outcome = run(SYSTEM, closed, [OF.old_i("a")], rules=rules)
    assert (outcome.stops, outcome.updated) == ({"a": NOT_NEEDED}, {})


def disconnecting_job() -> Job:
    return job_of("system", group_api(Disconnect={"LostAfter": MINUTE_NS}))


@both
def test_s26_s27_a_node_that_disconnects(rules: Rules) -> None:
    away = [changed(node, status="disconnected") for node in nodes(1)]
    outcome = run(SYSTEM, away, [OF.cur("a")], rules=rules)
    (alloc,) = outcome.updated.values()
    assert (alloc.client_status, alloc.desired_status) == ("unknown", "run")
    assert alloc.client_description == "alloc is unknown since its node is disconnected"
    assert [state.value for state in alloc.alloc_states if state is not None] == ["unknown"]
    assert outcome.stops == {}
    assert run(SYSTEM, away, [OF.cur("a", ClientStatus="pending")], rules=rules).is_idle


@both
def test_s28_s29_s30_how_long_it_may_be_unknown(rules: Rules) -> None:
    job = disconnecting_job()
    of = Allocs(job)
    away = [changed(node, status="disconnected") for node in nodes(1)]
    late = run(job, away, [of.cur("a", **unknown_since(2 * MINUTE_NS))], rules=rules)
    assert (late.stops, late.client_statuses, late.placed) == ({"a": LOST}, {"a": "lost"}, {})
    assert run(job, away, [of.cur("a", **unknown_since(MINUTE_NS - 1))], rules=rules).is_idle
    assert run(job, away, [of.cur("a", ClientStatus="unknown")], rules=rules).is_idle


@both
def test_s31_a_node_that_returns_in_time(rules: Rules) -> None:
    job = disconnecting_job()
    cluster = Cluster(job, nodes(1), [Allocs(job).cur("a", **reconnecting())], rules=rules)
    outcome = cluster.run(triggered_by="reconnect")
    (alloc,) = outcome.updated.values()
    assert [state.value for state in alloc.alloc_states if state is not None] == ["unknown", "running"]
    assert (outcome.stops, outcome.placed) == ({}, {})
    assert cluster.run().is_idle


@both
def test_s32_unless_the_job_has_changed_meanwhile(rules: Rules) -> None:
    outcome = run(SYSTEM, nodes(1), [OF.old_d("a", **reconnecting())], rules=rules)
    assert (outcome.stops, outcome.links) == ({"a": UPDATING}, {("n0", "agent.web[0]"): "a"})


# --- what does not fit -------------------------------------------------------------------------------------------------


def racks(*names: str) -> list[Node]:
    return [ready_node(f"n{number}", Meta={"rack": name}) for number, name in enumerate(names)]


RACK_1 = job_of("system", **constrained("${meta.rack}", "=", "r1"))


@both
def test_s33_nodes_that_do_not_match_are_no_failure(rules: Rules) -> None:
    cluster = Cluster(RACK_1, racks("r1", "r2", "r2"), rules=rules)
    outcome = cluster.run()
    assert (outcome.placed_nodes, outcome.final.failed_tg_allocs, outcome.final.queued_allocations) == (["n0"], {}, {"web": 0})
    assert outcome.created == []
    # Fault 74: nor are they the second time.
    second = cluster.run()
    assert second.is_idle
    assert second.final.failed_tg_allocs == {}


@both
def test_s34_that_none_matches_is_told(rules: Rules) -> None:
    outcome = run(RACK_1, racks("r2", "r3"), rules=rules)
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    assert (metric.nodes_evaluated, metric.nodes_filtered, metric.constraint_filtered) == (2, 2, {"${meta.rack} = r1": 2})
    assert (metric.nodes_in_pool, metric.node_pool, metric.nodes_available) == (0, "", {})
    assert (outcome.final.status, outcome.final.queued_allocations, outcome.created) == ("complete", {"web": 0}, [])


@both
def test_s35_unless_it_runs_somewhere(rules: Rules) -> None:
    outcome = run(RACK_1, racks("r1", "r2"), [Allocs(RACK_1).cur("a")], rules=rules)
    assert outcome.final.failed_tg_allocs == {}


@both
def test_s36_no_room_anywhere(rules: Rules) -> None:
    outcome = run(job_of("system", group_api(memory_mib=9000)), nodes(2), rules=rules)
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    assert (metric.dimension_exhausted, metric.coalesced_failures) == ({"memory": 1}, 1)
    assert (metric.nodes_in_pool, metric.node_pool, metric.nodes_available) == (2, "default", {"dc1": 2})
    exhausted = metric.resources_exhausted["web"]
    assert exhausted is not None
    assert exhausted.memory_mb == 18000
    assert outcome.final.queued_allocations == {"web": 2}
    (waiting,) = outcome.created
    assert (waiting.status, waiting.node_id, waiting.triggered_by) == ("blocked", "n0", "queued-allocs")
    assert waiting.status_description == "created to place remaining allocations"
    assert (waiting.previous_eval, outcome.final.blocked_eval) == (outcome.final.id, "")


@pytest.mark.parametrize("order", [("small", "other"), ("other", "small")])
@both
def test_s37_one_does_not_match_and_one_has_no_room(rules: Rules, order: tuple[str, str]) -> None:
    kinds = {"small": {"Meta": {"rack": "r1"}, "cpu_mhz": 100}, "other": {"Meta": {"rack": "r2"}}}
    cluster = [ready_node(f"n{number}", **kinds[name]) for number, name in enumerate(order)]
    outcome = run(RACK_1, cluster, rules=rules)
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    assert (metric.dimension_exhausted, metric.nodes_filtered) == ({"cpu": 1}, 0)
    assert outcome.final.queued_allocations == {"web": 1}
    assert [waiting.node_id for waiting in outcome.created] == [f"n{order.index('small')}"]


@both
def test_s39_a_constraint_that_tells_nodes_of_a_class_apart(rules: Rules) -> None:
    job = job_of("system", group_api(**LARGE), **constrained("${node.unique.name}", "is_set"))
    (waiting,) = run(job, nodes(1, ComputedClass="v1:1"), rules=rules).created
    assert (waiting.escaped_computed_class, waiting.class_eligibility) == (True, {})


@both
def test_s40_of_a_group_only_the_node_is_remembered(rules: Rules) -> None:
    job = job_of("system", group_api(**LARGE, **constrained("${node.unique.name}", "is_set")))
    classed = [ready_node(f"n{number}", ComputedClass=f"v1:{number}") for number in range(2)]
    (waiting,) = run(job, classed, rules=rules).created
    assert set(waiting.class_eligibility) <= {"v1:0"}


@both
def test_s41_a_blocked_evaluation_that_fails_again_is_complete_all_the_same(rules: Rules) -> None:
    outcome = Cluster(job_of("system", group_api(**LARGE)), nodes(1), rules=rules).run(status="blocked", triggered_by="queued-allocs")
    assert (outcome.final.status, outcome.reblocked) == ("complete", [])
    assert len(outcome.blocked) == 1


@both
def test_s63_a_node_that_takes_no_more_allocations(rules: Rules) -> None:
    other = service_job("other", CreateIndex=60, ModifyIndex=60, JobModifyIndex=60)
    cluster = nodes(1, NodeMaxAllocs=1)
    outcome = run(SYSTEM, cluster, [running_alloc("o", other, "n0", CreateIndex=60)], rules=rules, others=[other])
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    assert metric.dimension_exhausted == {"max allocation exceeded": 1}
    assert len(outcome.blocked) == 1


@both
def test_s64_a_port_is_free_once_its_client_says_so(rules: Rules) -> None:
    job = job_of("system", group_api(Networks=[{"Mode": "host", "ReservedPorts": [{"Label": "http", "Value": 8080, "HostNetwork": "default"}]}]))
    holds = {"Shared": {"DiskMB": 300, "Ports": [{"Label": "http", "Value": 8080, "HostIP": "10.0.0.1"}]}}
    cluster = Cluster(job, nodes(1), [Allocs(job).cur("a", DesiredStatus="stop", AllocatedResources=holds)], rules=rules)
    waiting = cluster.run()
    metric = waiting.final.failed_tg_allocs["web"]
    assert metric is not None
    assert metric.dimension_exhausted == {"network: reserved port collision http=8080": 1}
    cluster.report("a", client_status="complete")
    assert cluster.run().links == {("n0", "agent.web[0]"): "a"}


# --- preemption --------------------------------------------------------------------------------------------------------


def fillers(*priorities: int) -> tuple[list[Job], list[Any]]:
    """Return jobs of these priorities, and an allocation of 950 MHz of each on n0: four fill a node."""
    jobs = [service_job(f"filler-{place}", Priority=priority, CreateIndex=60, JobModifyIndex=60) for place, priority in enumerate(priorities)]
    return jobs, [running_alloc(f"f{place}", job, "n0", cpu_mhz=950, CreateIndex=60) for place, job in enumerate(jobs)]


def evicted(job: Job, *priorities: int, rules: Rules, config: dict[str, Any] | None = None) -> Outcome:
    jobs, allocs = fillers(*priorities)
    return run(job, nodes(1), allocs, rules=rules, others=jobs, config=config)


@both
def test_s48_the_lower_ones_give_way(rules: Rules) -> None:
    outcome = evicted(job_of("system", group_api(cpu_mhz=2000), Priority=100), 20, 20, 20, 100, rules=rules)
    (placed,) = outcome.placed.values()
    assert outcome.preempted == sorted(placed.preempted_allocations)
    assert len(outcome.preempted) == 2
    assert "f3" not in outcome.preempted
    for entries in outcome.plans[-1].node_preemptions.values():
        assert {alloc.preempted_by_allocation for alloc in entries} == {placed.id}


@both
def test_s49_unless_it_is_switched_off(rules: Rules) -> None:
    off = {"SchedulerAlgorithm": "binpack", "PreemptionConfig": {"SystemSchedulerEnabled": False}}
    outcome = evicted(job_of("system", Priority=100), 20, 20, 20, 20, rules=rules, config=off)
    assert (outcome.placed, outcome.preempted) == ({}, [])
    assert len(outcome.blocked) == 1


@both
def test_s51_ten_points_of_priority_are_needed(rules: Rules) -> None:
    job = job_of("system", Priority=50)
    assert evicted(job, 45, 45, 45, 45, rules=rules).preempted == []
    assert len(evicted(job, 40, 45, 45, 45, rules=rules).preempted) == 1


# --- attempts ----------------------------------------------------------------------------------------------------------


@both
def test_s42_five_refusals_are_enough(rules: Rules) -> None:
    outcome = Cluster(SYSTEM, nodes(2), rules=rules).run(planner="reject")
    assert (len(outcome.plans), outcome.final.status, outcome.final.status_description) == (5, "failed", "maximum attempts reached (5)")
    outcome = Cluster(job_of("sysbatch"), nodes(2), rules=rules).run(planner="reject")
    assert (len(outcome.plans), outcome.final.status_description) == (2, "maximum attempts reached (2)")


@both
def test_s44_a_refusal_without_a_new_state_is_no_error(rules: Rules) -> None:
    outcome = Cluster(SYSTEM, nodes(2), rules=rules).run(planner="reject_no_state")
    assert (len(outcome.plans), outcome.final.status) == (5, "failed")


@both
def test_s45_what_was_committed_is_seen_by_the_next_attempt(rules: Rules) -> None:
    cluster = Cluster(SYSTEM, nodes(4), rules=rules)
    outcome = cluster.run(planner="half-then-commit")
    assert (len(outcome.plans), outcome.placed_nodes, outcome.final.status) == (2, ["n2", "n3"], "complete")
    assert outcome.final.queued_allocations == {"web": 0}
    assert cluster.live_slots == [(f"n{node}", "agent.web[0]") for node in range(4)]


def test_one_follow_up_however_many_attempts() -> None:
    job = limited(2)
    outcome = Cluster(job, nodes(4), on_each(Allocs(job).old_d, 4)).run(planner="reject")
    assert len(outcome.plans) == 5
    assert len(outcome.follow_ups) == 1


@pytest.mark.parametrize(("rules", "status", "placed"), [(Rules.NOMAD, "failed", []), (Rules.STRICT, "complete", ["n0"])])
def test_an_allocation_that_failed_is_a_reason_to_look(rules: Rules, status: str, placed: list[str]) -> None:
    outcome = Cluster(SYSTEM, nodes(1), rules=rules).run(triggered_by="alloc-failure")
    assert (outcome.final.status, outcome.placed_nodes) == (status, placed)


@both
def test_s46_s47_triggers(rules: Rules) -> None:
    outcome = Cluster(SYSTEM, nodes(1), rules=rules).run(triggered_by="moon-phase")
    assert (outcome.plans, outcome.final.status) == ([], "failed")
    assert outcome.final.status_description == "scheduler cannot handle 'moon-phase' evaluation reason"
    assert Cluster(SYSTEM, nodes(1), rules=rules).run(triggered_by="periodic-job").final.status == "failed"
    assert Cluster(job_of("sysbatch"), nodes(1), rules=rules).run(triggered_by="periodic-job").placed_nodes == ["n0"]


@both
def test_s66_a_defect_is_told_and_the_evaluation_is_not_finished(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    def defect(**_: Any) -> None:
        raise ValueError("a defect")

    monkeypatch.setattr(system, "reconcile_nodes", defect)
    harness = SchedulerHarness(Cluster(SYSTEM, nodes(1)).store, now_ns=NOW_NS, rules=rules)
    with pytest.raises(SchedulerError, match=r"^failed to process eval: a defect$"):
        harness.process(EVALUATION.copy())
    assert (harness.evals, harness.plans) == ([], [])


class Committed:
    """An answer that took *stops* stops and *placements* placements, and no deployment."""

    def __init__(self, stops: int, placements: int, *, whole: bool) -> None:
        self.node_update: dict[str, list[Any]] = {}
        self.node_allocation: dict[str, list[Any]] = {}
        self.deployment = None
        self.deployment_updates: list[Any] = []
        self.rejected_nodes: list[str] = []
        self.accepted_counts = (stops, placements)
        self._whole = whole

    def full_commit(self, plan: Any) -> tuple[bool, int, int]:
        return self._whole, 2, self.accepted_counts[1]


def test_s43_progress_starts_the_count_of_attempts_anew() -> None:
    state = Cluster(SYSTEM, nodes(2)).store.snapshot()
    # One of two placements each time, then nothing at all: five more attempts.
    answers = [Committed(0, 1, whole=False)] * 7 + [Committed(0, 0, whole=False)] * 5
    steps = process_system(EVALUATION.copy(), state, Setting(now_ns=lambda: NOW_NS))
    request = next(steps)
    for answer in answers:
        assert isinstance(request, SubmitPlan)
        request = steps.send(SubmitReply(answer, None))
    assert isinstance(request, UpdateEval)
    assert (request.evaluation.status, request.evaluation.status_description) == ("failed", "maximum attempts reached (5)")


@both
def test_s68_asked_to_annotate_a_plan_without_changes_is_submitted(rules: Rules) -> None:
    outcome = Cluster(SYSTEM, nodes(1), [OF.cur("a0")], rules=rules).run(annotate_plan=True)
    (plan,) = outcome.plans
    assert isinstance(plan, Plan)
    assert plan.annotations is not None
    assert plan.annotations.desired_tg_updates["web"] == DesiredUpdates(ignore=1, place=1)


def test_fault_80_a_dry_run_tells_what_the_run_does() -> None:
    job = job_of("system", group_api(memory_mib=1000))
    cluster = [*nodes(4), ready_node("n4", memory_mib=500)]
    dry = Cluster(job, cluster).run(annotate_plan=True, planner="accept")
    real = Cluster(job, cluster).run()
    assert dry.placed_nodes == real.placed_nodes == ["n0", "n1", "n2", "n3"]
    assert dry.desired == real.desired == {"web": {"Place": 4}}
    assert dry.final.failed_tg_allocs == real.final.failed_tg_allocs
