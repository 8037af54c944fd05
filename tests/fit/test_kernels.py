"""The kernels by themselves: their numbers, their strict rules, what leaves and joins a node first, and scores."""

from __future__ import annotations

import random
from array import array

import numpy as np
import pytest

from fastplan.errors import InvalidInput, Reason
from fastplan.fit import UsedResources, encode, engine, engine_compiled, score_fit
from fastplan.fit._kernels import AskNumbers, constants, layout
from fastplan.fit._nodes import NodeTable
from fastplan.fit._scan import best_row, row_verdict, scores_of
from fastplan.fit.asks import numbers_of, total_numbers
from fastplan.fit.encode import AllocNumbers, NodeNumbers, encode_node
from fastplan.fit.reference import check
from fastplan.structs import Allocation, Node
from fastplan.structs.canonical import canonical_node
from tests.fit.clusters import random_alloc, random_node

PHYSICAL, STRICT_CORES, STRICT_DEVICES, CHECK_DEVICES = 1, 2, 4, 8


def test_numbers_that_python_repeats_are_those_of_the_header() -> None:
    known = {**vars(encode), **vars(engine), **vars(engine_compiled)}
    assert {name: known[name] for name in constants()} == constants()


def test_a_node_row_is_two_cache_lines_and_an_ask_is_one() -> None:
    assert layout()["NodeRow"] == 128
    assert layout()["Ask"] == 64


def ascending(parts: list[Allocation]) -> AskNumbers | None:
    """The sum of allocations with its claims in order; volumes that several hold stay several."""
    if not parts:
        return None
    numbers = [numbers_of(part) for part in parts]
    total = total_numbers(numbers)
    if total.irregular and not any(part.irregular for part in numbers):
        claims = [claim for part in numbers for claim in array("Q", part.claims)]
        only_volumes_twice = len({claim for claim in claims if claim >> encode.KIND_SHIFT != encode.KIND_VOLUME}) == sum(
            claim >> encode.KIND_SHIFT != encode.KIND_VOLUME for claim in claims
        )
        if only_volumes_twice:
            sums = [sum(int(part[dimension]) for part in numbers) for dimension in range(4)]  # type: ignore[misc]
            total = AllocNumbers(*sums, claims=array("Q", claims).tobytes())  # type: ignore[misc, arg-type]
    return AskNumbers(
        total.cpu_mhz,
        total.memory_mib,
        total.memory_max_mib,
        total.disk_mib,
        array("Q", sorted(array("Q", total.claims))).tobytes(),
        total.irregular,
        count=len(parts),
    )


def fits(node: Node, allocs: list[Allocation]) -> bool:
    try:
        return check(node, allocs).code is Reason.FITS
    except InvalidInput:
        return False


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("physical", [False, True])
def test_verdicts_equal_the_reference_with_what_leaves_and_joins(physical: bool, strict: bool) -> None:
    rng = random.Random(17)
    rules = CHECK_DEVICES | (PHYSICAL if physical else 0) | (STRICT_CORES | STRICT_DEVICES if strict else 0)
    decided = 0
    for step in range(500):
        node = canonical_node(random_node(rng, 0, odd=0.05))
        table = NodeTable()
        row, _ = table.allocate(encode_node(node), encode.ROW_PRESENT)
        everyone = [random_alloc(rng, f"a{index}", node.id, odd=0.02) for index in range(rng.randint(0, 6))]
        joining = [alloc for alloc in everyone if rng.random() < 0.3 and not alloc.is_client_terminal and not alloc.is_server_terminal]
        bound = [alloc for alloc in everyone if alloc not in joining and not alloc.is_client_terminal]
        for alloc in bound:
            table.add_alloc(row, AskNumbers(*numbers_of(alloc)), stopping=alloc.is_server_terminal)
        counted = [alloc for alloc in bound if physical or not alloc.is_server_terminal]
        leaving = [alloc for alloc in counted if rng.random() < 0.3]
        # What joins first was found to fit before.
        kept = [alloc for alloc in counted if alloc not in leaving]
        if joining and not fits(node, kept + joining):
            joining = []
        ask = random_alloc(rng, f"ask-{step}", node.id, odd=0.02)
        release, prior = ascending(leaving), ascending(joining)
        if prior is not None and any(port.ignore_collision for alloc in joining if (held := alloc.allocated_resources) for port in held.shared.ports):
            prior = AskNumbers(irregular=True, count=len(joining))
        code = row_verdict(table, row, AskNumbers(*numbers_of(ask)), release, prior, rules)
        if code == engine.SLOW:
            continue
        decided += 1
        proposed = [*kept, *joining, ask]
        try:
            expected = check(node, proposed, strict=strict, new_ids={ask.id}).code
        except InvalidInput:
            expected = Reason.INVALID
        assert Reason(code) is expected, (node, proposed)
    assert decided > 250, "most rows are regular"


def test_a_regular_row_is_never_slow() -> None:
    rng = random.Random(5)
    table = NodeTable()
    row, _ = table.allocate(encode_node(canonical_node(random_node(rng, 0, odd=0))), encode.ROW_PRESENT)
    for step in range(200):
        ask = random_alloc(rng, f"a{step}", "", odd=0)
        numbers = AskNumbers(*numbers_of(ask))
        assert (row_verdict(table, row, numbers, None, None, CHECK_DEVICES | PHYSICAL) == engine.SLOW) == numbers.irregular


def test_amounts_beyond_the_limit_are_refused_by_the_form_and_left_to_the_reference() -> None:
    with pytest.raises(ValueError, match=r"beyond 2\*\*47"):
        AskNumbers(2**47)
    with pytest.raises(ValueError, match="whole number of claims"):
        AskNumbers(claims=b"abc")
    alloc = Allocation.from_api({"ID": "a", "AllocatedResources": {"Tasks": {"t": {"Cpu": {"CpuShares": 2**47}, "Memory": {"MemoryMB": 1}}}}})
    assert numbers_of(alloc).irregular


def sized_node(cpu_mhz: int, memory_mib: int) -> Node:
    return Node.from_api(
        {
            "ID": "n",
            "NodeResources": {
                "Processors": {"Topology": {"OverrideTotalCompute": cpu_mhz, "Cores": [{"ID": 0}]}},
                "Memory": {"MemoryMB": memory_mib},
                "Disk": {"DiskMB": 10},
                "NodeNetworks": [],
            },
        }
    )


@pytest.mark.parametrize("algorithm", ["binpack", "spread"])
def test_scores_equal_score_fit(algorithm: str) -> None:
    rng = random.Random(3)
    table = NodeTable()
    nodes, used = [], []
    for _ in range(700):
        node = sized_node(rng.choice([1, 1000, 4000, rng.randint(1, 10**6), 2**40]), rng.choice([0, 1, 8192, rng.randint(1, 10**7)]))
        row, _ = table.allocate(encode_node(node), encode.ROW_READY)
        amounts = (rng.randint(0, 5000), rng.choice([0, rng.randint(0, 10**4)]))
        table.add_alloc(row, AskNumbers(*amounts))
        nodes.append(node)
        used.append(UsedResources(cpu_mhz=amounts[0] + 100, memory_mib=amounts[1] + 50))
    scores = np.empty(len(nodes))
    scores_of(table, AskNumbers(100, 50), PHYSICAL, algorithm == "spread", scores)
    for score, node, sum_ in zip(scores, nodes, used, strict=True):
        assert score == pytest.approx(score_fit(node, sum_, algorithm=algorithm), abs=1e-12, rel=1e-12)  # type: ignore[arg-type]


def test_of_equal_scores_the_first_in_order_wins() -> None:
    table = NodeTable()
    for _ in range(600):
        table.allocate(NodeNumbers(1000, 1000, 1000, 0), encode.ROW_PRESENT | encode.ROW_READY)
    order = np.arange(600, dtype=np.uint32)[::-1].copy()
    allowed = np.ones(600, np.uint8)
    ask = AskNumbers(10, 10)
    assert best_row(table, ask, PHYSICAL, False, True, None, None) == (0, [])
    assert best_row(table, ask, PHYSICAL, False, True, None, order) == (599, [])
    allowed[599] = 0
    assert best_row(table, ask, PHYSICAL, False, True, allowed, order) == (598, [])
    table.add_alloc(300, AskNumbers(10, 10))
    assert best_row(table, ask, PHYSICAL, False, True, allowed, order) == (300, [])
    assert best_row(table, ask, PHYSICAL, True, True, allowed, order) == (598, [])
    assert best_row(table, AskNumbers(1001), PHYSICAL, False, True, None, None) == (-1, [])
