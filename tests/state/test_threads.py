"""Readers in other threads see the moment of their snapshot, whole and unchanged, while the writer goes on."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from queue import SimpleQueue

import numpy
import pytest

from fastplan.fit.demand import demand_of
from fastplan.state import StateSnapshot, StateStore
from fastplan.structs import Node
from tests.state.clusters import node_api, numbers, place, resources_api, uuid

NODES = [uuid(number) for number in range(12)]
ROUNDS = 150


@pytest.fixture
def switching_often() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def check(snapshot: StateSnapshot) -> int:
    """Compare usage, indexes and counts of a snapshot with sums over its records; return how many allocations it has."""
    allocs = snapshot.allocs()
    for node_id in NODES:
        on_node = snapshot.allocs_by_node(node_id)
        assert [alloc.id for alloc in on_node] == [alloc.id for alloc in allocs if alloc.node_id == node_id]
        use = snapshot.node_used(node_id)
        if use is not None:
            assert use.cpu_mhz == sum(demand_of(alloc).cpu_mhz for alloc in on_node if not alloc.is_client_terminal)
    clients, _ = snapshot.group_counts("default", "job", "web")
    assert sum(clients) == len(allocs) == snapshot.alloc_count()
    # The writer puts the number of allocations into the index of another table.
    assert len(allocs) == snapshot.table_index("count")
    return len(allocs)


def write(store: StateStore, rng: random.Random, snapshots: SimpleQueue[StateSnapshot | None], readers: int) -> None:
    """Change the store in every way, handing a snapshot to the readers each time."""
    alive: list[str] = []
    for index in range(1, ROUNDS + 1):
        with store.batch():
            fresh = [uuid(index * 1000 + i) for i in range(rng.randrange(12))]
            if fresh:
                resources = [resources_api(cpu_mhz=rng.randrange(1000), ports=(8000 + i,)) for i in range(len(fresh))]
                place(store, index, fresh, [rng.choice(NODES) for _ in fresh], eval_id=uuid(index), resources=resources)
                alive.extend(fresh)
            chosen = rng.sample(alive, len(alive) // 4)
            rows = numbers(*(store.allocs_view.find(alloc_id) for alloc_id in chosen))
            if rng.random() < 0.5:
                store.update_client_status(index, index, rows, numpy.array([rng.randrange(1, 7)], numpy.uint8))
            else:
                store.stop_rows(index, index, rows, numbers(store.note(f"round {index}")), numpy.array([255], numpy.uint8))
            if rng.random() < 0.3:
                gone = rng.sample(alive, len(alive) // 2)
                store.delete_allocs(index, gone)
                alive = [alloc_id for alloc_id in alive if alloc_id not in set(gone)]
            node_id = rng.choice(NODES)
            if store.node_row(node_id) is not None and rng.random() < 0.5:
                store.delete_node(index, node_id)
            else:
                store.upsert_node(index, Node.from_api(node_api(node_id, reserved_ports=rng.choice(["", "8003"]))))
            if rng.random() < 0.1:
                store.compact()
            store.touch(len(alive), "count")
        snapshots.put(store.snapshot())
    for _ in range(readers):
        snapshots.put(None)


def test_readers_see_whole_moments(switching_often: None) -> None:
    store = StateStore()
    snapshots: SimpleQueue[StateSnapshot | None] = SimpleQueue()
    checked: list[int] = []
    failures: list[BaseException] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        kept: list[tuple[StateSnapshot, int]] = []
        try:
            while (snapshot := snapshots.get()) is not None:
                kept.append((snapshot, check(snapshot)))
                if rng.random() < 0.5:
                    old, count = kept.pop(rng.randrange(len(kept)))
                    assert check(old) == count
            for old, count in kept:
                assert len(StateStore.load(old.save()).allocs_view) == count
            checked.append(len(kept))
        except BaseException as failure:
            failures.append(failure)

    readers = [threading.Thread(target=read, args=(seed,)) for seed in range(3)]
    for reader in readers:
        reader.start()
    write(store, random.Random(7), snapshots, len(readers))
    for reader in readers:
        reader.join(120)
    assert not failures, failures
    assert len(checked) == 3
