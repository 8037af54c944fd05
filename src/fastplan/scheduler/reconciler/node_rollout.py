"""The deployment of a system job, while its nodes are looked at one after the other (schedulers 4.13)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fastplan.scheduler.reconciler.rollout import ACTIVE, CANCELLED_NEWER, CANCELLED_STOPPED, is_empty
from fastplan.scheduler.versions import semver_meets
from fastplan.structs import Allocation, Deployment, DeploymentState, DeploymentUpdate, Job, Node, TaskGroup

_SILENT: Final = "< 1.11.0"
"""Clients that do not tell how system allocations fare. Of what has no readable version that is taken for granted."""


class NodeRollout:
    """Which deployment is the current one, what becomes of an older one, and which groups begin to be rolled out.

    `current`: the latest deployment as long as it is of this version of the job and not successful. `old`: the latest one otherwise. `begun`: the states of
    groups that the reconciliation adds, to `current` or, without one, to a deployment that is yet to be made. `updates`: changes of status.
    """

    def __init__(self, job: Job | None, latest: Deployment | None, *, strict: bool) -> None:
        self._job = job
        self._strict = strict
        self._looked = False
        self._had_deployment = latest is not None
        self.current = latest
        self.old: Deployment | None = None
        self.begun: dict[str, DeploymentState] = {}
        self.updates: list[DeploymentUpdate] = []
        self._has_updates = job is not None and any(not is_empty(group.update) for group in job.task_groups)

    @property
    def is_new(self) -> bool:
        """Whether a deployment is to be made."""
        return self.current is None and bool(self.begun)

    def look_at_node(self) -> None:
        """Begin with a node: the first one tells whether the latest deployment still counts. As recorded, that of a stopped job is cancelled at each."""
        first, self._looked = not self._looked, True
        latest, job = self.current, self._job
        if latest is None:
            return
        if job is None or job.stop:
            if latest.status in ACTIVE and (first or not self._strict):
                self._cancel(latest, CANCELLED_STOPPED)
        elif not first:
            return
        elif latest.job_version != job.version or latest.job_create_index != job.create_index:
            if latest.status in ACTIVE:
                self._cancel(latest, CANCELLED_NEWER)
                self._set_aside(latest)
            elif latest.status == "successful" or self._strict:
                self._set_aside(latest)
        elif latest.status == "successful":
            self._set_aside(latest)

    def _cancel(self, deployment: Deployment, description: str) -> None:
        self.updates.append(DeploymentUpdate(deployment_id=deployment.id, status="cancelled", status_description=description))

    def _set_aside(self, deployment: Deployment) -> None:
        self.current, self.old = None, deployment

    def is_canary(self, group: TaskGroup) -> bool:
        """Return whether an update of a group is one of a canary: that is so without any deployment too."""
        if group.update is None or group.update.max_parallel == 0 or group.update.canary <= 0:
            return False
        if self.current is None and not self.begun:
            return True
        state = self._state_of(group)
        return state is not None and not state.promoted

    def _state_of(self, group: TaskGroup) -> DeploymentState | None:
        known = None if self.current is None else self.current.task_groups.get(group.name)
        return self.begun.get(group.name) if known is None else known

    def begin(self, group: TaskGroup, on_node: Iterable[Allocation], *, updating: bool) -> None:
        """Roll a group out if a node gives reason to: nothing of this version was on it, or something there is to be updated.

        *on_node*: the allocations of all groups on the node, live and terminal ones.
        """
        job, update = self._job, group.update
        if not self._has_updates or job is None or update is None or is_empty(update) or self._state_of(group) is not None:
            return
        if self.current is not None and self.current.status in ("paused", "failed"):
            return
        if self.old is not None and self.old.job_version == job.version:
            return
        if updating or not any(_is_of(alloc, job) for alloc in on_node):
            self.begun[group.name] = DeploymentState(
                auto_revert=update.auto_revert, auto_promote=update.auto_promote, progress_deadline=update.progress_deadline
            )

    def has_begun_without(self, alloc: Allocation) -> bool:
        """Return whether a live allocation is of this version and of a group with an update strategy."""
        if not self._has_updates or self._job is None or not _is_of(alloc, self._job):
            return False
        group = self._job.group(alloc.task_group)
        return group is not None and not is_empty(group.update)

    def settle(self, ready_nodes: Iterable[Node], *, runs_on: bool) -> None:
        """Do without a first deployment where allocations run on that have none, and where clients could not say how the new ones fare.

        *runs_on*: whether some live allocation stays as it is, unknown ones not counted, or one of this version exists of a group that is rolled out.
        """
        if self.is_new and not self._had_deployment and (runs_on or any(_is_silent(node) for node in ready_nodes)):
            self.begun.clear()


def _is_of(alloc: Allocation, job: Job) -> bool:
    return alloc.job is not None and alloc.job.version == job.version and alloc.job.create_index == job.create_index


def _is_silent(node: Node) -> bool:
    version = node.attributes.get("nomad.version")
    return isinstance(version, str) and semver_meets(version, _SILENT)
