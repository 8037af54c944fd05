"""Plans as columns: what a builder writes, what is made of a record, and the shapes that give resources back."""

from __future__ import annotations

import random
from typing import Any

import numpy
import pytest

from fastplan import Plan
from fastplan.errors import InvalidInput, StateError
from fastplan.fit.encode import read_claim
from fastplan.planner import Rules, evaluate_plan, reference
from fastplan.state import StateStore
from fastplan.state.plan_builder import PlanBuilder
from fastplan.state.plans import Numbers, PlanColumns
from fastplan.state.resource_shapes import ResourceShape, shape_of
from fastplan.structs import AllocatedResources, Job
from tests.planner.random_plans import JOB, random_dump, random_plan, random_resources


def resources(**task: Any) -> AllocatedResources:
    return AllocatedResources.from_api({"Tasks": {"t": {"Cpu": {"CpuShares": 100}, "Memory": {"MemoryMB": 64}, **task}}, "Shared": {"DiskMB": 5}})


EVERYTHING: dict[str, Any] = {
    "Tasks": {
        "b": {
            "Cpu": {"CpuShares": 200, "ReservedCores": [3, 1]},
            "Memory": {"MemoryMB": 64, "MemoryMaxMB": 128},
            "Devices": [{"Vendor": "acme", "Type": "gpu", "Name": "x1", "DeviceIDs": ["g1", "g0"]}],
        },
        "a": {
            "Cpu": {"CpuShares": 100, "ReservedCores": [2]},
            "Memory": {"MemoryMB": 32},
            "Networks": [{"IP": "10.0.0.1", "ReservedPorts": [{"Label": "x", "Value": 80}]}],
        },
    },
    "TaskLifecycles": {"a": {"Hook": "prestart", "Sidecar": True}, "b": None},
    "Shared": {
        "DiskMB": 10,
        "Ports": [{"Label": "web", "Value": 8080, "HostIP": "10.0.0.1", "To": 80}, {"Label": "dns", "Value": 53, "HostIP": "::1", "IgnoreCollision": True}],
    },
}


def test_a_shape_and_claims_give_the_resources_back() -> None:
    whole = AllocatedResources.from_api(EVERYTHING)
    before = whole.to_api()
    shape, claims = shape_of(whole)
    assert whole.to_api() == before
    assert shape.amounts == (300, 96, 160, 10)
    assert [tuple(read_claim(claim))[2] for claim in claims.tolist()] == [8080, 53, 1, 2, 3, "g1", "g0"]
    assert shape.resources(claims.tolist()) == whole


def test_a_shape_does_not_depend_on_what_is_claimed() -> None:
    other = AllocatedResources.from_api(EVERYTHING)
    other.shared.ports[0].value, other.shared.ports[0].host_ip = 9090, "10.0.0.2"
    device = other.tasks["b"].devices[0]  # type: ignore[union-attr]
    assert device is not None
    device.device_ids = ["g5", "g6"]
    shape, claims = shape_of(other)
    assert shape == shape_of(AllocatedResources.from_api(EVERYTHING))[0]
    assert shape.resources(claims.tolist()) == other


def test_networks_have_slots_where_they_are_booked() -> None:
    network = {"IP": "10.0.0.1", "Device": "eth0", "ReservedPorts": [{"Label": "s", "Value": 80}], "DynamicPorts": [{"Label": "d", "Value": 20001}]}
    whole = AllocatedResources.from_api({"Tasks": {"t": {"Networks": [network, network]}}, "Shared": {"Networks": [network | {"IP": "10.0.0.2"}]}})
    shape, claims = shape_of(whole)
    assert len(claims) == 4
    assert shape.resources(claims.tolist()) == whole


def test_random_resources_come_back() -> None:
    rng = random.Random(5)
    for _ in range(300):
        api = random_resources(rng, 0.0)
        assert api is not None
        whole = AllocatedResources.from_api(api)
        shape, claims = shape_of(whole)
        assert shape.resources(claims.tolist()) == whole


@pytest.mark.parametrize("task", [{"Cpu": {"CpuShares": -1}}, {"Cpu": {"CpuShares": 2**60}}])
def test_what_is_irregular_has_no_shape(task: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match="regular resources"):
        shape_of(resources(**task))


def small_store() -> StateStore:
    rng = random.Random(11)
    dump = random_dump(rng, 0.0, nodes=3)
    for node in dump["nodes"]:
        node |= {"Status": "ready", "SchedulingEligibility": "eligible", "NodeMaxAllocs": 0}
    return StateStore.from_dump(dump | {"indexes": {"nodes": 7, "allocs": 9}})


def test_a_builder_writes_what_a_record_says() -> None:
    store = small_store()
    snapshot = store.snapshot()
    job = Job.from_api(JOB)
    shape, claims = shape_of(AllocatedResources.from_api(EVERYTHING | {"Shared": {"DiskMB": 10, "Ports": EVERYTHING["Shared"]["Ports"]}}))
    plain, _ = shape_of(resources())
    rng = random.Random(1)
    builder = PlanBuilder(snapshot, job, eval_id="e1", eval_token="t1", priority=50, snapshot_index=9, randomness=rng.randbytes)
    first, second, third = (snapshot.node_row(node_id) for node_id in snapshot.node_ids())
    assert first is not None
    assert second is not None
    assert third is not None
    builder.place(second, plain, "single", 4)
    builder.place(first, shape, "web", 0, claims)
    builder.place(first, plain, "web", 1, alloc_id="given")
    stored = snapshot.allocs_by_node(snapshot.node_ids()[0])[0].id
    builder.stop(first, stored, "no longer needed", "lost", "e2")
    builder.preempt(third, snapshot.allocs_by_node(snapshot.node_ids()[2])[0].id, "given")
    plan = builder.build()
    plan.number = 3
    columns = plan.columns
    assert columns.node_ids == snapshot.node_ids()
    assert columns.node_rows.tolist() == [first, second, third]
    assert columns.place_offsets.tolist() == [0, 2, 3, 3]
    assert columns.in_scope.tolist() == [1, 1, 0]
    assert (columns.alloc_ids.shape, columns.alloc_ids.dtype) == ((3, 16), numpy.dtype(numpy.uint8))
    assert columns.groups == ["single", "web"]
    api = plan.to_api()
    on_first = api["NodeAllocation"][columns.node_ids[0]]
    assert [each["Name"] for each in on_first] == ["planned.web[0]", "planned.web[1]"]
    assert on_first[0]["AllocatedResources"] == shape.resources(claims.tolist()).to_api()  # type: ignore[union-attr]
    assert on_first[1]["ID"] == "given"
    assert api["NodeUpdate"] == {
        columns.node_ids[0]: [{"ID": stored, "DesiredStatus": "stop", "DesiredDescription": "no longer needed", "ClientStatus": "lost", "FollowupEvalID": "e2"}]
    }
    assert (api["EvalID"], api["EvalToken"], api["Priority"], api["SnapshotIndex"], api["Number"]) == ("e1", "t1", 50, 9, 3)
    # Read back as a record it is the same plan, down to the columns.
    twin = Plan.from_api(api)
    assert not twin.is_noop()
    assert not plan.is_noop()
    again = PlanColumns.of(twin, snapshot)
    for name in (
        "node_rows",
        "in_scope",
        "place_offsets",
        "alloc_ids",
        "name_index",
        "claims",
        "claim_offsets",
        "stop_ids",
        "stop_client",
        "preempt_ids",
        "preempted_by",
    ):
        assert getattr(again, name).tolist() == getattr(columns, name).tolist(), name
    for rules in Rules:
        results = [evaluate_plan(snapshot, plan, rules), evaluate_plan(snapshot, twin, rules), reference.evaluate_plan(snapshot, plan, rules)]
        told = [(result.to_api(), result.reasons, result.full_commit(result.plan)) for result in results]
        assert told[0] == told[1] == told[2]


def test_random_records_and_their_columns_agree() -> None:
    for seed in range(60):
        rng = random.Random(seed)
        dump = random_dump(rng, 0.0)
        snapshot = StateStore.from_dump(dump).snapshot()
        plan = Plan.from_api(random_plan(rng, dump, 0.0))
        columns = PlanColumns.from_plan(plan, snapshot)
        assert PlanColumns.of(plan, snapshot) is columns
        assert plan.copy()._columns is None
        assert columns.place_offsets[-1] == len(columns.alloc_ids) == sum(len(allocs or ()) for allocs in plan.node_allocation.values())
        assert columns.stop_offsets[-1] == len(columns.stop_ids) == len(columns.stop_client)
        assert columns.node_ids == sorted(columns.node_ids)


def test_columns_belong_to_one_state() -> None:
    store, other = small_store(), small_store()
    plan = Plan.from_api({"NodeAllocation": {store.node_ids()[0]: []}})
    columns = PlanColumns.from_plan(plan, store.snapshot())
    assert PlanColumns.of(plan, store) is columns
    assert PlanColumns.of(plan, other) is not columns


def test_a_builder_refuses_what_it_cannot_tell() -> None:
    snapshot = small_store().snapshot()
    builder = PlanBuilder(snapshot, None)
    with pytest.raises(StateError, match="node row 99 holds no node"):
        builder.place(99, shape_of(resources())[0], "web", 0)
    with pytest.raises(InvalidInput, match="template"):
        builder.place(0, ResourceShape(1, 1, 1, 1), "web", 0)
    with pytest.raises(InvalidInput, match=r"shape.template"):
        builder.place(0, ResourceShape(1, 1, 1, 1, template=b"{"), "web", 0)
    with pytest.raises(InvalidInput, match="amounts of its template"):
        builder.place(0, ResourceShape(2**62, template=b"{}"), "web", 0)
    plain, _ = shape_of(resources())
    for changes, name in (
        ({"claims": numpy.array([5 << 4], numpy.uint64)}, "claims"),
        ({"claims": numpy.empty(0, numpy.int64)}, "claims"),
        ({"name_index": -1}, "name_index"),
        ({"name_index": 2**31}, "name_index"),
        ({"client_status": 7}, "client_status"),
        ({"alloc_id": "\ud800"}, "alloc_id"),
        ({"group": "\ud800"}, "group"),
    ):
        with pytest.raises(InvalidInput, match=f"plan: {name}"):
            builder.place(**{"node_row": 0, "shape": plain, "group": "web", "name_index": 0, **changes})  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="plan: stop description"):
        builder.stop(0, "a", "\ud800")
    # What was refused is not in the plan.
    builder.place(0, plain, "web", 0)
    assert len(builder.build().columns.shapes) == 1


def test_a_builder_refuses_claims_that_are_not_those_of_the_slots() -> None:
    snapshot = small_store().snapshot()
    ported, claims = shape_of(AllocatedResources.from_api({"Tasks": {}, "Shared": {"Ports": [{"Label": "p", "Value": 80, "HostIP": "10.0.0.1"}]}}))
    (good,) = claims.tolist()
    for claim in (good | 2, good | 4, good | 1 << 62, good & ~(2**34 - 1) | 70_000 << 4, (2**28 - 1) << 34 | 80 << 4):
        builder = PlanBuilder(snapshot, None)
        builder.place(0, ported, "web", 0, numpy.array([claim], numpy.uint64))
        with pytest.raises(InvalidInput, match="plan: claims"):
            builder.build()
    builder = PlanBuilder(snapshot, None)
    builder.place(0, ported, "web", 0, claims)
    assert builder.build().columns.claims.tolist() == [good]


def test_too_few_claims_for_a_shape() -> None:
    shape, claims = shape_of(AllocatedResources.from_api(EVERYTHING))
    for count in range(len(claims)):
        with pytest.raises(StateError, match=f"{count} claims are too few"):
            shape.resources(claims[:count].tolist())


def test_a_plan_numbers_no_more_than_its_columns_hold() -> None:
    numbers = Numbers("notes of stops")
    assert [numbers.of(thing) for thing in range(65536)] == list(range(65536))
    assert numbers.of(7) == 7
    for _ in range(2):
        # Refused again, too: what was refused has no number.
        with pytest.raises(InvalidInput, match="notes of stops: expected at most 65536 different ones"):
            numbers.of("one more")
