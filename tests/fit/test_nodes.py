"""The node table: sums, claims and irregularity equal a fresh count after any history, and what a snapshot saw never changes."""

from __future__ import annotations

import random
from array import array
from collections import Counter
from typing import NamedTuple

import pytest

from fastplan.errors import StateError
from fastplan.fit._kernels import AskNumbers
from fastplan.fit._nodes import NodeTable
from fastplan.fit.encode import (
    CLAIM_EXCLUSIVE,
    CLAIM_FLAG_BITS,
    CLAIM_STOPPING,
    KIND_CORE,
    KIND_DEVICE,
    KIND_PORT,
    KIND_SHIFT,
    KIND_VOLUME,
    ROW_READY,
    NodeNumbers,
    core_claim,
    device_claim,
    port_claim,
    volume_claim,
)

GPU = ("nvidia", "gpu", "a100")


def packed(*claims: int) -> bytes:
    return array("Q", sorted(claims)).tobytes()


PLAIN = NodeNumbers(4000, 8192, 100_000, 0)
RICH = NodeNumbers(
    16_000,
    65_536,
    500_000,
    110,
    cores=packed(*(core_claim(core) for core in range(8))),
    devices=packed(*(device_claim(GPU, f"gpu-{number}") for number in range(4))),
    reserved=packed(port_claim("10.0.0.1", 22), port_claim("10.0.0.1", 25)),
)
WIDE = RICH._replace(reserved=packed(port_claim("10.0.0.1", 8000), port_claim("10.0.0.1", 9000)))
IRREGULAR = NodeNumbers(irregular=True)
SUPPLIES = [PLAIN, RICH, WIDE, IRREGULAR]


class Alloc(NamedTuple):
    cpu_mhz: int
    memory_mib: int
    memory_max_mib: int
    disk_mib: int
    claims: tuple[int, ...] = ()
    irregular: bool = False

    @property
    def numbers(self) -> AskNumbers:
        return AskNumbers(*self[:4], array("Q", self.claims).tobytes(), self.irregular)


def fresh_count(numbers: NodeNumbers, held: list[tuple[Alloc, bool]]) -> dict[str, int]:
    """What a row must say, counted from nothing."""
    regular = [(alloc, stopping) for alloc, stopping in held if not alloc.irregular]
    stopped = [alloc for alloc, stopping in regular if stopping]
    counted = [alloc for alloc, _ in regular]
    holders = Counter(claim >> CLAIM_FLAG_BITS << CLAIM_FLAG_BITS for claim in fresh_claims(numbers, held))
    exclusive = {claim >> CLAIM_FLAG_BITS << CLAIM_FLAG_BITS for alloc in counted for claim in alloc.claims if claim & CLAIM_EXCLUSIVE}
    reserved, cores = array("Q", numbers.reserved), array("Q", numbers.cores)
    irregular = int(numbers.irregular) + sum(alloc.irregular for alloc, _ in held)
    for claim, count in holders.items():
        kind = claim >> KIND_SHIFT
        irregular += int(count > 1 and claim in exclusive) if kind == KIND_VOLUME else count - 1
        if kind == KIND_PORT and any(reserved[i] <= claim <= reserved[i + 1] for i in range(0, len(reserved), 2)):
            irregular += count
        if kind == KIND_CORE and claim not in cores:
            irregular += count
    return {
        "cpu_mhz": numbers.cpu_mhz,
        "memory_mib": numbers.memory_mib,
        "disk_mib": numbers.disk_mib,
        "max_allocs": numbers.max_allocs,
        "used_cpu_mhz": sum(alloc.cpu_mhz for alloc in counted),
        "used_memory_mib": sum(alloc.memory_mib for alloc in counted),
        "used_disk_mib": sum(alloc.disk_mib for alloc in counted),
        "used_memory_max_mib": sum(alloc.memory_max_mib for alloc in counted),
        "stopping_cpu_mhz": sum(alloc.cpu_mhz for alloc in stopped),
        "stopping_memory_mib": sum(alloc.memory_mib for alloc in stopped),
        "stopping_disk_mib": sum(alloc.disk_mib for alloc in stopped),
        "alloc_count": len(held),
        "stopping_count": sum(stopping for _, stopping in held),
        "irregular": irregular,
    }


def fresh_claims(numbers: NodeNumbers, held: list[tuple[Alloc, bool]]) -> list[int]:
    devices = array("Q", numbers.devices)
    return sorted(
        claim | (CLAIM_STOPPING if stopping else 0)
        for alloc, stopping in held
        if not alloc.irregular
        for claim in alloc.claims
        if claim >> KIND_SHIFT != KIND_DEVICE or claim in devices
    )


def some_alloc(rng: random.Random) -> Alloc:
    pool = [
        *(port_claim("10.0.0.1", port) for port in range(20, 40)),
        *(port_claim("10.0.0.2", port) for port in rng.sample(range(20000, 32000), 30)),
        port_claim("10.0.0.1", rng.randint(8000, 9000)),
        *(core_claim(core) for core in range(10)),
        *(device_claim(GPU, f"gpu-{number}") for number in range(6)),
        volume_claim("data", exclusive=rng.random() < 0.3),
        volume_claim("logs", exclusive=False),
    ]
    count = rng.choice([0, 0, 1, 2, 2, 3, 8, 40])
    claims = rng.sample(pool, min(count, len(pool)))
    return Alloc(rng.randint(0, 500), rng.randint(0, 900), rng.randint(-1, 900), rng.randint(0, 50), tuple(claims), rng.random() < 0.05)


class Model:
    """The table beside plain lists."""

    def __init__(self, table: NodeTable, held: dict[int, tuple[NodeNumbers, list[tuple[Alloc, bool]]]]) -> None:
        self.table = table
        self.held = held

    def copy(self) -> dict[int, tuple[NodeNumbers, list[tuple[Alloc, bool]]]]:
        return {row: (numbers, list(allocs)) for row, (numbers, allocs) in self.held.items()}

    def step(self, rng: random.Random) -> None:
        if not self.held or rng.random() < 0.05:
            numbers = rng.choice(SUPPLIES)
            row, _ = self.table.allocate(numbers, ROW_READY)
            self.held[row] = (numbers, [])
            return
        row = rng.choice(list(self.held))
        numbers, allocs = self.held[row]
        action = rng.random()
        if action < 0.01:
            self.table.free(row)
            del self.held[row]
        elif action < 0.03:
            numbers = rng.choice(SUPPLIES)
            if self.table.set_supply(row, numbers):
                for alloc, stopping in allocs:
                    self.table.add_alloc(row, alloc.numbers, stopping=stopping)
            self.held[row] = (numbers, allocs)
        elif allocs and action < 0.4:
            alloc, stopping = allocs.pop(rng.randrange(len(allocs)))
            self.table.remove_alloc(row, alloc.numbers, stopping=stopping)
        elif allocs and action < 0.55:
            index = rng.randrange(len(allocs))
            alloc, stopping = allocs[index]
            if not stopping:
                self.table.stop_alloc(row, alloc.numbers)
                allocs[index] = (alloc, True)
        else:
            alloc, stopping = some_alloc(rng), rng.random() < 0.1
            self.table.add_alloc(row, alloc.numbers, stopping=stopping)
            allocs.append((alloc, stopping))


def assert_equal(table: NodeTable, held: dict[int, tuple[NodeNumbers, list[tuple[Alloc, bool]]]]) -> None:
    assert table.node_count == len(held)
    for row, (numbers, allocs) in held.items():
        said = table.row(row)
        assert {name: said[name] for name in fresh_count(numbers, [])} == fresh_count(numbers, allocs)
        claims = fresh_claims(numbers, allocs)
        assert table.claims(row) == claims
        assert all(table.may_hold(row, claim) for claim in claims)


@pytest.mark.parametrize("seed", range(6))
def test_rows_equal_a_fresh_count_and_views_never_change(seed: int) -> None:
    rng = random.Random(seed)
    model = Model(NodeTable(), {})
    views: list[tuple[NodeTable, dict[int, tuple[NodeNumbers, list[tuple[Alloc, bool]]]]]] = []
    for step in range(1500):
        model.step(rng)
        if rng.random() < 0.03:
            views.append((model.table.view(model.table.blocks.domain.pin()), model.copy()))
            if len(views) > 5:
                views.pop(rng.randrange(len(views)))
        if views and rng.random() < 0.01:
            view, held = rng.choice(views)
            fork = Model(view.fork(), {row: (numbers, list(allocs)) for row, (numbers, allocs) in held.items()})
            for _ in range(60):
                fork.step(rng)
            assert_equal(fork.table, fork.held)
        if step % 250 == 0:
            assert_equal(model.table, model.held)
    assert_equal(model.table, model.held)
    for view, held in views:
        assert_equal(view, held)


def test_the_filter_forgets_what_was_removed() -> None:
    table = NodeTable()
    row, _ = table.allocate(RICH, ROW_READY)
    claims = [port_claim("10.0.0.1", port) for port in range(20000, 20040)]
    before = [table.may_hold(row, claim) for claim in claims]
    for claim in claims:
        table.add_alloc(row, AskNumbers(1, 1, 1, 1, packed(claim)))
    assert all(table.may_hold(row, claim) for claim in claims)
    for claim in claims:
        table.remove_alloc(row, AskNumbers(1, 1, 1, 1, packed(claim)))
    assert sum(table.may_hold(row, claim) for claim in claims) <= sum(before)
    assert table.may_hold(row, port_claim("10.0.0.1", 23)), "reserved ports stay"


def test_thousands_of_claims_on_one_node() -> None:
    table = NodeTable()
    rows = [table.allocate(PLAIN, ROW_READY)[0] for _ in range(3)]
    allocs = [Alloc(1, 1, 1, 1, tuple(port_claim("10.0.0.9", port) for port in range(start, start + 10))) for start in range(20000, 32000, 10)]
    random.Random(1).shuffle(allocs)
    for alloc in allocs:
        table.add_alloc(rows[1], alloc.numbers)
    table.add_alloc(rows[2], allocs[0].numbers)
    assert len(table.claims(rows[1])) == 12_000
    assert table.row(rows[1])["irregular"] == 0
    for alloc in allocs[1:]:
        table.remove_alloc(rows[1], alloc.numbers)
    assert table.claims(rows[1]) == table.claims(rows[2]) == sorted(allocs[0].claims)


def test_a_row_is_reused_with_the_next_generation() -> None:
    table = NodeTable()
    rows = [table.allocate(PLAIN, ROW_READY) for _ in range(3)]
    assert rows == [(0, 0), (1, 0), (2, 0)]
    table.add_alloc(1, AskNumbers(5, 5, 5, 5, packed(port_claim("a", 1))))
    table.free(1)
    table.free(0)
    assert table.node_count == 1
    assert [table.allocate(RICH, 0) for _ in range(3)] == [(0, 1), (1, 1), (3, 0)]
    assert table.row(1)["used_cpu_mhz"] == 0
    assert table.claims(1) == []


def test_what_is_not_there_is_refused_and_nothing_changes() -> None:
    table = NodeTable()
    row, _ = table.allocate(PLAIN, ROW_READY)
    alloc = Alloc(5, 6, 7, 8, (port_claim("10.0.0.1", 80), port_claim("10.0.0.1", 81)))
    table.add_alloc(row, alloc.numbers)
    before = table.row(row)
    other = Alloc(5, 6, 7, 8, (port_claim("10.0.0.1", 80), port_claim("10.0.0.1", 82)))
    with pytest.raises(StateError, match="does not hold claim"):
        table.remove_alloc(row, other.numbers)
    with pytest.raises(StateError, match="does not hold claim"):
        table.remove_alloc(row, alloc.numbers, stopping=True)
    with pytest.raises(StateError, match="does not hold claim"):
        table.stop_alloc(row, other.numbers)
    assert table.row(row) == before
    with pytest.raises(StateError, match="does not exist"):
        table.add_alloc(7, alloc.numbers)
    table.free(row)
    with pytest.raises(StateError, match="holds no node"):
        table.add_alloc(row, alloc.numbers)


def test_a_view_cannot_be_written() -> None:
    table = NodeTable()
    row, _ = table.allocate(PLAIN, ROW_READY)
    view = table.view(table.blocks.domain.pin())
    with pytest.raises(TypeError, match="view"):
        view.allocate(PLAIN, ROW_READY)
    with pytest.raises(TypeError, match="view"):
        view.set_status(row, 0)
