"""Operations on jobs: register, deregister, scale, dispatch (worker-and-broker 2.3, schedulers 2.1)."""

from __future__ import annotations

import base64
import copy
from collections.abc import Mapping
from typing import Any, Final

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.server.operations.evaluations import JOB_DEREGISTER, JOB_REGISTER, JOB_SCALING, NewId, is_template, job_evaluation
from fastplan.server.operations.faults import Faults
from fastplan.server.operations.job_defaults import fill_job
from fastplan.server.operations.job_validation import PRIORITY_MAX, check_job
from fastplan.server.operations.operation import Operation
from fastplan.state.snapshot import StateReader
from fastplan.structs import Job

BUILT_IN_POOLS: Final = frozenset({"default", "all"})
"""Node pools that exist without being written."""
PAYLOAD_MAX_BYTES: Final = 16_384


def register_job(
    state: StateReader,
    job: Job,
    now_ns: int,
    new_id: NewId,
    *,
    enforce_index: int | None = None,
    preserve_counts: bool = False,
    eval_priority: int | None = None,
) -> Operation:
    """Register a job, or its next version; defaults are filled in first (`job_defaults`). *job* is not changed.

    An unchanged specification is not written: its version and indexes stay, and it is evaluated all the same. Periodic and parameterized jobs are not
    evaluated. *enforce_index*: the `JobModifyIndex` that the registered job must have, 0: it must not exist. *preserve_counts*: groups that exist keep
    their counts. *eval_priority*: of the evaluation, instead of the job's.

    Raises InvalidInput for what no job may say, for a namespace or node pool that does not exist, and for a priority out of range; StateError for a
    changed type and an index that differs.
    """
    _check_eval_priority(eval_priority)
    new = job.copy()
    fill_job(new)
    # Read only, so it needs no copy; a job can be huge.
    old = state.jobs_view.get(new.namespace, new.id)
    if preserve_counts and old is not None:
        counts = {group.name: group.count for group in old.task_groups}
        for group in new.task_groups:
            group.count = counts.get(group.name, group.count)
    check_job(new)
    _check_surroundings(state, new)
    if enforce_index is not None:
        _check_index(old, enforce_index)
    if old is not None and old.type != new.type:
        raise StateError(f'cannot update job from type "{old.type}" to "{new.type}"')
    commands: list[codec.Single] = []
    if old is None or specification(old) != specification(new):
        commands.append(next_version(old, new, now_ns))
    evaluations = [] if is_template(new) else [job_evaluation(new, JOB_REGISTER, now_ns, new_id, priority=eval_priority)]
    return Operation(commands, evaluations)


def deregister_job(state: StateReader, namespace: str, job_id: str, purge: bool, now_ns: int, new_id: NewId, *, eval_priority: int | None = None) -> Operation:
    """Stop a job, which is a new version of it; *purge*: forget it instead. A job that does not exist is nothing to do.

    Periodic and parameterized jobs are not evaluated; what they have started goes on. Raises InvalidInput for a priority out of range.
    """
    _check_eval_priority(eval_priority)
    job = state.jobs_view.get(namespace or "default", job_id)
    if job is None:
        return Operation()
    stopped = copy.copy(job)
    stopped.stop = True
    command: codec.Single = codec.DeleteJob(job.namespace, job_id) if purge else next_version(job, stopped, now_ns)
    evaluations = [] if is_template(job) else [job_evaluation(job, JOB_DEREGISTER, now_ns, new_id, priority=eval_priority)]
    return Operation([command], evaluations)


def scale_job(state: StateReader, namespace: str, job_id: str, group: str, count: int, now_ns: int, new_id: NewId) -> Operation:
    """Set the count of a group, which is a new version of the job if the count is a new one; the job is evaluated in any case.

    Raises InvalidInput for a negative count and one outside of the group's scaling policy; StateError for a job that does not exist or is stopped,
    and for a group that it does not have.
    """
    if not group:
        raise InvalidInput("group", group, "text that is not empty", wording="missing task group name for scaling action")
    if type(count) is not int or count < 0:
        raise InvalidInput("count", count, "integer ≥ 0", wording="scaling action count can't be negative")
    job = state.job(namespace, job_id)
    if job is None or job.stop:
        raise StateError(f'job "{job_id}" not found')
    scaled = job.group(group)
    if scaled is None:
        raise StateError(f'task group "{group}" specified for scaling does not exist in job')
    if job.type == "system" and count > 1:
        raise InvalidInput("count", count, "0 or 1 in a system job", wording='jobs of type "system" can only be scaled between 0 and 1')
    bounds = scaled.scaling if isinstance(scaled.scaling, dict) else {}
    low, high = bounds.get("Min"), bounds.get("Max")
    if low is not None and count < low:
        wording = f"group count was less than scaling policy minimum: {count} < {low}"
        raise InvalidInput("count", count, f"integer ≥ {low}", wording=wording)
    if high is not None and count > high:
        wording = f"group count was greater than scaling policy maximum: {count} > {high}"
        raise InvalidInput("count", count, f"integer ≤ {high}", wording=wording)
    commands: list[codec.Single] = []
    if scaled.count != count:
        scaled.count = count
        commands.append(next_version(job, job, now_ns))
    modify_index = 0 if commands else job.modify_index
    evaluations = [] if is_template(job) else [job_evaluation(job, JOB_SCALING, now_ns, new_id, job_modify_index=modify_index)]
    return Operation(commands, evaluations)


def dispatch_job(
    state: StateReader,
    namespace: str,
    job_id: str,
    payload: bytes,
    meta: Mapping[str, str],
    now_ns: int,
    new_id: NewId,
    *,
    priority: int | None = None,
    id_prefix: str = "",
    idempotency_token: str = "",
) -> Operation:
    """Register a child of a parameterized job; its id is the `job_id` of the result: `<parent>/dispatch-<Unix seconds>-<8 hex digits>`.

    *priority*: of the child, instead of its parent's. *id_prefix* stands after `dispatch-`. *idempotency_token*: if a child with this token exists and is
    not dead, there is nothing to do, and `job_id` is that child's.

    Raises StateError for a job that does not exist, is stopped or takes no dispatches; InvalidInput for a payload or keys that the job does not take or
    misses, and for a priority out of range.
    """
    parent = state.job(namespace, job_id)
    if parent is None:
        raise StateError("parameterized job not found")
    if parent.parameterized_job is None or parent.dispatched:
        raise StateError(f'Specified job "{job_id}" is not a parameterized job')
    if parent.stop:
        raise StateError(f'Specified job "{job_id}" is stopped')
    if priority is not None and (type(priority) is not int or not 1 <= priority <= PRIORITY_MAX):
        raise InvalidInput("priority", priority, f"integer from 1 to {PRIORITY_MAX}", wording=f"job priority must be between [1, {PRIORITY_MAX}]")
    _check_payload(parent.parameterized_job, payload)
    _check_meta(parent.parameterized_job, meta)
    if idempotency_token:
        for known in state.jobs_by_prefix(namespace, f"{job_id}/dispatch-"):
            if known.parent_id == job_id and known.dispatch_idempotency_token == idempotency_token and known.status != "dead":
                return Operation(job_id=known.id)
    child = parent
    prefix = f"{id_prefix}-" if id_prefix else ""
    child.id = child.name = f"{job_id}/dispatch-{prefix}{now_ns // 10**9}-{new_id().replace('-', '')[:8]}"
    child.parent_id = job_id
    child.dispatched = True
    child.dispatch_idempotency_token = idempotency_token
    child.payload = base64.b64encode(payload).decode()
    child.meta = {**parent.meta, **meta}
    child.priority = child.priority if priority is None else priority
    evaluation = job_evaluation(child, JOB_REGISTER, now_ns, new_id)
    return Operation([next_version(None, child, now_ns)], [evaluation], job_id=child.id)


# --- versions ---------------------------------------------------------------------------------------------------------


def specification(job: Job) -> Job:
    """Return a shallow copy of a job without what servers write into it: what a user has asked for."""
    twin = copy.copy(job)
    twin.create_index = twin.modify_index = twin.job_modify_index = 0
    twin.version = twin.submit_time = 0
    twin.version_tag = None
    twin.stable = False
    twin.status = twin.status_description = ""
    return twin


def next_version(old: Job | None, new: Job, now_ns: int) -> codec.UpsertJob:
    """Return the command that registers *new* as the version after *old*, the first one without it."""
    written = specification(new)
    written.version = 0 if old is None else old.version + 1
    written.submit_time = now_ns
    return codec.UpsertJob(written.to_api())


# --- checks -----------------------------------------------------------------------------------------------------------


def _check_eval_priority(priority: int | None) -> None:
    if priority is not None and (type(priority) is not int or not 1 <= priority <= PRIORITY_MAX):
        wording = f"Eval priority must be between 1 and {PRIORITY_MAX} inclusively"
        raise InvalidInput("eval_priority", priority, f"integer from 1 to {PRIORITY_MAX}", wording=wording)


def _check_surroundings(state: StateReader, job: Job) -> None:
    """Raise InvalidInput for a job in a namespace or node pool that does not exist."""
    faults = Faults()
    if state.namespace(job.namespace) is None:
        sentence = f'job "{job.id}" is in nonexistent namespace "{job.namespace}"'
        faults.add("job.Namespace", job.namespace, "a namespace that exists", sentence)
    if job.node_pool not in BUILT_IN_POOLS and state.node_pool(job.node_pool) is None:
        sentence = f'job "{job.id}" is in nonexistent node pool "{job.node_pool}"'
        faults.add("job.NodePool", job.node_pool, "a node pool that exists", sentence)
    faults.check()


def _check_index(old: Job | None, enforce_index: int) -> None:
    start = f"Enforcing job modify index {enforce_index}: "
    if old is None:
        if enforce_index != 0:
            raise StateError(start + "job does not exist")
    elif enforce_index == 0:
        raise StateError(start + "job already exists")
    elif enforce_index != old.job_modify_index:
        raise StateError(start + f"job exists with conflicting job modify index: {old.job_modify_index}")


def _check_payload(parameters: Any, payload: Any) -> None:
    if not isinstance(payload, bytes):
        raise InvalidInput("payload", payload, "bytes")
    wanted = parameters.get("Payload") or "optional"
    if payload and wanted == "forbidden":
        raise InvalidInput("payload", f"{len(payload)} bytes", "nothing", wording="Payload provided but forbidden by parameterized job")
    if not payload and wanted == "required":
        raise InvalidInput("payload", "", "bytes", wording="Payload is not provided but required by parameterized job")
    if len(payload) > PAYLOAD_MAX_BYTES:
        wording = f"Payload exceeds maximum size; {len(payload)} > {PAYLOAD_MAX_BYTES}"
        raise InvalidInput("payload", f"{len(payload)} bytes", f"at most {PAYLOAD_MAX_BYTES} bytes", wording=wording)


def _check_meta(parameters: Any, meta: Mapping[Any, Any]) -> None:
    for key, value in meta.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise InvalidInput(f"meta[{key!r}]", value, "text")
    required, optional = parameters.get("MetaRequired") or [], parameters.get("MetaOptional") or []
    unpermitted = sorted(set(meta) - set(required) - set(optional))
    if unpermitted:
        wording = f"Dispatch request included unpermitted metadata keys: [{' '.join(unpermitted)}]"
        raise InvalidInput("meta", " ".join(unpermitted), "keys that the job takes", wording=wording)
    missing = sorted(set(required) - set(meta))
    if missing:
        wording = f"Dispatch did not provide required meta keys: [{' '.join(missing)}]"
        raise InvalidInput("meta", " ".join(missing), "these keys too", wording=wording)
