"""What the broker counts and the tracker of blocked evaluations count (worker-and-broker 3.11, 5.1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from fastplan.structs import Evaluation

FAILED_QUEUE: Final = "_failed"
"""Queue of evaluations that were delivered too often."""


@dataclass(slots=True)
class QueueStats:
    """Figures of one queue."""

    ready: int = 0
    unacked: int = 0


@dataclass(slots=True)
class BrokerStats:
    """Figures of the broker; a copy."""

    total_ready: int = 0
    total_unacked: int = 0
    total_pending: int = 0
    total_waiting: int = 0
    total_cancelable: int = 0
    delayed_evals: dict[str, Evaluation] = field(default_factory=dict)
    by_scheduler: dict[str, QueueStats] = field(default_factory=dict)


class Wanted(NamedTuple):
    """What blocked evaluations lack: MHz and MiB."""

    cpu_mhz: int
    memory_mib: int


@dataclass(slots=True)
class BlockedStats:
    """Figures of the tracker; a copy. `by_job`: by namespace and job id. `by_class`: by datacenter, node class and node pool."""

    total_blocked: int = 0
    total_escaped: int = 0
    total_quota_limit: int = 0
    by_job: dict[tuple[str, str], Wanted] = field(default_factory=dict)
    by_class: dict[tuple[str, str, str], Wanted] = field(default_factory=dict)
