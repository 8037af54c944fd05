"""Random sequences of operations: every replica comes to the same state, and evaluations fit what caused them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.fsm import StateMachine
from fastplan.server import operations as ops
from fastplan.structs import Allocation, Evaluation
from tests.server.operated import Operated, alloc, job, node

JOBS = ("a", "b", "c", "d")
NODES = ("n1", "n2", "n3")
KINDS = {"a": "service", "b": "batch", "c": "system", "d": "sysbatch"}
TERMINAL = ("complete", "failed")


class Session:
    """Random operations, and what a scheduler and clients might do between them."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.site = Operated()
        self.allocs = 0
        self.done = 0

    def pick(self, values: Any) -> Any:
        return self.random.choice(list(values))

    def step(self) -> None:
        often = (self.register, self.place, self.report, self.finish)
        rarely = (self.deregister, self.scale, self.node, self.status, self.eligibility, self.drain, self.purge_node, self.stop, self.block)
        work = self.pick((*often, *often, *rarely))
        try:
            work()
            self.done += 1
        except (StateError, InvalidInput) as error:
            assert str(error)

    def do(self, operation: Callable[..., Any], *inputs: Any, **options: Any) -> None:
        for evaluation in self.site.do(operation, *inputs, **options):
            self.check(evaluation)

    def check(self, evaluation: Evaluation) -> None:
        assert (evaluation.status, evaluation.create_index) == ("pending", self.site.index)
        assert evaluation.type == KINDS[evaluation.job_id]
        assert 1 <= evaluation.priority <= 100
        assert evaluation.job_modify_index <= self.site.index
        if evaluation.triggered_by == "node-update":
            assert evaluation.node_id
            assert evaluation.node_modify_index == self.site.index

    def register(self) -> None:
        job_id = self.pick(JOBS)
        self.do(ops.register_job, job(job_id, Type=KINDS[job_id], Priority=self.pick((40, 50)), Datacenters=self.pick((["dc1"], ["dc*"]))))

    def deregister(self) -> None:
        self.do(ops.deregister_job, "default", self.pick(JOBS), self.random.random() < 0.3)

    def scale(self) -> None:
        self.do(ops.scale_job, "default", self.pick(JOBS), "g", self.pick((0, 1, 2)))

    def node(self) -> None:
        self.do(ops.register_node, node(self.pick(NODES), Datacenter=self.pick(("dc1", "dc2")), Status=self.pick(("ready", "down", "")), ComputedClass=""))

    def status(self) -> None:
        self.do(ops.update_node_status, self.pick(NODES), self.pick(("ready", "down", "disconnected", "initializing")))

    def eligibility(self) -> None:
        self.do(ops.update_node_eligibility, self.pick(NODES), self.random.random() < 0.5)

    def drain(self) -> None:
        self.do(ops.update_node_drain, self.pick(NODES), self.pick((None, {}, {"Deadline": -1}, {"Deadline": 5, "IgnoreSystemJobs": True})))

    def purge_node(self) -> None:
        if self.random.random() < 0.3:
            self.do(ops.deregister_node, self.pick(NODES))

    def place(self) -> None:
        job_id = self.pick(JOBS)
        if self.site.store.job("default", job_id) is None:
            return
        self.allocs += 1
        self.site.apply(codec.UpsertAllocs([alloc(f"alloc{self.allocs}", job_id, NodeID=self.pick(NODES), ClientStatus=self.pick(("pending", "unknown")))]))

    def report(self) -> None:
        if not self.allocs:
            return
        said = [f"alloc{self.random.randint(1, self.allocs)}" for _ in range(self.random.randint(1, 3))]
        records = [Allocation.from_api({"ID": each, "ClientStatus": self.pick(("running", "complete", "failed", "unknown"))}) for each in said]
        self.do(ops.update_allocs_from_client, records)

    def stop(self) -> None:
        self.do(ops.stop_alloc, f"alloc{self.random.randint(1, max(1, self.allocs))}", reschedule=self.random.random() < 0.5)

    def open(self) -> list[Evaluation]:
        return [each for each in self.site.store.evals() if each.status in ("pending", "blocked")]

    def finish(self) -> None:
        if not self.open():
            return
        evaluation = self.pick(self.open())
        failed = {"g": {"NodesEvaluated": 1}} if self.random.random() < 0.3 else {}
        said = {"Status": self.pick(("complete", "complete", "failed")), "FailedTGAllocs": failed, "QueuedAllocations": {"g": len(failed)}}
        self.site.apply(codec.UpsertEvals([evaluation.to_api() | said]))
        if said["Status"] == "complete" and not failed:
            assert all(each.status == "pending" for each in self.open() if each.job_id == evaluation.job_id)

    def block(self) -> None:
        if self.open():
            evaluation = self.pick(self.open())
            self.site.apply(codec.UpsertEvals([evaluation.to_api() | {"ID": self.site.new_id(), "Status": "blocked"}]))


def check_state(site: Operated) -> None:
    store = site.store
    every = store.evals()
    for job_id in JOBS:
        mine = [each for each in every if each.job_id == job_id]
        assert sorted(each.id for each in store.open_evals_by_job("default", job_id)) == [each.id for each in mine if each.status in ("pending", "blocked")]
        assert store.has_evals("default", job_id) == bool(mine)
    registered = store.jobs()
    assert sorted(each.id for each in store.jobs_view.registered_system()) == [each.id for each in registered if each.type == "system"]
    for each in registered:
        live = [alloc for alloc in store.allocs_by_job("default", each.id) if not alloc.is_terminal]
        assert (each.status == "running") == (bool(live) or (each.type == "system" and not each.stop))


@pytest.mark.parametrize("seed", range(6))
def test_random_operations(seed: int) -> None:
    session = Session(seed)
    site = session.site
    for _ in range(150):
        session.step()
    assert session.done > 100
    check_state(site)
    dump = site.store.to_dump()
    # All at once, and one half restored from a snapshot.
    site.check_replay()
    half = StateMachine()
    half.apply(site.items[: len(site.items) // 2])
    other = StateMachine()
    other.restore(half.snapshot())
    other.apply(site.items[len(site.items) // 2 :])
    assert other.store.to_dump() == dump
