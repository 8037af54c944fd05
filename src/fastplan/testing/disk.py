"""A disk that remembers what was flushed, for crash tests of the log (replication.md 9, F1 and F4).

`SimulatedDisk` lies below SQLite as a VFS written in Python and below the other files of a log store. It writes through to a real directory and
records every operation, so that `crashes` can make what a power failure would have left at any moment: everything flushed, and any
subset of what was not. It can also be told to fail. Needs the package `apsw`.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastplan.replication.disk import Connection, Cursor, Disk, OpenFile, Row, SqlValue

try:
    import apsw
except ImportError as problem:
    raise ImportError("fastplan.testing.disk needs the package apsw: pip install apsw") from problem

WRITE = "write"
TRUNCATE = "truncate"
SYNC = "sync"
SYNC_FAILED = "sync-failed"
CREATE = "create"
REMOVE = "remove"
RENAME = "rename"
SYNC_DIRECTORY = "sync-directory"

_disk_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing done to the disk. `path` is relative to the root; `target` is the new name of a rename, `size` that of a truncation."""

    kind: str
    path: str
    offset: int = 0
    data: bytes = b""
    size: int = 0
    target: str = ""


@dataclass(frozen=True, slots=True)
class Crash:
    """What a power failure after `position` operations may leave: the content of each file by relative path."""

    position: int
    files: dict[str, bytes]

    def write_to(self, root: Path) -> None:
        """Lay the files out below *root*."""
        for name, content in self.files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


class SimulatedDisk:
    """A `FileSystem` that records, and fails on request. Close every connection before dropping it."""

    def __init__(self, root: Path) -> None:
        self.root = root.absolute()
        self.operations: list[Operation] = []
        self.free = 1 << 40
        self.failed_at: int | None = None
        """How many operations had been recorded when the first one failed."""
        self._real = Disk()
        self._lock = threading.Lock()
        self._fault: _Fault | None = None
        self._vfs = _RecordingVfs(self, f"fastplan-simulated-{next(_disk_numbers)}")

    def fail(self, kind: str, suffix: str, *, after: int = 0, error: int = errno.EIO) -> None:
        """Make every operation of *kind* on paths that end in *suffix* fail with *error*, after letting *after* of them through.

        A flush that fails loses what was to be flushed, as Linux does: it can still be read, but no later flush writes it.
        """
        self._fault = _Fault(kind, suffix, after, error)

    def heal(self) -> None:
        """Let operations succeed again."""
        self._fault = None

    def record(self, kind: str, path: str | Path, *, offset: int = 0, data: bytes = b"", size: int = 0, target: str | Path = "") -> None:
        """Note an operation that is about to happen, or raise the `OSError` that it shall end in."""
        relative = self._relative(path)
        if relative is None:
            return
        with self._lock:
            if self._fault is not None and self._fault.strikes(kind, relative):
                if self.failed_at is None:
                    self.failed_at = len(self.operations)
                if kind == SYNC:
                    self.operations.append(Operation(SYNC_FAILED, relative))
                raise OSError(self._fault.error, os.strerror(self._fault.error), str(path))
            self.operations.append(Operation(kind, relative, offset, bytes(data), size, (self._relative(target) or "") if target else ""))

    def _relative(self, path: str | Path) -> str | None:
        try:
            return str(Path(path).absolute().relative_to(self.root))
        except ValueError:
            return None

    # ---- FileSystem ----------------------------------------------------------------------------------------------------------------

    def connect(self, path: Path, *, read_only: bool = False) -> Connection:
        """See `FileSystem.connect`."""
        flags = apsw.SQLITE_OPEN_READONLY if read_only else apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        return _Connection(str(path), flags, self._vfs.name)

    def open(self, path: Path) -> OpenFile:
        """See `FileSystem.open`."""
        if not path.exists():
            self.record(CREATE, path)
        return _RecordedFile(self, path, self._real.open(path))

    def rename(self, source: Path, target: Path) -> None:
        """See `FileSystem.rename`."""
        self.record(RENAME, source, target=target)
        self._real.rename(source, target)

    def remove(self, path: Path) -> None:
        """See `FileSystem.remove`."""
        if path.exists():
            self.record(REMOVE, path)
            self._real.remove(path)

    def sync_directory(self, path: Path) -> None:
        """See `FileSystem.sync_directory`."""
        self.record(SYNC_DIRECTORY, path)

    def reserve(self, path: Path, size_bytes: int) -> None:
        """See `FileSystem.reserve`. Nothing is occupied: the disk of the simulation is as full as `free` says."""

    def extend(self, path: Path, size_bytes: int) -> None:
        """See `FileSystem.extend`."""
        size_now = path.stat().st_size
        if size_now < size_bytes:
            self.record(WRITE, path, offset=size_now, data=bytes(size_bytes - size_now))
            self._real.extend(path, size_bytes)
            self.record(SYNC, path)

    def free_bytes(self, path: Path) -> int:
        """See `FileSystem.free_bytes`."""
        return self.free

    # ---- crashes -------------------------------------------------------------------------------------------------------------------

    def crashes(self, rng: random.Random, *, subsets: int) -> Iterator[Crash]:
        """Return what power failures may leave, after every recorded operation.

        At each moment at most *subsets* choices of unflushed operations survive: all choices where there are so few, else none, all, and
        random ones. A write that survives may also be torn at a sector of 512 bytes. Equal images of one moment are returned once.
        """
        state = _DiskState()
        for position, operation in enumerate(self.operations, 1):
            state.do(operation)
            seen: set[int] = set()
            for kept in _choices(len(state.unflushed), rng, subsets):
                files = state.image(kept, rng)
                fingerprint = hash(frozenset(files.items()))
                if fingerprint not in seen:
                    seen.add(fingerprint)
                    yield Crash(position, files)


def _choices(count: int, rng: random.Random, limit: int) -> Iterator[Sequence[bool]]:
    if 2**count <= limit:
        yield from itertools.product((False, True), repeat=count)
        return
    yield (False,) * count
    yield (True,) * count
    for _ in range(limit - 2):
        share = rng.random()
        yield tuple(rng.random() < share for _ in range(count))


@dataclass(slots=True)
class _DiskState:
    """Files and names as they are on the platter, and what has been asked for since. A file keeps its number when it is renamed."""

    names: dict[str, int] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    current: dict[str, int] = field(default_factory=dict)
    unflushed: list[tuple[int, Operation]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def do(self, operation: Operation) -> None:
        if operation.kind == SYNC_DIRECTORY:
            self._flush(lambda number, done: done.kind in (CREATE, REMOVE, RENAME) and _folder(done.path) == operation.path)
            return
        number = self.current.get(operation.path)
        if number is None:
            number = self.current[operation.path] = next(self.numbers)
        if operation.kind == SYNC:
            # SQLite flushes the directory too when it first flushes a file that it made.
            self._flush(lambda other, done: other == number and done.kind in (WRITE, TRUNCATE, CREATE))
            return
        if operation.kind == SYNC_FAILED:
            self.unflushed = [(other, done) for other, done in self.unflushed if other != number or done.kind not in (WRITE, TRUNCATE)]
            return
        self.unflushed.append((number, operation))
        if operation.kind == REMOVE:
            del self.current[operation.path]
        elif operation.kind == RENAME:
            self.current[operation.target] = self.current.pop(operation.path)

    def _flush(self, reached: Callable[[int, Operation], bool]) -> None:
        rest = []
        for number, operation in self.unflushed:
            if reached(number, operation):
                _perform(self.names, self.contents, number, operation)
            else:
                rest.append((number, operation))
        self.unflushed = rest

    def image(self, kept: Sequence[bool], rng: random.Random) -> dict[str, bytes]:
        names = dict(self.names)
        contents = dict(self.contents)
        for keep, (number, operation) in zip(kept, self.unflushed, strict=True):
            if keep:
                torn = operation.kind == WRITE and len(operation.data) > 512 and rng.random() < 0.1
                sectors = rng.randrange(len(operation.data) // 512) + 1 if torn else 0
                done = Operation(WRITE, operation.path, operation.offset, operation.data[: sectors * 512]) if torn else operation
                _perform(names, contents, number, done)
        return {name: contents.get(number, b"") for name, number in names.items()}


def _folder(path: str) -> str:
    return os.path.dirname(path) or "."


def _perform(names: dict[str, int], contents: dict[int, bytes], number: int, operation: Operation) -> None:
    if operation.kind == WRITE:
        content = contents.get(number, b"").ljust(operation.offset, b"\0")
        contents[number] = content[: operation.offset] + operation.data + content[operation.offset + len(operation.data) :]
    elif operation.kind == TRUNCATE:
        contents[number] = contents.get(number, b"")[: operation.size].ljust(operation.size, b"\0")
    elif operation.kind == CREATE:
        names[operation.path] = number
    elif operation.kind == REMOVE:
        if names.get(operation.path) == number:
            del names[operation.path]
    elif operation.kind == RENAME:
        if names.get(operation.path) == number:
            del names[operation.path]
        names[operation.target] = number


@dataclass(slots=True)
class _Fault:
    kind: str
    suffix: str
    after: int
    error: int

    def strikes(self, kind: str, path: str) -> bool:
        if kind != self.kind or not path.endswith(self.suffix):
            return False
        self.after -= 1
        return self.after < 0


class _RecordedFile:
    """An `OpenFile` that tells its disk first."""

    def __init__(self, disk: SimulatedDisk, path: Path, file: OpenFile) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def write_at(self, offset: int, data: bytes) -> None:
        self._disk.record(WRITE, self._path, offset=offset, data=data)
        self._file.write_at(offset, data)

    def sync(self) -> None:
        self._disk.record(SYNC, self._path)

    def close(self) -> None:
        self._file.close()


class _RecordingVfs(apsw.VFS):
    """SQLite's own VFS with a recorder in front."""

    def __init__(self, disk: SimulatedDisk, name: str) -> None:
        self.name = name
        self._disk = disk
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is not None and flags[0] & apsw.SQLITE_OPEN_CREATE and not os.path.exists(path):
            self._disk.record(CREATE, path)
        return _RecordingVfsFile(self._disk, path or "", name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._disk.record(REMOVE, filename)
        super().xDelete(filename, syncdir)
        if syncdir:
            self._disk.record(SYNC_DIRECTORY, os.path.dirname(filename))


class _RecordingVfsFile(apsw.VFSFile):
    """One file of SQLite with a recorder in front."""

    def __init__(self, disk: SimulatedDisk, path: str, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._path = path
        super().__init__("", name, flags)

    def _record(self, kind: str, offset: int = 0, data: bytes = b"", size: int = 0) -> None:
        try:
            self._disk.record(kind, self._path, offset=offset, data=data, size=size)
        except OSError as problem:
            raise (apsw.FullError if problem.errno == errno.ENOSPC else apsw.IOError)(str(problem)) from problem

    def xWrite(self, data: bytes, offset: int) -> None:
        self._record(WRITE, offset, data)
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        self._record(TRUNCATE, size=newsize)
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        self._record(SYNC)


class _Rows:
    """The rows of a statement, read to the end."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows = iter(rows)

    def fetchone(self) -> Row | None:
        return next(self._rows, None)

    def fetchall(self) -> list[Row]:
        return list(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return self._rows


class _Connection:
    """An apsw connection that looks like one of the standard library, errors included."""

    def __init__(self, path: str, flags: int, vfs: str) -> None:
        self._read_only = bool(flags & apsw.SQLITE_OPEN_READONLY)
        try:
            self._connection = apsw.Connection(path, flags=flags, vfs=vfs)
        except apsw.Error as problem:
            raise _translated(problem) from problem

    def execute(self, statement: str, parameters: Sequence[SqlValue] = (), /) -> Cursor:
        try:
            return _Rows(list(self._connection.execute(statement, tuple(parameters))))
        except apsw.Error as problem:
            raise _translated(problem) from problem

    def close(self) -> None:
        try:
            self._connection.close()
        except apsw.Error as problem:
            # Closing, SQLite tries to lock the database alone and takes a refusal for an answer; a file that is open for reading
            # refuses, and apsw reports that although the connection is closed.
            if not self._read_only:
                raise _translated(problem) from problem


def _translated(problem: apsw.Error) -> sqlite3.Error:
    # An error that the VFS raised has no result code of its own.
    raised = {apsw.FullError: apsw.SQLITE_FULL, apsw.IOError: apsw.SQLITE_IOERR}.get(type(problem), apsw.SQLITE_ERROR)
    error = sqlite3.OperationalError(str(problem))
    error.sqlite_errorcode = getattr(problem, "extendedresult", 0) or raised
    return error
