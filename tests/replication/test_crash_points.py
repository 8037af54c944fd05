"""F1: a power failure after every single operation of a short run, with any part of what was not flushed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from fastplan.errors import Corrupt, StorageFailed
from fastplan.replication.packing import ENTRY
from fastplan.testing.disk import Crash, SimulatedDisk
from tests.replication.stores import OpenStore
from tests.sizes import sized


class Run:
    """A short run on a simulated disk: what was acknowledged, and what had been asked for, after how many operations."""

    def __init__(self, root: Path) -> None:
        self.disk = SimulatedDisk(root)
        self.asked: list[tuple[int, int]] = [(0, 0)]
        self.acknowledged: list[tuple[int, int]] = [(0, 0)]

    def append(self, opened: OpenStore, count: int) -> None:
        self.asked.append((len(self.disk.operations), opened.store.last_index + count))
        opened.append(count)
        self.acknowledged.append((len(self.disk.operations), opened.store.last_index))

    def bounds(self, position: int) -> tuple[int, int]:
        """Return how long the log must and may be after a crash at *position*."""
        least = max(index for at, index in self.acknowledged if at <= position)
        most = max(index for at, index in self.asked if at <= position)
        return least, most


def short_run(root: Path) -> Run:
    run = Run(root)
    opened = OpenStore(root, disk=run.disk)
    run.append(opened, 1)
    run.append(opened, 7)
    opened.store.checkpoint()
    run.append(opened, 2)
    opened.snapshot()
    run.append(opened, 5)
    opened.store.finish_checkpoint()
    # The write-ahead file starts anew here.
    run.append(opened, 1)
    opened.snapshot()
    run.append(opened, 3)
    opened.snapshot()
    run.append(opened, 1)
    opened.close()
    opened = OpenStore(root, disk=run.disk)
    run.append(opened, 4)
    opened.close(failed=True)
    return run


@pytest.mark.parametrize(("subsets", "seed"), [(5, 1), pytest.param(sized(40, 200), 2, marks=pytest.mark.slow)])
def test_a_power_failure_at_any_operation_loses_nothing_acknowledged(memory_path: Path, subsets: int, seed: int) -> None:
    run = short_run(memory_path / "disk")
    rng = random.Random(seed)
    seen: dict[int, int] = {}
    for number, crash in enumerate(run.disk.crashes(rng, subsets=subsets)):
        least, most = run.bounds(crash.position)
        # Most operations change nothing that a crash would leave: an image needs a second look only if more must be in it.
        fingerprint = hash(frozenset(crash.files.items()))
        if seen.get(fingerprint, -1) >= least:
            continue
        seen[fingerprint] = least
        root = memory_path / f"crash-{number}"
        crash.write_to(root)
        recovered = OpenStore(root)
        recovered.check(least, most)
        recovered.append(2)
        recovered.close()
        shutil.rmtree(root)
    assert len(seen) > 150


def test_the_log_goes_on_after_a_crash_in_the_middle_of_recovering(memory_path: Path) -> None:
    run = short_run(memory_path / "disk")
    rng = random.Random(3)
    crashes = list(run.disk.crashes(rng, subsets=2))
    for number, crash in enumerate(rng.sample(crashes, 6)):
        least, _ = run.bounds(crash.position)
        root = memory_path / f"first-{number}"
        # The second disk starts from the image: laid out by writes that are flushed, so that only the recovery itself can be lost.
        disk = SimulatedDisk(root)
        _lay_out(disk, crash)
        start = len(disk.operations)
        again = OpenStore(root, disk=disk)
        again.append(1)
        last = again.store.last_index
        again.close(failed=True)
        for inner, second in enumerate(disk.crashes(rng, subsets=3)):
            if second.position >= start:
                place = memory_path / f"second-{number}-{inner}"
                second.write_to(place)
                recovered = OpenStore(place)
                recovered.check(least, last)
                recovered.close()
                shutil.rmtree(place)


def _lay_out(disk: SimulatedDisk, crash: Crash) -> None:
    disk.root.mkdir()
    crash.write_to(disk.root)
    for name, content in crash.files.items():
        disk.record("create", disk.root / name)
        disk.record("write", disk.root / name, data=content)
        disk.record("sync", disk.root / name)


def test_what_only_the_cache_holds_after_a_failed_flush_is_made_durable_before_anything_builds_on_it(memory_path: Path) -> None:
    """A restart reads the entries of the failed flush from the system's cache, though the disk will never get them from there."""
    disk = SimulatedDisk(memory_path / "disk")
    opened = OpenStore(memory_path / "disk", disk=disk)
    opened.append(3)
    disk.fail("sync", "log.db-wal")
    with pytest.raises(StorageFailed):
        opened.append(2)
    opened.close(failed=True)
    disk.heal()
    again = OpenStore(memory_path / "disk", disk=disk)
    again.check(5, 5)
    again.append(1)
    again.close(failed=True)
    crashes = [crash for crash in disk.crashes(random.Random(5), subsets=16) if crash.position == len(disk.operations)]
    for number, crash in enumerate(crashes):
        crash.write_to(memory_path / str(number))
        recovered = OpenStore(memory_path / str(number))
        recovered.check(6, 6)
        recovered.close()


def _planted_crashes(memory_path: Path) -> Iterator[Crash]:
    disk = SimulatedDisk(memory_path / "disk")
    opened = OpenStore(memory_path / "disk", disk=disk)
    assert opened.store._writer is not None
    opened.store._writer.execute("PRAGMA synchronous=OFF")
    opened.store.append(1, ENTRY, [b"x" * 100], [b""])
    opened.close(failed=True)
    yield from disk.crashes(random.Random(4), subsets=8)


def test_the_simulated_disk_finds_a_log_that_acknowledges_before_the_flush(memory_path: Path) -> None:
    """A planted fault: without the flush some image lacks the entry, and the high-water mark tells."""
    lost = 0
    for number, crash in enumerate(_planted_crashes(memory_path)):
        root = memory_path / f"crash-{number}"
        crash.write_to(root)
        try:
            OpenStore(root).close()
        except Corrupt as problem:
            lost += "were acknowledged and cannot be read" in str(problem)
    assert lost > 0
