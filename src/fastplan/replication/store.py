"""The durable log on SQLite: one row per batch, one flush per row (replication.md 4).

A `LogStore` is used by one thread at a time; `checkpoint` alone may run beside the others. The order of use is `open`, `replay` to its end,
`begin`, then `append` and the rest, then `close`. `open` and `replay` change no file of an existing log, so a log that is refused stays as it was.
"""

from __future__ import annotations

import collections
import logging
import secrets
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fastplan.errors import Corrupt, ReplicationError, StorageFailed, VersionUnsupported
from fastplan.replication.contract import LogItem
from fastplan.replication.directory import REBUILD, DataDirectory, Mark
from fastplan.replication.disk import Connection, FileSystem, Row, SqlValue
from fastplan.replication.packing import ENTRY, BadPayload, chain_value, pack, unpack
from fastplan.replication.snapshots import TEMPORARY_SUFFIX, BadSnapshot, SnapshotRecord, verify_snapshot

FORMAT_VERSION = 1
APPLICATION_ID = 0x66706C67
PAGE_BYTES = 4096

_log = logging.getLogger("fastplan.replication")

_SCHEMA = (
    "CREATE TABLE meta(name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE log(first_index INTEGER PRIMARY KEY, last_index INTEGER NOT NULL, term INTEGER NOT NULL,"
    " previous_chain INTEGER NOT NULL, chain INTEGER NOT NULL, payload BLOB NOT NULL)",
    "CREATE TABLE snapshot(snapshot_index INTEGER PRIMARY KEY, term INTEGER NOT NULL, size_bytes INTEGER NOT NULL,"
    " checksum INTEGER NOT NULL, file TEXT NOT NULL)",
)
_INSERT = "INSERT INTO log VALUES (?, ?, ?, ?, ?, ?)"
_ROWS = "SELECT first_index, last_index, term, previous_chain, chain, payload FROM log ORDER BY first_index"

_REPLAY_ENTRIES = 16_384
_REPLAY_BYTES = 4 << 20
_COMPACT_STEP_BYTES = 2 << 20
_COMPACT_STEP_ROWS = 256
_VACUUM_STEP_PAGES = 256
_MARKS_KEPT = 256
# A damaged name may also stand in a message of SQLite, which Python then cannot decode.
_READ_ERRORS = (sqlite3.Error, OSError, UnicodeDecodeError)
_ROW_PAGES = 4
"""Pages that a row changes besides those full of payload: page 1, the leaf, the last partial page, the pointer map."""


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What a log store is for and how much it keeps. `cluster_id` (16 bytes) is checked if given, drawn if the log is new."""

    node_id: str
    backend: str
    cluster_id: bytes | None
    keep_entries: int
    keep_bytes: int
    wal_bytes: int
    reserve_bytes: int
    slack_bytes: int


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
        self._first_index = 1
        self._chain = 0
        self._reader: Connection | None = None
        self._writer: Connection | None = None
        self._checkpointer: Connection | None = None
        self._wal_pages = 0
        self._recorded_files: set[str] = set()
        self._checkpoint_pages = options.wal_bytes // PAGE_BYTES
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
                self._create()
            self._open_reader()
        except _READ_ERRORS as problem:
            raise self._translated(problem) from problem

    def _open_reader(self) -> None:
        self._reader = self._disk.connect(self._directory.database, read_only=True)
        self._read_meta(self._reader)
        verdict = self._reader.execute("PRAGMA quick_check(1)").fetchall()
        if verdict != [("ok",)]:
            raise self._corrupt(f"SQLite's own check says: {verdict[0][0] if verdict else 'nothing'}", index=None)
        self._read_bounds(self._reader)
        self._read_snapshots(self._reader)
        self._check_mark()

    def _create(self) -> None:
        """Make the database under another name and rename it, so that `log.db` is always complete."""
        unfinished = self._directory.unfinished_database
        for path in self._directory.path.glob(f"{unfinished.name}*"):
            self._disk.remove(path)
        writer = self._disk.connect(unfinished)
        try:
            for pragma in (f"page_size={PAGE_BYTES}", "auto_vacuum=INCREMENTAL", "journal_mode=WAL", "synchronous=FULL", "fullfsync=ON"):
                writer.execute(f"PRAGMA {pragma}").fetchall()
            cluster_id = self._options.cluster_id or secrets.token_bytes(16)
            meta = {
                "format_version": str(FORMAT_VERSION),
                "cluster_id": cluster_id.hex(),
                "node_id": self._options.node_id,
                "backend": self._options.backend,
            }
            meta["check"] = _meta_check(meta)
            writer.execute("BEGIN IMMEDIATE")
            writer.execute(f"PRAGMA application_id={APPLICATION_ID}")
            for statement in _SCHEMA:
                writer.execute(statement)
            for name, value in meta.items():
                writer.execute("INSERT INTO meta VALUES (?, ?)", (name, value))
            writer.execute("COMMIT")
        finally:
            writer.close()
        self._disk.rename(unfinished, self._directory.database)
        self._disk.sync_directory(self._directory.path)

    def _read_meta(self, reader: Connection) -> None:
        if _only_value(reader.execute("PRAGMA application_id").fetchone()) != APPLICATION_ID:
            raise self._corrupt("this is not the database of a fastplan log", index=None)
        meta: dict[str, str] = dict(row for row in reader.execute("SELECT name, value FROM meta").fetchall())
        if not all(isinstance(text, str) for pair in meta.items() for text in pair):
            raise self._corrupt("the table meta has values of other types", index=None)
        check = meta.pop("check", "")
        version = meta.get("format_version", "")
        if version.isdigit() and int(version) > FORMAT_VERSION:
            raise VersionUnsupported(f"log store {self._directory.path}", int(version), FORMAT_VERSION)
        if check != _meta_check(meta):
            raise self._corrupt("the table meta is damaged", index=None)
        for name, wanted in (("node_id", self._options.node_id), ("backend", self._options.backend)):
            if meta[name] != wanted:
                raise self._corrupt(f"the log has {name} {meta[name]!r}, this replica {wanted!r}", index=None)
        self.cluster_id = bytes.fromhex(meta["cluster_id"])
        if self._options.cluster_id is not None and self._options.cluster_id != self.cluster_id:
            raise self._corrupt(f"the log belongs to cluster {meta['cluster_id']}, not to {self._options.cluster_id.hex()}", index=None)

    def _read_bounds(self, reader: Connection) -> None:
        first = reader.execute("SELECT first_index FROM log ORDER BY first_index LIMIT 1").fetchone()
        last = reader.execute("SELECT last_index, term FROM log ORDER BY first_index DESC LIMIT 1").fetchone()
        if first is not None and last is not None:
            if not _are_numbers(*last):
                raise self._corrupt("table log: the last row has values of other types", index=first[0])
            self._first_index = first[0]
            self.last_index, self.last_term = last

    def _read_snapshots(self, reader: Connection) -> None:
        statement = "SELECT snapshot_index, term, size_bytes, checksum, file FROM snapshot ORDER BY snapshot_index DESC"
        rows = reader.execute(statement).fetchall()
        if not all(_are_numbers(*row[:4]) and isinstance(row[4], str) for row in rows):
            raise self._corrupt("table snapshot: a row has values of other types", index=None)
        self.snapshots = [SnapshotRecord(*row) for row in rows]
        self._recorded_files = {record.file for record in self.snapshots}
        if self.snapshots and self.snapshots[0].index > self.last_index:
            # Compaction always leaves the entries since the older snapshot.
            raise self._corrupt(
                f"the table log ends at index {self.last_index}, before the snapshot of index {self.snapshots[0].index}", index=self.last_index + 1
            )

    def _check_mark(self) -> None:
        mark = self._directory.read_mark()
        if mark is None:
            if self.last_index:
                self._warn("the high-water mark is missing: it cannot be verified that no acknowledged entry at the end of the log is lost")
            return
        if mark.cluster_id != self.cluster_id:
            raise self._corrupt(f"the log belongs to cluster {self.cluster_id.hex()}, the high-water mark beside it to {mark.cluster_id.hex()}", index=None)
        if mark.index > self.last_index:
            lost = self.last_index + 1
            raise Corrupt(
                f"{self._directory.write_ahead}: entries {lost} to {mark.index} were acknowledged and cannot be read any more: the file is damaged, cut short"
                f" or lost; {REBUILD}",
                file=str(self._directory.write_ahead),
                index=lost,
            )

    def best_snapshot(self) -> SnapshotRecord | None:
        """Return the newest valid snapshot from which the log goes on; None when the log begins at index 1 and there is none.

        Warns about each invalid one. Raises `Corrupt` when neither is at hand.
        """
        reached = 0
        while self.snapshots:
            record = self.snapshots[0]
            try:
                verify_snapshot(self._directory.snapshots, self.cluster_id, record)
            except BadSnapshot as problem:
                self._warn(f"the snapshot of index {record.index} cannot be used, falling back to the one before: {problem}")
                del self.snapshots[0]
                continue
            if self._first_index <= record.index + 1:
                return record
            reached = record.index
            break
        if self._first_index > 1:
            lost = reached + 1
            raise self._corrupt(f"entries {lost} to {self._first_index - 1} are neither in the table log nor in a valid snapshot", index=lost)
        return None

    def replay(self, after: int) -> Iterator[ReplayChunk]:
        """Verify the whole log and return what lies behind index *after*, in order. Raises `Corrupt` and `StorageFailed`."""
        assert self._reader is not None
        items: list[LogItem] = []
        size_bytes = 0
        try:
            for row in self._verified_rows(self._reader):
                first_index, last_index, term, payload = row
                if last_index <= after:
                    continue
                index = first_index
                for kind, key, entry in self._unpacked(first_index, last_index, payload):
                    if kind == ENTRY and index > after:
                        items.append((index, term, entry, key))
                    index += 1
                size_bytes += len(payload)
                if len(items) >= _REPLAY_ENTRIES or size_bytes >= _REPLAY_BYTES:
                    yield ReplayChunk(items, last_index, size_bytes)
                    items, size_bytes = [], 0
        except _READ_ERRORS as problem:
            raise self._translated(problem) from problem
        if size_bytes:
            yield ReplayChunk(items, self.last_index, size_bytes)

    def _verified_rows(self, reader: Connection) -> Iterator[tuple[int, int, int, bytes]]:
        index = self._first_index
        term = 0
        chain: int | None = None if index > 1 else 0
        for first_index, last_index, row_term, previous, row_chain, payload in reader.execute(_ROWS):
            if not (_are_numbers(last_index, row_term, previous, row_chain) and isinstance(payload, bytes)):
                raise self._corrupt(f"table log: the row of index {first_index} has values of other types", index=first_index)
            if first_index != index or last_index < first_index:
                raise self._corrupt(f"table log: entries {index} to {first_index - 1} are missing", index=index)
            if row_term < term:
                raise self._corrupt(f"table log: the term falls from {term} to {row_term}", index=index)
            if (chain is not None and previous != chain) or chain_value(previous, first_index, last_index, row_term, payload) != row_chain:
                raise self._corrupt(f"table log: the checksum of entries {first_index} to {last_index} does not match", index=index)
            yield first_index, last_index, row_term, payload
            self._account(last_index, len(payload))
            index, term, chain = last_index + 1, row_term, row_chain
        if index != self.last_index + 1:
            raise self._corrupt(f"table log: entries {index} to {self.last_index} are missing", index=index)
        self._chain = chain or 0

    def _unpacked(self, first_index: int, last_index: int, payload: bytes) -> list[tuple[int, bytes, bytes]]:
        try:
            stored = unpack(payload)
        except BadPayload as problem:
            raise self._corrupt(f"table log: {problem}", index=first_index) from problem
        if len(stored) != last_index - first_index + 1:
            raise self._corrupt(f"table log: the row holds {len(stored)} entries and names {last_index - first_index + 1}", index=first_index)
        return stored

    def begin(self) -> None:
        """Make what was read durable beyond doubt and get ready to append. Raises `StorageFailed`."""
        assert self._reader is not None
        try:
            self._reader.close()
            self._reader = None
            self._remove_leftovers()
            self._writer = self._connect_writer()
            # A flush that failed in an earlier run may have left pages that only the system's cache holds. Copying them into the database
            # and flushing that makes sure of them before anything is acknowledged on top.
            busy, _, _ = self._row(self._writer, "PRAGMA wal_checkpoint(TRUNCATE)")
            if busy:
                raise StorageFailed(f"another program reads {self._directory.database} and keeps its write-ahead file from being checkpointed")
            self._checkpointer = self._connect_writer()
            # The first read opens the write-ahead file, which is then extended.
            self._row(self._checkpointer, "SELECT count(*) FROM snapshot")
            self._disk.extend(self._directory.write_ahead, self._options.wal_bytes)
            self._directory.open_mark(Mark(self.cluster_id, self.last_index))
        except (sqlite3.Error, OSError) as problem:
            raise self._translated(problem) from problem

    def _connect_writer(self) -> Connection:
        writer = self._disk.connect(self._directory.database)
        for pragma in ("synchronous=FULL", "fullfsync=ON", "checkpoint_fullfsync=ON", "wal_autocheckpoint=0", "secure_delete=OFF", "cache_size=-16384"):
            writer.execute(f"PRAGMA {pragma}").fetchall()
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
        except (sqlite3.Error, OSError) as problem:
            raise self._translated(problem) from problem
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
        except (sqlite3.Error, OSError) as problem:
            raise self._translated(problem) from problem
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
        except (sqlite3.Error, OSError) as problem:
            raise self._translated(problem) from problem

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
        self._first_index = delete_to + 1
        return True

    def _vacuum(self, writer: Connection) -> bool:
        # What the log will fill again soon stays allocated.
        (free_pages,) = self._row(writer, "PRAGMA freelist_count")
        if free_pages * PAGE_BYTES <= self._slack_bytes:
            return False
        writer.execute(f"PRAGMA incremental_vacuum({_VACUUM_STEP_PAGES})").fetchall()
        self.syncs += 1
        self._wal_pages += _ROW_PAGES + 2 * _VACUUM_STEP_PAGES
        return True

    # ---- checkpoints ---------------------------------------------------------------------------------------------------------------

    def checkpoint_due(self) -> bool:
        """Return whether the write-ahead file holds as much as it should."""
        return self._wal_pages >= self._checkpoint_pages

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
        self._checkpoint_pages = max(self._options.wal_bytes // PAGE_BYTES, 2 * self._wal_pages)

    def _checkpoint(self, connection: Connection) -> tuple[int, int]:
        try:
            _, log_pages, copied_pages = self._row(connection, "PRAGMA wal_checkpoint(PASSIVE)")
        except (sqlite3.Error, OSError) as problem:
            raise self._translated(problem) from problem
        return log_pages, copied_pages

    # ---- disk space ----------------------------------------------------------------------------------------------------------------

    def free_bytes(self) -> int:
        """Return how much may still be written to the file system. Raises `StorageFailed`."""
        try:
            return self._disk.free_bytes(self._directory.path)
        except OSError as problem:
            raise self._translated(problem) from problem

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
            raise self._translated(problem) from problem

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
        except (sqlite3.Error, OSError) as problem:
            _log.warning("cannot read %s while closing it after a failure: %s", self._directory.database, problem)
        for connection in (self._reader, self._checkpointer, self._writer, guard):
            if connection is not None:
                try:
                    connection.close()
                except sqlite3.Error as problem:
                    _log.warning("cannot close %s: %s", self._directory.database, problem)
        self._reader = self._checkpointer = self._writer = None

    # ---- helpers -------------------------------------------------------------------------------------------------------------------

    def _write(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        assert self._writer is not None
        self._writer.execute(statement, parameters)

    def _row(self, connection: Connection, statement: str) -> Row:
        (row,) = connection.execute(statement).fetchall()
        return row

    def _warn(self, text: str) -> None:
        _log.warning("%s: %s", self._directory.path, text)
        self.warnings.append(text)

    def _corrupt(self, text: str, *, index: int | None) -> Corrupt:
        return Corrupt(f"{self._directory.database}: {text}; {REBUILD}", file=str(self._directory.database), index=index)

    def _translated(self, problem: sqlite3.Error | OSError | UnicodeDecodeError) -> ReplicationError:
        if isinstance(problem, UnicodeDecodeError):
            return self._corrupt("its text is damaged", index=None)
        if isinstance(problem, OSError):
            return StorageFailed(f"{problem.filename or self._directory.path}: {problem.strerror or problem}")
        primary = (getattr(problem, "sqlite_errorcode", None) or 0) & 0xFF
        # A statement of ours that SQLite does not understand means that the schema is not ours.
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return self._corrupt(f"SQLite says: {problem}", index=None)
        return StorageFailed(f"{self._directory.database}: {problem}")


def _meta_check(meta: dict[str, str]) -> str:
    return f"{zlib.crc32(repr(sorted(meta.items())).encode()):08x}"


def _are_numbers(*values: object) -> bool:
    """Return whether values that a healthy log stores as integers are integers that it can have stored."""
    return all(isinstance(value, int) and 0 <= value < 1 << 63 for value in values)


def _only_value(row: Row | None) -> object:
    return row[0] if row else None
