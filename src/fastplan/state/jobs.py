"""Jobs: what is registered, the versions that can be looked up, and the groups that allocations belong to.

A *version row* holds one job record as it was at one version; allocations refer to it. A *group row* is the number of (namespace, job id, group name);
groups are append-only, so all snapshots share them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from fastplan.state.records import MapView, RecordMap, RecordTable, RecordView
from fastplan.structs import Job

VERSIONS_KEPT = 6
"""Versions of a job that stay although no allocation uses them."""

JobKey = tuple[str, str]
"""Namespace and job id."""


class GroupKey(NamedTuple):
    """What a group row stands for."""

    namespace: str
    job_id: str
    group: str


class Groups:
    """Numbers of groups, append-only."""

    def __init__(self) -> None:
        self.keys: list[GroupKey] = []
        self._rows: dict[GroupKey, int] = {}
        self._by_job: dict[JobKey, list[int]] = {}

    def intern(self, namespace: str, job_id: str, group: str) -> int:
        """Return the row of a group, giving it one if it is new."""
        key = GroupKey(namespace, job_id, group)
        row = self._rows.get(key)
        if row is None:
            row = len(self.keys)
            self.keys.append(key)
            self._rows[key] = row
            self._by_job.setdefault((namespace, job_id), []).append(row)
        return row

    def find(self, namespace: str, job_id: str, group: str) -> int | None:
        """Return the row of a group, None if no allocation was ever in it."""
        return self._rows.get(GroupKey(namespace, job_id, group))

    def of_job(self, namespace: str, job_id: str) -> list[int]:
        """Return the rows of a job's groups."""
        return list(self._by_job.get((namespace, job_id), ()))


class JobsView:
    """Jobs as they were when the view was taken."""

    __slots__ = ("current", "groups", "lookup", "system", "versions")

    def __init__(
        self,
        versions: RecordView[Job],
        current: MapView[JobKey, int],
        lookup: MapView[JobKey, tuple[int, ...]],
        groups: Groups,
        system: MapView[JobKey, int],
    ) -> None:
        """*system*: the part of *current* that are system jobs, which every change of a node concerns."""
        self.versions = versions
        self.current = current
        self.lookup = lookup
        self.groups = groups
        self.system = system

    def get(self, namespace: str, job_id: str, version: int | None = None) -> Job | None:
        """Return the record of a job, or of one of its versions; shared, not to be changed."""
        row = self.row_of(namespace, job_id, version)
        return None if row is None else self.versions.get(row)

    def row_of(self, namespace: str, job_id: str, version: int | None = None) -> int | None:
        """Return the version row of a registered job, or of a version that can be looked up."""
        if version is None:
            return self.current.get((namespace, job_id))
        for row in self.lookup.get((namespace, job_id), ()):
            if self.versions[row].version == version:
                return row
        return None

    def versions_of(self, namespace: str, job_id: str) -> list[Job]:
        """Return all versions of a job that can be looked up, newest first; shared, not to be changed."""
        return [self.versions[row] for row in self.lookup.get((namespace, job_id), ())]

    def registered(self) -> Iterator[Job]:
        """Yield the records of all registered jobs, in no particular order."""
        for row in self.current.values():
            yield self.versions[row]

    def registered_system(self) -> Iterator[Job]:
        """Yield the records of the registered system jobs, in no particular order."""
        for row in self.system.values():
            yield self.versions[row]


class JobTable(JobsView):
    """The jobs of a store; `view` gives a frozen one."""

    __slots__ = ("_embedded",)

    versions: RecordTable[Job]
    current: RecordMap[JobKey, int]
    lookup: RecordMap[JobKey, tuple[int, ...]]
    system: RecordMap[JobKey, int]

    def __init__(self) -> None:
        super().__init__(RecordTable(), RecordMap(), RecordMap(), Groups(), RecordMap())
        # Rows that cannot be looked up, ascending: they live as long as allocations use them.
        self._embedded: dict[tuple[str, str, int], list[int]] = {}

    def view(self) -> JobsView:
        """Return the table as it is now, frozen."""
        return JobsView(self.versions.view(), self.current.view(), self.lookup.view(), self.groups, self.system.view())

    def add_version(self, job: Job) -> int:
        """Make a version of a job known, in place of an equal number if there is one, and return its row. *job* is kept."""
        key = (job.namespace, job.id)
        rows = self.lookup.get(key, ())
        for row in rows:
            if self.versions[row].version == job.version:
                self.versions.set(row, job)
                return row
        row = self.versions.add(job)
        self.lookup.set(key, tuple(sorted((*rows, row), key=lambda known: -self.versions[known].version)))
        return row

    def register(self, job: Job) -> int:
        """Make *job* the registered one of its id and return its row. *job* is kept."""
        row = self.add_version(job)
        self._set_current((job.namespace, job.id), row)
        return row

    def _set_current(self, key: JobKey, row: int) -> None:
        self.current.set(key, row)
        if self.versions[row].type == "system":
            self.system.set(key, row)
        elif key in self.system:
            self.system.delete(key)

    def embed(self, job: Job) -> int:
        """Return the row of the job that came inside an allocation: of the version that can be looked up if it is the same, else a row of its own.

        *job* is copied if it is kept.
        """
        known = self.row_of(job.namespace, job.id, job.version)
        if known is not None and self.versions[known] == job:
            return known
        rows = self._embedded.setdefault((job.namespace, job.id, job.version), [])
        for row in rows:
            if self.versions[row] == job:
                return row
        row = self.versions.add(job.copy())
        insort(rows, row)
        return row

    def deregister(self, namespace: str, job_id: str, uses: Callable[[int], int]) -> None:
        """Forget that a job is registered, and the versions that could be looked up. Rows stay while allocations use them. *uses*: how many do."""
        key = (namespace, job_id)
        if key in self.current:
            self.current.delete(key)
        if key in self.system:
            self.system.delete(key)
        rows = self.lookup.get(key, ())
        if rows:
            self.lookup.delete(key)
        for row in rows:
            if uses(row):
                # An allocation that brings the same job again gets the same row, on every replica.
                insort(self._embedded.setdefault((*key, self.versions[row].version), []), row)
            else:
                self.versions.free(row)

    def prune(self, namespace: str, job_id: str, uses: Callable[[int], int]) -> None:
        """Drop old versions that no allocation uses, except the newest few and the newest stable one. *uses*: how many allocations use a row."""
        rows = self.lookup.get((namespace, job_id), ())
        stable = next((row for row in rows if self.versions[row].stable), None)
        kept = tuple(
            row for place, row in enumerate(rows) if place < VERSIONS_KEPT or row == stable or row == self.current.get((namespace, job_id)) or uses(row)
        )
        if len(kept) < len(rows):
            self.lookup.set((namespace, job_id), kept)
            for row in rows:
                if row not in kept:
                    self.versions.free(row)

    def release(self, row: int) -> None:
        """Free the row of a version that no allocation uses any more, unless it can be looked up."""
        job = self.versions.get(row)
        if job is None or row in self.lookup.get((job.namespace, job.id), ()):
            return
        key = (job.namespace, job.id, job.version)
        self._embedded[key].remove(row)
        if not self._embedded[key]:
            del self._embedded[key]
        self.versions.free(row)

    def restore(
        self,
        versions: list[tuple[int, Job]],
        current: Iterable[tuple[str, str, int]],
        lookup: Iterable[tuple[str, str, list[int]]],
        groups: Iterable[tuple[str, str, str]],
    ) -> None:
        """Fill an empty table with what another one held: its versions by row ascending, the registered ones, those to be looked up, the groups by row."""
        self.versions.restore(versions)
        for namespace, job_id, row in current:
            self._set_current((namespace, job_id), row)
        looked_up = set()
        for namespace, job_id, rows in lookup:
            self.lookup.set((namespace, job_id), tuple(rows))
            looked_up.update(rows)
        for row, job in versions:
            if row not in looked_up:
                self._embedded.setdefault((job.namespace, job.id, job.version), []).append(row)
        for namespace, job_id, group in groups:
            self.groups.intern(namespace, job_id, group)
