"""Copy-on-write containers of records: what a snapshot shares with the store until one of them changes.

`RecordTable` keeps objects by row number, `RecordMap` by key. `view()` is O(1): it freezes what is there, and the next write copies the chunk or shard
that it touches, once. Views may be read from any thread; a container is written by one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar, overload

R = TypeVar("R")
K = TypeVar("K")
D = TypeVar("D")

CHUNK_SHIFT = 6
CHUNK_ROWS = 1 << CHUNK_SHIFT

# A shard that grows beyond this many entries doubles the number of shards: a write after a snapshot copies one shard.
SHARD_ENTRIES_MAX = 64


class RecordView(Generic[R]):
    """A frozen table of records by row."""

    __slots__ = ("_chunks", "length")

    def __init__(self, chunks: list[list[R | None]], length: int) -> None:
        self._chunks = chunks
        self.length = length

    def get(self, row: int) -> R | None:
        """Return the record in *row*, None if it is free or beyond the end."""
        if row >= self.length:
            return None
        return self._chunks[row >> CHUNK_SHIFT][row & (CHUNK_ROWS - 1)]

    def __getitem__(self, row: int) -> R:
        """Return the record in *row*. Raises KeyError if there is none."""
        record = self.get(row)
        if record is None:
            raise KeyError(row)
        return record

    def settle(self, row: int, record: R) -> None:
        """Put another form of the record in *row* in its place, for this view and all that share it: both must say the same."""
        self._chunks[row >> CHUNK_SHIFT][row & (CHUNK_ROWS - 1)] = record

    def frozen_chunks(self) -> tuple[list[list[R | None]], int]:
        """Return the chunks of records and the number of rows. No write changes them: it makes other ones."""
        return self._chunks, self.length

    def items(self) -> Iterator[tuple[int, R]]:
        """Yield (row, record) of every row in use, ascending."""
        length = self.length
        for number, chunk in enumerate(self._chunks):
            row = number << CHUNK_SHIFT
            for record in chunk:
                if record is not None and row < length:
                    yield row, record
                row += 1


class RecordTable(RecordView[R]):
    """A growing table of records by row; `view` gives a frozen one. Freed rows are used again, the lowest first.

    So the rows that `add` gives follow from the contents alone, and a restored table goes on like the one it was restored from.
    """

    __slots__ = ("_free", "_own_chunks", "_own_directory")

    def __init__(self) -> None:
        super().__init__([], 0)
        self._own_chunks: set[int] = set()
        self._own_directory = True
        self._free: list[int] = []

    def view(self) -> RecordView[R]:
        """Return the table as it is now, frozen."""
        if self._own_chunks:
            self._own_chunks = set()
        self._own_directory = False
        return RecordView(self._chunks, self.length)

    def frozen_chunks(self) -> tuple[list[list[R | None]], int]:
        return self.view().frozen_chunks()

    def _writable(self, number: int) -> list[R | None]:
        if number in self._own_chunks:
            return self._chunks[number]
        if not self._own_directory:
            self._chunks = self._chunks.copy()
            self._own_directory = True
        chunk = self._chunks[number].copy()
        self._chunks[number] = chunk
        self._own_chunks.add(number)
        return chunk

    def set(self, row: int, record: R | None) -> None:
        """Put *record* into *row*, extending the table with free rows up to it. Does not touch the list of free rows."""
        while row >= len(self._chunks) << CHUNK_SHIFT:
            if not self._own_directory:
                self._chunks = self._chunks.copy()
                self._own_directory = True
            self._own_chunks.add(len(self._chunks))
            self._chunks.append([None] * CHUNK_ROWS)
        self._writable(row >> CHUNK_SHIFT)[row & (CHUNK_ROWS - 1)] = record
        if row >= self.length:
            self.length = row + 1

    def add(self, record: R) -> int:
        """Put *record* into a free row, or behind the last one, and return the row."""
        row = heapq.heappop(self._free) if self._free else self.length
        self.set(row, record)
        return row

    def free(self, row: int) -> None:
        """Empty *row*; `add` may use it again."""
        self.set(row, None)
        heapq.heappush(self._free, row)

    def restore(self, records: Iterable[tuple[int, R]]) -> None:
        """Fill an empty table with what `items` of another one gave."""
        for row, record in records:
            self.set(row, record)
        self._free = [row for row in range(self.length) if self.get(row) is None]


class MapView(Generic[K, R]):
    """A frozen mapping from key to record."""

    __slots__ = ("_count", "_shards")

    def __init__(self, shards: list[dict[K, R]], count: int) -> None:
        self._shards = shards
        self._count = count

    @overload
    def get(self, key: K) -> R | None: ...
    @overload
    def get(self, key: K, default: D) -> R | D: ...
    def get(self, key: K, default: D | None = None) -> R | D | None:
        """Return the record of *key*, or *default*."""
        return self._shards[hash(key) & (len(self._shards) - 1)].get(key, default)

    def __getitem__(self, key: K) -> R:
        """Return the record of *key*. Raises KeyError if there is none."""
        return self._shards[hash(key) & (len(self._shards) - 1)][key]

    def __contains__(self, key: K) -> bool:
        return key in self._shards[hash(key) & (len(self._shards) - 1)]

    def __len__(self) -> int:
        return self._count

    def items(self) -> Iterator[tuple[K, R]]:
        """Yield (key, record), in no particular order."""
        for shard in self._shards:
            yield from shard.items()

    def keys(self) -> Iterator[K]:
        """Yield the keys, in no particular order."""
        for shard in self._shards:
            yield from shard

    def values(self) -> Iterator[R]:
        """Yield the records, in no particular order."""
        for shard in self._shards:
            yield from shard.values()


class RecordMap(MapView[K, R]):
    """A mapping from key to record; `view` gives a frozen one."""

    __slots__ = ("_own_directory", "_own_shards")

    def __init__(self) -> None:
        super().__init__([{}], 0)
        self._own_shards: set[int] = {0}
        self._own_directory = True

    def view(self) -> MapView[K, R]:
        """Return the mapping as it is now, frozen."""
        if self._own_shards:
            self._own_shards = set()
        self._own_directory = False
        return MapView(self._shards, self._count)

    def _writable(self, key: K) -> dict[K, R]:
        number = hash(key) & (len(self._shards) - 1)
        if number in self._own_shards:
            return self._shards[number]
        if not self._own_directory:
            self._shards = self._shards.copy()
            self._own_directory = True
        shard = self._shards[number].copy()
        self._shards[number] = shard
        self._own_shards.add(number)
        return shard

    def set(self, key: K, record: R) -> None:
        """Map *key* to *record*."""
        shard = self._writable(key)
        before = len(shard)
        shard[key] = record
        self._count += len(shard) - before
        if self._count > SHARD_ENTRIES_MAX * len(self._shards):
            self._split()

    def delete(self, key: K) -> None:
        """Take *key* out. Raises KeyError if it is not there."""
        del self._writable(key)[key]
        self._count -= 1

    def _split(self) -> None:
        """Spread the entries over four times as many shards: amortised over the growth, a constant per entry."""
        count = len(self._shards) * 4
        shards: list[dict[K, R]] = [{} for _ in range(count)]
        for key, record in self.items():
            shards[hash(key) & (count - 1)][key] = record
        self._shards = shards
        self._own_directory = True
        self._own_shards = set(range(count))
