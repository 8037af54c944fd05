"""A whole server from a seed (docs/guide/simulation.md): what must hold does, whatever happens to it."""

import pytest

from fastplan.testing.simulation import simulate


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_violated(seed):
    report = simulate(seed)
    assert report.plans > 0
    assert report.placed > 0
