"""Metrics: names, figures and the accuracy of quantiles."""

from __future__ import annotations

import random

import numpy
import pytest

from fastplan.metrics import Metrics, Timer
from fastplan.planner.metrics import PlanMetrics


def test_counters_and_gauges_hold_what_was_put_in() -> None:
    metrics = Metrics()
    counter = metrics.counter("a", "Things.")
    labelled = metrics.labelled_counter("b", "Things by node.", "node_id")
    gauge = metrics.gauge("c", "Level.")
    scores = metrics.labelled_gauge("d", "Scores.", "node_id")
    sample = metrics.sample("e", "Sizes.")
    counter.add()
    counter.add(4)
    labelled.add("n1")
    labelled.add("n1", 2)
    gauge.set(7)
    scores.replace({"x": 1})
    scores.replace({"y": 2})
    for value in (3, 1, 2):
        sample.record(value)
    assert metrics.snapshot() == {
        "a": {"kind": "counter", "description": "Things.", "value": 5},
        "b": {"kind": "counter", "description": "Things by node.", "label": "node_id", "values": {"n1": 3}},
        "c": {"kind": "gauge", "description": "Level.", "value": 7},
        "d": {"kind": "gauge", "description": "Scores.", "label": "node_id", "values": {"y": 2}},
        "e": {"kind": "sample", "description": "Sizes.", "count": 3, "mean": 2, "least": 1, "greatest": 3, "newest": 2},
    }
    assert metrics["a"] is counter


def test_a_name_is_registered_once() -> None:
    metrics = Metrics()
    metrics.counter("a", "Things.")
    with pytest.raises(ValueError, match="registered twice"):
        metrics.timer("a", "Time.")


def test_quantiles_are_within_a_quarter_octave() -> None:
    timer = Metrics().timer("t", "Time.")
    random_source = random.Random(3)
    durations_s = sorted(10 ** random_source.uniform(-5.5, 2) for _ in range(5000))
    for duration_s in durations_s:
        timer.record(duration_s)
    for fraction in (0.1, 0.5, 0.9, 0.99, 1.0):
        exact_ms = durations_s[min(int(fraction * len(durations_s)), len(durations_s) - 1)] * 1e3
        assert exact_ms * 0.98 <= timer.quantile_ms(fraction) <= exact_ms * 1.26
    figures = timer.read()
    assert figures["count"] == 5000
    assert figures["greatest_ms"] == pytest.approx(durations_s[-1] * 1e3)


def test_a_timer_takes_odd_durations() -> None:
    timer = Metrics().timer("t", "Time.")
    assert timer.read()["p99_ms"] == 0
    timer.record(-1)
    timer.record(0)
    timer.record(1e9, times=3)
    assert timer.read()["count"] == 5
    assert timer.read()["greatest_ms"] == 1e12


def test_the_plan_metrics_have_nomads_names() -> None:
    metrics = Metrics()
    PlanMetrics(metrics)
    names = set(metrics.snapshot())
    wanted = "submit queue_depth wait_for_index evaluate node_rejected sign_identities raft_dispatch optimistic_apply outstanding_apply apply"
    assert {f"nomad.plan.{name}" for name in wanted.split()} | {"nomad.plan.rejection_tracker.node_score"} <= names
    assert all(each.description.endswith(".") and ". " not in each.description for each in metrics)


def test_many_durations_at_once_are_as_good_as_one_by_one() -> None:
    chosen = random.Random(5)
    durations_s = [chosen.choice((0.0, -1.0, 1e-7, chosen.random(), 10 ** chosen.uniform(-8, 9), 2.0 ** chosen.randrange(-24, 20))) for _ in range(3000)]
    one_by_one, at_once = Timer("one", ""), Timer("all", "")
    for duration_s in durations_s:
        one_by_one.record(duration_s)
    at_once.record_all(numpy.array(durations_s[:7]))
    at_once.record_all(numpy.array([]))
    at_once.record_all(numpy.array(durations_s[7:]))
    assert at_once.read() == pytest.approx(one_by_one.read())
    assert [at_once.quantile_ms(part / 500) for part in range(501)] == [one_by_one.quantile_ms(part / 500) for part in range(501)]
