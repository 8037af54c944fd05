"""Evaluations as the state machine writes them (worker-and-broker 2.2)."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Final

from fastplan.errors import InvalidInput
from fastplan.fsm.jobs import refresh_statuses
from fastplan.state import StateStore
from fastplan.structs import Evaluation

STATUSES: Final = frozenset({"", "pending", "blocked", "complete", "failed", "canceled"})
"""Statuses of an evaluation; empty where the source of a record says nothing."""


def check_status(path: str, status: str) -> None:
    """Raise InvalidInput for a status that there is not: nobody would know what to do with the evaluation."""
    if status not in STATUSES:
        raise InvalidInput(path, status, "pending, blocked, complete, failed or canceled")


def upsert_evals(store: StateStore, index: int, now_ns: int, evals: Sequence[Evaluation]) -> None:
    """Write evaluations, which are kept, in order. One that is complete and placed everything cancels those of its job that are still blocked."""
    # Also an empty list moves the index of the table.
    store.touch(index, "evals")
    for evaluation in evals:
        store.upsert_evals(index, [evaluation], keep=True)
        if evaluation.status == "complete" and not evaluation.failed_tg_allocs:
            _cancel_blocked(store, index, now_ns, evaluation)
    refresh_statuses(store, {(evaluation.namespace, evaluation.job_id) for evaluation in evals})


def _cancel_blocked(store: StateStore, index: int, now_ns: int, successful: Evaluation) -> None:
    canceled = []
    for evaluation in store.open_evals_by_job(successful.namespace, successful.job_id):
        if evaluation.status == "blocked":
            twin = copy.copy(evaluation)
            twin.status = "canceled"
            twin.status_description = f'evaluation "{successful.id}" successful'
            twin.modify_time = now_ns
            canceled.append(twin)
    if canceled:
        store.upsert_evals(index, canceled, keep=True)
