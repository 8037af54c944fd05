"""Writing commands: every change of state but a plan goes through here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Protocol

from fastplan import codec
from fastplan.clock import Clock
from fastplan.errors import Busy, NotLeader, StateError
from fastplan.fsm import Refused
from fastplan.replication import BatchHandle

logger = logging.getLogger("fastplan.server")


class CommandLog(Protocol):
    """What a writer of commands asks of the log."""

    def propose_batch(self, entries: Sequence[bytes], *, term: int, keys: Sequence[bytes | None] | None = None) -> BatchHandle:
        """Append entries next to each other."""
        ...

    async def ready(self) -> None:
        """Wait until there is room."""
        ...


class CommandWriter:
    """Commits commands under the present leadership. `writing` counts those on their way."""

    def __init__(self, log: CommandLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self.term: int | None = None
        self.writing = 0

    async def write(self, command: codec.Command | None) -> int:
        """Commit a command and return the index of its entry; 0 and nothing for None.

        It is committed under the leadership that there is now, or not at all: what it was made from may have changed under another one.
        Raises NotLeader without leadership, StateError for what the state machine refuses, and what the log says.
        """
        if command is None:
            return 0
        entry = codec.encode_command(command, self._clock.now_ns())
        self.writing += 1
        try:
            committed = await (await self._propose(entry))
        finally:
            self.writing -= 1
        (result,) = committed.results
        if isinstance(result, Refused):
            raise StateError(result.refused)
        return committed.first_index

    async def _propose(self, entry: bytes) -> BatchHandle:
        term = self.term
        while True:
            if term is None or term != self.term:
                raise NotLeader("No cluster leader")
            try:
                return self._log.propose_batch([entry], term=term)
            except Busy as error:
                logger.debug("the log has no room: %s", error)
            await self._log.ready()
            # Others waited for the room too.
            await asyncio.sleep(0)
