"""The evaluation broker, beside a heap of objects that does the least of that."""

import pytest

from fastplan.benchmarks.broker import Sides


@pytest.mark.benchmark(group="broker")
@pytest.mark.parametrize("side", ["broker", "heap", "timed", "shared"])
def test_side(benchmark, sizes, side):
    sides = Sides(sizes("broker"))
    benchmark(sides.work[side])
    sides.assert_equal()


def test_closing_ratio(closing):
    closing("broker", {"evals_per_s", "of_heapq"})
