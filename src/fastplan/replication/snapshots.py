"""Snapshot files: `snap/INDEX-TERM.snap`, a checksum per chunk and one in total (replication.md 4).

Layout, little-endian: magic, cluster id (16 bytes), index and term (uint64); then chunks, each length and CRC-32 (uint32) and its bytes; then
an empty chunk whose CRC-32 is that of the whole payload, and the total size (uint64).
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fastplan.errors import Closed
from fastplan.replication.disk import FileSystem

TEMPORARY_SUFFIX = ".tmp"
_MAGIC = b"fpsnap01"
_HEADER = struct.Struct("<8s16sQQ")
_CHUNK = struct.Struct("<II")
_TOTAL = struct.Struct("<Q")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A row of the table `snapshot`: where the state at `index` is stored. `size_bytes` and `checksum` are those of the payload."""

    index: int
    term: int
    size_bytes: int
    checksum: int
    file: str


class BadSnapshot(Exception):
    """A snapshot file that is damaged, incomplete, or not the one that was recorded."""


def write_snapshot(
    disk: FileSystem, folder: Path, cluster_id: bytes, index: int, term: int, chunks: Iterable[bytes], *, cancelled: Callable[[], bool] = lambda: False
) -> SnapshotRecord:
    """Write a snapshot under a temporary name, flush it, give it its name and flush the folder. Only then may it be recorded.

    Raises `OSError`, what *chunks* raises, and `Closed` when *cancelled* says so; then no file is left behind unless the disk refuses to remove it.
    """
    name = f"{index:020d}-{term}.snap"
    temporary = folder / (name + TEMPORARY_SUFFIX)
    disk.remove(temporary)
    file = disk.open(temporary)
    try:
        file.write_at(0, _HEADER.pack(_MAGIC, cluster_id, index, term))
        offset = _HEADER.size
        size_bytes = 0
        checksum = 0
        for chunk in _recut(_unless(cancelled, chunks)):
            checksum = zlib.crc32(chunk, checksum)
            file.write_at(offset, _CHUNK.pack(len(chunk), zlib.crc32(chunk)) + chunk)
            offset += _CHUNK.size + len(chunk)
            size_bytes += len(chunk)
        file.write_at(offset, _CHUNK.pack(0, checksum) + _TOTAL.pack(size_bytes))
        file.sync()
    except BaseException:
        file.close()
        disk.remove(temporary)
        raise
    file.close()
    disk.rename(temporary, folder / name)
    disk.sync_directory(folder)
    return SnapshotRecord(index, term, size_bytes, checksum, name)


def verify_snapshot(folder: Path, cluster_id: bytes, record: SnapshotRecord) -> None:
    """Read a snapshot once and check everything. Raises `BadSnapshot`."""
    for _ in read_snapshot(folder, cluster_id, record):
        pass


def read_snapshot(folder: Path, cluster_id: bytes, record: SnapshotRecord) -> Iterator[bytes]:
    """Return the chunks of a snapshot's payload, each checked before it is handed out. Raises `BadSnapshot`."""
    path = folder / record.file
    try:
        with path.open("rb") as file:
            yield from _read_chunks(file.read, path, cluster_id, record)
            if file.read(1):
                raise BadSnapshot(f"{path}: bytes follow the end of the snapshot")
    except OSError as problem:
        raise BadSnapshot(f"{path}: {os.strerror(problem.errno) if problem.errno else problem}") from problem


def _read_chunks(read: Callable[[int], bytes], path: Path, cluster_id: bytes, record: SnapshotRecord) -> Iterator[bytes]:
    header = read(_HEADER.size)
    if header != _HEADER.pack(_MAGIC, cluster_id, record.index, record.term):
        raise BadSnapshot(f"{path}: the header is not that of the snapshot of cluster {cluster_id.hex()} at index {record.index}, term {record.term}")
    size_bytes = 0
    checksum = 0
    while True:
        head = read(_CHUNK.size)
        if len(head) < _CHUNK.size:
            raise BadSnapshot(f"{path}: the file ends at byte {_HEADER.size + size_bytes} of the payload")
        length, expected = _CHUNK.unpack(head)
        if length == 0:
            break
        chunk = read(length) if length <= _CHUNK_BYTES else b""
        if len(chunk) != length or zlib.crc32(chunk) != expected:
            raise BadSnapshot(f"{path}: the chunk at byte {size_bytes} of the payload is damaged")
        size_bytes += length
        checksum = zlib.crc32(chunk, checksum)
        yield chunk
    total = read(_TOTAL.size)
    if not (total == _TOTAL.pack(size_bytes) and expected == checksum == record.checksum and size_bytes == record.size_bytes):
        raise BadSnapshot(f"{path}: size or checksum differ from what was recorded")


def _unless(cancelled: Callable[[], bool], chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        if cancelled():
            raise Closed("the replicator stops; the snapshot is abandoned")
        yield chunk


def _recut(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut *chunks* anew, into pieces of `_CHUNK_BYTES`; only the last one is shorter, and none is empty."""
    waiting: list[bytes] = []
    waiting_bytes = 0
    for chunk in chunks:
        start = 0
        while waiting_bytes + len(chunk) - start >= _CHUNK_BYTES:
            end = start + _CHUNK_BYTES - waiting_bytes
            waiting.append(chunk[start:end])
            yield b"".join(waiting)
            waiting.clear()
            waiting_bytes = 0
            start = end
        if start < len(chunk):
            waiting.append(chunk[start:])
            waiting_bytes += len(chunk) - start
    if waiting:
        yield b"".join(waiting)
