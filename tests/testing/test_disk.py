"""The simulated disk: what a crash keeps, and faults on request."""

from __future__ import annotations

import errno
import random
import sqlite3
from pathlib import Path

import pytest

from fastplan.testing.disk import Crash, SimulatedDisk


def images(disk: SimulatedDisk, *, subsets: int = 64) -> list[dict[str, bytes]]:
    """The images after the last operation."""
    return [crash.files for crash in disk.crashes(random.Random(1), subsets=subsets) if crash.position == len(disk.operations)]


def test_what_was_flushed_is_in_every_image_and_the_rest_in_any_combination(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    file = disk.open(tmp_path / "a")
    file.write_at(0, b"1111")
    file.sync()
    file.write_at(1, b"2")
    file.write_at(2, b"3")
    file.close()
    assert (tmp_path / "a").read_bytes() == b"1231"
    assert sorted(image["a"] for image in images(disk)) == [b"1111", b"1131", b"1211", b"1231"]


def test_a_large_write_may_be_torn_at_a_sector(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    file = disk.open(tmp_path / "a")
    file.sync()
    file.write_at(0, b"x" * 2048)
    file.close()
    lengths = {len(crash.files.get("a", b"")) for seed in range(400) for crash in disk.crashes(random.Random(seed), subsets=8)}
    assert lengths == {0, 512, 1024, 1536, 2048}


def test_names_are_durable_only_after_the_directory_is_flushed(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    file = disk.open(tmp_path / "a.tmp")
    file.write_at(0, b"new")
    file.sync()
    file.close()
    disk.rename(tmp_path / "a.tmp", tmp_path / "a")
    assert sorted(sorted(image) for image in images(disk)) == [["a"], ["a.tmp"]]
    disk.sync_directory(tmp_path)
    assert images(disk) == [{"a": b"new"}]
    disk.remove(tmp_path / "a")
    assert sorted(map(len, images(disk))) == [0, 1]
    assert not (tmp_path / "a").exists()


def test_a_transaction_is_in_every_image_once_it_has_returned(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path / "disk")
    disk.root.mkdir()
    connection = disk.connect(disk.root / "t.db")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    # SQLite does not flush the removal of the rollback journal; if it came back it would undo the change of mode.
    disk.sync_directory(disk.root)
    connection.execute("CREATE TABLE t(a)")
    connection.execute("INSERT INTO t VALUES (?)", ("x",))
    for number, crash in enumerate(disk.crashes(random.Random(2), subsets=16)):
        if crash.position == len(disk.operations):
            crash.write_to(tmp_path / str(number))
            copy = sqlite3.connect(tmp_path / str(number) / "t.db")
            assert copy.execute("SELECT a FROM t").fetchall() == [("x",)]
            copy.close()
    connection.close()


def test_crashes_can_be_repeated_from_their_seed(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    file = disk.open(tmp_path / "a")
    for number in range(12):
        file.write_at(number, b"%d" % (number % 10))
    file.close()

    def drawn(seed: int) -> list[Crash]:
        return list(disk.crashes(random.Random(seed), subsets=8))

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_faults_strike_after_so_many_operations_until_healed(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    disk.fail("write", "a", after=1, error=errno.ENOSPC)
    file, other = disk.open(tmp_path / "a"), disk.open(tmp_path / "b")
    file.write_at(0, b"x")
    other.write_at(0, b"x")
    for _ in range(2):
        with pytest.raises(OSError, match="No space left on device"):
            file.write_at(0, b"y")
    disk.heal()
    file.write_at(0, b"z")
    file.close()
    other.close()
    assert (tmp_path / "a").read_bytes() == b"z"


def test_a_flush_that_fails_loses_what_it_should_have_flushed(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    file = disk.open(tmp_path / "a")
    file.write_at(0, b"11")
    file.sync()
    file.write_at(0, b"2")
    disk.fail("sync", "a")
    with pytest.raises(OSError, match="Input/output error"):
        file.sync()
    disk.heal()
    file.write_at(1, b"3")
    file.sync()
    file.close()
    assert (tmp_path / "a").read_bytes() == b"23"
    assert images(disk) == [{"a": b"13"}]


def test_sqlite_sees_a_full_disk_as_such(tmp_path: Path) -> None:
    disk = SimulatedDisk(tmp_path)
    connection = disk.connect(tmp_path / "t.db")
    connection.execute("CREATE TABLE t(a)")
    disk.fail("write", "t.db", error=errno.ENOSPC)
    with pytest.raises(sqlite3.OperationalError) as caught:
        connection.execute("INSERT INTO t VALUES (1)")
    assert caught.value.sqlite_errorcode == sqlite3.SQLITE_FULL
    disk.heal()
    connection.close()
