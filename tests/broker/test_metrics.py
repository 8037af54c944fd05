"""What broker and tracker report (worker-and-broker 10)."""

import pytest

from fastplan.broker import FAILED_QUEUE, BlockedEvals, BlockedMetrics, BrokerMetrics
from fastplan.broker.metrics import TRACKED_LIMIT
from fastplan.metrics import Metrics
from fastplan.structs import AllocMetric, Resources
from fastplan.testing import VirtualClock
from tests.broker.evaluations import evaluation, new_broker


class Site:
    def __init__(self, **settings):
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.broker = new_broker(self.clock, BrokerMetrics(self.metrics), **settings)

    def timer_s(self, name):
        self.broker.report()
        timer = self.metrics[f"nomad.broker.{name}"]
        return timer.count, pytest.approx(timer.total_s)

    def gauges(self):
        self.broker.report()
        return {
            name.removeprefix("nomad.broker."): each["value"] for name, each in self.metrics.snapshot().items() if each["kind"] == "gauge" and each.get("value")
        }


def test_wait_process_and_response():
    site = Site()
    site.broker.enqueue(evaluation("a"))
    site.clock.advance(2)
    token = site.broker.dequeue(["service"]).token
    site.clock.advance(1)
    site.broker.ack("a", token)
    assert site.timer_s("wait_time") == (1, 2)
    assert site.timer_s("process_time") == (1, 1)
    assert site.timer_s("response_time") == (1, 3)


def test_a_nack_ends_a_process_and_the_wait_is_that_for_the_first_delivery():
    site = Site(initial_nack_delay_s=1.0)
    site.broker.enqueue(evaluation("a"))
    site.clock.advance(2)
    site.broker.nack("a", site.broker.dequeue(["service"]).token)
    assert site.timer_s("process_time") == (1, 0)
    assert site.timer_s("response_time") == (1, 2)
    site.clock.advance(1)
    site.broker.advance()
    token = site.broker.dequeue(["service"]).token
    site.clock.advance(1)
    site.broker.ack("a", token)
    assert site.timer_s("wait_time") == (1, 2)
    assert site.timer_s("process_time") == (2, 1)
    assert site.timer_s("response_time") == (2, 6)


def test_a_nack_timer_ends_a_process():
    site = Site()
    site.broker.enqueue(evaluation("a"))
    site.broker.dequeue(["service"])
    site.clock.advance(5)
    site.broker.advance()
    assert site.timer_s("process_time") == (1, 5)


def test_what_is_restored_has_no_arrival():
    site = Site()
    site.broker.restore(evaluation("a"))
    site.clock.advance(1)
    token = site.broker.dequeue(["service"]).token
    site.clock.advance(1)
    site.broker.ack("a", token)
    assert site.timer_s("wait_time")[0] == 0
    assert site.timer_s("response_time")[0] == 0
    assert site.timer_s("process_time") == (1, 1)


def test_what_is_taken_in_again_arrives_at_the_ack():
    site = Site()
    site.broker.enqueue(evaluation("a"))
    token = site.broker.dequeue(["service"]).token
    site.broker.enqueue(evaluation("a"), token)
    site.clock.advance(3)
    site.broker.ack("a", token)
    site.clock.advance(1)
    site.broker.ack("a", site.broker.dequeue(["service"]).token)
    assert site.timer_s("wait_time") == (2, 1)
    assert site.timer_s("response_time") == (2, 4)


def test_switching_off_forgets_times():
    site = Site()
    site.broker.enqueue(evaluation("a"))
    site.broker.set_enabled(False)
    site.broker.set_enabled(True)
    site.clock.advance(100)
    site.broker.enqueue(evaluation("a"))
    site.broker.ack("a", site.broker.dequeue(["service"]).token)
    assert site.timer_s("wait_time") == (1, 0)


def test_times_are_kept_of_so_many():
    site = Site()
    for number in range(TRACKED_LIMIT + 5):
        site.broker.enqueue(evaluation(f"e{number}", create_index=number))
    for _ in range(TRACKED_LIMIT + 5):
        delivery = site.broker.dequeue(["service"])
        site.broker.ack(delivery.evaluation.id, delivery.token)
    assert site.timer_s("wait_time")[0] == site.timer_s("response_time")[0] == TRACKED_LIMIT
    # There is room for times again.
    site.broker.enqueue(evaluation("a"))
    site.broker.ack("a", site.broker.dequeue(["service"]).token)
    assert site.timer_s("wait_time")[0] == TRACKED_LIMIT + 1
    assert site.timer_s("process_time")[0] == TRACKED_LIMIT + 6


def test_what_never_comes_back_takes_up_no_room():
    """Superseded and dropped evaluations leave no times behind."""
    site = Site()
    for turn in range(3):
        for number in range(TRACKED_LIMIT // 2):
            site.broker.enqueue(evaluation(f"e{turn}-{number}", job_id="web"))
            delayed = evaluation(f"d{turn}-{number}", wait_until=site.clock.now_ns() + 10**9)
            site.broker.enqueue(delayed)
            site.broker.drop_waiting(delayed)
        for _ in range(2):
            delivery = site.broker.dequeue(["service"])
            site.broker.ack(delivery.evaluation.id, delivery.token)
        site.broker.cancelable(TRACKED_LIMIT)
    assert site.broker.known_ids() == set()
    assert site.timer_s("wait_time")[0] == 6


def test_gauges():
    site = Site(delivery_limit=1)
    assert site.gauges() == {}
    for name, fields in {
        "failed": {},
        "held": {"type": "batch", "job_id": "web"},
        "behind": {"type": "batch", "job_id": "web"},
        "ready": {"type": "system"},
        "later": {"wait": 10**9},
    }.items():
        site.broker.enqueue(evaluation(name, **fields))
    site.broker.nack("failed", site.broker.dequeue(["service"]).token)
    site.broker.dequeue(["batch"])
    expected = {"total_ready": 2, "total_unacked": 1, "total_pending": 1, "total_waiting": 1}
    assert site.gauges() == {**expected, f"{FAILED_QUEUE}.ready": 1, "system.ready": 1, "batch.unacked": 1}
    site.broker.set_enabled(False)
    assert site.gauges() == {}


def test_how_long_delayed_jobs_wait():
    site = Site()
    for name, seconds in (("a", 30), ("b", 10), ("c", 20)):
        job_id = "web" if name < "c" else "db"
        site.broker.enqueue(evaluation(name, job_id=job_id, wait_until=site.clock.now_ns() + seconds * 10**9))
    site.clock.advance(4)
    site.broker.report()
    assert site.metrics["nomad.broker.eval_waiting"].values == {"default/web": 6.0, "default/db": 16.0}
    site.clock.advance(10)
    site.broker.report()
    # Due, and nobody has told the broker yet.
    assert site.metrics["nomad.broker.eval_waiting"].values == {"default/web": 0.0, "default/db": 6.0}


def test_without_metrics_a_report_is_nothing():
    broker = new_broker(VirtualClock())
    broker.report()
    assert broker.contradictions() == []


def test_the_tracker_reports_what_is_lacking():
    metrics = Metrics()
    tracker = BlockedEvals(VirtualClock(), None, lambda released: None, BlockedMetrics(metrics))
    tracker.set_enabled(True)

    def lacking(name, cpu, memory, **more):
        metric = AllocMetric(
            nodes_available={"dc1": 3, "dc2": 1},
            class_exhausted={"big": 2},
            node_pool="gpu",
            resources_exhausted={"main": Resources(cpu=cpu, memory_mb=memory), "side": None},
        )
        return evaluation(name, status="blocked", failed_tg_allocs={"group": metric, "other": None}, **more)

    tracker.block(lacking("a", 100, 64))
    tracker.block(lacking("b", 50, 32, escaped_computed_class=True))
    tracker.block(evaluation("c", status="blocked", quota_limit_reached="gold"))
    tracker.report()

    def values(name):
        instrument = metrics[f"nomad.blocked_evals.{name}"].read()
        return instrument.get("values", instrument.get("value"))

    assert (values("total_blocked"), values("total_escaped"), values("total_quota_limit")) == (3, 1, 1)
    assert values("job.cpu") == {"default/job-of-a": 100, "default/job-of-b": 50}
    assert values("job.memory") == {"default/job-of-a": 64, "default/job-of-b": 32}
    assert values("cpu") == {"dc1/big/gpu": 150, "dc2/big/gpu": 150}
    assert values("memory") == {"dc1/big/gpu": 96, "dc2/big/gpu": 96}
    tracker.untrack("default", "job-of-a")
    tracker.unblock("any", 7)
    tracker.report()
    assert (values("total_blocked"), values("total_escaped"), values("total_quota_limit")) == (0, 0, 0)
    assert values("job.cpu") == values("job.memory") == values("cpu") == values("memory") == {}
