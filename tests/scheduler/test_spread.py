"""Spreading a group over the values of an attribute (schedulers 9.7): rows R8 to R11, known fault 31."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from fastplan.rules import Rules
from fastplan.scheduler.spread import even_boost
from fastplan.structs import Node
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job
from tests.scheduler.ranking import Site

BOTH = pytest.mark.parametrize("rules", list(Rules))


def spread(attribute: str, weight: int = 100, **percents: int) -> dict[str, Any]:
    return {"Attribute": attribute, "Weight": weight, "SpreadTarget": [{"Value": value, "Percent": percent} for value, percent in percents.items()]}


def grid() -> list[Node]:
    return [ready_node(f"{dc}-{rack}", datacenter=dc, Meta={"rack": rack}) for dc in ("dc1", "dc2") for rack in ("r1", "r2")]


def spread_scores(site: Site, group: str = "", **options: Any) -> dict[str, float]:
    """The spread score of every node, each looked at alone."""
    scores = {}
    for node in site.nodes:
        site.stack.set_nodes([node])
        assert site.select(group, **options) is not None
        scores[node.id] = site.scores()[node.id]["allocation-spread"]
    return scores


def placed(job: Any, *node_ids: str, group: str = "") -> list[Any]:
    return [running_alloc(f"a{number}", job, node_id, index=number, group=group) for number, node_id in enumerate(node_ids)]


@BOTH
def test_r8_a_target_and_the_rest(rules):
    job = service_job("web", group_api(count=10), Spreads=[spread("${node.datacenter}", dc1=80)])
    site = Site(job, grid(), placed(job, "dc1-r1", "dc1-r2"), rules=rules)
    assert spread_scores(site) == pytest.approx({"dc1-r1": 0.625, "dc1-r2": 0.625, "dc2-r1": 0.5, "dc2-r2": 0.5})


@BOTH
def test_r8_two_blocks(rules):
    job = service_job("web", group_api(count=10), Spreads=[spread("${node.datacenter}", 100, dc1=60, dc2=40), spread("${meta.rack}", 50, r1=40, r2=60)])
    site = Site(job, grid(), placed(job, "dc1-r1", "dc1-r1"), rules=rules)
    scores = spread_scores(site)
    assert {node_id: scores[node_id] for node_id in ("dc2-r2", "dc2-r1", "dc1-r1")} == pytest.approx(
        {"dc2-r2": 0.5 + 5 / 6 / 3, "dc2-r1": 0.5 + 1 / 12, "dc1-r1": 1 / 3 + 1 / 12}
    )


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, {"a": 0.0}),
        ({"a": 2}, {"a": -1.0, "b": 1.0}),
        ({"a": 2, "b": 3}, {"a": 0.5, "b": -0.5, "c": 1.0}),
        ({"a": 1, "b": 3}, {"a": 2.0, "b": -2.0}),
        ({"a": 3, "b": 3}, {"a": -1.0, "b": -1.0, "c": 1.0}),
        ({"a": 0, "b": 2}, {"a": 1.0, "b": -1.0, "c": 1.0}),
        ({"a": 0}, {"a": -1.0}),
    ],
)
def test_r8_even_spread(counts, expected):
    assert {value: even_boost(value, counts) for value in expected} == expected
    # Nothing depends on the order in which values were counted.
    assert {value: even_boost(value, dict(reversed(counts.items()))) for value in expected} == expected


@BOTH
def test_r9_three_on_every_rack(rules):
    nodes = [ready_node(f"n{number}", cpu_mhz=40_000, memory_mib=40_000, Meta={"rack": f"r{number % 3}"}) for number in range(6)]
    site = Site(service_job("web", group_api(count=9), Spreads=[spread("${meta.rack}")]), nodes, rules=rules)
    racks = {node.id: node.meta["rack"] for node in site.nodes}
    assert Counter(racks[str(site.place())] for _ in range(9)) == {"r0": 3, "r1": 3, "r2": 3}


@BOTH
def test_r10_a_value_that_is_not_wanted(rules):
    site = Site(service_job("web", group_api(count=3), Spreads=[spread("${node.datacenter}", dc1=100)]), grid(), rules=rules)
    assert spread_scores(site) == {"dc1-r1": pytest.approx(2 / 3), "dc1-r2": pytest.approx(2 / 3), "dc2-r1": -1.0, "dc2-r2": -1.0}


@BOTH
def test_a_node_without_the_attribute(rules):
    site = Site(service_job("web", Spreads=[spread("${meta.rack}")]), [ready_node("n1")], rules=rules)
    assert spread_scores(site) == {"n1": -1.0}


def test_r11_zero_per_cent_is_the_lowest_boost_so_far():
    job = service_job("web", group_api(count=4), Spreads=[spread("${node.datacenter}", dc1=25, dc2=0, dc3=75)])
    nodes = [ready_node(dc, datacenter=dc) for dc in ("dc1", "dc2", "dc3")]
    site = Site(job, nodes, placed(job, "dc1", "dc1", "dc1"), rules=Rules.NOMAD)
    # dc1 wants 1 and has 3: (1 − 4) / 1. dc2 is seen after it.
    assert spread_scores(site) == {"dc1": -3.0, "dc2": -3.0, "dc3": pytest.approx(2 / 3)}
    site = Site(job, list(reversed(nodes)), placed(job, "dc1", "dc1", "dc1"), rules=Rules.NOMAD)
    site.nodes.reverse()
    assert spread_scores(site)["dc2"] == -1.0


def test_zero_per_cent_does_not_depend_on_the_order_of_nodes():
    job = service_job("web", group_api(count=4), Spreads=[spread("${node.datacenter}", dc1=25, dc2=0, dc3=75)])
    nodes = [ready_node(dc, datacenter=dc) for dc in ("dc1", "dc2", "dc3")]
    for reverse in (False, True):
        site = Site(job, nodes, placed(job, "dc1", "dc1", "dc1"), rules=Rules.STRICT)
        site.nodes.sort(key=lambda node: node.id, reverse=reverse)
        assert spread_scores(site)["dc2"] == -3.0


@BOTH
def test_fault_31_zero_per_cent_is_finite_and_least_wanted(rules):
    job = service_job("web", group_api(count=3), Spreads=[spread("${node.datacenter}", dc1=100, dc2=0)])
    site = Site(job, [ready_node("dc1-n"), ready_node("dc2-n", datacenter="dc2")], rules=rules)
    assert [site.place() for _ in range(3)] == ["dc1-n"] * 3
    text = json.dumps(site.metric.to_api())
    assert "Infinity" not in text
    assert "NaN" not in text


@pytest.mark.parametrize(("rules", "expected"), [(Rules.NOMAD, 0.25), (Rules.STRICT, 0.5)])
def test_the_sum_of_weights_grows_from_group_to_group_as_recorded(rules, expected):
    groups = [group_api(name, count=2, Spreads=[spread("${node.datacenter}", 50, dc1=100)]) for name in ("a", "b")]
    site = Site(service_job("web", *groups), [ready_node("n1")], rules=rules)
    assert spread_scores(site, "a") == {"n1": 0.5}
    assert spread_scores(site, "b") == {"n1": expected}
    assert spread_scores(site, "b") == {"n1": expected}


@pytest.mark.parametrize(("rules", "expected"), [(Rules.NOMAD, 0.25), (Rules.STRICT, 0.5)])
def test_the_sum_of_weights_grows_when_the_job_is_set_again_as_recorded(rules, expected):
    site = Site(service_job("web", group_api(count=2), Spreads=[spread("${node.datacenter}", 50, dc1=100)]), [ready_node("n1")], rules=rules)
    assert spread_scores(site) == {"n1": 0.5}
    site.stack.set_job(site.job)
    assert spread_scores(site) == {"n1": expected}


@BOTH
def test_one_attribute_at_both_levels_is_scored_twice_with_the_block_of_the_job(rules):
    group = group_api(count=4, Spreads=[spread("${node.datacenter}", 60, dc1=25)])
    site = Site(service_job("web", group, Spreads=[spread("${node.datacenter}", 40, dc1=100)]), [ready_node("n1")], rules=rules)
    assert spread_scores(site) == {"n1": pytest.approx(2 * (4 - 1) / 4 * 40 / 100)}


@BOTH
def test_only_the_group_itself_is_counted(rules):
    groups = [group_api("a", count=2), group_api("b", count=2)]
    job = service_job("web", *groups, Spreads=[spread("${node.datacenter}", dc1=100)])
    site = Site(job, [ready_node("n1")], placed(job, "n1", group="b"), rules=rules)
    assert spread_scores(site, "a") == {"n1": 0.5}


@BOTH
def test_what_the_plan_places_and_stops_counts(rules):
    job = service_job("web", group_api(count=10), Spreads=[spread("${node.datacenter}", dc1=80)])
    site = Site(job, grid(), placed(job, "dc1-r1", "dc1-r2"), rules=rules)
    stored = site.state.alloc("a0")
    assert stored is not None
    site.context.draft.stop(stored, "test")
    assert spread_scores(site)["dc1-r1"] == pytest.approx(0.75)
    site.stack.set_nodes([node for node in site.nodes if node.datacenter == "dc1"])
    site.place()
    assert spread_scores(site)["dc1-r1"] == pytest.approx(0.625)


@BOTH
def test_a_score_of_nothing_is_not_added(rules):
    site = Site(service_job("web", Spreads=[spread("${node.datacenter}")]), [ready_node("n1")], rules=rules)
    ranked = site.select()
    assert ranked is not None
    assert len(ranked.scores) == 1
    assert site.scores()["n1"]["allocation-spread"] == 0.0
