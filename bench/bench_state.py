"""Commits into the state, and into objects and dicts. A batch can be committed once, so each round has its own."""

import pytest

from fastplan.benchmarks.state import CommitCase, plain_rows


@pytest.fixture(scope="module")
def case(sizes):
    return CommitCase(sizes("state").nodes, sizes("state").allocs_per_node)


@pytest.mark.benchmark(group="state")
def test_commit(benchmark, case):
    before = case.store.alloc_count()
    batches = iter(case.next_batches())
    benchmark.pedantic(case.commit, setup=lambda: ((next(batches),), {}), rounds=1)
    assert case.snapshot.alloc_count() > before


@pytest.mark.benchmark(group="state")
def test_plain(benchmark, case):
    rows = plain_rows(case.store, case.next_batches()[0])
    benchmark.pedantic(case.commit_plainly, args=(rows,), rounds=1)
    assert len(case.plain.by_id) >= len(rows)


def test_closing_ratio(closing):
    closing("state", {"commit_ns", "snapshot_us", "bytes_per_alloc"})
