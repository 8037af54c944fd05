"""A replicated log in memory, under virtual time, that can be slow, full, and lose its leadership on purpose."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from fastplan.errors import Busy, NotLeader, OutcomeUnknown, ReplicationError, TooLarge
from fastplan.replication.contract import BatchHandle, Gained, Handle, LogItem, Lost, Role, StateMachine, Status, Stopped
from fastplan.replication.event_stream import EventHub, EventStream


class SimulatedLog:
    """Commits what was proposed after a delay, in order, one sync at a time, and applies it to one state machine.

    It keeps the promises of a real log (replication.md 2): entries of a term commit in order, and if one fails every later one of
    that term fails. `lose_leadership` leaves a random prefix of what was pending committed, as a crash does; the proposer cannot know.
    `committed` holds every entry that was ever applied.
    """

    def __init__(self, machine: StateMachine, *, delay_s: Callable[[], float] = lambda: 0.001, seed: int = 0, entry_limit_bytes: int = 8 << 20) -> None:
        """*delay_s*: how long the next sync takes."""
        self.machine = machine
        self.committed: list[LogItem] = []
        self.term = 1
        self.syncs = 0
        self.busy = False
        self.entry_limit_bytes = entry_limit_bytes
        self._delay_s = delay_s
        self._random = random.Random(seed)
        self._last_index = machine.applied
        self._waiting: list[tuple[BatchHandle, list[LogItem]]] = []
        self._syncing: list[tuple[BatchHandle, list[LogItem]]] = []
        self._sync_number = 0
        self._room: list[asyncio.Future[None]] = []
        self._next_failure: ReplicationError | None = None
        self._events = EventHub()

    # --- the contract -----------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Lead the first term: nothing has to be recovered."""
        self._events.announce(Gained(self.term, self._last_index))

    async def stop(self) -> None:
        """Commit what is pending, and end."""
        while self.pending:
            await _ended([*self._syncing, *self._waiting][-1][0])
        self._events.announce(Lost(self.term, "the log was stopped"))
        self._events.announce(Stopped(None))

    def events(self) -> EventStream:
        """Follow leadership events; see `Replicator`."""
        return self._events.subscribe()

    def status(self) -> Status:
        """Return a description of this moment; nothing of it lies on a disk."""
        applied, pending = self.machine.applied, sum(handle.count for handle, _ in [*self._syncing, *self._waiting])
        return Status(Role.LEADER, self.term, None, self._last_index, applied, applied, applied, 0, (), pending, 0, 0, self.syncs, ())

    def propose(self, entry: bytes, *, term: int, key: bytes | None = None) -> Handle:
        """Append one entry; see `Replicator`."""
        return Handle(self.propose_batch([entry], term=term, keys=[key]))

    def propose_batch(self, entries: Sequence[bytes], *, term: int, keys: Sequence[bytes | None] | None = None) -> BatchHandle:
        """Append entries next to each other; see `Replicator`."""
        if term != self.term:
            raise NotLeader(f"term {term} is over, this is term {self.term}")
        if self.busy:
            raise Busy("the log is full")
        if max(map(len, entries), default=0) > self.entry_limit_bytes:
            raise TooLarge(f"an entry exceeds {self.entry_limit_bytes} bytes")
        handle = BatchHandle(self._last_index + 1, term, len(entries))
        items = [(self._last_index + 1 + place, term, entry, (keys[place] if keys is not None else None) or b"") for place, entry in enumerate(entries)]
        self._last_index += len(items)
        self._waiting.append((handle, items))
        if not self._syncing:
            self._start_sync()
        return handle

    async def ready(self) -> None:
        """Wait until there is room."""
        while self.busy:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._room.append(waiter)
            await waiter

    async def barrier(self, timeout_s: float | None = None) -> int:
        """Wait until everything proposed before is applied."""
        term = self.term
        for handle, _ in [*self._syncing, *self._waiting]:
            await asyncio.wait_for(_ended(handle), timeout_s)
        if self.term != term:
            raise NotLeader(f"term {term} is over")
        return self.machine.applied

    # --- trouble ----------------------------------------------------------------------------------------------------

    @property
    def pending(self) -> int:
        """Batches that have not ended."""
        return len(self._syncing) + len(self._waiting)

    def set_busy(self, busy: bool) -> None:
        """Refuse entries, or take them again."""
        self.busy = busy
        if not busy:
            room, self._room = self._room, []
            for waiter in room:
                if not waiter.done():
                    waiter.set_result(None)

    def fail_next_sync(self, error: ReplicationError) -> None:
        """Have everything that is pending at the end of the next sync fail with *error*, unwritten; the term goes on."""
        self._next_failure = error

    def lose_leadership(self) -> None:
        """End the term: of what was pending an unknown number of entries is committed all the same. The next term begins at once."""
        pending = [*self._syncing, *self._waiting]
        self._syncing, self._waiting = [], []
        self._sync_number += 1
        items = [item for _, batch in pending for item in batch]
        survivors = items[: self._random.randrange(len(items) + 1)]
        if survivors:
            self._apply(survivors)
        self._last_index = self.machine.applied
        self.term += 1
        # The no-op that opens a term takes an index.
        self._last_index += 1
        for handle, _ in pending:
            handle.fail(OutcomeUnknown("leadership was lost"))
        self._events.announce(Lost(self.term - 1, "leadership was lost"))
        self._events.announce(Gained(self.term, self._last_index))

    # --- syncing ----------------------------------------------------------------------------------------------------

    def _start_sync(self) -> None:
        self._syncing, self._waiting = self._waiting, []
        self._sync_number += 1
        asyncio.get_running_loop().call_later(self._delay_s(), self._end_sync, self._sync_number)

    def _end_sync(self, number: int) -> None:
        if number != self._sync_number or not self._syncing:
            return
        synced, self._syncing = self._syncing, []
        if self._next_failure is not None:
            error, self._next_failure = self._next_failure, None
            failed = [*synced, *self._waiting]
            self._waiting = []
            self._last_index = failed[0][0].first_index - 1
            for handle, _ in failed:
                handle.fail(error)
            return
        self.syncs += 1
        results = self._apply([item for _, items in synced for item in items])
        for handle, items in synced:
            handle.resolve(results[: len(items)])
            results = results[len(items) :]
        if self._waiting:
            self._start_sync()

    def _apply(self, items: list[LogItem]) -> list[object]:
        self.committed.extend(items)
        return list(self.machine.apply(items))


async def _ended(handle: BatchHandle) -> None:
    try:
        await handle
    except ReplicationError:
        return
