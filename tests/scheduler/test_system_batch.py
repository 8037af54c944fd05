"""Sysbatch jobs: what ended is history that counts (schedulers 4.6, 4.12; table 13.2)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.rules import Rules
from fastplan.structs import Job
from fastplan.testing.builders import group_api, running_alloc, service_job
from tests.scheduler.system_cluster import BOTH_RULES, LOST, NOT_NEEDED, UPDATING, Allocs, Cluster, Outcome, down, ineligible, job_of, nodes, successful

both = pytest.mark.parametrize("rules", BOTH_RULES)

SWEEP = job_of("sysbatch")
OF = Allocs(SWEEP)
SLOT = ("n0", "agent.web[0]")


def run(job: Job | None, cluster: Any, allocs: Any = (), *, rules: Rules, **more: Any) -> Outcome:
    return Cluster(job, cluster, allocs, rules=rules, **more).run()


@pytest.mark.parametrize("status", ["complete", "failed", "lost"])
@both
def test_s52_s53_what_ended_is_not_run_again(rules: Rules, status: str) -> None:
    assert run(SWEEP, nodes(1), [OF.cur("a", ClientStatus=status)], rules=rules).is_idle


@both
def test_s54_unless_the_specification_changed(rules: Rules) -> None:
    outcome = run(SWEEP, nodes(1), [OF.old_d("a", ClientStatus="complete")], rules=rules)
    assert (outcome.stops, outcome.links) == ({"a": UPDATING}, {SLOT: "a"})


@both
def test_s55_so_that_it_has_to_be_replaced(rules: Rules) -> None:
    assert run(SWEEP, nodes(1), [OF.old_i("a", ClientStatus="complete")], rules=rules).is_idle


def test_s56_not_where_nothing_may_be_placed() -> None:
    closed = [ineligible(node) for node in nodes(1)]
    assert run(SWEEP, closed, [OF.old_d("a", ClientStatus="complete")], rules=Rules.STRICT).is_idle
    # A node is looked at where something lives. As recorded, what ended there is stopped again, and nothing comes of that.
    job = job_of("sysbatch", group_api(count=2))
    of = Allocs(job)
    allocs = [of.old_d("a", ClientStatus="complete"), of.cur("b", index=1)]
    assert run(job, closed, allocs, rules=Rules.STRICT).is_idle
    outcome = run(job, closed, allocs, rules=Rules.NOMAD)
    assert (outcome.stops, outcome.placed, outcome.final.queued_allocations) == ({"a": UPDATING}, {}, {"web": 1})


@both
def test_s57_s58_only_what_had_not_ended_is_lost_with_its_node(rules: Rules) -> None:
    gone = [down(node) for node in nodes(1)]
    assert run(SWEEP, gone, [OF.cur("a", **successful())], rules=rules).is_idle
    cluster = Cluster(SWEEP, gone, [OF.cur("a")], rules=rules)
    assert cluster.run().stops == {"a": LOST}
    assert cluster.run().is_idle


@both
def test_s59_every_node_runs_every_index(rules: Rules) -> None:
    outcome = run(job_of("sysbatch", group_api(count=3)), nodes(2), rules=rules)
    assert set(outcome.placed) == {(f"n{node}", f"agent.web[{index}]") for node in range(2) for index in range(3)}
    assert outcome.final.queued_allocations == {"web": 0}


@both
def test_s60_older_ended_ones_are_not_touched(rules: Rules) -> None:
    allocs = [OF.old_d(f"a{node}", f"n{node}", ci=20, ClientStatus="pending") for node in range(10)]
    ended = [OF.old_d(f"b{node}", f"n{node}", ci=10, ClientStatus="complete") for node in range(5)]
    outcome = run(SWEEP, nodes(10), [*allocs, *ended], rules=rules)
    assert outcome.stops == {f"a{node}": UPDATING for node in range(10)}
    assert set(outcome.links.values()) == {f"a{node}" for node in range(10)}


@both
def test_s50_nobody_gives_way_unless_that_is_switched_on(rules: Rules) -> None:
    other = service_job("other", Priority=10, CreateIndex=60, JobModifyIndex=60)
    allocs = [running_alloc("o", other, "n0", cpu_mhz=3900, CreateIndex=60)]
    job = job_of("sysbatch", Priority=90)
    for switched_on, evicted in ((False, []), (True, ["o"])):
        config = {"SchedulerAlgorithm": "binpack", "PreemptionConfig": {"SystemSchedulerEnabled": True, "SysBatchSchedulerEnabled": switched_on}}
        assert run(job, nodes(1), allocs, rules=rules, others=[other], config=config).preempted == evicted


@both
def test_fault_72_the_index_is_part_of_the_key(rules: Rules) -> None:
    job = job_of("sysbatch", group_api(count=2))
    of = Allocs(job)
    assert run(job, nodes(1), [of.cur("a", index=0), of.cur("b", index=1)], rules=rules).is_idle
    assert set(run(job, nodes(1), [of.cur("b", index=1)], rules=rules).placed) == {SLOT}


@pytest.mark.parametrize(("index", "replaced"), [(9, False), (12, True)])
@both
def test_fault_82_the_latest_run_is_compared(rules: Rules, index: int, replaced: bool) -> None:
    job = job_of("sysbatch", index=index)
    old, new = (Allocs(job_of("sysbatch", group_api(cpu_mhz=cpu), index=at, version=at)) for at, cpu in ((5, 400), (9, 450 if replaced else 500)))
    for order in (1, -1):
        allocs = [old.cur("old", ci=10, ClientStatus="complete"), new.cur("new", ci=30, ClientStatus="complete")][::order]
        assert run(job, nodes(1), allocs, rules=rules).links == ({SLOT: "new"} if replaced else {})


@both
def test_a_stopped_job_leaves_what_ended(rules: Rules) -> None:
    outcome = run(job_of("sysbatch", Stop=True), nodes(1), [OF.cur("a"), OF.cur("b", index=1, ClientStatus="complete")], rules=rules)
    assert outcome.stops == {"a": NOT_NEEDED}


@both
def test_sysbatch_jobs_have_no_deployments(rules: Rules) -> None:
    (plan,) = run(job_of("sysbatch", Update={"MaxParallel": 1}), nodes(2), rules=rules).plans
    assert (plan.deployment, plan.deployment_updates) == (None, [])


# --- what is counted ---------------------------------------------------------------------------------------------------


@both
def test_groups_with_nothing_to_place_are_counted_under_strict_rules_only(rules: Rules) -> None:
    job = job_of("sysbatch", group_api("a"), group_api("b"))
    outcome = run(job, nodes(1), [Allocs(job).cur("one", group="a")], rules=rules)
    assert outcome.final.queued_allocations == ({"a": 0, "b": 0} if rules is Rules.STRICT else {"b": 0})


@both
def test_a_filtered_update_counts_below_zero_as_recorded_only(rules: Rules) -> None:
    job = job_of("sysbatch", Constraints=[{"LTarget": "${attr.arch}", "Operand": "=", "RTarget": "arm64"}])
    outcome = run(job, nodes(1), [Allocs(job).old_d("a")], rules=rules)
    assert outcome.desired["web"].get("Place", 0) == (0 if rules is Rules.STRICT else 2**64 - 1)


def test_a_limited_update_goes_on_under_strict_rules_only() -> None:
    job = job_of("sysbatch", Update={"MaxParallel": 1})
    allocs = [Allocs(job).old_d(f"a{node}", f"n{node}") for node in range(2)]
    strict, recorded = (run(job, nodes(2), allocs, rules=rules) for rules in (Rules.STRICT, Rules.NOMAD))
    assert set(strict.stops) == set(recorded.stops) == {"a0"}
    assert [each.type for each in strict.follow_ups] == ["sysbatch"]
    assert recorded.follow_ups == []
