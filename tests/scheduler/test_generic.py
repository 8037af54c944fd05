"""Placing, scaling, updating and stopping service and batch jobs (schedulers 7.1, 7.4, 7.5, 7.7; table 13.3)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from fastplan.errors import SchedulerError
from fastplan.rules import Rules
from fastplan.structs import Allocation, Job
from fastplan.testing.builders import batch_job, group_api, ready_node, running_alloc, service_job
from tests.scheduler.generic_cluster import BOTH_RULES, EVAL_ID, SECOND_NS, Outcome, complete_fields, down, newer, nodes, with_task

JOB_INDEX = {"JobModifyIndex": 200, "ModifyIndex": 200, "CreateIndex": 100}
NOT_NEEDED = "alloc not needed due to job update"
UPDATING = "alloc is being updated due to job update"
LOST = "alloc is lost since its node is down"
MIGRATING = "alloc is being migrated"

both = pytest.mark.parametrize("rules", BOTH_RULES)


def web(count: int = 1, **group: Any) -> Job:
    return service_job("web", group_api(count=count, **group), **JOB_INDEX)


def allocs_of(job: Job, indexes: list[int], node_id: str = "n0", **more: Any) -> list[Allocation]:
    return [running_alloc(f"a{index}", job, node_id, index=index, **more) for index in indexes]


# --- placing -----------------------------------------------------------------------------------------------------------


@both
def test_a_new_job_is_placed_whole(rules: Rules) -> None:
    outcome = Outcome(web(10), nodes(10), rules=rules)
    assert outcome.names == sorted(f"web.web[{index}]" for index in range(10))
    assert outcome.final is not None
    assert (outcome.final.status, outcome.final.queued_allocations) == ("complete", {"web": 0})
    assert outcome.created == []


@both
def test_free_names_are_taken_lowest_first(rules: Rules) -> None:
    job = web(5)
    assert Outcome(job, nodes(2), allocs_of(job, [0, 1, 4]), rules=rules).names == ["web.web[2]", "web.web[3]"]


@both
def test_what_is_too_much_goes_from_the_highest_name_down(rules: Rules) -> None:
    job = web(3)
    outcome = Outcome(job, nodes(1, cpu_mhz=20_000), allocs_of(job, list(range(10))), rules=rules)
    assert outcome.stopped == {f"a{index}": NOT_NEEDED for index in range(3, 10)}
    assert outcome.placed == []


@both
def test_surplus_names_are_stopped_and_doubled_ones_exchanged(rules: Rules) -> None:
    job = web(2)
    doubled = [running_alloc("old", job, "n0", index=0), running_alloc("new", job, "n0", index=0), running_alloc("other", job, "n0", index=1)]
    outcome = Outcome(job, nodes(1), doubled, rules=rules)
    assert len(outcome.stopped) == 1
    changed = newer(job, TaskGroups=[with_task(group_api(count=3), Env={"A": "1"})])
    names = Outcome(changed, nodes(1), doubled, versions=[job], rules=rules).names
    assert sorted(names) == ["web.web[0]", "web.web[1]", "web.web[2]"]


@both
def test_a_group_that_has_no_room_is_tried_once_and_waits(rules: Rules) -> None:
    outcome = Outcome(web(5, cpu_mhz=9000), nodes(2), rules=rules)
    assert outcome.final is not None
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    assert (metric.coalesced_failures, metric.nodes_evaluated, metric.dimension_exhausted) == (4, 2, {"cpu": 2})
    (waiting,) = outcome.created
    assert (waiting.status, waiting.status_description, waiting.triggered_by) == ("blocked", "created to place remaining allocations", "queued-allocs")
    assert (outcome.final.status, outcome.final.blocked_eval, outcome.final.queued_allocations) == ("complete", waiting.id, {"web": 5})
    assert outcome.plans == []


@both
def test_one_group_without_room_does_not_hold_up_another(rules: Rules) -> None:
    job = service_job("web", group_api("huge", cpu_mhz=9000), group_api("small"), **JOB_INDEX)
    outcome = Outcome(job, nodes(1), rules=rules)
    assert outcome.names == ["web.small[0]"]
    assert outcome.final is not None
    assert set(outcome.final.failed_tg_allocs) == {"huge"}


@both
def test_a_blocked_evaluation_that_still_fails_waits_on(rules: Rules) -> None:
    outcome = Outcome(web(2, cpu_mhz=9000), nodes(1), rules=rules, status="blocked")
    (waiting,) = outcome.reblocked
    assert waiting.id == EVAL_ID
    assert set(waiting.failed_tg_allocs) == {"web"}
    assert outcome.final is None
    assert outcome.created == []


@both
def test_a_blocked_evaluation_that_finds_room_is_complete(rules: Rules) -> None:
    outcome = Outcome(web(2), nodes(1), rules=rules, status="blocked")
    assert outcome.final is not None
    assert outcome.final.status == "complete"
    assert outcome.reblocked == []


@both
def test_plans_that_are_always_refused_leave_somebody_to_try_again(rules: Rules) -> None:
    outcome = Outcome(web(1), nodes(1), rules=rules, planner="reject_always")
    assert outcome.final is not None
    (waiting,) = outcome.created
    assert len(outcome.plans) == 5
    assert (outcome.final.status, outcome.final.status_description, outcome.final.blocked_eval) == ("failed", "maximum attempts reached (5)", waiting.id)
    assert (waiting.triggered_by, waiting.status_description) == ("max-plan-attempts", "created due to placement conflicts")


@pytest.mark.parametrize(("rules", "elsewhere"), [(Rules.NOMAD, False), (Rules.STRICT, True)])
def test_a_node_that_refused_is_avoided_at_the_next_attempt(rules: Rules, elsewhere: bool) -> None:
    # The fuller node is the better one for as long as nothing is known against it.
    job = web(1)
    cluster = [ready_node("n0", cpu_mhz=1000, memory_mib=600), ready_node("n1", cpu_mhz=9000, memory_mib=9000)]
    outcome = Outcome(job, cluster, rules=rules, planner="reject_once")
    first, second = ([node_id for node_id, allocs in plan.node_allocation.items() if allocs] for plan in outcome.plans)
    assert first == ["n0"]
    assert (second == ["n1"]) is elsewhere


@pytest.mark.parametrize(("rules", "group"), [(Rules.NOMAD, "b"), (Rules.STRICT, "a")])
def test_groups_are_placed_in_the_order_of_the_job(rules: Rules, group: str) -> None:
    # As recorded, the ids of what they have count first. There is room for one more.
    job = service_job("web", group_api("a", count=2, cpu_mhz=1000), group_api("b", count=2, cpu_mhz=1000), **JOB_INDEX)
    held = [running_alloc("z", job, "n0", group="a", cpu_mhz=1000), running_alloc("y", job, "n0", group="b", cpu_mhz=1000)]
    assert Outcome(job, nodes(1, cpu_mhz=3500), held, rules=rules).names == [f"web.{group}[1]"]


@both
def test_a_batch_job_gives_up_after_two_attempts(rules: Rules) -> None:
    outcome = Outcome(batch_job(), nodes(1), rules=rules, planner="reject_always")
    assert len(outcome.plans) == 2


@both
def test_a_part_without_a_fresh_state_is_an_error(rules: Rules) -> None:
    with pytest.raises(SchedulerError, match="missing state refresh after partial commit"):
        Outcome(web(1), nodes(1), rules=rules, planner="reject_no_state")


@both
def test_data_that_stay_on_a_disk_draw_their_successor(rules: Rules) -> None:
    sticky = {"EphemeralDisk": {"SizeMB": 300, "Sticky": True}}
    job = web(1, **sticky)
    cluster = [ready_node("n0", cpu_mhz=4000), *(ready_node(f"m{number}", cpu_mhz=600) for number in range(3))]
    changed = newer(job, TaskGroups=[with_task({**group_api(), **sticky}, Env={"A": "1"})])
    assert [alloc.node_id for alloc in Outcome(changed, cluster, allocs_of(job, [0]), versions=[job], rules=rules).placed] == ["n0"]
    full = service_job("other", group_api(), Priority=50)
    crowd = [*allocs_of(job, [0]), *(running_alloc(f"x{number}", full, "n0", index=number, cpu_mhz=1000) for number in range(3))]
    bigger = newer(job, TaskGroups=[{**group_api(cpu_mhz=1200), **sticky}])
    spare = ready_node("m9")
    moved = Outcome(bigger, [*cluster, spare], crowd, versions=[job], rules=rules).placed
    assert [alloc.node_id for alloc in moved] == ["m9"]


@pytest.mark.parametrize(("enabled", "placed"), [(False, 0), (True, 1)])
@both
def test_others_give_way_only_where_that_is_switched_on(rules: Rules, enabled: bool, placed: int) -> None:
    low = service_job("low", group_api(cpu_mhz=3900), Priority=20, **JOB_INDEX)
    job = service_job("web", group_api(cpu_mhz=3000), Priority=70, **JOB_INDEX)
    config = {"SchedulerAlgorithm": "binpack", "PreemptionConfig": {"ServiceSchedulerEnabled": enabled}}
    outcome = Outcome(job, nodes(1), [running_alloc("v", low, "n0", cpu_mhz=3900)], rules=rules, config=config)
    assert len(outcome.placed) == placed
    if enabled:
        assert outcome.placed[0].preempted_allocations == ["v"]
        assert [alloc.id for alloc in outcome.plans[-1].node_preemptions["n0"]] == ["v"]
    else:
        assert [each.status for each in outcome.created] == ["blocked"]


# --- updates -------------------------------------------------------------------------------------------------------------


def paced(count: int, **more: Any) -> tuple[Job, Job]:
    update = {"Update": {"MaxParallel": 3, "Stagger": 7 * SECOND_NS}}
    job = web(count, **update)
    return job, newer(job, TaskGroups=[with_task(group_api(count=count, **update), Env={"A": "1"}, **more)])


@both
def test_an_update_goes_by_its_pace(rules: Rules) -> None:
    job, changed = paced(10)
    outcome = Outcome(changed, nodes(3), allocs_of(job, list(range(10)), cpu_mhz=100), versions=[job], rules=rules)
    assert outcome.stopped == {f"a{index}": UPDATING for index in range(3)}
    assert outcome.links == {f"web.web[{index}]": f"a{index}" for index in range(3)}
    assert outcome.desired["web"] == {"DestructiveUpdate": 3, "Ignore": 7}


def test_strict_rules_go_on_by_themselves_unless_a_deployment_is_watched() -> None:
    job, changed = paced(10)
    held = allocs_of(job, list(range(10)), cpu_mhz=100)
    strict = Outcome(changed, nodes(3), held, versions=[job], rules=Rules.STRICT)
    (follow_up,) = strict.created
    assert (follow_up.triggered_by, follow_up.wait, follow_up.previous_eval) == ("rolling-update", 7 * SECOND_NS, EVAL_ID)
    assert strict.final is not None
    assert strict.final.next_eval == follow_up.id
    assert Outcome(changed, nodes(3), held, versions=[job], rules=Rules.STRICT, deployment_watcher=True).created == []
    assert Outcome(changed, nodes(3), held, versions=[job], rules=Rules.NOMAD).created == []


@both
def test_a_new_version_without_room_leaves_the_old_one_running(rules: Rules) -> None:
    job = web(1)
    changed = newer(job, TaskGroups=[group_api(cpu_mhz=9000)])
    outcome = Outcome(changed, nodes(1), allocs_of(job, [0]), versions=[job], rules=rules)
    assert (outcome.stopped, outcome.placed) == ({}, [])
    assert [each.status for each in outcome.created] == ["blocked"]


@both
def test_a_small_change_keeps_the_allocation_and_its_metrics(rules: Rules) -> None:
    job = web(2)
    changed = newer(job, Priority=60)
    held = allocs_of(job, [0, 1], Metrics={"NodesEvaluated": 7})
    outcome = Outcome(changed, nodes(1), held, versions=[job], rules=rules)
    assert (outcome.placed, outcome.stopped) == ([], {})
    assert {alloc.id: (alloc.eval_id, alloc.metrics and alloc.metrics.nodes_evaluated) for alloc in outcome.updated.values()} == {
        "a0": (EVAL_ID, 7),
        "a1": (EVAL_ID, 7),
    }


@pytest.mark.parametrize(("rules", "stays"), [(Rules.NOMAD, True), (Rules.STRICT, False)])
def test_only_a_new_limit_of_the_run_spares_the_look_at_the_node(rules: Rules, stays: bool) -> None:
    limited = {"MaxRunDuration": 3600 * SECOND_NS}
    job = batch_job("crunch", group_api(**limited), **JOB_INDEX)
    constraint = [{"LTarget": "${attr.kernel.name}", "Operand": "=", "RTarget": "windows"}]
    changed = newer(job, TaskGroups=[{**group_api(**limited), "Constraints": constraint}])
    outcome = Outcome(changed, nodes(1), allocs_of(job, [0]), versions=[job], rules=rules)
    assert bool(outcome.updated) is stays
    longer = newer(job, TaskGroups=[{**group_api(MaxRunDuration=7200 * SECOND_NS), "Constraints": constraint}])
    assert set(Outcome(longer, nodes(1), allocs_of(job, [0]), versions=[job], rules=rules).updated) == {"a0"}


@both
def test_an_allocation_outside_of_its_datacenters_is_replaced(rules: Rules) -> None:
    job = batch_job("crunch", group_api(MaxRunDuration=SECOND_NS), **JOB_INDEX)
    changed = newer(job, Datacenters=["dc2"])
    outcome = Outcome(changed, [*nodes(1), ready_node("m0", datacenter="dc2")], allocs_of(job, [0]), versions=[job], rules=rules)
    assert (outcome.stopped, [alloc.node_id for alloc in outcome.placed]) == ({"a0": UPDATING}, ["m0"])


# --- the end, and losses -------------------------------------------------------------------------------------------------


@both
def test_what_was_on_a_node_that_is_down_is_replaced_and_linked(rules: Rules) -> None:
    job = web(3)
    cluster = [down(ready_node("n0")), ready_node("n1")]
    held = [*allocs_of(job, [0, 1]), running_alloc("a2", job, "n1", index=2)]
    outcome = Outcome(job, cluster, held, rules=rules)
    assert outcome.stopped == {"a0": LOST, "a1": LOST}
    assert outcome.links == {"web.web[0]": "a0", "web.web[1]": "a1"}
    assert {alloc.client_status for alloc in outcome.stops} == {"lost"}


@both
def test_what_is_lost_is_not_replaced_where_there_are_enough(rules: Rules) -> None:
    job = web(1)
    held = [running_alloc("gone", job, "n0", index=0), running_alloc("here", job, "n1", index=0)]
    outcome = Outcome(job, [down(ready_node("n0")), ready_node("n1")], held, rules=rules)
    assert (outcome.stopped, outcome.placed) == ({"gone": LOST}, [])


@both
def test_a_drained_allocation_moves(rules: Rules) -> None:
    job = web(1)
    drained = ready_node("n0", SchedulingEligibility="ineligible", DrainStrategy={"Deadline": 0})
    outcome = Outcome(job, [drained, ready_node("n1")], allocs_of(job, [0], DesiredTransition={"Migrate": True}), rules=rules)
    assert (outcome.stopped, outcome.links) == ({"a0": MIGRATING}, {"web.web[0]": "a0"})
    assert [alloc.node_id for alloc in outcome.placed] == ["n1"]


@both
def test_a_batch_allocation_that_is_not_to_be_replaced_is_only_stopped(rules: Rules) -> None:
    job = batch_job("crunch", group_api(), **JOB_INDEX)
    transition = {"Migrate": True, "MigrateDisablePlacement": True}
    outcome = Outcome(job, nodes(2), allocs_of(job, [0], DesiredTransition=transition), rules=rules)
    assert (outcome.stopped, outcome.placed) == ({"a0": MIGRATING}, [])
    stopped = allocs_of(job, [0], DesiredTransition=transition, DesiredStatus="stop", **complete_fields())
    assert Outcome(job, nodes(2), stopped, rules=rules).plans == []


@both
def test_a_batch_allocation_that_is_done_stays_done(rules: Rules) -> None:
    job = batch_job("crunch", group_api(), **JOB_INDEX)
    assert Outcome(job, nodes(1), allocs_of(job, [0], **complete_fields()), rules=rules).plans == []


@both
def test_a_new_version_of_a_batch_job_runs_anew(rules: Rules) -> None:
    job = batch_job("crunch", group_api(), **JOB_INDEX)
    changed = newer(job, TaskGroups=[with_task(group_api(count=2), Env={"A": "1"})])
    outcome = Outcome(changed, nodes(1), allocs_of(job, [0], **complete_fields()), versions=[job], rules=rules)
    assert (outcome.names, outcome.stopped) == (["crunch.web[0]", "crunch.web[1]"], {})


@both
def test_a_service_that_ended_is_replaced_without_a_link(rules: Rules) -> None:
    job = web(2)
    held = [running_alloc("a0", job, "n0", **complete_fields()), running_alloc("a1", job, "n0", index=1)]
    assert Outcome(job, nodes(1), held, rules=rules).links == {"web.web[0]": ""}


@both
def test_a_stopped_job_stops_all_and_says_what_is_lost(rules: Rules) -> None:
    job = newer(web(2), Stop=True)
    held = [running_alloc("gone", job, "n0", index=0), running_alloc("here", job, "n1", index=1)]
    outcome = Outcome(job, [down(ready_node("n0")), ready_node("n1")], held, rules=rules)
    assert outcome.stopped == {"gone": LOST, "here": NOT_NEEDED}
    assert outcome.desired == {"web": {"Stop": 2}}


@both
def test_a_purged_job_stops_all(rules: Rules) -> None:
    job = web(2)
    outcome = Outcome(None, nodes(1), allocs_of(job, [0, 1]), rules=rules, triggered_by="job-deregister")
    assert outcome.stopped == {"a0": NOT_NEEDED, "a1": NOT_NEEDED}
    assert outcome.final is not None
    assert outcome.final.queued_allocations == {}


@both
def test_a_purged_job_without_allocations_needs_no_plan(rules: Rules) -> None:
    outcome = Outcome(None, nodes(1), rules=rules)
    assert outcome.plans == []
    assert outcome.final is not None
    assert outcome.final.status == "complete"


@both
def test_a_group_that_is_gone_is_stopped(rules: Rules) -> None:
    job = service_job("web", group_api("web"), group_api("api"), **JOB_INDEX)
    changed = newer(job, TaskGroups=[group_api("web")])
    held = [running_alloc("w", job, "n0", group="web"), running_alloc("a", job, "n0", group="api")]
    assert Outcome(changed, nodes(1), held, versions=[job], rules=rules).stopped == {"a": NOT_NEEDED}


@pytest.mark.parametrize(("rules", "stopped"), [(Rules.NOMAD, {"live", "dead"}), (Rules.STRICT, {"live"})])
def test_what_has_ended_of_an_unwanted_group_needs_no_stop(rules: Rules, stopped: set[str]) -> None:
    job = web(1)
    held = [running_alloc("live", job, "n0"), running_alloc("dead", job, "n0", index=1, **complete_fields())]
    outcome = Outcome(newer(job, TaskGroups=[group_api(count=0)]), nodes(1), held, versions=[job], rules=rules)
    assert set(outcome.stopped) == stopped
    assert outcome.desired == {"web": {"Stop": len(stopped)}}


# --- queued counts, bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rules", "queued"), [(Rules.NOMAD, {"api": 0}), (Rules.STRICT, {"api": 0, "web": 0})])
def test_queued_counts_of_groups_with_nothing_to_place(rules: Rules, queued: dict[str, int]) -> None:
    job = service_job("web", group_api("web"), group_api("api"), **JOB_INDEX)
    outcome = Outcome(job, nodes(1), [running_alloc("w", job, "n0", group="web")], rules=rules)
    assert outcome.final is not None
    assert outcome.final.queued_allocations == queued


@both
def test_an_unknown_trigger_is_refused(rules: Rules) -> None:
    outcome = Outcome(web(1), nodes(1), rules=rules, triggered_by="full-moon")
    assert outcome.final is not None
    assert (outcome.final.status, outcome.final.status_description) == ("failed", "scheduler cannot handle 'full-moon' evaluation reason")
    assert outcome.plans == []


@both
def test_a_negative_count_is_no_count(rules: Rules) -> None:
    job = web(-3)
    outcome = Outcome(job, nodes(1), allocs_of(job, [0]), rules=rules)
    assert (outcome.stopped, outcome.placed) == ({"a0": NOT_NEEDED}, [])


@both
def test_names_that_no_scheduler_gave_are_counted_all_the_same(rules: Rules) -> None:
    job = web(2)
    odd = running_alloc("odd", job, "n0", Name="?")
    assert len(Outcome(job, nodes(1), [odd], rules=rules).placed) == 1


@both
def test_many_groups_take_no_longer_than_they_need(rules: Rules) -> None:
    groups = [group_api(f"g{number}", cpu_mhz=9000) for number in range(3000)]
    job = service_job("web", *groups, **JOB_INDEX)
    began = time.process_time()
    outcome = Outcome(job, nodes(1), rules=rules)
    assert outcome.final is not None
    assert len(outcome.final.failed_tg_allocs) == 3000
    assert time.process_time() - began < 10


@both
def test_annotations_make_a_plan_of_nothing(rules: Rules) -> None:
    job = web(1)
    outcome = Outcome(job, nodes(1), allocs_of(job, [0]), rules=rules, annotate_plan=True)
    assert len(outcome.plans) == 1
    plan: Any = outcome.plans[0]
    annotations = plan.annotations
    assert annotations is not None
    assert annotations.desired_tg_updates["web"].ignore == 1
