"""Evaluating plans: the tables of plan-apply 10.3 (one node) and 10.4 (whole plans), and the kinds of fault seen elsewhere."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fastplan import Plan
from fastplan.errors import PlanError, Reason
from fastplan.fit import remove_allocs
from fastplan.planner import PlanResult, Rules, evaluate_node_plan, evaluate_plan, reference
from fastplan.state import StateStore
from fastplan.state.plans import PlanColumns
from tests.fit.fixture_f import gpu, load, load_node, port
from tests.planner.cases import F, G, alloc, node, on, plan, snapshot, verdict
from tests.planner.random_plans import random_dump, random_plan

NOMAD, STRICT = Rules.NOMAD, Rules.STRICT
BOTH = pytest.mark.parametrize("rules", [NOMAD, STRICT])
FULL = {"cpu": 7500, "memory": 15000, "disk": 48000}
DISCONNECTED = "node is disconnected and contains invalid updates"
DOWN = "node is down and contains invalid updates"
NO_REPLACE = {"ID": "job", "TaskGroups": [{"Name": "web", "Disconnect": {"Replace": False}}]}
REPLACE = {"ID": "job", "TaskGroups": [{"Name": "web", "Disconnect": {"Replace": True}}]}
UNSET = {"ID": "job", "TaskGroups": [{"Name": "web", "Disconnect": {}}]}


def holder(**more: Any) -> dict[str, Any]:
    """A stored allocation that fills F."""
    return on(F, alloc(**FULL, id="holder", **more))[0]


# --- one node (10.3) -----------------------------------------------------------------------------------------------


@BOTH
def test_e1_stops_on_a_missing_node(rules: Rules) -> None:
    assert evaluate_node_plan(snapshot(), plan(stops={"gone": [{"ID": "x"}]}), "gone", rules).fit


@BOTH
def test_e2_stops_on_a_node_that_is_down(rules: Rules) -> None:
    state = snapshot(holder(), nodes=[node(Status="down")])
    assert verdict(state, plan(stops={F: [{"ID": "holder"}]}), rules).fit


@BOTH
def test_e3_placement_on_a_missing_node(rules: Rules) -> None:
    assert verdict(snapshot(), plan({"gone": [alloc()]}), rules, "gone").reason == "node does not exist"


@BOTH
@pytest.mark.parametrize("status", ["initializing", ""])
def test_e4_node_not_ready(rules: Rules, status: str) -> None:
    assert verdict(snapshot(nodes=[node(Status=status)]), plan({F: [alloc()]}), rules).reason == "node is not ready for placements"


@BOTH
def test_e5_draining_node(rules: Rules) -> None:
    state = snapshot(nodes=[node(DrainStrategy={"Deadline": 1})])
    assert verdict(state, plan({F: [alloc()]}), rules).reason == "node is not eligible"


@BOTH
def test_e6_update_on_an_ineligible_node(rules: Rules) -> None:
    state = snapshot(*on(F, alloc(id="a")), nodes=[node(SchedulingEligibility="ineligible")])
    assert verdict(state, plan({F: [alloc(id="a")]}), rules).fit


@BOTH
def test_e7_update_and_new_one_on_an_ineligible_node(rules: Rules) -> None:
    state = snapshot(*on(F, alloc(id="a")), nodes=[node(SchedulingEligibility="ineligible")])
    assert verdict(state, plan({F: [alloc(id="a"), alloc(id="b")]}), rules).reason == "node is not eligible"


def test_e8_update_to_twice_the_supply() -> None:
    proposal = plan({F: [alloc(15000, 30000, id="holder")]})
    assert verdict(snapshot(holder()), proposal, NOMAD).fit
    assert verdict(snapshot(holder()), proposal, STRICT).reason == "cpu"


@BOTH
def test_e9_new_one_on_a_full_node(rules: Rules) -> None:
    assert verdict(snapshot(holder()), plan({F: [alloc()]}), rules).reason == "cpu"


@BOTH
def test_e10_stop_the_holder_and_place(rules: Rules) -> None:
    assert verdict(snapshot(holder()), plan({F: [alloc(**FULL)]}, stops={F: [{"ID": "holder"}]}), rules).fit


@BOTH
def test_e11_preempt_the_holder_and_place(rules: Rules) -> None:
    assert verdict(snapshot(holder()), plan({F: [alloc(**FULL)]}, preemptions={F: [{"ID": "holder", "PreemptedByAllocation": "a"}]}), rules).fit


def test_e12_holder_told_to_stop() -> None:
    state = snapshot(holder(desired="evict"))
    assert verdict(state, plan({F: [alloc(**FULL)]}), NOMAD).fit
    assert verdict(state, plan({F: [alloc(**FULL)]}), STRICT).reason == "cpu"


@BOTH
def test_e13_holder_that_failed(rules: Rules) -> None:
    assert verdict(snapshot(holder(client="failed")), plan({F: [alloc(**FULL)]}), rules).fit


@BOTH
def test_e14_one_id_twice(rules: Rules) -> None:
    assert verdict(snapshot(), plan({F: [alloc(4000), alloc(4000)]}), rules).reason == "cpu"


@BOTH
def test_e15_disconnected_node(rules: Rules) -> None:
    state = snapshot(nodes=[node(Status="disconnected")])
    assert verdict(state, plan({F: [alloc(id="a", client="unknown"), alloc(id="b", client="unknown")]}), rules).fit
    assert verdict(state, plan({F: [alloc(id="a", client="unknown"), alloc(id="b", client="running")]}), rules).reason == DISCONNECTED


def test_e16_disconnected_node_and_far_too_much() -> None:
    state = snapshot(nodes=[node(Status="disconnected")])
    proposal = plan({F: [alloc(99999, client="unknown")]})
    assert verdict(state, proposal, NOMAD).fit
    assert verdict(state, proposal, STRICT).reason == "cpu"


@BOTH
def test_e17_lost_on_a_node_that_is_down(rules: Rules) -> None:
    state = snapshot(holder(), nodes=[node(Status="down")])
    assert verdict(state, plan({F: [alloc(**FULL, id="holder", client="lost"), alloc(99999, id="b", client="lost")]}), rules).fit


@BOTH
@pytest.mark.parametrize(("job", "fit"), [(NO_REPLACE, True), (None, False), (REPLACE, False), (UNSET, False)], ids=["e18", "e19", "e20-true", "e20-unset"])
def test_e18_to_e20_unknown_on_a_node_that_is_down(rules: Rules, job: dict[str, Any] | None, fit: bool) -> None:
    found = verdict(snapshot(nodes=[node(Status="down")]), plan({F: [alloc(client="unknown", Job=job)]}), rules)
    assert (found.fit, found.reason) == (fit, "" if fit else DOWN)


@BOTH
def test_e21_running_on_a_node_that_is_down(rules: Rules) -> None:
    assert verdict(snapshot(nodes=[node(Status="down")]), plan({F: [alloc(client="running", Job=NO_REPLACE)]}), rules).reason == DOWN


def test_e22_too_many_allocations() -> None:
    state = snapshot(*on(F, alloc(id="a")), nodes=[node(NodeMaxAllocs=1)])
    proposal = plan({F: [alloc(id="b")]})
    found = verdict(state, proposal, NOMAD)
    assert (found.fit, found.reason, found.error) == (False, "max allocation exceeded", "plan exceeds max allocation")
    found = verdict(state, proposal, STRICT)
    assert (found.fit, found.reason, found.error) == (False, "max allocation exceeded", "")


@BOTH
def test_e23_update_of_one_that_has_ended(rules: Rules) -> None:
    state = snapshot(*on(F, alloc(id="a", client="failed")), nodes=[node(SchedulingEligibility="ineligible")])
    assert verdict(state, plan({F: [alloc(id="a")]}), rules).reason == "node is not eligible"


@BOTH
def test_e24_odd_eligibility(rules: Rules) -> None:
    assert verdict(snapshot(nodes=[node(SchedulingEligibility="whatever")]), plan({F: [alloc()]}), rules).fit


@BOTH
def test_e25_device_in_use(rules: Rules) -> None:
    state = snapshot(*on(F, alloc(id="a", devices=[gpu("g0")])))
    assert verdict(state, plan({F: [alloc(id="b", devices=[gpu("g0")])]}), rules).reason == "device oversubscribed"


# --- whole plans (10.4) ----------------------------------------------------------------------------------------------

SMALL = {"NodeResources": node()["NodeResources"] | {"Memory": {"MemoryMB": 1050}}}
CANARIES = {"ID": "d", "TaskGroups": {"web": {"PlacedCanaries": ["f1", "g1"]}}}
UPDATES = [{"DeploymentID": "d0", "Status": "cancelled"}]


def two_nodes(*stored: dict[str, Any], small: bool = False, **dump: Any) -> Any:
    return snapshot(*stored, nodes=[node(F), node(G, **(SMALL if small else {}))], **dump)


def both_nodes(**fields: Any) -> Plan:
    return plan({F: [alloc(id="f1")], G: [alloc(id="g1")]}, **fields)


@pytest.fixture(params=["compiled", "reference"])
def evaluate(request: pytest.FixtureRequest) -> Any:
    return evaluate_plan if request.param == "compiled" else reference.evaluate_plan


def placed(result: PlanResult) -> dict[str, list[str]]:
    return {node_id: [each.id for each in allocs] for node_id, allocs in result.node_allocation.items()}


@BOTH
def test_p1_fits_on_both(evaluate: Any, rules: Rules) -> None:
    result = evaluate(two_nodes(), both_nodes(), rules)
    assert placed(result) == {F: ["f1"], G: ["g1"]}
    assert (result.refresh_index, result.rejected_nodes, result.is_noop(), result.alloc_index) == (0, (), False, 0)


@BOTH
def test_p2_one_node_too_small(evaluate: Any, rules: Rules) -> None:
    result = evaluate(two_nodes(small=True), both_nodes(), rules)
    assert placed(result) == {F: ["f1"]}
    assert (result.refresh_index, result.rejected_nodes, result.reasons) == (1001, (G,), {G: "memory"})


@BOTH
def test_p3_canaries_of_refused_nodes(evaluate: Any, rules: Rules) -> None:
    proposal = both_nodes(Deployment=CANARIES)
    result = evaluate(two_nodes(small=True), proposal, rules)
    assert result.deployment.task_groups["web"].placed_canaries == ["f1"]
    assert proposal.deployment is not None
    assert proposal.deployment.task_groups["web"].placed_canaries == ["f1", "g1"]


@BOTH
def test_p4_all_at_once_and_refused(evaluate: Any, rules: Rules) -> None:
    result = evaluate(two_nodes(small=True), both_nodes(AllAtOnce=True, Deployment=CANARIES, DeploymentUpdates=UPDATES), rules)
    assert result.to_api() == {"RejectedNodes": [G], "RefreshIndex": 1001}
    assert result.is_noop()
    assert result.full_commit(result.plan) == (False, 2, 0)


@BOTH
def test_p5_all_at_once_and_fits(evaluate: Any, rules: Rules) -> None:
    result = evaluate(two_nodes(), both_nodes(AllAtOnce=True), rules)
    assert placed(result) == {F: ["f1"], G: ["g1"]}
    assert result.refresh_index == 0


@BOTH
def test_p6_a_refused_node_loses_its_stops(evaluate: Any, rules: Rules) -> None:
    state = two_nodes(*on(G, alloc(id="old", memory=1)), small=True)
    result = evaluate(state, both_nodes(stops={G: [{"ID": "old"}]}), rules)
    assert result.node_update == {}
    assert result.rejected_nodes == (G,)


@BOTH
def test_p7_only_preemptions(evaluate: Any, rules: Rules) -> None:
    result = evaluate(snapshot(holder()), plan(preemptions={F: [{"ID": "holder", "PreemptedByAllocation": "x"}]}), rules)
    assert result.is_noop()
    assert result.to_api() == {}


@BOTH
def test_p8_preempting_what_has_ended(evaluate: Any, rules: Rules) -> None:
    state = snapshot(*on(F, alloc(id="ended", client="complete"), alloc(id="live")))
    diffs = [{"ID": "ended", "PreemptedByAllocation": "a"}]
    assert evaluate(state, plan({F: [alloc()]}, preemptions={F: diffs}), rules).to_api()["NodePreemptions"] == {F: []}
    result = evaluate(state, plan({F: [alloc()]}, preemptions={F: [*diffs, {"ID": "live", "PreemptedByAllocation": "a"}]}), rules)
    assert [(each.id, each.desired_status, each.desired_description) for each in result.node_preemptions[F]] == [("live", "evict", "Preempted by alloc ID a")]


@BOTH
def test_p9_unknown_ids(evaluate: Any, rules: Rules) -> None:
    for fields in ({"stops": {F: [{"ID": "x"}]}}, {"preemptions": {F: [{"ID": "x"}]}}, {"preemptions": {G: [{"ID": "x"}]}}):
        with pytest.raises(PlanError, match=r"^alloc x doesn't exist$"):
            evaluate(snapshot(), plan({F: [alloc()]}, **fields), rules)


@BOTH
def test_p10_nothing_to_refresh_to(evaluate: Any, rules: Rules) -> None:
    with pytest.raises(PlanError, match=r"^partialCommit with RefreshIndex of 0$"):
        evaluate(snapshot(nodes=[], indexes={}), plan({"gone": [alloc()]}), rules)


def test_p11_one_node_ends_with_an_error(evaluate: Any) -> None:
    nodes = [node(F), node(G, NodeMaxAllocs=1), node("node-h")]
    state = snapshot(*on(G, alloc(id="old")), nodes=nodes)
    proposal = plan({F: [alloc(id="f1")], G: [alloc(id="g1")], "node-h": [alloc(id="h1")]})
    with pytest.raises(PlanError, match=r"^plan exceeds max allocation$"):
        evaluate(state, proposal, NOMAD)
    result = evaluate(state, proposal, STRICT)
    assert placed(result) == {F: ["f1"], "node-h": ["h1"]}
    assert result.reasons == {G: "max allocation exceeded"}


@pytest.mark.parametrize(("failing", "refused"), [(F, G), (G, F)])
def test_the_lowest_node_decides_all_at_once(evaluate: Any, failing: str, refused: str) -> None:
    state = snapshot(*on(failing, alloc(id="old")), nodes=[node(failing, NodeMaxAllocs=1), node(refused)])
    proposal = plan({failing: [alloc(id="a")], refused: [alloc(99999, id="b")]}, AllAtOnce=True)
    if failing < refused:
        with pytest.raises(PlanError, match=r"^plan exceeds max allocation$"):
            evaluate(state, proposal, NOMAD)
        assert evaluate(state, proposal, STRICT).rejected_nodes == (failing,)
    else:
        assert evaluate(state, proposal, NOMAD).rejected_nodes == (refused,)
        assert evaluate(state, proposal, STRICT).rejected_nodes == (refused,)


@BOTH
def test_p12_everything_refused(evaluate: Any, rules: Rules) -> None:
    result = evaluate(snapshot(), plan({F: [alloc(99999)]}), rules)
    assert (result.is_noop(), result.alloc_index, result.refresh_index) == (True, 0, 1001)


@BOTH
def test_p13_everything_refused_but_a_deployment(evaluate: Any, rules: Rules) -> None:
    assert not evaluate(snapshot(), plan({F: [alloc(99999)]}, Deployment=CANARIES), rules).is_noop()
    assert not evaluate(snapshot(), plan({F: [alloc(99999)]}, DeploymentUpdates=UPDATES), rules).is_noop()


@BOTH
def test_p14_an_empty_list_of_stops(evaluate: Any, rules: Rules) -> None:
    assert evaluate(snapshot(), plan(stops={F: []}), rules).is_noop()


@BOTH
def test_p15_over_quota(evaluate: Any, rules: Rules) -> None:
    seen = []

    def over_quota(state: Any, proposal: Any) -> bool:
        seen.append(proposal)
        return True

    proposal = both_nodes(Deployment=CANARIES)
    result = evaluate(two_nodes(small=True), proposal, rules, over_quota=over_quota)
    assert result.to_api() == {"RefreshIndex": 1001}
    assert (result.is_noop(), result.rejected_nodes, len(seen)) == (True, (), 1)
    assert evaluate(snapshot(nodes=[], indexes={}), proposal, rules, over_quota=over_quota).to_api() == {}
    with pytest.raises(PlanError):
        evaluate(snapshot(), plan(stops={F: [{"ID": "x"}]}), rules, over_quota=over_quota)


@BOTH
def test_p16_canaries_stay_when_nothing_is_refused(evaluate: Any, rules: Rules) -> None:
    result = evaluate(two_nodes(), both_nodes(Deployment={"ID": "d", "TaskGroups": {"web": {"PlacedCanaries": ["other"]}}}), rules)
    assert result.deployment.task_groups["web"].placed_canaries == ["other"]


@BOTH
def test_p17_p18_full_commit(evaluate: Any, rules: Rules) -> None:
    result = evaluate(two_nodes(), plan({F: [alloc(id="f1"), alloc(id="f2")]}), rules)
    assert result.full_commit(plan({F: [alloc(id="f1"), alloc(id="f2")], G: [alloc(id="g1")]})) == (False, 3, 2)
    wide = evaluate(two_nodes(), plan({F: [alloc(id="f1")], G: [alloc(id=f"g{i}") for i in range(4)]}), rules)
    assert wide.full_commit(plan({F: [alloc(id="f1")]})) == (True, 1, 1)
    assert wide.full_commit(wide.plan) == (True, 5, 5)


@BOTH
def test_p19_the_later_table_decides(evaluate: Any, rules: Rules) -> None:
    assert evaluate(two_nodes(small=True, indexes={"nodes": 1001, "allocs": 2000}), both_nodes(), rules).refresh_index == 2000


@BOTH
def test_p20_many_nodes_from_many_threads(rules: Rules) -> None:
    rng = random.Random(20)
    dump = random_dump(rng, 0.02, nodes=120)
    dump["indexes"] = {"nodes": 7}
    state = StateStore.from_dump(dump).snapshot()
    proposals = [random_plan(rng, dump, 0.0) for _ in range(8)]

    def told(api: dict[str, Any]) -> object:
        try:
            result = evaluate_plan(state, Plan.from_api(api), rules)
        except PlanError as problem:
            return str(problem)
        return result.to_api(), result.reasons

    expected = [told(api) for api in proposals]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(told, proposals * 2)) == expected * 2


# --- kinds of fault seen elsewhere (known-faults 33 to 47) -------------------------------------------------------------


@BOTH
def test_fault_33_all_at_once_with_an_unknown_node(evaluate: Any, rules: Rules) -> None:
    names = [f"n{i}" for i in range(5)]
    state = snapshot(nodes=[node(name) for name in names if name != "n2"])
    placements = {name: [alloc(id=f"{name}-a")] for name in names}
    result = evaluate(state, plan(placements, AllAtOnce=True, Deployment=CANARIES), rules)
    assert result.to_api() == {"RejectedNodes": ["n2"], "RefreshIndex": 1001}
    result = evaluate(state, plan(placements), rules)
    assert (list(result.node_allocation), result.rejected_nodes, result.refresh_index) == (["n0", "n1", "n3", "n4"], ("n2",), 1001)


@BOTH
def test_fault_36_maps_that_are_null(evaluate: Any, rules: Rules) -> None:
    assert evaluate(snapshot(), Plan.from_api({"NodeUpdate": None, "NodeAllocation": None, "NodePreemptions": None}), rules).is_noop()
    assert evaluate(snapshot(), Plan.from_api({"NodeUpdate": {F: None}, "NodeAllocation": {F: None}, "NodePreemptions": {F: None}}), rules).is_noop()


@BOTH
def test_fault_37_closed_node(rules: Rules) -> None:
    state = snapshot(*on(F, alloc(id="a")), nodes=[node(SchedulingEligibility="ineligible")])
    assert verdict(state, plan({F: [alloc(id="a")]}), rules).fit
    assert verdict(state, plan(stops={F: [{"ID": "a"}]}), rules).fit
    assert verdict(state, plan({F: [alloc(id="a"), alloc(id="b")]}), rules).reason == "node is not eligible"


@BOTH
def test_fault_38_every_status_has_its_reason(rules: Rules) -> None:
    statuses = ("pending", "running", "unknown", "lost", "complete")
    accepted = {
        status: [client for client in statuses if verdict(snapshot(nodes=[node(Status=status)]), plan({F: [alloc(client=client)]}), rules).fit]
        for status in ("ready", "initializing", "down", "disconnected")
    }
    assert accepted == {"ready": list(statuses), "initializing": [], "down": ["lost"], "disconnected": ["unknown"]}


@BOTH
def test_fault_39_every_refused_node_has_its_reason(evaluate: Any, rules: Rules) -> None:
    names = ["n1", "n2", "n3"]
    state = snapshot(*on("n2", alloc(id="web", ports=[port(8000)])), nodes=[node(name) for name in names])
    placements = {"n1": [alloc(id="a")], "n2": [alloc(id="b", ports=[port(8000)])], "n3": [alloc(99999, id="c")]}
    result = evaluate(state, plan(placements), rules)
    assert list(result.node_allocation) == ["n1"]
    collision = "collision when reserving port for alloc b: [port 8000 already in use]"
    assert result.reasons == {"n2": f"reserved alloc port collision: {collision}", "n3": "cpu"}
    assert [verdict.code for verdict in result.refused.values()] == [Reason.ALLOC_PORTS, Reason.CPU]


@BOTH
def test_fault_43_a_preempted_allocation_keeps_its_job(evaluate: Any, rules: Rules) -> None:
    low = {"ID": "low", "Namespace": "default", "Version": 3, "TaskGroups": [{"Name": "web"}]}
    state = snapshot(*on(F, alloc(id="a", Job=low) | {"JobID": "low"}))
    high = {"ID": "high", "Namespace": "default", "TaskGroups": [{"Name": "web"}]}
    result = evaluate(state, plan({F: [alloc(id="b")]}, preemptions={F: [{"ID": "a", "PreemptedByAllocation": "b"}]}, Job=high), rules)
    (evicted,) = result.node_preemptions[F]
    assert (evicted.job.id, evicted.job.version, evicted.preempted_by_allocation) == ("low", 3, "b")


@BOTH
def test_fault_46_an_unknown_stop_leaves_everything(evaluate: Any, rules: Rules) -> None:
    state = snapshot(*on(F, alloc(id="a")))
    with pytest.raises(PlanError, match="alloc x doesn't exist"):
        evaluate(state, plan(stops={F: [{"ID": "a"}, {"ID": "x"}]}), rules)
    (stored,) = state.allocs_by_node(F)
    assert (stored.id, stored.desired_status) == ("a", "run")


def test_fault_47_inputs_never_change() -> None:
    allocs = load(alloc(id="a"), alloc(id="b"), alloc(id="c"))
    for _ in range(2):
        assert [each.id for each in remove_allocs(allocs, [allocs[1]])] == ["a", "c"]
    assert [each.id for each in allocs] == ["a", "b", "c"]


# --- stops and preemptions (5.4) -----------------------------------------------------------------------------------------


@BOTH
def test_a_stop_is_the_stored_allocation_changed(evaluate: Any, rules: Rules) -> None:
    state = snapshot(*on(F, alloc(id="a", AllocStates=[{"Value": "unknown"}], Name="job.web[0]", FollowupEvalID="e0")))
    (stopped,) = evaluate(state, plan(stops={F: [{"ID": "a", "DesiredDescription": "done", "ModifyTime": 9}]}), rules).node_update[F]
    assert (stopped.desired_status, stopped.desired_description, stopped.client_status) == ("stop", "done", "running")
    assert (stopped.name, stopped.followup_eval_id, stopped.alloc_states) == ("job.web[0]", "e0", [])
    diff = {"ID": "a", "ClientStatus": "lost", "FollowupEvalID": "e1"}
    (stopped,) = evaluate(state, plan(stops={F: [diff]}), rules).node_update[F]
    assert (stopped.client_status, stopped.followup_eval_id, stopped.desired_description) == ("lost", "e1", "")


@BOTH
def test_nodes_are_looked_up_again_when_their_rows_have_changed_hands(rules: Rules) -> None:
    store = StateStore.from_dump({"nodes": [node(F)], "indexes": {"nodes": 1001}})
    proposal = plan({F: [alloc(id="f1")], G: [alloc(id="g1")]})
    columns = PlanColumns.from_plan(proposal, store)
    assert evaluate_plan(store.snapshot(), proposal, rules).rejected_nodes == (G,)
    store.delete_node(1002, F)
    store.put_node(load_node(node(G)))
    assert evaluate_plan(store.snapshot(), proposal, rules).rejected_nodes == (F,)
    store.put_node(load_node(node(F)))
    assert evaluate_plan(store.snapshot(), proposal, rules).rejected_nodes == ()
    assert PlanColumns.of(proposal, store) is columns
