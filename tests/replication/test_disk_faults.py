"""F4: a write or flush that fails, and a full disk. Pending entries fail at once, the replica stops, nothing acknowledged is missing."""

from __future__ import annotations

import asyncio
import errno
import random
import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from fastplan.errors import Busy, Closed, ReplicationError, StorageFailed
from fastplan.replication import Committed, Gained, LocalReplicator, Lost, Stopped
from fastplan.replication.disk import Connection
from fastplan.testing.disk import SYNC, SYNC_FAILED, WRITE, SimulatedDisk
from tests.replication.machines import RememberingMachine, replicator


async def outcomes_of(log: LocalReplicator, count: int, *, depth: int = 20) -> list[Committed | ReplicationError]:
    """Propose entries 0, 1, … with a few in flight, until the log refuses; return every outcome in order."""

    async def outcome(number: int) -> Committed | ReplicationError:
        try:
            return await log.propose(b"%d" % number, term=log.status().term)
        except ReplicationError as problem:
            return problem

    outcomes: list[Committed | ReplicationError] = []
    for start in range(0, count, depth):
        outcomes += await asyncio.gather(*(outcome(number) for number in range(start, start + depth)))
    return outcomes


async def entries_after_restart(directory: Path) -> list[bytes]:
    machine = RememberingMachine()
    log = replicator(directory, machine)
    await log.start()
    await log.stop()
    return machine.entries


def assert_prefix_and_nothing_lost(outcomes: Iterable[Committed | ReplicationError], stored: list[bytes]) -> int:
    committed = [isinstance(outcome, Committed) for outcome in outcomes]
    assert committed == sorted(committed, reverse=True), "an entry succeeded after one that failed"
    assert stored == [b"%d" % number for number in range(len(stored))]
    assert len(stored) >= sum(committed)
    return sum(committed)


@pytest.mark.parametrize(("kind", "suffix"), [(WRITE, "log.db-wal"), (SYNC, "log.db-wal"), (WRITE, "log.db"), (SYNC, "log.db"), (WRITE, "high-water")])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_failing_disk_stops_the_replica(memory_path: Path, kind: str, suffix: str, error: int) -> None:
    async def body() -> None:
        disk = SimulatedDisk(memory_path / "log")
        log = replicator(memory_path / "log", RememberingMachine(), disk=disk, wal_bytes=100_000)
        events = log.events()
        await log.start()
        disk.fail(kind, suffix, after=3, error=error)
        async with asyncio.timeout(20):
            outcomes = await outcomes_of(log, 4000)
        assert isinstance(outcomes[-1], StorageFailed)
        with pytest.raises(StorageFailed):
            await log.ready()
        with pytest.raises(StorageFailed):
            await log.snapshot()
        assert any("log" in problem for problem in log.status().health)
        seen = [event async for event in events]
        assert [type(event) for event in seen] == [Gained, Lost, Stopped]
        assert isinstance(seen[-1], Stopped)
        assert isinstance(seen[-1].error, StorageFailed)
        await log.stop()
        if suffix == "log.db-wal":
            # Final means that nothing is tried again, by SQLite neither.
            tried = [operation.kind for operation in disk.operations[disk.failed_at :] if operation.path.startswith("log.db")]
            assert tried == [SYNC_FAILED] * (kind == SYNC)
        disk.heal()
        committed = assert_prefix_and_nothing_lost(outcomes, await entries_after_restart(memory_path / "log"))
        assert committed < 4000

    asyncio.run(body())


def test_what_was_acknowledged_before_a_failed_flush_survives_a_power_failure(memory_path: Path) -> None:
    async def body() -> None:
        disk = SimulatedDisk(memory_path / "log")
        log = replicator(memory_path / "log", RememberingMachine(), disk=disk, wal_bytes=0)
        await log.start()
        disk.fail(SYNC, "log.db-wal", after=4)
        outcomes = await outcomes_of(log, 200, depth=3)
        await log.stop()
        crashes = [crash for crash in disk.crashes(random.Random(7), subsets=12) if crash.position == len(disk.operations)]
        assert len(crashes) > 1
        for number, crash in enumerate(crashes):
            crash.write_to(memory_path / str(number))
            assert_prefix_and_nothing_lost(outcomes, await entries_after_restart(memory_path / str(number)))

    asyncio.run(body())


def test_pending_entries_fail_at_once_even_if_closing_takes_long(memory_path: Path) -> None:
    class Stuck(SimulatedDisk):
        def connect(self, path: Path, *, read_only: bool = False) -> Connection:
            if self.failed_at is not None:
                released.wait()
            return super().connect(path, read_only=read_only)

    released = threading.Event()

    async def body() -> None:
        disk = Stuck(memory_path / "log")
        log = replicator(memory_path / "log", RememberingMachine(), disk=disk)
        await log.start()
        disk.fail(SYNC, "log.db-wal")
        async with asyncio.timeout(5):
            with pytest.raises(StorageFailed):
                await log.propose(b"x", term=1)
        stopping = asyncio.create_task(log.stop())
        await asyncio.sleep(0.05)
        assert not stopping.done()
        released.set()
        await stopping

    asyncio.run(body())


def test_a_start_on_a_failing_disk_is_an_error_and_leaves_the_directory_free(memory_path: Path) -> None:
    async def body() -> None:
        for kind, suffix in ((WRITE, "log.db.new"), (SYNC, "log.db-wal"), (WRITE, "high-water")):
            disk = SimulatedDisk(memory_path / "log")
            disk.fail(kind, suffix)
            log = replicator(memory_path / "log", RememberingMachine(), disk=disk)
            with pytest.raises(StorageFailed):
                await log.start()
            with pytest.raises((Closed, StorageFailed)):
                log.propose(b"x", term=1)
            await log.stop()
        assert await entries_after_restart(memory_path / "log") == []

    asyncio.run(body())


def test_a_nearly_full_disk_refuses_proposals_until_there_is_room(memory_path: Path) -> None:
    async def body() -> None:
        disk = SimulatedDisk(memory_path / "log")
        machine = RememberingMachine()
        log = replicator(memory_path / "log", machine, disk=disk, low_water_bytes=1 << 20, max_entry_bytes=2 << 20)
        await log.start()
        disk.free = 1000
        await log.propose(bytes(1 << 20), term=1)
        while not log.status().health:
            await asyncio.sleep(0.01)
        with pytest.raises(Busy, match="is nearly full"):
            log.propose(b"x", term=1)
        assert log.status().health == ("less than 1048576 bytes are free on the disk; proposals are refused",)
        waiting = asyncio.create_task(log.ready())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        disk.free = 1 << 30
        async with asyncio.timeout(10):
            await waiting
        assert log.status().health == ()
        assert (await log.propose(b"y", term=1)).result == 2
        # A snapshot was taken to let the log behind it go.
        assert log.status().snapshot_index > 0
        await log.stop()

    asyncio.run(body())


def test_a_snapshot_that_cannot_be_written_leaves_the_log_running(memory_path: Path) -> None:
    async def body() -> None:
        disk = SimulatedDisk(memory_path / "log")
        log = replicator(memory_path / "log", RememberingMachine(), disk=disk)
        await log.start()
        await log.propose(b"x", term=1)
        disk.fail(SYNC, ".tmp", error=errno.ENOSPC)
        with pytest.raises(StorageFailed, match=r"cannot write a snapshot .*No space left on device"):
            await log.snapshot()
        assert "the last snapshot failed" in log.status().health[0]
        assert list((memory_path / "log" / "snap").iterdir()) == []
        await log.propose(b"y", term=1)
        disk.heal()
        assert await log.snapshot() == 3
        assert log.status().health == ()
        await log.stop()

    asyncio.run(body())
