"""Reading a log that is there: every check that opening it makes, and nothing that changes it (replication.md 4).

What `LogReader` refuses stays as it was, for whoever wants to look at it.
"""

from __future__ import annotations

import logging
import secrets
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from fastplan.errors import Corrupt, VersionUnsupported
from fastplan.replication.directory import READ_ERRORS, REBUILD, DataDirectory
from fastplan.replication.disk import Connection, FileSystem, Row
from fastplan.replication.packing import BadPayload, StoredEntry, chain_value, unpack
from fastplan.replication.snapshots import BadSnapshot, SnapshotRecord, verify_snapshot

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
_ROWS = "SELECT first_index, last_index, term, previous_chain, chain, payload FROM log ORDER BY first_index"


@dataclass(frozen=True, slots=True)
class Owner:
    """Whose log it is. `cluster_id` (16 bytes) is checked if given, drawn if the log is new."""

    node_id: str
    backend: str
    cluster_id: bytes | None


@dataclass(frozen=True, slots=True)
class VerifiedRow:
    """A row whose place, term and checksum are right."""

    first_index: int
    last_index: int
    term: int
    payload: bytes


def create_database(directory: DataDirectory, disk: FileSystem, owner: Owner) -> None:
    """Make the database of a new log, under another name first, so that `log.db` is always complete. Raises what the disk raises."""
    unfinished = directory.unfinished_database
    for path in directory.path.glob(f"{unfinished.name}*"):
        disk.remove(path)
    writer = disk.connect(unfinished)
    try:
        for pragma in (f"page_size={PAGE_BYTES}", "auto_vacuum=INCREMENTAL", "journal_mode=WAL", "synchronous=FULL", "fullfsync=ON"):
            writer.execute(f"PRAGMA {pragma}").fetchall()
        cluster_id = owner.cluster_id or secrets.token_bytes(16)
        meta = {"format_version": str(FORMAT_VERSION), "cluster_id": cluster_id.hex(), "node_id": owner.node_id, "backend": owner.backend}
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
    disk.rename(unfinished, directory.database)
    disk.sync_directory(directory.path)


class LogReader:
    """Reads a log through a connection that cannot write. The order of use is `open`, `best_snapshot`, `rows` to the end, `close`."""

    def __init__(self, directory: DataDirectory, disk: FileSystem, owner: Owner) -> None:
        self.cluster_id = b""
        self.first_index = 1
        self.last_index = 0
        self.last_term = 0
        self.last_chain = 0
        """Known once `rows` has come to its end."""
        self.snapshots: list[SnapshotRecord] = []
        """Newest first; `best_snapshot` takes out the invalid ones."""
        self.recorded_files: set[str] = set()
        self.warnings: list[str] = []
        self._directory = directory
        self._disk = disk
        self._owner = owner
        self._connection: Connection | None = None

    def open(self) -> None:
        """Check all that can be checked without reading the log whole. Raises `Corrupt`, `VersionUnsupported`, `StorageFailed`."""
        try:
            self._connection = self._disk.connect(self._directory.database, read_only=True)
            self._read_meta(self._connection)
            verdict = self._connection.execute("PRAGMA quick_check(1)").fetchall()
            if verdict != [("ok",)]:
                raise self._directory.corrupt(f"SQLite's own check says: {verdict[0][0] if verdict else 'nothing'}")
            self._read_bounds(self._connection)
            self._read_snapshots(self._connection)
            self._check_mark()
        except READ_ERRORS as problem:
            raise self._directory.translated(problem) from problem

    def close(self) -> None:
        """Close the connection. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _read_meta(self, reader: Connection) -> None:
        if _only_value(reader.execute("PRAGMA application_id").fetchone()) != APPLICATION_ID:
            raise self._directory.corrupt("this is not the database of a fastplan log")
        meta: dict[str, str] = dict(row for row in reader.execute("SELECT name, value FROM meta").fetchall())
        if not all(isinstance(text, str) for pair in meta.items() for text in pair):
            raise self._directory.corrupt("the table meta has values of other types")
        check = meta.pop("check", "")
        version = meta.get("format_version", "")
        if version.isdigit() and int(version) > FORMAT_VERSION:
            raise VersionUnsupported(f"log store {self._directory.path}", int(version), FORMAT_VERSION)
        if check != _meta_check(meta):
            raise self._directory.corrupt("the table meta is damaged")
        for name, wanted in (("node_id", self._owner.node_id), ("backend", self._owner.backend)):
            if meta[name] != wanted:
                raise self._directory.corrupt(f"the log has {name} {meta[name]!r}, this replica {wanted!r}")
        self.cluster_id = bytes.fromhex(meta["cluster_id"])
        if self._owner.cluster_id is not None and self._owner.cluster_id != self.cluster_id:
            raise self._directory.corrupt(f"the log belongs to cluster {meta['cluster_id']}, not to {self._owner.cluster_id.hex()}")

    def _read_bounds(self, reader: Connection) -> None:
        first = reader.execute("SELECT first_index FROM log ORDER BY first_index LIMIT 1").fetchone()
        last = reader.execute("SELECT last_index, term FROM log ORDER BY first_index DESC LIMIT 1").fetchone()
        if first is not None and last is not None:
            if not _are_numbers(*last):
                raise self._directory.corrupt("table log: the last row has values of other types", first[0])
            self.first_index = first[0]
            self.last_index, self.last_term = last

    def _read_snapshots(self, reader: Connection) -> None:
        statement = "SELECT snapshot_index, term, size_bytes, checksum, file FROM snapshot ORDER BY snapshot_index DESC"
        rows = reader.execute(statement).fetchall()
        if not all(_are_numbers(*row[:4]) and isinstance(row[4], str) for row in rows):
            raise self._directory.corrupt("table snapshot: a row has values of other types")
        self.snapshots = [SnapshotRecord(*row) for row in rows]
        self.recorded_files = {record.file for record in self.snapshots}
        if self.snapshots and self.snapshots[0].index > self.last_index:
            # Compaction always leaves the entries since the older snapshot.
            raise self._directory.corrupt(
                f"the table log ends at index {self.last_index}, before the snapshot of index {self.snapshots[0].index}", index=self.last_index + 1
            )

    def _check_mark(self) -> None:
        mark = self._directory.read_mark()
        if mark is None:
            if self.last_index:
                self._warn("the high-water mark is missing: it cannot be verified that no acknowledged entry at the end of the log is lost")
            return
        if mark.cluster_id != self.cluster_id:
            raise self._directory.corrupt(f"the log belongs to cluster {self.cluster_id.hex()}, the high-water mark beside it to {mark.cluster_id.hex()}")
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
            if self.first_index <= record.index + 1:
                return record
            reached = record.index
            break
        if self.first_index > 1:
            lost = reached + 1
            raise self._directory.corrupt(f"entries {lost} to {self.first_index - 1} are neither in the table log nor in a valid snapshot", lost)
        return None

    def rows(self) -> Iterator[VerifiedRow]:
        """Return all rows in order, each verified. Raises `Corrupt` and `StorageFailed`."""
        assert self._connection is not None
        try:
            yield from self._verified(self._connection)
        except READ_ERRORS as problem:
            raise self._directory.translated(problem) from problem

    def _verified(self, reader: Connection) -> Iterator[VerifiedRow]:
        index = self.first_index
        term = 0
        chain: int | None = None if index > 1 else 0
        for first_index, last_index, row_term, previous, row_chain, payload in reader.execute(_ROWS):
            if not (_are_numbers(last_index, row_term, previous, row_chain) and isinstance(payload, bytes)):
                raise self._directory.corrupt(f"table log: the row of index {first_index} has values of other types", first_index)
            if first_index != index or last_index < first_index:
                raise self._directory.corrupt(f"table log: entries {index} to {first_index - 1} are missing", index)
            if row_term < term:
                raise self._directory.corrupt(f"table log: the term falls from {term} to {row_term}", index)
            if (chain is not None and previous != chain) or chain_value(previous, first_index, last_index, row_term, payload) != row_chain:
                raise self._directory.corrupt(f"table log: the checksum of entries {first_index} to {last_index} does not match", index)
            yield VerifiedRow(first_index, last_index, row_term, payload)
            index, term, chain = last_index + 1, row_term, row_chain
        if index != self.last_index + 1:
            raise self._directory.corrupt(f"table log: entries {index} to {self.last_index} are missing", index)
        self.last_chain = chain or 0

    def unpacked(self, row: VerifiedRow) -> list[StoredEntry]:
        """Return the entries of a row. Raises `Corrupt`."""
        try:
            stored = unpack(row.payload)
        except BadPayload as problem:
            raise self._directory.corrupt(f"table log: {problem}", row.first_index) from problem
        if len(stored) != row.last_index - row.first_index + 1:
            raise self._directory.corrupt(
                f"table log: the row of index {row.first_index} holds {len(stored)} entries and ends at index {row.last_index}", row.first_index
            )
        return stored

    def _warn(self, text: str) -> None:
        _log.warning("%s: %s", self._directory.path, text)
        self.warnings.append(text)


def _meta_check(meta: dict[str, str]) -> str:
    return f"{zlib.crc32(repr(sorted(meta.items())).encode()):08x}"


def _are_numbers(*values: object) -> bool:
    """Return whether values that a healthy log stores as integers are integers that it can have stored."""
    return all(isinstance(value, int) and 0 <= value < 1 << 63 for value in values)


def _only_value(row: Row | None) -> object:
    return row[0] if row else None
