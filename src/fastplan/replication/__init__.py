"""The replicated log: bytes that survive (replication.md). It knows entries, not jobs.

`contract` says what every backend offers and asks; `local` is the backend that needs nothing but a disk.
"""

from fastplan.replication.contract import (
    BatchCommitted,
    BatchHandle,
    Committed,
    Event,
    Following,
    Gained,
    Handle,
    Lagging,
    LogItem,
    Lost,
    MemberStatus,
    Replicator,
    Role,
    SnapshotInstalled,
    StateMachine,
    Status,
    Stopped,
)
from fastplan.replication.local import LocalReplicator
from fastplan.replication.settings import LocalSettings

__all__ = [
    "BatchCommitted",
    "BatchHandle",
    "Committed",
    "Event",
    "Following",
    "Gained",
    "Handle",
    "Lagging",
    "LocalReplicator",
    "LocalSettings",
    "LogItem",
    "Lost",
    "MemberStatus",
    "Replicator",
    "Role",
    "SnapshotInstalled",
    "StateMachine",
    "Status",
    "Stopped",
]
