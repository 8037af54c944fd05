"""Visiting order, limits and the choice of one (schedulers 10): rows R12, R13, R18, and how ties are broken where every node is scored."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.scheduler.select import NodeSource, best, limited, option_limit, visiting_order
from fastplan.scheduler.ties import on_grid, tie_key, tie_seed
from fastplan.structs import Node


@dataclass
class Option:
    """The part of a ranked node that limits and choices read."""

    final_score: float


def scores_of(options: Any) -> list[float]:
    return [option.final_score for option in options]


def nodes(count: int) -> list[Node]:
    return [Node(id=f"n{number}") for number in range(count)]


def ids(found: Any) -> list[str]:
    return [node.id for node in found]


@pytest.mark.parametrize(
    ("scores", "limit", "handed_out"),
    [
        ([0.5, 0.4, 0.9], 2, [0.5, 0.4]),
        ([-0.2, 0.5, 0.4], 2, [0.5, 0.4]),
        ([-0.1, -0.2, -0.3, -0.4, 0.9], 2, [-0.4, 0.9]),
        ([0.0, 0.3], 1, [0.3]),
        ([-0.1, -0.2], 2, [-0.1, -0.2]),
        ([-0.3, -0.2, -0.1], 1, [-0.3]),
        ([], 2, []),
        ([-0.1, 0.2], 2, [0.2, -0.1]),
    ],
)
def test_r12_poor_options_come_last(scores, limit, handed_out):
    assert scores_of(limited(cast("Any", [Option(score) for score in scores]), limit)) == handed_out


def test_no_more_is_looked_at_than_needed():
    looked_at: list[float] = []

    def options() -> Any:
        for score in (0.5, 0.4, 0.9):
            looked_at.append(score)
            yield Option(score)

    assert scores_of(limited(options(), 2)) == [0.5, 0.4]
    assert looked_at == [0.5, 0.4]


@pytest.mark.parametrize(("count", "limit"), [(0, 2), (1, 2), (2, 2), (4, 2), (5, 3), (8, 3), (9, 4), (1000, 10), (1024, 10), (1025, 11), (5000, 13)])
def test_limits_of_service_jobs(count, limit):
    assert option_limit(count, batch=False) == limit
    assert option_limit(count, batch=True) == 2


def test_r13_the_first_of_equals_wins():
    options = [Option(0.1), Option(0.7), Option(0.7)]
    chosen: Any = best(cast("Any", options), lambda option: option.final_score)
    assert chosen is options[1]
    assert best([], lambda option: option.final_score) is None


def test_a_source_goes_on_where_it_stopped():
    source = NodeSource()
    source.set_nodes(nodes(4))
    assert ids(islice(source.round(), 3)) == ["n0", "n1", "n2"]
    assert ids(source.round()) == ["n3", "n0", "n1", "n2"]
    assert ids(islice(source.round(), 1)) == ["n3"]
    source.set_nodes(nodes(2))
    assert ids(source.round()) == ["n0", "n1"]
    source.set_nodes([])
    assert ids(source.round()) == []


def test_r18_evaluation_and_snapshot_determine_the_order():
    all_nodes = nodes(50)
    order = ids(visiting_order(all_nodes, "5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e11", 1000))
    assert sorted(order) == sorted(ids(all_nodes))
    assert order == ids(visiting_order(all_nodes, "5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e11", 1000))
    # Two bits are shifted out, so neighbours may share an order.
    assert order != ids(visiting_order(all_nodes, "5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e11", 1004))
    assert order != ids(visiting_order(all_nodes, "5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e99", 1000))
    assert ids(visiting_order(all_nodes, "short", 0)) != ids(all_nodes)


def test_seeds_tell_evaluations_snapshots_and_attempts_apart():
    seeds = {tie_seed(eval_id, index, attempt) for eval_id in ("a", "b") for index in (1, 11) for attempt in (0, 1)}
    assert len(seeds) == 8
    assert all(0 <= seed < 2**64 for seed in seeds)


def test_keys_are_those_of_splitmix64():
    # The first outputs of the published generator with seed 0, which are also those of rows 0, 1, 2.
    assert [tie_key(0, row) for row in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


@given(seed=st.integers(0, 2**64 - 1), rows=st.sets(st.integers(0, 2**32 - 2), max_size=20))
def test_keys_of_different_rows_differ(seed, rows):
    assert len({tie_key(seed, row) for row in rows}) == len(rows)
    assert all(0 <= tie_key(seed, row) < 2**64 for row in rows)


@pytest.mark.parametrize(
    ("score", "expected"), [(0.0, 0), (1.0, 2**30), (-1.0, -(2**30)), (0.5 / 2**30, 0), (1.5 / 2**30, 2), (-0.5 / 2**30, 0), (0.1, 107374182)]
)
def test_the_grid_rounds_half_to_even(score, expected):
    assert on_grid(score) == expected
