"""The fit check, port accounting and scores against the recorded answers; one failing case names its id."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from fastplan import Allocation, Node
from fastplan.errors import InvalidInput, PortsUnavailable
from fastplan.fit import PortIndex, PortOffer, UsedResources, allocs_fit, score_fit
from tests.shared_data import shared_path


def recorded(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(shared_path("oracles", f"{name}.jsonl.gz"), "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def differing(name: str, answer: Callable[[dict[str, Any]], object], expected: Callable[[dict[str, Any]], object]) -> list[str]:
    """The ids of the cases of *name* whose answer is another; at least one case must have been looked at."""
    cases = list(recorded(name))
    assert cases
    return [case["id"] for case in cases if answer(case["input"]) != expected(case["answer"])]


def test_fit_check_answers_as_recorded():
    def answer(given: dict[str, Any]) -> object:
        allocs = [Allocation.from_api(alloc) for alloc in given["allocs"]]
        try:
            result = allocs_fit(Node.from_api(given["node"]), allocs, check_devices=given["check_devices"])
        except InvalidInput:
            return "crash"
        used = result.used
        return [result.fit, result.reason, result.error, used.cpu_mhz, used.memory_mib, used.memory_max_mib, used.disk_mib, list(used.reserved_cores)]

    def expected(wanted: dict[str, Any]) -> object:
        if wanted.get("crash"):
            return "crash"
        used = wanted["used"]
        amounts = [used.get(name) or 0 for name in ("cpu_mhz", "memory_mib", "memory_max_mib", "disk_mib")]
        return [wanted["fit"], wanted["reason"], wanted["error"], *amounts, used.get("reserved_cores") or []]

    assert differing("fit", answer, expected) == []


def test_port_accounting_answers_as_recorded():
    def answer(given: dict[str, Any]) -> object:
        index = PortIndex(Node.from_api(given["node"]))
        if index.error:
            return index.error
        reason = index.add_allocs([Allocation.from_api(alloc) for alloc in given["allocs"]])
        used = {address: [list(pair) for pair in ranges] for address, ranges in index.used_ports().items() if ranges}
        return [reason, used, index.host_networks, list(index.dynamic_range)]

    def expected(wanted: dict[str, Any]) -> object:
        if wanted["set_node_error"]:
            return wanted["set_node_error"]
        used = {address: ranges for address, ranges in wanted["used_ports"].items() if ranges}
        return [wanted["reason"], used, wanted["host_networks"], wanted["dynamic_range"]]

    assert differing("ports", answer, expected) == []


def check_drawn(index: PortIndex, offers: Iterable[PortOffer], dynamic: Iterable[PortOffer]) -> None:
    """A drawn port is in range (of an inverted range: its lower bound), free on its address, and new in its offer."""
    low, high = index.dynamic_range
    values = [offer.value for offer in offers]
    used = index.used_ports()
    for offer in dynamic:
        assert low <= offer.value <= max(low, high)
        assert not any(first <= offer.value <= last for first, last in used.get(offer.host_ip, []))
        assert values.count(offer.value) == 1


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_port_assignment_answers_as_recorded(seed):
    rng = None if seed is None else random.Random(seed)

    def offer(index: PortIndex, ask: dict[str, Any]) -> object:
        try:
            offers = index.assign(ask, rng)
        except PortsUnavailable as problem:
            return str(problem)
        static_count = len(ask.get("ReservedPorts") or [])
        check_drawn(index, offers, offers[static_count:])
        static = [(port.label, port.host_ip, port.ignore_collision, port.value, port.to) for port in offers[:static_count]]
        drawn = [(port.label, port.host_ip, port.ignore_collision, "same" if port.to == port.value else port.to) for port in offers[static_count:]]
        return static + drawn

    def expected_offer(port: dict[str, Any]) -> object:
        named = (port["label"], port["host_ip"], port["ignore_collision"])
        return (*named, port["to"]) if port.get("dynamic") else (*named, port["value"], port["to"])

    def task_offer(index: PortIndex, ask: dict[str, Any]) -> object:
        try:
            given = index.assign_task(ask, rng)
        except PortsUnavailable as problem:
            return str(problem)
        check_drawn(index, given.reserved_ports + given.dynamic_ports, given.dynamic_ports)
        return [given.ip, given.device, given.mbits, len(given.dynamic_ports)]

    def answer(given: dict[str, Any]) -> object:
        index = PortIndex(Node.from_api(given["node"]))
        if index.error:
            return [[], []]
        index.add_allocs([Allocation.from_api(alloc) for alloc in given["allocs"]])
        return [[offer(index, ask) for ask in given.get("asks") or []], [task_offer(index, ask) for ask in given.get("task_asks") or []]]

    def expected(wanted: dict[str, Any]) -> object:
        offers = [one["error"] or [expected_offer(port) for port in one["offer"]] for one in wanted.get("assign") or []]
        tasks = [one["error"] or [one["ip"], one["device"], one["mbits"], one["dynamic"]] for one in wanted.get("assign_task") or []]
        return [offers, tasks]

    assert differing("ports", answer, expected) == []


@pytest.mark.parametrize("algorithm", ["binpack", "spread"])
def test_scores_are_as_recorded(algorithm):
    looked_at = 0
    for case in recorded("score"):
        score = score_fit(Node.from_api(case["input"]["node"]), UsedResources(**case["input"]["used"]), algorithm=algorithm)
        wanted = float(case["answer"][algorithm])
        looked_at += 1
        if math.isnan(wanted):
            assert 0 <= score <= 18, case["id"]
        elif wanted in (0.0, 18.0):
            assert score == wanted, case["id"]
        else:
            assert score == pytest.approx(wanted, rel=1e-12, abs=1e-14), case["id"]
    assert looked_at > 0
