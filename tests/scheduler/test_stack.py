"""Stacks: how many nodes are looked at, preferred nodes, ties (schedulers 10): rows R14 to R17, R32."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from fastplan.rules import Rules
from fastplan.scheduler.ties import final_key, fit_steps, tie_key, tie_seed
from fastplan.structs import Node
from fastplan.testing.builders import batch_job, group_api, ready_node, running_alloc, service_job, system_job
from tests.scheduler.ranking import EVAL_ID, Site

BOTH = pytest.mark.parametrize("rules", list(Rules))
AFFINITY = {"LTarget": "${attr.arch}", "Operand": "=", "RTarget": "amd64", "Weight": 1}
NO_ROOM = "00000000-0000-0000-0000-000000000000"


def equal_nodes(count: int) -> list[Node]:
    return [ready_node(f"n{number:04}") for number in range(count)]


def test_r14_a_few_of_many_nodes_and_then_the_next_few():
    site = Site(service_job("web", group_api(count=3)), equal_nodes(1000), rules=Rules.NOMAD)
    order = [node.id for node in site.stack._source.nodes]
    assert order != sorted(order)
    assert site.place() == order[0]
    assert site.metric.nodes_evaluated == 10
    assert site.place() == order[10]
    assert site.place() == order[20]


def test_r15_two_for_batch_jobs():
    site = Site(batch_job("crunch"), equal_nodes(1000), rules=Rules.NOMAD)
    assert site.place() is not None
    assert site.metric.nodes_evaluated == 2


@pytest.mark.parametrize(("count", "config", "evaluated"), [(300, {}, 300), (1, {}, 100), (1, {"NodeLimitForFeasibilityChecks": 40}, 40)])
def test_r16_more_where_there_are_preferences(count, config, evaluated):
    job = service_job("web", group_api(count=count), Affinities=[AFFINITY])
    site = Site(job, equal_nodes(500), rules=Rules.NOMAD, config={"SchedulerAlgorithm": "binpack", **config})
    assert site.place() is not None
    assert site.metric.nodes_evaluated == evaluated


def test_r17_what_is_filtered_does_not_count_as_an_option():
    nodes = [*equal_nodes(2), ready_node("n0002", ComputedClass="windows", Attributes={"kernel.name": "windows"})]
    constraint = {"LTarget": "${attr.kernel.name}", "Operand": "=", "RTarget": "linux"}
    site = Site(service_job("web", Affinities=[AFFINITY], Constraints=[constraint]), nodes, rules=Rules.NOMAD)
    assert site.place() is not None
    metric = site.metric
    assert (metric.nodes_evaluated, metric.nodes_filtered) == (3, 1)


@pytest.mark.parametrize(("rules", "evaluated"), [(Rules.NOMAD, 50), (Rules.STRICT, 50)])
def test_a_later_group_inherits_the_raised_limit(rules, evaluated):
    groups = [group_api("a", Affinities=[AFFINITY]), group_api("b", count=99)]
    site = Site(service_job("web", *groups), equal_nodes(50), rules=rules)
    assert site.place("a") is not None
    assert site.place("b") is not None
    assert site.metric.nodes_evaluated == evaluated
    if rules is Rules.NOMAD:
        site.stack.set_nodes(site.nodes)
        assert site.place("b") is not None
        assert site.metric.nodes_evaluated == 6


def test_every_node_is_scored_under_strict_rules():
    other = service_job("other")
    allocs = [running_alloc("a", other, "n0123", cpu_mhz=2000, memory_mib=4000)]
    site = Site(batch_job("crunch"), equal_nodes(200), allocs, rules=Rules.STRICT)
    assert site.place() == "n0123"
    assert site.metric.nodes_evaluated == 200


def test_ties_are_broken_by_evaluation_snapshot_and_attempt():
    nodes = equal_nodes(40)
    chosen = {
        (eval_id, index, attempt): Site(service_job(), nodes, rules=Rules.STRICT, eval_id=eval_id, index=index, attempt=attempt).place()
        for eval_id in (EVAL_ID, NO_ROOM)
        for index in (1000, 1001)
        for attempt in (0, 1)
    }
    assert len(set(chosen.values())) > 3
    for (eval_id, index, attempt), node_id in chosen.items():
        site = Site(service_job(), nodes, rules=Rules.STRICT, eval_id=eval_id, index=index, attempt=attempt)
        seed = tie_seed(eval_id, index, attempt)
        assert node_id == min((node.id for node in nodes), key=lambda node_id: tie_key(seed, site.state.node_row(node_id) or 0))
        assert site.place() == node_id


def test_the_best_is_what_a_look_at_each_node_alone_says():
    rng = random.Random(3)
    other = service_job("other")
    for round_number in range(20):
        nodes = [
            ready_node(f"n{number}", cpu_mhz=rng.choice((2000, 4000)), memory_mib=rng.choice((2048, 4096)), datacenter=rng.choice("ab")) for number in range(8)
        ]
        allocs = [running_alloc(f"a{number}", other, f"n{rng.randrange(8)}", cpu_mhz=rng.choice((300, 600)), memory_mib=256) for number in range(8)]
        affinity = {"LTarget": "${node.datacenter}", "Operand": "=", "RTarget": "a", "Weight": rng.choice((-50, 50))}
        job = service_job("web", group_api(count=3, cpu_mhz=700), Affinities=[affinity] * rng.randrange(2))
        site = Site(job, nodes, allocs, rules=Rules.STRICT, index=1000 + round_number)
        seed = tie_seed(EVAL_ID, 1000 + round_number, 0)
        for _ in range(3):
            keys = {}
            for node in site.nodes:
                site.stack.set_nodes([node])
                ranked = site.select()
                if ranked is not None:
                    row = site.state.node_row(node.id)
                    assert row is not None
                    keys[node.id] = (-final_key(ranked.scores, fit_steps(0)), tie_key(seed, row))
            site.stack.set_nodes(site.nodes)
            assert site.place() == min(keys, key=keys.__getitem__, default=None)


@BOTH
def test_preferred_nodes_come_first_and_alone(rules):
    nodes = equal_nodes(3)
    other = service_job("other")
    allocs = [running_alloc("a", other, "n0001", cpu_mhz=3000, memory_mib=6000)]
    site = Site(service_job(), nodes, allocs, rules=rules)
    preferred = [node for node in site.nodes if node.id == "n0002"]
    ranked = site.select(preferred_nodes=preferred)
    assert ranked is not None
    assert ranked.node.id == "n0002"
    assert site.metric.nodes_evaluated == 1
    # Where the preferred node has no room, all others are looked at, and only that selection is counted.
    full = [running_alloc("b", other, "n0002", cpu_mhz=4000)]
    site = Site(service_job(), nodes, [*allocs, *full], rules=rules)
    ranked = site.select(preferred_nodes=[node for node in site.nodes if node.id == "n0002"])
    assert ranked is not None
    assert ranked.node.id == "n0001"
    metric = site.metric
    assert metric.nodes_evaluated == 3
    assert site.select() is not None
    assert site.metric.nodes_evaluated == 3


def test_r32_a_retry_on_a_newer_snapshot_looks_at_nodes_in_another_order():
    nodes = equal_nodes(100)
    first = Site(service_job(), nodes, rules=Rules.NOMAD, index=1000)
    again = Site(service_job(), nodes, rules=Rules.NOMAD, index=1000)
    later = Site(service_job(), nodes, rules=Rules.NOMAD, index=1010)
    order, repeated, other = ([node.id for node in site.stack._source.nodes] for site in (first, again, later))
    assert order == repeated
    assert order != other


@BOTH
def test_no_nodes_no_choice(rules):
    site = Site(service_job(), [], rules=rules)
    assert site.select() is None
    assert site.metric.nodes_evaluated == 0
    site = Site(system_job(), [], rules=rules)
    assert site.select() is None


@BOTH
def test_a_system_stack_looks_at_the_nodes_that_were_set(rules):
    site = Site(system_job(), equal_nodes(3), rules=rules)
    for node in site.nodes:
        site.stack.set_nodes([node])
        ranked = site.select()
        assert ranked is not None
        assert ranked.node.id == node.id
        assert site.metric.nodes_evaluated == 1


def test_workers_of_many_evaluations_do_not_meet_on_one_node():
    nodes = equal_nodes(20)
    chosen = Counter(Site(service_job(), nodes, rules=Rules.STRICT, eval_id=f"evaluation-{number}").place() for number in range(60))
    assert len(chosen) > 12
    assert max(chosen.values()) < 12
