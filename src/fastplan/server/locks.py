"""One operation at a time for each subject."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator


class SubjectLocks:
    """Locks by name, which exist while somebody holds or wants them."""

    def __init__(self) -> None:
        self._locks: dict[tuple[str, ...], tuple[asyncio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def holding(self, *subjects: tuple[str, ...]) -> AsyncIterator[None]:
        """Wait for one's turn with all subjects; without any there is nothing to wait for. Whatever their order here, they are taken in one order."""
        async with contextlib.AsyncExitStack() as held:
            for subject in sorted(set(subjects)):
                await held.enter_async_context(self._holding(subject))
            yield

    @contextlib.asynccontextmanager
    async def _holding(self, subject: tuple[str, ...]) -> AsyncIterator[None]:
        lock, users = self._locks.get(subject, (asyncio.Lock(), 0))
        self._locks[subject] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(subject)
            if users > 1:
                self._locks[subject] = lock, users - 1
