"""The exception tree and the reasons of a refusal.

Everything that fastplan raises on purpose is a `FastplanError`:

    FastplanError
    ├── InvalidInput          (also ValueError)  input that cannot be read; names path and value
    ├── StateError            the state store refuses an operation or does not know an id
    ├── PortsUnavailable      a port ask cannot be met on a node
    ├── PlanError             a plan as a whole gets an error instead of a result
    │   ├── QueueDisabled     the plan queue is off: this server does not lead
    │   ├── TokenRejected     the evaluation is not outstanding or its token differs
    │   └── SnapshotTimeout   the state did not reach the index that the plan needs
    ├── BrokerError           the evaluation broker does not know a delivery
    │   └── BrokerDisabled    the broker is off: this server does not lead
    ├── SchedulerError        a scheduler cannot handle an evaluation
    ├── IndexTimeout          (also TimeoutError)  the state did not reach an index in time
    ├── CodecError            a log entry cannot be decoded
    │   └── VersionUnsupported  written by another version of the format; names both
    └── ReplicationError      the replicated log
        ├── NotLeader         this replica does not hold the leadership named; nothing was written
        ├── Busy              too much is pending or the disk is nearly full; nothing was written
        ├── TooLarge          the entry exceeds the limit; nothing was written
        ├── OutcomeUnknown    it may or may not have been written; look it up by key
        ├── Closed            the replicator has been stopped
        ├── StorageFailed     a write or flush failed; the replica has stopped
        ├── Corrupt           stored data is damaged; names file and place
        └── DirectoryInUse    another process holds the data directory
"""

from __future__ import annotations

import enum
from typing import Any


class FastplanError(Exception):
    """Base of every error that fastplan raises on purpose."""


def shown(value: object, limit: int = 80) -> str:
    """Return *value* as it would stand in JSON, cut to *limit* characters, for use in messages."""
    if value is None:
        text = "null"
    elif value is True or value is False:
        text = str(value).lower()
    elif isinstance(value, str):
        # Half a surrogate pair could not be printed.
        text = '"' + value.replace("\\", "\\\\").replace('"', '\\"').encode(errors="backslashreplace").decode() + '"'
    elif isinstance(value, dict):
        text = "an object"
    elif isinstance(value, list | tuple):
        text = "a list"
    elif isinstance(value, int):
        # str() of a huge int raises above 4,300 digits.
        text = str(value) if value.bit_length() < 256 else f"an integer of {value.bit_length()} bits"
    else:
        text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"


class InvalidInput(FastplanError, ValueError):
    """Input that cannot be read. `path` names the field, `value` what stood there, `expected` what should.

    The text is `node.NodeResources.Memory.MemoryMB: expected integer ≥ 0, got "12"`. `wording`: what Nomad says instead, where clients read that; else empty.
    """

    def __init__(self, path: str, value: Any, expected: str, *, wording: str = "") -> None:
        super().__init__(f"{path}: expected {expected}, got {shown(value)}")
        self.path = path
        self.value = value
        self.expected = expected
        self.wording = wording


class StateError(FastplanError):
    """The state store refuses an operation (unknown id, duplicate id, promotion undone, …)."""


class PortsUnavailable(FastplanError):
    """A port ask cannot be met on a node; the text is the reason (schedulers.md 9.3)."""


class PlanError(FastplanError):
    """A plan as a whole gets an error instead of a result (plan-apply.md 5.5, 6.6, 7.5)."""


class QueueDisabled(PlanError):
    """The plan queue is off or was flushed, because this server does not lead."""


class TokenRejected(PlanError):
    """The evaluation of a plan is not outstanding, has another token, or its nack timer has fired."""


class SnapshotTimeout(PlanError):
    """The state did not reach the index that a plan needs within the limit (plan-apply.md 6.4)."""


class BrokerError(FastplanError):
    """The evaluation broker refuses an ack, a nack or a request (worker-and-broker.md 3.6, 4)."""


class BrokerDisabled(BrokerError):
    """The evaluation broker is off, because this server does not lead."""


class SchedulerError(FastplanError):
    """A scheduler cannot handle an evaluation (schedulers.md 1.1); the worker gives it back."""


class IndexTimeout(FastplanError, TimeoutError):
    """The state did not reach an index within the limit (worker-and-broker.md 6.5)."""

    def __init__(self, limit_s: float, index: int) -> None:
        limit = f"{limit_s:g}s" if limit_s >= 1 else f"{limit_s * 1000:g}ms"
        super().__init__(f"timed out after {limit} waiting for index={index}")
        self.index = index


class CodecError(FastplanError):
    """A log entry or snapshot cannot be decoded."""


class VersionUnsupported(CodecError):
    """An entry or snapshot was written in a format version that this release does not read."""

    def __init__(self, what: str, found: int, supported: int) -> None:
        super().__init__(f"{what}: format version {found} found, this release reads up to version {supported}")
        self.found = found
        self.supported = supported


class ReplicationError(FastplanError):
    """Base of the errors of the replicated log (replication.md 1.3)."""


class NotLeader(ReplicationError):
    """This replica does not hold the named leadership; nothing was written. `hint` may name the leader."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class Busy(ReplicationError):
    """Too much is pending, or the disk is nearly full; nothing was written. Wait for `ready()`."""


class TooLarge(ReplicationError):
    """The entry exceeds the limit of the backend; nothing was written."""


class OutcomeUnknown(ReplicationError):
    """The entry may or may not have been committed; look it up by its key, or propose it again with the same key."""

    def __init__(self, message: str, index: int | None = None, term: int | None = None) -> None:
        super().__init__(message)
        self.index = index
        self.term = term


class Closed(ReplicationError):
    """The replicator has been stopped."""


class StorageFailed(ReplicationError):
    """A write or flush failed. The replica has stopped; what was pending may or may not be stored."""


class Corrupt(ReplicationError):
    """Stored data is damaged. The replica refuses to start; rebuild it from another one or from a backup."""

    def __init__(self, message: str, file: str, offset: int | None = None, index: int | None = None) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset
        self.index = index


class DirectoryInUse(ReplicationError):
    """Another process holds the data directory."""


class Reason(enum.IntEnum):
    """Why a node's part of a plan, or an ask, is refused. Kernels return these numbers.

    `text` is Nomad's wording (plan-apply.md 2.9, 5.2); the two port reasons are prefixes that a detail follows.
    The order of the first ten is the order of the checks (plan-apply.md 2.2).
    """

    FITS = 0
    MAX_ALLOCS = 1
    CORES = 2
    CPU = 3
    MEMORY = 4
    DISK = 5
    NODE_PORTS = 6
    ALLOC_PORTS = 7
    DEVICES = 8
    VOLUMES = 9
    NODE_MISSING = 10
    NODE_DISCONNECTED = 11
    NODE_DOWN = 12
    NODE_NOT_READY = 13
    NODE_INELIGIBLE = 14
    OTHER_NODE = 15
    DEVICE_UNAVAILABLE = 16
    INVALID = 17

    @property
    def text(self) -> str:
        """Nomad's wording of the reason; empty for `FITS`."""
        return _REASON_TEXTS[self]


_REASON_TEXTS = {
    Reason.FITS: "",
    Reason.MAX_ALLOCS: "max allocation exceeded",
    Reason.CORES: "cores",
    Reason.CPU: "cpu",
    Reason.MEMORY: "memory",
    Reason.DISK: "disk",
    Reason.NODE_PORTS: "reserved node port collision",
    Reason.ALLOC_PORTS: "reserved alloc port collision",
    Reason.DEVICES: "device oversubscribed",
    Reason.VOLUMES: "conflicting claims for host volume with single-writer",
    Reason.NODE_MISSING: "node does not exist",
    Reason.NODE_DISCONNECTED: "node is disconnected and contains invalid updates",
    Reason.NODE_DOWN: "node is down and contains invalid updates",
    Reason.NODE_NOT_READY: "node is not ready for placements",
    Reason.NODE_INELIGIBLE: "node is not eligible",
    Reason.OTHER_NODE: "allocation names another node",
    Reason.DEVICE_UNAVAILABLE: "device unavailable",
    Reason.INVALID: "invalid input",
}
