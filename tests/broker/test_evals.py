"""What the stories in tests/scenarios/broker do not tell: bad input, clocks, tokens, who hears what."""

import math
import random
import re

import pytest

from fastplan.broker import FAILED_QUEUE, BlockedSettings, BrokerSettings, EvalBroker
from fastplan.errors import BrokerDisabled, InvalidInput
from fastplan.testing import VirtualClock
from tests.broker.evaluations import NACK_TIMEOUT_S, evaluation, new_broker


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("nack_timeout_s", 0.0),
        ("nack_timeout_s", -1.0),
        ("nack_timeout_s", math.nan),
        ("nack_timeout_s", math.inf),
        ("nack_timeout_s", "60"),
        ("nack_timeout_s", 10**400),
        ("delivery_limit", 0),
        ("delivery_limit", -3),
        ("delivery_limit", 2.5),
        ("delivery_limit", True),
        ("initial_nack_delay_s", -0.001),
        ("initial_nack_delay_s", None),
        ("subsequent_nack_delay_s", math.nan),
        ("subsequent_nack_delay_s", math.inf),
    ],
)
def test_settings_that_make_no_sense(name, value):
    with pytest.raises(InvalidInput) as problem:
        BrokerSettings(**{name: value})
    assert problem.value.path == f"broker.{name}"
    assert problem.value.value is value


@pytest.mark.parametrize("value", [-1.0, math.nan, math.inf, "900"])
def test_a_prune_threshold_that_makes_no_sense(value):
    with pytest.raises(InvalidInput) as problem:
        BlockedSettings(prune_threshold_s=value)
    assert problem.value.path == "blocked.prune_threshold_s"


BAD = [("wait_until", "tomorrow", "eval.WaitUntil"), ("wait_until", "2026-02-30T00:00:00Z", "eval.WaitUntil"), ("id", "", "eval.ID")]


@pytest.mark.parametrize(("field", "value", "path"), BAD)
def test_bad_evaluations_change_nothing(field, value, path):
    broker = new_broker(VirtualClock())
    bad = evaluation("bad", **{field: value})
    for call in (broker.enqueue, broker.restore, lambda each: broker.enqueue_all([(evaluation("good"), ""), (each, "")])):
        with pytest.raises(InvalidInput) as problem:
            call(bad)
        assert problem.value.path == path
        assert broker.known_ids() == set()
        assert broker.contradictions() == []


def test_bad_evaluations_are_not_taken_in_again_either():
    broker = new_broker(VirtualClock())
    broker.enqueue(evaluation("a"))
    delivery = broker.dequeue(["service"])
    with pytest.raises(InvalidInput):
        broker.enqueue(evaluation("a", wait_until="tomorrow"), delivery.token)
    broker.ack("a", delivery.token)
    assert broker.known_ids() == set()


def test_a_new_broker_is_off():
    broker = EvalBroker(VirtualClock())
    broker.enqueue(evaluation("a"))
    assert broker.known_ids() == set()
    with pytest.raises(BrokerDisabled, match=r"^eval broker disabled$"):
        broker.dequeue(["service"])


def test_tokens_are_random_uuids():
    broker = new_broker(VirtualClock())
    for number in range(600):
        broker.enqueue(evaluation(f"e{number}"))
    tokens = [broker.dequeue(["service"]).token for _ in range(600)]
    assert len(set(tokens)) == 600
    assert all(re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", token) for token in tokens)


def test_randomness_is_injected():
    def run():
        broker = EvalBroker(VirtualClock(), None, random.Random(7))
        broker.set_enabled(True)
        for number in range(20):
            broker.enqueue(evaluation(f"e{number}", type=("service", "batch")[number % 2]))
        return [broker.dequeue(["service", "batch"]) for _ in range(20)]

    assert run() == run()


def test_a_queue_that_is_named_twice_is_drawn_once():
    broker = new_broker(VirtualClock())
    for number in range(400):
        broker.enqueue(evaluation(f"e{number}", type=("service", "batch")[number % 2]))
    first = [broker.dequeue(["service"] * 9 + ["batch"]).queue for _ in range(200)]
    assert 70 < first.count("batch") < 130


def test_a_wait_that_was_dropped_does_not_end_another_one():
    clock = VirtualClock()
    broker = new_broker(clock)
    first = evaluation("a", wait_until=clock.now_ns() + 10**9)
    broker.enqueue(first)
    broker.drop_waiting(first)
    broker.enqueue(evaluation("a", wait_until=clock.now_ns() + 3 * 10**9))
    clock.advance(2)
    broker.advance()
    assert broker.stats().total_waiting == 1
    clock.advance(1)
    broker.advance()
    assert broker.stats().total_ready == 1


def test_a_wall_clock_set_back_ends_no_wait_early_and_no_timer_late():
    clock = VirtualClock()
    broker = new_broker(clock, initial_nack_delay_s=0.0)
    broker.enqueue(evaluation("held"))
    broker.dequeue(["service"])
    broker.enqueue(evaluation("delayed", wait_until=clock.now_ns() + 10**9))
    broker.enqueue(evaluation("waiting", wait=10**9))
    clock.jump_wall(-86_400)
    assert broker.next_deadline_s() == pytest.approx(clock.monotonic_s() + 1)
    clock.advance(NACK_TIMEOUT_S)
    broker.advance()
    assert (broker.stats().total_ready, broker.stats().total_waiting) == (2, 1)
    assert broker.next_deadline_s() == pytest.approx(clock.monotonic_s() + 86_400 + 1 - NACK_TIMEOUT_S)


def test_a_wall_clock_set_forward_ends_delays_alone():
    clock = VirtualClock()
    broker = new_broker(clock)
    broker.enqueue(evaluation("held"))
    token = broker.dequeue(["service"]).token
    broker.enqueue(evaluation("delayed", wait_until=clock.now_ns() + 10**9))
    broker.enqueue(evaluation("waiting", wait=10**9))
    clock.jump_wall(86_400)
    broker.advance()
    assert (broker.stats().total_ready, broker.stats().total_waiting) == (1, 1)
    assert broker.outstanding("held") == token


def test_a_delay_in_text_is_a_delay():
    clock = VirtualClock()
    broker = new_broker(clock)
    broker.enqueue(evaluation("a", wait_until="2023-11-14T22:13:21Z"))
    assert broker.next_deadline_s() == pytest.approx(1.0)


def test_the_listener_hears_of_what_is_ready_and_of_deadlines():
    clock = VirtualClock()
    broker = new_broker(clock, delivery_limit=2)
    heard = []
    broker.set_listener(lambda: heard.append(broker.has_ready(["service", FAILED_QUEUE])))

    def during(work):
        heard.clear()
        work()
        return list(heard)

    assert during(lambda: broker.enqueue(evaluation("a"))) == [True]
    assert during(lambda: broker.enqueue(evaluation("a"))) == []
    assert during(lambda: broker.enqueue(evaluation("b", job_id="job-of-a"))) == []
    token = broker.dequeue(["service"]).token
    assert during(lambda: broker.nack("a", token)) == [False]
    clock.advance(1)
    assert during(broker.advance) == [True]
    token = broker.dequeue(["service"]).token
    assert during(lambda: broker.nack("a", token)) == [True]
    token = broker.dequeue([FAILED_QUEUE]).token
    assert during(lambda: broker.ack("a", token)) == [True]
    assert during(lambda: broker.enqueue_all([(evaluation("c"), ""), (evaluation("d"), "")])) == [True]
    assert during(lambda: broker.set_enabled(True)) == []
    assert during(lambda: broker.set_enabled(False)) == [False]


def test_what_is_drawn_in_the_listener_is_gone_for_the_next():
    broker = new_broker(VirtualClock())
    taken = []
    broker.set_listener(lambda: taken.append(broker.dequeue(["service"])))
    broker.enqueue(evaluation("a"))
    assert [delivery.evaluation.id for delivery in taken] == ["a"]
    assert broker.contradictions() == []


def test_records_are_shared_and_never_changed():
    clock = VirtualClock()
    broker = new_broker(clock, delivery_limit=2)
    given = evaluation("a", wait_until=clock.now_ns() + 10**9)
    before = given.copy()
    broker.enqueue(given)
    clock.advance(1)
    broker.advance()
    for queue in ("service", "service", FAILED_QUEUE):
        delivery = broker.dequeue([queue])
        assert delivery.evaluation is given
        broker.nack("a", delivery.token)
        clock.advance(1)
        broker.advance()
    assert given == before


def test_a_listener_never_sees_a_part_of_a_batch():
    broker = new_broker(VirtualClock())
    taken = []
    broker.set_listener(lambda: taken.append(broker.dequeue(["service"])))
    broker.enqueue_all([(evaluation("low", priority=10), ""), (evaluation("later", wait=10**9), ""), (evaluation("high", priority=90), "")])
    assert [delivery.evaluation.id for delivery in taken] == ["high"]


def test_a_listener_never_sees_a_part_of_what_is_due():
    clock = VirtualClock()
    broker = new_broker(clock, initial_nack_delay_s=0.0)
    broker.enqueue(evaluation("held", priority=10))
    broker.dequeue(["service"])
    broker.enqueue_all([(evaluation("waited", wait=10**9), ""), (evaluation("urgent", priority=90, wait_until=clock.now_ns() + 10**9), "")])
    taken = []
    broker.set_listener(lambda: taken.append(broker.dequeue(["service"])))
    clock.advance(NACK_TIMEOUT_S)
    broker.advance()
    assert [delivery.evaluation.id for delivery in taken] == ["urgent"]
    assert broker.contradictions() == []


def test_what_is_taken_in_again_is_forgotten_when_the_timer_fires():
    clock = VirtualClock()
    broker = new_broker(clock, initial_nack_delay_s=0.0)
    broker.enqueue(evaluation("a"))
    broker.enqueue(evaluation("a"), broker.dequeue(["service"]).token)
    clock.advance(NACK_TIMEOUT_S)
    broker.advance()
    assert broker.contradictions() == []
    broker.ack("a", broker.dequeue(["service"]).token)
    assert broker.known_ids() == set()


def test_delays_that_were_dropped_leave_nothing_behind():
    """Not even behind one that is due sooner, which keeps what lies below it in the heap from coming up."""
    clock = VirtualClock()
    broker = new_broker(clock)
    broker.enqueue(evaluation("soon", wait_until=clock.now_ns() + 10**9))
    chosen = random.Random(1)
    kept = [evaluation(f"kept{due_s}", wait_until=clock.now_ns() + due_s * 10**9) for due_s in chosen.sample(range(2901, 3001), 100)]
    for each in kept:
        broker.enqueue(each)
    for number in range(2000):
        void = evaluation(f"void{number}", wait_until=clock.now_ns() + chosen.randrange(2000, 4000) * 10**9)
        broker.enqueue(void)
        broker.drop_waiting(void)
        assert len(broker._delay_heap) < 400
    start_s = clock.monotonic_s()
    for due_s in (1, *range(2901, 3001)):
        assert broker.next_deadline_s() == pytest.approx(start_s + due_s)
        clock.advance(start_s + due_s - clock.monotonic_s())
        broker.advance()
    clock.advance(5000)
    broker.advance()
    assert broker.known_ids() == {"soon", *(each.id for each in kept)}
    assert (broker.stats().total_ready, broker.stats().total_waiting, broker.next_deadline_s()) == (101, 0, None)
