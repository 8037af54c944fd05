"""Counters of one selection (schedulers 12)."""

from __future__ import annotations

import heapq
from typing import Final

from fastplan.structs import AllocMetric, Node, NodeScore, Resources, TaskGroup

SCORES_KEPT: Final = 5
"""Nodes whose scores are kept: the best ones, best first."""

NORMALIZED: Final = "normalized-score"


class SelectionMetrics:
    """What a stack notes while it looks for a node. `record` is complete after `finish`."""

    __slots__ = ("_scores", "record")

    record: AllocMetric

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start from zero: at the beginning of each selection."""
        self.record = AllocMetric()
        self._scores: dict[str, NodeScore] = {}

    def evaluate_node(self) -> None:
        """Note that a node was looked at."""
        self.record.nodes_evaluated += 1

    def evaluate_nodes(self, count: int) -> None:
        """Note that so many nodes were looked at."""
        self.record.nodes_evaluated += count

    def filter_node(self, node: Node | None, reason: str) -> None:
        """Note that a node is not feasible, and by which check."""
        self.filter_nodes("" if node is None else node.node_class, reason, 1)

    def filter_nodes(self, node_class: str, reason: str, count: int) -> None:
        """Note that so many nodes of a class are not feasible, and by which check."""
        record = self.record
        record.nodes_filtered += count
        _add(record.class_filtered, node_class, count)
        _add(record.constraint_filtered, reason, count)

    def exhaust_node(self, node: Node | None, dimension: str) -> None:
        """Note that a feasible node has no room, and of what."""
        self.exhaust_nodes("" if node is None else node.node_class, dimension, 1)

    def exhaust_nodes(self, node_class: str, dimension: str, count: int) -> None:
        """Note that so many feasible nodes of a class have no room, and of what."""
        record = self.record
        record.nodes_exhausted += count
        _add(record.class_exhausted, node_class, count)
        _add(record.dimension_exhausted, dimension, count)

    def score_node(self, node: Node, name: str, score: float) -> None:
        """Note a score of a node; `NORMALIZED` is the final one."""
        scores = self._scores.get(node.id)
        if scores is None:
            scores = self._scores[node.id] = NodeScore(node_id=node.id)
        if name == NORMALIZED:
            scores.norm_score = score
        else:
            scores.scores[name] = score

    def finish(self) -> AllocMetric:
        """Return a copy of the counters with the scores of the best nodes, for an allocation or a failure."""
        copy = self.record.copy()
        best: list[NodeScore] = heapq.nlargest(SCORES_KEPT, self._scores.values(), key=lambda scores: scores.norm_score)
        copy.score_meta_data = [*best]
        return copy


def exhaust_resources(metric: AllocMetric, group: TaskGroup) -> None:
    """Add to *metric* what the tasks of a group asked for in the dimensions that were exhausted: only cpu and memory count (schedulers 12)."""
    for task in group.tasks:
        asked = task.resources
        if asked is None:
            continue
        cpu_mhz = asked.cpu if metric.dimension_exhausted.get("cpu") else 0
        memory_mib = asked.memory_mb if metric.dimension_exhausted.get("memory") else 0
        if not cpu_mhz and not memory_mib:
            continue
        sums = metric.resources_exhausted.get(task.name)
        if sums is None:
            sums = metric.resources_exhausted[task.name] = Resources()
        sums.cpu += cpu_mhz
        sums.memory_mb += memory_mib


def _add(counts: dict[str, int], key: str, count: int) -> None:
    if key:
        counts[key] = counts.get(key, 0) + count
