"""Faults that are planted on purpose are found, each within a hundred seeds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from fastplan.broker import EvalBroker
from fastplan.errors import TokenRejected
from fastplan.fit.engine_compiled import RULE_PHYSICAL
from fastplan.planner import evaluate, view
from fastplan.rules import Rules
from fastplan.testing.simulation import SimulationSettings, Violation, simulate

LIMIT = 100
BUSY = SimulationSettings(steps=120, workers=16)
"""Much goes on at once: what is wrong shows soon."""


def found_at() -> Violation:
    """Return the first violation among a hundred seeds."""
    for seed in range(LIMIT):
        try:
            simulate(seed, BUSY)
        except Violation as violation:
            return violation
    raise AssertionError("nothing was found")


def test_nothing_is_found_without_a_fault() -> None:
    for seed in range(5):
        simulate(seed, BUSY)


def test_a_plan_of_a_worker_that_lost_its_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The applier does not ask whether the token of a plan is still good."""
    paused = EvalBroker.pause_nack

    def pause_anything(self: EvalBroker, eval_id: str, token: str) -> None:
        try:
            paused(self, eval_id, token)
        except TokenRejected:
            return

    monkeypatch.setattr(EvalBroker, "pause_nack", pause_anything)
    assert re.search(r" has \d+ of ", " ".join(found_at().found))


def test_a_stopped_allocation_that_counts_as_free_while_its_client_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(evaluate.RULE_FLAGS, Rules.STRICT, evaluate.RULE_FLAGS[Rules.STRICT] & ~RULE_PHYSICAL)
    assert "allocations" in found_at().found[0]


def test_plans_that_are_not_verified_on_the_newest_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a worker found to fit on its snapshot is committed as it is."""
    verify: Callable[..., Any] = evaluate.verify  # type: ignore[attr-defined]

    def accept(nodes: Any, allocs: Any, columns: Any, rules: int, codes: Any, flags: Any, overlay: Any) -> Any:
        _, _, *rest = verify(nodes, allocs, columns, rules, codes, flags, overlay)
        codes.fill(0)
        return 0, 0, *rest

    monkeypatch.setattr(evaluate, "verify", accept)
    monkeypatch.setattr(view, "verify_whole", lambda nodes, allocs, views, owners, first, *rest: first)
    assert found_at().found


def test_two_evaluations_of_one_job_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    make_ready = EvalBroker._make_ready

    def make_any_ready(self: EvalBroker, evaluation: Any, queue: str) -> bool:
        self._owners.pop((evaluation.namespace, evaluation.job_id), None)
        return make_ready(self, evaluation, queue)

    monkeypatch.setattr(EvalBroker, "_make_ready", make_any_ready)
    assert "does not own its job" in found_at().found[0]
