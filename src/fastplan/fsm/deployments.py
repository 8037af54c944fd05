"""Deployments as the state machine writes them (plan-apply 6.10, steps 3, 4 and 7)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from fastplan.errors import StateError
from fastplan.state import StateStore
from fastplan.structs import Allocation, Deployment, DeploymentState, DeploymentUpdate

ACTIVE_STATUSES: Final = frozenset({"running", "paused", "pending", "blocked", "unblocking", "initializing"})
"""Statuses of a deployment that can still change."""

DEADLINE_STATUSES: Final = frozenset({"running", "paused"})

RUNNING_DESCRIPTION: Final = "Deployment is running"


def check_promotion(store: StateStore, deployment: Deployment) -> None:
    """Raise `StateError` if *deployment* would undo a promotion."""
    stored = store.deployment(deployment.id)
    if stored is None:
        return
    for name, group in stored.task_groups.items():
        new = deployment.task_groups.get(name)
        if group.promoted and new is not None and not new.promoted:
            raise StateError("deployment promotion cannot be undone")


def write_plan_deployment(store: StateStore, index: int, now_ns: int, deployment: Deployment) -> None:
    """Write the deployment of a plan: what happened to its groups since the scheduler looked is kept."""
    stored = store.deployment(deployment.id)
    if stored is not None:
        for name, group in stored.task_groups.items():
            new = deployment.task_groups.get(name)
            if new is None:
                deployment.task_groups[name] = group
                continue
            new.healthy_allocs = group.healthy_allocs
            new.unhealthy_allocs = group.unhealthy_allocs
            new.placed_allocs = group.placed_allocs
            new.require_progress_by = group.require_progress_by
    deployment.modify_time = now_ns
    store.upsert_deployment(index, deployment)
    mark_stable(store, index, deployment)


def mark_stable(store: StateStore, index: int, deployment: Deployment) -> None:
    """Mark the job version of a successful deployment stable."""
    if deployment.status != "successful":
        return
    namespace = deployment.namespace or "default"
    job = store.job(namespace, deployment.job_id, deployment.job_version)
    if job is not None and not job.stable:
        job.stable = True
        job.modify_index = index
        store.jobs_view.add_version(job)
        store.touch(index, "jobs")


def update_status(store: StateStore, index: int, now_ns: int, update: DeploymentUpdate) -> bool:
    """Change the status of a deployment. False if it does not exist or has ended: the caller then stops, without an error."""
    deployment = store.deployment(update.deployment_id)
    if deployment is None or deployment.status not in ACTIVE_STATUSES:
        return False
    deployment.status = update.status
    deployment.status_description = update.status_description
    deployment.modify_time = now_ns
    if update.status in DEADLINE_STATUSES:
        for group in deployment.task_groups.values():
            if group.progress_deadline:
                group.require_progress_by = now_ns + group.progress_deadline
    store.upsert_deployment(index, deployment)
    mark_stable(store, index, deployment)
    return True


def requires_promotion(deployment: Deployment) -> bool:
    """Return whether a group of a deployment has canaries that are not promoted."""
    return any(group.desired_canaries > 0 and not group.promoted for group in deployment.task_groups.values())


def promote(store: StateStore, index: int, now_ns: int, deployment_id: str, groups: Iterable[str] | None) -> None:
    """Promote the canaries of a deployment: of all groups (None), or of those named; names of no group are passed over. They are canaries no longer."""
    deployment = store.deployment(deployment_id)
    if deployment is None:
        return
    wanted = set(deployment.task_groups if groups is None else groups)
    canaries = []
    for name, group in deployment.task_groups.items():
        if name in wanted and group.desired_canaries > 0:
            group.promoted = True
            canaries += group.placed_canaries
    if deployment.status == "running" and not requires_promotion(deployment):
        deployment.status_description = RUNNING_DESCRIPTION
    deployment.modify_time = now_ns
    store.upsert_deployment(index, deployment)
    allocs = [alloc for alloc in map(store.alloc, canaries) if alloc is not None and alloc.deployment_status is not None]
    for alloc in allocs:
        assert alloc.deployment_status is not None
        alloc.deployment_status.canary = False
        alloc.deployment_status.modify_index = index
    store.rewrite_allocs(index, now_ns, allocs)


def count_allocs(store: StateStore, index: int, now_ns: int, written: Iterable[Allocation], before: Mapping[str, Allocation | None]) -> None:
    """Bring the counters of deployments up to date with allocations that were written. *before*: their stored versions, None for new ones."""
    changed: dict[str, Deployment] = {}
    for alloc in written:
        if not alloc.deployment_id:
            continue
        deployment = changed.get(alloc.deployment_id) or store.deployment(alloc.deployment_id)
        group = None if deployment is None else deployment.task_groups.get(alloc.task_group)
        if deployment is None or group is None:
            continue
        old = before.get(alloc.id)
        if _count_one(group, alloc, old, now_ns):
            changed[deployment.id] = deployment
    for deployment in changed.values():
        store.upsert_deployment(index, deployment)


def _count_one(group: DeploymentState, alloc: Allocation, old: Allocation | None, now_ns: int) -> bool:
    health = None if alloc.deployment_status is None else alloc.deployment_status.healthy
    old_health = None if old is None or old.deployment_id != alloc.deployment_id or old.deployment_status is None else old.deployment_status.healthy
    placed = old is None or old.deployment_id != alloc.deployment_id
    canary = alloc.deployment_status is not None and alloc.deployment_status.canary and alloc.id not in group.placed_canaries
    if placed:
        group.placed_allocs += 1
        if group.progress_deadline and not group.require_progress_by:
            group.require_progress_by = now_ns + group.progress_deadline
    if canary:
        group.placed_canaries = [*group.placed_canaries, alloc.id]
    if health is not old_health:
        group.healthy_allocs += (health is True) - (old_health is True)
        group.unhealthy_allocs += (health is False) - (old_health is False)
        if health is True and group.progress_deadline:
            group.require_progress_by = now_ns + group.progress_deadline
    return placed or canary or health is not old_health
