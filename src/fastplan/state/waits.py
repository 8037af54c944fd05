"""Blocking until the state has reached an index, for threads and for coroutines."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading


class IndexGate:
    """Holds those who wait for an index of the log. `advance` lets through whoever waits for what has been reached.

    `advance` is called by the one writer, on every commit: without waiters it costs an attribute check. The waits may come from any thread.
    """

    def __init__(self) -> None:
        self.index = 0
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._threads: list[tuple[int, int, threading.Event]] = []
        self._futures: list[tuple[int, int, asyncio.AbstractEventLoop, asyncio.Future[None]]] = []

    def advance(self, index: int) -> None:
        """Say that the state has reached *index*; a lower one than before changes nothing."""
        if index <= self.index:
            return
        self.index = index
        if not self._threads and not self._futures:
            return
        with self._lock:
            while self._threads and self._threads[0][0] <= index:
                heapq.heappop(self._threads)[2].set()
            while self._futures and self._futures[0][0] <= index:
                _, _, loop, future = heapq.heappop(self._futures)
                if not loop.is_closed():
                    loop.call_soon_threadsafe(_finish, future)

    def wait(self, index: int, timeout_s: float) -> None:
        """Block this thread until *index* is reached. Raises TimeoutError after *timeout_s* seconds."""
        if self.index >= index:
            return
        event = threading.Event()
        entry = (index, next(self._numbers), event)
        with self._lock:
            heapq.heappush(self._threads, entry)
        # The writer may have passed between the first look and the push; it then did not see the event.
        if self.index >= index or event.wait(timeout_s):
            reached = True
        else:
            reached = self.index >= index
        with self._lock:
            if entry in self._threads:
                self._threads.remove(entry)
                heapq.heapify(self._threads)
        if not reached:
            raise TimeoutError(self._late(index, timeout_s))

    async def reached(self, index: int, timeout_s: float) -> None:
        """Wait in a coroutine until *index* is reached. Raises TimeoutError after *timeout_s* seconds."""
        if self.index >= index:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        entry = (index, next(self._numbers), loop, future)
        with self._lock:
            heapq.heappush(self._futures, entry)
        try:
            if self.index < index:
                await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            if self.index < index:
                raise TimeoutError(self._late(index, timeout_s)) from None
        finally:
            with self._lock:
                if entry in self._futures:
                    self._futures.remove(entry)
                    heapq.heapify(self._futures)

    def _late(self, index: int, timeout_s: float) -> str:
        return f"timed out after {timeout_s:g}s waiting for index={index} (state is at index={self.index})"


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
