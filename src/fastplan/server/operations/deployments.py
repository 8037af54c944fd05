"""Operations on deployments: promote, pause, go on, fail (worker-and-broker 2.3)."""

from __future__ import annotations

from collections.abc import Sequence

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.fsm.deployments import ACTIVE_STATUSES, RUNNING_DESCRIPTION
from fastplan.server.operations.evaluations import DEPLOYMENT_WATCHER, NewId, job_evaluation
from fastplan.server.operations.faults import Faults
from fastplan.server.operations.jobs import next_version, specification
from fastplan.server.operations.operation import Operation
from fastplan.state.snapshot import StateReader
from fastplan.structs import Deployment, Evaluation, Job

PAUSED_DESCRIPTION = "Deployment is paused"
FAILED_DESCRIPTION = "Deployment marked as failed"


def promote_deployment(state: StateReader, deployment_id: str, groups: Sequence[str] | None, now_ns: int, new_id: NewId) -> Operation:
    """Promote the canaries of all groups (None) or of those named, if enough of them are healthy, and evaluate the job. Unknown names are passed over.

    Raises StateError for a deployment that does not exist, has ended, or has no canaries at all, and where canaries are not healthy yet.
    """
    deployment = _active(state, deployment_id, "promote")
    if groups is not None and (isinstance(groups, str) or not all(isinstance(name, str) for name in groups)):
        raise InvalidInput("groups", groups, "list of texts")
    if not any(group.desired_canaries > 0 for group in deployment.task_groups.values()):
        raise StateError("no canaries to promote")
    faults = Faults()
    for name, group in deployment.task_groups.items():
        if group.desired_canaries <= 0 or (groups is not None and name not in groups):
            continue
        healthy = sum(_is_healthy(state, alloc_id) for alloc_id in group.placed_canaries)
        if healthy < group.desired_canaries:
            sentence = f'Task group "{name}" has {healthy}/{group.desired_canaries} healthy allocations'
            faults.add(f"deployment.TaskGroups[{name}]", healthy, "as many healthy canaries as desired", sentence)
    if faults:
        raise StateError(faults.text())
    command = codec.PromoteDeployment(deployment_id, None if groups is None else list(groups))
    return Operation([command], _evaluation(state, deployment, now_ns, new_id))


def pause_deployment(state: StateReader, deployment_id: str, paused: bool, now_ns: int, new_id: NewId) -> Operation:
    """Pause a deployment, or go on with it, which evaluates its job. Raises StateError for one that does not exist or has ended."""
    deployment = _active(state, deployment_id, "pause" if paused else "resume")
    if paused:
        return Operation([codec.UpdateDeploymentStatus(deployment_id, "paused", PAUSED_DESCRIPTION)])
    command = codec.UpdateDeploymentStatus(deployment_id, "running", RUNNING_DESCRIPTION)
    return Operation([command], _evaluation(state, deployment, now_ns, new_id))


def fail_deployment(state: StateReader, deployment_id: str, now_ns: int, new_id: NewId) -> Operation:
    """Fail a deployment and evaluate its job. If a group reverts on failure, the newest stable version before becomes the next one.

    Raises StateError for a deployment that does not exist or has ended.
    """
    deployment = _active(state, deployment_id, "fail")
    description = FAILED_DESCRIPTION
    commands: list[codec.Single] = []
    job = state.job(deployment.namespace, deployment.job_id)
    if job is not None and any(group.auto_revert for group in deployment.task_groups.values()):
        stable = next((version for version in state.job_versions(job.namespace, job.id) if version.stable and version.version < deployment.job_version), None)
        if stable is None:
            description += " - no stable job version to auto revert to"
        elif specification(stable) == specification(job):
            description += f" - not rolling back to stable job version {stable.version} as current job has same specification"
        else:
            description += f" - rolling back to job version {stable.version}"
            commands.append(_reverted(job, stable))
    commands.insert(0, codec.UpdateDeploymentStatus(deployment_id, "failed", description))
    return Operation(commands, _evaluation(state, deployment, now_ns, new_id))


def _active(state: StateReader, deployment_id: str, verb: str) -> Deployment:
    deployment = state.deployment(deployment_id)
    if deployment is None:
        raise StateError("deployment not found")
    if deployment.status not in ACTIVE_STATUSES:
        raise StateError(f"can't {verb} terminal deployment")
    return deployment


def _is_healthy(state: StateReader, alloc_id: str) -> bool:
    alloc = state.alloc(alloc_id)
    return alloc is not None and alloc.deployment_status is not None and alloc.deployment_status.healthy is True


def _reverted(job: Job, stable: Job) -> codec.UpsertJob:
    """Return the command that makes an earlier version the next one: it is as stable as it was, and as old."""
    command = next_version(job, stable, stable.submit_time)
    return codec.UpsertJob({**command.job, "Stable": True})


def _evaluation(state: StateReader, deployment: Deployment, now_ns: int, new_id: NewId) -> list[Evaluation]:
    """Return the evaluation of a deployment's job; none if the job is gone."""
    job = state.job(deployment.namespace, deployment.job_id)
    if job is None:
        return []
    evaluation = job_evaluation(job, DEPLOYMENT_WATCHER, now_ns, new_id, priority=deployment.eval_priority or None)
    evaluation.deployment_id = deployment.id
    return [evaluation]
