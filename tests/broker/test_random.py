"""Random operations on broker and model (worker-and-broker 11.1, row 45): no evaluation is lost, each has one holder, each job one evaluation at work."""

import random

import pytest

from fastplan.broker import FAILED_QUEUE, BrokerSettings, EvalBroker
from fastplan.errors import BrokerDisabled, BrokerError, TokenRejected
from fastplan.structs import Evaluation
from fastplan.testing import VirtualClock
from tests.broker.model import OWNING, Model

TYPES = ("service", "batch", "system")
SETTINGS = (
    BrokerSettings(nack_timeout_s=4.0, delivery_limit=3, initial_nack_delay_s=1.0, subsequent_nack_delay_s=5.0),
    BrokerSettings(nack_timeout_s=4.0, delivery_limit=2, initial_nack_delay_s=0.0, subsequent_nack_delay_s=0.0),
    BrokerSettings(nack_timeout_s=4.0, delivery_limit=1, initial_nack_delay_s=1.0, subsequent_nack_delay_s=1.0, fair_share=True),
)


class Session:
    """A broker and its model, told the same."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.clock = VirtualClock()
        settings = self.random.choice(SETTINGS)
        self.broker = EvalBroker(self.clock, settings, random.Random(seed))
        self.broker.set_enabled(True)
        self.model = Model(settings)
        self.tokens = {"never issued"}
        self.number = 0

    def now(self):
        return self.clock.monotonic_s(), self.clock.now_ns()

    def evaluation(self):
        if self.model.records and self.random.random() < 0.2:
            known = self.random.choice(list(self.model.records.values())).evaluation
            return known if self.random.random() < 0.5 else Evaluation(id=known.id, namespace=known.namespace, job_id=known.job_id, type=known.type)
        self.number += 1
        delay = self.random.random()
        return Evaluation(
            id=f"eval-{self.number}",
            namespace=self.random.choice(("default", "prod")),
            job_id=f"job-{self.random.randrange(5)}",
            priority=self.random.choice((10, 50, 90)),
            type=self.random.choice(TYPES),
            create_index=self.random.randrange(20),
            modify_index=self.random.randrange(20),
            wait=self.random.randrange(1, 9) * 10**9 if delay < 0.1 else 0,
            wait_until=self.clock.now_ns() + self.random.randrange(-3, 9) * 10**9 if 0.1 < delay < 0.3 else "",
        )

    def held(self):
        """Return an id and a token, mostly of a delivery that is not over."""
        held = self.model.at("held")
        if held and self.random.random() < 0.8:
            record = self.random.choice(held)
            return record.evaluation.id, record.token
        return f"eval-{self.random.randrange(self.number + 2)}", self.random.choice(sorted(self.tokens))

    def enqueue(self):
        batch = []
        for _ in range(self.random.choice((1, 1, 1, 3))):
            evaluation = self.evaluation()
            record = self.model.records.get(evaluation.id)
            batch.append((evaluation, record.token if record is not None and self.random.random() < 0.7 else self.random.choice(("", "another"))))
        self.broker.enqueue_all(batch)
        for evaluation, token in batch:
            self.model.enqueue(evaluation, token, *self.now())

    def dequeue(self):
        queues = self.random.sample([*TYPES, FAILED_QUEUE], self.random.randrange(1, 5))
        expected = self.model.may_be_delivered(queues)
        assert self.broker.has_ready(queues) is bool(expected)
        delivery = self.broker.dequeue(queues)
        if delivery is None:
            assert not expected
            return
        eval_id = delivery.evaluation.id
        assert eval_id in expected
        # One at work: nobody else has an evaluation of the job.
        assert [record.evaluation.id for record in self.model.at(*OWNING) if record.job == self.model.records[eval_id].job] == [eval_id]
        assert delivery.queue == self.model.records[eval_id].queue
        assert delivery.token not in self.tokens
        self.tokens.add(delivery.token)
        self.model.delivered(eval_id, delivery.token, self.clock.monotonic_s())

    def ack(self):
        eval_id, token = self.held()
        record = self.model.holder(eval_id, token)
        in_time = record is not None and (record.deadline_s is None or record.deadline_s > self.clock.monotonic_s())
        try:
            self.broker.ack(eval_id, token)
        except BrokerError:
            assert not in_time
            self.forget_again(token)
        else:
            assert in_time
            self.model.ack(eval_id, *self.now())

    def nack(self):
        eval_id, token = self.held()
        record = self.model.holder(eval_id, token)
        try:
            self.broker.nack(eval_id, token)
        except BrokerError:
            assert record is None
            self.forget_again(token)
        else:
            assert record is not None
            self.model.nack(eval_id, self.clock.monotonic_s())

    def forget_again(self, token):
        """A call that is refused, for whichever evaluation, forgets what was to be taken in again with its token."""
        for record in self.model.at("held"):
            if record.token == token:
                record.again = None

    def hold_longer(self):
        eval_id, token = self.held()
        record = self.model.holder(eval_id, token)
        runs = record is not None and record.deadline_s is not None and record.deadline_s > self.clock.monotonic_s()
        call, allowed, paused = self.random.choice(
            (
                (self.broker.outstanding_reset, runs, False),
                (self.broker.pause_nack, runs, True),
                (self.broker.resume_nack, record is not None, False),
            )
        )
        try:
            call(eval_id, token)
        except TokenRejected:
            assert not allowed
        else:
            assert allowed
            assert record is not None
            record.deadline_s = None if paused else self.clock.monotonic_s() + self.model.settings.nack_timeout_s
            self.model._move(record, "held")

    def drop(self):
        evaluation = Evaluation(id=f"eval-{self.random.randrange(self.number + 2)}")
        self.broker.drop_waiting(evaluation)
        self.model.drop(evaluation.id)

    def reap(self):
        count = self.random.randrange(4)
        expected, self.model.cancelable = self.model.cancelable[:count], self.model.cancelable[count:]
        assert [each.id for each in self.broker.cancelable(count)] == expected

    def pass_time(self):
        """Go to the next deadline, to some other time, or set the wall clock."""
        kind = self.random.random()
        deadline_s = self.broker.next_deadline_s()
        if kind < 0.2:
            self.clock.jump_wall(self.random.uniform(-5, 5))
        elif kind < 0.6 and deadline_s is not None:
            self.clock.advance(max(deadline_s - self.clock.monotonic_s(), 0) + 1e-6)
        else:
            self.clock.advance(self.random.uniform(0, 3))
        if kind < 0.9:
            self.broker.advance()
            self.model.advance(*self.now())

    def switch(self):
        if self.random.random() > 0.05:
            return
        self.broker.set_enabled(False)
        with pytest.raises(BrokerDisabled):
            self.broker.dequeue(TYPES)
        self.broker.enqueue(self.evaluation())
        assert self.broker.known_ids() == set()
        assert self.broker.next_deadline_s() is None
        self.broker.set_enabled(True)
        self.model = Model(self.model.settings)

    def check(self):
        assert self.broker.contradictions() == []
        stats = self.broker.stats()
        totals, by_queue = self.model.figures()
        assert totals == {
            "ready": stats.total_ready,
            "unacked": stats.total_unacked,
            "pending": stats.total_pending,
            "waiting": stats.total_waiting,
            "cancelable": stats.total_cancelable,
        }
        assert {name: (queue.ready, queue.unacked) for name, queue in stats.by_scheduler.items()} == by_queue
        assert set(stats.delayed_evals) == {record.evaluation.id for record in self.model.at("delayed")}
        assert self.broker.known_ids() == {*self.model.records, *self.model.cancelable}
        for record in self.model.records.values():
            assert self.broker.outstanding(record.evaluation.id) == (record.token if record.place == "held" else None)

    def finish(self):
        """Let time pass and handle everything: whatever came and was not superseded is delivered, at least once."""
        for _ in range(1000):
            self.clock.advance(10)
            self.broker.advance()
            self.model.advance(*self.now())
            while (delivery := self.broker.dequeue([*TYPES, FAILED_QUEUE])) is not None:
                self.model.delivered(delivery.evaluation.id, delivery.token, self.clock.monotonic_s())
                self.broker.ack(delivery.evaluation.id, delivery.token)
                self.model.ack(delivery.evaluation.id, *self.now())
            self.check()
            for record in self.model.at("held"):
                # A worker that had stopped its timer dies; its plan fails.
                self.broker.resume_nack(record.evaluation.id, record.token)
                record.deadline_s = self.clock.monotonic_s() + self.model.settings.nack_timeout_s
            if not self.model.records:
                break
        assert self.broker.is_idle()
        assert self.broker.stats().total_waiting == 0


@pytest.mark.parametrize("seed", range(30))
def test_random_operations(seed):
    session = Session(seed)
    work = [session.enqueue, session.dequeue, session.ack, session.nack, session.hold_longer, session.drop, session.reap, session.pass_time, session.switch]
    for _ in range(300):
        session.random.choices(work, weights=(6, 7, 4, 2, 2, 1, 1, 3, 1))[0]()
        session.check()
    session.finish()


@pytest.mark.slow
def test_many_random_operations():
    for seed in range(1000, 1300):
        test_random_operations(seed)
