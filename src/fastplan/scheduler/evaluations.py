"""The evaluations that a scheduler finishes and creates (schedulers 3.4; worker-and-broker 2.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastplan.scheduler.feasible.eligibility import ClassEligibility
from fastplan.scheduler.setting import Setting
from fastplan.state.snapshot import StateReader
from fastplan.structs import AllocMetric, DesiredUpdates, Evaluation, PlanAnnotations

PLACEMENT_CONFLICTS: Final = "created due to placement conflicts"
REMAINING: Final = "created to place remaining allocations"
DELAYED_RESCHEDULING: Final = "created for delayed rescheduling"
DISCONNECT_TIMEOUT: Final = "created for delayed disconnect timeout"

ROLLING_UPDATE: Final = "rolling-update"

DEFAULT_STAGGER_NS: Final = 30 * 10**9


def attempts_exhausted(limit: int) -> str:
    """Return the description of an evaluation that failed after so many attempts without progress."""
    return f"maximum attempts reached ({limit})"


def refused_trigger(trigger: str) -> str:
    """Return the description of an evaluation whose trigger its scheduler does not accept."""
    return f"scheduler cannot handle '{trigger}' evaluation reason"


def finished(
    evaluation: Evaluation,
    status: str,
    description: str = "",
    *,
    queued: Mapping[str, int] | None = None,
    failed: Mapping[str, AllocMetric] | None = None,
    blocked_eval: str = "",
    next_eval: str = "",
    deployment_id: str = "",
    desired_updates: Mapping[str, DesiredUpdates] | None = None,
) -> Evaluation:
    """Return the evaluation with its outcome. *queued* None: it was not worked out."""
    twin = evaluation.copy()
    twin.status = status
    twin.status_description = description
    twin.deployment_id = deployment_id
    twin.failed_tg_allocs = dict(failed or {})
    if queued is not None:
        twin.queued_allocations = dict(queued)
    if blocked_eval:
        twin.blocked_eval = blocked_eval
    if next_eval:
        twin.next_eval = next_eval
    if desired_updates is not None:
        twin.plan_annotations = PlanAnnotations(desired_tg_updates=dict(desired_updates))
    return twin


def derived(evaluation: Evaluation, setting: Setting, *, status: str, trigger: str, description: str = "") -> Evaluation:
    """Return a new evaluation of the same job that follows *evaluation*."""
    now_ns = setting.now_ns()
    return Evaluation(
        id=setting.new_id(),
        namespace=evaluation.namespace,
        priority=evaluation.priority,
        type=evaluation.type,
        triggered_by=trigger,
        job_id=evaluation.job_id,
        job_modify_index=evaluation.job_modify_index,
        status=status,
        status_description=description,
        previous_eval=evaluation.id,
        create_time=now_ns,
        modify_time=now_ns,
    )


def blocked(
    evaluation: Evaluation,
    setting: Setting,
    eligibility: ClassEligibility,
    failed: Mapping[str, AllocMetric],
    *,
    trigger: str = "queued-allocs",
    description: str = REMAINING,
    node_id: str = "",
) -> Evaluation:
    """Return the evaluation that waits for room; it carries no classes where one may not be told from another. *node_id*: of system jobs."""
    twin = derived(evaluation, setting, status="blocked", trigger=trigger, description=description)
    twin.failed_tg_allocs = dict(failed)
    twin.node_id = node_id
    note_classes(twin, eligibility)
    return twin


def note_classes(evaluation: Evaluation, eligibility: ClassEligibility) -> None:
    """Write down which classes of nodes could take the work."""
    evaluation.escaped_computed_class = eligibility.escaped()
    evaluation.class_eligibility = {} if evaluation.escaped_computed_class else eligibility.classes()


def goes_on_later(state: StateReader, evaluation: Evaluation, now_ns: int) -> bool:
    """Return whether another evaluation goes on with the rolling update of the job, and still waits for its time.

    One is enough: each would make a next one, and the updates that are held back would be looked at ever more often. One whose time has come may have
    been superseded.
    """
    return any(
        other.triggered_by == ROLLING_UPDATE and other.status == "pending" and other.id != evaluation.id and other.create_time + other.wait > now_ns
        for other in state.open_evals_by_job(evaluation.namespace, evaluation.job_id)
    )


def rolling_follow_up(evaluation: Evaluation, setting: Setting, wait_ns: int) -> Evaluation:
    """Return the evaluation that goes on with a rolling update after *wait_ns* (schedulers 4.9)."""
    twin = derived(evaluation, setting, status="pending", trigger=ROLLING_UPDATE)
    twin.wait = wait_ns
    return twin
