"""A whole plan, of which 1 % is refused: in columns, and as records by the reference."""

import pytest

from fastplan.benchmarks.asks import Rows
from fastplan.benchmarks.clusters import Cluster
from fastplan.benchmarks.evaluate_plan import PlanCase


@pytest.fixture(scope="module")
def cases(sizes):
    size = sizes("evaluate-plan")
    cluster = Cluster(size.nodes, size.allocs_per_node)
    store = cluster.store()
    made = {count: PlanCase(store, Rows(cluster, count, failing=0.01, distinct=True)) for count in size.plans}
    for case in made.values():
        case.assert_equal()
    return list(made.values())


@pytest.mark.benchmark(group="evaluate-plan")
@pytest.mark.parametrize("side", ["compiled", "reference"])
@pytest.mark.parametrize("plan", [1, -1], ids=["small", "large"])
def test_plan(benchmark, cases, plan, side):
    assert benchmark(getattr(cases[plan], side)).rejected_nodes


def test_closing_ratio(closing):
    closing("evaluate-plan", {"us_10", "us_1000", "ratio_10", "ratio_1000"})
