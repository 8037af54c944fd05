"""How benchmarks measure: turns, minima, slopes, and that unequal sides stop everything."""

import numpy
import pytest

from fastplan.benchmarks.measuring import assert_equal, file_system, interleave, log_slope, machine, medians, minima, quantile


def test_sides_take_turns_after_one_warm_up_each():
    calls = []
    times = interleave({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, rounds=3, least_s=0.0)
    assert [len(each) for each in times.values()] == [3, 3]
    assert "".join(calls[-6:]) == "ababab"


def test_a_short_call_is_repeated_within_its_turn():
    calls = []
    interleave({"a": lambda: calls.append(1)}, rounds=1, least_s=0.001)
    assert len(calls) > 100


def test_rounds_end_early_but_not_before_the_third():
    times = interleave({"a": lambda: sum(range(1_000))}, rounds=50, budget_s=0.0)
    assert len(times["a"]) == 3


def test_minima_medians_and_quantiles():
    times = {"a": [5.0, 1.0, 3.0]}
    assert minima(times) == {"a": 1.0}
    assert medians(times) == {"a": 3.0}
    assert quantile([float(value) for value in range(101)], 0.99) == 99.0


def test_the_slope_is_the_exponent():
    sizes = [1_000.0, 10_000.0, 100_000.0]
    assert log_slope(sizes, [7.0 * size**0.5 for size in sizes]) == pytest.approx(0.5)
    assert log_slope(sizes, [7.0] * 3) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("found", "expected"), [(1, 2), ([1], [2]), (numpy.array([1, 2]), numpy.array([1, 3])), (numpy.array([1]), numpy.array([1, 1]))])
def test_unequal_sides_stop_the_benchmark(found, expected):
    with pytest.raises(AssertionError, match="verdicts"):
        assert_equal(found, expected, "verdicts")


def test_equal_sides_pass():
    assert_equal(numpy.array([1, 2]), numpy.array([1, 2]), "verdicts")
    assert_equal((1, "a"), (1, "a"), "verdicts")


def test_the_machine_is_one_line(tmp_path):
    assert "CPython" in machine()
    assert "\n" not in machine()
    assert file_system(str(tmp_path))
