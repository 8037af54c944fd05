"""Flushes and upkeep between them: one flush a row, a write-ahead file of bounded size, other readers, a database that shrinks."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

from fastplan.replication import LocalReplicator
from fastplan.testing.disk import SYNC, WRITE, SimulatedDisk
from tests.replication.machines import CountingMachine, RememberingMachine, replicator

KIB = 1 << 10
MIB = 1 << 20


async def write_batches(log: LocalReplicator, count: int, *, lanes: int = 3, entry_bytes: int = 2 * KIB) -> None:
    """Propose batches of 16 entries, a few at a time."""
    batch = [bytes(entry_bytes)] * 16
    left = iter(range(count))

    async def lane() -> None:
        for _ in left:
            await log.propose_batch(batch, term=log.status().term)

    await asyncio.gather(*(lane() for _ in range(lanes)))


def test_a_commit_is_one_flush(memory_path: Path) -> None:
    async def body() -> None:
        disk = SimulatedDisk(memory_path / "log")
        log = replicator(memory_path / "log", RememberingMachine(), disk=disk)
        await log.start()
        # The first row behind a checkpoint also writes and flushes the header of the write-ahead file.
        await log.propose(b"x", term=1)
        start = len(disk.operations)
        syncs = log.status().syncs
        for number in range(10):
            await log.propose_batch([bytes(3000 * number)] * 3, term=1)
        done = disk.operations[start:]
        assert [operation.path for operation in done if operation.kind == SYNC] == ["log.db-wal"] * 10
        assert log.status().syncs - syncs == 10
        # Nothing but the write-ahead file and the high-water mark is written.
        assert {operation.path for operation in done if operation.kind == WRITE} == {"log.db-wal", "high-water"}
        await log.stop()

    asyncio.run(body())


def test_a_row_ends_at_its_limit_and_the_next_begins_there(memory_path: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        log = replicator(memory_path / "log", machine, flush_bytes=10_000)
        await log.start()
        entries = [bytes([number]) * (4_000 if number % 10 else 30_000) for number in range(50)]
        handles = [log.propose(entry, term=1) for entry in entries]
        async with asyncio.timeout(20):
            assert [(await handle).index for handle in handles] == list(range(2, 52))
        assert machine.entries == entries
        # At most two of the small ones fit into a row, and a large one has its own.
        assert max(machine.batches) == 2
        await log.stop()

    asyncio.run(body())


def test_the_write_ahead_file_is_used_again_under_steady_load(memory_path: Path) -> None:
    """A writer that never rests must not keep the checkpoint from reaching the end of the file."""

    async def body() -> None:
        log = replicator(memory_path / "log", CountingMachine(), wal_bytes=MIB)
        await log.start()
        largest = 0
        for _ in range(12):
            await write_batches(log, 80)
            largest = max(largest, (memory_path / "log" / "log.db-wal").stat().st_size)
        # 30 MiB went through it.
        assert largest < 8 * MIB
        assert log.status().health == ()
        await log.stop()

    asyncio.run(body())


def test_another_program_may_read_the_database_meanwhile(memory_path: Path) -> None:
    async def body() -> None:
        log = replicator(memory_path / "log", CountingMachine(), wal_bytes=256 * KIB)
        await log.start()
        await write_batches(log, 5)
        reader = sqlite3.connect(memory_path / "log" / "log.db", isolation_level=None)
        reader.execute("BEGIN")
        seen = reader.execute("SELECT max(last_index) FROM log").fetchone()
        await write_batches(log, 60)
        # It holds the write-ahead file back, but not the log.
        assert reader.execute("SELECT max(last_index) FROM log").fetchone() == seen == (81,)
        assert log.status().applied_index == 1 + 65 * 16
        reader.close()
        await write_batches(log, 60)
        await log.stop()
        again = CountingMachine()
        log = replicator(memory_path / "log", again)
        await log.start()
        await log.stop()
        assert again.count == 125 * 16

    asyncio.run(body())


def test_pages_that_compaction_frees_are_used_again_and_given_back(memory_path: Path) -> None:
    async def body() -> None:
        log = replicator(memory_path / "log", CountingMachine(), snapshot_bytes=2 * MIB, wal_bytes=256 * KIB)
        await log.start()
        for _ in range(8):
            await write_batches(log, 100)
        # 25 MiB were written; two snapshot intervals and the free pages of a third may stay.
        async with asyncio.timeout(10):
            while log.status().bytes_on_disk > 10 * MIB:
                await log.snapshot()
                await log.propose_batch([bytes(70 * KIB)] * 16, term=1)
        await log.stop()
        assert (memory_path / "log" / "log.db").stat().st_size < 10 * MIB

    asyncio.run(body())
