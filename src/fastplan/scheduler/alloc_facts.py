"""What schedulers read out of an allocation (schedulers 2.7)."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Final

from fastplan.structs import Allocation, AllocState
from fastplan.structs.times import time_ns, time_text

LOST: Final = "alloc is lost since its node is down"
NOT_NEEDED: Final = "alloc not needed due to job update"
NOT_NEEDED_RECONNECT: Final = "alloc not needed due to disconnected client reconnect"
MIGRATING: Final = "alloc is being migrated"
UPDATING: Final = "alloc is being updated due to job update"
TAINTED: Final = "alloc not needed as node is tainted"
UNKNOWN: Final = "alloc is unknown since its node is disconnected"
RESCHEDULED: Final = "alloc was rescheduled because it failed"
IN_PLACE: Final = "alloc updating in-place"

CLIENT_STATUS_FIELD: Final = 0
"""Number of the client status among the fields of an `AllocState`."""


def alloc_name(job: str, group: str, index: int) -> str:
    """Return the name of an allocation: *job* is the id for service and batch jobs, the name for system and sysbatch jobs."""
    return f"{job}.{group}[{index}]"


def index_of(alloc: Allocation) -> int:
    """Return the index in an allocation's name, as the original reads it: by the lengths of job id and group; 0 where that is no number."""
    return index_in(alloc.name, alloc.job_id, alloc.task_group)


def index_in(name: str, job_id: str, group: str) -> int:
    """Return the index in the name of an allocation of a job's group, as `index_of` does."""
    text = name[len(job_id) + len(group) + 2 : -1]
    return int(text) if text.isascii() and text.isdigit() else 0


def ran_successfully(alloc: Allocation) -> bool:
    """Return whether its client reported task states and every task finished without failure."""
    states = alloc.task_states
    return bool(states) and all(state is not None and state.state == "dead" and not state.failed for state in states.values())


def _client_statuses(alloc: Allocation) -> Iterator[AllocState]:
    """Yield the records of its client status that say something, newest first."""
    for state in reversed(alloc.alloc_states):
        if state is not None and state.field == CLIENT_STATUS_FIELD and state.value:
            yield state


def needs_reconnect(alloc: Allocation) -> bool:
    """Return whether the newest record of its client status says `unknown`."""
    newest = next(_client_statuses(alloc), None)
    return newest is not None and newest.value == "unknown"


def last_unknown_ns(alloc: Allocation) -> int:
    """Return when the most recent unbroken run of `unknown` records began, in Unix nanoseconds; 0 if there is none."""
    began_ns = 0
    for state in _client_statuses(alloc):
        if state.value == "unknown":
            began_ns = time_ns(state.time, "AllocStates.Time")
        elif began_ns:
            break
    return began_ns


def lost_after_ns(alloc: Allocation) -> int:
    """Return how long it may be unknown, by the version of its own job; 0 without a word of that."""
    group = alloc.group
    return 0 if group is None or group.disconnect is None else group.disconnect.lost_after


def is_expired(alloc: Allocation, now_ns: int) -> bool:
    """Return whether it has been unknown for as long as it may be."""
    if alloc.client_status != "unknown":
        return False
    began_ns = last_unknown_ns(alloc)
    return began_ns != 0 and began_ns + lost_after_ns(alloc) <= now_ns


def replaces_on_disconnect(alloc: Allocation) -> bool:
    """Return whether it may be replaced while its node is away."""
    return alloc.replaceable_on_disconnect


def wants_migration(alloc: Allocation) -> bool:
    """Return whether somebody asked for its migration."""
    return alloc.desired_transition.migrate is True


def with_client_status(alloc: Allocation, client_status: str, now_ns: int) -> Allocation:
    """Return a shallow copy with another client status and a record of that."""
    twin = copy.copy(alloc)
    twin.client_status = client_status
    twin.alloc_states = [*alloc.alloc_states, AllocState(field=CLIENT_STATUS_FIELD, value=client_status, time=time_text(now_ns))]
    return twin


def by_age(alloc: Allocation) -> tuple[int, str]:
    """Order allocations as schedulers visit them: by create index, then id (schedulers 3.8)."""
    return alloc.create_index, alloc.id
