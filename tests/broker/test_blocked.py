"""Random operations on the tracker of blocked evaluations beside a plain list (worker-and-broker 5): exact figures, each released exactly once."""

import random
from collections import Counter

import pytest

from fastplan.broker import BlockedEvals, BlockedSettings, Wanted
from fastplan.structs import AllocMetric, Evaluation, Resources
from fastplan.testing import VirtualClock
from tests.broker.evaluations import evaluation

CLASSES = ("c1", "c2", "c3")
QUOTAS = ("gold", "silver")
VOLUMES = ("vol-a", "vol-b")
NODES = ("n1", "n2", "n3")
PRUNED_S = 60.0


def more(known, lacks):
    cpu_mhz, memory_mib = known or (0, 0)
    return Wanted(cpu_mhz + lacks.cpu, memory_mib + lacks.memory_mb)


class Session:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.clock = VirtualClock()
        self.released: list[tuple[Evaluation, str]] = []
        self.tracker = BlockedEvals(self.clock, BlockedSettings(prune_threshold_s=PRUNED_S), self.released.extend)
        self.tracker.set_enabled(True)
        # What the model has: tracked evaluations with their tokens, every unblock with its time, and what became of the others.
        self.tracked = {}
        self.unblocks = []
        self.duplicates = []
        self.index = 100
        self.number = 0
        self.ends: Counter[str] = Counter()

    def evaluation(self):
        self.number += 1
        kind = self.random.choice(("service", "batch", "system", "sysbatch"))
        metric = AllocMetric(
            nodes_available=dict.fromkeys(self.random.sample(["dc1", "dc2"], self.random.randrange(3)), 1),
            class_exhausted=dict.fromkeys(self.random.sample(["big", "small"], self.random.randrange(3)), 1),
            resources_exhausted={"main": Resources(cpu=self.random.randrange(3) * 100, memory_mb=self.random.randrange(3) * 64)},
        )
        return evaluation(
            f"e{self.number}",
            job_id=f"job-{self.random.randrange(6)}",
            type=kind,
            node_id=self.random.choice(("", *NODES)),
            status="blocked",
            triggered_by=self.random.choice(("queued-allocs", "queued-allocs", "max-plan-attempts")),
            create_index=self.random.randrange(max(self.index - 20, 0), self.index + 1),
            snapshot_index=self.random.randrange(max(self.index - 20, 0), self.index + 1),
            class_eligibility={name: self.random.random() < 0.4 for name in CLASSES if self.random.random() < 0.6},
            escaped_computed_class=self.random.random() < 0.3,
            quota_limit_reached=self.random.choice(("", "", "", *QUOTAS)),
            missing_non_node_resources=self.random.sample(VOLUMES, self.random.choice((0, 0, 0, 1, 2))),
            failed_tg_allocs={"web": metric} if self.random.random() < 0.7 else {},
        )

    def place(self, each):
        return each.namespace, each.job_id, each.node_id if each.type in ("system", "sysbatch") else ""

    def missed(self, each):
        newer = {key for key, index, _ in self.unblocks if index > each.snapshot_index}
        if each.quota_limit_reached:
            return each.quota_limit_reached in newer
        if newer & set(each.missing_non_node_resources):
            return True
        return bool(newer) if each.escaped_computed_class else any(each.class_eligibility.get(key, True) for key in newer)

    def block(self):
        if self.tracked and self.random.random() < 0.15:
            each = self.random.choice([each for each, _ in self.tracked.values()])
        else:
            each = self.evaluation()
        token = self.random.choice(("", "", f"token-{self.number}"))
        self.tracker.reblock(each, token)
        other = next((known for known, _ in self.tracked.values() if self.place(known) == self.place(each)), None)
        if other is not None:
            if other.id != each.id:
                if max(other.create_index, other.snapshot_index) > max(each.create_index, each.snapshot_index):
                    self.duplicates.append(each.id)
                    return
                self.duplicates.append(other.id)
            del self.tracked[other.id]
        if self.missed(each):
            self.expect([(each, token)])
        else:
            self.tracked[each.id] = each, token

    def expect(self, released):
        """Check that exactly these were released now, with their tokens."""
        found = Counter((each.id, token) for each, token in self.released)
        assert found == Counter((each.id, token) for each, token in released)
        self.ends.update(each.id for each, _ in released)
        self.released.clear()

    def release(self, chosen):
        self.expect([self.tracked.pop(each.id) for each in chosen])

    def captured(self):
        return [each for each, _ in self.tracked.values() if not each.escaped_computed_class]

    def escaped(self):
        return [each for each, _ in self.tracked.values() if each.escaped_computed_class]

    def note(self, *keys):
        self.unblocks += [(key, self.index, self.clock.monotonic_s()) for key in keys]

    def unblock(self):
        self.index += 1
        node_class, quota = self.random.choice(CLASSES), self.random.choice(("", *QUOTAS))
        if quota:
            self.tracker.unblock_class_and_quota(node_class, quota, self.index)
            self.note(node_class, quota)
        else:
            self.tracker.unblock(node_class, self.index)
            self.note(node_class)
        fitting = [each for each in self.captured() if each.class_eligibility.get(node_class, True)]
        self.release(self.escaped() + [each for each in fitting if not quota or each.quota_limit_reached in ("", quota)])

    def unblock_quota(self):
        self.index += 1
        quota = self.random.choice(QUOTAS)
        self.tracker.unblock_quota(quota, self.index)
        self.note(quota)
        self.release([each for each in self.captured() if each.quota_limit_reached in ("", quota)])

    def unblock_resources(self):
        self.index += 1
        names = self.random.sample(VOLUMES, self.random.randrange(1, 3))
        self.tracker.unblock_non_node_resources(names, self.index)
        self.note(*names)
        self.release([each for each in self.escaped() if set(names) & set(each.missing_non_node_resources)])

    def unblock_node(self):
        node = self.random.choice(NODES)
        self.tracker.unblock_node(node)
        self.release([each for each, _ in self.tracked.values() if self.place(each)[2] == node])

    def unblock_failed(self):
        self.tracker.unblock_failed()
        self.release([each for each, _ in self.tracked.values() if each.triggered_by == "max-plan-attempts"])

    def untrack(self):
        job = f"job-{self.random.randrange(6)}"
        self.tracker.untrack("default", job)
        self.tracked = {eval_id: known for eval_id, known in self.tracked.items() if known[0].job_id != job}

    def take_duplicates(self):
        assert [each.id for each in self.tracker.duplicates()] == self.duplicates
        self.duplicates = []

    def pass_time(self):
        self.clock.advance(self.random.uniform(0, 20))
        self.tracker.prune()
        # The time of the newest unblock of a key counts; its index stays the greatest.
        newest = {key: noted_s for key, _, noted_s in self.unblocks}
        cutoff_s = self.clock.monotonic_s() - PRUNED_S
        self.unblocks = [each for each in self.unblocks if newest[each[0]] >= cutoff_s]

    def check(self):
        assert self.released == []
        assert self.tracker.contradictions() == []
        assert self.tracker.known_ids() == set(self.tracked)
        stats = self.tracker.stats()
        assert stats.total_blocked == len(self.tracked)
        assert stats.total_escaped == len(self.escaped())
        assert stats.total_quota_limit == sum(bool(each.quota_limit_reached) for each, _ in self.tracked.values())
        by_job: dict[tuple[str, str], Wanted] = {}
        by_class: dict[tuple[str, str, str], Wanted] = {}
        for each, _ in self.tracked.values():
            for metric in each.failed_tg_allocs.values():
                lacks = metric.resources_exhausted["main"]
                by_job[each.namespace, each.job_id] = more(by_job.get((each.namespace, each.job_id)), lacks)
                for datacenter in metric.nodes_available:
                    for name in metric.class_exhausted or ("",):
                        by_class[datacenter, name, ""] = more(by_class.get((datacenter, name, "")), lacks)
        assert (stats.by_job, stats.by_class) == (by_job, by_class)


@pytest.mark.parametrize("seed", range(30))
def test_random_operations(seed):
    session = Session(seed)
    work = {
        session.block: 20,
        session.unblock: 1,
        session.unblock_quota: 1,
        session.unblock_resources: 1,
        session.unblock_node: 2,
        session.unblock_failed: 1,
        session.untrack: 1,
        session.take_duplicates: 2,
        session.pass_time: 3,
    }
    for _ in range(400):
        session.random.choices(list(work), list(work.values()))[0]()
        session.check()
    assert session.ends


def test_ten_thousand_are_released_once_each_whatever_comes_at_once():
    released: list[tuple[Evaluation, str]] = []
    tracker = BlockedEvals(VirtualClock(), None, released.extend)
    tracker.set_enabled(True)
    for number in range(10_000):
        tracker.block(evaluation(f"e{number}", status="blocked", class_eligibility={"c1": number % 2 == 0, "c2": number % 3 == 0}))
    for index in range(100):
        tracker.unblock(("c1", "c2", "c3")[index % 3], 1000 + index)
    assert Counter(each.id for each, _ in released) == Counter(f"e{number}" for number in range(10_000))
    assert tracker.stats().total_blocked == 0


def test_a_tracker_that_is_off_does_nothing():
    released: list[tuple[Evaluation, str]] = []
    tracker = BlockedEvals(VirtualClock(), None, released.extend)
    tracker.block(evaluation("a"))
    tracker.unblock("c1", 10)
    tracker.unblock_class_and_quota("c1", "gold", 10)
    tracker.unblock_quota("gold", 10)
    tracker.unblock_non_node_resources(["vol"], 10)
    tracker.unblock_node("n1")
    tracker.unblock_failed()
    tracker.untrack("default", "job-of-a")
    tracker.set_enabled(True)
    # Nothing of that is remembered.
    tracker.block(evaluation("b", quota_limit_reached="gold"))
    tracker.block(evaluation("c", missing_non_node_resources=["vol"], escaped_computed_class=True))
    tracker.block(evaluation("d"))
    assert tracker.known_ids() == {"b", "c", "d"}
    assert released == []


def test_an_evaluation_that_changes_its_job_is_tracked_once():
    released: list[tuple[Evaluation, str]] = []
    tracker = BlockedEvals(VirtualClock(), None, released.extend)
    tracker.set_enabled(True)
    tracker.block(evaluation("a", job_id="web"))
    tracker.block(evaluation("a", job_id="db", escaped_computed_class=True))
    tracker.block(evaluation("a", job_id="agent", type="system", node_id="n1"))
    assert tracker.contradictions() == []
    assert (tracker.known_ids(), tracker.duplicates()) == ({"a"}, [])
    for job in ("web", "db"):
        tracker.untrack("default", job)
    assert tracker.stats().total_blocked == 1
    tracker.unblock_node("n1")
    assert [each.job_id for each, _ in released] == ["agent"]
    assert tracker.contradictions() == []
