"""A log store without threads, for tests that look at one step at a time."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from fastplan.replication.directory import DataDirectory
from fastplan.replication.disk import Disk, FileSystem
from fastplan.replication.packing import ENTRY, NOOP
from fastplan.replication.snapshots import read_snapshot, write_snapshot
from fastplan.replication.store import LogStore, StoreOptions

CLUSTER = bytes(range(16))


def entry_of(index: int) -> bytes:
    """The entry that every test writes at *index*; some fill several pages, some are empty."""
    rng = random.Random(index)
    return rng.randbytes(rng.choice((0, 1, 40, 600, 9_000, 20_000)))


def state_at(index: int) -> bytes:
    """The content of a snapshot at *index*."""
    return b"".join(entry_of(each) for each in range(1, index + 1)) + b"|%d" % index


class OpenStore:
    """A directory with its store, recovered and ready."""

    def __init__(self, root: Path, *, disk: FileSystem | None = None, cluster_id: bytes = CLUSTER, wal_bytes: int = 0) -> None:
        self.disk = disk or Disk()
        self.directory = DataDirectory(root, self.disk)
        options = StoreOptions("n1", "local", cluster_id, keep_entries=0, keep_bytes=0, wal_bytes=wal_bytes, reserve_bytes=0, slack_bytes=0)
        self.store = LogStore(self.directory, self.disk, options)
        self.entries: dict[int, bytes] = {}
        self.snapshot_state = b""
        self.snapshot_index = 0
        try:
            self.directory.acquire()
            self.store.open()
            snapshot = self.store.best_snapshot()
            if snapshot is not None:
                self.snapshot_index = snapshot.index
                self.snapshot_state = b"".join(read_snapshot(self.directory.snapshots, self.store.cluster_id, snapshot))
            for chunk in self.store.replay(self.snapshot_index):
                self.entries.update((index, entry) for index, _, entry, _ in chunk.items)
            self.store.begin()
        except BaseException:
            self.close()
            raise

    def append(self, count: int, *, term: int = 1) -> None:
        """Append entries by their index, as one row."""
        start = self.store.last_index + 1
        self.store.append(term, ENTRY, [entry_of(index) for index in range(start, start + count)], [b"key-%d" % index for index in range(start, start + count)])

    def append_noop(self, term: int) -> None:
        """Append what opens a term."""
        self.store.append(term, NOOP, [b""], [b""])

    def snapshot(self, after_step: Callable[[], None] = lambda: None) -> None:
        """Take a snapshot at the last index and compact behind it."""
        index = self.store.last_index
        record = write_snapshot(self.disk, self.directory.snapshots, self.store.cluster_id, index, self.store.last_term, [state_at(index)])
        after_step()
        self.store.record_snapshot(record)
        after_step()
        while self.store.compact_step():
            after_step()

    def close(self, *, failed: bool = False) -> None:
        """Close everything."""
        self.store.close(failed=failed)
        self.directory.release()

    def check(self, at_least: int, at_most: int) -> None:
        """Assert that what was recovered is a prefix of what was written, and long enough."""
        last = self.store.last_index
        assert at_least <= last <= at_most
        if self.snapshot_index:
            assert self.snapshot_state == state_at(self.snapshot_index)
        for index in range(self.snapshot_index + 1, last + 1):
            assert self.entries[index] == entry_of(index)
