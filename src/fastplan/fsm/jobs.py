"""The status of a job, which follows from its allocations and evaluations (plan-apply 6.10 step 8)."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

from fastplan.state import StateStore
from fastplan.structs import Job

JobKey = tuple[str, str]
"""Namespace and job id."""


def jobs_of_rows(store: StateStore, rows: Iterable[int]) -> Iterator[JobKey]:
    """Yield the job of the allocation in each row."""
    keys = store.jobs_view.groups.keys
    for row in rows:
        group = keys[store.allocs_view.fields(row)[2]]
        yield group.namespace, group.job_id


def refresh_statuses(store: StateStore, jobs: Iterable[JobKey]) -> None:
    """Bring the statuses of registered jobs up to date.

    A status is a function of the state, so it moves no index: entries that are applied together could not tell at which of them it changed, and
    replicas that cut the log elsewhere would differ.
    """
    for namespace, job_id in sorted(set(jobs)):
        row = store.jobs_view.row_of(namespace, job_id)
        if row is None:
            continue
        job = store.jobs_view.versions[row]
        status = status_of(store, job)
        if status != job.status:
            twin = copy.copy(job)
            twin.status = status
            store.jobs_view.versions.set(row, twin)


def status_of(store: StateStore, job: Job) -> str:
    """Return `running` while an allocation lives, `pending` while an evaluation is open or before the first one, `dead` after that.

    What only starts other jobs, or belongs on every node, runs until it is stopped.
    """
    rows = store.jobs_view.groups.of_job(job.namespace, job.id)
    if any(store.allocs_view.group_counts(row)[1] for row in rows):
        return "running"
    if job.stop:
        return "dead"
    if job.type == "system" or job.periodic is not None or (job.parameterized_job is not None and not job.dispatched):
        return "running"
    if store.open_evals_by_job(job.namespace, job.id):
        return "pending"
    return "dead" if store.has_evals(job.namespace, job.id) or any(sum(store.allocs_view.group_counts(row)[0]) for row in rows) else "pending"
