"""When a failed allocation is placed again, and what is noted of that (schedulers 7.3)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.rules import Rules
from fastplan.scheduler.reschedule import Later, batches, next_delay_ns, policy_of, tracker_after
from fastplan.structs import Allocation, Job
from fastplan.testing.builders import batch_job, group_api, running_alloc, service_job
from tests.scheduler.generic_cluster import BOTH_RULES, EVAL_ID, MINUTE_NS, NOW_NS, SECOND_NS, Outcome, down, failed_fields, nodes

JOB_INDEX = {"JobModifyIndex": 200, "ModifyIndex": 200, "CreateIndex": 100}
HOUR_NS = 60 * MINUTE_NS
RESCHEDULED = "alloc was rescheduled because it failed"
both = pytest.mark.parametrize("rules", BOTH_RULES)


def policy(**changes: Any) -> dict[str, Any]:
    return {"Delay": 30 * SECOND_NS, "DelayFunction": "exponential", "MaxDelay": HOUR_NS, "Unlimited": True, **changes}


def web(count: int = 1, **changes: Any) -> Job:
    return service_job("web", group_api(count=count, ReschedulePolicy=policy(**changes)), **JOB_INDEX)


def history(*delays: int, last_ago_ns: int = MINUTE_NS, last: str = "ok") -> dict[str, Any]:
    events = [
        {"RescheduleTime": NOW_NS - last_ago_ns - place * HOUR_NS, "PrevAllocID": f"p{place}", "PrevNodeID": f"x{place}", "Delay": delay * SECOND_NS}
        for place, delay in reversed(list(enumerate(reversed(delays))))
    ]
    return {"RescheduleTracker": {"Events": events, "LastReschedule": last}}


def failed(job: Job, name: str = "a0", *, index: int = 0, ago_ns: int = MINUTE_NS, node_id: str = "n0", **more: Any) -> Allocation:
    return running_alloc(name, job, node_id, index=index, **{**failed_fields(ago_ns), **more})


@pytest.mark.parametrize(
    ("function", "delays", "last_ago_s", "expected_s"),
    [
        ("constant", [], 60, 30),
        ("constant", [30, 30], 60, 30),
        ("exponential", [], 60, 30),
        ("exponential", [30], 60, 60),
        ("exponential", [2400], 50 * 60, 3600),
        ("exponential", [2400], 3 * 3600, 30),
        ("fibonacci", [], 60, 30),
        ("fibonacci", [30], 60, 30),
        ("fibonacci", [5, 5, 10], 60, 15),
        ("fibonacci", [3600, 30], 60, 30),
        ("fibonacci", [2400, 3600], 60, 3600),
    ],
)
def test_delays(function: str, delays: list[int], last_ago_s: int, expected_s: int) -> None:
    job = web(DelayFunction=function)
    alloc = failed(job, **history(*delays, last_ago_ns=last_ago_s * SECOND_NS))
    known = policy_of(alloc)
    assert known is not None
    assert next_delay_ns(alloc, known) == expected_s * SECOND_NS


def test_an_unlimited_policy_remembers_five_events_and_a_limited_one_its_interval() -> None:
    alloc = failed(web(), **history(1, 2, 3, 4, 5, 6, 7))
    assert [event and event.delay // SECOND_NS for event in tracker_after(alloc, NOW_NS).events] == [3, 4, 5, 6, 7, 14]
    limited = failed(web(Unlimited=False, Attempts=9, Interval=2 * HOUR_NS), **history(1, 2, 3))
    assert [event and event.delay // SECOND_NS for event in tracker_after(limited, NOW_NS).events] == [2, 3, 6]


def test_what_fails_within_five_seconds_shares_a_follow_up() -> None:
    job = web(9)
    later = [Later(failed(job, f"a{second}"), second * SECOND_NS) for second in (8, 0, 2, 4, 5, 13)]
    assert [[each.time_ns // SECOND_NS for each in batch] for batch in batches(later)] == [[0, 2, 4], [5, 8], [13]]


# --- through the scheduler -----------------------------------------------------------------------------------------------


@both
def test_an_allocation_that_failed_long_enough_ago_is_placed_again(rules: Rules) -> None:
    outcome = Outcome(web(), nodes(2), [failed(web())], rules=rules)
    (alloc,) = outcome.placed
    assert (alloc.previous_allocation, alloc.node_id) == ("a0", "n1")
    assert alloc.reschedule_tracker is not None
    (event,) = alloc.reschedule_tracker.events
    assert event is not None
    assert (event.prev_alloc_id, event.prev_node_id, event.delay, event.reschedule_time) == ("a0", "n0", 30 * SECOND_NS, NOW_NS)


@pytest.mark.parametrize(("rules", "expected"), [(Rules.NOMAD, ("run", "")), (Rules.STRICT, ("stop", RESCHEDULED))])
def test_the_stop_of_what_is_placed_again_says_why(rules: Rules, expected: tuple[str, str]) -> None:
    outcome = Outcome(web(), nodes(2), [failed(web())], rules=rules)
    (stop,) = outcome.stops
    assert (stop.desired_status, stop.desired_description) == expected
    assert stop.reschedule_tracker is not None
    assert stop.reschedule_tracker.last_reschedule == "ok"


@both
def test_an_allocation_that_failed_just_now_waits(rules: Rules) -> None:
    outcome = Outcome(web(), nodes(2), [failed(web(), ago_ns=0)], rules=rules)
    (follow_up,) = outcome.created
    assert (outcome.placed, outcome.stopped) == ([], {})
    assert outcome.updated["a0"].followup_eval_id == follow_up.id
    assert (follow_up.triggered_by, follow_up.status_description) == ("alloc-reschedule", "created for delayed rescheduling")
    assert follow_up.wait_until == "2027-01-15T08:00:30Z"
    assert outcome.final is not None
    assert outcome.final.next_eval == follow_up.id


@both
def test_the_follow_up_places_it_even_if_early(rules: Rules) -> None:
    held = [failed(web(), ago_ns=SECOND_NS, FollowupEvalID=EVAL_ID)]
    outcome = Outcome(web(), nodes(2), held, rules=rules, triggered_by="alloc-reschedule", wait_until="2027-01-15T08:00:00Z")
    assert outcome.links == {"web.web[0]": "a0"}


@pytest.mark.parametrize(("rules", "noted"), [(Rules.NOMAD, {"a0"}), (Rules.STRICT, set())])
def test_a_delayed_evaluation_begins_no_second_chain(rules: Rules, noted: set[str]) -> None:
    # Nor does it note one that nobody creates: the evaluation of the failure itself would leave everything to that.
    held = [failed(web(), ago_ns=0)]
    outcome = Outcome(web(), nodes(2), held, rules=rules, triggered_by="alloc-reschedule", wait_until="2027-01-15T08:00:00Z")
    assert outcome.created == []
    assert set(outcome.updated) == noted


@both
def test_failures_at_three_times_make_two_follow_ups(rules: Rules) -> None:
    job = web(3)
    held = [failed(job, f"a{index}", index=index, ago_ns=ago * SECOND_NS) for index, ago in enumerate((10, 8, 2))]
    outcome = Outcome(job, nodes(2), held, rules=rules)
    assert [(each.triggered_by, each.wait_until) for each in outcome.created] == [
        ("alloc-reschedule", "2027-01-15T08:00:20Z"),
        ("alloc-failure", "2027-01-15T08:00:28Z"),
    ]


@both
def test_a_batch_allocation_that_used_its_attempts_stays_as_it_is(rules: Rules) -> None:
    limited = policy(Unlimited=False, Attempts=1, Interval=24 * HOUR_NS, DelayFunction="constant")
    job = batch_job("crunch", group_api(ReschedulePolicy=limited), **JOB_INDEX)
    assert Outcome(job, nodes(2), [failed(job, **history(30))], rules=rules).plans == []
    assert Outcome(job, nodes(2), [failed(job)], rules=rules).links == {"crunch.web[0]": "a0"}


@both
def test_somebody_may_insist(rules: Rules) -> None:
    job = web(Unlimited=False, Attempts=0)
    held = [failed(job, ago_ns=0, DesiredTransition={"ForceReschedule": True})]
    assert Outcome(job, nodes(2), held, rules=rules).links == {"web.web[0]": "a0"}


@both
def test_without_a_place_the_allocation_is_noted_and_comes_later(rules: Rules) -> None:
    job = service_job("web", group_api(cpu_mhz=9000, ReschedulePolicy=policy()), **JOB_INDEX)
    outcome = Outcome(job, nodes(1), [failed(job, **history(30))], rules=rules)
    assert outcome.stopped == {}
    tracker = outcome.updated["a0"].reschedule_tracker
    assert tracker is not None
    assert (tracker.last_reschedule, len(tracker.events)) == ("no placement", 1)
    assert [each.status for each in outcome.created] == ["blocked"]
    fits = web()
    again = Outcome(fits, nodes(1), [failed(fits, **history(30, last="no placement"))], rules=rules, status="blocked")
    (alloc,) = again.placed
    assert alloc.reschedule_tracker is not None
    assert len(alloc.reschedule_tracker.events) == 2


@pytest.mark.parametrize(("rules", "noted"), [(Rules.NOMAD, {"a0"}), (Rules.STRICT, set())])
@pytest.mark.parametrize(("cpu_mhz", "ago_ns"), [(9000, MINUTE_NS), (500, 0)])
@pytest.mark.parametrize(("status", "eligibility"), [("disconnected", "eligible"), ("ready", "ineligible")])
def test_nothing_is_noted_where_the_applier_would_refuse_it_for_ever(
    rules: Rules, noted: set[str], cpu_mhz: int, ago_ns: int, status: str, eligibility: str
) -> None:
    job = service_job("web", group_api(cpu_mhz=cpu_mhz, ReschedulePolicy=policy()), **JOB_INDEX)
    cluster = nodes(2)
    down(cluster[0], status).scheduling_eligibility = eligibility
    outcome = Outcome(job, cluster, [failed(job, ago_ns=ago_ns)], rules=rules)
    assert (outcome.stopped, outcome.placed) == ({}, [])
    assert set(outcome.updated) == noted
    assert len(outcome.created) == 1


@pytest.mark.parametrize(("rules", "stopped"), [(Rules.NOMAD, {"a1"}), (Rules.STRICT, set())])
def test_after_the_first_one_without_a_place(rules: Rules, stopped: set[str]) -> None:
    job = service_job("web", group_api(count=2, cpu_mhz=9000, ReschedulePolicy=policy()), **JOB_INDEX)
    outcome = Outcome(job, nodes(1), [failed(job, "a0"), failed(job, "a1", index=1)], rules=rules)
    assert set(outcome.stopped) == stopped
    assert set(outcome.updated) == {"a0", "a1"} - stopped


@pytest.mark.parametrize(("rules", "stopped"), [(Rules.NOMAD, {"gone", "a1"}), (Rules.STRICT, {"gone"})])
def test_what_waits_for_its_client_keeps_the_others_from_being_placed(rules: Rules, stopped: set[str]) -> None:
    waits = group_api(count=2, ReschedulePolicy=policy(), Disconnect={"StopOnClientAfter": MINUTE_NS, "Replace": True})
    job = service_job("web", waits, **JOB_INDEX)
    cluster = nodes(2)
    down(cluster[0])
    outcome = Outcome(job, cluster, [running_alloc("gone", job, "n0"), failed(job, "a1", index=1, node_id="n1")], rules=rules)
    assert outcome.placed == []
    assert set(outcome.stopped) == stopped
    (follow_up,) = outcome.created
    assert (follow_up.triggered_by, follow_up.wait_until) == ("alloc-failure", "2027-01-15T08:01:05Z")
