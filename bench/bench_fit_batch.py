"""Many rows in one call: compiled, NumPy on the resources alone, and the reference."""

import pytest

from fastplan.benchmarks.asks import BoundNodes, NumpyRows, ReferenceRows, Rows
from fastplan.benchmarks.clusters import Cluster
from fastplan.benchmarks.fit_batch import FAILING, BatchCase, checker_of


@pytest.fixture(scope="module")
def cluster(sizes):
    return Cluster(sizes("fit-batch").nodes, sizes("fit-batch").allocs_per_node)


@pytest.fixture(scope="module", params=FAILING, ids=lambda share: f"{share:.0%} failing")
def sides(request, cluster, sizes):
    rows = Rows(cluster, sizes("fit-batch").rows, failing=request.param)
    case = BatchCase(checker_of(cluster), rows)
    reference = ReferenceRows(rows, BoundNodes(cluster))
    case.assert_equal(reference.codes())
    return {"compiled": case.compiled, "numpy": NumpyRows(rows).codes, "reference": reference.codes}


@pytest.mark.benchmark(group="fit-batch")
@pytest.mark.parametrize("side", ["compiled", "numpy", "reference"])
def test_rows(benchmark, sides, side):
    assert len(benchmark(sides[side])) > 0


def test_closing_ratio(closing):
    closing("fit-batch", {"ns_per_row", "ratio_reference", "ratio_numpy", "load_50_over_10", "size_100k_over_1k"})
