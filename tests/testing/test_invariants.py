"""Each checker of a cluster finds the fault that it is for, and is silent without it."""

from __future__ import annotations

import random

import pytest

from fastplan.broker import EvalBroker
from fastplan.state import StateStore
from fastplan.structs import Allocation, Evaluation, Job
from fastplan.testing import VirtualClock
from fastplan.testing.builders import ready_node, running_alloc, service_job, system_job
from fastplan.testing.invariants import badly_held, doubled_names, doubled_slots, over_committed, placed_without_room, wrong_sums


def cluster(job: Job, *allocs: Allocation) -> StateStore:
    """A node of 4,000 MHz with a job and its allocations, written at index 12."""
    store = StateStore()
    store.upsert_node(10, ready_node("n1"))
    store.upsert_job(11, job)
    store.upsert_allocs(12, list(allocs))
    return store


@pytest.mark.parametrize(("cpu_mhz", "found"), [(2000, 0), (2001, 1)])
def test_over_committed(cpu_mhz: int, found: int) -> None:
    job = service_job()
    store = cluster(job, *(running_alloc(f"a{index}", job, "n1", index=index, cpu_mhz=cpu_mhz) for index in range(2)))
    sentences = over_committed(store)
    assert len(sentences) == found
    assert all("n1" in sentence and "cpu" in sentence for sentence in sentences)
    assert over_committed(store, shrunk=["n1"]) == []


@pytest.mark.parametrize(("cpu_mhz", "found"), [(4000, 0), (4001, 1)])
def test_placed_without_room(cpu_mhz: int, found: int) -> None:
    job = service_job()
    store = cluster(job, running_alloc("a1", job, "n1", cpu_mhz=cpu_mhz))
    assert len(placed_without_room(store, 12, (job.namespace, job.id), 11)) == found
    assert placed_without_room(store, 12, (job.namespace, job.id), 9) == []


def test_placed_on_a_node_that_takes_nothing() -> None:
    job = service_job()
    store = cluster(job)
    store.upsert_node(13, ready_node("n1", SchedulingEligibility="ineligible"))
    store.upsert_allocs(14, [running_alloc("a1", job, "n1")])
    assert len(placed_without_room(store, 14, (job.namespace, job.id), 13)) == 1


def test_doubled_slots() -> None:
    job = system_job()
    first, second = (running_alloc(alloc_id, job, "n1") for alloc_id in ("a1", "a2"))
    assert doubled_slots(cluster(job, first)) == []
    (sentence,) = doubled_slots(cluster(job, first, second))
    assert "a1" in sentence
    assert "a2" in sentence


def test_doubled_names() -> None:
    job = service_job()
    first, second = running_alloc("a1", job, "n1"), running_alloc("a2", job, "n1", index=1)
    assert doubled_names(cluster(job, first, second)) == []
    assert doubled_names(cluster(job, first, running_alloc("a2", job, "n1"))) == ["2 allocations are called web.web[0]"]
    canary = running_alloc("a2", job, "n1", DeploymentStatus={"Canary": True})
    assert doubled_names(cluster(job, first, canary)) == []


def test_wrong_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    job = service_job()
    stopping = running_alloc("a2", job, "n1", index=1, DesiredStatus="stop")
    ended = running_alloc("a3", job, "n1", index=2, ClientStatus="complete")
    store = cluster(job, running_alloc("a1", job, "n1"), stopping, ended)
    assert wrong_sums(store) == []
    assert wrong_sums(store.snapshot()) == []
    monkeypatch.setattr(StateStore, "node_used", lambda *_: (500, 256, 300, 1))
    assert wrong_sums(store) == ["node n1: used is (500, 256, 300, 1), the sum is (1000, 512, 600, 2)"]
    monkeypatch.setattr(StateStore, "node_used", lambda *_: None)
    assert len(wrong_sums(store)) == 1


def test_badly_held() -> None:
    """An evaluation that is pending in the state and unknown to the broker is lost; one that has ended, or a broker that is off, has nothing to hold."""
    evaluations = [Evaluation(id=f"e{number}", namespace="default", type="service", job_id="web", status="pending") for number in range(3)]
    store = cluster(service_job())
    store.upsert_evals(13, [*evaluations, Evaluation(id="old", namespace="default", type="service", job_id="web", status="complete")])
    broker = EvalBroker(VirtualClock(), None, random.Random(1))
    assert badly_held(broker, store) == []
    broker.set_enabled(True)
    for evaluation in evaluations[:2]:
        broker.enqueue(evaluation)
    assert badly_held(broker, store) == ["evaluation e2 is pending and lost"]
    broker.enqueue(evaluations[2])
    assert badly_held(broker, store) == []
    delivery = broker.dequeue(["service"])
    assert delivery is not None
    assert badly_held(broker, store) == []


def test_badly_held_passes_on_what_the_broker_finds_in_its_own_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Held twice: the broker's own check says so, whether it is on or off."""
    monkeypatch.setattr(EvalBroker, "contradictions", lambda _: ["an evaluation is in two places"])
    broker = EvalBroker(VirtualClock(), None, random.Random(1))
    assert badly_held(broker, cluster(service_job())) == ["an evaluation is in two places"]
    broker.set_enabled(True)
    assert badly_held(broker, cluster(service_job())) == ["an evaluation is in two places"]


def test_a_checker_looks_at_what_it_is_told_to() -> None:
    """Nodes and jobs that are not named are not looked at; unknown ones are no fault."""
    job, agents = service_job(), system_job()
    doubled = [running_alloc(alloc_id, agents, "n1") for alloc_id in ("s1", "s2")]
    store = cluster(job, *(running_alloc(f"a{index}", job, "n1", cpu_mhz=3000) for index in range(2)))
    store.upsert_job(13, agents)
    store.upsert_allocs(14, doubled)
    assert over_committed(store, node_ids=["n2"]) == []
    assert len(over_committed(store, node_ids=["n1"])) == 1
    assert doubled_slots(store, [job]) == []
    assert len(doubled_slots(store, [agents])) == 1
    assert doubled_names(store, [agents]) == []
    assert len(doubled_names(store, [job])) == 1


def test_what_has_ended_or_is_stopped_holds_no_name_and_no_slot() -> None:
    for job, checker in ((system_job(), doubled_slots), (service_job(), doubled_names)):
        ended = running_alloc("a2", job, "n1", ClientStatus="complete")
        stopped = running_alloc("a3", job, "n1", DesiredStatus="stop")
        assert checker(cluster(job, running_alloc("a1", job, "n1"), ended, stopped)) == []
        assert len(checker(cluster(job, running_alloc("a1", job, "n1"), running_alloc("a4", job, "n1"), ended))) == 1


def test_placed_without_room_counts_what_is_told_to_stop_and_still_runs() -> None:
    """Strict rules: its room is free only if the same plan stopped it; a job that evicts others may have counted on it."""
    job = service_job()
    store = cluster(job, running_alloc("a1", job, "n1", cpu_mhz=3000, DesiredStatus="stop"))
    store.upsert_allocs(13, [running_alloc("a2", job, "n1", index=1, cpu_mhz=3000)])
    key = (job.namespace, job.id)
    assert over_committed(store) == []
    assert len(placed_without_room(store, 13, key, 12)) == 1
    assert placed_without_room(store, 13, key, 12, preempts=True) == []
