"""Recent keys with their results: an entry that is proposed again is answered with what became of it the first time (replication.md 1.2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from fastplan.fsm.results import Repeated

KEYS_KEPT: Final = 10_000
KEY_AGE_NS: Final = 3600 * 10**9


class RecentKeys:
    """The newest 10,000 keys, none older than an hour of entry time: the window must be the same on every replica, so no clock is asked."""

    def __init__(self) -> None:
        # A plain index is the common result: applied, nothing refused.
        self._results: dict[bytes, int | Repeated] = {}
        self._order: deque[tuple[bytes, int]] = deque()
        self._newest_ns = 0

    def get(self, key: bytes) -> Repeated | None:
        """Return what became of the first entry with *key*, None if it is not known."""
        found = self._results.get(key)
        return Repeated(found) if isinstance(found, int) else found

    def add(self, key: bytes, time_ns: int, result: int | Repeated) -> None:
        """Remember the result of the entry with *key*, stamped *time_ns*: its index, if it was applied and nothing was refused."""
        self._results[key] = result
        self._order.append((key, time_ns))
        if time_ns > self._newest_ns:
            self._newest_ns = time_ns
        oldest_ns = self._newest_ns - KEY_AGE_NS
        while len(self._order) > KEYS_KEPT or self._order[0][1] < oldest_ns:
            old, _ = self._order.popleft()
            del self._results[old]

    def __len__(self) -> int:
        return len(self._order)

    def items(self) -> Iterator[tuple[bytes, int, int | Repeated]]:
        """Yield (key, time, result), oldest first."""
        for key, time_ns in self._order:
            yield key, time_ns, self._results[key]
