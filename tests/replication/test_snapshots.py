"""Snapshots: the file, automatic ones under load, compaction behind them, restart, fallback (F11)."""

from __future__ import annotations

import asyncio
import itertools
import random
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastplan.errors import Closed, Corrupt, StorageFailed
from fastplan.replication.disk import Disk
from fastplan.replication.snapshots import BadSnapshot, SnapshotRecord, read_snapshot, write_snapshot
from fastplan.testing.disk import SimulatedDisk
from tests.replication.machines import RememberingMachine, replicator
from tests.replication.stores import CLUSTER, OpenStore

MIB = 1 << 20


@pytest.mark.parametrize("sizes", [[], [0], [1], [0, 5, 0], [MIB], [MIB - 1, 2], [3 * MIB + 7], [700_000] * 5])
def test_a_snapshot_reads_as_it_was_written(memory_path: Path, sizes: list[int]) -> None:
    rng = random.Random(len(sizes))
    chunks = [rng.randbytes(size) for size in sizes]
    record = write_snapshot(Disk(), memory_path, CLUSTER, 12, 3, chunks)
    assert record.file == "00000000000000000012-3.snap"
    assert record.size_bytes == sum(sizes)
    assert [path.name for path in memory_path.iterdir()] == [record.file]
    assert b"".join(read_snapshot(memory_path, CLUSTER, record)) == b"".join(chunks)


def test_every_changed_or_missing_byte_of_a_snapshot_is_noticed(memory_path: Path) -> None:
    record = write_snapshot(Disk(), memory_path, CLUSTER, 12, 3, [b"state of the cluster"])
    path = memory_path / record.file
    written = path.read_bytes()
    for at in range(len(written)):
        path.write_bytes(written[:at] + bytes((written[at] ^ 4,)) + written[at + 1 :])
        with pytest.raises(BadSnapshot):
            list(read_snapshot(memory_path, CLUSTER, record))
        path.write_bytes(written[:at])
        with pytest.raises(BadSnapshot):
            list(read_snapshot(memory_path, CLUSTER, record))
    path.write_bytes(written + b"x")
    with pytest.raises(BadSnapshot, match="bytes follow"):
        list(read_snapshot(memory_path, CLUSTER, record))
    path.write_bytes(written)
    for other in (SnapshotRecord(11, 3, 20, record.checksum, record.file), SnapshotRecord(12, 3, 20, 1, record.file)):
        with pytest.raises(BadSnapshot):
            list(read_snapshot(memory_path, CLUSTER, other))
    with pytest.raises(BadSnapshot):
        list(read_snapshot(memory_path, bytes(16), record))
    path.unlink()
    with pytest.raises(BadSnapshot, match="No such file"):
        list(read_snapshot(memory_path, CLUSTER, record))


def test_a_snapshot_whose_making_fails_leaves_no_file(memory_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * MIB
        raise ValueError("a planted defect")

    with pytest.raises(ValueError, match="planted"):
        write_snapshot(Disk(), memory_path, CLUSTER, 12, 3, broken())
    assert list(memory_path.iterdir()) == []


def test_snapshots_are_automatic_and_the_log_stays_short_under_load(memory_path: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        log = replicator(memory_path / "log", machine, snapshot_entries=500, keep_entries=100)
        await log.start()
        during = 0
        for number in range(600):
            await log.propose_batch([b"%d/%d" % (number, each) for each in range(10)], term=1)
            during += log.status().snapshot_index > 0
        assert during > 300
        assert log.status().applied_index == 6_001
        assert log.status().snapshot_index > 4_000
        assert log.status().health == ()
        await log.stop()
        connection = sqlite3.connect(memory_path / "log" / "log.db")
        ((first, last, rows),) = connection.execute("SELECT min(first_index), max(last_index), count(*) FROM log").fetchall()
        older, newer = (index for (index,) in connection.execute("SELECT snapshot_index FROM snapshot ORDER BY snapshot_index").fetchall())
        connection.close()
        # The log reaches back to the older snapshot, so that it can stand in for the newer.
        assert first <= older + 1
        assert first > older - 200
        assert (last, newer) == (6_001, log.status().snapshot_index)
        assert rows < 250
        assert len(list((memory_path / "log" / "snap").iterdir())) == 2
        again = RememberingMachine()
        log = replicator(memory_path / "log", again)
        await log.start()
        await log.stop()
        assert again.restores == 1
        assert again.log == machine.log

    asyncio.run(body())


def test_a_slow_snapshot_does_not_hold_up_commits_and_is_never_two(memory_path: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        log = replicator(memory_path / "log", machine, snapshot_entries=50)
        await log.start()
        await log.propose_batch([b"x"] * 40, term=1)
        machine.chunk_delay_s = 0.01
        taking = asyncio.create_task(log.snapshot())
        await asyncio.sleep(0)
        committed = 0
        while not taking.done():
            await log.propose_batch([b"y"] * 30, term=1)
            committed += 1
            assert len(list((memory_path / "log" / "snap").iterdir())) <= 2
        assert committed > 10
        # It holds the state of the moment when it was asked for.
        assert await taking == 41
        machine.chunk_delay_s = 0.0
        assert await log.snapshot() == await log.snapshot() == log.status().applied_index
        await log.stop()

    asyncio.run(body())


def test_stopping_abandons_a_snapshot_in_the_making(memory_path: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        log = replicator(memory_path / "log", machine)
        await log.start()
        for _ in range(4):
            await log.propose_batch([b"x" * 4096] * 500, term=1)
        machine.chunk_delay_s = 0.002
        taking = asyncio.create_task(log.snapshot())
        await asyncio.sleep(0.1)
        async with asyncio.timeout(1):
            await log.stop()
        (problem,) = await asyncio.gather(taking, return_exceptions=True)
        assert isinstance(problem, Closed)
        assert list((memory_path / "log" / "snap").iterdir()) == []
        again = RememberingMachine()
        log = replicator(memory_path / "log", again)
        await log.start()
        await log.stop()
        assert again.log == machine.log

    asyncio.run(body())


def test_stopping_under_load_starts_no_snapshot(memory_path: Path) -> None:
    taken: list[int] = []

    class Counting(RememberingMachine):
        def snapshot(self) -> Iterator[bytes]:
            taken.append(self.applied)
            return super().snapshot()

    async def body() -> None:
        log = replicator(memory_path / "log", Counting(), snapshot_entries=20)
        await log.start()
        handles = [log.propose_batch([b"x"] * 30, term=1) for _ in range(20)]
        await log.stop()
        assert all(handle.done() for handle in handles)
        assert taken == []

    asyncio.run(body())


def test_a_disk_that_fails_ends_a_snapshot_in_the_making(memory_path: Path) -> None:
    async def body() -> None:
        disk = SimulatedDisk(memory_path / "log")
        machine = RememberingMachine()
        log = replicator(memory_path / "log", machine, disk=disk)
        await log.start()
        await log.propose_batch([b"x"] * 500, term=1)
        machine.chunk_delay_s = 0.01
        taking = asyncio.create_task(log.snapshot())
        await asyncio.sleep(0.05)
        disk.fail("sync", "log.db-wal")
        with pytest.raises(StorageFailed):
            await log.propose(b"x", term=1)
        async with asyncio.timeout(2):
            with pytest.raises(Closed):
                await taking
        await log.stop()
        assert list((memory_path / "log" / "snap").iterdir()) == []

    asyncio.run(body())


def test_a_snapshot_iterator_that_fails_is_reported_and_the_log_goes_on(memory_path: Path) -> None:
    class Broken(RememberingMachine):
        def snapshot(self) -> Iterator[bytes]:
            def chunks() -> Iterator[bytes]:
                yield b"x"
                raise ValueError("a planted defect")

            return chunks()

    async def body() -> None:
        log = replicator(memory_path / "log", Broken(), snapshot_entries=10)
        await log.start()
        with pytest.raises(ValueError, match="planted"):
            await log.snapshot()
        for _ in range(15):
            await log.propose(b"x", term=1)
        assert log.status().health == ("the last snapshot failed: a planted defect",)
        await log.stop()

    asyncio.run(body())


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_an_invalid_newest_snapshot_falls_back_with_a_warning(memory_path: Path, damage: str) -> None:
    opened = OpenStore(memory_path / "log")
    opened.append(5)
    opened.snapshot()
    opened.append(6)
    opened.snapshot()
    opened.append(2)
    opened.close()
    (newest,) = (memory_path / "log" / "snap").glob("*11-1.snap")
    content = newest.read_bytes()
    if damage == "remove":
        newest.unlink()
    else:
        newest.write_bytes(content[:-1] if damage == "truncate" else content[:-20] + b"!" + content[-19:])
    opened = OpenStore(memory_path / "log")
    assert opened.snapshot_index == 5
    opened.check(13, 13)
    assert "the snapshot of index 11 cannot be used" in opened.store.warnings[0]
    # The next one takes its place, and nothing that the older one needs is deleted.
    opened.append(1)
    opened.snapshot()
    assert [record.index for record in opened.store.snapshots] == [14, 5]
    opened.close()
    assert sorted(path.name[17:20] for path in (memory_path / "log" / "snap").iterdir()) == ["005", "014"]
    opened = OpenStore(memory_path / "log")
    assert opened.snapshot_index == 14
    opened.close()


def test_without_any_valid_snapshot_a_compacted_log_is_refused(memory_path: Path) -> None:
    opened = OpenStore(memory_path / "log")
    for _ in range(3):
        opened.append(4)
        opened.snapshot()
    opened.close()
    for path in (memory_path / "log" / "snap").iterdir():
        path.write_bytes(b"")
    with pytest.raises(Corrupt, match="entries 1 to 8 are neither in the table log nor in a valid snapshot") as caught:
        OpenStore(memory_path / "log")
    assert caught.value.index == 1


def test_the_only_snapshot_is_not_needed_while_the_log_begins_at_the_beginning(memory_path: Path) -> None:
    opened = OpenStore(memory_path / "log")
    opened.append(4)
    opened.snapshot()
    opened.append(3)
    opened.close()
    (only,) = (memory_path / "log" / "snap").iterdir()
    only.unlink()
    opened = OpenStore(memory_path / "log")
    assert opened.snapshot_index == 0
    opened.check(7, 7)
    opened.close()


def test_a_crash_in_each_step_of_a_snapshot_under_load(memory_path: Path) -> None:
    """F11: a power failure after every operation while snapshots are made, recorded and compacted behind, with commits between."""

    async def body() -> list[tuple[int, int]]:
        disk = SimulatedDisk(memory_path / "log")
        machine = RememberingMachine()
        log = replicator(memory_path / "log", machine, disk=disk, snapshot_entries=12, wal_bytes=64 << 10)
        await log.start()
        acknowledged = [(0, 0)]
        for number in range(14):
            await log.propose_batch([b"%d/%d" % (number, each) * 50 for each in range(4)], term=1)
            acknowledged.append((len(disk.operations), log.status().applied_index))
        await log.stop()
        assert log.status().snapshot_index > 12
        assert any(operation.kind == "rename" and operation.path.endswith(".tmp") for operation in disk.operations)
        checked = 0
        steps = itertools.islice(disk.crashes(random.Random(11), subsets=3), 0, None, 4)
        for crash in steps:
            least = max(index for at, index in acknowledged if at <= crash.position)
            root = memory_path / str(crash.position)
            crash.write_to(root)
            again = RememberingMachine()
            recovered = replicator(root, again, wal_bytes=0)
            await recovered.start()
            assert recovered.status().applied_index > least
            assert recovered.status().health == ()
            assert again.log == machine.log[: len(again.log)]
            assert not again.log or again.log[-1][0] >= least
            await recovered.stop()
            shutil.rmtree(root)
            checked += 1
        assert checked > 60
        return acknowledged

    asyncio.run(body())


def test_a_snapshot_at_the_same_index_is_not_taken_twice(memory_path: Path) -> None:
    async def body() -> None:
        log = replicator(memory_path / "log", RememberingMachine())
        await log.start()
        assert await log.snapshot() == 1
        syncs = log.status().syncs
        assert await log.snapshot() == 1
        assert log.status().syncs == syncs
        await log.stop()
        with pytest.raises(Closed, match="stopped"):
            await log.snapshot()

    asyncio.run(body())


def test_storage_that_fails_while_a_snapshot_is_recorded_stops_the_replica(memory_path: Path) -> None:
    async def body() -> None:
        disk = SimulatedDisk(memory_path / "log")
        log = replicator(memory_path / "log", RememberingMachine(), disk=disk)
        await log.start()
        disk.fail("sync", "log.db-wal")
        with pytest.raises(StorageFailed):
            await log.snapshot()
        with pytest.raises(StorageFailed):
            await log.propose(b"x", term=1)
        await log.stop()

    asyncio.run(body())
