"""A store that was carried over goes on like the one it came from: rows, generations and bytes stay equal, whatever each of them tidies up and when."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy
import pytest

from fastplan.state import StateStore
from fastplan.structs import Allocation, Deployment, Evaluation, Job, Node
from tests.state.clusters import alloc_api, job_api, node_api, numbers, place, resources_api, uuid

Change = Callable[[StateStore], object]
JOBS = ["job-a", "job-b", "job-c"]


def random_change(rng: random.Random, index: int, alive: list[str], nodes: set[str]) -> Change:
    """Return one entry of a log, which changes any store in the same way."""
    kind = rng.randrange(11)
    node_id, job_id = uuid(rng.randrange(8)), rng.choice(JOBS)
    chosen = rng.sample(alive, len(alive) // 5)
    if kind == 0:
        nodes.add(node_id)
        node = Node.from_api(node_api(node_id, reserved_ports=rng.choice(["", "8000"])))
        return lambda store: store.upsert_node(index, node)
    if kind == 1 and node_id in nodes:
        nodes.remove(node_id)
        return lambda store: store.delete_node(index, node_id)
    if kind == 2:
        job = Job.from_api(job_api(job_id, version=rng.randrange(12), Stable=rng.random() < 0.3))
        return lambda store: store.upsert_job(index, job)
    if kind == 3:

        def delete(store: StateStore) -> None:
            if store.job("", job_id) is not None:
                store.delete_job(index, "", job_id)

        return delete
    if kind in (4, 5):
        fresh = [uuid(index * 1000 + i) for i in range(rng.randrange(1, 200))]
        alive.extend(fresh)
        targets, eval_id = [uuid(rng.randrange(8)) for _ in fresh], uuid(index)
        resources = [resources_api(cpu_mhz=rng.randrange(3), ports=(8000 + rng.randrange(9),)) for _ in fresh]
        return lambda store: place(store, index, fresh, targets, job_id=job_id, eval_id=eval_id, resources=resources)
    if kind == 6:
        embedded = job_api(job_id, version=rng.randrange(20))
        records = [Allocation.from_api(alloc_api(uuid(index * 1000 + i), node_id, job_id=job_id, Job=embedded)) for i in range(3)]
        alive.extend(record.id for record in records)
        return lambda store: store.upsert_allocs(index, records)
    if kind == 7:
        alive[:] = [alloc_id for alloc_id in alive if alloc_id not in set(chosen)]
        return lambda store: store.delete_allocs(index, chosen)
    if kind == 8:
        description = f"round {index % 5}"

        def stop(store: StateStore) -> None:
            rows = numbers(*(store.allocs_view.find(alloc_id) for alloc_id in chosen))
            store.stop_rows(index, index, rows, numbers(store.note(description)), numpy.array([255], numpy.uint8))

        return stop
    if kind == 9:
        said = [Allocation(id=alloc_id, client_status=rng.choice(["running", "complete"]), client_description=rng.choice(["", "x"])) for alloc_id in chosen]
        return lambda store: store.update_allocs_from_client(index, said)
    evaluation, deployment = Evaluation(id=uuid(index), job_id=job_id), Deployment(id=uuid(index), job_id=job_id)

    def evaluate(store: StateStore) -> None:
        store.upsert_evals(index, [evaluation])
        store.upsert_deployment(index, deployment)

    return evaluate


@pytest.mark.parametrize("seed", range(4))
def test_replicas_stay_equal(seed: int) -> None:
    rng = random.Random(seed)
    stores = [StateStore()]
    alive: list[str] = []
    nodes: set[str] = set()
    for index in range(1, 250):
        change = random_change(rng, index, alive, nodes)
        for store in stores:
            change(store)
        if index % 60 == 0:
            stores.append(StateStore.load(rng.choice(stores).snapshot().save()))
        if index % 50 == 0:
            stores[0].compact()
    assert len({store.allocs_view.generation for store in stores}) > 1
    first = list(stores[0].snapshot().save())
    for store in stores[1:]:
        assert list(store.snapshot().save()) == first
        assert store.nodes_view.free_rows() == stores[0].nodes_view.free_rows()
        assert [store.node_row(node_id) for node_id in sorted(nodes)] == [stores[0].node_row(node_id) for node_id in sorted(nodes)]
        assert store.jobs_view.groups.keys == stores[0].jobs_view.groups.keys
        assert dict(store.jobs_view.versions.items()) == dict(stores[0].jobs_view.versions.items())
