"""Deployments of system jobs (schedulers 4.13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastplan.structs import Allocation, Deployment, DesiredUpdates, Job, TaskGroup

if TYPE_CHECKING:
    from fastplan.scheduler.context import Context
    from fastplan.scheduler.reconciler.node import Entry, SystemReconciliation
    from fastplan.scheduler.setting import Setting

ACTIVE = frozenset({"running", "paused", "blocked", "unblocking", "pending", "initializing"})


class SystemRollout:
    """The deployment that a plan of a system job belongs to."""

    def __init__(self, job: Job | None, latest: Deployment | None, *, strict: bool) -> None:
        self._job = job
        self._strict = strict
        self.latest = latest
        self.current: Deployment | None = None
        if latest is not None and job is not None and latest.job_version == job.version and latest.job_create_index == job.create_index:
            self.current = latest if latest.status in ACTIVE else None

    @property
    def deployment_id(self) -> str:
        """What the finished evaluation says."""
        return "" if self.latest is None else self.latest.id

    @property
    def latest_id(self) -> str:
        """What updates in place carry: the latest deployment, whatever its status."""
        return "" if self.latest is None else self.latest.id

    @property
    def active_id(self) -> str:
        """What new allocations carry: an active deployment only."""
        return "" if self.latest is None or self.latest.status not in ACTIVE else self.latest.id

    def undecided(self, group: TaskGroup, ignored: Iterable[Entry]) -> int:
        """Return how many allocations of a group belong to the current deployment and are neither healthy nor unhealthy yet."""
        if self.current is None:
            return 0
        return sum(
            entry.group is group
            and entry.alloc is not None
            and entry.alloc.deployment_id == self.current.id
            and (entry.alloc.deployment_status is None or entry.alloc.deployment_status.healthy is None)
            for entry in ignored
        )

    def note_placement(self, entry: Entry, alloc: Allocation) -> None:
        """Note a new allocation."""

    def note_failure(self, entry: Entry) -> None:
        """Note that a candidate node cannot take the group."""

    def finish(self, context: Context, setting: Setting, found: SystemReconciliation, desired: dict[str, DesiredUpdates]) -> None:
        """Put the deployment into the plan."""
