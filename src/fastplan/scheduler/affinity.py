"""Preferences of a job for nodes (schedulers 9.6)."""

from __future__ import annotations

from collections.abc import Iterable

from fastplan.scheduler.feasible.checks import constraint_holds
from fastplan.structs import Affinity, Job, Node, TaskGroup


def affinities_of(job: Job, group: TaskGroup) -> list[Affinity]:
    """Return the affinities of a job, a group and all its tasks together."""
    levels: list[Iterable[Affinity | None]] = [job.affinities, group.affinities, *(task.affinities for task in group.tasks)]
    return [affinity for level in levels for affinity in level if affinity is not None]


def affinity_score(affinities: Iterable[Affinity], node: Node) -> float:
    """Return the weights of the *affinities* that match a node, as a share of all weights, −1 to 1 (schedulers 9.6)."""
    matched = total = 0
    for affinity in affinities:
        total += abs(affinity.weight)
        if constraint_holds(affinity, node):
            matched += affinity.weight
    return matched / total if total else 0.0
