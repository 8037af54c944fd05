"""Leadership events for any number of listeners (replication.md 1.4)."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator

from fastplan.replication.contract import Event, Gained, Lost, Stopped


class EventStream(AsyncIterator[Event]):
    """The events from the moment of `subscribe` on. Ends after `Stopped`."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Event] = asyncio.Queue()
        self._ended = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        if self._ended:
            raise StopAsyncIteration
        event = await self._waiting.get()
        self._ended = isinstance(event, Stopped)
        return event

    def put(self, event: Event) -> None:
        """Append an event."""
        self._waiting.put_nowait(event)


class EventHub:
    """Hands each event to every stream that is still held by somebody."""

    def __init__(self) -> None:
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()
        self._present: Event | None = None

    def subscribe(self) -> EventStream:
        """Return a new stream; it begins with the present leadership, or with `Stopped`."""
        stream = EventStream()
        if self._present is not None:
            stream.put(self._present)
        self._streams.add(stream)
        return stream

    def announce(self, event: Event) -> None:
        """Tell all streams."""
        if isinstance(event, Gained | Stopped):
            self._present = event
        elif isinstance(event, Lost):
            self._present = None
        for stream in self._streams:
            stream.put(event)
