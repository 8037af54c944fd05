"""Placing a service job with every feasible node scored."""

import pytest

from fastplan.benchmarks.placement import Cases


@pytest.mark.benchmark(group="placement")
@pytest.mark.parametrize("case", ["kernel", "spread", "identical", "sampling"])
def test_case(benchmark, sizes, case):
    cases = Cases(sizes("placement"))
    cases.assert_equal()
    benchmark(cases.work[case])


@pytest.mark.benchmark(group="placement")
@pytest.mark.parametrize("case", ["alone", "spread"])
def test_plain_path(benchmark, sizes, case):
    cases = Cases(sizes("placement"))
    benchmark.pedantic(getattr(cases, case).chosen_plainly, args=(cases.sizes.plain,), rounds=1)


def test_closing_ratio(closing):
    figures = {"placements_per_s", "ratio_reference", "spread_placements_per_s", "ratio_spread_reference", "identical_placements_per_s"}
    closing("placement", figures | {"sampling_placements_per_s"})
