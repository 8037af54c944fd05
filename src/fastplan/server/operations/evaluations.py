"""The evaluations that changes of jobs, nodes and allocations call for (worker-and-broker 2.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from fastplan.scheduler.cluster_nodes import in_scope
from fastplan.state.alloc_records import NO_ROW, AllocFields
from fastplan.state.snapshot import StateReader
from fastplan.state.statuses import CLIENT_COMPLETE, CLIENT_LOST, DESIRED_STOP
from fastplan.structs import Evaluation, Job, Node

JOB_REGISTER: Final = "job-register"
JOB_DEREGISTER: Final = "job-deregister"
JOB_SCALING: Final = "job-scaling"
NODE_UPDATE: Final = "node-update"
NODE_DRAIN: Final = "node-drain"
ALLOC_STOP: Final = "alloc-stop"
ALLOC_FAILURE: Final = "alloc-failure"
RECONNECT: Final = "reconnect"
DEPLOYMENT_WATCHER: Final = "deployment-watcher"

NewId = Callable[[], str]
"""Gives a new UUID."""

RUN_TO_COMPLETION: Final = frozenset({"batch", "sysbatch"})


def job_evaluation(job: Job, trigger: str, now_ns: int, new_id: NewId, *, priority: int | None = None, job_modify_index: int = 0) -> Evaluation:
    """Return a pending evaluation of *job*.

    *priority* None: the job's. *job_modify_index* 0 becomes the index of the log entry, if the job is written or deleted by the same entry.
    """
    return Evaluation(
        id=new_id(),
        namespace=job.namespace or "default",
        priority=job.priority if priority is None else priority,
        type=job.type,
        triggered_by=trigger,
        job_id=job.id,
        job_modify_index=job_modify_index,
        status="pending",
        create_time=now_ns,
        modify_time=now_ns,
    )


def is_template(job: Job) -> bool:
    """Return whether a job only starts others and is never scheduled itself: periodic, or parameterized and not a dispatched child (schedulers 2.1)."""
    return job.periodic is not None or (job.parameterized_job is not None and not job.dispatched)


class NodeAlloc(NamedTuple):
    """An allocation on a node: its row and numbers, and its job as it is registered, else as it was placed."""

    row: int
    fields: AllocFields
    job: Job

    @property
    def is_client_terminal(self) -> bool:
        """Whether the client has ended it."""
        return CLIENT_COMPLETE <= self.fields.client <= CLIENT_LOST

    @property
    def is_server_terminal(self) -> bool:
        """Whether it was told to end."""
        return self.fields.desired >= DESIRED_STOP


def allocs_on_node(state: StateReader, node_id: str) -> list[NodeAlloc]:
    """Return the allocations that name a node and whose job is known, ascending by row."""
    found = []
    for row in sorted(state.allocs_view.rows_of_node(state.allocs_view.node_ref(node_id))):
        fields = AllocFields(*state.allocs_view.fields(row))
        group = state.jobs_view.groups.keys[fields.group_row]
        job = state.jobs_view.get(group.namespace, group.job_id)
        if job is None and fields.job_version_row != NO_ROW:
            job = state.jobs_view.versions.get(fields.job_version_row)
        if job is not None:
            found.append(NodeAlloc(row, fields, job))
    return found


def node_evaluations(state: StateReader, node_id: str, nodes: Iterable[Node], now_ns: int, new_id: NewId) -> list[Evaluation]:
    """Return the evaluations for a change of a node, ascending by namespace and job (worker-and-broker 2.3, schedulers 4.12).

    One for each job with a relevant allocation on it: not one that its client ended, if the job runs to completion, nor one that is terminal on both
    sides. And one for each system job that is not stopped and may use one of *nodes*: the node as it was and as it will be.
    """
    jobs: dict[tuple[str, str], Job] = {}
    for alloc in allocs_on_node(state, node_id):
        if alloc.is_client_terminal and (alloc.is_server_terminal or alloc.job.type in RUN_TO_COMPLETION):
            continue
        jobs.setdefault((alloc.job.namespace, alloc.job.id), alloc.job)
    shapes = list(nodes)
    for job in state.jobs_view.registered_system():
        if not job.stop and any(in_scope(node, job) for node in shapes):
            jobs.setdefault((job.namespace, job.id), job)
    found = []
    for _, job in sorted(jobs.items()):
        evaluation = job_evaluation(job, NODE_UPDATE, now_ns, new_id, job_modify_index=job.modify_index)
        evaluation.node_id = node_id
        found.append(evaluation)
    return found
