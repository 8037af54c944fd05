"""Copy-on-write containers against plain dicts: a view never changes, whatever is written after it."""

from __future__ import annotations

import random

import pytest

from fastplan.state.records import CHUNK_ROWS, SHARD_ENTRIES_MAX, MapView, RecordMap, RecordTable, RecordView


@pytest.mark.parametrize("seed", range(10))
def test_a_table_and_its_views_hold_what_was_written(seed: int) -> None:
    rng = random.Random(seed)
    table: RecordTable[int] = RecordTable()
    model: dict[int, int] = {}
    views: list[tuple[RecordView[int], dict[int, int]]] = []
    for step in range(600):
        action = rng.random()
        if action < 0.5:
            row = table.add(step)
            assert row == min(set(range(len(model) + 1)) - model.keys())
            model[row] = step
        elif action < 0.7 and model:
            row = rng.choice(list(model))
            table.set(row, step)
            model[row] = step
        elif action < 0.8 and model:
            row = rng.choice(list(model))
            table.free(row)
            del model[row]
        elif action < 0.9:
            views.append((table.view(), dict(model)))
        assert dict(table.items()) == model
    for view, seen in views:
        assert dict(view.items()) == seen
        assert view.get(10 * CHUNK_ROWS) is None
        assert all(view[row] == record for row, record in seen.items())


def test_a_restored_table_gives_the_same_rows_next() -> None:
    table: RecordTable[str] = RecordTable()
    for name in "abcdef":
        table.add(name)
    for row in (4, 1, 5):
        table.free(row)
    twin: RecordTable[str] = RecordTable()
    twin.restore(table.items())
    assert [table.add(name) for name in "xyz"] == [twin.add(name) for name in "xyz"] == [1, 4, 5]
    assert list(table.items()) == list(twin.items())


def test_a_free_row_holds_no_record() -> None:
    table: RecordTable[str] = RecordTable()
    table.set(3, "there")
    assert table.get(2) is None
    with pytest.raises(KeyError):
        table[2]


@pytest.mark.parametrize("seed", range(10))
def test_a_map_and_its_views_hold_what_was_written(seed: int) -> None:
    rng = random.Random(seed)
    mapping: RecordMap[int, int] = RecordMap()
    model: dict[int, int] = {}
    views: list[tuple[MapView[int, int], dict[int, int]]] = []
    for step in range(6 * SHARD_ENTRIES_MAX):
        action = rng.random()
        if action < 0.7:
            key = rng.randrange(10_000)
            mapping.set(key, step)
            model[key] = step
        elif action < 0.85 and model:
            key = rng.choice(list(model))
            mapping.delete(key)
            del model[key]
        else:
            views.append((mapping.view(), dict(model)))
    views.append((mapping, model))
    for view, seen in views:
        assert dict(view.items()) == seen
        assert len(view) == len(seen)
        assert set(view.keys()) == seen.keys()
        assert sorted(view.values()) == sorted(seen.values())
        assert all(key in view and view[key] == view.get(key) for key in seen)
        assert 10_001 not in view
        assert view.get(10_001, "none") == "none"
    with pytest.raises(KeyError):
        mapping.delete(10_001)
