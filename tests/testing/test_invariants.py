"""Each checker of a cluster finds the fault that it is for, and is silent without it."""

from __future__ import annotations

import pytest

from fastplan.state import StateStore
from fastplan.structs import Allocation, Job
from fastplan.testing.builders import ready_node, running_alloc, service_job, system_job
from fastplan.testing.invariants import doubled_names, doubled_slots, over_committed, placed_without_room


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
