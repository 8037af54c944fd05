"""The durable log on SQLite: one row per batch, one flush per row (replication.md 4).

A `LogStore` is used by one thread at a time; `checkpoint` alone may run beside the others. The order of use is `open`, `replay` to its end,
`begin`, then `append` and the rest, then `close`. `open` and `replay` change no file of an existing log, so a log that is refused stays as it was.
"""

from __future__ import annotations

import collections
import errno
import logging
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastplan.errors import StorageFailed
from fastplan.replication.contract import LogItem
from fastplan.replication.directory import WRITE_ERRORS, DataDirectory, Mark
from fastplan.replication.disk import Connection, FileSystem, Row, SqlValue
from fastplan.replication.packing import ENTRY, chain_value, pack
from fastplan.replication.recovery import PAGE_BYTES, LogReader, Owner, create_database
from fastplan.replication.snapshots import TEMPORARY_SUFFIX, SnapshotRecord

_log = logging.getLogger("fastplan.replication")

_INSERT = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)"

_REPLAY_ENTRIES = 16_384
_REPLAY_BYTES = 4 << 20
_COMPACT_STEP_BYTES = 2 << 20
_COMPACT_STEP_ROWS = 256
_VACUUM_STEP_PAGES = 256
_MARKS_KEPT = 256
_MIN_CHECKPOINT_PAGES = 64
_ROW_PAGES = 4
"""Pages that a row changes besides those full of payload: page 1, the leaf, the last partial page, the pointer map."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a log store is for and how much it keeps; sizes in bytes. `cluster_id` (16 bytes) is checked if given, drawn if the log is new."""

    node_id: str
    backend: str
    cluster_id: bytes | None
    keep_entries: int
    keep_bytes: int
    wal_bytes: int
    reserve_bytes: int
    slack_bytes: int

    @property
    def owner(self) -> Owner:
        """Whose log it is."""
        return Owner(self.node_id, self.backend, self.cluster_id)


@dataclass(frozen=True, slots=True)
class ReplayChunk:
    """Consecutive entries of the log up to `last_index`. No-ops are left out of `items`."""

    items: list[LogItem]
    last_index: int
    size_bytes: int


class LogStore:
    """The log, its snapshots' records and its compaction, in one directory."""

    def __init__(self, directory: DataDirectory, disk: FileSystem, options: StoreOptions) -> None:
        self.cluster_id = b""
        self.last_index = 0
        self.last_term = 0
        self.syncs = 0
        self.snapshots: list[SnapshotRecord] = []
        """The usable ones, newest first, at most two."""
        self.warnings: list[str] = []
        self._directory = directory
        self._disk = disk
        self._options = options
        self._chain = 0
        self._reader = LogReader(directory, disk, options.owner)
        self._writer: Connection | None = None
        self._checkpointer: Connection | None = None
        self._wal_pages = 0
        self._recorded_files: set[str] = set()
        self._checkpoint_pages = self._least_checkpoint_pages = max(options.wal_bytes // PAGE_BYTES, _MIN_CHECKPOINT_PAGES)
        self._slack_bytes = options.slack_bytes
        self._compact_to = 0
        self._log_bytes = 0
        # (last index, bytes of the log up to there), every so often: enough to know where the last `keep_bytes` begin.
        self._marks: collections.deque[tuple[int, int]] = collections.deque()

    # ---- opening -------------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the log, creating it if nothing was ever here, and check all that can be checked without reading it whole.

        Raises `Corrupt`, `VersionUnsupported` and `StorageFailed`.
        """
        try:
            if self._directory.is_new():
                create_database(self._directory, self._disk, self._options.owner)
        except WRITE_ERRORS as problem:
            raise self._directory.translated(problem) from problem
        self._reader.open()
        self.cluster_id = self._reader.cluster_id
        self.last_index = self._reader.last_index
        self.last_term = self._reader.last_term
        self.warnings = self._reader.warnings

    def best_snapshot(self) -> SnapshotRecord | None:
        """See `LogReader.best_snapshot`."""
        return self._reader.best_snapshot()

    def replay(self, after: int) -> Iterator[ReplayChunk]:
        """Verify the whole log and return what lies behind index *after*, in order. Raises `Corrupt` and `StorageFailed`."""
        items: list[LogItem] = []
        size_bytes = 0
        for row in self._reader.rows():
            self._account(row.last_index, len(row.payload))
            if row.last_index <= after:
                continue
            for index, (kind, key, entry) in enumerate(self._reader.unpacked(row), row.first_index):
                if kind == ENTRY and index > after:
                    items.append((index, row.term, entry, key))
            size_bytes += len(row.payload)
            if len(items) >= _REPLAY_ENTRIES or size_bytes >= _REPLAY_BYTES:
                yield ReplayChunk(items, row.last_index, size_bytes)
                items, size_bytes = [], 0
        if size_bytes:
            yield ReplayChunk(items, self.last_index, size_bytes)

    def begin(self) -> None:
        """Make what was read durable beyond doubt and get ready to append. Raises `StorageFailed`."""
        self._chain = self._reader.last_chain
        self.snapshots = self._reader.snapshots
        self._recorded_files = self._reader.recorded_files
        try:
            self._reader.close()
            self._remove_leftovers()
            self._writer = self._connect_writer()
            # A flush that failed in an earlier run may have left pages that only the system's cache holds. Copying them into the database
            # and flushing that makes sure of them before anything is acknowledged on top.
            busy, _, _ = _only_row(self._writer, "PRAGMA wal_checkpoint(TRUNCATE)")
            if busy:
                raise StorageFailed(f"another program reads {self._directory.database} and keeps its write-ahead file from being checkpointed")
            self._checkpointer = self._connect_writer()
            # The first read opens the write-ahead file.
            _only_row(self._checkpointer, "SELECT count(*) FROM snapshot")
            self._extend()
            self._directory.open_mark(Mark(self.cluster_id, self.last_index))
        except WRITE_ERRORS as problem:
            raise self._directory.translated(problem) from problem

    def _extend(self) -> None:
        """Allocate the write-ahead file ahead, so that commits need no new blocks. Without room for that they are slower, no more."""
        try:
            self._disk.extend(self._directory.write_ahead, self._options.wal_bytes)
        except OSError as problem:
            if problem.errno != errno.ENOSPC:
                raise
            self._warn(f"the disk has no room to allocate {self._options.wal_bytes} bytes for the write-ahead file")

    def _connect_writer(self) -> Connection:
        writer = self._disk.connect(self._directory.database)
        try:
            for pragma in ("synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON", "wal_autocheckpoint=0", "secure_delete=OFF", "cache_size=-16384"):
                writer.execute(f"PRAGMA {pragma}").fetchall()
        except BaseException:
            writer.close()
            raise
        return writer

    def _remove_leftovers(self) -> None:
        """Remove snapshot files that a crash left unfinished or unrecorded."""
        for path in self._directory.snapshots.iterdir():
            if path.name not in self._recorded_files and path.name.endswith((".snap", TEMPORARY_SUFFIX)):
                self._disk.remove(path)

    # ---- appending -----------------------------------------------------------------------------------------------------------------

    def append(self, term: int, kind: int, entries: Sequence[bytes], keys: Sequence[bytes]) -> None:
        """Store entries behind the last one, as one row with one flush; durable when it returns. Raises `StorageFailed`."""
        assert self._writer is not None
        first_index = self.last_index + 1
        last_index = self.last_index + len(entries)
        payload = pack(kind, entries, keys)
        chain = chain_value(self._chain, first_index, last_index, term, payload)
        try:
            self._writer.execute(_INSERT, (first_index, last_index, term, self._chain, chain, payload))
            self._directory.write_mark(Mark(self.cluster_id, last_index))
        except WRITE_ERRORS as problem:
            raise self._directory.translated(problem) from problem
        self.syncs += 1
        self.last_index, self.last_term, self._chain = last_index, term, chain
        self._wal_pages += _ROW_PAGES + len(payload) // PAGE_BYTES
        self._account(last_index, len(payload))

    def _account(self, last_index: int, size_bytes: int) -> None:
        self._log_bytes += size_bytes
        index_before, bytes_before = self._marks[-1] if self._marks else (0, 0)
        options = self._options
        if self._log_bytes - bytes_before > options.keep_bytes // _MARKS_KEPT or last_index - index_before > options.keep_entries // _MARKS_KEPT:
            self._marks.append((last_index, self._log_bytes))

    # ---- snapshots and compaction --------------------------------------------------------------------------------------------------

    def record_snapshot(self, record: SnapshotRecord) -> None:
        """Record a snapshot whose file is durable, drop all but the newest two, and let `compact_step` delete what they make needless.

        The log keeps the entries behind the older of the two, so that it can stand in for the newer one; and at least the last
        `keep_entries` entries and `keep_bytes` bytes. Raises `StorageFailed`.
        """
        keep = [record, *(old for old in self.snapshots if old.index < record.index)][:2]
        try:
            self._write("BEGIN IMMEDIATE")
            self._write("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?, ?)", (record.index, record.term, record.size_bytes, record.checksum, record.file))
            self._write("DELETE FROM snapshot WHERE snapshot_index NOT IN (?, ?)", (keep[0].index, keep[-1].index))
            self._write("COMMIT")
            self.syncs += 1
            self._wal_pages += _ROW_PAGES
            for name in self._recorded_files - {kept.file for kept in keep}:
                self._disk.remove(self._directory.snapshots / name)
        except WRITE_ERRORS as problem:
            raise self._directory.translated(problem) from problem
        self.snapshots = keep
        self._recorded_files = {kept.file for kept in keep}
        if len(keep) == 2:
            limit = min(keep[1].index, self.last_index - self._options.keep_entries)
            while self._marks and self._marks[0][1] <= self._log_bytes - self._options.keep_bytes and self._marks[0][0] <= limit:
                self._compact_to = self._marks.popleft()[0]

    def compact_step(self) -> bool:
        """Delete some needless rows or give some pages back; return whether anything was done. Raises `StorageFailed`."""
        assert self._writer is not None
        try:
            return self._delete_rows(self._writer) or self._vacuum(self._writer)
        except WRITE_ERRORS as problem:
            raise self._directory.translated(problem) from problem

    def _delete_rows(self, writer: Connection) -> bool:
        if not self._compact_to:
            return False
        statement = "SELECT last_index, length(payload) FROM log WHERE last_index <= ? ORDER BY first_index LIMIT ?"
        delete_to = 0
        size_bytes = 0
        for last_index, length in writer.execute(statement, (self._compact_to, _COMPACT_STEP_ROWS)).fetchall():
            if delete_to and size_bytes + length > _COMPACT_STEP_BYTES:
                break
            delete_to = last_index
            size_bytes += length
        if not delete_to:
            self._compact_to = 0
            return False
        writer.execute("DELETE FROM log WHERE first_index <= ?", (delete_to,))
        self.syncs += 1
        self._wal_pages += _ROW_PAGES + size_bytes // PAGE_BYTES // 64
        return True

    def _vacuum(self, writer: Connection) -> bool:
        # What the log will fill again soon stays allocated.
        (free_pages,) = _only_row(writer, "PRAGMA freelist_count")
        if free_pages * PAGE_BYTES <= self._slack_bytes:
            return False
        writer.execute(f"PRAGMA incremental_vacuum({_VACUUM_STEP_PAGES})").fetchall()
        self.syncs += 1
        self._wal_pages += _ROW_PAGES + 2 * _VACUUM_STEP_PAGES
        return True

    # ---- checkpoints ---------------------------------------------------------------------------------------------------------------

    def checkpoint_due(self, times: int = 1) -> bool:
        """Return whether the write-ahead file holds *times* as much as it should. May be asked beside the writer."""
        return self._wal_pages >= times * self._checkpoint_pages

    def checkpoint(self) -> None:
        """Copy what the write-ahead file holds into the database, beside the writer. Raises `StorageFailed`."""
        assert self._checkpointer is not None
        self._checkpoint(self._checkpointer)

    def finish_checkpoint(self) -> None:
        """Copy the rest, with the writer at rest, so that its next row starts the write-ahead file anew. Raises `StorageFailed`."""
        assert self._writer is not None
        log_pages, copied_pages = self._checkpoint(self._writer)
        self._wal_pages = log_pages - copied_pages
        # Another program that reads the database holds pages back; trying again after every row would not help.
        self._checkpoint_pages = max(self._least_checkpoint_pages, 2 * self._wal_pages)

    def _checkpoint(self, connection: Connection) -> tuple[int, int]:
        try:
            _, log_pages, copied_pages = _only_row(connection, "PRAGMA wal_checkpoint(PASSIVE)")
        except WRITE_ERRORS as problem:
            raise self._directory.translated(problem) from problem
        return log_pages, copied_pages

    # ---- disk space ----------------------------------------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        """Return how much may still be written to the file system. Raises `StorageFailed`."""
        try:
            return self._disk.free_bytes(self._directory.path)
        except OSError as problem:
            raise self._directory.translated(problem) from problem

    def hold_reserve(self) -> None:
        """Occupy the reserve; a disk that has no room for it is no error here."""
        self._slack_bytes = self._options.slack_bytes
        try:
            self._disk.reserve(self._directory.reserve, self._options.reserve_bytes)
        except OSError as problem:
            self._warn(f"cannot hold the disk reserve of {self._options.reserve_bytes} bytes: {problem.strerror or problem}")
            self.release_reserve()

    def release_reserve(self) -> None:
        """Give the reserve and all free pages back to the disk, so that snapshots and compaction have room to work. Raises `StorageFailed`."""
        self._slack_bytes = 0
        try:
            self._disk.remove(self._directory.reserve)
        except OSError as problem:
            raise self._directory.translated(problem) from problem

    def bytes_on_disk(self) -> int:
        """Return the size of the database, its write-ahead file, the reserve and the snapshots."""
        total = sum(record.size_bytes for record in self.snapshots)
        for path in (self._directory.database, self._directory.write_ahead, self._directory.reserve):
            if path.exists():
                total += path.stat().st_size
        return total

    # ---- closing -------------------------------------------------------------------------------------------------------------------

    def close(self, *, failed: bool = False) -> None:
        """Close all files. With *failed*, SQLite does not get to try another checkpoint: a failed write or flush is final."""
        guard: Connection | None = None
        try:
            if failed and self._writer is not None:
                # SQLite checkpoints when its last connection closes, but not when that one only reads.
                guard = self._disk.connect(self._directory.database, read_only=True)
                guard.execute("SELECT count(*) FROM snapshot").fetchall()
        except WRITE_ERRORS as problem:
            _log.warning("cannot read %s while closing it after a failure: %s", self._directory.database, problem)
        for opened in (self._reader, self._checkpointer, self._writer, guard):
            if opened is not None:
                try:
                    opened.close()
                except sqlite3.Error as problem:
                    _log.warning("cannot close %s: %s", self._directory.database, problem)
        self._checkpointer = self._writer = None

    def _write(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        assert self._writer is not None
        self._writer.execute(statement, parameters)

    def _warn(self, text: str) -> None:
        _log.warning("%s: %s", self._directory.path, text)
        if text not in self.warnings:
            self.warnings.append(text)


def _only_row(connection: Connection, statement: str) -> Row:
    (row,) = connection.execute(statement).fetchall()
    return row
