"""F20: restarting is bounded, also with a long log and a large snapshot."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.replication.machines import CountingMachine, replicator

MIB = 1 << 20


@pytest.mark.parametrize(
    ("entries", "snapshot_entries", "limit_s"),
    [
        (100_000, 25_000, 2.0),
        pytest.param(1_000_000, 100_000, 10.0, marks=pytest.mark.slow, id="1M entries, snapshots"),
        # Without any snapshot every entry is read, verified and applied.
        pytest.param(1_000_000, 10_000_000, 10.0, marks=pytest.mark.slow, id="1M entries, no snapshot"),
    ],
)
def test_a_log_of_many_entries_restarts_quickly(tmp_path: Path, entries: int, snapshot_entries: int, limit_s: float) -> None:
    batch = [random.Random(number).randbytes(200) for number in range(1_000)]

    async def body() -> None:
        machine = CountingMachine()
        log = replicator(tmp_path / "log", machine, snapshot_entries=snapshot_entries, snapshot_bytes=1 << 40)
        await log.start()
        for _ in range(entries // len(batch)):
            await log.propose_batch(batch, term=1)
        await log.stop()
        again = CountingMachine()
        log = replicator(tmp_path / "log", again, snapshot_entries=snapshot_entries, snapshot_bytes=1 << 40)
        started = time.monotonic()
        await log.start()
        took_s = time.monotonic() - started
        await log.stop()
        assert again.count == machine.count == entries
        assert took_s < limit_s

    asyncio.run(body())


class LargeState:
    """A state of a given size that is not worth keeping."""

    def __init__(self, mib: int) -> None:
        self.applied = 0
        self.mib = mib
        self.restored_bytes = 0

    def apply(self, batch: list[tuple[int, int, bytes, bytes]]) -> list[None]:
        self.applied = batch[-1][0]
        return [None] * len(batch)

    def snapshot(self) -> Iterator[bytes]:
        chunk = random.Random(1).randbytes(MIB)
        return (chunk for _ in range(self.mib))

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.restored_bytes = sum(map(len, chunks))


@pytest.mark.parametrize(("mib", "limit_s"), [(20, 2.0), pytest.param(500, 10.0, marks=pytest.mark.slow)])
def test_a_large_snapshot_restarts_quickly(tmp_path: Path, mib: int, limit_s: float) -> None:
    async def body() -> None:
        log = replicator(tmp_path / "log", LargeState(mib))
        await log.start()
        await log.propose(b"x", term=1)
        await log.snapshot()
        await log.stop()
        again = LargeState(mib)
        log = replicator(tmp_path / "log", again)
        started = time.monotonic()
        await log.start()
        took_s = time.monotonic() - started
        await log.stop()
        assert again.restored_bytes == mib * MIB
        assert took_s < limit_s

    asyncio.run(body())
