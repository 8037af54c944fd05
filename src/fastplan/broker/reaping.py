"""The evaluations that a leader writes to tidy up (worker-and-broker 3.12, 3.13, 5.7)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final

from fastplan.structs import Evaluation

SUPERSEDED: Final = "canceled after more recent eval was processed"


def canceled_copies(evaluations: Iterable[Evaluation], now_ns: int, description: str = SUPERSEDED) -> list[Evaluation]:
    """Return evaluations as canceled."""
    return [_ended(evaluation, "canceled", description, now_ns) for evaluation in evaluations]


def duplicate_copies(evaluations: Iterable[Evaluation], now_ns: int) -> list[Evaluation]:
    """Return blocked evaluations as canceled, of which another one of the same job is tracked."""
    return [_ended(each, "canceled", f'existing blocked evaluation exists for job "{each.job_id}"', now_ns) for each in evaluations]


def failed_copies(evaluations: Iterable[Evaluation], now_ns: int, description: Callable[[Evaluation], str]) -> list[Evaluation]:
    """Return evaluations as failed for good; *description* tells why."""
    return [_ended(evaluation, "failed", description(evaluation), now_ns) for evaluation in evaluations]


def failed_and_follow_up(
    evaluation: Evaluation,
    *,
    job_exists: bool,
    delivery_limit: int,
    baseline_s: float,
    range_s: float,
    randomness: random.Random,
    now_ns: int,
    new_id: Callable[[], str],
) -> list[Evaluation]:
    """Return an evaluation that was delivered too often as failed, and the one that tries again from *baseline_s* to *baseline_s* + *range_s* seconds later.

    There is no second one for a job that is gone.
    """
    failed = _ended(evaluation, "failed", f"evaluation reached delivery limit ({delivery_limit})", now_ns)
    if not job_exists:
        return [failed]
    follow_up = Evaluation(
        id=new_id(),
        namespace=evaluation.namespace,
        priority=evaluation.priority,
        type=evaluation.type,
        triggered_by="failed-follow-up",
        job_id=evaluation.job_id,
        job_modify_index=evaluation.job_modify_index,
        status="pending",
        wait=round((baseline_s + randomness.random() * range_s) * 1e9),
        previous_eval=evaluation.id,
        create_time=now_ns,
        modify_time=now_ns,
    )
    failed.next_eval = follow_up.id
    return [failed, follow_up]


def _ended(evaluation: Evaluation, status: str, description: str, now_ns: int) -> Evaluation:
    twin = evaluation.copy()
    twin.status = status
    twin.status_description = description
    twin.modify_time = now_ns if now_ns > twin.create_time else twin.create_time + 1
    return twin
