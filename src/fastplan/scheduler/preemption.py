"""Who gives way to a job of higher priority (schedulers 11): candidates, distances, and the choice for CPU, memory and disk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from fastplan.fit.demand import Totals, totals_of
from fastplan.fit.supply import NodeSupply
from fastplan.structs import Allocation, Job
from fastplan.structs.canonical import canonical_alloc

PRIORITY_GAP: Final = 10
"""By how much the priority of a victim's job must be lower at least."""

MIGRATION_PENALTY: Final = 50.0
"""What is added to a distance for each allocation beyond the migration limit of its group."""

GroupKey = tuple[str, str, str]
"""Namespace, job id and group."""

NO_TOTALS: Final = Totals(0, 0, 0, 0, frozenset())


class Candidate(NamedTuple):
    """An allocation that may have to give way.

    `penalty` is what its distance grows by, because its group loses more allocations at a time than it wants to.
    """

    alloc: Allocation
    priority: int
    totals: Totals
    penalty: float


class Preemptor:
    """Chooses victims on one node after another, for placements of one job.

    `preempted` counts by group what the plan preempts already, on any node. With *strict* everything on the node counts as used; as recorded, allocations of
    the job itself do not (schedulers 11).
    """

    def __init__(self, *, namespace: str, job_id: str, priority: int, preempted: Counter[GroupKey] | None = None, strict: bool = False) -> None:
        self.namespace = namespace
        self.job_id = job_id
        self.priority = priority
        self.preempted: Counter[GroupKey] = Counter() if preempted is None else preempted
        self.strict = strict

    @classmethod
    def of(cls, job: Job, preempted: Counter[GroupKey], *, strict: bool) -> Preemptor:
        """Return the preemptor of a job."""
        return cls(namespace=job.namespace, job_id=job.id, priority=job.priority, preempted=preempted, strict=strict)

    def is_own(self, alloc: Allocation) -> bool:
        """Return whether an allocation belongs to the job that is placed."""
        return alloc.job_id == self.job_id and alloc.namespace == self.namespace

    def may_evict(self, alloc: Allocation) -> bool:
        """Return whether the priority of an allocation's job is low enough; without a job nobody knows it."""
        return alloc.job is not None and self.priority - alloc.job.priority >= PRIORITY_GAP

    def others(self, allocs: Iterable[Allocation]) -> list[Allocation]:
        """Return the allocations of other jobs, in canonical form, by id: of victims that are equally near the first one goes."""
        return sorted((canonical_alloc(alloc) for alloc in allocs if not self.is_own(alloc)), key=lambda alloc: alloc.id)

    def by_priority(self, allocs: Iterable[Allocation]) -> list[list[Candidate]]:
        """Return those that may be evicted, grouped by the priorities of their jobs, lowest first."""
        groups: dict[int, list[Candidate]] = {}
        for alloc in allocs:
            if alloc.job is not None and self.may_evict(alloc):
                groups.setdefault(alloc.job.priority, []).append(self._candidate(alloc, alloc.job.priority))
        return [group for _, group in sorted(groups.items())]

    def _candidate(self, alloc: Allocation, priority: int) -> Candidate:
        group = alloc.group
        limit = group.migrate.max_parallel if group is not None and group.migrate is not None else 0
        count = self.preempted[alloc.namespace, alloc.job_id, alloc.task_group]
        penalty = MIGRATION_PENALTY * (count + 1 - limit) if limit > 0 and count >= limit else 0.0
        return Candidate(alloc, priority, totals_or_nothing(alloc), penalty)

    def for_resources(self, supply: NodeSupply, allocs: Sequence[Allocation], ask: Totals) -> list[Allocation] | None:
        """Choose victims among *allocs*, all that are proposed on a node, so that *ask* (MHz, MiB, cores) is free afterwards; None if that cannot be.

        At least one is chosen, even where there is room without.
        """
        others = self.others(allocs)
        counted = [canonical_alloc(alloc) for alloc in allocs] if self.strict else others
        free = _Amounts.of(Totals(supply.cpu_mhz, supply.memory_mib, 0, supply.disk_mib, supply.cores))
        for alloc in counted:
            free.take(totals_or_nothing(alloc))
        available = free.copy()
        needed = _Amounts.of(ask)
        chosen: list[Candidate] = []
        for group in self.by_priority(others):
            while group and not (chosen and available.covers(ask)):
                # The bound method is that of the amounts as they are now.
                candidate = min(group, key=needed.distance_with_penalty)
                group.remove(candidate)
                available.give(candidate.totals)
                needed.take(candidate.totals)
                chosen.append(candidate)
        if not chosen or not available.covers(ask):
            return None
        farthest_first = sorted(chosen, key=lambda candidate: distance(ask, candidate.totals), reverse=True)
        return [candidate.alloc for candidate in _shortest_prefix(farthest_first, free, ask)]


class _Amounts:
    """What is free, or still needed: MHz, MiB and cores."""

    __slots__ = ("cores", "cpu_mhz", "disk_mib", "memory_mib")

    def __init__(self, cpu_mhz: int, memory_mib: int, disk_mib: int, cores: set[int]) -> None:
        self.cpu_mhz = cpu_mhz
        self.memory_mib = memory_mib
        self.disk_mib = disk_mib
        self.cores = cores

    @classmethod
    def of(cls, totals: Totals) -> _Amounts:
        return cls(totals.cpu_mhz, totals.memory_mib, totals.disk_mib, set(totals.cores))

    def copy(self) -> _Amounts:
        return _Amounts(self.cpu_mhz, self.memory_mib, self.disk_mib, set(self.cores))

    def take(self, totals: Totals) -> None:
        self.cpu_mhz -= totals.cpu_mhz
        self.memory_mib -= totals.memory_mib
        self.disk_mib -= totals.disk_mib
        self.cores -= totals.cores

    def give(self, totals: Totals) -> None:
        self.cpu_mhz += totals.cpu_mhz
        self.memory_mib += totals.memory_mib
        self.disk_mib += totals.disk_mib
        self.cores |= totals.cores

    def covers(self, ask: Totals) -> bool:
        enough = self.cpu_mhz >= ask.cpu_mhz and self.memory_mib >= ask.memory_mib and self.disk_mib >= ask.disk_mib
        return enough and self.cores >= ask.cores

    def distance(self, totals: Totals) -> float:
        """Return how far an allocation is from what these amounts ask for (schedulers 11)."""
        return math.sqrt(
            _squared_share(self.memory_mib, totals.memory_mib) + _squared_share(self.cpu_mhz, totals.cpu_mhz) + _squared_share(self.disk_mib, totals.disk_mib)
        )

    def distance_with_penalty(self, candidate: Candidate) -> float:
        return self.distance(candidate.totals) + candidate.penalty


def _squared_share(asked: int, amount: int) -> float:
    share: float = (asked - amount) / asked if asked > 0 else 0.0
    return share * share


def distance(ask: Totals, totals: Totals) -> float:
    """Return how far an allocation of *totals* is from an *ask*: 0 is a perfect match; amounts that are not asked do not count (schedulers 11)."""
    return _Amounts.of(ask).distance(totals)


def _shortest_prefix(candidates: Sequence[Candidate], free: _Amounts, ask: Totals) -> list[Candidate]:
    """Return the first *candidates* that, with what is *free*, cover the *ask*: at least one, at most all."""
    available = free.copy()
    kept: list[Candidate] = []
    for candidate in candidates:
        kept.append(candidate)
        available.give(candidate.totals)
        if available.covers(ask):
            break
    return kept


def totals_or_nothing(alloc: Allocation) -> Totals:
    """Return the amounts of a canonical allocation; nothing if it has no resources."""
    return NO_TOTALS if alloc.allocated_resources is None else totals_of(alloc)


def net_priority(allocs: Sequence[Allocation]) -> float:
    """Return the priority that counts against evicting *allocs*: the highest one, plus the sum of all over the highest (schedulers 9.8)."""
    priorities = [alloc.job.priority for alloc in allocs if alloc.job is not None]
    highest = max(priorities, default=0)
    return highest + sum(priorities) / highest if highest > 0 else 0.0


def preemption_score(allocs: Sequence[Allocation]) -> float:
    """Return the score of a node on which *allocs* have to give way, 0 to 1 (schedulers 9.8)."""
    return 1.0 / (1.0 + math.exp(0.0048 * (net_priority(allocs) - 2048.0)))


def preempted_counts(entries: Iterable[Allocation]) -> Counter[GroupKey]:
    """Count preempted allocations by group."""
    return Counter((entry.namespace, entry.job_id, entry.task_group) for entry in entries)
