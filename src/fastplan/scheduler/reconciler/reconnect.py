"""Allocations whose node came back: they, or what took their place (schedulers 7.6)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from fastplan.scheduler.alloc_facts import NOT_NEEDED, NOT_NEEDED_RECONNECT, RESCHEDULED
from fastplan.scheduler.reconciler.results import Stop
from fastplan.structs import Allocation, Job
from fastplan.structs.times import time_ns


class Reunion(NamedTuple):
    """What becomes of allocations that come back: those that stay, and what is stopped, of them or of their replacements."""

    kept: list[Allocation]
    stops: list[Stop]


def reunite(reconnecting: Iterable[Allocation], others: Iterable[Allocation], job: Job) -> Reunion:
    """Decide for each allocation that comes back. *others*: all other allocations of the group."""
    by_id = {alloc.id: alloc for alloc in others}
    reunion = Reunion([], [])
    stopped: set[str] = set()
    for alloc in reconnecting:
        if alloc.client_status == "failed" and not alloc.is_server_terminal:
            reunion.stops.append(Stop(alloc, RESCHEDULED, "failed"))
            continue
        if _is_superseded(alloc, job):
            reunion.stops.append(Stop(alloc, NOT_NEEDED))
            continue
        losers = []
        stays = True
        for replacement in _replacements(alloc, by_id):
            if replacement.is_server_terminal:
                continue
            if _replacement_wins(alloc, replacement):
                stays = False
            else:
                losers.append(replacement)
        if stays:
            reunion.kept.append(alloc)
        else:
            reunion.stops.append(Stop(alloc, NOT_NEEDED))
        for loser in losers:
            if loser.id not in stopped:
                stopped.add(loser.id)
                reunion.stops.append(Stop(loser, NOT_NEEDED_RECONNECT))
    return reunion


def _is_superseded(alloc: Allocation, job: Job) -> bool:
    transition = alloc.desired_transition
    flagged = bool(transition.migrate or transition.reschedule or transition.force_reschedule)
    older = alloc.job is None or alloc.job.version < job.version or alloc.job.create_index < job.create_index
    return alloc.desired_status != "run" or flagged or older


def _replacements(alloc: Allocation, by_id: Mapping[str, Allocation]) -> Iterable[Allocation]:
    """Yield what took the place of an allocation, and what took the place of that."""
    seen = {alloc.id}
    following = alloc.next_allocation
    while following and following not in seen:
        seen.add(following)
        replacement = by_id.get(following)
        if replacement is None:
            return
        yield replacement
        following = replacement.next_allocation


def _replacement_wins(original: Allocation, replacement: Allocation) -> bool:
    if replacement.job is not None and original.job is not None and replacement.job.version > original.job.version:
        return True
    group = original.group
    strategy = "" if group is None or group.disconnect is None else group.disconnect.reconcile
    if strategy == "keep_original":
        return False
    if strategy == "keep_replacement":
        return True
    if strategy == "longest_running":
        mine, theirs = _started_ns(original), _started_ns(replacement)
        if mine or theirs:
            return bool(theirs) and (not mine or theirs < mine)
    return _scores_better(original, replacement)


def _scores_better(original: Allocation, replacement: Allocation) -> bool:
    mine, theirs = _best_score(original), _best_score(replacement)
    if theirs is None or (mine is not None and theirs <= mine):
        return False
    return replacement.client_status == "running" or original.client_status != "running"


def _best_score(alloc: Allocation) -> float | None:
    scores = [] if alloc.metrics is None else [score.norm_score for score in alloc.metrics.score_meta_data if score is not None]
    return max(scores, default=None)


def _started_ns(alloc: Allocation) -> int:
    """Return when the leader started, else the first of the main tasks; 0 if none has."""
    group = alloc.group
    tasks = [] if group is None else group.tasks
    started = {}
    for task in tasks:
        state = alloc.task_states.get(task.name)
        started[task.name] = 0 if state is None else time_ns(state.last_restart, "TaskStates.LastRestart") or time_ns(state.started_at, "TaskStates.StartedAt")
    leader = next((task.name for task in tasks if task.leader), None)
    if leader is not None:
        return started[leader]
    mains = [started[task.name] for task in tasks if (task.lifecycle is None or not task.lifecycle.hook) and started[task.name]]
    return min(mains, default=0)
