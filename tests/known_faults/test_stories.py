"""Kinds of fault that schedulers of this kind have had, where no other test tells the story; the others are named in the tests of their part."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

from fastplan import Allocation, Job, Node, Plan, codec
from fastplan.errors import InvalidInput
from fastplan.fit import FitChecker
from fastplan.fit.port_ranges import parse_port_ranges
from fastplan.planner import Rules, evaluate_plan
from fastplan.state import StateStore
from tests.planner.site import JOB, alloc, node
from tests.planner.test_durable import NODES, Server, shape

ADDRESS = "10.0.0.1"


def with_address(node_id: str, **changes: Any) -> dict[str, Any]:
    api = node(node_id, **changes)
    api["NodeResources"]["NodeNetworks"] = [{"Device": "eth0", "Addresses": [{"Alias": "default", "Address": ADDRESS}]}]
    return api


def test_6_a_negative_amount_makes_no_room() -> None:
    full: dict[str, Any] = {"nodes": [node("F", 1000)], "jobs": [JOB], "allocs": [alloc("a", 1000, NodeID="F", Job=JOB)], "indexes": {"nodes": 1, "allocs": 1}}
    snapshot = StateStore.from_dump(full).snapshot()
    result = evaluate_plan(snapshot, Plan.from_api({"Job": JOB, "NodeAllocation": {"F": [alloc("b", -500), alloc("c", 500)]}}))
    assert result.reasons["F"].startswith("invalid input: ")
    full["allocs"].append(alloc("b", -500, NodeID="F", Job=JOB))
    snapshot = StateStore.from_dump(full).snapshot()
    assert evaluate_plan(snapshot, Plan.from_api({"Job": JOB, "NodeAllocation": {"F": [alloc("c", 500)]}})).reasons == {"F": "cpu"}
    for resources in ({"CPU": -500}, {"MemoryMB": -1}, {"Cores": -1}):
        job = Job.from_api({"ID": "j", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Resources": resources}]}]})
        with pytest.raises(InvalidInput, match=rf"Resources\.{next(iter(resources))}: expected integer ≥ 0"):
            FitChecker([Node.from_api(node("F"))], []).mask((job, "g"))


def test_7_sums_do_not_drift() -> None:
    source = random.Random(7)
    checker = FitChecker([Node.from_api(with_address("F", cpu=10_000_000))], [])
    present: dict[str, int] = {}
    for step in range(10_000):
        alloc_id = f"a{source.randrange(40)}"
        if alloc_id in present:
            checker.remove([alloc_id])
            del present[alloc_id]
        else:
            present[alloc_id] = source.choice((1, 333, 4999))
            ports = [{"Label": "p", "Value": 8000 + int(alloc_id[1:]), "HostIP": ADDRESS}]
            api = alloc(alloc_id, present[alloc_id], NodeID="F")
            api["AllocatedResources"]["Shared"] = {"Ports": ports}
            checker.add([Allocation.from_api(api)])
        if step % 100 == 0:
            assert checker.fits("F", []).used.cpu_mhz == sum(present.values())
    checker.remove(list(present))
    left = checker.fits("F", []).used
    assert (left.cpu_mhz, left.memory_mib, left.disk_mib, left.reserved_cores) == (0, 0, 0, ())
    everything = alloc("b", 10_000_000, NodeID="F")
    everything["AllocatedResources"]["Shared"] = {"Ports": [{"Label": str(number), "Value": 8000 + number, "HostIP": ADDRESS} for number in range(40)]}
    assert checker.fits("F", [Allocation.from_api(everything)]).fit


def test_15_port_texts_are_read_fast() -> None:
    start_s = time.process_time()
    for _ in range(100_000):
        parse_port_ranges("1-1024")
    assert time.process_time() - start_s < 1


def test_16_four_copies_with_one_static_port_on_three_nodes() -> None:
    checker = FitChecker([Node.from_api(with_address(f"n{number}")) for number in range(3)], [])
    group = {"Name": "g", "Networks": [{"ReservedPorts": [{"Label": "http", "Value": 8000}]}], "Tasks": [{"Name": "t"}]}
    ask = (Job.from_api({"ID": "j", "TaskGroups": [group]}), "g")
    assert checker.headroom(ask).tolist() == [1, 1, 1]
    for number in range(3):
        taken = checker.assign(f"n{number}", ask)
        assert taken is not None
        checker.add([Allocation.from_api({"ID": f"a{number}", "NodeID": f"n{number}", "JobID": "j", "TaskGroup": "g", "AllocatedResources": taken})])
    assert not checker.mask(ask).any()
    for explained in checker.explain(ask):
        assert [(short.dimension, short.subject) for short in explained.failing] == [("port", f"{ADDRESS}:8000")]


@pytest.mark.parametrize(("counts", "fits"), [((2, 2), True), ((2, 2, 1), False), ((4,), True), ((1, 1, 1, 1), True), ((5,), False)])
def test_22_devices_split_over_tasks(counts: tuple[int, ...], fits: bool) -> None:
    api = node("F")
    instances = [{"ID": f"g{number}", "Healthy": True} for number in range(4)]
    api["NodeResources"]["Devices"] = [{"Vendor": "acme", "Type": "gpu", "Name": "x1", "Instances": instances}]
    checker = FitChecker([Node.from_api(api)], [])
    tasks = [{"Name": f"t{number}", "Resources": {"Devices": [{"Name": "gpu", "Count": count}]}} for number, count in enumerate(counts)]
    ask = (Job.from_api({"ID": "j", "TaskGroups": [{"Name": "g", "Tasks": tasks}]}), "g")
    assert checker.mask(ask).tolist() == [fits]
    taken = checker.assign("F", ask)
    assert (taken is not None) == fits
    if taken is not None:
        given = [each for task in taken["Tasks"].values() for device in task["Devices"] for each in device["DeviceIDs"]]
        assert len(given) == len(set(given)) == sum(counts)


@pytest.mark.parametrize("rules", list(Rules))
def test_50_every_node_of_a_large_plan_is_checked_once(rules: Rules) -> None:
    names = [f"n{number:04}" for number in range(1000)]
    snapshot = StateStore.from_dump({"nodes": [node(name, 100) for name in names], "jobs": [JOB], "indexes": {"nodes": 1}}).snapshot()
    too_large = set(names[::7])
    place = {name: [alloc(f"a-{name}", 101 if name in too_large else 100)] for name in names}
    result = evaluate_plan(snapshot, Plan.from_api({"Job": JOB, "NodeAllocation": place}), rules)
    assert result.reasons == dict.fromkeys(sorted(too_large), "cpu")
    assert set(result.node_allocation) == set(names) - too_large


def test_97_and_99_each_command_once_however_often_the_leader_comes_back(tmp_path: Path) -> None:
    kind = shape()

    async def term(turn: int) -> int:
        async with Server(tmp_path / "log") as server:
            if turn == 0:
                await server.command(codec.UpsertNodes([node(f"n{number}", 10_000) for number in range(NODES)]))
                await server.command(codec.UpsertJob(JOB))
                await server.command(codec.UpsertEvals([{"ID": "e1"}]))
            # State is there without a peer and without a new entry; what was sent before is sent again and takes effect once.
            assert server.machine.store.alloc_count() == 20 * turn * NODES
            for number in range(20 * (turn + 1)):
                await server.applier.submit(server.plan(f"p{number}", kind))
            return server.machine.store.alloc_count()

    counts = [asyncio.run(term(turn)) for turn in range(5)]
    assert counts == [20 * (turn + 1) * NODES for turn in range(5)]


def test_102_records_without_optional_parts() -> None:
    old = {"nodes": [{"ID": "F", "NodeResources": {}}], "jobs": [{"ID": "web"}], "namespaces": [{"Name": "old"}]}
    store = StateStore.from_dump(old | {"allocs": [{"ID": "a", "NodeID": "F", "AllocatedResources": {}}]})
    for state in (store, StateStore.from_dump(store.to_dump()), StateStore.load(store.snapshot().save())):
        assert state.node("F") is not None
        assert state.job("default", "web") is not None
        assert state.namespace("old") is not None
        assert state.alloc("a") is not None
        assert state.fit_checker().fits("F", []).fit
