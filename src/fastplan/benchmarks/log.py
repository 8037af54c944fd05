"""The log alone: entries a second into the SQLite store, beside a raw write and flush of groups of the same size into an allocated file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

from fastplan.benchmarks.measuring import Answer, assert_equal, file_system, medians, quantile
from fastplan.replication import LocalReplicator, LocalSettings, LogItem
from fastplan.replication.directory import DataDirectory
from fastplan.replication.disk import Disk
from fastplan.replication.packing import ENTRY
from fastplan.replication.store import LogStore, StoreOptions

ENTRY_BYTES = 512
_MIB = 1 << 20
_flush_data = getattr(os, "fdatasync", os.fsync)


@dataclass(frozen=True, slots=True)
class Sizes:
    """*rounds* turns of *groups* groups of *group* entries each; *in_flight* groups on their way when the whole replicator is measured."""

    rounds: int
    groups: int
    group: int = 64
    in_flight: int = 4


SIZES = {"toy": Sizes(rounds=3, groups=4, group=8), "full": Sizes(rounds=15, groups=200)}


class RawFile:
    """A file that is allocated ahead and written round and round, one flush a group: what the disk can do."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        self._size_bytes = size_bytes
        self._offset = 0
        zeros = bytes(_MIB)
        for start in range(0, size_bytes, _MIB):
            os.pwrite(self._descriptor, zeros[: size_bytes - start], start)
        os.fsync(self._descriptor)

    def append(self, group: bytes) -> None:
        """Write a group behind the one before and flush it."""
        if self._offset + len(group) > self._size_bytes:
            self._offset = 0
        os.pwrite(self._descriptor, group, self._offset)
        _flush_data(self._descriptor)
        self._offset += len(group)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


@contextmanager
def open_store(path: Path) -> Iterator[LogStore]:
    """Open a new log as the `local` backend does, without its threads."""
    limits = LocalSettings(directory=path)
    disk = Disk()
    directory = DataDirectory(path, disk)
    options = StoreOptions(
        node_id=limits.node_id,
        backend="local",
        cluster_id=None,
        keep_entries=limits.keep_entries,
        keep_bytes=limits.keep_bytes,
        wal_bytes=limits.wal_bytes,
        reserve_bytes=0,
        slack_bytes=limits.snapshot_bytes,
    )
    directory.acquire()
    store = LogStore(directory, disk, options)
    try:
        store.open()
        store.begin()
        yield store
    finally:
        store.close()
        directory.release()


def stored_entries(path: Path) -> list[bytes]:
    """Return all entries of a log that is closed."""
    disk = Disk()
    directory = DataDirectory(path, disk)
    options = StoreOptions(node_id="local", backend="local", cluster_id=None, keep_entries=0, keep_bytes=0, wal_bytes=0, reserve_bytes=0, slack_bytes=0)
    directory.acquire()
    store = LogStore(directory, disk, options)
    try:
        store.open()
        return [item[2] for chunk in store.replay(0) for item in chunk.items]
    finally:
        store.close()
        directory.release()


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `log`: groups go to the store and to the raw file in turn; what the store holds afterwards is compared with what was written."""
    group = [os.urandom(ENTRY_BYTES) for _ in range(sizes.group)]
    keys = [b""] * sizes.group
    joined = b"".join(group)
    times: dict[str, list[float]] = {"store": [], "raw": []}
    raw = RawFile(directory / "raw", 2 * _MIB if sizes.groups < 64 else 32 * _MIB)
    with open_store(directory / "log") as store:
        store.append(1, ENTRY, group, keys)
        raw.append(joined)
        sides: dict[str, Callable[[], None]] = {"store": lambda: store.append(1, ENTRY, group, keys), "raw": lambda: raw.append(joined)}
        for _ in range(sizes.rounds):
            for name, append in sides.items():
                for _ in range(sizes.groups):
                    start = perf_counter_ns()
                    append()
                    times[name].append(perf_counter_ns() - start)
            if store.checkpoint_due():
                # The commit thread does this beside its work; here it would stand between the two that are compared.
                store.checkpoint()
                store.finish_checkpoint()
        syncs = store.syncs
    raw.close()
    group_count = sizes.rounds * sizes.groups + 1
    assert_equal(stored_entries(directory / "log"), group * group_count, "entries in the log after it was opened again")
    assert_equal(syncs, group_count, "flushes, one a group")
    whole_s, whole_syncs = asyncio.run(_through_replicator(directory / "replicator", group, group_count - 1, sizes.in_flight))
    middle = medians(times)
    per_s = 1e9 * sizes.group / middle["store"]
    raw_per_s = 1e9 * sizes.group / middle["raw"]
    figures = {
        "entries_per_s": per_s,
        "of_raw": middle["raw"] / middle["store"],
        "raw_entries_per_s": raw_per_s,
        "p99_of_raw": quantile(times["store"], 0.99) / quantile(times["raw"], 0.99),
        "replicator_entries_per_s": (group_count - 1) * sizes.group / whole_s,
        "replicator_entries_per_sync": (group_count - 1) * sizes.group / whole_syncs,
    }
    return Answer(
        figures,
        [
            f"entries of {ENTRY_BYTES} bytes in groups of {sizes.group}, one flush each, on {file_system(str(directory))}",
            f"raw write and flush: {middle['raw'] / 1e3:,.0f} µs a group, {raw_per_s:,.0f} entries/s; p99 {quantile(times['raw'], 0.99) / 1e3:,.0f} µs",
            f"log store: {middle['store'] / 1e3:,.0f} µs a group; p99 {quantile(times['store'], 0.99) / 1e3:,.0f} µs",
            f"opened again, it holds all {group_count * sizes.group:,} entries",
            f"whole replicator, {sizes.in_flight} groups under way: {figures['replicator_entries_per_s']:,.0f} entries/s, "
            f"{figures['replicator_entries_per_sync']:,.0f} a flush",
            f"the log reaches {figures['of_raw']:.0%} of raw write and flush",
        ],
    )


class _Counting:
    """A state machine that only counts."""

    def __init__(self) -> None:
        self.applied = 0
        self.count = 0

    def apply(self, batch: Sequence[LogItem]) -> Sequence[object]:
        self.applied = batch[-1][0]
        self.count += len(batch)
        return [None] * len(batch)

    def snapshot(self) -> Iterator[bytes]:
        return iter([self.applied.to_bytes(8, "little")])

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.applied = int.from_bytes(b"".join(chunks), "little")


async def _through_replicator(path: Path, group: Sequence[bytes], groups: int, in_flight: int) -> tuple[float, int]:
    """Send *groups* groups through the replicator, *in_flight* at a time; return the seconds and the flushes that took."""
    machine = _Counting()
    replicator = LocalReplicator(LocalSettings(directory=path, reserve_bytes=0), machine)
    await replicator.start()
    term = replicator.status().term
    left = iter(range(groups))

    async def submit() -> None:
        for _ in left:
            await replicator.propose_batch(group, term=term)

    syncs = replicator.status().syncs
    start = perf_counter_ns()
    await asyncio.gather(*(submit() for _ in range(in_flight)))
    seconds = (perf_counter_ns() - start) / 1e9
    syncs = replicator.status().syncs - syncs
    await replicator.stop()
    assert_equal(machine.count, groups * len(group), "entries that the state machine has seen")
    return seconds, syncs
