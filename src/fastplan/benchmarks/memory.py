"""Memory of a state with many allocations, measured from outside of the heap: private pages of a child process that does nothing else.

The child also times snapshots, because it has the large state at hand. Run as `python -m fastplan.benchmarks.memory NODES ALLOCS_PER_NODE EXTRAS`.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import gc
import json
import subprocess
import sys
from time import perf_counter_ns

import numpy

from fastplan.benchmarks.clusters import FIRST_INDEX, Cluster
from fastplan.benchmarks.measuring import assert_equal, uncollected
from fastplan.state import StateStore
from fastplan.state.statuses import CLIENT_RUNNING
from fastplan.structs import Allocation, AllocDeploymentStatus, TaskState

_SNAPSHOTS = 300


def measure_child(node_count: int, allocs_per_node: int, extra_count: int) -> dict[str, float]:
    """Build the state in a child process and return what it found: `bytes_per_alloc`, `extra_bytes`, `snapshot_us`, `snapshot_median_us`."""
    arguments = [sys.executable, "-m", "fastplan.benchmarks.memory", str(node_count), str(allocs_per_node), str(extra_count)]
    found: dict[str, float] = json.loads(subprocess.run(arguments, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return found


def private_bytes() -> int:
    """Return the private memory of this process after the allocator has given back what is free (Linux)."""
    gc.collect()
    libc = ctypes.CDLL(ctypes.util.find_library("c"))
    if hasattr(libc, "malloc_trim"):
        libc.malloc_trim(0)
    with open("/proc/self/smaps_rollup") as lines:
        return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(("Private_Clean:", "Private_Dirty:")))


def _build(cluster: Cluster) -> tuple[StateStore, float]:
    """Return a state with all allocations, and the private bytes that each has cost. The generator keeps nothing of them."""
    store = cluster.empty_store()
    next(cluster.batches(store, range(1), ids=cluster.fresh_ids(1)))
    before = private_bytes()
    index = FIRST_INDEX
    for slot in range(cluster.allocs_per_node):
        for columns in cluster.batches(store, range(slot, slot + 1), ids=cluster.fresh_ids(1)):
            index += 1
            store.insert_rows(index, index, *columns)
    count = cluster.node_count * cluster.allocs_per_node
    assert_equal(store.alloc_count(), count, "allocations in the state")
    return store, (private_bytes() - before) / count


def _extra_bytes(store: StateStore, count: int) -> float:
    """Return what the cold part of an allocation costs: task states and deployment status, as a client reports them."""
    rows = store.allocs_view.live_rows()[:count].tolist()
    ids = [store.allocs_view.alloc_id(row) for row in rows]
    before = private_bytes()
    for start in range(0, len(ids), 1_000):
        store.update_allocs_from_client(store.latest_index() + 1, [_report(alloc_id) for alloc_id in ids[start : start + 1_000]])
    return (private_bytes() - before) / len(ids)


def _report(alloc_id: str) -> Allocation:
    task = TaskState(state="running", started_at="2026-01-02T03:04:05.678901234Z")
    return Allocation(id=alloc_id, client_status="running", task_states={"server": task}, deployment_status=AllocDeploymentStatus(healthy=True))


def _snapshot_times_us(store: StateStore, rounds: int) -> list[float]:
    """Time snapshots of a state that is written between them, each of which replaces the one before."""
    random = numpy.random.default_rng(3)
    rows = store.allocs_view.live_rows()
    status = numpy.array([CLIENT_RUNNING], numpy.uint8)
    snapshot = store.snapshot()
    times = []
    for _ in range(rounds):
        index = store.latest_index() + 1
        store.update_client_status(index, index, random.choice(rows, min(100, len(rows)), replace=False), status)
        with uncollected():
            start = perf_counter_ns()
            snapshot = store.snapshot()
            times.append((perf_counter_ns() - start) / 1e3)
        assert_equal(snapshot.latest_index(), index, "the index of a snapshot")
    return times


def main() -> None:
    """Measure in this process and print JSON."""
    node_count, allocs_per_node, extra_count = (int(argument) for argument in sys.argv[1:4])
    store, bytes_per_alloc = _build(Cluster(node_count, allocs_per_node))
    times = _snapshot_times_us(store, _SNAPSHOTS)
    found = {
        "bytes_per_alloc": bytes_per_alloc,
        "snapshot_us": min(times),
        "snapshot_median_us": sorted(times)[len(times) // 2],
        "extra_bytes": _extra_bytes(store, extra_count),
    }
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
