"""Fair sharing between namespaces (docs/guide/fairness.md)."""

import random
from collections import Counter

import pytest

from fastplan.broker.ready import FairQueue, PriorityQueue
from fastplan.structs import Evaluation
from fastplan.testing import VirtualClock
from tests.broker.evaluations import evaluation, new_broker


def named(queue, count):
    return [queue.pop().id for _ in range(count)]


def fill(queue, namespace, count, *, priority=50, first=0):
    for number in range(first, first + count):
        queue.push(evaluation(f"{namespace}{number}", namespace=namespace, priority=priority, create_index=number))


def test_a_flood_does_not_hold_up_others():
    queue = FairQueue()
    fill(queue, "flood", 1000)
    fill(queue, "small", 2, first=2000)
    assert named(queue, 5) == ["flood0", "small2000", "flood1", "small2001", "flood2"]


def test_without_fair_share_age_alone_counts():
    queue = PriorityQueue()
    fill(queue, "flood", 1000)
    fill(queue, "small", 2, first=2000)
    assert named(queue, 1001)[-1] == "small2000"


def test_priority_comes_before_fairness():
    queue = FairQueue()
    fill(queue, "a", 3, priority=90)
    fill(queue, "b", 3, priority=50)
    assert queue.priority() == 90
    assert named(queue, 6) == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_within_a_namespace_priority_and_age_count():
    queue = FairQueue()
    for name, priority, created in (("x", 50, 9), ("y", 70, 5), ("z", 50, 1)):
        queue.push(evaluation(name, priority=priority, create_index=created))
    assert named(queue, 3) == ["y", "z", "x"]


def test_having_been_away_earns_nothing():
    queue = FairQueue()
    fill(queue, "a", 100)
    assert len(named(queue, 50)) == 50
    fill(queue, "late", 100, first=500)
    shares = Counter(name.rstrip("0123456789") for name in named(queue, 40))
    assert shares == {"a": 20, "late": 20}


def test_going_and_coming_back_earns_nothing_either():
    queue = FairQueue()
    fill(queue, "a", 100)
    fill(queue, "b", 1)
    assert Counter(name[0] for name in named(queue, 42)) == {"a": 41, "b": 1}
    fill(queue, "b", 30, first=100)
    assert Counter(name[0] for name in named(queue, 20)) == {"a": 10, "b": 10}


def test_whenever_somebody_comes_having_been_away_earns_nothing():
    for turns in range(150):
        queue = FairQueue()
        fill(queue, "a", 100)
        fill(queue, "b", 100)
        named(queue, turns)
        fill(queue, "late", 50, first=500)
        assert Counter(name.rstrip("0123456789") for name in named(queue, 30))["late"] in (10, 11)


def test_what_was_served_is_forgotten_when_nobody_waits():
    queue = FairQueue()
    fill(queue, "a", 50)
    named(queue, 50)
    fill(queue, "a", 2)
    fill(queue, "b", 2)
    assert named(queue, 4) == ["a0", "b0", "a1", "b1"]
    assert len(queue) == 0


@pytest.mark.parametrize("seed", range(20))
def test_random_pushes_and_pops(seed):
    """Nothing is lost, priority order holds, and of two namespaces that wait all the time with equal priority neither gets two more than the other."""
    chosen = random.Random(seed)
    queue, inside = FairQueue(), dict[str, Evaluation]()
    fill(queue, "p", 300)
    fill(queue, "q", 300)
    inside |= {each.id: each for each in queue}
    served: Counter[str] = Counter()
    for number in range(500):
        if chosen.random() < 0.5:
            each = evaluation(f"r{number}", namespace=chosen.choice("rs"), priority=chosen.choice((30, 50, 70)), create_index=number)
            queue.push(each)
            inside[each.id] = each
        else:
            highest = max(each.priority for each in inside.values())
            assert queue.priority() == highest
            each = queue.pop()
            assert each.priority == highest
            assert inside.pop(each.id) is each
            served[each.namespace] += 1
            assert abs(served["p"] - served["q"]) <= 1
        assert len(queue) == len(inside)
    assert {each.id for each in queue} == set(inside)


def test_the_broker_shares_if_told_to():
    def order(**settings):
        broker = new_broker(VirtualClock(), **settings)
        for number in range(10):
            broker.enqueue(evaluation(f"flood{number}", namespace="flood", create_index=number))
        broker.enqueue(evaluation("small", namespace="small", create_index=99))
        return [broker.dequeue(["service"]).evaluation.id for _ in range(11)].index("small")

    assert order(fair_share=True) == 1
    assert order() == 10


def test_a_namespace_s_jobs_still_run_one_at_a_time():
    broker = new_broker(VirtualClock(), fair_share=True)
    for number in range(3):
        broker.enqueue(evaluation(f"e{number}", job_id="web"))
    assert broker.dequeue(["service"]).evaluation.id == "e0"
    assert broker.dequeue(["service"]) is None
    assert broker.contradictions() == []


class PlainFairQueue:
    """The definition, looked up from one end to the other."""

    def __init__(self):
        self.waiting: list[Evaluation] = []
        self.served: dict[str, int] = {}

    def names(self):
        return {each.namespace for each in self.waiting}

    def push(self, each):
        if each.namespace not in self.names():
            self.served[each.namespace] = max(self.served.get(each.namespace, 0), min((self.served[name] for name in self.names()), default=0))
        self.waiting.append(each)

    def pop(self):
        heads = {
            name: min((each for each in self.waiting if each.namespace == name), key=lambda each: (-each.priority, each.create_index)) for name in self.names()
        }
        each = min(heads.values(), key=lambda each: (-each.priority, self.served[each.namespace], each.namespace))
        self.waiting.remove(each)
        self.served[each.namespace] += 1
        if not self.waiting:
            self.served = {}
        return each


@pytest.mark.parametrize("seed", range(20))
def test_every_turn_is_that_of_the_definition(seed):
    chosen = random.Random(seed)
    queue, plain = FairQueue(), PlainFairQueue()
    namespaces = [f"n{number}" for number in range(chosen.choice((2, 5, 30)))]
    priorities = chosen.choice(((50,), (30, 50, 70)))
    for number in range(600):
        # Mostly coming, then mostly going: now and then nobody waits.
        if chosen.random() < (0.6 if number // 50 % 2 else 0.4):
            namespace = chosen.choice(namespaces) if chosen.random() < 0.8 else f"visitor{number}"
            each = evaluation(f"e{number}", namespace=namespace, priority=chosen.choice(priorities), create_index=number)
            queue.push(each)
            plain.push(each)
        elif plain.waiting:
            assert queue.pop() is plain.pop()
        assert len(queue) == len(plain.waiting)


@pytest.mark.parametrize("priority", [90, 50])
def test_turns_that_are_over_do_not_pile_up(priority):
    """Not even below those of namespaces with more urgent work, where they never come up."""
    queue = FairQueue()
    for name in "abc":
        fill(queue, name, 2)
    for number in range(5000):
        queue.push(evaluation(f"e{number}", namespace="abc"[number % 3], priority=priority, create_index=number))
        assert queue.pop().priority == priority
        assert len(queue._turns) + len(queue._shares) < 100
    assert len(queue) == 6


def test_a_turn_costs_the_same_with_many_namespaces():
    class Counted(str):
        looks = 0
        __hash__ = str.__hash__

        def __eq__(self, other):
            return str.__eq__(self, other)

        def __lt__(self, other):
            Counted.looks += 1
            return str.__lt__(self, other)

    def looks_a_turn(namespaces):
        queue = FairQueue()
        for number in range(namespaces):
            for turn in range(2):
                queue.push(evaluation(f"e{number}.{turn}", namespace=Counted(f"n{number:05}"), create_index=number))
        Counted.looks = 0
        for _ in range(100):
            queue.pop()
        return Counted.looks / 100

    assert looks_a_turn(2000) < 3 * looks_a_turn(50)
