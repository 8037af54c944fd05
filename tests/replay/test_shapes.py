"""Tasks, events and ids."""

import numpy

from fastplan.fit import FitChecker
from fastplan.replay.shapes import NEVER, Events, NodeShape, ShapeTable, Tasks, TaskShape, address_of, id_maker, uuid_text
from fastplan.structs import Job
from tests.replay.traces import mixed_trace, workload


def tasks(*spans):
    return Tasks(
        names=[f"t{number}" for number in range(len(spans))],
        shapes=numpy.zeros(len(spans), numpy.uint32),
        counts=numpy.ones(len(spans), numpy.int64),
        arrivals_ns=numpy.array([first for first, _ in spans], numpy.int64),
        ends_ns=numpy.array([last for _, last in spans], numpy.int64),
    )


def test_at_one_moment_tasks_end_before_others_arrive_and_those_without_length_end_last():
    events = Events(tasks((0, 5), (5, 5), (5, 9), (2, NEVER)))
    played = list(zip(events.times_ns.tolist(), events.tasks.tolist(), events.is_end.tolist(), strict=True))
    assert played == [(0, 0, False), (2, 3, False), (5, 0, True), (5, 1, False), (5, 2, False), (5, 1, True), (9, 2, True)]


def test_a_task_that_never_ends_has_no_end():
    events = Events(tasks((0, NEVER), (1, NEVER)))
    assert not events.is_end.any()
    assert events.tasks.tolist() == [0, 1]


def test_no_end_comes_before_its_arrival(tmp_path):
    events = Events(workload(tmp_path, *mixed_trace()).tasks)
    seen = set()
    for task, is_end in zip(events.tasks.tolist(), events.is_end.tolist(), strict=True):
        assert (task in seen) is is_end
        seen.add(task)
    assert (numpy.diff(events.times_ns) >= 0).all()


def test_shapes_are_numbered_as_they_come():
    table = ShapeTable()
    assert [table.number(TaskShape(cpu, 1)) for cpu in (3, 5, 3, 4)] == [0, 1, 0, 2]
    assert [shape.cpu_mhz for shape in table.shapes] == [3, 5, 4]


def test_a_job_says_what_its_shape_asks():
    shape = TaskShape(100, 200, 300, gpus=2, gpu_names=("a", "b"), static_ports=(("https", 443),), dynamic_ports=("http",), priority=7)
    job = Job.from_api(shape.job("j", "space", count=5))
    (group,) = job.task_groups
    (task,) = group.tasks
    assert (job.id, job.namespace, job.type, job.priority, group.count) == ("j", "space", "batch", 7, 5)
    assert (task.resources.cpu, task.resources.memory_mb, group.ephemeral_disk.size_mb) == (100, 200, 300)
    (device,) = task.resources.devices
    assert (device.name, device.count, device.constraints[0].rtarget) == ("gpu", 2, "a,b")
    (network,) = group.networks
    assert [(port.label, port.value) for port in network.reserved_ports] == [("https", 443)]
    assert [port.label for port in network.dynamic_ports] == ["http"]


def test_there_is_one_ask_for_each_model_that_will_do():
    names = [ask.task_groups[0].tasks[0].resources.devices[0].name for ask in TaskShape(1, 1, gpus=1, gpu_names=("a", "b")).asks()]
    assert names == ["nvidia/gpu/a", "nvidia/gpu/b"]
    assert [ask.task_groups[0].tasks[0].resources.devices[0].name for ask in TaskShape(1, 1, gpus=1).asks()] == ["gpu"]
    assert TaskShape(1, 1).asks()[0].task_groups[0].tasks[0].resources.devices == []


def test_a_node_offers_what_its_shape_has():
    node = NodeShape(64_000, 1024, 2048, cores=8, gpus=2, gpu_name="a").node("n1", "one", "10.0.0.1")
    checker = FitChecker([node], [])
    fits = {
        TaskShape(64_000, 1024, 2048): True,
        TaskShape(64_001, 1): False,
        TaskShape(1, 1025): False,
        TaskShape(1, 1, 2049): False,
        TaskShape(0, 1, cores=8): True,
        TaskShape(0, 1, cores=9): False,
        TaskShape(1, 1, gpus=2, gpu_names=("a",)): True,
        TaskShape(1, 1, gpus=3): False,
        TaskShape(1, 1, gpus=1, gpu_names=("b",)): False,
        TaskShape(1, 1, static_ports=(("https", 443),), dynamic_ports=("a", "b")): True,
    }
    assert {shape: any(checker.mask((ask, "task"))[0] for ask in shape.asks()) for shape in fits} == fits


def test_random_bytes_depend_on_seed_and_purpose_alone():
    draw = id_maker(7)
    assert draw(16, "node", 1) == id_maker(7)(16, "node", 1)
    assert len({draw(16, "node", 1), draw(16, "node", 2), draw(16, "eval", 1), id_maker(8)(16, "node", 1)}) == 4
    # The ids of a task's first copies stay when it has more of them.
    assert draw(64, "alloc", "t")[:16] == draw(16, "alloc", "t")


def test_ids_and_addresses():
    assert uuid_text(bytes(range(16))) == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert [address_of(number) for number in (0, 254, 255, 65_535)] == ["10.0.0.1", "10.0.0.255", "10.0.1.0", "10.1.0.0"]


def test_the_fingerprint_tells_workloads_apart(tmp_path):
    nodes, pods = mixed_trace()
    first = workload(tmp_path, nodes, pods)
    assert first.fingerprint() == workload(tmp_path, nodes, pods).fingerprint()
    others = [workload(tmp_path, nodes[1:], pods), workload(tmp_path, nodes, pods[1:]), workload(tmp_path, nodes, pods, seed=1)]
    assert len({first.fingerprint(), *(other.fingerprint() for other in others)}) == 4
