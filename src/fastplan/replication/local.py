"""The backend `local`: one replica that leads itself; durable on this machine's disk (replication.md 2).

Each start is a new term. There is nobody to lose the leadership to, so `OutcomeUnknown` comes only from a state machine that fails, and
`StorageFailed` from a disk that does.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import heapq
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from fastplan.errors import Busy, Closed, InvalidInput, NotLeader, OutcomeUnknown, ReplicationError, StorageFailed, TooLarge
from fastplan.replication.commit_thread import CommitListener, CommitThread, Proposal
from fastplan.replication.contract import BatchHandle, Gained, Handle, LogItem, Lost, MemberStatus, Role, StateMachine, Status, Stopped
from fastplan.replication.directory import DataDirectory
from fastplan.replication.disk import Disk, FileSystem
from fastplan.replication.event_stream import EventHub, EventStream
from fastplan.replication.packing import ENTRY, MAX_KEY_BYTES, NOOP
from fastplan.replication.settings import LocalSettings
from fastplan.replication.snapshots import SnapshotRecord, read_snapshot, write_snapshot
from fastplan.replication.store import LogStore, ReplayChunk

__all__ = ["LocalReplicator", "LocalSettings"]

_log = logging.getLogger("fastplan.replication")
_T = TypeVar("_T")


class LocalReplicator:
    """A `Replicator` on the disk of this machine. All calls are made on the event loop that ran `start`."""

    def __init__(self, settings: LocalSettings, state_machine: StateMachine, *, disk: FileSystem | None = None) -> None:
        self._settings = settings
        self._machine = state_machine
        self._disk = disk or Disk()
        self._directory = DataDirectory(settings.directory, self._disk)
        self._store = LogStore(self._directory, self._disk, settings.store_options())
        self._events = EventHub()
        self._lifecycle = asyncio.Lock()
        self._thread: CommitThread | None = None
        self._thread_ended = asyncio.Event()
        self._role = Role.STOPPED
        self._refusal: ReplicationError = NotLeader("the replicator has not been started")
        self._stopping = False
        self._ended = False
        self._failed = False
        self._gained = False
        self._term = 0
        self._last_index = 0
        self._durable_index = 0
        self._applied_index = 0
        self._pending: collections.deque[Proposal] = collections.deque()
        self._pending_entries = 0
        self._pending_bytes = 0
        self._space_low = False
        self._room_wanted: list[asyncio.Future[None]] = []
        self._index_wanted: list[tuple[int, int, asyncio.Future[None]]] = []
        self._wait_numbers = itertools.count()
        self._recorded: asyncio.Future[None] | None = None
        self._snapshot_task: asyncio.Task[int] | None = None
        self._snapshot_index = 0
        self._snapshot_problem = ""
        self._entries_since_snapshot = 0
        self._bytes_since_snapshot = 0

    # ---- life ----------------------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Recover, open a new term, and return when its no-op is committed and everything before it applied.

        Raises `Corrupt`, `VersionUnsupported`, `DirectoryInUse`, `StorageFailed`, `InvalidInput` for the path, and `Closed` after `stop`.
        """
        async with self._lifecycle:
            if self._is_leaving() or self._thread is not None:
                raise Closed("a replicator starts once")
            try:
                await self._recover()
            except BaseException as problem:
                self._store.close()
                self._directory.release()
                self._end(Closed("the replicator did not start"), problem if isinstance(problem, Exception) else None)
                raise
            self._thread = CommitThread(
                self._store,
                self._directory.release,
                asyncio.get_running_loop(),
                CommitListener(self._on_durable, self._on_space_low, self._on_thread_failed, self._on_thread_closed),
                self._settings.commit_limits(),
            )
            self._thread.start()
            self._term = self._store.last_term + 1
            opening = self._append(NOOP, (b"",), (b"",), 0)
            try:
                await opening
            except asyncio.CancelledError:
                self._thread.stop(abort=True)
                raise
            self._role = Role.LEADER
            self._gained = True
            self._events.announce(Gained(self._term, opening.first_index))
            self._snapshot_if_due()

    async def _recover(self) -> None:
        await _in_thread(self._directory.acquire)
        await _in_thread(self._store.open)
        snapshot = await _in_thread(self._store.best_snapshot)
        if snapshot is not None:
            self._snapshot_index = snapshot.index
            if self._machine.applied < snapshot.index:
                await _in_thread(lambda: self._restore(snapshot))
        # A state machine that lives on from an earlier replicator in this process is not fed what it has.
        self._applied_index = max(self._snapshot_index, self._machine.applied)
        if self._applied_index > self._store.last_index:
            raise InvalidInput("state_machine.applied", self._applied_index, f"an index of this log, which ends at {self._store.last_index}")
        chunks = self._store.replay(self._applied_index)

        def next_chunk() -> ReplayChunk | None:
            return next(chunks, None)

        while (chunk := await _in_thread(next_chunk)) is not None:
            self._entries_since_snapshot += len(chunk.items)
            self._bytes_since_snapshot += chunk.size_bytes
            self._apply(chunk.items)
            self._applied_index = chunk.last_index
            # Recovering a long log must not keep the event loop from its other work.
            await asyncio.sleep(0)
        await _in_thread(self._store.begin)
        self._last_index = self._durable_index = self._applied_index = self._store.last_index

    def _restore(self, snapshot: SnapshotRecord) -> None:
        self._machine.restore(read_snapshot(self._directory.snapshots, self._store.cluster_id, snapshot))
        if self._machine.applied > snapshot.index:
            raise InvalidInput("state_machine.applied", self._machine.applied, f"at most {snapshot.index}, where the snapshot was taken")

    async def stop(self) -> None:
        """Refuse new proposals, finish the pending ones, flush and close. Idempotent."""
        self._stopping = True
        if self._role is Role.LEADER:
            self._role = Role.STOPPED
            self._refusal = Closed("the replicator has been stopped")
        async with self._lifecycle:
            if self._thread is not None:
                if self._snapshot_task is not None:
                    # Only its end is waited for: `_snapshot_ended` has logged why it failed.
                    with contextlib.suppress(Exception):
                        await asyncio.shield(self._snapshot_task)
                self._thread.stop()
                await self._thread_ended.wait()
            if not self._ended:
                self._end(Closed("the replicator has been stopped"), None)

    # ---- proposals -----------------------------------------------------------------------------------------------------------------

    def propose(self, entry: bytes, *, term: int, key: bytes | None = None) -> Handle:
        """See `Replicator.propose`."""
        return Handle(self.propose_batch((entry,), term=term, keys=None if key is None else (key,)))

    def propose_batch(self, entries: Sequence[bytes], *, term: int, keys: Sequence[bytes | None] | None = None) -> BatchHandle:
        """See `Replicator.propose_batch`. Raises `InvalidInput` for no entries, what is not bytes, and keys that do not match."""
        if self._role is not Role.LEADER:
            raise _copied(self._refusal)
        if term != self._term:
            raise NotLeader(f"term {term} is over; this replica leads term {self._term}", hint=self._settings.node_id)
        stored_entries = tuple(entries)
        stored_keys = _checked_keys(stored_entries, keys)
        largest = max(map(len, stored_entries))
        if largest > self._settings.max_entry_bytes:
            raise TooLarge(f"an entry of {largest} bytes; the limit is {self._settings.max_entry_bytes}")
        size_bytes = sum(map(len, stored_entries)) + sum(map(len, stored_keys))
        self._refuse_oversized(len(stored_entries), size_bytes)
        if not self._has_room(len(stored_entries), size_bytes):
            if self._space_low:
                raise Busy(f"the disk of {self._settings.directory} is nearly full")
            raise Busy(f"{self._pending_entries} entries of {self._pending_bytes} bytes are pending")
        return self._append(ENTRY, stored_entries, stored_keys, size_bytes)

    def _append(self, kind: int, entries: Sequence[bytes], keys: Sequence[bytes], size_bytes: int) -> BatchHandle:
        assert self._thread is not None
        count = len(entries)
        handle = BatchHandle(self._last_index + 1, self._term, count)
        proposal = Proposal(kind, self._term, entries, keys, size_bytes, handle)
        self._last_index += count
        self._pending.append(proposal)
        self._pending_entries += count
        self._pending_bytes += size_bytes
        self._thread.put(proposal)
        return handle

    def _refuse_oversized(self, entries: int, size_bytes: int) -> None:
        """Refuse what would be refused even if nothing were pending."""
        if entries > self._settings.max_pending_entries or size_bytes > self._settings.max_pending_bytes:
            raise TooLarge(
                f"{entries} entries of {size_bytes} bytes at once; the limits are {self._settings.max_pending_entries} entries and"
                f" {self._settings.max_pending_bytes} bytes"
            )

    def _has_room(self, entries: int, size_bytes: int) -> bool:
        return (
            not self._space_low
            and self._pending_entries + entries <= self._settings.max_pending_entries
            and self._pending_bytes + size_bytes <= self._settings.max_pending_bytes
        )

    async def ready(self, entries: int = 1, size_bytes: int = 0) -> None:
        """See `Replicator.ready`."""
        self._refuse_oversized(entries, size_bytes)
        while True:
            if self._role is not Role.LEADER:
                raise _copied(self._refusal)
            if self._has_room(entries, size_bytes):
                return
            waiter = asyncio.get_running_loop().create_future()
            self._room_wanted.append(waiter)
            await waiter

    # ---- waiting -------------------------------------------------------------------------------------------------------------------

    async def barrier(self, timeout_s: float | None = None) -> int:
        """See `Replicator.barrier`."""
        index = self._last_index
        await self.wait_applied(index, timeout_s)
        return index

    async def read_barrier(self, timeout_s: float | None = None) -> int:
        """See `Replicator.read_barrier`. Nothing is acknowledged before it is applied here, so there is nothing to wait for."""
        if self._role is not Role.LEADER:
            raise _copied(self._refusal)
        return self._applied_index

    async def wait_applied(self, index: int, timeout_s: float | None = None) -> None:
        """See `Replicator.wait_applied`."""
        if index <= self._applied_index:
            return
        if self._role is not Role.LEADER:
            raise _copied(self._refusal)
        waiter = asyncio.get_running_loop().create_future()
        heapq.heappush(self._index_wanted, (index, next(self._wait_numbers), waiter))
        async with asyncio.timeout(timeout_s):
            await waiter

    def events(self) -> EventStream:
        """See `Replicator.events`."""
        return self._events.subscribe()

    def status(self) -> Status:
        """See `Replicator.status`. `syncs` counts transactions on the log; each is one flush of its write-ahead file."""
        node_id = self._settings.node_id
        health = list(self._store.warnings)
        if self._space_low:
            health.append(f"less than {self._settings.low_water_bytes} bytes are free on the disk; proposals are refused")
        if self._snapshot_problem:
            health.append(f"the last snapshot failed: {self._snapshot_problem}")
        if self._failed:
            health.append(str(self._refusal))
        leads = self._role is Role.LEADER
        return Status(
            role=self._role,
            term=self._term,
            leader_hint=node_id if leads else None,
            last_index=self._last_index,
            durable_index=self._durable_index,
            commit_index=self._durable_index,
            applied_index=self._applied_index,
            snapshot_index=self._snapshot_index,
            members=(MemberStatus(node_id, self._durable_index, 0),) if leads else (),
            pending_entries=self._pending_entries,
            pending_bytes=self._pending_bytes,
            bytes_on_disk=self._thread.bytes_on_disk if self._thread is not None else 0,
            syncs=self._store.syncs,
            health=tuple(health),
        )

    # ---- what the commit thread reports ----------------------------------------------------------------------------------------------

    def _on_durable(self, work: list[Proposal]) -> None:
        if self._ended:
            return
        items: list[LogItem] = []
        index = self._durable_index + 1
        for proposal in work:
            end = index + len(proposal.entries)
            if proposal.kind == ENTRY:
                items.extend(zip(range(index, end), itertools.repeat(proposal.term, end - index), proposal.entries, proposal.keys, strict=True))
            index = end
        self._durable_index = index - 1
        try:
            results = self._apply(items)
        except Exception as problem:
            _log.exception("the state machine failed between index %d and %d", self._applied_index + 1, self._durable_index)
            self._end(Closed(f"the replicator has stopped, because its state machine failed: {problem!r}"), problem)
            assert self._thread is not None
            self._thread.stop(abort=True)
            return
        self._applied_index = self._durable_index
        offset = 0
        for proposal in work:
            count = len(proposal.entries)
            self._pending.popleft()
            self._pending_entries -= count
            self._pending_bytes -= proposal.size_bytes
            self._entries_since_snapshot += count
            self._bytes_since_snapshot += proposal.size_bytes
            if proposal.kind == ENTRY:
                proposal.handle.resolve(results[offset : offset + count])
                offset += count
            else:
                proposal.handle.resolve((None,) * count)
        while self._index_wanted and self._index_wanted[0][0] <= self._applied_index:
            _wake(heapq.heappop(self._index_wanted)[2])
        self._wake_room_wanted()
        self._snapshot_if_due()

    def _apply(self, items: list[LogItem]) -> Sequence[object]:
        if not items:
            return ()
        results = self._machine.apply(items)
        if len(results) != len(items):
            raise RuntimeError(f"the state machine returned {len(results)} results for {len(items)} entries")
        return results

    def _on_space_low(self, low: bool) -> None:
        self._space_low = low
        if low:
            _log.warning("%s: less than %d bytes are free; proposals are refused", self._settings.directory, self._settings.low_water_bytes)
        if low and self._role is Role.LEADER:
            # A snapshot lets the log behind it go.
            self._start_snapshot()
        self._wake_room_wanted()

    def _on_thread_failed(self, error: StorageFailed) -> None:
        if not self._ended:
            self._end(error, error)

    def _on_thread_closed(self) -> None:
        if not self._ended:
            self._end(Closed("the replicator has been stopped"), None)
        if self._recorded is not None and not self._recorded.done():
            self._recorded.set_exception(_copied(self._refusal))
        self._thread_ended.set()

    def _end(self, refusal: ReplicationError, problem: Exception | None) -> None:
        """Become useless at once: fail everything pending, then say why. Later calls raise *refusal*."""
        self._ended = True
        self._failed = problem is not None
        self._role = Role.STOPPED
        self._refusal = refusal
        pending, self._pending = self._pending, collections.deque()
        self._pending_entries = self._pending_bytes = 0
        for proposal in pending:
            handle = proposal.handle
            # After a failed write the disk decides; after a failed state machine the entry is stored, but nobody knows its result.
            error = _copied(refusal) if isinstance(refusal, StorageFailed) else OutcomeUnknown(str(refusal), handle.first_index, handle.term)
            error.__cause__ = problem
            handle.fail(error)
        waits, self._index_wanted = self._index_wanted, []
        for _, _, waiter in waits:
            if not waiter.done():
                waiter.set_exception(_copied(refusal))
        self._wake_room_wanted()
        if self._gained:
            self._events.announce(Lost(self._term, str(refusal)))
        self._events.announce(Stopped(problem))

    def _wake_room_wanted(self) -> None:
        waiters, self._room_wanted = self._room_wanted, []
        for waiter in waiters:
            _wake(waiter)

    # ---- snapshots -----------------------------------------------------------------------------------------------------------------

    async def snapshot(self) -> int:
        """See `Replicator.snapshot`. Raises `StorageFailed` if it cannot be written; the log goes on without it."""
        while self._snapshot_task is not None:
            # Somebody else's: `_snapshot_ended` logs a failure and puts it into `health`.
            with contextlib.suppress(Exception):
                await asyncio.shield(self._snapshot_task)
        if self._role is not Role.LEADER:
            raise _copied(self._refusal)
        if self._snapshot_index == self._applied_index:
            return self._snapshot_index
        return await asyncio.shield(self._start_snapshot())

    def _snapshot_if_due(self) -> None:
        if self._role is not Role.LEADER:
            return
        if self._entries_since_snapshot >= self._settings.snapshot_entries or self._bytes_since_snapshot >= self._settings.snapshot_bytes:
            self._start_snapshot()

    def _start_snapshot(self) -> asyncio.Task[int]:
        if self._snapshot_task is None:
            self._snapshot_task = asyncio.create_task(self._take_snapshot())
            self._snapshot_task.add_done_callback(self._snapshot_ended)
        return self._snapshot_task

    def _snapshot_ended(self, task: asyncio.Task[int]) -> None:
        self._snapshot_task = None
        problem = None if task.cancelled() else task.exception()
        self._snapshot_problem = str(problem) if problem is not None and self._role is Role.LEADER else ""
        if self._snapshot_problem:
            _log.warning("%s: the snapshot failed: %s", self._settings.directory, self._snapshot_problem)

    async def _take_snapshot(self) -> int:
        index, term = self._applied_index, self._term
        # Also when it fails: the next try is due after as much log again.
        self._entries_since_snapshot = self._bytes_since_snapshot = 0
        chunks = self._machine.snapshot()
        try:
            record = await asyncio.to_thread(
                write_snapshot,
                self._disk,
                self._directory.snapshots,
                self._store.cluster_id,
                index,
                term,
                chunks,
                cancelled=self._is_leaving,
            )
        except OSError as problem:
            raise StorageFailed(f"cannot write a snapshot to {self._directory.snapshots}: {problem.strerror or problem}") from problem
        await self._record_snapshot(record)
        self._snapshot_index = index
        return index

    def _is_leaving(self) -> bool:
        return self._stopping or self._ended

    async def _record_snapshot(self, record: SnapshotRecord) -> None:
        if self._ended:
            raise _copied(self._refusal)
        assert self._thread is not None
        self._recorded = asyncio.get_running_loop().create_future()
        recorded = self._recorded
        self._thread.record_snapshot(record, lambda: _wake(recorded))
        await recorded


async def _in_thread(step: Callable[[], _T]) -> _T:
    """Run *step* in a thread, to its end even when the wait is cancelled: nobody may close its files meanwhile."""
    running = asyncio.ensure_future(asyncio.to_thread(step))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _copied(error: ReplicationError) -> ReplicationError:
    """Return an error of its own for each who hears it, so that tracebacks do not mix."""
    copy = type(error)(str(error))
    copy.__cause__ = error.__cause__
    return copy


def _checked_keys(entries: Sequence[bytes], keys: Sequence[bytes | None] | None) -> Sequence[bytes]:
    if not entries:
        raise InvalidInput("entries", [], "at least one entry")
    if set(map(type, entries)) != {bytes}:
        raise InvalidInput("entries", next(entry for entry in entries if type(entry) is not bytes), "bytes")
    if keys is None:
        return (b"",) * len(entries)
    stored = tuple(key if key is not None else b"" for key in keys)
    if len(stored) != len(entries):
        raise InvalidInput("keys", len(stored), f"one key for each of {len(entries)} entries")
    if set(map(type, stored)) != {bytes} or max(map(len, stored)) > MAX_KEY_BYTES:
        wrong = next(key for key in stored if type(key) is not bytes or len(key) > MAX_KEY_BYTES)
        raise InvalidInput("keys", wrong, f"bytes, at most {MAX_KEY_BYTES}")
    return stored
