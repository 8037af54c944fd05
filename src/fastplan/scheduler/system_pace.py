"""How many destructive updates of a system job go at once (schedulers 4.8, 4.9, 5.4)."""

from __future__ import annotations

from collections.abc import Sequence

from fastplan.scheduler.evaluations import DEFAULT_STAGGER_NS
from fastplan.scheduler.reconciler.node import Entry, SystemReconciliation
from fastplan.scheduler.system_rollout import SystemRollout
from fastplan.structs import Job, TaskGroup


def stagger_ns(job: Job, groups: Sequence[TaskGroup]) -> int:
    """Return how long the next step of a rolling update waits: the shortest stagger of the groups that were held back, else the job's, else 30 s."""
    own = [group.update.stagger for group in groups if group.update is not None and group.update.stagger > 0]
    return min(own) if own else (job.update.stagger if job.update.stagger > 0 else DEFAULT_STAGGER_NS)


class SystemPace:
    """Admits destructive updates group by group, in order, while the group's limit lasts.

    A slot that has lost an extra which would have needed a destructive update has used up one unit already, and its keeper needs no other; such slots come
    first. Canaries are not charged; those that no deployment counts are under strict rules. What has ended already is: it takes nothing down, so it is not
    charged under strict rules.
    """

    def __init__(self, job: Job, found: SystemReconciliation, destructive: list[Entry], rollout: SystemRollout, *, strict: bool) -> None:
        self.admitted: list[Entry] = []
        self.held_back_groups: list[TaskGroup] = []
        limits = {group.name: limit_of(job, group, len(destructive) + len(found.charged)) - rollout.undecided(group, found.ignore) for group in job.task_groups}
        granted: set[tuple[str, str]] = set()
        groups = {entry.slot: entry.group for entry in [*destructive, *found.stop, *found.ignore, *found.update] if entry.group is not None}
        for slot in found.charged:
            group = groups.get(slot)
            if group is not None and limits.get(group.name, 0) > 0:
                limits[group.name] -= 1
                granted.add(slot)
        for entry in destructive:
            group = entry.group
            assert group is not None
            over = strict and entry.alloc is not None and entry.alloc.is_terminal
            if entry.slot in granted or over:
                self.admitted.append(entry)
            elif limits.get(group.name, 0) > 0:
                self.admitted.append(entry)
                if not entry.canary or (strict and not rollout.is_canarying(group)):
                    limits[group.name] -= 1
            elif group not in self.held_back_groups:
                self.held_back_groups.append(group)


def limit_of(job: Job, group: TaskGroup, unlimited: int) -> int:
    """Return how many allocations of a group may be replaced at once; *unlimited* where nothing is said."""
    if group.update is not None and group.update.max_parallel > 0:
        return group.update.max_parallel
    return job.update.max_parallel if job.update.max_parallel > 0 else unlimited
