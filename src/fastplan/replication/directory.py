"""The data directory of a replica: its files, its lock, and the high-water mark (replication.md 4)."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sqlite3
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path

from fastplan.errors import Corrupt, DirectoryInUse, InvalidInput, ReplicationError, StorageFailed
from fastplan.replication.disk import FileSystem, OpenFile

REBUILD = "to rebuild this replica, move the directory away and restore it from another replica or from a backup"
WRITE_ERRORS = (sqlite3.Error, OSError)
# A damaged name may also stand in a message of SQLite, which Python then cannot decode.
READ_ERRORS = (*WRITE_ERRORS, UnicodeDecodeError)
_MAGIC = b"fphigh01"
_MARK = struct.Struct("<8s16sQ")
_CHECK = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Mark:
    """The last index that was acknowledged, and by which cluster."""

    cluster_id: bytes
    index: int


class DataDirectory:
    """A directory that this process holds alone from `acquire` to `release`.

    Mode 0700. `acquire` raises `DirectoryInUse`, `Corrupt` for a directory that is not empty and not ours or has lost its database,
    `StorageFailed` where the system refuses, and `InvalidInput` where the path is no directory.
    """

    def __init__(self, path: Path, disk: FileSystem) -> None:
        self.path = path
        self.database = path / "log.db"
        self.unfinished_database = path / "log.db.new"
        self.write_ahead = path / "log.db-wal"
        self.snapshots = path / "snap"
        self.reserve = path / "reserve"
        self._high_water = path / "high-water"
        self._lock = path / "lock"
        self._disk = disk
        self._lock_descriptor: int | None = None
        self._mark_file: OpenFile | None = None

    def acquire(self) -> None:
        """Create the directory if need be, check that it is ours, and lock it."""
        try:
            new = not self.path.exists()
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            if new:
                self._disk.sync_directory(self.path.parent)
            self._refuse_foreign()
            self._take_lock()
            self.path.chmod(0o700)
            self.snapshots.mkdir(mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as problem:
            self.release()
            raise InvalidInput("directory", str(self.path), "a directory") from problem
        except OSError as problem:
            self.release()
            raise StorageFailed(f"cannot use the data directory {self.path}: {problem.strerror or problem}") from problem
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back. Idempotent."""
        if self._mark_file is not None:
            self._mark_file.close()
            self._mark_file = None
        if self._lock_descriptor is not None:
            os.close(self._lock_descriptor)
            self._lock_descriptor = None

    def corrupt(self, text: str, index: int | None = None) -> Corrupt:
        """Return the error for damage in the database."""
        return Corrupt(f"{self.database}: {text}; {REBUILD}", file=str(self.database), index=index)

    def translated(self, problem: sqlite3.Error | OSError | UnicodeDecodeError) -> ReplicationError:
        """Return the error of the documented tree for one of `READ_ERRORS`."""
        if isinstance(problem, UnicodeDecodeError):
            return self.corrupt("its text is damaged")
        if isinstance(problem, OSError):
            return StorageFailed(f"{problem.filename or self.path}: {problem.strerror or problem}")
        primary = (getattr(problem, "sqlite_errorcode", None) or 0) & 0xFF
        # A statement of ours that SQLite does not understand means that the schema is not ours.
        if primary in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR):
            return self.corrupt(f"SQLite says: {problem}")
        return StorageFailed(f"{self.database}: {problem}")

    def is_new(self) -> bool:
        """Return whether nothing was ever acknowledged here. Raises `Corrupt` when a log was here and its database is gone."""
        if self.database.exists():
            if self.database.stat().st_size == 0:
                # SQLite would take it for a new one and delete the write-ahead file beside it.
                raise Corrupt(f"{self.database} is empty; {REBUILD}", file=str(self.database), offset=0)
            return False
        left = [path.name for path in (self._high_water, *self.snapshots.glob("*.snap")) if path.exists()]
        if left:
            raise Corrupt(f"{self.database} is missing, but {left[0]} shows that a log was here; {REBUILD}", file=str(self.database), offset=0)
        return True

    def read_mark(self) -> Mark | None:
        """Return the high-water mark, or None when it is missing or unreadable."""
        try:
            stored = self._high_water.read_bytes()
        except FileNotFoundError:
            return None
        body = stored[: _MARK.size]
        if len(stored) != _MARK.size + _CHECK.size or stored[_MARK.size :] != _CHECK.pack(zlib.crc32(body)):
            return None
        magic, cluster_id, index = _MARK.unpack(body)
        return Mark(cluster_id, index) if magic == _MAGIC else None

    def open_mark(self, mark: Mark) -> None:
        """Create the high-water mark, or renew it, and flush it this once: from now on its absence means something."""
        self._mark_file = self._disk.open(self._high_water)
        self.write_mark(mark)
        self._mark_file.sync()
        self._disk.sync_directory(self.path)

    def write_mark(self, mark: Mark) -> None:
        """Note that everything up to the mark may be acknowledged. Not flushed: it guards against loss that the database itself cannot see."""
        assert self._mark_file is not None
        body = _MARK.pack(_MAGIC, mark.cluster_id, mark.index)
        self._mark_file.write_at(0, body + _CHECK.pack(zlib.crc32(body)))

    def _refuse_foreign(self) -> None:
        names = {path.name for path in self.path.iterdir()}
        if self.database.name in names:
            return
        ours = {path.name for path in (self._lock, self.reserve, self.snapshots, self._high_water)}
        foreign = sorted(name for name in names - ours - {"lost+found"} if not name.startswith("log.db"))
        if foreign:
            raise Corrupt(f"{self.path} is not a fastplan data directory: it holds {foreign[0]} and no {self.database.name}", file=str(self.path / foreign[0]))

    def _take_lock(self) -> None:
        # flock belongs to the open file, so a second replicator in the same process is refused as well.
        descriptor = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as problem:
            holder = ""
            with contextlib.suppress(OSError):
                holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DirectoryInUse(f"{self.path} is held by process {holder or 'unknown'}") from problem
        self._lock_descriptor = descriptor
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode("ascii"), 0)
