"""Rejection tracker: plan-apply 8, cases R1 to R9, known fault 40."""

from __future__ import annotations

import random

import pytest

from fastplan.errors import InvalidInput
from fastplan.planner.tracker import RejectionTracker, TokenBucket, TrackerSettings, TwoQueueCache
from fastplan.testing.clock import VirtualClock


def tracker(clock: VirtualClock, threshold: int = 3, window_s: float = 300, **limits: float) -> RejectionTracker:
    return RejectionTracker(clock, TrackerSettings(node_threshold=threshold, node_window_s=window_s), **limits)  # type: ignore[arg-type]


def test_r1_the_last_of_many_nodes_remain() -> None:
    tracked = tracker(VirtualClock(), tracked_nodes=3)
    for number in range(10):
        tracked.record(f"n{number}")
    assert sorted(tracked.tracked()) == ["n7", "n8", "n9"]


def test_r2_every_refusal_at_the_threshold_reports() -> None:
    tracked = tracker(VirtualClock(), threshold=4)
    assert [tracked.record("n") for _ in range(6)] == [False, False, False, True, True, True]


def test_r3_scores_fall_to_zero() -> None:
    clock = VirtualClock()
    tracked = tracker(clock)
    for _ in range(3):
        tracked.record("n")
    clock.advance(600)
    assert tracked.scores() == {"n": 0}
    assert not tracked.record("n")


def test_r4_the_start_of_the_window_counts() -> None:
    clock = VirtualClock()
    tracked = tracker(clock, threshold=2, window_s=10)
    tracked.record("n")
    clock.advance(10)
    assert tracked.record("n")
    clock = VirtualClock()
    tracked = tracker(clock, threshold=2, window_s=10)
    tracked.record("n")
    clock.advance(10 + 1e-9)
    assert not tracked.record("n")


def test_r5_reports_are_limited() -> None:
    clock = VirtualClock()
    tracked = tracker(clock, threshold=1, report_burst=3, reports_per_s=1)
    assert [tracked.record("n") for _ in range(5)] == [True, True, True, False, False]
    clock.advance(1)
    assert [tracked.record("n"), tracked.record("n")] == [True, False]


def test_the_bucket_holds_ten_and_refills_five_in_half_an_hour() -> None:
    clock = VirtualClock()
    tracked = tracker(clock, threshold=1, window_s=1e6)
    assert [tracked.record("n") for _ in range(11)] == [True] * 10 + [False]
    clock.advance(6 * 60)
    assert [tracked.record("n"), tracked.record("n")] == [True, False]
    clock.advance(1e6)
    assert tracked.tokens == 10


def test_r6_tokens_are_spent_on_bad_nodes_only() -> None:
    tracked = tracker(VirtualClock(), threshold=100)
    for _ in range(99):
        tracked.record("n")
    assert tracked.tokens == 10


def test_r7_disabled_reports_nothing_and_tracks_nothing() -> None:
    tracked = RejectionTracker(VirtualClock(), TrackerSettings(enabled=False, node_threshold=1))
    assert not any(tracked.record("n") for _ in range(10))
    assert tracked.tracked() == []


def test_r8_settings_are_checked() -> None:
    for window_s in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match=r"plan_rejection_tracker\.node_window must be greater than 0"):
            RejectionTracker(VirtualClock(), TrackerSettings(node_window_s=window_s))
    with pytest.raises(InvalidInput, match="node_threshold"):
        RejectionTracker(VirtualClock(), TrackerSettings(node_threshold=0))


def test_r9_an_evicted_node_starts_again() -> None:
    tracked = tracker(VirtualClock(), threshold=3, tracked_nodes=2)
    tracked.record("a")
    tracked.record("b")
    tracked.record("c")
    assert "a" not in tracked.tracked()
    assert [tracked.record("a") for _ in range(3)] == [False, False, True]


def test_on_by_default_with_the_servers_figures() -> None:
    assert TrackerSettings() == TrackerSettings(enabled=True, node_threshold=100, node_window_s=300)


@pytest.mark.parametrize(
    ("refusals_s", "reported_at_s"),
    [((0, 100, 200), [200]), ((0, 200, 400), []), ((0, 100, 400, 450, 500), [500])],
)
def test_known_fault_40_sliding_window(refusals_s: tuple[int, ...], reported_at_s: list[int]) -> None:
    clock = VirtualClock()
    tracked = tracker(clock, threshold=3, window_s=300)
    reported = []
    for moment_s in refusals_s:
        clock.advance(moment_s - clock.monotonic_s())
        if tracked.record("n"):
            reported.append(moment_s)
    assert reported == reported_at_s


def test_frequent_nodes_survive_a_burst_of_newcomers() -> None:
    cache: TwoQueueCache[int] = TwoQueueCache(50)
    for number in range(38):
        cache.add(f"often{number}", number)
        assert cache.get(f"often{number}") == number
    for number in range(1000):
        assert cache.get(f"new{number}") is None
        cache.add(f"new{number}", number)
    assert all(f"often{number}" in cache for number in range(38))
    assert len(cache) == 50


def test_a_remembered_key_comes_back_as_frequent() -> None:
    cache: TwoQueueCache[int] = TwoQueueCache(4)
    for key in "abcde":
        cache.add(key, 1)
    assert "a" not in cache
    cache.add("a", 2)
    assert cache.keys() == ["a", "c", "d", "e"]
    for key in "fghi":
        cache.add(key, 1)
    assert "a" in cache


def test_a_return_takes_from_recent_only_above_a_quarter() -> None:
    cache: TwoQueueCache[int] = TwoQueueCache(4)
    for key in "abc":
        cache.add(key, 1)
        cache.get(key)
    cache.add("d", 1)
    cache.add("e", 1)  # recent has one of one: a newcomer evicts it
    assert cache.keys() == ["a", "b", "c", "e"]
    cache.add("d", 1)  # a return leaves the one recent key alone and takes the oldest frequent one
    assert cache.keys() == ["b", "c", "d", "e"]


def test_the_cache_never_exceeds_its_size() -> None:
    random_source = random.Random(7)
    for size in (1, 2, 3, 4, 7, 50):
        cache: TwoQueueCache[int] = TwoQueueCache(size)
        for _ in range(2000):
            key = str(random_source.randrange(3 * size))
            if cache.get(key) is None:
                cache.add(key, 0)
            assert key in cache
            assert len(cache) <= size


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    clock = VirtualClock()
    bucket = TokenBucket(clock, 2, 1)
    clock.advance(100)
    assert bucket.tokens == 2
    assert [bucket.take() for _ in range(3)] == [True, True, False]
