"""Every row of docs/rules.md that concerns the evaluation of a plan, under both rule sets."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.errors import PlanError
from fastplan.planner import Rules, evaluate_plan
from tests.fit.fixture_f import gpu, port
from tests.planner.cases import F, G, alloc, node, on, plan, snapshot, verdict

NOMAD, STRICT = Rules.NOMAD, Rules.STRICT
CLOSED = {"SchedulingEligibility": "ineligible"}
SINGLE = {"ID": "job", "Namespace": "default", "TaskGroups": [{"Name": "web", "Volumes": {"v": {"Source": "d", "AccessMode": "single-node-single-writer"}}}]}


def reasons(state: Any, proposal: Any, node_id: str = F) -> tuple[str, str]:
    """The reason under NOMAD and the one under STRICT; empty where it fits, in brackets where the plan as a whole fails."""
    told = []
    for rules in (NOMAD, STRICT):
        found = verdict(state, proposal, rules, node_id)
        told.append(f"[{found.error}]" if found.error else found.reason)
    return told[0], told[1]


def test_an_update_that_grows_is_checked() -> None:
    state = snapshot(*on(F, alloc(7000, id="a"), alloc(400, id="b")))
    assert reasons(state, plan({F: [alloc(7100, id="a")]})) == ("", "")
    assert reasons(state, plan({F: [alloc(7101, id="a")]})) == ("", "cpu")
    assert reasons(state, plan({F: [alloc(7000, id="a", ports=[port(22)])]})) == (
        "",
        "reserved alloc port collision: collision when reserving port for alloc a: [port 22 already in use]",
    )
    assert reasons(state, plan({F: [alloc(7200, id="a"), alloc(200, id="b")]})) == ("", "")


def test_an_update_that_does_not_grow_is_not_checked() -> None:
    state = snapshot(*on(F, alloc(9000, id="a", ports=[port(8000)])))
    assert reasons(state, plan({F: [alloc(9000, id="a", ports=[port(8000)])]})) == ("", "")
    assert reasons(state, plan({F: [alloc(8999, id="a")]})) == ("", "")
    assert reasons(state, plan({F: [alloc(8999, id="a", ports=[port(8001)])]})) == ("", "cpu")
    # One id twice is one update and one more allocation.
    assert reasons(state, plan({F: [alloc(10, id="a"), alloc(9000, id="a")]})) == ("", "cpu")


def test_on_an_ineligible_node_only_growth_is_refused() -> None:
    state = snapshot(*on(F, alloc(100, id="a")), nodes=[node(**CLOSED)])
    assert reasons(state, plan({F: [alloc(100, id="a")]})) == ("", "")
    assert reasons(state, plan({F: [alloc(101, id="a")]})) == ("", "node is not eligible")
    assert reasons(state, plan({F: [alloc(101, id="a", client="lost")]})) == ("", "")


@pytest.mark.parametrize("client", ["complete", "failed"])
def test_an_update_does_not_end_what_its_client_has_not_ended(client: str) -> None:
    state = snapshot(*on(F, alloc(100, id="a")))
    assert reasons(state, plan({F: [alloc(99_999, id="a", client=client)]})) == ("", "cpu")
    assert reasons(state, plan({F: [alloc(99_999, id="a", client="lost")]})) == ("", "")
    # One that is new ends as it says; the same id twice is an update of the first.
    assert reasons(state, plan({F: [alloc(99_999, id="b", client=client)]})) == ("", "")
    assert reasons(state, plan({F: [alloc(10, id="b"), alloc(99_999, id="b", client=client)]})) == ("", "cpu")
    ended = snapshot(*on(F, alloc(100, id="a", client="complete")))
    assert reasons(ended, plan({F: [alloc(99_999, id="a", client=client)]})) == ("", "")


@pytest.mark.parametrize("desired", ["stop", "evict"])
def test_told_to_stop_counts_until_the_client_is_terminal(desired: str) -> None:
    one = {"desired": desired, "ports": [port(8000)], "devices": [gpu("g0")], "cores": (1,)}
    state = snapshot(*on(F, alloc(4000, id="a", **one)))
    assert reasons(state, plan({F: [alloc(4000, id="b")]})) == ("", "cpu")
    assert reasons(state, plan({F: [alloc(id="b", ports=[port(8000)])]}))[1].startswith("reserved alloc port collision")
    assert reasons(state, plan({F: [alloc(id="b", devices=[gpu("g0")])]})) == ("", "device oversubscribed")
    assert reasons(state, plan({F: [alloc(id="b", cores=(1,))]})) == ("", "cores")
    for client in ("complete", "failed", "lost"):
        ended = snapshot(*on(F, alloc(4000, id="a", client=client, **one)))
        assert reasons(ended, plan({F: [alloc(4000, id="b", ports=[port(8000)], devices=[gpu("g0")], cores=(1,))]})) == ("", "")


def test_a_plan_may_place_where_it_stops() -> None:
    state = snapshot(*on(F, alloc(7000, id="a"), alloc(400, id="b", desired="stop")))
    assert reasons(state, plan({F: [alloc(7000, id="c")]}, stops={F: [{"ID": "a"}]})) == ("", "")
    assert reasons(state, plan({F: [alloc(7500, id="c")]}, stops={F: [{"ID": "a"}]})) == ("", "cpu")
    assert reasons(state, plan({F: [alloc(7500, id="c")]}, stops={F: [{"ID": "a"}]}, preemptions={F: [{"ID": "b", "PreemptedByAllocation": "c"}]})) == ("", "")


def test_single_writer_claims_of_placements_count() -> None:
    conflict = "conflicting claims for host volume with single-writer"
    state = snapshot(*on(F, alloc(id="a", Job=SINGLE)))
    assert reasons(state, plan({F: [alloc(id="b")]})) == ("", "")
    assert reasons(state, plan({F: [alloc(id="b")]}, Job=SINGLE)) == ("", conflict)
    assert reasons(snapshot(), plan({F: [alloc(id="b"), alloc(id="c")]}, Job=SINGLE)) == ("", conflict)
    # A plan that only names its job means the registered one, as on submission.
    registered = snapshot(*on(F, alloc(id="a", Job=SINGLE)), jobs=[SINGLE])
    assert reasons(registered, plan({F: [alloc(id="b")]}, JobInfo={"ID": "job", "Namespace": "default"})) == ("", conflict)
    # One that carries its job counts under both.
    assert reasons(state, plan({F: [alloc(id="b", Job=SINGLE)]})) == (conflict, conflict)


def test_too_many_allocations_refuse_the_node_only() -> None:
    state = snapshot(*on(F, alloc(id="a"), alloc(id="s", desired="stop")), nodes=[node(NodeMaxAllocs=2), node(G)])
    assert reasons(state, plan({F: [alloc(id="b"), alloc(id="c")]})) == ("[plan exceeds max allocation]", "max allocation exceeded")
    assert reasons(state, plan({F: [alloc(id="b")]})) == ("", "max allocation exceeded")
    proposal = plan({F: [alloc(id="b"), alloc(id="c")], G: [alloc(id="g")]})
    with pytest.raises(PlanError, match="plan exceeds max allocation"):
        evaluate_plan(state, proposal, NOMAD)
    assert list(evaluate_plan(state, proposal, STRICT).node_allocation) == [G]


def test_sums_beyond_64_bits_do_not_fit() -> None:
    assert reasons(snapshot(), plan({F: [alloc(2**62, id=name) for name in "abcd"]})) == ("cpu", "cpu")
    assert reasons(snapshot(), plan({F: [alloc(100, 2**63 - 1, id=name) for name in "ab"]})) == ("memory", "memory")


@pytest.mark.parametrize("amounts", [{"cpu": -1}, {"memory": -1}, {"disk": -1}])
def test_negative_asks_are_refused(amounts: dict[str, int]) -> None:
    nomad, strict = reasons(snapshot(), plan({F: [alloc(**amounts)]}))
    assert nomad == ""
    assert strict.startswith("invalid input: alloc a.AllocatedResources.")
    assert strict.endswith("expected integer ≥ 0, got -1")


def test_a_negative_allocation_makes_no_room() -> None:
    state = snapshot(*on(F, alloc(disk=-5000, id="a")))
    assert reasons(state, plan({F: [alloc(disk=48001, id="b")]})) == ("", "disk")
    assert reasons(state, plan({F: [alloc(disk=48000, id="b")]})) == ("", "")


@pytest.mark.parametrize("value", [65536, 70000, -1])
def test_ports_out_of_range_are_refused(value: int) -> None:
    text = f"reserved alloc port collision: collision when reserving port for alloc a: [invalid port {value}]"
    assert reasons(snapshot(), plan({F: [alloc(ports=[port(value)])]})) == (text, text)


def test_missing_parts_are_refused() -> None:
    bare = alloc()
    del bare["AllocatedResources"]
    nomad, strict = reasons(snapshot(), plan({F: [bare]}))
    assert nomad == "[alloc a.AllocatedResources: expected resources of a live allocation, got null]"
    assert strict == "invalid input: alloc a.AllocatedResources: expected resources of a live allocation, got null"
    empty = node()
    del empty["NodeResources"]
    nomad, strict = reasons(snapshot(nodes=[empty]), plan({F: [alloc()]}))
    assert nomad.startswith("[")
    assert strict.startswith("invalid input: ")
    # Other nodes of the plan are not concerned.
    state = snapshot(nodes=[empty, node(G)])
    assert list(evaluate_plan(state, plan({F: [alloc(id="f")], G: [alloc(id="g")]}), STRICT).node_allocation) == [G]


def test_an_allocation_that_names_another_node_is_refused() -> None:
    state = snapshot(*on(G, alloc(id="stored")), nodes=[node(F), node(G)])
    other = "allocation names another node"
    assert reasons(state, plan({F: [alloc(NodeID=G)]})) == ("", other)
    assert reasons(state, plan({F: [alloc(NodeID="")]})) == ("", "")
    assert reasons(state, plan({F: [alloc(id="stored")]})) == ("", other)
    twice = plan({F: [alloc(id="new")], G: [alloc(id="new")]})
    assert evaluate_plan(state, twice, NOMAD).reasons == {}
    assert evaluate_plan(state, twice, STRICT).reasons == {F: other, G: other}


def test_cores_need_a_core_set() -> None:
    state = snapshot(nodes=[node(ReservedResources={"Cpu": {"ReservedCpuCores": [0, 1, 2, 3]}})])
    assert reasons(state, plan({F: [alloc(cores=(9,))]})) == ("", "cores")
    assert reasons(state, plan({F: [alloc()]})) == ("", "")


@pytest.mark.parametrize("devices", [[gpu("g2")], [gpu("g9")], [gpu("g0", name="x9")]], ids=["unhealthy", "unknown instance", "unknown group"])
def test_devices_must_be_there_and_healthy(devices: list[Any]) -> None:
    assert reasons(snapshot(), plan({F: [alloc(devices=devices)]})) == ("", "device unavailable")
    # What holds one already may stay.
    state = snapshot(*on(F, alloc(id="old", devices=devices)))
    assert reasons(state, plan({F: [alloc(id="new", devices=[gpu("g0")])]})) == ("", "")
    assert reasons(state, plan({F: [alloc(id="old", devices=devices)]})) == ("", "")


def test_nodes_that_do_not_answer_are_not_overfilled() -> None:
    for status, client, more in (
        ("disconnected", "unknown", {}),
        ("down", "unknown", {"Job": SINGLE | {"TaskGroups": [{"Name": "web", "Disconnect": {"Replace": False}}]}}),
    ):
        state = snapshot(*on(F, alloc(9000, id="old")), nodes=[node(Status=status)])
        assert reasons(state, plan({F: [alloc(9000, id="old", client=client, **more)]})) == ("", "")
        assert reasons(state, plan({F: [alloc(9001, id="old", client=client, **more)]})) == ("", "cpu")
        assert reasons(state, plan({F: [alloc(id="new", client=client, **more)]})) == ("", "cpu")
