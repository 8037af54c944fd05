"""The thread that does all file I/O of a log: group commit without timers, and upkeep between commits (replication.md 3, 4).

Whatever waits when a flush ends becomes the next row. The event loop hears of a flush by one call.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fastplan.errors import StorageFailed
from fastplan.replication.contract import BatchHandle
from fastplan.replication.snapshots import SnapshotRecord
from fastplan.replication.store import LogStore

_log = logging.getLogger("fastplan.replication")

_SPACE_CHECK_BYTES = 1 << 20
_SPACE_CHECK_S = 1.0
_CHECKPOINT_PASSES = 3
_LONG = 2
_TOO_LONG = 4
"""How many times its limit the write-ahead file may grow before the checkpoint hurries, and before commits wait for it."""


@dataclass(slots=True, eq=False)
class Proposal:
    """Entries on their way to the disk. All fields but the handle are read by the commit thread."""

    kind: int
    term: int
    entries: Sequence[bytes]
    keys: Sequence[bytes]
    size_bytes: int
    handle: BatchHandle


@dataclass(frozen=True, slots=True)
class _Recording:
    """A snapshot to be recorded, and whom to tell on the event loop."""

    record: SnapshotRecord
    recorded: Callable[[], None]


@dataclass(frozen=True, slots=True)
class CommitListener:
    """Whom the commit thread tells, on the event loop, in the order of the events.

    `durable` gets the proposals of one flush; `space_low` whether the disk is nearly full; `failed` what ended the thread, at once;
    `closed` comes last, when files and lock are released.
    """

    durable: Callable[[list[Proposal]], None]
    space_low: Callable[[bool], None]
    failed: Callable[[StorageFailed], None]
    closed: Callable[[], None]


@dataclass(frozen=True, slots=True)
class CommitLimits:
    """`flush_bytes` ends a row; below `low_water_bytes` of free disk the reserve of `reserve_bytes` is given up."""

    flush_bytes: int
    low_water_bytes: int
    reserve_bytes: int


class CommitThread:
    """Owns a `LogStore` from `start` on and closes it, then calls `release`, when it ends."""

    def __init__(self, store: LogStore, release: Callable[[], None], loop: asyncio.AbstractEventLoop, listener: CommitListener, limits: CommitLimits) -> None:
        self.bytes_on_disk = 0
        self._store = store
        self._release = release
        self._loop = loop
        self._listener = listener
        self._limits = limits
        self._queue: queue.SimpleQueue[Proposal | _Recording | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="fastplan-commit", daemon=True)
        self._checkpointer = _Checkpointer(store)
        self._held: Proposal | None = None
        self._stopping = False
        self._aborted = False
        self._compacting = False
        self._space_is_low = False
        self._unmeasured_bytes = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, proposal: Proposal) -> None:
        """Queue a proposal; proposals are stored in this order."""
        self._queue.put(proposal)

    def record_snapshot(self, record: SnapshotRecord, recorded: Callable[[], None]) -> None:
        """Record a snapshot between two flushes, behind what was put before; compaction follows. Then *recorded* is called on the event loop."""
        self._queue.put(_Recording(record, recorded))

    def stop(self, *, abort: bool = False) -> None:
        """End the thread after everything queued; with *abort*, without it."""
        self._aborted = self._aborted or abort
        self._queue.put(None)

    def _run(self) -> None:
        failed = False
        try:
            self._store.hold_reserve()
            self._measure()
            while not self._stopping:
                self._turn()
        except Exception as problem:
            failed = True
            self._report(problem)
        self._checkpointer.stop()
        self._store.close(failed=failed)
        self._release()
        self._post(self._listener.closed)

    def _report(self, problem: Exception) -> None:
        """Say at once that the thread has failed: closing files on a bad disk may take long."""
        error = problem
        if not isinstance(error, StorageFailed):
            _log.error("the commit thread failed", exc_info=problem)
            error = StorageFailed(f"the commit thread failed: {problem}")
            error.__cause__ = problem
        _log.error("the log has stopped: %s", error)
        self._post(lambda: self._listener.failed(error))

    def _turn(self) -> None:
        work, recording = self._take()
        if self._aborted:
            self._stopping = True
            return
        if work:
            first = work[0]
            if len(work) == 1:
                self._store.append(first.term, first.kind, first.entries, first.keys)
            else:
                entries = [entry for proposal in work for entry in proposal.entries]
                keys = [key for proposal in work for key in proposal.keys]
                self._store.append(first.term, first.kind, entries, keys)
            self._unmeasured_bytes += sum(proposal.size_bytes for proposal in work)
            self._post(lambda: self._listener.durable(work))
        if recording is not None:
            self._store.record_snapshot(recording.record)
            self._compacting = True
            self._post(recording.recorded)
        self._keep_up(idle=not work)

    def _take(self) -> tuple[list[Proposal], _Recording | None]:
        """Return the proposals of the next row, and the snapshot that follows them in the queue."""
        item: Proposal | _Recording | None = self._held
        self._held = None
        if item is None:
            try:
                item = self._queue.get(not self._compacting, _SPACE_CHECK_S if self._space_is_low or self._checkpointer.busy() else None)
            except queue.Empty:
                return [], None
        work: list[Proposal] = []
        size_bytes = 0
        while isinstance(item, Proposal):
            if work and (size_bytes + item.size_bytes > self._limits.flush_bytes or item.kind != work[0].kind or item.term != work[0].term):
                self._held = item
                return work, None
            work.append(item)
            size_bytes += item.size_bytes
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return work, None
        if item is None:
            self._stopping = True
        return work, item

    def _keep_up(self, *, idle: bool) -> None:
        if self._checkpointer.finished(wait=self._store.checkpoint_due(_TOO_LONG)):
            self._store.finish_checkpoint()
        elif self._store.checkpoint_due() and not self._checkpointer.busy():
            self._checkpointer.begin()
        if self._compacting:
            self._compacting = self._store.compact_step()
        if self._unmeasured_bytes >= _SPACE_CHECK_BYTES or (idle and self._space_is_low):
            self._measure()

    def _measure(self) -> None:
        self._unmeasured_bytes = 0
        self.bytes_on_disk = self._store.bytes_on_disk()
        free_bytes = self._store.free_bytes()
        if not self._space_is_low and free_bytes < self._limits.low_water_bytes:
            self._space_is_low = self._compacting = True
            self._store.release_reserve()
            self._post(lambda: self._listener.space_low(True))
        elif self._space_is_low and free_bytes >= self._limits.low_water_bytes + self._limits.reserve_bytes:
            self._space_is_low = False
            self._store.hold_reserve()
            self._post(lambda: self._listener.space_low(False))

    def _post(self, call: Callable[[], None]) -> None:
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            # The event loop was closed without stopping the replicator: nobody is left to hear it.
            self._stopping = True


class _Checkpointer:
    """Copies the write-ahead file into the database in a thread of its own, so that a checkpoint does not stall commits.

    A writer that never rests would keep it from ever reaching the end of the file: it makes a few passes, each with less left to copy,
    and leaves the short rest to the commit thread. Where the writer is faster, it leaves more, so that the file does not grow for long.
    """

    def __init__(self, store: LogStore) -> None:
        self._store = store
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="fastplan-checkpoint", daemon=True)
        self._thread.start()

    def busy(self) -> bool:
        return self._thread is not None

    def finished(self, *, wait: bool) -> bool:
        """Return True once after a checkpoint has ended; with *wait*, wait for one under way. Raises what it raised."""
        if self._thread is None or (self._thread.is_alive() and not wait):
            return False
        self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error
        return True

    def stop(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        try:
            for _ in range(_CHECKPOINT_PASSES):
                self._store.checkpoint()
                if self._store.checkpoint_due(_LONG):
                    break
        except Exception as problem:
            self._error = problem
