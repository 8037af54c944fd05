"""Waiting at the gate, on an event loop under virtual time (worker-and-broker 3.4, 4; 11.1 rows 4, 5, 6, 11 and 37, 11.2 row 49)."""

import asyncio
import random

import pytest

from fastplan.broker import FAILED_QUEUE, BrokerGate, Delivery, EvalBroker
from fastplan.errors import BrokerDisabled
from fastplan.testing import VirtualClock, run_virtual
from tests.broker.evaluations import NACK_TIMEOUT_S, evaluation, new_broker

QUEUES = ("service",)


class Site:
    def __init__(self, *, on=True, **settings):
        self.clock = VirtualClock()
        self.broker = new_broker(self.clock, **settings)
        self.broker.set_enabled(on)
        self.gate = BrokerGate(self.broker, self.clock)

    async def waiting(self, queues=QUEUES, timeout_s=None):
        """Return a task that waits for an evaluation, and has begun to."""
        task = asyncio.create_task(self.gate.dequeue(queues, timeout_s))
        await asyncio.sleep(0)
        assert not task.done()
        return task


def run(story, **settings):
    site = Site(**settings)
    run_virtual(story(site), site.clock)
    assert site.broker.contradictions() == []


def test_nothing_comes_in_time():
    async def story(site):
        assert await site.gate.dequeue(QUEUES, 0.005) is None
        assert 0.005 <= site.clock.monotonic_s() < 0.006

    run(story)


def test_what_is_there_is_returned_at_once_even_without_time():
    async def story(site):
        assert await site.gate.dequeue(QUEUES, 0.0) is None
        site.broker.enqueue(evaluation("a"))
        assert (await site.gate.dequeue(QUEUES, 0.0)).evaluation.id == "a"
        assert site.clock.monotonic_s() == 0

    run(story)


def test_without_a_time_it_waits_for_ever():
    async def story(site):
        task = await site.waiting()
        await asyncio.sleep(86_400)
        assert not task.done()
        site.broker.enqueue(evaluation("a"))
        assert (await task).evaluation.id == "a"
        assert site.clock.monotonic_s() == 86_400

    run(story)


def test_switching_off_ends_the_wait():
    async def story(site):
        task = await site.waiting(timeout_s=10)
        site.broker.set_enabled(False)
        with pytest.raises(BrokerDisabled, match=r"^eval broker disabled$"):
            await task
        assert site.clock.monotonic_s() == 0

    run(story)


def test_switched_off_and_on_again_it_goes_on():
    async def story(site):
        task = await site.waiting(timeout_s=10)
        site.broker.set_enabled(False)
        site.broker.set_enabled(True)
        site.broker.enqueue(evaluation("a"))
        assert (await task).evaluation.id == "a"

    run(story)


def test_other_queues_do_not_count_and_a_vain_wake_up_gives_no_more_time():
    async def story(site):
        task = await site.waiting(("batch",), 0.1)
        await asyncio.sleep(0.06)
        site.broker.enqueue(evaluation("a"))
        assert await task is None
        assert site.clock.monotonic_s() == pytest.approx(0.1, abs=1e-4)
        assert site.broker.stats().total_ready == 1

    run(story)


def test_of_a_batch_the_most_urgent_comes():
    async def story(site):
        task = await site.waiting()
        site.broker.enqueue_all([(evaluation(f"e{priority}", priority=priority), "") for priority in range(10, 91, 10)])
        assert (await task).evaluation.id == "e90"

    run(story)


def test_a_broker_that_is_off_is_waited_for_without_an_error():
    async def story(site):
        assert await site.gate.dequeue(QUEUES, 0.05) is None
        assert site.clock.monotonic_s() == pytest.approx(0.05, abs=1e-4)

    run(story, on=False)


def test_a_broker_that_is_switched_on_is_looked_at_once():
    async def story(site):
        task = await site.waiting(timeout_s=0.05)
        await asyncio.sleep(0.02)
        site.broker.set_enabled(True)
        assert await task is None
        assert site.clock.monotonic_s() == pytest.approx(0.02)
        site.broker.set_enabled(False)
        task = await site.waiting(timeout_s=0.05)
        site.broker.set_enabled(True)
        site.broker.restore(evaluation("a"))
        assert (await task).evaluation.id == "a"

    run(story, on=False)


def test_each_evaluation_wakes_one_waiter_to_success():
    async def story(site):
        tasks = [await site.waiting() for _ in range(3)]
        for name in "abc":
            site.broker.enqueue(evaluation(name))
        assert {(await task).evaluation.id for task in tasks} == {"a", "b", "c"}

    run(story)


def test_a_waiter_that_is_cancelled_takes_nothing_with_it():
    async def story(site):
        task = await site.waiting()
        site.broker.enqueue(evaluation("a"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert site.broker.stats().total_ready == 1
        assert (await site.gate.dequeue(QUEUES, 0.0)).evaluation.id == "a"

    run(story)


@pytest.mark.parametrize(("delay_s", "fields"), [(1.0, {"wait": 10**9}), (3600.0, {"wait": 3600 * 10**9})])
def test_a_wait_that_ends_wakes(delay_s, fields):
    async def story(site):
        site.broker.enqueue(evaluation("a", **fields))
        assert (await site.gate.dequeue(QUEUES, None)).evaluation.id == "a"
        assert site.clock.monotonic_s() == pytest.approx(delay_s, abs=1e-5)

    run(story)


def test_an_earlier_deadline_that_comes_later_counts():
    async def story(site):
        site.broker.enqueue(evaluation("late", wait=3600 * 10**9))
        task = await site.waiting()
        site.broker.enqueue(evaluation("early", wait_until=site.clock.now_ns() + 10**9))
        assert (await task).evaluation.id == "early"
        assert site.clock.monotonic_s() == pytest.approx(1.0, abs=1e-5)

    run(story)


def test_a_nack_timer_fires_while_nobody_waits():
    async def story(site):
        site.broker.enqueue(evaluation("a"))
        first = await site.gate.dequeue(QUEUES, 0.0)
        await asyncio.sleep(NACK_TIMEOUT_S - 0.1)
        assert site.broker.outstanding("a") == first.token
        await asyncio.sleep(0.2)
        assert site.broker.outstanding("a") is None
        second = await site.gate.dequeue(QUEUES, 0.0)
        assert second.token != first.token

    run(story)


def test_a_timer_that_is_started_again_fires_while_nobody_waits():
    async def story(site):
        site.broker.enqueue(evaluation("a"))
        token = (await site.gate.dequeue(QUEUES, 0.0)).token
        site.broker.pause_nack("a", token)
        await asyncio.sleep(100 * NACK_TIMEOUT_S)
        site.broker.resume_nack("a", token)
        await asyncio.sleep(NACK_TIMEOUT_S + 0.001)
        assert site.broker.outstanding("a") is None

    run(story)


def test_what_failed_wakes_who_waits_for_it():
    async def story(site):
        task = await site.waiting((FAILED_QUEUE,))
        site.broker.enqueue(evaluation("a"))
        site.broker.nack("a", (await site.gate.dequeue(QUEUES, 0.0)).token)
        assert (await task).queue == FAILED_QUEUE

    run(story, delivery_limit=1)


def test_a_wall_clock_set_forward_is_noticed():
    async def story(site):
        site.broker.enqueue(evaluation("a", wait_until=site.clock.now_ns() + 3600 * 10**9))
        task = await site.waiting()
        await asyncio.sleep(1)
        site.clock.jump_wall(3600)
        await task
        assert site.clock.monotonic_s() < 12

    run(story)


def test_a_wall_clock_set_back_does_not_make_the_loop_spin():
    async def story(site):
        site.broker.enqueue(evaluation("a", wait_until=site.clock.now_ns() + 10**9))
        looked = 0
        advance = site.broker.advance

        def counted():
            nonlocal looked
            looked += 1
            advance()

        site.broker.advance = counted
        task = await site.waiting()
        site.clock.jump_wall(-3600)
        assert (await task).evaluation.id == "a"
        assert site.clock.monotonic_s() == pytest.approx(3601, abs=1e-3)
        assert looked < 3601 / 10 + 5

    run(story)


def test_whoever_waited_is_forgotten():
    async def story(site):
        for _ in range(3):
            await site.gate.dequeue(QUEUES, 0.01)
        task = await site.waiting()
        assert site.gate.waiting == 1
        site.broker.enqueue(evaluation("a"))
        await task
        assert site.gate.waiting == 0

    run(story)


def test_closing_sends_waiters_away_and_stops_the_timer():
    async def story(site):
        task = await site.waiting()
        site.broker.enqueue(evaluation("held"))
        token = (await task).token
        task = await site.waiting()
        site.gate.close()
        assert await task is None
        assert await site.gate.dequeue(QUEUES, None) is None
        site.broker.enqueue(evaluation("a"))
        await asyncio.sleep(100)
        # Nobody tells the broker the time any more.
        assert site.broker.outstanding("held") == token

    run(story)


def test_a_gate_serves_one_loop_after_the_other():
    clock = VirtualClock()
    broker = EvalBroker(clock)
    broker.set_enabled(True)
    gate = BrokerGate(broker, clock)
    broker.enqueue(evaluation("a", wait=10 * 10**9))
    assert run_virtual(gate.dequeue(QUEUES, 0.001), clock) is None
    assert run_virtual(gate.dequeue(QUEUES, None), clock).evaluation.id == "a"


def test_one_evaluation_wakes_one_caller():
    async def story(site):
        tasks = [await site.waiting() for _ in range(5)]
        other = await site.waiting((FAILED_QUEUE,))
        site.broker.enqueue(evaluation("a"))
        assert site.gate.waiting == 5
        assert (await tasks[0]).evaluation.id == "a"
        # Whoever was not woken has kept the place in the line.
        site.broker.enqueue_all([(evaluation(name), "") for name in "bcd"])
        assert site.gate.waiting == 4
        assert [(await task).evaluation.id for task in tasks[1:4]] == ["b", "c", "d"]
        assert site.gate.waiting == 2
        site.gate.close()
        assert (await tasks[4], await other) == (None, None)

    run(story)


def test_a_caller_who_is_cancelled_when_woken_wakes_the_next():
    async def story(site):
        first, second = await site.waiting(), await site.waiting()
        site.broker.enqueue(evaluation("a"))
        first.cancel()
        assert (await second).evaluation.id == "a"
        assert first.cancelled()

    run(story)


def test_a_caller_whose_evaluation_is_gone_wakes_the_next():
    async def story(site):
        first, second = await site.waiting(), await site.waiting(("batch",))
        site.broker.enqueue_all([(evaluation("a"), ""), (evaluation("b", type="batch"), "")])
        # Somebody takes one past the gate.
        assert site.broker.dequeue(QUEUES).evaluation.id == "a"
        assert (await second).evaluation.id == "b"
        assert not first.done()
        site.gate.close()
        await first

    run(story)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_lies_ready_while_somebody_waits_for_it(seed):
    chosen = random.Random(seed)
    kinds = ("service", "batch", "system")

    async def story(site):
        tasks: list[tuple[list[str], asyncio.Task[Delivery | None]]] = []
        came = taken = 0
        for number in range(200):
            what = chosen.random()
            if what < 0.35:
                queues = chosen.sample(kinds, chosen.randrange(1, 4))
                tasks.append((queues, asyncio.create_task(site.gate.dequeue(queues, chosen.choice((None, None, 0.01))))))
            elif what < 0.7:
                batch = [(evaluation(f"e{number}.{each}", type=chosen.choice(kinds)), "") for each in range(chosen.randrange(1, 4))]
                came += len(batch)
                site.broker.enqueue_all(batch)
            elif what < 0.8 and tasks:
                chosen.choice(tasks)[1].cancel()
            elif what < 0.9:
                taken += site.broker.dequeue(chosen.sample(kinds, 1)) is not None
            if chosen.random() < 0.5:
                await asyncio.sleep(chosen.choice((0, 0, 0.02)))
            else:
                continue
            for _ in range(len(tasks) + 3):
                await asyncio.sleep(0)
            for queues, task in tasks:
                assert task.done() or not site.broker.has_ready(queues)
        for _, task in tasks:
            task.cancel()
        found = await asyncio.gather(*(task for _, task in tasks), return_exceptions=True)
        deliveries = [each for each in found if isinstance(each, Delivery)]
        assert len(deliveries) + taken + site.broker.stats().total_ready == came

    run(story, nack_timeout_s=1000.0)
