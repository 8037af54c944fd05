"""The generated workloads."""

from collections import Counter

import numpy
import pytest

from fastplan.errors import InvalidInput
from fastplan.fit import FitChecker
from fastplan.replay.asks import ShapeAsks
from fastplan.replay.c2m import c2m
from fastplan.replay.gpu_fleet import TASKS, gpu_fleet
from fastplan.replay.nomad_bench import nomad_bench
from fastplan.replay.shapes import NEVER
from fastplan.structs import Job


def sizes(workload):
    return Counter((node.node_resources.processors.topology.override_total_compute, node.node_resources.memory.memory_mb) for node in workload.nodes)


def test_c2m_has_the_mix_of_nodes_and_jobs_of_a_thousand():
    workload = c2m(100, 2_500, seed=0)
    assert sizes(workload) == {(160_000, 262_144): 50, (240_000, 393_216): 30, (320_000, 524_288): 20}
    # Every run of ten nodes has it too.
    assert sorted(node.node_resources.memory.memory_mb for node in workload.nodes[:10]) == [262_144] * 5 + [393_216] * 3 + [524_288] * 2
    assert workload.tasks.counts.tolist() == [1000, 1000, 500]
    assert (workload.tasks.ends_ns == NEVER).all()
    (shape,) = workload.shapes
    assert (shape.cpu_mhz, shape.memory_mib, shape.disk_mib) == (300, 256, 100)
    # Disk is not what decides.
    headroom = ShapeAsks(shape, checker := FitChecker(workload.nodes, [])).headroom(checker)
    assert sorted(set(headroom.tolist())) == [160_000 // 300, 240_000 // 300, 320_000 // 300]


@pytest.mark.parametrize(
    ("nodes", "allocs", "field"), [(0, 1, "--nodes"), (-1, 1, "--nodes"), (2**30, 1, "--nodes"), (1, 0, "--allocs"), (1, 10**12, "--allocs")]
)
def test_c2m_refuses_sizes_that_make_no_sense(nodes, allocs, field):
    with pytest.raises(InvalidInput, match=field):
        c2m(nodes, allocs, seed=0)


def test_the_benchmark_has_equal_nodes_in_racks_and_jobs_of_five_sizes():
    workload = nomad_bench(200, racks=7, spread=True, seed=0)
    assert sizes(workload) == {(4_000, 8_192): 200}
    assert Counter(node.meta["rack"] for node in workload.nodes).most_common()[-1][1] == 200 // 7
    assert workload.tasks.counts.tolist() == [50, 300, 600, 900, 1_200] * 4
    # Each is gone before the next one comes.
    assert (workload.tasks.ends_ns[:-1] < workload.tasks.arrivals_ns[1:]).all()
    job = Job.from_api(workload.shapes[0].job("j", "default", 50))
    assert (job.type, job.task_groups[0].spreads[0].attribute) == ("service", "${meta.rack}")
    assert Job.from_api(nomad_bench(200, spread=False, seed=0).shapes[0].job("j", "default")).task_groups[0].spreads == []


@pytest.mark.parametrize(("nodes", "racks", "field"), [(149, 1, "--nodes"), (10**6, 1, "--nodes"), (200, 0, "--racks"), (200, 201, "--racks")])
def test_the_benchmark_refuses_sizes_that_make_no_sense(nodes, racks, field):
    with pytest.raises(InvalidInput, match=field):
        nomad_bench(nodes, racks=racks, spread=False, seed=0)


def test_the_fleet_depends_on_its_seed_alone():
    assert gpu_fleet(seed=3).fingerprint() == gpu_fleet(seed=3).fingerprint() != gpu_fleet(seed=4).fingerprint()


def test_the_fleet_is_as_mixed_as_it_says():
    workload = gpu_fleet(seed=0)
    assert len(sizes(workload)) == 5
    assert len(workload.tasks) == TASKS
    assert (numpy.diff(workload.tasks.arrivals_ns) >= 0).all()
    assert (workload.tasks.ends_ns >= workload.tasks.arrivals_ns).all()
    asked = [workload.shapes[number] for number in workload.tasks.shapes]
    assert all(any(asks(shape) for shape in asked) for asks in (lambda s: s.cores, lambda s: s.gpus, lambda s: s.gpu_names, lambda s: s.static_ports))
    empty = FitChecker(workload.nodes, [])
    lacking = Counter(ShapeAsks(shape, empty).never_fits for shape in workload.shapes)
    assert {"device", "memory", "cores"} <= set(lacking)
    never = sum(bool(ShapeAsks(shape, empty).never_fits) for shape in asked)
    assert 0 < never < TASKS / 50
