"""When a failed allocation is placed again (schedulers 7.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from fastplan.scheduler.alloc_facts import last_unknown_ns, ran_successfully
from fastplan.structs import Allocation, Deployment, Node, RescheduleEvent, ReschedulePolicy, RescheduleTracker
from fastplan.structs.times import time_ns

WINDOW_NS: Final = 10**9
"""What is due so soon is placed at once."""

BATCH_NS: Final = 5 * 10**9
"""Allocations whose time comes within so long of the first share a follow-up evaluation."""

EVENTS_KEPT: Final = 5
"""Of a policy without limit."""

OK: Final = "ok"
NO_PLACEMENT: Final = "no placement"

ACTIVE_DEPLOYMENTS: Final = frozenset({"running", "paused", "blocked", "unblocking", "initializing", "pending"})


class Later(NamedTuple):
    """An allocation that is to be placed again at a time: Unix nanoseconds."""

    alloc: Allocation
    time_ns: int


class Split(NamedTuple):
    """Allocations by when they are placed again; `untainted` keep their names."""

    untainted: list[Allocation]
    now: list[Allocation]
    later: list[Later]


def policy_of(alloc: Allocation) -> ReschedulePolicy | None:
    """Return the policy of an allocation, by the version of its own job."""
    group = alloc.group
    return None if group is None else group.reschedule_policy


def last_event_ns(alloc: Allocation) -> int:
    """Return when the last task finished, else when the allocation last changed."""
    finished = [time_ns(state.finished_at, "TaskStates.FinishedAt") for state in alloc.task_states.values() if state is not None]
    return max(finished, default=0) or alloc.modify_time


def next_delay_ns(alloc: Allocation, policy: ReschedulePolicy) -> int:
    """Return how long after its end an allocation is placed again."""
    events = _events(alloc)
    delay_ns = policy.delay
    if not events:
        return delay_ns
    if policy.delay_function == "exponential":
        delay_ns = events[-1].delay * 2
    elif policy.delay_function == "fibonacci":
        if len(events) >= 2:
            last, before = events[-1].delay, events[-2].delay
            # After the delay was reset the series begins anew.
            delay_ns = last if before == policy.max_delay and last == policy.delay else last + before
    else:
        return delay_ns
    if policy.max_delay > 0 and delay_ns > policy.max_delay:
        delay_ns = policy.max_delay
        if last_event_ns(alloc) - events[-1].reschedule_time > delay_ns:
            delay_ns = policy.delay
    return delay_ns


def _events(alloc: Allocation) -> list[RescheduleEvent]:
    tracker = alloc.reschedule_tracker
    return [] if tracker is None else [event for event in tracker.events if event is not None]


def takes_notes(alloc: Allocation, node: Node | None) -> bool:
    """Return whether something may be noted on an allocation that stays as it is: on a node that went away the applier refuses that (plan-apply 5.2).

    What its client has ended counts as new there, so a node that takes nothing refuses it too.
    """
    if node is None or alloc.client_status in ("unknown", "lost"):
        return node is not None
    return node.status == "ready" and (not alloc.is_client_terminal or node.scheduling_eligibility == "eligible")


def last_reschedule_failed(alloc: Allocation) -> bool:
    """Return whether no place was found when the allocation was to be placed again."""
    return alloc.reschedule_tracker is not None and alloc.reschedule_tracker.last_reschedule == NO_PLACEMENT


def next_time(alloc: Allocation, failed_ns: int) -> tuple[int, bool]:
    """Return when an allocation that failed at *failed_ns* is placed again, and whether its policy allows that."""
    policy = policy_of(alloc)
    if policy is None:
        return 0, False
    delay_ns = next_delay_ns(alloc, policy)
    events = _events(alloc)
    eligible = policy.unlimited or (policy.attempts > 0 and alloc.reschedule_tracker is None)
    if policy.attempts > 0 and events:
        used = sum(failed_ns - event.reschedule_time < policy.interval for event in events)
        eligible = used < policy.attempts and delay_ns < policy.interval
    return failed_ns + delay_ns, eligible


def _next_time_after_failure(alloc: Allocation) -> tuple[int, bool]:
    policy = policy_of(alloc)
    failed_ns = last_event_ns(alloc)
    flagged = alloc.job is not None and alloc.job.type == "batch" and alloc.desired_transition.reschedule is True
    has_failed = alloc.client_status in ("failed", "lost") or flagged
    told_to_stop = alloc.desired_status == "stop" and not last_reschedule_failed(alloc)
    if told_to_stop or not has_failed or failed_ns == 0 or policy is None or (policy.attempts == 0 and not policy.unlimited):
        return 0, False
    return next_time(alloc, failed_ns)


class Rescheduler:
    """Sorts allocations by when they are placed again, for one evaluation."""

    def __init__(self, *, batch: bool, now_ns: int, eval_id: str, deployment: Deployment | None) -> None:
        self._batch = batch
        self._now_ns = now_ns
        self._eval_id = eval_id
        self._deployment = deployment

    def split(self, allocs: Iterable[Allocation], *, disconnecting: bool = False) -> Split:
        """Sort *allocs*. *disconnecting*: their node went away just now, and counts as their failure."""
        result = Split([], [], [])
        for alloc in allocs:
            if alloc.next_allocation and alloc.is_terminal:
                continue
            keep, consider = self._batch_treatment(alloc) if self._batch else self._service_treatment(alloc)
            if disconnecting:
                keep, consider = False, True
            if keep:
                result.untainted.append(alloc)
            elif consider:
                self._consider(alloc, result, disconnecting)
        return result

    def _batch_treatment(self, alloc: Allocation) -> tuple[bool, bool]:
        """Return (keeps its name, may be placed again); neither: it is dropped."""
        if alloc.desired_transition.migrate_disable_placement:
            return True, False
        if alloc.desired_transition.reschedule:
            return False, True
        if alloc.desired_status == "stop":
            if ran_successfully(alloc):
                return True, False
            return False, last_reschedule_failed(alloc)
        if alloc.desired_status == "evict":
            return False, False
        return (False, True) if alloc.client_status == "failed" else (True, False)

    def _service_treatment(self, alloc: Allocation) -> tuple[bool, bool]:
        if alloc.is_server_terminal:
            return False, last_reschedule_failed(alloc)
        return False, alloc.client_status not in ("complete", "lost")

    def _consider(self, alloc: Allocation, result: Split, disconnecting: bool) -> None:
        deployment = self._deployment
        held = deployment is not None and alloc.deployment_id == deployment.id and deployment.status in ACTIVE_DEPLOYMENTS
        if held and not alloc.desired_transition.reschedule:
            result.untainted.append(alloc)
            return
        if alloc.desired_transition.force_reschedule and alloc.is_client_terminal:
            result.now.append(alloc)
            return
        is_follow_up = bool(alloc.followup_eval_id) and alloc.followup_eval_id == self._eval_id
        if disconnecting:
            at_ns, eligible = next_time(alloc, self._now_ns)
        elif alloc.client_status == "unknown" and is_follow_up:
            at_ns, eligible = next_time(alloc, last_unknown_ns(alloc))
        else:
            at_ns, eligible = _next_time_after_failure(alloc)
        if eligible and (is_follow_up or at_ns - self._now_ns <= WINDOW_NS):
            result.now.append(alloc)
            return
        result.untainted.append(alloc)
        if eligible and (not alloc.followup_eval_id or disconnecting):
            result.later.append(Later(alloc, at_ns))


def batches(later: Iterable[Later]) -> list[list[Later]]:
    """Return allocations that are placed again later in batches that share a follow-up, earliest first."""
    found: list[list[Later]] = []
    for each in sorted(later, key=lambda each: (each.time_ns, each.alloc.create_index, each.alloc.id)):
        if found and each.time_ns - found[-1][0].time_ns < BATCH_NS:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def tracker_after(alloc: Allocation, now_ns: int) -> RescheduleTracker:
    """Return the history of the allocation that takes the place of *alloc*."""
    policy = policy_of(alloc)
    events = _events(alloc)
    if policy is not None and policy.attempts > 0:
        kept = [event for event in events if policy.interval > 0 and now_ns - event.reschedule_time <= policy.interval]
    else:
        kept = events[-EVENTS_KEPT:]
    delay_ns = 0 if policy is None else next_delay_ns(alloc, policy)
    newest = RescheduleEvent(reschedule_time=now_ns, prev_alloc_id=alloc.id, prev_node_id=alloc.node_id, delay=delay_ns)
    return RescheduleTracker(events=[*(event.copy() for event in kept), newest], last_reschedule=OK)


def with_note(alloc: Allocation, note: str, copy_of: Callable[[Allocation], Allocation]) -> Allocation:
    """Return a copy of an allocation that says how it went when it was placed again."""
    twin = copy_of(alloc)
    tracker = RescheduleTracker() if alloc.reschedule_tracker is None else alloc.reschedule_tracker.copy()
    tracker.last_reschedule = note
    twin.reschedule_tracker = tracker
    return twin
