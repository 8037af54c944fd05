"""Names of the allocations of a group: which are taken, which is next (schedulers 7.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fastplan.scheduler.alloc_facts import alloc_name, index_of
from fastplan.structs import Allocation


class NameIndex:
    """The indexes that the allocations of a group use, up to the greatest of them, and those below the group's count."""

    def __init__(self, job_id: str, group: str, count: int, allocs: Iterable[Allocation]) -> None:
        self._job_id = job_id
        self._group = group
        self._count = count
        indexes = [index_of(alloc) for alloc in allocs]
        size = max(count, len(indexes), max(indexes, default=-1) + 1)
        self._size = -(-size // 8) * 8
        self._used = set(indexes)
        self._duplicates = Counter(index for index, times in Counter(indexes).items() for _ in range(times - 1))

    def _name(self, index: int) -> str:
        return alloc_name(self._job_id, self._group, index)

    def highest(self, count: int) -> set[str]:
        """Give up so many names with the highest indexes in use, and return them."""
        taken = sorted(self._used, reverse=True)[:count]
        self._used.difference_update(taken)
        return {self._name(index) for index in taken}

    def free(self, index: int) -> None:
        """Give up an index, unless several allocations have it."""
        if not self._duplicates[index]:
            self._used.discard(index)

    def next(self, count: int) -> list[str]:
        """Take so many names: the lowest free ones below the group's count, then from 0 upwards again."""
        indexes = [index for index in range(self._count) if index not in self._used][:count]
        self._used.update(indexes)
        again = count - len(indexes)
        indexes += range(again)
        self._used.update(range(again))
        return [self._name(index) for index in indexes]

    def next_canaries(self, count: int, canaries: Iterable[Allocation], destructive: Iterable[Allocation]) -> list[str]:
        """Take names for so many canaries: those of allocations that will be replaced, then free ones, then indexes beyond the count."""
        taken = {alloc.name for alloc in canaries}
        names: list[str] = []

        def take(indexes: Iterable[int]) -> None:
            for index in indexes:
                name = self._name(index)
                if len(names) < count and name not in taken:
                    names.append(name)
                    taken.add(name)
                    self._used.add(index)

        take(sorted({index_of(alloc) for alloc in destructive if index_of(alloc) < self._size}))
        take(index for index in range(self._count) if index not in self._used)
        take(range(self._count, self._count + count + len(taken)))
        return names

    def exchanged(self, name: str, index: int) -> str:
        """Return the name of a new allocation: another one while its index belongs to several."""
        if not self._duplicates[index]:
            return name
        self._duplicates[index] -= 1
        return self.next(1)[0]
