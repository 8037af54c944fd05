"""How many allocations of a job wait to be placed."""

from __future__ import annotations

from fastplan.state.snapshot import StateReader


def queued_counts(state: StateReader, namespace: str, job_id: str) -> dict[str, int]:
    """Return the queued allocations of each group of a registered job, as its summary counts them (worker-and-broker 2.2, 6.8).

    What the newest evaluation says of a group holds; one that was canceled says nothing. A group that no evaluation speaks of is left out.
    """
    job = state.jobs_view.get(namespace or "default", job_id)
    if job is None:
        return {}
    groups = {group.name for group in job.task_groups}
    counts: dict[str, int] = {}
    told = [each for each in state.eval_records_by_job(job.namespace, job.id) if each.queued_allocations and each.status != "canceled"]
    for evaluation in sorted(told, key=lambda each: (each.modify_index, each.create_index, each.id)):
        counts.update((group, count) for group, count in evaluation.queued_allocations.items() if group in groups)
    return counts
