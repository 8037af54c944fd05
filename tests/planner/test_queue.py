"""Plan queue: plan-apply 7.1 to 7.4, cases Q1 to Q8, known faults 48 and 49."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import dataclass

import pytest

from fastplan.clock import SystemClock
from fastplan.errors import QueueDisabled
from fastplan.planner.queue import PlanQueue
from fastplan.testing.clock import VirtualClock, run_virtual


@dataclass(frozen=True)
class Numbered:
    number: int
    priority: int = 50


def enabled_queue(clock: SystemClock | VirtualClock | None = None) -> PlanQueue[Numbered]:
    queue: PlanQueue[Numbered] = PlanQueue(clock or SystemClock())
    queue.set_enabled(True)
    return queue


def taken(queue: PlanQueue[Numbered], limit: int = 1000) -> list[int]:
    return [pending.plan.number for pending in queue.drain(limit)]


def test_q1_a_new_queue_is_disabled() -> None:
    queue: PlanQueue[Numbered] = PlanQueue(SystemClock())
    for call in (lambda: queue.enqueue(Numbered(1)), lambda: queue.dequeue(0.01), lambda: queue.drain(1)):
        with pytest.raises(QueueDisabled, match=r"^plan queue is disabled$"):
            call()


def test_q2_highest_priority_first() -> None:
    queue = enabled_queue()
    for priority in (10, 30, 20):
        queue.enqueue(Numbered(priority, priority))
    pending = queue.dequeue(0.01)
    assert pending is not None
    assert pending.plan.number == 30
    assert taken(queue) == [20, 10]


def test_q3_equal_priorities_in_order_of_arrival() -> None:
    queue = enabled_queue()
    for number in range(100):
        queue.enqueue(Numbered(number))
    assert taken(queue, 30) == list(range(30))
    assert taken(queue) == list(range(30, 100))


def test_drain_mixes_priorities_in_order() -> None:
    queue = enabled_queue()
    for number in range(50):
        queue.enqueue(Numbered(number, number % 3))
    wanted = sorted(range(50), key=lambda number: (-(number % 3), number))
    assert taken(queue, 20) + taken(queue) == wanted
    assert taken(queue) == []


def test_q4_an_empty_queue_gives_nothing_in_time() -> None:
    queue = enabled_queue()
    start = time.monotonic()
    assert queue.dequeue(0.005) is None
    assert time.monotonic() - start >= 0.005


def test_q4_under_virtual_time() -> None:
    clock = VirtualClock()
    queue = enabled_queue(clock)
    assert run_virtual(queue.dequeue_async(0.005), clock) is None
    assert clock.monotonic_s() == pytest.approx(0.005)


def test_q5_disabling_flushes() -> None:
    queue = enabled_queue()
    pending = queue.enqueue(Numbered(1))
    queue.set_enabled(False)
    with pytest.raises(QueueDisabled, match=r"^plan queue flushed$"):
        pending.wait(0)
    assert queue.stats().depth == 0


def test_q6_disabling_ends_a_thread_that_waits_for_ever() -> None:
    queue = enabled_queue()
    errors: list[str] = []

    def take() -> None:
        try:
            queue.dequeue(0)
        except QueueDisabled as error:
            errors.append(str(error))

    thread = threading.Thread(target=take)
    thread.start()
    time.sleep(0.01)
    # Enabling it again before the taker could look must not leave the taker in the next leadership.
    queue.set_enabled(False)
    queue.set_enabled(True)
    thread.join(5)
    assert errors == ["plan queue is disabled"]


def test_q6_on_an_event_loop() -> None:
    clock = VirtualClock()
    queue = enabled_queue(clock)

    async def run() -> None:
        taker = asyncio.create_task(queue.dequeue_async())
        await asyncio.sleep(1)
        queue.set_enabled(False)
        queue.set_enabled(True)
        with pytest.raises(QueueDisabled, match="plan queue is disabled"):
            await taker

    run_virtual(run(), clock)


def test_q7_depth() -> None:
    queue = enabled_queue()
    queue.enqueue(Numbered(1))
    assert queue.stats().depth == len(queue) == 1
    queue.dequeue(0.01)
    assert queue.stats().depth == 0


def test_q8_every_taker_is_woken() -> None:
    clock = VirtualClock()
    queue = enabled_queue(clock)

    async def run() -> None:
        takers = [asyncio.create_task(queue.dequeue_async()) for _ in range(3)]
        cancelled = asyncio.create_task(queue.dequeue_async())
        await asyncio.sleep(1)
        for number in range(3):
            queue.enqueue(Numbered(number))
        cancelled.cancel()
        numbers = [pending.plan.number for pending in await asyncio.gather(*takers) if pending is not None]
        assert sorted(numbers) == [0, 1, 2]

    run_virtual(run(), clock)


@pytest.mark.parametrize("forever", [0, None])
def test_known_fault_48_waiting_without_a_limit(forever: float | None) -> None:
    queue = enabled_queue()
    taken_plans: list[int] = []

    def take() -> None:
        pending = queue.dequeue(forever)
        assert pending is not None
        taken_plans.append(pending.plan.number)

    thread = threading.Thread(target=take)
    thread.start()
    time.sleep(0.05)
    queue.enqueue(Numbered(7))
    thread.join(5)
    assert taken_plans == [7]
    assert queue.dequeue(0.05) is None


def test_known_fault_49_submitters_hear_of_lost_leadership() -> None:
    async def run() -> None:
        queue = enabled_queue()
        waiting = [asyncio.create_task(wait_for(queue.enqueue(Numbered(number)))) for number in range(10)]
        await asyncio.sleep(0)
        queue.set_enabled(False)
        answers = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 0.1)
        assert [str(answer) for answer in answers] == ["plan queue flushed"] * 10
        assert len(queue) == 0
        with pytest.raises(QueueDisabled):
            queue.enqueue(Numbered(1))
        queue.set_enabled(True)
        queue.enqueue(Numbered(1))
        assert len(queue) == 1

    asyncio.run(run())


async def wait_for(pending: object) -> object:
    return await pending  # type: ignore[misc]


def test_an_answer_is_given_once_and_from_any_thread() -> None:
    async def run() -> None:
        queue = enabled_queue()
        pending = queue.enqueue(Numbered(1))
        with pytest.raises(RuntimeError, match="not answered"):
            pending.result()
        with pytest.raises(TimeoutError):
            pending.wait(0.001)
        thread = threading.Timer(0.01, pending.answer, ("done",))
        thread.start()
        assert await pending == "done"
        assert await pending == pending.wait(0) == pending.result() == "done"
        with pytest.raises(RuntimeError, match="twice"):
            pending.answer("again")
        thread.join()

    asyncio.run(run())


def test_a_cancelled_wait_does_not_take_the_answer_away() -> None:
    async def run() -> None:
        queue = enabled_queue()
        pending = queue.enqueue(Numbered(1))
        waiting = asyncio.create_task(wait_for(pending))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.sleep(0)
        pending.answer("done")
        assert await pending == "done"

    asyncio.run(run())


def test_a_listener_hears_of_arrivals_and_flushes() -> None:
    heard: list[int] = []
    queue = enabled_queue()
    queue.set_listener(lambda: heard.append(len(queue)))
    queue.enqueue(Numbered(1))
    queue.enqueue(Numbered(2))
    queue.set_enabled(False)
    assert heard == [1, 2, 0]


def test_many_threads_lose_and_double_nothing() -> None:
    queue = enabled_queue()
    numbers: list[int] = []

    def take() -> None:
        while (pending := queue.dequeue(0)) is not None:
            if pending.plan.number < 0:
                return
            numbers.append(pending.plan.number)

    def put(first: int) -> None:
        for number in range(first, first + 200):
            queue.enqueue(Numbered(number))

    takers = [threading.Thread(target=take) for _ in range(4)]
    putters = [threading.Thread(target=put, args=(first,)) for first in range(0, 800, 200)]
    for thread in takers + putters:
        thread.start()
    for thread in putters:
        thread.join()
    for _ in takers:
        queue.enqueue(Numbered(-1, priority=0))
    for thread in takers:
        thread.join()
    assert sorted(numbers) == list(range(800))
