"""Reading the openb layout: what it means, and every fault with file, line and column."""

import pytest

from fastplan.errors import InvalidInput
from fastplan.replay.openb import read_openb
from fastplan.replay.shapes import TaskShape
from tests.replay.traces import NODE_HEADER, POD_HEADER, node_line, pod_line, workload, write_trace
from tests.shared_data import shared_path

NODES = [node_line("n1", 96000, 393216, 8, "G2"), node_line("n2", 32000, 262144)]
PODS = [pod_line("p1", 0, 10)]


def test_nodes_and_pods_mean_what_the_layout_says(tmp_path):
    pods = [
        pod_line("late", 7.5, 20, 6000, 12288, 1, "T4|P100", "BE"),
        pod_line("early", 3, 3, 12000, 16384, 0, "", "LS"),
        pod_line("other", 8, 9, 1, 2, 8, "", "Guaranteed"),
    ]
    found = workload(tmp_path, NODES, pods)
    first, second = found.nodes
    assert (first.name, first.node_resources.processors.topology.override_total_compute, first.node_resources.memory.memory_mb) == ("n1", 96000, 393216)
    (device,) = first.node_resources.devices
    assert (device.type, device.name, len(device.instances)) == ("gpu", "G2", 8)
    assert second.node_resources.devices == []
    assert list(found.tasks.names) == ["early", "late", "other"]
    assert found.tasks.arrivals_ns.tolist() == [3 * 10**9, 75 * 10**8, 8 * 10**9]
    assert found.tasks.ends_ns.tolist() == [3 * 10**9, 20 * 10**9, 9 * 10**9]
    assert [found.shapes[number] for number in found.tasks.shapes] == [
        TaskShape(12000, 16384, priority=80),
        TaskShape(6000, 12288, gpus=1, gpu_names=("P100", "T4"), priority=20),
        TaskShape(1, 10, gpus=8, priority=50),
    ]
    assert (found.name, found.unit, found.copies) == ("openb", "pods", 3)


def test_columns_may_stand_in_any_order_and_others_beside_them(tmp_path):
    nodes, pods = tmp_path / "n.csv", tmp_path / "p.csv"
    nodes.write_text("model,gpu,extra,memory_mib,cpu_milli,sn\r\nT4,2,x,1024,8000,n1\r\n\r\n", newline="")
    pods.write_text("﻿deletion_time,creation_time,qos,gpu_spec,num_gpu,memory_mib,cpu_milli,name\n9,1,LS,,0,512,100,p1\n", encoding="utf-8")
    found = read_openb(nodes, pods, seed=0)
    assert (found.nodes[0].name, list(found.tasks.names)) == ("n1", ["p1"])


FAULTS = {
    "node header": ("sn,cpu_milli,memory_mib,gpu", NODES, POD_HEADER, PODS, 'nodes.csv line 1: expected a header with the column model, got "sn,cpu_milli'),
    "pod header": (NODE_HEADER, NODES, "name,cpu_milli", PODS, "pods.csv line 1: expected a header with the column memory_mib"),
    "no nodes": (NODE_HEADER, [], POD_HEADER, PODS, "nodes.csv: expected rows below the header"),
    "no pods": (NODE_HEADER, NODES, POD_HEADER, [], "pods.csv: expected rows below the header"),
    "short row": (NODE_HEADER, ["n1,1,2"], POD_HEADER, PODS, "nodes.csv line 2: expected 5 fields, as in the header"),
    "no number": (NODE_HEADER, [*NODES, "n3,many,2,0,"], POD_HEADER, PODS, "nodes.csv line 4, column cpu_milli: expected a whole number"),
    "negative": (
        NODE_HEADER,
        ["n1,8000,-1,0,"],
        POD_HEADER,
        PODS,
        'nodes.csv line 2, column memory_mib: expected a whole number from 0 to 1099511627776, got "-1"',
    ),
    "fraction": (NODE_HEADER, ["n1,8000.5,1,0,"], POD_HEADER, PODS, "nodes.csv line 2, column cpu_milli"),
    "not finite": (NODE_HEADER, ["n1,nan,1,0,"], POD_HEADER, PODS, "nodes.csv line 2, column cpu_milli"),
    "huge": (NODE_HEADER, [f"n1,{'9' * 5000},1,0,"], POD_HEADER, PODS, "nodes.csv line 2, column cpu_milli"),
    "other digits": (NODE_HEADER, ["n1,٣,1,0,"], POD_HEADER, PODS, "nodes.csv line 2, column cpu_milli"),
    "no name": (NODE_HEADER, [",1,1,0,"], POD_HEADER, PODS, "nodes.csv line 2, column sn: expected a name"),
    "node twice": (NODE_HEADER, [*NODES, NODES[0]], POD_HEADER, PODS, "nodes.csv line 4, column sn: expected a name that no earlier row has"),
    "no model": (NODE_HEADER, ["n1,1,1,2,"], POD_HEADER, PODS, "nodes.csv line 2, column model: expected the GPU type"),
    "pod twice": (NODE_HEADER, NODES, POD_HEADER, PODS * 2, "pods.csv line 3, column name: expected a name that no earlier row has"),
    "end before start": (
        NODE_HEADER,
        NODES,
        POD_HEADER,
        [pod_line("p", 9, 8)],
        "pods.csv line 2, column deletion_time: expected a time not before creation_time (9)",
    ),
    "no time": (NODE_HEADER, NODES, POD_HEADER, [pod_line("p", 9, "")], "pods.csv line 2, column deletion_time: expected a number of seconds"),
    "negative time": (NODE_HEADER, NODES, POD_HEADER, [pod_line("p", -1, 3)], "pods.csv line 2, column creation_time: expected a number of seconds"),
    "endless time": (NODE_HEADER, NODES, POD_HEADER, [pod_line("p", 0, "inf")], "pods.csv line 2, column deletion_time"),
    "open quote": (NODE_HEADER, ['"n1,1,1,0,'], POD_HEADER, PODS, "nodes.csv: expected a CSV file"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_names_file_line_and_column(tmp_path, fault):
    node_header, nodes, pod_header, pods, message = FAULTS[fault]
    paths = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    for path, header, lines in zip(paths, (node_header, pod_header), (nodes, pods), strict=True):
        path.write_text("\n".join([header, *lines]) + "\n")
    with pytest.raises(InvalidInput) as problem:
        read_openb(*paths, seed=0)
    assert message in str(problem.value)
    assert len(str(problem.value)) < 500


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    nodes, pods = write_trace(tmp_path, NODES, PODS)
    for missing in (tmp_path / "missing.csv", tmp_path):
        with pytest.raises(InvalidInput, match=str(missing)):
            read_openb(nodes, missing, seed=0)
    pods.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidInput, match=r"pods\.csv: expected UTF-8 text"):
        read_openb(nodes, pods, seed=0)
    nodes.write_text("")
    with pytest.raises(InvalidInput, match=r"nodes\.csv line 1: expected a header"):
        read_openb(nodes, pods, seed=0)


def test_the_recorded_trace():
    folder = shared_path("data", "openb")
    found = read_openb(folder / "openb_node_list_all_node.csv", folder / "openb_pod_list_default.csv", seed=0)
    assert (len(found.nodes), len(found.tasks)) == (1523, 8152)
    assert sum(len(device.instances) for node in found.nodes if node.node_resources for device in node.node_resources.devices if device) == 6212
