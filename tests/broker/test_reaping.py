"""What a leader writes to tidy up (worker-and-broker 3.12, 3.13, 5.7; 11.4 row 111)."""

import random

import pytest

from fastplan.broker import canceled_copies, duplicate_copies, failed_and_follow_up
from tests.broker.evaluations import evaluation

NOW_NS = 1_700_000_000_000_000_000


def failed(original, *, job_exists=True, seed=1, baseline_s=60.0, range_s=300.0):
    return failed_and_follow_up(
        original,
        job_exists=job_exists,
        delivery_limit=3,
        baseline_s=baseline_s,
        range_s=range_s,
        randomness=random.Random(seed),
        now_ns=NOW_NS,
        new_id=lambda: "follow-up",
    )


def test_superseded_evaluations_are_canceled():
    originals = [evaluation("a", create_time=5), evaluation("b", create_time=NOW_NS)]
    before = [each.copy() for each in originals]
    copies = canceled_copies(originals, NOW_NS)
    assert originals == before
    assert [each.id for each in copies] == ["a", "b"]
    assert {each.status for each in copies} == {"canceled"}
    assert {each.status_description for each in copies} == {"canceled after more recent eval was processed"}
    # Time of change is after the time of creation, whatever the clocks say.
    assert [each.modify_time for each in copies] == [NOW_NS, NOW_NS + 1]


def test_duplicates_of_blocked_evaluations_are_canceled():
    (copy,) = duplicate_copies([evaluation("a", job_id="web", status="blocked")], NOW_NS)
    assert (copy.status, copy.status_description) == ("canceled", 'existing blocked evaluation exists for job "web"')


def test_nothing_gives_nothing():
    assert canceled_copies([], NOW_NS) == []
    assert duplicate_copies([], NOW_NS) == []


def test_what_was_delivered_too_often_fails_and_is_tried_again():
    original = evaluation("a", job_id="web", namespace="prod", type="batch", priority=70, job_modify_index=9, triggered_by="job-register", create_time=5)
    before = original.copy()
    ended, follow_up = failed(original)
    assert original == before
    assert (ended.id, ended.status, ended.status_description) == ("a", "failed", "evaluation reached delivery limit (3)")
    assert ended.next_eval == follow_up.id == "follow-up"
    assert (follow_up.status, follow_up.triggered_by, follow_up.previous_eval) == ("pending", "failed-follow-up", "a")
    for name in ("namespace", "priority", "type", "job_id", "job_modify_index"):
        assert getattr(follow_up, name) == getattr(original, name)
    assert follow_up.create_time == follow_up.modify_time == NOW_NS


def test_there_is_no_second_try_for_a_job_that_is_gone():
    (ended,) = failed(evaluation("a"), job_exists=False)
    assert (ended.status, ended.next_eval) == ("failed", "")


def test_second_tries_are_spread():
    waits_s = [failed(evaluation("a"), seed=seed)[1].wait / 1e9 for seed in range(200)]
    assert all(60 <= wait_s < 360 for wait_s in waits_s)
    assert min(waits_s) < 75
    assert max(waits_s) > 345


@pytest.mark.parametrize(("baseline_s", "range_s", "expected_ns"), [(0.0, 0.0, 0), (10.0, 0.0, 10 * 10**9)])
def test_a_spread_of_nothing(baseline_s, range_s, expected_ns):
    assert failed(evaluation("a"), baseline_s=baseline_s, range_s=range_s)[1].wait == expected_ns
