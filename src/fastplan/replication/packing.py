"""A batch of entries as the bytes of one row (replication.md 4).

Columns, because a whole batch is written and read at once: count (uint32), then for all entries their lengths (uint32), key lengths
(uint16) and kinds (uint8), then all keys, then all entries. Little-endian.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import TypeAlias

NOOP = 0
ENTRY = 1
MAX_KEY_BYTES = 0xFFFF

StoredEntry: TypeAlias = tuple[int, bytes, bytes]
"""(kind, key, entry)"""

_COUNT = struct.Struct("<I")
_LINK = struct.Struct("<QQQI")


class BadPayload(ValueError):
    """A payload that `pack` cannot have written."""


def pack(kind: int, entries: Sequence[bytes], keys: Sequence[bytes]) -> bytes:
    """Return the payload of entries that are all of one kind. *keys* has one key an entry, empty where there is none."""
    count = len(entries)
    return b"".join(
        (
            _COUNT.pack(count),
            struct.pack(f"<{count}I", *map(len, entries)),
            struct.pack(f"<{count}H", *map(len, keys)),
            bytes((kind,)) * count,
            b"".join(keys),
            *entries,
        )
    )


def unpack(payload: bytes) -> list[StoredEntry]:
    """Return the entries of a payload. Raises `BadPayload`."""
    if len(payload) < _COUNT.size:
        raise BadPayload("the payload is shorter than its count")
    (count,) = _COUNT.unpack_from(payload)
    body = _COUNT.size + count * 7
    if len(payload) < body:
        raise BadPayload(f"the payload is too short for the lengths of {count} entries")
    lengths = struct.unpack_from(f"<{count}I", payload, _COUNT.size)
    key_lengths = struct.unpack_from(f"<{count}H", payload, _COUNT.size + 4 * count)
    kinds = payload[body - count : body]
    entry_at = body + sum(key_lengths)
    if entry_at + sum(lengths) != len(payload):
        raise BadPayload("the lengths of the entries do not add up to the length of the payload")
    stored: list[StoredEntry] = []
    key_at = body
    for kind, key_length, length in zip(kinds, key_lengths, lengths, strict=True):
        stored.append((kind, payload[key_at : key_at + key_length], payload[entry_at : entry_at + length]))
        key_at += key_length
        entry_at += length
    return stored


def chain_value(previous: int, first_index: int, last_index: int, term: int, payload: bytes) -> int:
    """Return the CRC-32 that links a row to the row before it; it covers the row's other columns too."""
    return zlib.crc32(payload, zlib.crc32(_LINK.pack(first_index, last_index, term, previous)))
