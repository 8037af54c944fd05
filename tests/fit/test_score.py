"""Bin-pack and spread scores (schedulers.md 9.2)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan import Node
from fastplan.errors import InvalidInput
from fastplan.fit import UsedResources, score_fit


def node(cpu: int, memory: int, reserved_cpu: int = 0, reserved_memory: int = 0, **more: Any) -> Node:
    return Node.from_api(
        {
            "NodeResources": {"Processors": {"Topology": {"OverrideTotalCompute": cpu}}, "Memory": {"MemoryMB": memory}} | more,
            "ReservedResources": {"Cpu": {"CpuShares": reserved_cpu}, "Memory": {"MemoryMB": reserved_memory}},
        }
    )


@pytest.mark.parametrize(
    ("free_cpu", "free_memory", "binpack"),
    [(1, 1, 0.0), (0.5, 0.5, 0.759747), (0, 0, 1.0), (0.25, 0.75, 0.699906)],
)
def test_table(free_cpu, free_memory, binpack):
    used = UsedResources(cpu_mhz=int(1000 * (1 - free_cpu)), memory_mib=int(1000 * (1 - free_memory)))
    assert score_fit(node(1000, 1000), used) / 18 == pytest.approx(binpack, abs=1e-6)
    assert score_fit(node(1000, 1000), used, algorithm="spread") / 18 == pytest.approx(1 - binpack, abs=1e-6)


def test_free_shares_are_of_what_remains_after_the_reservation():
    half = node(4096, 8192, 2048, 4096)
    expected = [((2048, 4096), 18.0, 0.0), ((0, 0), 0.0, 18.0), ((1024, 2048), 20 - 2 * math.sqrt(10), 2 * math.sqrt(10) - 2)]
    for (cpu, memory), binpack, spread in expected:
        used = UsedResources(cpu_mhz=cpu, memory_mib=memory)
        assert score_fit(half, used) == pytest.approx(binpack, abs=1e-12)
        assert score_fit(half, used, algorithm="spread") == pytest.approx(spread, abs=1e-12)


def test_disk_and_cores_do_not_matter():
    bare, full = UsedResources(300, 300), UsedResources(300, 300, 9999, 9999, (1, 2))
    assert score_fit(node(1000, 1000), bare) == score_fit(node(1000, 1000), full)


HUGE = st.integers(-(2**70), 2**70)
AMOUNTS = st.one_of(st.integers(-5, 5), HUGE)


@given(st.integers(0, 2**62), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1), AMOUNTS, AMOUNTS, st.sampled_from(["binpack", "spread"]))
def test_always_finite_and_within_bounds(cpu, memory, reserved, used_cpu, used_memory, algorithm):
    score = score_fit(node(cpu, memory, reserved, reserved), UsedResources(cpu_mhz=used_cpu, memory_mib=used_memory), algorithm=algorithm)
    assert 0.0 <= score <= 18.0


@pytest.mark.parametrize("algorithm", ["binpack", "spread"])
@pytest.mark.parametrize("used", [0, 1, -1, 10**400, -(10**400)])
@pytest.mark.parametrize("capacity", [0, 1, -1])
def test_edges_of_division(capacity, used, algorithm):
    """Capacities below zero come from reservations above the total; used amounts beyond any float are possible in Python."""
    score = score_fit(node(2, 2, 2 - capacity, 2 - capacity), UsedResources(cpu_mhz=used, memory_mib=used), algorithm=algorithm)
    assert math.isfinite(score)
    assert 0.0 <= score <= 18.0


def test_nothing_of_nothing_counts_as_full():
    assert score_fit(node(0, 0), UsedResources()) == 18.0
    assert score_fit(node(0, 0), UsedResources(), algorithm="spread") == 0.0


def test_legacy_node_is_scored_like_its_canonical_form():
    legacy = Node.from_api({"NodeResources": {"Cpu": {"CpuShares": 1000, "TotalCpuCores": 4}, "Memory": {"MemoryMB": 1000}}})
    assert score_fit(legacy, UsedResources(300, 400)) == score_fit(node(1000, 1000), UsedResources(300, 400))


def test_bad_input_is_named():
    with pytest.raises(InvalidInput, match="algorithm"):
        score_fit(node(1, 1), UsedResources(), algorithm="best")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"node\.NodeResources"):
        score_fit(Node(id="bare"), UsedResources())
