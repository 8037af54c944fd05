"""The real disk: reserving, allocating ahead, and a small file system that really runs full (F4)."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastplan.errors import Busy, ReplicationError, StorageFailed
from fastplan.replication import LocalReplicator
from fastplan.replication.disk import Disk
from tests.replication.machines import RememberingMachine, replicator

KIB = 1 << 10
MIB = 1 << 20


def test_a_reserve_occupies_its_size_until_it_is_removed(tmp_path: Path) -> None:
    disk = Disk()
    disk.reserve(tmp_path / "reserve", 3 * MIB)
    assert (tmp_path / "reserve").stat().st_size == 3 * MIB
    assert (tmp_path / "reserve").stat().st_blocks * 512 >= 3 * MIB
    disk.reserve(tmp_path / "reserve", MIB)
    assert (tmp_path / "reserve").stat().st_size == MIB
    disk.remove(tmp_path / "reserve")
    disk.remove(tmp_path / "reserve")
    assert disk.free_bytes(tmp_path) > 0


def test_extending_a_file_leaves_what_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    Disk().extend(path, 2 * MIB + 5)
    assert path.read_bytes() == b"content" + bytes(2 * MIB - 2)
    Disk().extend(path, 10)
    assert path.stat().st_size == 2 * MIB + 5


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 12 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", place], capture_output=True, check=False).returncode:
        pytest.skip("mounting a small file system needs more rights")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


async def fill(log: LocalReplicator) -> tuple[int, ReplicationError]:
    """Propose entries until the log refuses; return how many were acknowledged, and the refusal."""
    for acknowledged in itertools.count():
        try:
            await log.propose(b"%d" % acknowledged + bytes(100 * KIB), term=1)
        except ReplicationError as problem:
            return acknowledged, problem
    raise AssertionError("a count does not end")


def test_a_disk_that_runs_full_stops_the_replica_and_loses_nothing(small_disk: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        log = replicator(small_disk / "log", machine, snapshot_bytes=1 << 40)
        await log.start()
        acknowledged, problem = await fill(log)
        assert isinstance(problem, StorageFailed)
        assert "full" in str(problem)
        assert acknowledged > 20
        await log.stop()
        # Whoever starts it again on a full disk hears the same.
        again = RememberingMachine()
        log = replicator(small_disk / "log", again)
        try:
            await log.start()
        except StorageFailed as problem:
            assert "full" in str(problem) or "No space" in str(problem)
        await log.stop()
        subprocess.run(["mount", "-o", "remount,size=40m", small_disk], check=True)
        again = RememberingMachine()
        log = replicator(small_disk / "log", again)
        await log.start()
        assert again.entries[:acknowledged] == [b"%d" % number + bytes(100 * KIB) for number in range(acknowledged)]
        assert len(again.entries) <= acknowledged + 1
        await log.propose(b"goes on", term=log.status().term)
        await log.stop()

    asyncio.run(body())


def test_a_nearly_full_disk_refuses_before_anything_fails(small_disk: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        log = replicator(small_disk / "log", machine, snapshot_bytes=1 << 40, low_water_bytes=3 * MIB, reserve_bytes=2 * MIB)
        await log.start()
        acknowledged, problem = await fill(log)
        assert isinstance(problem, Busy)
        assert "nearly full" in str(problem)
        assert acknowledged > 20
        assert not (small_disk / "log" / "reserve").exists()
        waiting = asyncio.create_task(log.ready())
        subprocess.run(["mount", "-o", "remount,size=60m", small_disk], check=True)
        async with asyncio.timeout(10):
            await waiting
        await log.propose(b"goes on", term=1)
        assert (small_disk / "log" / "reserve").stat().st_size == 2 * MIB
        assert len(machine.log) == acknowledged + 1
        await log.stop()

    asyncio.run(body())
