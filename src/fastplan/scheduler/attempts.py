"""Attempts: how often a scheduler tries, and what a commit tells it (schedulers 1.5, 3.5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from typing import Any

import numpy

from fastplan.scheduler.draft import PlanDraft
from fastplan.scheduler.requests import CommittedPlan, Request
from fastplan.state.snapshot import StateReader

Step = Callable[[int], Generator[Request, Any, bool]]
"""One attempt, given its number from 0: returns whether it is done."""


def retry(limit: int, step: Step, made_progress: Callable[[], bool]) -> Generator[Request, Any, bool]:
    """Repeat *step* until it is done and return True; False after *limit* attempts in a row without progress (schedulers 1.5)."""
    fruitless = number = 0
    while fruitless < limit:
        done = yield from step(number)
        if done:
            return True
        number += 1
        fruitless = 0 if made_progress() else fruitless + 1
    return False


def is_progress(result: CommittedPlan | None) -> bool:
    """Return whether anything of the last plan was committed (schedulers 1.5)."""
    if result is None:
        return False
    return any(result.accepted_counts) or result.deployment is not None or bool(result.deployment_updates)


def placed_by_group(draft: PlanDraft, result: CommittedPlan, state: StateReader, *, whole: bool) -> Counter[str]:
    """Return how many new allocations of each group were committed. *whole*: all that the draft places were; *state*: what the draft was made on."""
    placed: Counter[str] = Counter()
    if draft.copies and not draft.node_allocation:
        # Without a record for each.
        refused = [] if whole else [row for node_id in result.rejected_nodes if (row := state.node_row(node_id)) is not None]
        for copies in draft.copies if whole or any(result.accepted_counts) else ():
            placed[copies.group] += len(copies) - int(numpy.isin(copies.node_rows, refused).sum())
        return placed
    for entries in (draft.node_allocation if whole else result.node_allocation).values():
        placed.update(entry.task_group for entry in entries if state.allocs_view.find(entry.id) < 0)
    if whole:
        for copies in draft.copies:
            placed[copies.group] += len(copies)
    return placed
