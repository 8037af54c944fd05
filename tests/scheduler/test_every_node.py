"""The kernel that ranks every node, beside the plain path: the same nodes in the same order, to the last bit of the scores."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy
import pytest

from fastplan.fit.portable_score import portable_score
from fastplan.fit.results import UsedResources
from fastplan.fit.score import score_on_supply
from fastplan.fit.supply import supply_of
from fastplan.rules import Rules
from fastplan.scheduler.every_node import EveryNodeStack
from fastplan.scheduler.rank import RankedNode
from fastplan.scheduler.stack import SelectOptions
from fastplan.scheduler.ties import final_key, fit_steps
from fastplan.state.copies import Copies
from fastplan.state.resource_shapes import shape_of
from fastplan.structs import Allocation, Job, Node, TaskGroup
from fastplan.structs.canonical import canonical_node
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job
from tests.scheduler.ranking import Site

RACKS = ("r1", "r2", "r3", "*")


def random_node(rng: random.Random, number: int) -> Node:
    more: dict[str, Any] = {"Meta": {"rack": rng.choice(RACKS)} if rng.random() < 0.8 else {}, "NodeClass": rng.choice(("", "big", "small"))}
    node = ready_node(
        f"n{number:02}",
        cpu_mhz=rng.choice((0, 2000, 4000, 4000)),
        memory_mib=rng.choice((1024, 2048, 2048, 8192)),
        disk_mib=rng.choice((1000, 50_000)),
        datacenter=rng.choice(("dc1", "dc2")),
        **more,
    )
    api = node.to_api()
    if rng.random() < 0.2:
        api["NodeMaxAllocs"] = rng.randint(1, 4)
    if rng.random() < 0.1:
        api["Attributes"]["unique.hostname"] = "chosen"
    if rng.random() < 0.1:
        del api["Drivers"]["exec"]
    if rng.random() < 0.15:
        # No kernel can judge it.
        api["ReservedResources"] = {"Networks": {"ReservedHostPorts": rng.choice(("80", "nonsense"))}}
    if rng.random() < 0.2:
        instances = [{"ID": f"g{number}-{place}", "Healthy": rng.random() < 0.8} for place in range(3)]
        api["NodeResources"]["Devices"] = [{"Vendor": "nvidia", "Type": "gpu", "Name": "T4", "Instances": instances}]
    if rng.random() < 0.3:
        api["HostVolumes"] = {"data": {"Name": "data", "Path": "/data"}}
    if rng.random() < 0.2:
        api["NodeResources"]["Processors"]["Topology"]["Cores"][0]["BaseSpeed"] = 100
    return Node.from_api(api)


def random_group(rng: random.Random, name: str) -> dict[str, Any]:
    resources: dict[str, Any] = {"CPU": rng.choice((0, 100, 500, 1500)), "MemoryMB": rng.choice((10, 256, 700))}
    if rng.random() < 0.15:
        resources["Cores"] = rng.randint(1, 3)
    if rng.random() < 0.15:
        resources["Devices"] = [{"Name": "gpu", "Count": rng.randint(1, 2)}]
    task = {"Name": name, "Driver": "exec", "Resources": resources}
    group: dict[str, Any] = {"Name": name, "Count": rng.randint(1, 6), "EphemeralDisk": {"SizeMB": rng.choice((0, 300))}, "Tasks": [task]}
    if rng.random() < 0.3:
        group["Networks"] = [{"Mode": "host", "ReservedPorts": [{"Label": "http", "Value": rng.choice((80, 8080))}], "DynamicPorts": [{"Label": "x"}]}]
    if rng.random() < 0.2:
        group["Volumes"] = {"data": {"Name": "data", "Type": "host", "Source": "data", "AccessMode": rng.choice(("", "single-node-single-writer"))}}
    group["Constraints"] = random_constraints(rng)
    if rng.random() < 0.4:
        group["Affinities"] = [{"LTarget": rng.choice(("${node.datacenter}", "${attr.unique.hostname}")), "Operand": "=", "RTarget": "dc2", "Weight": 40}]
    group["Spreads"] = [random_spread(rng) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
    return group


def random_constraints(rng: random.Random) -> list[dict[str, Any]]:
    every = [
        {"LTarget": "${node.datacenter}", "Operand": "!=", "RTarget": "dc2"},
        {"LTarget": "${attr.unique.hostname}", "Operand": "is_not_set", "RTarget": ""},
        {"LTarget": "", "Operand": "distinct_hosts", "RTarget": ""},
        {"LTarget": "${meta.rack}", "Operand": "distinct_property", "RTarget": "2"},
    ]
    return rng.sample(every, rng.choice((0, 0, 0, 1, 1, 2)))


def random_spread(rng: random.Random) -> dict[str, Any]:
    targets = [{"Value": rack, "Percent": rng.choice((0, 20, 50))} for rack in rng.sample(RACKS, rng.choice((0, 0, 1, 2)))]
    return {"Attribute": rng.choice(("${meta.rack}", "${node.datacenter}", "${node.unique.id}")), "Weight": rng.choice((0, 50, 100)), "SpreadTarget": targets}


class Pair:
    """One random state and job, and two sites on it: one with the kernel, one plain."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = random.Random(seed)
        nodes = [random_node(rng, number) for number in range(rng.randint(0, 14))]
        levels: dict[str, Any] = {"Constraints": random_constraints(rng) if rng.random() < 0.3 else [], "Spreads": [random_spread(rng)] * rng.choice((0, 0, 1))}
        self.job = service_job("web", *(random_group(rng, name) for name in ("a", "b")), **levels)
        other = service_job("other")
        allocs = []
        for number in range(rng.randint(0, 20) if nodes else 0):
            job = rng.choice((self.job, other))
            group = rng.choice(job.task_groups).name
            status = rng.choice(("running", "running", "complete"))
            more = {"DesiredStatus": rng.choice(("run", "run", "stop")), "ClientStatus": status}
            node = rng.choice(nodes).id
            allocs.append(running_alloc(f"al{number:02}", job, node, group=group, index=number, cpu_mhz=rng.choice((100, 600)), **more))
        config = {"SchedulerAlgorithm": rng.choice(("binpack", "spread"))}
        self.sites = [Site(self.job, nodes, allocs, rules=Rules.STRICT, config=config, plain=plain) for plain in (False, True)]
        assert isinstance(self.sites[0].stack, EveryNodeStack)
        self.nodes, self.allocs = nodes, allocs

    def both(self, act: Any) -> None:
        for site in self.sites:
            act(site)

    def change(self) -> None:
        """Stop something, or take that back."""
        if not self.allocs or self.rng.random() < 0.6:
            return
        alloc, back = self.rng.choice(self.allocs), self.rng.random() < 0.3

        def stop(site: Site) -> None:
            stored = site.state.alloc(alloc.id)
            assert stored is not None
            site.context.draft.stop(stored, "not needed")
            if back:
                site.context.draft.pop_stop(stored)

        self.both(stop)

    def select(self, group: str) -> bool:
        penalties = frozenset(node.id for node in self.nodes if self.rng.random() < 0.1)
        kernel, plain = (site.select(group, penalty_node_ids=penalties) for site in self.sites)
        if plain is None or kernel is None:
            assert kernel is plain, (kernel, plain)
            counted, expected = (site.metric for site in self.sites)
            assert counted.nodes_evaluated == expected.nodes_evaluated
            assert counted.nodes_filtered + counted.nodes_exhausted == expected.nodes_filtered + expected.nodes_exhausted
            if not self._is_confirmed(group):
                # Where nodes are confirmed one by one, amounts are looked at before ports and volumes, otherwise behind them.
                names = ("nodes_filtered", "class_filtered", "constraint_filtered", "class_exhausted", "dimension_exhausted")
                assert [getattr(counted, name) for name in names] == [getattr(expected, name) for name in names]
            return False
        assert (kernel.node.id, kernel.scores) == (plain.node.id, plain.scores)
        assert final_key(kernel.scores, fit_steps(0)) == final_key(plain.scores, fit_steps(0))
        assert kernel.final_score == plain.final_score
        for site in self.sites:
            self._place(site, group, plain)
        return True

    def _is_confirmed(self, group: str) -> bool:
        stack = self.sites[0].stack
        assert isinstance(stack, EveryNodeStack)
        ranking = stack._ranking(self.sites[0].job.group(group) or TaskGroup(), "")
        return ranking is not None and ranking._confirms

    def _place(self, site: Site, group: str, option: RankedNode) -> None:
        alloc = Allocation(
            id=f"new-{len(site.context.draft.changes)}",
            namespace="default",
            job_id=self.job.id,
            task_group=group,
            node_id=option.node.id,
            allocated_resources=option.resources,
            desired_status="run",
            client_status="pending",
        )
        site.context.draft.place(alloc)


@pytest.mark.parametrize("seed", range(200))
def test_kernel_and_plain_path_choose_the_same(seed):
    pair = Pair(seed)
    for _ in range(12):
        pair.change()
        pair.select(pair.rng.choice(("a", "b")))


def place_copies(site: Site, group: TaskGroup, count: int, penalties: frozenset[str]) -> Sequence[str] | None:
    assert isinstance(site.stack, EveryNodeStack)
    chosen = site.stack.select_copies(group, count, penalties)
    if chosen is None:
        return None
    shape, _ = shape_of(chosen.resources)
    placed = len(chosen.rows)
    ids = numpy.frombuffer(site.setting.randomness.randbytes(16 * placed), numpy.uint8).reshape(-1, 16)
    copies = Copies(group.name, shape, ids, chosen.rows, numpy.arange(placed, dtype=numpy.int32))
    site.context.draft.add_copies(copies)
    chosen.note_placed()
    return [site.state.node_id(row) or "" for row in chosen.rows.tolist()]


@pytest.mark.parametrize("seed", range(150))
def test_many_copies_go_where_one_after_the_other_would(seed):
    pair = Pair(seed)
    kernel, plain = pair.sites
    compared = 0
    for _ in range(4):
        pair.change()
        group = pair.rng.choice(pair.job.task_groups)
        count = pair.rng.randint(1, 8)
        penalties = frozenset(node.id for node in pair.nodes if pair.rng.random() < 0.1)
        chosen = place_copies(kernel, group, count, penalties)
        if chosen is None:
            continue
        compared += 1
        expected = []
        for _ in range(count):
            option = plain.select(group.name, penalty_node_ids=penalties)
            if option is None:
                break
            expected.append(option.node.id)
            pair._place(plain, group.name, option)
        assert chosen == expected
    pair.select("a")
    pair.select("b")


def test_many_copies_are_compared_often_enough():
    groups = [Pair(seed) for seed in range(60)]
    told = [place_copies(pair.sites[0], pair.job.task_groups[0], 3, frozenset()) for pair in groups]
    assert sum(bool(chosen) for chosen in told) > 15
    assert sum(chosen is None for chosen in told) > 5


def test_scores_have_the_same_bits_as_the_kernels():
    rng = random.Random(1)
    for _ in range(500):
        node = canonical_node(ready_node("n", cpu_mhz=rng.randint(0, 9000), memory_mib=rng.randint(0, 9000)))
        supply = supply_of(node)
        used = UsedResources(rng.randint(0, 12000), rng.randint(0, 12000), 0, 0, set())
        for algorithm in ("binpack", "spread"):
            assert portable_score(supply, used, algorithm) == pytest.approx(score_on_supply(supply, used, algorithm), abs=1e-11)


def test_options_of_a_group_go_on_where_the_plan_stands():
    nodes = [ready_node("n1"), ready_node("n2", cpu_mhz=600)]
    site = Site(service_job("web", group_api(count=9, cpu_mhz=500)), nodes, rules=Rules.STRICT)
    chosen = [site.place() for _ in range(10)]
    assert chosen.count("n1") == 8
    assert chosen.count("n2") == 1
    assert chosen[9] is None
    assert site.metric.dimension_exhausted == {"cpu": 2}
    assert site.stack.select(site.job.task_groups[0], SelectOptions()) is None


def test_a_job_is_not_shared_between_groups_of_one_name():
    job: Job = service_job("web", group_api("a", count=2), group_api("b", count=2, cpu_mhz=3000))
    site = Site(job, [ready_node("n1")], rules=Rules.STRICT)
    assert [site.place("b"), site.place("a"), site.place("a"), site.place("a")] == ["n1", "n1", "n1", None]
