"""A whole server from a seed."""

import pytest

from fastplan.benchmarks import simulation


@pytest.mark.benchmark(group="simulation")
def test_seeds(benchmark, sizes):
    benchmark.pedantic(simulation.run, args=(sizes("simulation"),), rounds=1)


def test_closing_ratio(closing):
    closing("simulation", {"seeds_per_s"})
