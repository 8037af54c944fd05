"""The settings of the backend `local`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from fastplan.errors import InvalidInput
from fastplan.replication.commit_thread import CommitLimits
from fastplan.replication.store import StoreOptions

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """Where a local log lives and its limits; sizes in bytes. Raises `InvalidInput` for a value that makes no sense.

    A snapshot is taken after `snapshot_entries` entries or `snapshot_bytes` of log; the log behind it is deleted but for `keep_entries`
    entries and `keep_bytes`, and never beyond the older of two snapshots. The write-ahead file is allocated ahead and reused at
    `wal_bytes`. A disk with less than `low_water_bytes` left refuses proposals; `reserve_bytes` are kept back for recovering from that.
    """

    directory: Path
    node_id: str = "local"
    cluster_id: bytes | None = None
    max_entry_bytes: int = 8 * _MIB
    max_pending_entries: int = 8_192
    max_pending_bytes: int = 64 * _MIB
    flush_bytes: int = 8 * _MIB
    snapshot_entries: int = 100_000
    snapshot_bytes: int = 64 * _MIB
    keep_entries: int = 10_000
    keep_bytes: int = 64 * _MIB
    wal_bytes: int = 32 * _MIB
    low_water_bytes: int = 64 * _MIB
    reserve_bytes: int = 64 * _MIB

    def __post_init__(self) -> None:
        may_be_zero = {"keep_entries", "keep_bytes", "wal_bytes", "low_water_bytes", "reserve_bytes"}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "int":
                least = 0 if field.name in may_be_zero else 1
                if not isinstance(value, int) or isinstance(value, bool) or value < least:
                    raise InvalidInput(f"replication.{field.name}", value, f"integer ≥ {least}")
        if not self.node_id:
            raise InvalidInput("replication.node_id", self.node_id, "a name")
        if self.cluster_id is not None and len(self.cluster_id) != 16:
            raise InvalidInput("replication.cluster_id", self.cluster_id, "16 bytes")
        if self.max_entry_bytes > self.max_pending_bytes:
            raise InvalidInput("replication.max_entry_bytes", self.max_entry_bytes, f"at most max_pending_bytes ({self.max_pending_bytes})")

    def store_options(self) -> StoreOptions:
        """Return the part that the log store needs."""
        return StoreOptions(
            node_id=self.node_id,
            backend="local",
            cluster_id=self.cluster_id,
            keep_entries=self.keep_entries,
            keep_bytes=self.keep_bytes,
            wal_bytes=self.wal_bytes,
            reserve_bytes=self.reserve_bytes,
            slack_bytes=self.snapshot_bytes,
        )

    def commit_limits(self) -> CommitLimits:
        """Return the part that the commit thread needs."""
        return CommitLimits(self.flush_bytes, self.low_water_bytes, self.reserve_bytes)
