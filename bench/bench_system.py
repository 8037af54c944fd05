"""A system job on many nodes."""

import pytest

from fastplan.benchmarks.system import Cases, plain_path


@pytest.mark.benchmark(group="system")
@pytest.mark.parametrize("case", ["first", "noop"])
def test_columns(benchmark, sizes, case):
    cases = Cases(sizes("system"))
    cases.plain_ns(1)
    benchmark(cases.work[case])


@pytest.mark.benchmark(group="system")
@pytest.mark.parametrize("case", ["first", "noop"])
def test_plain_path(benchmark, sizes, case):
    cases = Cases(sizes("system"))
    with plain_path():
        benchmark.pedantic(cases.work[case], rounds=1)


def test_closing_ratio(closing):
    closing("system", {"first_ms", "noop_ms", "ratio_first", "ratio_noop"})
