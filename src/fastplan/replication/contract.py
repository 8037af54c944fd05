"""What the rest of fastplan may ask of a replicated log, and what a log asks of its state machine (replication.md 1).

The log knows bytes. An *entry* is opaque, its *index* is its position (dense, from 1), a *term* numbers a leadership. An entry is
*committed* when it can no longer be lost, *applied* when the state machine has seen it, *acknowledged* when its handle has resolved.
Errors are those of `fastplan.errors` below `ReplicationError`.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

LogItem: TypeAlias = tuple[int, int, bytes, bytes]
"""One committed entry as the state machine sees it: (index, term, entry, key). The key is empty when none was given."""


class StateMachine(Protocol):
    """What the caller gives to a log: a deterministic function of the entries (replication.md 1.2).

    The no-op that opens a term takes an index but is not handed over, so indexes rise without being dense here.
    """

    @property
    def applied(self) -> int:
        """Index of the last entry in the state, 0 when empty."""
        ...

    def apply(self, batch: Sequence[LogItem]) -> Sequence[object]:
        """Apply committed entries and return one result each.

        Deterministic: no clock, no randomness, no I/O. Called on the event loop, in index order, each index once in the life of a state.
        A refused entry is a normal result; an exception is a defect and stops the replica. A key seen before is answered with its first
        result: the state machine keeps the recent keys (10,000, or one hour of entry time), in its snapshot too.
        """
        ...

    def snapshot(self) -> Iterator[bytes]:
        """Return the state as chunks of bytes, consistent at `applied`.

        Called on the event loop and must return at once with an immutable view; the iterator is driven in another thread.
        """
        ...

    def restore(self, chunks: Iterable[bytes]) -> None:
        """Replace the whole state. Called in a worker thread while nothing else touches the state machine.

        Chunks may be cut elsewhere than `snapshot` cut them. `applied` is then the value it had when the snapshot was taken.
        """
        ...


@dataclass(frozen=True, slots=True)
class Committed:
    """An entry that is durable and applied. `result` is what the state machine returned for it."""

    index: int
    term: int
    result: Any


@dataclass(frozen=True, slots=True)
class BatchCommitted:
    """Entries proposed together, durable and applied. Entry *i* has index `first_index + i` and result `results[i]`."""

    first_index: int
    term: int
    results: Sequence[Any]


class BatchHandle:
    """Pending entries that were proposed together. `await` it for a `BatchCommitted` or the one error of all of them.

    It may be awaited by several tasks and more than once. Cancelling or timing out a wait ends the wait, not the entries.
    `resolve` and `fail` are for backends, on the event loop, once.
    """

    __slots__ = ("_error", "_outcome", "_waiters", "count", "first_index", "term")

    def __init__(self, first_index: int, term: int, count: int) -> None:
        self.first_index = first_index
        self.term = term
        self.count = count
        self._outcome: BatchCommitted | None = None
        self._error: Exception | None = None
        self._waiters: list[asyncio.Future[None]] = []

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._outcome is not None or self._error is not None

    def outcome(self) -> BatchCommitted:
        """Return the outcome of entries that are done, or raise their error. `RuntimeError` while it is not known."""
        if self._error is not None:
            raise self._error
        if self._outcome is None:
            raise RuntimeError(f"the outcome of index {self.first_index} is not known yet")
        return self._outcome

    def resolve(self, results: Sequence[Any]) -> None:
        """Acknowledge the entries with one result each."""
        if self.done():
            raise RuntimeError(f"the handle of index {self.first_index} ended twice")
        self._outcome = BatchCommitted(self.first_index, self.term, results)
        self._wake()

    def fail(self, error: Exception) -> None:
        """End all entries with *error*."""
        if self.done():
            raise RuntimeError(f"the handle of index {self.first_index} ended twice")
        self._error = error
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def __await__(self) -> Generator[Any, None, BatchCommitted]:
        if self._outcome is None and self._error is None:
            # A future per wait, not one per handle: cancelling one wait must not touch the others.
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            yield from waiter
        if self._error is not None:
            raise self._error
        assert self._outcome is not None
        return self._outcome


class Handle:
    """One pending entry. `await` it for a `Committed` or its error; see `BatchHandle` for waits."""

    __slots__ = ("_batch",)

    def __init__(self, batch: BatchHandle) -> None:
        self._batch = batch

    @property
    def index(self) -> int:
        """Where the entry stands in the log if it is committed."""
        return self._batch.first_index

    @property
    def term(self) -> int:
        """The leadership under which it was proposed."""
        return self._batch.term

    def done(self) -> bool:
        """Return whether the outcome is known."""
        return self._batch.done()

    def __await__(self) -> Generator[Any, None, Committed]:
        outcome = yield from self._batch.__await__()
        return Committed(outcome.first_index, outcome.term, outcome.results[0])


class Role(enum.Enum):
    """What a replica is at the moment."""

    STOPPED = "stopped"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member as this replica knows it. `lag` counts entries behind the last index of the leader."""

    node_id: str
    durable_index: int
    lag: int


@dataclass(frozen=True, slots=True)
class Status:
    """A replica at one moment. `health` lists what is wrong in words; empty means healthy. Sizes are in bytes."""

    role: Role
    term: int
    leader_hint: str | None
    last_index: int
    durable_index: int
    commit_index: int
    applied_index: int
    snapshot_index: int
    members: tuple[MemberStatus, ...]
    pending_entries: int
    pending_bytes: int
    bytes_on_disk: int
    syncs: int
    health: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Gained:
    """This replica leads `term`; the no-op that opens it, at `index`, is committed and applied here."""

    term: int
    index: int


@dataclass(frozen=True, slots=True)
class Lost:
    """The leadership `term` is over; all its pending handles have ended."""

    term: int
    reason: str


@dataclass(frozen=True, slots=True)
class Following:
    """This replica follows `leader` in `term`."""

    leader: str
    term: int


@dataclass(frozen=True, slots=True)
class SnapshotInstalled:
    """The state was replaced by a snapshot taken at `index`."""

    index: int


@dataclass(frozen=True, slots=True)
class Lagging:
    """This replica is `entries` behind the leader."""

    entries: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """The replica has stopped; `error` is None when it was asked to. The last event."""

    error: Exception | None


Event: TypeAlias = Gained | Lost | Following | SnapshotInstalled | Lagging | Stopped


class Replicator(Protocol):
    """A replicated log with its state machine (replication.md 1.1). All calls are made on one event loop.

    Backends with several members also offer `await transfer(member)`.
    """

    async def start(self) -> None:
        """Recover and join. Returns when the state machine holds everything this replica knows to be committed.

        Raises `Corrupt`, `DirectoryInUse`, `StorageFailed`.
        """
        ...

    async def stop(self) -> None:
        """Stop accepting, finish or fail what is pending, flush, close. Idempotent; a stopped replica does not start again."""
        ...

    def status(self) -> Status:
        """Return a cheap description of this moment."""
        ...

    def propose(self, entry: bytes, *, term: int, key: bytes | None = None) -> Handle:
        """Append one entry under leadership *term*. Does not block; the order of calls is the order in the log.

        Raises `NotLeader`, `Busy`, `TooLarge`, `Closed`, `StorageFailed`; then nothing was written. The handle may end in `OutcomeUnknown`
        or `StorageFailed`: the entry may have been written. Propose it again with the same key, or look the key up after `read_barrier`.
        """
        ...

    def propose_batch(self, entries: Sequence[bytes], *, term: int, keys: Sequence[bytes | None] | None = None) -> BatchHandle:
        """Append several entries next to each other, as `propose` in every respect; one handle for all of them.

        They are committed by one flush, usually together with what else is waiting.
        """
        ...

    async def ready(self, entries: int = 1, size_bytes: int = 0) -> None:
        """Wait until there is room for a proposal of so many entries and bytes. Raises `TooLarge`, `Closed`, `StorageFailed`."""
        ...

    async def barrier(self, timeout_s: float | None = None) -> int:
        """Wait until everything proposed here before is applied; returns that index. Raises `TimeoutError` and what ended the leadership."""
        ...

    async def read_barrier(self, timeout_s: float | None = None) -> int:
        """Wait until the local state reflects every entry acknowledged anywhere before the call; returns an index that is applied."""
        ...

    async def wait_applied(self, index: int, timeout_s: float | None = None) -> None:
        """Wait until the local state machine has *index*. Raises `TimeoutError`, `Closed`, `StorageFailed`."""
        ...

    async def snapshot(self) -> int:
        """Take a snapshot now and return its index. Normally snapshots are automatic."""
        ...

    def events(self) -> AsyncIterator[Event]:
        """Follow leadership events from this call on; the first one tells the present leadership, if there is one. Ends after `Stopped`."""
        ...
