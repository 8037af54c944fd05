"""Recorded answers of the schedulers of service and batch jobs, through the public harness."""

from __future__ import annotations

import gzip
import importlib
import json
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fastplan.scheduler import stack
from fastplan.structs import Node
from tests.shared_data import shared_path

RECORDED = shared_path("oracles", "schedule_generic.jsonl.gz")
TOOLS = shared_path("tools", "oracle_schedules.py").parent
ORDERS = 40
"""So many orders of visiting nodes are tried where the first one, being drawn, does not give the recorded answer."""


@pytest.fixture(scope="module")
def tools() -> Iterator[tuple[Any, Any]]:
    """The comparison of recorded with given answers, deployments included."""
    sys.path.insert(0, str(TOOLS))
    compare, schedules = importlib.import_module("oracle_compare"), importlib.import_module("oracle_schedules")
    compare.OPTIONS["deployments"] = True
    yield compare, schedules
    compare.OPTIONS["deployments"] = False
    sys.path.remove(str(TOOLS))


def _cases(path: Path, step: int) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as lines:
        return [json.loads(line) for number, line in enumerate(lines) if number % step == 0]


def _difference(tools: tuple[Any, Any], case: dict[str, Any]) -> str:
    compare, schedules = tools
    try:
        schedules.schedule_generic(case)
    except compare.Differs as difference:
        return str(difference)
    return ""


def _check(tools: tuple[Any, Any], cases: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    for case in cases:
        difference = _difference(tools, case)
        # What is recorded held for the orders of eight evaluations: not for every order that can be drawn, but for many.
        for seed in range(ORDERS if difference else 0):
            with monkeypatch.context() as patch:
                patch.setattr(stack, "visiting_order", lambda nodes, *_, seed=seed: _shuffled(nodes, seed))
                if not _difference(tools, case):
                    break
        else:
            assert not difference, f"{case['id']}: {difference}"


def _shuffled(nodes: Sequence[Node], seed: int) -> list[Node]:
    order = list(nodes)
    random.Random(seed).shuffle(order)
    return order


def test_a_sample_of_recorded_answers(tools: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _check(tools, _cases(RECORDED, 10), monkeypatch)


@pytest.mark.slow
def test_all_recorded_answers(tools: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    _check(tools, _cases(RECORDED, 1), monkeypatch)
