"""A log that outlives the server that writes to it: what it has stored is there after a crash."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from fastplan.errors import StorageFailed
from fastplan.fsm import StateMachine
from fastplan.replication.contract import BatchHandle, Gained, LogItem, Lost, Stopped
from fastplan.testing.log import SimulatedLog

GONE: Final = "the disk is gone"
"""What a log says after a crash."""

Listener = Callable[[Sequence[LogItem]], None]


@dataclass(slots=True)
class Storage:
    """What is on the disk: entries in the order of their indexes, the last term, and perhaps a snapshot of the state at an earlier index."""

    listener: Listener
    items: list[LogItem] = field(default_factory=list)
    term: int = 0
    snapshot_index: int = 0
    snapshot: list[bytes] = field(default_factory=list)

    def store(self, items: Sequence[LogItem]) -> None:
        """Store entries for good, and tell the listener about them."""
        self.items.extend(items)
        self.listener(items)

    def take_snapshot(self, machine: StateMachine) -> None:
        """Store the state as it is; the next start begins with it."""
        self.snapshot = list(machine.snapshot())
        self.snapshot_index = machine.applied


class RestartableLog(SimulatedLog):
    """A simulated log on a `Storage`. It ends with `stop`, or with `crash`; the next one on the same storage finds what was stored."""

    def __init__(self, machine: StateMachine, storage: Storage, *, delay_s: Callable[[], float], randomness: random.Random) -> None:
        """*delay_s*: how long the next sync takes."""
        super().__init__(machine, delay_s=delay_s, seed=randomness.getrandbits(64))
        self._machine = machine
        self._storage = storage
        self._randomness = randomness
        self._crashed = False

    async def start(self) -> None:
        """Bring the state machine to the end of what is stored, and lead the next term."""
        storage = self._storage
        if storage.snapshot_index:
            self._machine.restore(storage.snapshot)
        left = [item for item in storage.items if item[0] > storage.snapshot_index]
        if left:
            self._machine.apply(left)
        self.term = storage.term = storage.term + 1
        # The no-op that opens a term takes an index.
        self._last_index = (storage.items[-1][0] if storage.items else 0) + 1
        self._events.announce(Gained(self.term, self._last_index))

    async def stop(self) -> None:
        """Store what is pending, and end. After a crash there is nothing left to do."""
        if not self._crashed:
            await super().stop()

    def lose_leadership(self) -> None:
        """End the term; see `SimulatedLog`."""
        super().lose_leadership()
        self._storage.term = self.term

    def propose_batch(self, entries: Sequence[bytes], *, term: int, keys: Sequence[bytes | None] | None = None) -> BatchHandle:
        """Append entries next to each other. Raises `StorageFailed` after a crash; see `Replicator`."""
        if self._crashed:
            raise StorageFailed(GONE)
        return super().propose_batch(entries, term=term, keys=keys)

    def recover(self) -> None:
        """Take everything again: no sync fails that has not begun to."""
        self._next_failure = None
        self.set_busy(False)

    def crash(self) -> None:
        """Have the disk fail: of what was pending an unknown number of entries is stored, none of them acknowledged or applied here."""
        pending = [*self._syncing, *self._waiting]
        self._syncing, self._waiting = [], []
        self._sync_number += 1
        self._crashed = True
        items = [item for _, batch in pending for item in batch]
        self._storage.store(items[: self._randomness.randrange(len(items) + 1)])
        for handle, _ in pending:
            handle.fail(StorageFailed(GONE))
        self.set_busy(False)
        self._events.announce(Lost(self.term, GONE))
        self._events.announce(Stopped(StorageFailed(GONE)))

    def _apply(self, items: list[LogItem]) -> list[object]:
        self._storage.store(items)
        return list(self._machine.apply(items))
