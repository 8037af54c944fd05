"""What the strict rules change on one node; each case also under Nomad's rules."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan import Job
from fastplan.errors import InvalidInput, Reason
from fastplan.fit.reference import check
from fastplan.fit.results import Check
from fastplan.fit.supply import supply_of
from fastplan.structs import canonical_alloc, canonical_node
from tests.fit.fixture_f import alloc, gpu, load, load_node, node_f, port, volume_job

SINGLE_WRITER = "single-node-single-writer"


def judge(*allocs: dict[str, Any], node: dict[str, Any] | None = None, **how: Any) -> Check:
    return check(canonical_node(load_node(node)), [canonical_alloc(one) for one in load(*allocs)], **how)


def strict(*allocs: dict[str, Any], new: tuple[str, ...] = ("new",), **how: Any) -> Check:
    return judge(*allocs, strict=True, new_ids=set(new), **how)


def without_cores() -> dict[str, Any]:
    node = node_f()
    node["ReservedResources"]["Cpu"]["ReservedCpuCores"] = [0, 1, 2, 3]
    return node


def test_too_many_allocations_are_a_refusal_without_error():
    node = node_f() | {"NodeMaxAllocs": 1}
    two = [alloc(id="old"), alloc(id="new")]
    assert (judge(*two, node=node).code, judge(*two, node=node).error) == (Reason.MAX_ALLOCS, "plan exceeds max allocation")
    assert (strict(*two, node=node).reason, strict(*two, node=node).error) == ("max allocation exceeded", "")


def test_cores_asked_on_a_node_without_usable_cores():
    asking = alloc(id="new", cores=(1,))
    assert judge(asking, node=without_cores()).code is Reason.FITS
    assert strict(asking, node=without_cores()).reason == "cores"
    # Older holders of cores that the node lost do not stop others.
    assert strict(alloc(id="old", cores=(1,)), alloc(id="new"), node=without_cores()).code is Reason.FITS


@pytest.mark.parametrize("device", [gpu("g2"), gpu("g9"), gpu("g0", name="zz")], ids=["unhealthy", "unknown instance", "unknown group"])
def test_new_allocations_name_healthy_devices_of_the_node(device):
    assert judge(alloc(id="new", devices=[device])).code is Reason.FITS
    assert strict(alloc(id="new", devices=[device])).reason == "device unavailable"
    assert strict(alloc(id="old", devices=[device]), alloc(id="new")).code is Reason.FITS
    assert strict(alloc(id="new", devices=[device]), check_devices=False).code is Reason.FITS
    assert strict(alloc(id="new", devices=[device], client="failed")).code is Reason.FITS


def test_oversubscribed_outranks_unavailable_and_that_the_volumes():
    both = [alloc(id="old", devices=[gpu("g0")]), alloc(id="new", devices=[gpu("g0"), gpu("g2")])]
    assert strict(*both).code is Reason.DEVICES
    volumes = [alloc(id="old", Job=volume_job(SINGLE_WRITER)), alloc(id="new", devices=[gpu("g2")], Job=volume_job(""))]
    assert strict(*volumes).code is Reason.DEVICE_UNAVAILABLE


def test_claims_of_new_placements_count_with_the_job_of_the_plan():
    plan_job = Job.from_api(volume_job(SINGLE_WRITER))
    placements = [alloc(id="old", Job=volume_job("")), alloc(id="new")]
    assert judge(*placements).code is Reason.FITS
    assert strict(*placements).code is Reason.FITS
    assert strict(*placements, plan_job=plan_job).code is Reason.VOLUMES
    assert judge(*placements, plan_job=plan_job).code is Reason.FITS
    # Two placements of one plan, and stored allocations that lack their job.
    assert strict(alloc(id="new"), alloc(id="new2"), new=("new", "new2"), plan_job=plan_job).code is Reason.VOLUMES
    assert strict(alloc(id="old"), alloc(id="new"), plan_job=plan_job).code is Reason.FITS
    # A job of its own goes before the plan's.
    assert strict(alloc(id="old", Job=volume_job("")), alloc(id="new", Job=volume_job("", source="e")), plan_job=plan_job).code is Reason.FITS


def test_second_writer_is_accepted_when_the_first_is_stopped_by_the_same_plan():
    plan_job = Job.from_api(volume_job(SINGLE_WRITER))
    holder = alloc(id="old", Job=volume_job(SINGLE_WRITER))
    assert strict(holder, alloc(id="new"), plan_job=plan_job).code is Reason.VOLUMES
    assert strict(alloc(id="new"), plan_job=plan_job).code is Reason.FITS


@pytest.mark.parametrize(
    ("negative", "field"),
    [
        (alloc(-500, id="new"), "Tasks[t].Cpu.CpuShares"),
        (alloc(100, -1, id="new"), "Tasks[t].Memory.MemoryMB"),
        (alloc(100, 100, -1, id="new"), "Shared.DiskMB"),
    ],
)
def test_negative_amounts_are_refused_with_their_field(negative, field):
    assert judge(negative).code is Reason.FITS
    verdict = strict(negative)
    assert verdict.code is Reason.INVALID
    assert verdict.reason.startswith(f"invalid input: alloc new.AllocatedResources.{field}: expected integer ≥ 0")


def test_negative_amounts_of_older_allocations_make_no_room():
    full, negative, more = alloc(100, 100, 48000, id="full"), alloc(100, 100, -500, id="old"), alloc(100, 100, 500, id="new")
    assert judge(full, negative, more).code is Reason.FITS
    assert strict(full, negative, more).code is Reason.DISK
    pinned = alloc(-500, id="old", cores=(1,))
    assert judge(alloc(7500, id="full"), pinned, alloc(500, id="new")).code is Reason.FITS
    assert strict(alloc(7500, id="full"), pinned, alloc(500, id="new")).code is Reason.CPU
    # Empty phases clamp the rest (plan-apply 2.3), except within one allocation.
    assert judge(alloc(7500, id="full"), alloc(-500, -500, id="old"), alloc(500, id="new")).code is Reason.CPU
    mixed = alloc(7500, id="old")
    mixed["AllocatedResources"]["Tasks"]["u"] = {"Cpu": {"CpuShares": -500}}
    assert judge(mixed, alloc(500, id="new")).code is Reason.FITS
    assert strict(mixed, alloc(500, id="new")).code is Reason.CPU
    assert strict(mixed, alloc(0, id="new")).used.cpu_mhz == 7500


def test_input_on_which_nomad_crashes_is_refused():
    bare = {"ID": "bare"}
    beyond = node_f()
    beyond["ReservedResources"]["Networks"]["ReservedHostPorts"] = "65536"
    cases: list[tuple[dict[str, Any] | None, list[dict[str, Any]]]] = [
        (None, [bare]),
        (None, [alloc(id="new", Job=volume_job("", group="other"))]),
        (node_f() | {"NodeResources": None}, [alloc(id="new")]),
        (beyond, [alloc(id="new")]),
    ]
    for node, allocs in cases:
        with pytest.raises(InvalidInput) as caught:
            judge(*allocs, node=node)
        verdict = strict(*allocs, node=node)
        assert (verdict.code, verdict.detail) == (Reason.INVALID, str(caught.value))


@pytest.mark.parametrize("number", [-1, 65536, 70000])
def test_ports_out_of_range_do_not_fit_under_either_rules(number):
    wrong = alloc(id="new", ports=[port(number)])
    text = f"reserved alloc port collision: collision when reserving port for alloc new: [invalid port {number}]"
    assert judge(wrong).reason == strict(wrong).reason == text


def test_without_ids_all_are_new():
    assert judge(alloc(id="x", devices=[gpu("g2")]), strict=True).code is Reason.DEVICE_UNAVAILABLE


def test_supply_taken_apart_before_gives_the_same_verdict():
    node = canonical_node(load_node())
    for cpu in (7500, 7501):
        proposed = load(alloc(cpu))
        assert check(node, proposed, supply=supply_of(node)) == check(node, proposed)
