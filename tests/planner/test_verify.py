"""The compiled verification against the reference: verdict, reason and the whole result, on random clusters, with and without plans in flight."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from fastplan import Plan
from fastplan.errors import PlanError
from fastplan.planner import PlanResult, Rules, evaluate_plan, reference
from fastplan.planner._overlay import Overlay
from fastplan.planner.evaluate import Verified, verify_plan
from fastplan.planner.in_flight import InFlightState
from fastplan.planner.reference import StateReader
from fastplan.planner.view import OptimisticView
from fastplan.state import StateStore
from fastplan.state.plans import PlanColumns
from tests.planner import cases
from tests.planner.cases import F, alloc, node, on
from tests.planner.random_plans import JOB, apply, random_dump, random_plan
from tests.sizes import sized

RULES = list(Rules)


def answer(run: Callable[..., PlanResult], *arguments: Any) -> Any:
    """Everything that a caller can see of an evaluation."""
    try:
        result = run(*arguments)
    except PlanError as problem:
        return str(problem)
    return [result.to_api(), result.reasons, result.is_noop(), result.full_commit(result.plan), result.refresh_index]


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("odd", [0.0, 0.1])
def test_random_plans_get_the_answer_of_the_reference(rules: Rules, odd: float) -> None:
    compare_with_the_reference(rules, odd, range(120))


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("odd", [0.0, 0.1])
def test_many_random_plans_get_the_answer_of_the_reference(rules: Rules, odd: float) -> None:
    compare_with_the_reference(rules, odd, range(1000, 1000 + sized(500, 5000)))


def compare_with_the_reference(rules: Rules, odd: float, seeds: range) -> None:
    fitting = refused = 0
    for seed in seeds:
        rng = random.Random(seed)
        dump = random_dump(rng, odd)
        snapshot = StateStore.from_dump(dump).snapshot()
        api = random_plan(rng, dump, odd)
        plan = Plan.from_api(api)
        before = plan.to_api()
        expected = answer(reference.evaluate_plan, snapshot, Plan.from_api(api), rules)
        assert answer(evaluate_plan, snapshot, plan, rules) == expected, seed
        assert plan.to_api() == before
        fitting += isinstance(expected, list) and not expected[1]
        refused += isinstance(expected, list) and bool(expected[1])
    assert fitting > len(seeds) / 20
    assert refused > len(seeds) / 8


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("odd", [0.0, 0.1])
def test_plans_in_flight_count_as_if_they_were_committed(rules: Rules, odd: float) -> None:
    compare_with_what_was_applied(rules, odd, range(25))


@pytest.mark.slow
@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("odd", [0.0, 0.1])
def test_many_plans_in_flight_count_as_if_they_were_committed(rules: Rules, odd: float) -> None:
    compare_with_what_was_applied(rules, odd, range(1000, 1000 + sized(150, 1500)))


def compare_with_what_was_applied(rules: Rules, odd: float, seeds: range) -> None:
    rested = refused = 0
    for seed in seeds:
        rng = random.Random(seed)
        dump = random_dump(rng, odd, nodes=3)
        dump["indexes"] = {"nodes": 5, "allocs": 5}
        committed, applied = StateStore.from_dump(dump), StateStore.from_dump(dump)
        overlay = Overlay()
        in_flight: list[Verified] = []
        placed: list[dict[str, Any]] = []
        for step in range(8):
            api = random_plan(rng, dump, odd, placed)
            api["Job"] = JOB
            plan, twin = Plan.from_api(api), Plan.from_api(api)
            verified = verify_plan(committed, plan, PlanColumns.from_plan(plan, committed), rules, overlay=overlay)
            expected = answer(reference.evaluate_plan, applied, twin, rules)
            got = answer(verified.outcome)
            if isinstance(expected, list) and isinstance(got, list):
                # The index of what is in flight is not known yet.
                expected[0].pop("RefreshIndex", None), got[0].pop("RefreshIndex", None)
                expected[4] = got[4] = 0
            assert told(got) == told(expected), (seed, step)
            reader: StateReader = InFlightState(committed, overlay)
            for node_id in (each["ID"] for each in dump["nodes"]):
                assert usage(reader, node_id) == usage(applied, node_id), (seed, step)
            rested += verified.in_flight
            if verified.result is not None:
                refused += verified.result.partial
                overlay.add(verified.columns.view(), plan, verified.codes, verified.kept_preemptions, committed.nodes_view, committed.allocs_view)
                in_flight.append(verified)
                apply(applied, 10 + step, twin, reference.evaluate_plan(applied, twin, rules))
                placed += [alloc for allocs in verified.result.to_api().get("NodeAllocation", {}).values() for alloc in allocs]
            if in_flight and rng.random() < 0.3:
                first = in_flight.pop(0)
                overlay.remove(first.columns.view())
                assert first.result is not None
                apply(committed, 10 + step, first.plan, first.result)
        while in_flight:
            overlay.remove(in_flight.pop(rng.randrange(len(in_flight))).columns.view())
        assert len(overlay) == overlay.odd_count == 0
    assert rested > len(seeds)
    assert refused > len(seeds)


@pytest.mark.parametrize("rules", RULES)
@pytest.mark.parametrize("odd", [0.0, 0.1])
def test_plans_verified_together_get_the_answers_that_they_get_one_by_one(rules: Rules, odd: float) -> None:
    whole = parts = rested = 0
    for seed in range(10):
        rng = random.Random(seed)
        dump = random_dump(rng, odd, nodes=rng.choice((4, 40)))
        for each in dump["nodes"]:
            # So that many plans are accepted whole.
            each |= {"Status": "ready", "SchedulingEligibility": "eligible"} if rng.random() < 0.9 else {}
        store = StateStore.from_dump(dump | {"indexes": {"nodes": 5, "allocs": 5}})
        view, overlay = view_of(store, rules), Overlay()
        flying: list[list[Any]] = []
        for group in range(6):
            few = [dump | {"nodes": rng.sample(dump["nodes"], rng.randint(1, 2))} for _ in range(rng.randint(1, 12))]
            apis = [random_plan(rng, each, odd) | {"Job": JOB} for each in few]
            plans = [Plan.from_api(api) for api in apis]
            for plan in plans:
                if rng.random() < 0.8:
                    PlanColumns.from_plan(plan, store)
            if len(plans) > 3 and rng.random() < 0.5:
                # The same object once more.
                plans.append(plans[0])
                apis.append(apis[0])
            found = view.verify(plans, group)
            assert [verdict.plan for verdict in found] == plans
            members = []
            for verdict, api in zip(found, apis, strict=True):
                twin = Plan.from_api(api)
                alone = verify_plan(store, twin, PlanColumns.from_plan(twin, store), rules, overlay=overlay if len(overlay) else None)
                assert decided(verdict) == decided(alone), (seed, group)
                if alone.result is not None:
                    assert (verdict.in_flight, verdict.codes.tolist()) == (alone.in_flight, alone.codes.tolist()), (seed, group)
                    assert verdict.kept_preemptions.tolist() == alone.kept_preemptions.tolist()
                    assert verdict.accepted.tolist() == alone.accepted.tolist()
                    whole += not alone.result.partial
                    parts += alone.result.partial
                    rested += alone.in_flight
                if alone.result is not None and not alone.result.is_noop():
                    overlay.add(alone.columns.view(), twin, alone.codes, alone.kept_preemptions, store.nodes_view, store.allocs_view)
                    members.append(alone.columns.view())
            flying.append(members)
            assert view.in_flight() == len(overlay)
            assert [change[1:] for change in view._overlay.all_changes()] == [change[1:] for change in overlay.all_changes()]
            if rng.random() < 0.3:
                first = rng.randrange(len(flying))
                view.drop(first)
                for member in flying[first]:
                    overlay.remove(member)
                flying[first] = []
    assert min(whole, parts, rested) > 40


def test_the_overlay_knows_what_is_in_flight() -> None:
    store = StateStore.from_dump({"nodes": [node()], "allocs": on(F, alloc(id="old")), "indexes": {"nodes": 5}})
    plan = cases.plan({F: [alloc(id="new")]}, stops={F: [{"ID": "old"}]})
    verified = verify_plan(store, plan, PlanColumns.from_plan(plan, store))
    overlay = Overlay()
    view = verified.columns.view()
    entry = (view, plan, verified.codes, verified.kept_preemptions, store.nodes_view, store.allocs_view)
    overlay.add(*entry)
    assert len(overlay) == 1
    assert [(owner is plan, kind, row) for owner, kind, row in overlay.all_changes()] == [(True, 0, 0), (True, 1, 0)]
    assert overlay.changes_on(int(verified.columns.node_rows[0]), 0) == overlay.all_changes()
    assert overlay.changes_on(int(verified.columns.node_rows[0]), 1) == []
    with pytest.raises(ValueError, match="in flight already"):
        overlay.add(*entry)
    overlay.remove(view)
    with pytest.raises(KeyError):
        overlay.remove(view)
    with pytest.raises(ValueError, match="codes needs"):
        overlay.add(view, plan, verified.codes[1:], verified.kept_preemptions, store.nodes_view, store.allocs_view)
    assert (len(overlay), overlay.all_changes(), overlay.placement(bytes(16))) == (0, [], None)


def test_many_plans_come_and_go() -> None:
    rng = random.Random(8)
    dump = random_dump(rng, 0.0, nodes=20)
    for each in dump["nodes"]:
        each |= {"Status": "ready", "SchedulingEligibility": "eligible", "NodeMaxAllocs": 0}
    store = StateStore.from_dump(dump | {"indexes": {"nodes": 5}})
    overlay = Overlay()
    flying: list[Verified] = []
    for _ in range(400):
        plan = Plan.from_api(random_plan(rng, dump, 0.0))
        verified = verify_plan(store, plan, PlanColumns.from_plan(plan, store), overlay=overlay)
        if verified.error is None:
            overlay.add(verified.columns.view(), plan, verified.codes, verified.kept_preemptions, store.nodes_view, store.allocs_view)
            flying.append(verified)
        while len(flying) > rng.randrange(60):
            overlay.remove(flying.pop(rng.randrange(len(flying))).columns.view())
        placed = {
            bytes(key)
            for each in flying
            for i, key in enumerate(each.columns.alloc_ids)
            if each.codes[each.columns.place_offsets.searchsorted(i, "right") - 1] == 0
        }
        assert {
            bytes(each.columns.alloc_ids[i])
            for each in flying
            for i in range(len(each.columns.alloc_ids))
            if overlay.placement(bytes(each.columns.alloc_ids[i]))
        } == placed
        assert len(overlay) == len(flying)


def view_of(store: StateStore, rules: Rules) -> OptimisticView:
    return OptimisticView(lambda: store, rules)


def decided(verdict: Verified) -> Any:
    """What is settled when a plan is verified; the records of a result are made later, and show what has become of its stops by then."""
    if verdict.error is not None:
        return str(verdict.error)
    result = verdict.outcome()
    return [result.reasons, result.accepted_counts, result.is_noop(), result.full_commit(result.plan), result.kept, result.refresh_index]


def usage(state: StateReader, node_id: str) -> list[Any]:
    return [(alloc.id, alloc.desired_status, alloc.client_status) for alloc in state.allocs_by_node(node_id)]


def told(value: Any) -> Any:
    """What a result says of plans and allocations, without what only the commit knows: indexes, times, and how notes are put together."""
    if isinstance(value, dict):
        return {key: told(inner) for key, inner in value.items() if inner and key not in _LEFT_OUT}
    return [told(inner) for inner in value] if isinstance(value, list | tuple) else value


_LEFT_OUT = {
    *("CreateIndex", "ModifyIndex", "AllocModifyIndex", "Job", "JobVersion", "NodeName", "AllocStates"),
    *("DesiredDescription", "PreemptedByAllocation", "FollowupEvalID"),
}
