"""Random clusters: what holds for system and sysbatch jobs whatever the state (schedulers 5; table 13.1, O46 to O49)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from fastplan.rules import Rules
from fastplan.scheduler.setting import Overlap
from fastplan.structs import Allocation, Job, Node
from fastplan.testing.builders import group_api, ready_node
from tests.scheduler.system_cluster import (
    BOTH_RULES,
    MINUTE_NS,
    UPDATING,
    Allocs,
    Cluster,
    Outcome,
    changed,
    down,
    draining,
    ineligible,
    job_of,
    reconnecting,
    reordered,
    successful,
    unknown_since,
)

POLICIES: tuple[Overlap, ...] = ("enforce", "pr16097", "head")


class Scene:
    """A random job with random nodes and allocations. *overlap*: whether several may live in one slot."""

    def __init__(self, seed: int, *, overlap: bool = True, limits: bool = True) -> None:
        rng = self.rng = random.Random(seed)
        self.kind = rng.choice(("system", "system", "sysbatch"))
        self.most = 1 if self.kind == "system" else 3
        groups = [self._group(name, limits) for name in rng.sample(("a", "b", "c"), rng.randint(1, 3))]
        self.job = job_of(
            self.kind,
            *groups,
            Datacenters=rng.choice((["*"], ["dc1"])),
            Update={"MaxParallel": rng.choice((0, 1, 2)) if limits else 0},
            Priority=60,
        )
        self.of = Allocs(self.job)
        self.nodes = [self._node(number) for number in range(rng.randint(0, 5))]
        self.allocs: list[Allocation] = []
        for node_id in [*(node.id for node in self.nodes), *rng.sample(("gone",), rng.randint(0, 1))]:
            self._fill(node_id, overlap)

    def _group(self, name: str, limits: bool) -> dict[str, Any]:
        rng = self.rng
        more: dict[str, Any] = {"Disconnect": {"LostAfter": rng.choice((0, 5 * MINUTE_NS))}}
        if limits and rng.random() < 0.4:
            more["Update"] = {"MaxParallel": rng.randint(0, 2), "Stagger": MINUTE_NS}
        if rng.random() < 0.2:
            more["Constraints"] = [{"LTarget": "${meta.rack}", "Operand": "=", "RTarget": "r1"}]
        return group_api(name, count=rng.randint(0, self.most), cpu_mhz=rng.choice((100, 100, 100, 1500)), **more)

    def _node(self, number: int) -> Node:
        rng = self.rng
        node = ready_node(f"n{number}", datacenter=rng.choice(("dc1", "dc1", "dc2")), Meta={"rack": rng.choice(("r1", "r1", "r2"))})
        kinds = (lambda node: node, lambda node: node, lambda node: node, down, draining, ineligible, lambda node: changed(node, status="disconnected"))
        made: Node = rng.choice(kinds)(node)
        return made

    def _fill(self, node_id: str, overlap: bool) -> None:
        rng = self.rng
        for group in ("a", "b", "c"):
            for index in range(self.most + 1):
                for _ in range(rng.choice((0, 1, 1, 2, 3)) if overlap else rng.choice((0, 1))):
                    self.allocs.append(self._alloc(node_id, group, index))
                if rng.random() < 0.2:
                    ended = rng.choice(({"ClientStatus": "complete"}, {"ClientStatus": "failed"}, {"DesiredStatus": "stop"}))
                    self.allocs.append(self._alloc(node_id, group, index, **ended))

    def _alloc(self, node_id: str, group: str, index: int, **ended: Any) -> Allocation:
        rng = self.rng
        make = rng.choice((self.of.cur, self.of.cur, self.of.old_i, self.of.old_d))
        state = ended or rng.choice(
            ({}, {}, {}, {"ClientStatus": "pending"}, unknown_since(MINUTE_NS), reconnecting(), successful(), {"DesiredTransition": {"Migrate": True}})
        )
        alloc = make(f"alloc-{len(self.allocs):03}", node_id, group=group, index=index, ci=rng.randint(1, 40), **state)
        resources = alloc.allocated_resources
        assert resources is not None
        for task in resources.tasks.values():
            assert task is not None
            task.cpu.cpu_shares = 10
        return alloc

    def cluster(self, *, rules: Rules = Rules.STRICT, overlap: Overlap = "enforce", order: random.Random | None = None) -> Cluster:
        nodes, allocs = (self.nodes, self.allocs) if order is None else (reordered(order, self.nodes), reordered(order, self.allocs))
        return Cluster(self.job, nodes, allocs, rules=rules, overlap=overlap)


def told(outcome: Outcome) -> tuple[Any, ...]:
    """Return what an evaluation came to, but for new ids."""
    placed = sorted((*slot, alloc.previous_allocation) for slot, alloc in outcome.placed.items())
    created = sorted((each.triggered_by, each.node_id, each.wait) for each in outcome.created)
    # Under Nomad's rules what has ended with its node may be stopped twice: as lost, and to be replaced.
    stops = [(alloc.id, alloc.desired_description) for alloc in outcome._entries("node_update")] if outcome.plans else []
    return placed, stops, sorted(outcome.updated), created, outcome.final.queued_allocations, outcome.desired


def closed_to(job: Job, node: Node) -> bool:
    return node.status != "ready" or node.scheduling_eligibility != "eligible" or (job.datacenters == ["dc1"] and node.datacenter != "dc1")


def o46_one_lives_in_each_slot_and_each_has_one_fate(seed: int) -> None:
    scene = Scene(seed)
    cluster = scene.cluster()
    live = {alloc.id: alloc for alloc in scene.allocs if not alloc.is_terminal}
    outcome = cluster.run()
    stopped, updated = outcome.stops if outcome.plans else {}, outcome.updated
    assert not set(stopped) & set(updated)
    ready = {node.id for node in scene.nodes if not closed_to(scene.job, node)}
    wanted = {f"agent.{group.name}[{index}]" for group in scene.job.task_groups for index in range(group.count)}
    slots = Counter(cluster.live_slots)
    for (node_id, name), count in slots.items():
        if node_id in ready:
            assert count == 1
            # Names that are not wanted are gone everywhere.
        assert name in wanted
    for alloc_id, alloc in live.items():
        after = cluster.store.alloc(alloc_id)
        assert after is not None
        assert (after.desired_status == "stop") == (alloc_id in stopped)
        assert after.name == alloc.name


def o47_without_overlap_all_policies_agree(seed: int) -> None:
    scene = Scene(seed, overlap=False)
    for rules in BOTH_RULES:
        first, *others = [told(scene.cluster(rules=rules, overlap=overlap).run()) for overlap in POLICIES]
        assert others == [first, first]


def o48_the_order_of_the_input_does_not_matter(seed: int) -> None:
    scene = Scene(seed)
    assert told(scene.cluster().run()) == told(scene.cluster(order=random.Random(seed)).run())


def o49_no_more_slots_are_replaced_than_the_limit_says(seed: int) -> None:
    scene = Scene(seed)
    outcome = scene.cluster().run()
    groups = {alloc.id: alloc.task_group for alloc in scene.allocs}
    replaced = Counter(groups[alloc_id] for alloc_id, description in (outcome.stops if outcome.plans else {}).items() if description == UPDATING)
    for group in scene.job.task_groups:
        limit = (group.update.max_parallel if group.update is not None else 0) or scene.job.update.max_parallel
        assert not limit or replaced[group.name] <= limit


def clusters_settle(seed: int) -> None:
    """Evaluated again and again, a job comes to rest: at the latest when every slot was replaced one by one and every node that is away was given up."""
    scene = Scene(seed)
    cluster = scene.cluster()
    for _ in range(40):
        outcome = cluster.run(triggered_by="rolling-update")
        if not outcome.plans:
            break
    assert not outcome.plans
    assert not outcome.follow_ups
    assert all(count >= 0 for count in outcome.final.queued_allocations.values())


def nomads_rules_never_stumble(seed: int) -> None:
    for overlap in POLICIES:
        assert Scene(seed).cluster(rules=Rules.NOMAD, overlap=overlap).run().final.status == "complete"


PROPERTIES = [
    o46_one_lives_in_each_slot_and_each_has_one_fate,
    o47_without_overlap_all_policies_agree,
    o48_the_order_of_the_input_does_not_matter,
    o49_no_more_slots_are_replaced_than_the_limit_says,
    clusters_settle,
    nomads_rules_never_stumble,
]
properties = pytest.mark.parametrize("holds", PROPERTIES, ids=lambda holds: holds.__name__)


@properties
@pytest.mark.parametrize("seed", range(15))
def test_random_clusters(holds: Callable[[int], None], seed: int) -> None:
    holds(seed)


@pytest.mark.slow
@properties
def test_many_random_clusters(holds: Callable[[int], None]) -> None:
    for seed in range(15, 600):
        holds(seed)
