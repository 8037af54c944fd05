"""Snapshots of the state machine: a head with what the store does not hold, then the store.

A snapshot is a sequence of frames, each with its length before it, so that chunks may be cut anywhere.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from fastplan.errors import CodecError, VersionUnsupported
from fastplan.fsm.keys import RecentKeys
from fastplan.fsm.results import Repeated
from fastplan.state import StateSnapshot, StateStore

VERSION: Final = 1
MAGIC: Final = b"fastplan-state"

_length: Final = struct.Struct("<I")

KeyItem = tuple[bytes, int, int | tuple[int, str | None, list[str], int]]


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What the state machine knows beside the store: the applied index, recent keys, and refused plans."""

    magic: bytes
    version: int
    applied: int
    keys: list[KeyItem]
    refused: list[tuple[int, list[str]]]


class _Version(msgspec.Struct, frozen=True, array_like=True):
    """The part of a head that every version has."""

    magic: bytes
    version: int


def head_of(applied: int, keys: RecentKeys, refused: Iterable[tuple[int, frozenset[str]]]) -> Head:
    """Return the head of a snapshot."""
    items: list[KeyItem] = [
        (key, time_ns, result if isinstance(result, int) else (result.first_index, result.refused, list(result.rejected_nodes), result.refresh_index))
        for key, time_ns, result in keys.items()
    ]
    return Head(MAGIC, VERSION, applied, items, [(index, sorted(freed)) for index, freed in refused])


def keys_of(head: Head) -> RecentKeys:
    """Return the recent keys that stand in a head."""
    keys = RecentKeys()
    for key, time_ns, result in head.keys:
        keys.add(key, time_ns, result if isinstance(result, int) else Repeated(result[0], result[1], tuple(result[2]), result[3]))
    return keys


def write(head: Head, state: StateSnapshot) -> Iterator[bytes]:
    """Yield the frames of a snapshot."""
    first = msgspec.msgpack.encode(head)
    yield _length.pack(len(first)) + first
    for frame in state.save():
        yield _length.pack(len(frame)) + frame


def read(chunks: Iterable[bytes]) -> tuple[Head, StateStore]:
    """Return what `write` wrote. Raises `CodecError`, `VersionUnsupported`."""
    frames = _frames(chunks)
    first = next(frames, None)
    if first is None:
        raise CodecError("snapshot: it is empty")
    _check_version(first)
    try:
        head = msgspec.msgpack.decode(first, type=Head)
    except msgspec.MsgspecError as error:
        raise CodecError(f"snapshot: its head cannot be read: {error}") from error
    return head, StateStore.load(frames)


def _check_version(frame: bytes) -> None:
    try:
        version = msgspec.msgpack.decode(frame, type=_Version)
    except msgspec.MsgspecError as error:
        raise CodecError(f"snapshot: it does not start like one: {error}") from error
    if version.magic != MAGIC:
        raise CodecError("snapshot: it does not start like one")
    if version.version != VERSION:
        raise VersionUnsupported("snapshot", version.version, VERSION)


def _frames(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Cut chunks into frames again."""
    waiting = bytearray()
    source: Any = iter(chunks)
    while True:
        while len(waiting) < _length.size or len(waiting) < _length.size + _length.unpack_from(waiting)[0]:
            chunk = next(source, None)
            if chunk is None:
                if waiting:
                    raise CodecError("snapshot: it ends in the middle of a frame")
                return
            waiting += chunk
        end = _length.size + _length.unpack_from(waiting)[0]
        yield bytes(waiting[_length.size : end])
        del waiting[:end]
