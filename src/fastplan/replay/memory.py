"""How much memory a state takes: what its columns say of themselves, and the size of the records beside them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from fastplan.state.snapshot import StateReader

_LOOKED_AT: Final = 256
"""Records of a table that are measured; the others are taken to be alike."""


def column_bytes(state: StateReader) -> int:
    """Return the bytes of the columns of all allocations, with all indexes: ids, rows, claims, chains, stamps. Room for more to come is in it."""
    return sum(state.allocs_view.bytes_used().values())


def record_bytes(state: StateReader) -> int:
    """Return about how many bytes the records of jobs and evaluations take: the mean of some of them, times how many there are."""
    return _table_bytes(list(state.jobs_view.registered())) + _table_bytes(state.evals())


def _table_bytes(records: Sequence[Any]) -> int:
    seen: set[int] = set()
    looked_at = records[:_LOOKED_AT]
    return sum(_size(record, seen) for record in looked_at) * len(records) // max(len(looked_at), 1)


def _size(thing: Any, seen: set[int]) -> int:
    """Return the bytes of an object and of all it refers to that was not *seen*: types and what they share do not count."""
    if id(thing) in seen or isinstance(thing, type) or thing is None:
        return 0
    seen.add(id(thing))
    size = sys.getsizeof(thing)
    if isinstance(thing, msgspec.Struct):
        return size + sum(_size(getattr(thing, name), seen) for name in thing.__struct_fields__ if name != "_shape")
    if isinstance(thing, dict):
        return size + sum(_size(key, seen) + _size(value, seen) for key, value in thing.items())
    if isinstance(thing, list | tuple):
        return size + sum(_size(each, seen) for each in thing)
    return size
