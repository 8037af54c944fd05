"""A state machine that remembers everything, and settings small enough for tests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from fastplan.replication import LocalReplicator, LocalSettings, LogItem, StateMachine
from fastplan.replication.disk import FileSystem


def small_settings(directory: Path, **changes: Any) -> LocalSettings:
    """Settings without preallocation and reserve, and with a keep-nothing compaction."""
    values: dict[str, Any] = {"wal_bytes": 1 << 20, "reserve_bytes": 0, "low_water_bytes": 0, "keep_entries": 0, "keep_bytes": 0}
    return LocalSettings(directory=directory, **{**values, **changes})


def replicator(directory: Path, machine: StateMachine, *, disk: FileSystem | None = None, **changes: Any) -> LocalReplicator:
    """A local replicator with small settings."""
    return LocalReplicator(small_settings(directory, **changes), machine, disk=disk)


class RememberingMachine:
    """Keeps every entry with its index and term; answers a repeated key with the first result. The result of an entry is its number."""

    def __init__(self) -> None:
        self.applied = 0
        self.log: list[LogItem] = []
        self.results_by_key: dict[bytes, int] = {}
        self.batches: list[int] = []
        self.restores = 0
        self.chunk_delay_s = 0.0
        self.fail_at: int | None = None

    @property
    def entries(self) -> list[bytes]:
        """The entries alone, in order."""
        return [item[2] for item in self.log]

    def apply(self, batch: Sequence[LogItem]) -> Sequence[object]:
        results = []
        for item in batch:
            index, _, _, key = item
            assert index > self.applied, "an index was applied twice or out of order"
            if index == self.fail_at:
                raise ValueError("a planted defect")
            self.applied = index
            if key and key in self.results_by_key:
                results.append(self.results_by_key[key])
                continue
            self.log.append(item)
            results.append(len(self.log))
            if key:
                self.results_by_key[key] = len(self.log)
        self.batches.append(len(batch))
        return results

    def snapshot(self) -> Iterator[bytes]:
        applied, log, results_by_key = self.applied, list(self.log), dict(self.results_by_key)

        def chunks() -> Iterator[bytes]:
            yield json.dumps({"applied": applied, "keys": {key.hex(): result for key, result in results_by_key.items()}}).encode() + b"\n"
            for index, term, entry, key in log:
                if self.chunk_delay_s:
                    time.sleep(self.chunk_delay_s)
                yield f"{index} {term} {entry.hex()} {key.hex()}\n".encode()

        return chunks()

    def restore(self, chunks: Iterable[bytes]) -> None:
        head, *lines = b"".join(chunks).decode().splitlines()
        state = json.loads(head)
        self.applied = state["applied"]
        self.results_by_key = {bytes.fromhex(key): result for key, result in state["keys"].items()}
        self.log = []
        for line in lines:
            index, term, entry, key = line.split(" ")
            self.log.append((int(index), int(term), bytes.fromhex(entry), bytes.fromhex(key)))
        self.restores += 1


class CountingMachine:
    """Only counts, for long logs."""

    def __init__(self) -> None:
        self.applied = 0
        self.count = 0

    def apply(self, batch: Sequence[LogItem]) -> Sequence[object]:
        self.applied = batch[-1][0]
        self.count += len(batch)
        return [None] * len(batch)

    def snapshot(self) -> Iterator[bytes]:
        return iter([json.dumps([self.applied, self.count]).encode()])

    def restore(self, chunks: Iterable[bytes]) -> None:
        self.applied, self.count = json.loads(b"".join(chunks))
