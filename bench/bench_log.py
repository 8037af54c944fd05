"""The log alone: a group of entries into the store, and the same bytes raw."""

import pytest

from fastplan.benchmarks.log import ENTRY_BYTES, RawFile, open_store, stored_entries
from fastplan.replication.packing import ENTRY


@pytest.mark.benchmark(group="log")
def test_store(benchmark, sizes, tmp_path):
    group = [bytes(ENTRY_BYTES)] * sizes("log").group
    with open_store(tmp_path / "log") as store:
        benchmark(store.append, 1, ENTRY, group, [b""] * len(group))
        assert store.last_index == store.syncs * len(group)
        written = store.last_index
    assert len(stored_entries(tmp_path / "log")) == written


@pytest.mark.benchmark(group="log")
def test_raw(benchmark, sizes, tmp_path):
    raw = RawFile(tmp_path / "raw", 1 << 20)
    benchmark(raw.append, bytes(ENTRY_BYTES * sizes("log").group))
    raw.close()
    assert (tmp_path / "raw").stat().st_size == 1 << 20


def test_closing_ratio(closing):
    closing("log", {"entries_per_s", "of_raw"})
