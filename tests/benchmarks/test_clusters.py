"""Generated clusters: records and columns describe the same thing, and rows fail the way they were made to."""

import numpy
import pytest

from fastplan.benchmarks.asks import BoundNodes, NumpyRows, ReferenceRows, Rows
from fastplan.benchmarks.clusters import Cluster
from fastplan.benchmarks.plan_source import PlanSource
from fastplan.benchmarks.record_state import RecordState
from fastplan.errors import Reason
from fastplan.fit import allocs_fit
from fastplan.planner import evaluate_plan, reference


@pytest.fixture(scope="module")
def cluster():
    return Cluster(64, 14)


@pytest.fixture(scope="module")
def store(cluster):
    return cluster.store()


def test_the_state_holds_what_the_records_say(cluster, store):
    assert store.alloc_count() == 64 * 14
    pinned = gpus = 0
    for node in range(0, 64, 5):
        assert store.node(cluster.node_ids[node]) == cluster.node(node)
        for slot in range(14):
            record = cluster.alloc(node, slot)
            stored = store.alloc(record.id)
            assert stored.job.id == record.job_id
            assert (stored.name, stored.node_id, stored.task_group) == (record.name, record.node_id, record.task_group)
            assert stored.allocated_resources == record.allocated_resources
            pinned += bool(record.allocated_resources.tasks["server"].cpu.reserved_cores)
            gpus += bool(record.allocated_resources.tasks["server"].devices)
    assert pinned
    assert gpus


def test_every_node_fits_what_it_has(cluster):
    for node in range(64):
        assert allocs_fit(cluster.node(node), cluster.allocs_of(node)).reason == ""


def test_one_seed_gives_one_cluster():
    ids = [Cluster(20, 2, seed=seed).node_ids for seed in (3, 3, 4)]
    assert ids[0] == ids[1] != ids[2]
    assert ids[0] == sorted(ids[0])


@pytest.mark.parametrize("distinct", [False, True])
def test_rows_fail_the_way_they_were_made_to(cluster, distinct):
    rows = Rows(cluster, 42, failing=0.5, distinct=distinct)
    codes = ReferenceRows(rows, BoundNodes(cluster)).codes()
    assert codes.tolist() == rows.expected.tolist()
    assert numpy.count_nonzero(codes) == 21
    reasons = {Reason.CORES, Reason.CPU, Reason.MEMORY, Reason.DISK, Reason.ALLOC_PORTS}
    assert set(codes.tolist()) == reasons | {Reason.FITS} | (set() if distinct else {Reason.MAX_ALLOCS, Reason.DEVICES})
    assert not distinct or len(set(rows.nodes.tolist())) == 42
    known = numpy.isin(codes, NumpyRows.KNOWN)
    assert NumpyRows(rows).codes()[known].tolist() == codes[known].tolist()


def test_plans_are_refused_where_they_were_made_to_fail(cluster, store):
    submissions = PlanSource(cluster, store, rows=10).take(12, [("", "")], conflicts=0.5)
    assert sum(bool(submission.refused) for submission in submissions) == 6
    records = RecordState(cluster, range(64))
    snapshot = store.snapshot()
    reasons = set()
    for submission in submissions:
        result = evaluate_plan(snapshot, submission.plan)
        expected = reference.evaluate_plan(records, submission.plan.to_record())
        assert result.rejected_nodes == expected.rejected_nodes == submission.refused
        reasons |= {verdict.code for verdict in result.refused.values()}
        assert submission.bare.asks.shape == (10, 4)
    assert reasons == {Reason.CPU, Reason.ALLOC_PORTS}
