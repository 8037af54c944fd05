"""One node, one ask: prepared, unprepared, and the reference."""

import pytest

from fastplan.benchmarks.fit_one import OneCase


@pytest.fixture(scope="module")
def case(sizes):
    case = OneCase(sizes("fit-one").nodes, sizes("fit-one").allocs_per_node)
    case.assert_equal()
    return case


@pytest.mark.benchmark(group="fit-one")
@pytest.mark.parametrize("side", ["prepared", "unprepared", "reference"])
def test_one(benchmark, case, side):
    assert benchmark(getattr(case, side)).fit


def test_closing_ratio(closing):
    closing("fit-one", {"ns", "ratio_reference"})
