"""The deployment of a service job, as the reconciler sees it (schedulers 7.5, 7.9)."""

from __future__ import annotations

from typing import Final

from fastplan.scheduler.setting import Setting
from fastplan.structs import Allocation, Deployment, DeploymentState, DeploymentUpdate, Job, TaskGroup, UpdateStrategy

ACTIVE: Final = frozenset({"running", "paused", "blocked", "unblocking", "initializing", "pending"})

CANCELLED_STOPPED: Final = "Cancelled because job is stopped"
CANCELLED_NEWER: Final = "Cancelled due to newer version of job"
RUNNING: Final = "Deployment is running"
NEEDS_PROMOTION: Final = "Deployment is running but requires manual promotion"
WILL_BE_PROMOTED: Final = "Deployment is running pending automatic promotion"
COMPLETE_HERE: Final = "Deployment is complete but waiting for peer region"
WAITS_FOR_PEER: Final = "Deployment is pending, waiting for peer region"
SUCCESSFUL: Final = "Deployment completed successfully"


def is_empty(update: UpdateStrategy | None) -> bool:
    """Return whether there is no update strategy."""
    return update is None or update.max_parallel == 0


def _canaries(deployment: Deployment | None, *, promoted: bool) -> list[str]:
    """Return the ids of a deployment's canaries; *promoted*: of promoted groups too."""
    states = [] if deployment is None else deployment.task_groups.values()
    return [alloc_id for state in states if promoted or not state.promoted for alloc_id in state.placed_canaries]


class Rollout:
    """The deployments that one reconciliation meets: the current one of this version, and the one before.

    `canaries`: ids of those of the current deployment. `unneeded_canaries`: of those of a deployment that was not finished, and of one that failed.
    """

    def __init__(self, job: Job | None, latest: Deployment | None, setting: Setting, priority: int) -> None:
        self._job = job
        self._setting = setting
        self._priority = priority
        self.current = latest
        self.old: Deployment | None = None
        self.created: Deployment | None = None
        self.updates: list[DeploymentUpdate] = []
        if latest is not None:
            self._set_aside(latest)
        self.paused = self.current is not None and self.current.status in ("paused", "pending", "initializing")
        self.failed = self.current is not None and self.current.status == "failed"
        # None are added while groups are looked at, of which there may be very many.
        self.canaries = frozenset(_canaries(self.current, promoted=True))
        self.unneeded_canaries = frozenset([*_canaries(self.old, promoted=False), *_canaries(self.current if self.failed else None, promoted=False)])

    def _set_aside(self, latest: Deployment) -> None:
        """Cancel what is not of this job and version, and take what is over out of the way."""
        job = self._job
        if job is None or job.stop:
            if latest.status in ACTIVE:
                self._update(latest, "cancelled", CANCELLED_STOPPED)
            self.current, self.old = None, latest
        elif latest.job_create_index != job.create_index or latest.job_version != job.version:
            if latest.status in ACTIVE:
                self._update(latest, "cancelled", CANCELLED_NEWER)
            self.current, self.old = None, latest
        elif latest.status == "successful":
            self.current, self.old = None, latest

    def _update(self, deployment: Deployment, status: str, description: str) -> None:
        self.updates.append(DeploymentUpdate(deployment_id=deployment.id, status=status, status_description=description))

    def state_of(self, group: TaskGroup) -> tuple[DeploymentState, bool]:
        """Return the state of a group's roll-out, and whether the current deployment has it."""
        known = None if self.current is None else self.current.task_groups.get(group.name)
        if known is not None:
            return known, True
        state = DeploymentState()
        if group.update is not None and not is_empty(group.update):
            state.auto_revert = group.update.auto_revert
            state.auto_promote = group.update.auto_promote
            state.progress_deadline = group.update.progress_deadline
        return state, False

    def create(self, group: TaskGroup, state: DeploymentState, existing: bool, allocs: list[Allocation], *, updating: bool) -> None:
        """Add a group to the deployment of this version, making one if there is none."""
        job = self._job
        assert job is not None
        if existing or is_empty(group.update) or state.desired_total == 0:
            return
        had_running = any(alloc.job is not None and alloc.job.version == job.version and alloc.job.create_index == job.create_index for alloc in allocs)
        if had_running and not updating:
            return
        if self.current is None:
            self.current = self.created = new_deployment(job, self._setting, self._priority)
        self.current.task_groups[group.name] = state

    def finish(self, complete: bool) -> None:
        """Say what became of the deployment, once all groups were looked at."""
        if self.created is not None:
            awaiting = [state for state in self.created.task_groups.values() if state.desired_canaries > 0 and not state.promoted]
            if awaiting:
                automatic = all(state.auto_promote for state in awaiting)
                self.created.status_description = WILL_BE_PROMOTED if automatic else NEEDS_PROMOTION
        current = self.current
        if current is None:
            return
        if complete and not (self._setting.strict and current.status not in ACTIVE):
            if current.is_multiregion:
                self._update(current, "blocked", COMPLETE_HERE)
            else:
                self._update(current, "successful", SUCCESSFUL)
        if current.status == "initializing":
            # Some other region began it: it is this region's turn once that says so.
            self.created = current
            self._update(current, "pending", WAITS_FOR_PEER)


def new_deployment(job: Job, setting: Setting, priority: int) -> Deployment:
    """Return a deployment of a job, as it begins. *priority*: of the evaluation."""
    now_ns = setting.now_ns()
    # Read, so that version 0 is told apart from no version wherever the record is written out.
    return Deployment.from_api(
        {
            "ID": setting.new_id(),
            "Namespace": job.namespace,
            "JobID": job.id,
            "JobVersion": job.version,
            "JobModifyIndex": job.modify_index,
            "JobSpecModifyIndex": job.job_modify_index,
            "JobCreateIndex": job.create_index,
            "IsMultiregion": job.multiregion is not None,
            "Status": "running",
            "StatusDescription": RUNNING,
            "EvalPriority": priority,
            "CreateTime": now_ns,
            "ModifyTime": now_ns,
        }
    )


def state_complete(state: DeploymentState) -> bool:
    """Return whether a group has as many healthy allocations as it wants, and its canaries were promoted."""
    if state.healthy_allocs < max(state.desired_total, state.desired_canaries):
        return False
    return state.desired_canaries == 0 or state.promoted
