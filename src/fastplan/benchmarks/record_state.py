"""State as dicts of records: what the reference of plan evaluation reads, without the cost of making records from columns."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

from fastplan.benchmarks.clusters import FIRST_INDEX, Cluster
from fastplan.structs import Allocation, Job, Node


class RecordState:
    """Some nodes of a cluster and their allocations; a `planner.reference.StateReader` that can also be written."""

    def __init__(self, cluster: Cluster, nodes: Iterable[int]) -> None:
        self._nodes: dict[str, Node] = {}
        self._allocs: dict[str, Allocation] = {}
        self._by_node: dict[str, list[Allocation]] = {}
        self._jobs = {(job.namespace, job.id): job for job in cluster.jobs()}
        self._index = FIRST_INDEX + 1
        for number in nodes:
            node = cluster.node(number)
            self._nodes[node.id] = node
            self._by_node[node.id] = cluster.allocs_of(number)
            for alloc in self._by_node[node.id]:
                alloc.job = self._jobs["default", alloc.job_id]
                self._allocs[alloc.id] = alloc

    def node(self, node_id: str) -> Node | None:
        """Return a node."""
        return self._nodes.get(node_id)

    def alloc(self, alloc_id: str) -> Allocation | None:
        """Return an allocation."""
        return self._allocs.get(alloc_id)

    def allocs_by_node(self, node_id: str) -> Sequence[Allocation]:
        """Return the allocations of a node, ascending by id."""
        return self._by_node.get(node_id, ())

    def job(self, namespace: str, job_id: str) -> Job | None:
        """Return a job."""
        return self._jobs.get((namespace, job_id))

    def table_index(self, name: str) -> int:
        """Return the index of the last write."""
        return self._index if name in ("nodes", "allocs") else 0

    def insert(self, allocs: Iterable[Allocation]) -> None:
        """Write new allocations at the next index."""
        self._index += 1
        for alloc in allocs:
            self._allocs[alloc.id] = alloc
            insort(self._by_node[alloc.node_id], alloc, key=lambda each: each.id)
