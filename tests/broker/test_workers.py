"""Careless workers at one gate, under virtual time: they are slow, die, give back, and pause; nothing is lost and no job is worked on twice at a time."""

import asyncio
import random
from collections import Counter

import pytest

from fastplan.broker import FAILED_QUEUE, BrokerGate
from fastplan.errors import BrokerDisabled, BrokerError, TokenRejected
from fastplan.testing import VirtualClock, run_virtual
from tests.broker.evaluations import evaluation, new_broker

QUEUES = ("service", "batch")
NACK_TIMEOUT_S = 2.0
WORKERS = 5
COUNT = 150


class Site:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.clock = VirtualClock()
        self.broker = new_broker(self.clock, nack_timeout_s=NACK_TIMEOUT_S, initial_nack_delay_s=0.5, fair_share=bool(seed % 2))
        self.gate = BrokerGate(self.broker, self.clock)
        self.deliveries: Counter[str] = Counter()
        self.handled: Counter[str] = Counter()
        self.canceled = []
        self.at_work = {}
        self.all = {}

    async def produce(self):
        for number in range(COUNT):
            fields = {
                "namespace": self.random.choice(("default", "prod")),
                "job_id": f"job-{self.random.randrange(20)}",
                "type": self.random.choice(QUEUES),
                "priority": self.random.choice((10, 50)),
                "create_index": number,
                "modify_index": number,
            }
            if self.random.random() < 0.2:
                fields |= self.random.choice(({"wait": 10**9}, {"wait_until": self.clock.now_ns() + 2 * 10**9}))
            each = evaluation(f"e{number}", **fields)
            self.all[each.id] = each
            self.broker.enqueue(each)
            await asyncio.sleep(self.random.choice((0, 0, 0.01, 0.3)))

    async def work(self, queues):
        while True:
            delivery = await self.gate.dequeue(queues, self.random.choice((0.1, 1.0, None)))
            if delivery is not None:
                await self.handle(delivery)

    async def handle(self, delivery):
        each, token = delivery.evaluation, delivery.token
        job = each.namespace, each.job_id
        # Whoever had the job before has lost it.
        former = self.at_work.get(job)
        assert former is None or self.broker.outstanding(former.evaluation.id) != former.token
        self.at_work[job] = delivery
        self.deliveries[each.id] += 1
        paused = False
        try:
            if self.random.random() < 0.3:
                self.broker.pause_nack(each.id, token)
                paused = True
                await asyncio.sleep(3 * NACK_TIMEOUT_S)
                self.broker.resume_nack(each.id, token)
                paused = False
            await asyncio.sleep(self.random.choice((0, 0.05, 0.05, 0.5, 1.5 * NACK_TIMEOUT_S)))
            outcome = self.random.random()
            if outcome < 0.7:
                self.broker.ack(each.id, token)
                self.handled[each.id] += 1
                self.canceled += self.broker.cancelable(self.random.randrange(3))
            elif outcome < 0.85:
                self.broker.nack(each.id, token)
            # Else it dies: nobody hears of it again.
        except (BrokerError, TokenRejected):
            assert not paused, "a delivery was taken away while its timer stood"
            assert self.broker.outstanding(each.id) != token

    async def story(self):
        workers = [asyncio.create_task(self.work(QUEUES)) for _ in range(WORKERS)]
        workers.append(asyncio.create_task(self.work((FAILED_QUEUE,))))
        await self.produce()
        async with asyncio.timeout(3600):
            while self.broker.known_ids():
                await asyncio.sleep(1)
                assert self.broker.contradictions() == []
                self.canceled += self.broker.cancelable(100)
        # Whoever sleeps over a delivery that was taken away wakes up.
        await asyncio.sleep(10)
        assert not any(worker.done() for worker in workers)
        self.broker.set_enabled(False)
        outcomes = await asyncio.gather(*workers, return_exceptions=True)
        assert {type(each) for each in outcomes} == {BrokerDisabled}
        self.gate.close()


@pytest.mark.parametrize("seed", range(12))
def test_careless_workers(seed):
    site = Site(seed)
    run_virtual(site.story(), site.clock)
    ended = Counter(site.handled)
    ended.update(each.id for each in site.canceled)
    assert ended == dict.fromkeys(site.all, 1)
    # At least once; more often where a worker was careless.
    assert set(site.handled) <= set(site.deliveries)
    assert sum(site.deliveries.values()) > sum(site.handled.values())
