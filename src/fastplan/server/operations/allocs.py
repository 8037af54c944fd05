"""Operations on allocations: what clients report, and stopping one (worker-and-broker 2.3, 5.4)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.fsm.deployments import ACTIVE_STATUSES
from fastplan.server.operations.evaluations import ALLOC_FAILURE, ALLOC_STOP, DEPLOYMENT_WATCHER, RECONNECT, NewId, job_evaluation
from fastplan.server.operations.operation import Operation, Unblock
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, Evaluation, Job

CLIENT_STATUSES: Final = frozenset({"pending", "running", "complete", "failed", "lost", "unknown"})
FREEING_STATUSES: Final = frozenset({"complete", "failed"})
"""Client statuses with which an allocation gives back what it held for certain."""


def update_allocs_from_client(state: StateReader, allocs: Iterable[Allocation], now_ns: int, new_id: NewId) -> Operation:
    """Write what clients say of their allocations; of the records only id, client status and description, task states and deployment status are read.

    Unknown ids are passed over. A job is evaluated once for each of: an allocation that failed and may be replaced (schedulers 2.7, 7.3), one that is
    back from `unknown`, and one whose health became known or changed in an active deployment, which may go on then. An allocation that completed or
    failed has made room. Raises InvalidInput for a client status that there is not.
    """
    updates: list[codec.AllocClientUpdate] = []
    evaluations: dict[tuple[str, str, str], Evaluation] = {}
    unblocks: dict[Unblock, None] = {}
    known: dict[str, Allocation] = {}
    for place, alloc in enumerate(allocs):
        if alloc.client_status not in CLIENT_STATUSES:
            raise InvalidInput(f"allocs[{place}].ClientStatus", alloc.client_status, f"one of {', '.join(sorted(CLIENT_STATUSES))}")
        stored = known.get(alloc.id) or state.alloc(alloc.id)
        if stored is None:
            continue
        updates.append(_update_of(alloc))
        job = state.jobs_view.get(stored.namespace, stored.job_id)
        if job is not None and not job.stop:
            for trigger, deployment_id in _reasons(state, stored, alloc, job):
                key = (job.namespace, job.id, trigger)
                if key not in evaluations:
                    evaluations[key] = job_evaluation(job, trigger, now_ns, new_id, job_modify_index=job.modify_index)
                    evaluations[key].deployment_id = deployment_id
        if alloc.client_status in FREEING_STATUSES and not stored.is_client_terminal:
            unblocks.update(dict.fromkeys(_room_after(state, stored)))
        # A later report in the same call comes after this one.
        stored.client_status = alloc.client_status
        stored.deployment_status = alloc.deployment_status or stored.deployment_status
        known[alloc.id] = stored
    if not updates:
        return Operation()
    return Operation([codec.UpdateAllocsFromClient(updates)], list(evaluations.values()), list(unblocks))


def stop_alloc(state: StateReader, alloc_id: str, now_ns: int, new_id: NewId, *, no_shutdown_delay: bool = False, reschedule: bool = False) -> Operation:
    """Have an allocation stopped and, if it is still wanted, placed elsewhere: it is marked for migration, and its job evaluated, in any case.

    *reschedule*: also a batch allocation is to be placed again. Raises StateError for an allocation that does not exist.
    """
    alloc = state.alloc(alloc_id)
    if alloc is None:
        raise StateError("allocation not found")
    job = alloc.job or state.job(alloc.namespace, alloc.job_id)
    if job is None:
        raise StateError(f'job "{alloc.job_id}" of allocation {alloc_id} not found')
    transition = {"Migrate": True, "NoShutdownDelay": no_shutdown_delay}
    if reschedule:
        transition["Reschedule"] = True
    evaluation = job_evaluation(job, ALLOC_STOP, now_ns, new_id, job_modify_index=job.modify_index)
    evaluation.namespace, evaluation.job_id = alloc.namespace, alloc.job_id
    return Operation([codec.UpdateAllocDesiredTransitions({alloc_id: transition})], [evaluation])


def _update_of(alloc: Allocation) -> codec.AllocClientUpdate:
    said = alloc.to_api()
    return codec.AllocClientUpdate(alloc.id, alloc.client_status, said.get("ClientDescription"), said.get("TaskStates"), said.get("DeploymentStatus"))


def _reasons(state: StateReader, stored: Allocation, said: Allocation, job: Job) -> list[tuple[str, str]]:
    """Return why the job has to be looked at, as (trigger, deployment id)."""
    reasons = []
    if said.client_status == "failed" and stored.client_status != "failed" and _is_replaceable(stored, job):
        reasons.append((ALLOC_FAILURE, ""))
    if stored.client_status == "unknown" and said.client_status != "unknown":
        reasons.append((RECONNECT, ""))
    if stored.deployment_id and said.deployment_status is not None and said.deployment_status.healthy is not None:
        before = None if stored.deployment_status is None else stored.deployment_status.healthy
        deployment = None if before is said.deployment_status.healthy else state.deployment(stored.deployment_id)
        if deployment is not None and deployment.status in ACTIVE_STATUSES:
            reasons.append((DEPLOYMENT_WATCHER, deployment.id))
    return reasons


def _is_replaceable(alloc: Allocation, job: Job) -> bool:
    """Return whether a scheduler may replace an allocation that failed: whether and when it does is its business.

    A system job places again at once, a sysbatch job never. Others look at the group's policy, and at nothing once a follow-up is under way.
    """
    if alloc.is_server_terminal or alloc.followup_eval_id or job.type == "sysbatch":
        return False
    if job.type == "system":
        return True
    group = job.group(alloc.task_group)
    policy = None if group is None else group.reschedule_policy
    return policy is not None and (policy.unlimited or policy.attempts > 0)


def _room_after(state: StateReader, alloc: Allocation) -> list[Unblock]:
    """Return what the end of an allocation unblocks."""
    row = state.node_row(alloc.node_id)
    node = None if row is None else state.node_record(row)
    if node is None:
        return []
    return [Unblock("class_and_quota", computed_class=node.computed_class), Unblock("node", node_id=node.id)]
