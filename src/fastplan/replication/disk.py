"""The disk as the log store sees it: SQLite connections and a few file operations, so that tests can put a simulated one below it.

`Disk` is the real one. Every error is an `OSError` or a `sqlite3.Error`.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

SqlValue = int | str | bytes | None
Row = tuple[Any, ...]


class Cursor(Protocol):
    """The rows of one statement."""

    def fetchone(self) -> Row | None:
        """Return the next row."""
        ...

    def fetchall(self) -> list[Row]:
        """Return the remaining rows."""
        ...

    def __iter__(self) -> Iterator[Row]: ...


class Connection(Protocol):
    """An SQLite connection in autocommit mode, used by one thread at a time. Errors are `sqlite3.Error` with `sqlite_errorcode`."""

    def execute(self, statement: str, parameters: Sequence[SqlValue] = (), /) -> Cursor:
        """Run one statement."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


class OpenFile(Protocol):
    """A file open for writing."""

    def write_at(self, offset: int, data: bytes) -> None:
        """Write all of *data* at *offset*; durable only after `sync`."""
        ...

    def sync(self) -> None:
        """Flush what was written to the disk."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class FileSystem(Protocol):
    """What the log store asks of a disk. Reading goes straight to the files."""

    def connect(self, path: Path, *, read_only: bool = False) -> Connection:
        """Open the database at *path*; `read_only` never changes its files."""
        ...

    def open(self, path: Path) -> OpenFile:
        """Open *path* for writing, creating it with mode 0600 if it is missing."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Replace *target* by *source*; durable after `sync_directory`."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Flush the names in a directory."""
        ...

    def reserve(self, path: Path, size_bytes: int) -> None:
        """Make *path* a file that occupies *size_bytes*. Nothing is ever read from it."""
        ...

    def extend(self, path: Path, size_bytes: int) -> None:
        """Write zeros behind the end of *path* up to *size_bytes*, and flush them, so that later writes need no new blocks."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Return how much this process may still write to the file system of *path*."""
        ...


# On macOS fsync does not reach the platter.
_FULL_FLUSH: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def _flush_data(descriptor: int) -> None:
    if _FULL_FLUSH is not None:
        fcntl.fcntl(descriptor, _FULL_FLUSH)
    else:
        os.fdatasync(descriptor)


class _File:
    """A file descriptor with positioned writes."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def write_at(self, offset: int, data: bytes) -> None:
        written = os.pwrite(self._descriptor, data, offset)
        while written < len(data):
            written += os.pwrite(self._descriptor, data[written:], offset + written)

    def sync(self) -> None:
        _flush_data(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class Disk:
    """The disk of the machine."""

    def connect(self, path: Path, *, read_only: bool = False) -> Connection:
        """See `FileSystem.connect`."""
        mode = "ro" if read_only else "rwc"
        # The log store hands a connection from thread to thread, never two at a time.
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode={mode}", uri=True, isolation_level=None, check_same_thread=False)

    def open(self, path: Path) -> OpenFile:
        """See `FileSystem.open`."""
        return _File(path)

    def rename(self, source: Path, target: Path) -> None:
        """See `FileSystem.rename`."""
        os.replace(source, target)

    def remove(self, path: Path) -> None:
        """See `FileSystem.remove`."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """See `FileSystem.sync_directory`."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def reserve(self, path: Path, size_bytes: int) -> None:
        """See `FileSystem.reserve`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            if hasattr(os, "posix_fallocate") and size_bytes:
                os.posix_fallocate(descriptor, 0, size_bytes)
            else:
                _write_zeros(descriptor, 0, size_bytes)
            os.ftruncate(descriptor, size_bytes)
        finally:
            os.close(descriptor)

    def extend(self, path: Path, size_bytes: int) -> None:
        """See `FileSystem.extend`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            size_now = os.fstat(descriptor).st_size
            if size_now < size_bytes:
                _write_zeros(descriptor, size_now, size_bytes)
                _flush_data(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: Path) -> int:
        """See `FileSystem.free_bytes`."""
        space = os.statvfs(path)
        return space.f_bavail * space.f_frsize


def _write_zeros(descriptor: int, start: int, end: int) -> None:
    zeros = bytes(1 << 20)
    while start < end:
        start += os.pwrite(descriptor, zeros[: end - start], start)
