"""Reading, writing, copying and comparing records."""

from __future__ import annotations

import copy
import json
import math
from typing import Any

import pytest

from fastplan import Allocation, Deployment, Evaluation, Job, Node, Plan, PlanResult
from fastplan.errors import InvalidInput
from fastplan.structs import AllocatedResources, AllocatedTaskResources, NetworkResource, NodeResources, Port, Resources, TaskGroup
from fastplan.structs.record import DEPTH_MAX, SHAPES_MAX, Record, api_name, schema_of

ALLOC: dict[str, Any] = {
    "ID": "a1",
    "Job": {"ID": "j", "TaskGroups": [{"Name": "g", "Volumes": {"v": {"Source": "data"}, "w": None}, "X-Hint": [1, {"a": None}]}], "Payload": None},
    "AllocatedResources": {
        "Tasks": {
            "web": {"Cpu": {"CpuShares": 100, "ReservedCores": None}, "Networks": [{"IP": "10.0.0.1", "MBits": 5, "Shiny": True}, None], "Devices": []},
            "x": None,
        },
        "TaskLifecycles": {"web": None},
        "Shared": {"DiskMB": 0, "Ports": [{"Label": "http", "Value": 70000, "To": -1, "HostIP": ""}]},
    },
    "TaskStates": {},
    "PreemptedAllocations": None,
    "DesiredTransition": {"Migrate": None, "Reschedule": False},
    "NetworkStatus": {"InterfaceName": "eth0", "Weird": 1.5},
    "ModifyTime": 0,
}


def test_round_trip_keeps_every_key_null_and_zero_and_their_order() -> None:
    before = copy.deepcopy(ALLOC)
    assert json.dumps(Allocation.from_api(ALLOC).to_api()) == json.dumps(before)
    assert before == ALLOC


def test_record_does_not_follow_later_changes_of_its_input_or_output() -> None:
    data = copy.deepcopy(ALLOC)
    alloc = Allocation.from_api(data)
    data["AllocatedResources"]["Tasks"]["web"]["Networks"][0]["IP"] = "changed"
    data["Job"]["TaskGroups"][0]["X-Hint"][1]["a"] = "changed"
    data["NetworkStatus"]["InterfaceName"] = "changed"
    out = alloc.to_api()
    assert out == ALLOC
    out["NetworkStatus"]["InterfaceName"] = "changed"
    out["Job"]["TaskGroups"].clear()
    out["AllocatedResources"]["Tasks"]["web"]["Devices"].append("changed")
    assert alloc.to_api() == ALLOC


def test_changed_fields_show_their_new_value() -> None:
    alloc = Allocation.from_api(ALLOC)
    alloc.id = ""  # was given: stays, as zero
    alloc.node_id = "n1"  # was absent
    alloc.preempted_allocations.append("a0")  # was null
    alloc.job = None  # was an object
    alloc.desired_transition.migrate = True  # was null
    alloc.desired_transition.force_reschedule = False  # was absent, and false is not null
    assert alloc.to_api() == ALLOC | {
        "ID": "",
        "NodeID": "n1",
        "PreemptedAllocations": ["a0"],
        "Job": None,
        "DesiredTransition": {"Migrate": True, "Reschedule": False, "ForceReschedule": False},
    }


def test_a_record_made_in_python_writes_what_is_not_zero() -> None:
    alloc = Allocation(
        id="a", allocated_resources=AllocatedResources(tasks={"t": AllocatedTaskResources(networks=[NetworkResource(reserved_ports=[Port(value=80)])])})
    )
    assert alloc.to_api() == {"ID": "a", "AllocatedResources": {"Tasks": {"t": {"Networks": [{"ReservedPorts": [{"Value": 80}]}]}}}}
    assert Node(node_resources=NodeResources(node_networks=[])).to_api() == {"NodeResources": {"NodeNetworks": []}}
    assert Allocation().to_api() == {}
    assert Allocation.from_api(alloc.to_api()) == alloc


def test_absent_null_and_zero_are_equal_except_where_null_means_more() -> None:
    assert Node.from_api({"Name": None, "Meta": None, "NodeMaxAllocs": 0}) == Node.from_api({}) == Node()
    assert Node.from_api({"NodeResources": {"NodeNetworks": []}}) != Node.from_api({"NodeResources": {"NodeNetworks": None}})
    assert Node.from_api({"NodeResources": {"Cpu": None, "Processors": {"Topology": None}}}) == Node.from_api({"NodeResources": {}})
    assert Node.from_api({"Strange": 1}) != Node()
    assert Node(id="a") != Job(id="a")
    assert Node() != 3


def test_null_entries_that_nomad_crashes_on_load_as_none() -> None:
    alloc = Allocation.from_api(ALLOC)
    assert alloc.allocated_resources is not None
    assert alloc.job is not None
    assert alloc.allocated_resources.tasks["x"] is None
    web = alloc.allocated_resources.tasks["web"]
    assert web is not None
    assert web.networks[1] is None
    assert alloc.job.task_groups[0].volumes["w"] is None
    node = Node.from_api({"NodeResources": {"Devices": [None, {"Instances": [None]}], "Networks": [None]}})
    assert node.to_api() == {"NodeResources": {"Devices": [None, {"Instances": [None]}], "Networks": [None]}}


def test_null_inside_a_list_of_plain_objects_is_the_zero_object() -> None:
    data = {"Shared": {"Ports": [None, {"Value": 1}]}}
    resources = AllocatedResources.from_api(data)
    assert resources.shared.ports[0].value == 0
    assert resources.to_api() == data == resources.copy().to_api()
    resources.shared.ports[0].value = 9
    assert resources.to_api() == {"Shared": {"Ports": [{"Value": 9}, {"Value": 1}]}}


def test_copies_share_nothing_that_changes() -> None:
    for duplicate in (Record.copy, copy.deepcopy):
        alloc = Allocation.from_api(ALLOC)
        twin = duplicate(alloc)
        assert isinstance(twin, Allocation)
        assert alloc.job is not None
        assert alloc.allocated_resources is not None
        assert twin == alloc
        assert twin.to_api() == ALLOC
        web = alloc.allocated_resources.tasks["web"]
        assert web is not None
        assert web.networks[0] is not None
        web.networks[0].ip = "changed"
        web.cpu.reserved_cores.append(1)
        alloc.job.task_groups[0].volumes.clear()
        alloc.job.task_groups[0].tasks.append(None)  # type: ignore[arg-type]
        alloc.task_states["t"] = None
        alloc.preempted_allocations.append("p")
        alloc.desired_transition.migrate = True
        assert twin.to_api() == ALLOC


@pytest.mark.parametrize(
    ("cls", "data", "text"),
    [
        (Node, {"NodeResources": {"Memory": {"MemoryMB": "12"}}}, 'node.NodeResources.Memory.MemoryMB: expected integer ≥ 0, got "12"'),
        (
            Node,
            {"NodeResources": {"Processors": {"Topology": {"Cores": [{}, {"ID": -1}]}}}},
            "node.NodeResources.Processors.Topology.Cores[1].ID: expected integer from 0 to 65535, got -1",
        ),
        (
            Node,
            {"NodeResources": {"Processors": {"Topology": {"OverrideTotalCompute": -1}}}},
            "node.NodeResources.Processors.Topology.OverrideTotalCompute: expected integer ≥ 0, got -1",
        ),
        (Node, {"NodeMaxAllocs": 2**63}, "node.NodeMaxAllocs: expected integer within signed 64 bits, got 9223372036854775808"),
        (Node, {"NodeMaxAllocs": True}, "node.NodeMaxAllocs: expected integer, got true"),
        (Node, {"NodeMaxAllocs": 12.0}, "node.NodeMaxAllocs: expected integer, got 12.0"),
        (Node, {"Drain": 1}, "node.Drain: expected true or false, got 1"),
        (Node, {"Meta": {"rack": 7}}, "node.Meta.rack: expected text, got 7"),
        (Node, {"Meta": []}, "node.Meta: expected object, got a list"),
        (Node, {"Name": "\ud800"}, 'node.Name: expected valid Unicode text, got "\\ud800"'),
        (Node, {"\ud800": 1}, 'node.\\ud800: expected valid Unicode text, got "\\ud800"'),
        (Node, {"Later": {"Field": [0, math.nan]}}, "node.Later.Field[1]: expected finite number, got nan"),
        (Node, {"Later": 2**64}, "node.Later: expected integer within 64 bits, got 18446744073709551616"),
        (Node, {"Later": {1, 2}}, "node.Later: expected JSON value, got {1, 2}"),
        (Node, {1: 1}, "node.1: expected text, got 1"),
        (Node, {10**5000: 1}, "node.an integer of 16610 bits: expected text, got an integer of 16610 bits"),
        (Node, [], "node: expected object, got a list"),
        (Allocation, {"AllocatedResources": {"Tasks": {"web": {"Cpu": []}}}}, "alloc.AllocatedResources.Tasks.web.Cpu: expected object, got a list"),
        (Allocation, {"Metrics": {"ScoreMetaData": [{"NormScore": math.inf}]}}, "alloc.Metrics.ScoreMetaData[0].NormScore: expected finite number, got inf"),
        (Allocation, {"Metrics": {"Scores": {"x": "1"}}}, 'alloc.Metrics.Scores.x: expected number, got "1"'),
        (
            Allocation,
            {"TaskStates": {"web": {"StartedAt": []}}},
            "alloc.TaskStates.web.StartedAt: expected time (RFC 3339 text or integer nanoseconds), got a list",
        ),
        (Job, {"TaskGroups": {}}, "job.TaskGroups: expected list, got an object"),
        (Job, {"Datacenters": [None]}, "job.Datacenters[0]: expected text, got null"),
        (Evaluation, {"Priority": "50"}, 'eval.Priority: expected integer, got "50"'),
        (Deployment, {"TaskGroups": {"web": 1}}, "deployment.TaskGroups.web: expected object, got 1"),
        (Plan, {"NodeAllocation": {"n1": [{}, {"ID": 5}]}}, "plan.NodeAllocation.n1[1].ID: expected text, got 5"),
        (Plan, {"NodeUpdate": {"n1": [None]}}, None),
        (PlanResult, {"RefreshIndex": 1.5}, "result.RefreshIndex: expected integer, got 1.5"),
    ],
)
def test_wrong_input_is_named(cls: type[Record], data: Any, text: str | None) -> None:
    if text is None:
        assert cls.from_api(data).to_api() == data
        return
    with pytest.raises(InvalidInput) as caught:
        cls.from_api(data)
    assert str(caught.value) == text
    assert isinstance(caught.value, ValueError)
    assert text.startswith(caught.value.path + ": expected ")


def test_error_has_the_value_and_callers_may_name_the_place() -> None:
    with pytest.raises(InvalidInput) as caught:
        Node.from_api({"NodeMaxAllocs": "many"}, "nodes[3]")
    assert (caught.value.path, caught.value.value, caught.value.expected) == ("nodes[3].NodeMaxAllocs", "many", "integer")


@pytest.mark.parametrize(
    ("cls", "data"),
    [
        (Node, {"NodeMaxAllocs": -1, "NodeResources": {"Memory": {"MemoryMB": -5}, "MinDynamicPort": 70000}}),
        (AllocatedResources, {"Tasks": {"t": {"Memory": {"MemoryMB": -1, "MemoryMaxMB": -1}, "Cpu": {"CpuShares": -(2**63)}}}}),
        (NetworkResource, {"ReservedPorts": [{"Value": -1}, {"Value": 70000}], "MBits": 2**63 - 1}),
        (Evaluation, {"WaitUntil": "2026-12-01T00:00:00.000000001Z"}),
        (Evaluation, {"WaitUntil": 1796086698574916548}),
        (Allocation, {"Metrics": {"ScoreMetaData": [{"NormScore": 1, "Scores": {"binpack": 0.5}}]}}),
        (Resources, {"CPU": 5, "MemoryMB": 1, "NUMA": None, "SecretsMB": 0}),
    ],
)
def test_numbers_that_make_no_sense_load_and_the_checks_judge_them(cls: type[Record], data: Any) -> None:
    assert cls.from_api(data).to_api() == data


def test_opaque_json_may_be_deep_but_not_endless() -> None:
    def nested(levels: int) -> Any:
        value: Any = 1
        for level in range(levels):
            value = [value] if level % 2 else {"x": value}
        return value

    deep = {"Later": nested(DEPTH_MAX)}
    assert Node.from_api(deep).to_api() == deep
    with pytest.raises(InvalidInput, match=f"at most {DEPTH_MAX} levels"):
        Node.from_api({"Later": nested(DEPTH_MAX + 1)})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidInput, match="levels"):
        Node.from_api({"Later": endless})


def test_many_different_key_sets_do_not_pile_up() -> None:
    class Sample(Record):
        pass

    for number in range(SHAPES_MAX + 100):
        data = {f"k{number}": number}
        assert Sample.from_api(data).to_api() == data
    assert len(schema_of(Sample)._shapes) == SHAPES_MAX


def test_is_given_tells_keys_from_values() -> None:
    node = Node.from_api({"Drain": False, "DrainStrategy": None})
    assert node.is_given("drain")
    assert node.is_given("drain_strategy")
    assert not node.is_given("status")
    assert node.is_from_api
    assert not Node().is_from_api
    assert Node(drain=True).is_given("drain")
    assert not Node().is_given("drain")
    assert not NodeResources().is_given("cpu")


def test_repr_shows_what_is_set() -> None:
    assert repr(TaskGroup(name="web", count=2)) == "TaskGroup(name='web', count=2)"
    assert repr(Node()) == "Node()"


def test_records_are_not_hashable() -> None:
    with pytest.raises(TypeError):
        hash(Node())


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("id", "ID"),
        ("followup_eval_id", "FollowupEvalID"),
        ("memory_max_mb", "MemoryMaxMB"),
        ("cpu_shares", "CpuShares"),
        ("mbits", "MBits"),
        ("host_ip", "HostIP"),
        ("cidr", "CIDR"),
        ("dns", "DNS"),
        ("cni", "CNI"),
        ("iops", "IOPS"),
        ("device_ids", "DeviceIDs"),
        ("pci_bus_id", "PciBusID"),
        ("ltarget", "LTarget"),
        ("override_withold_compute", "OverrideWitholdCompute"),
        ("failed_tg_allocs", "FailedTGAllocs"),
        ("csi_plugin_config", "CSIPluginConfig"),
        ("http_addr", "HTTPAddr"),
        ("leader_acl", "LeaderACL"),
        ("score_meta_data", "ScoreMetaData"),
    ],
)
def test_names_follow_the_api(name: str, key: str) -> None:
    assert api_name(name) == key


def test_cpu_is_a_block_today_and_a_number_in_the_older_layout() -> None:
    assert NodeResources.from_api({"Cpu": {"CpuShares": 5}}).cpu.cpu_shares == 5
    assert Resources.from_api({"CPU": 5}).cpu == 5
