"""A whole server from a seed (docs/guide/simulation.md): what must hold does, whatever happens to it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter

import pytest

from fastplan.testing.simulation import Simulation, SimulationSettings, Violation, simulate

SEEDS = 10
SLOW_SEEDS = 300

DIGEST = """
import hashlib
from fastplan.testing.simulation import Simulation, SimulationSettings
simulation = Simulation(12, SimulationSettings(steps=30))
simulation.run()
print(hashlib.sha256(repr(simulation.storage.items).encode()).hexdigest())
"""


def run(seeds: range) -> tuple[Counter[str], int]:
    """Run seeds; return the sums of what they report, and how many workers computed at once at most."""
    start_s = time.perf_counter()
    sums: Counter[str] = Counter()
    most = 0
    for seed in seeds:
        report = simulate(seed)
        sums.update({name: getattr(report, name) for name in ("plans", "refused", "placed", "restarts")})
        sums.update(report.outcomes)
        most = max(most, report.most_running)
    sys.stdout.write(f"{len(seeds)} seeds, {len(seeds) / (time.perf_counter() - start_s):.1f} seeds/s\n")
    return sums, most


def assert_much_happened(sums: Counter[str], most: int, seeds: int) -> None:
    """Nothing is shown by a simulation in which nothing happens."""
    assert sums["plans"] > 10 * seeds
    assert sums["placed"] > 10 * seeds
    assert sums["refused"] < 0.2 * sums["plans"]
    assert sums["refused"] > 0
    assert sums["restarts"] > seeds // 4
    assert most > 2
    kinds = ("register_job", "scale", "deregister", "dispatch", "stop_alloc", "eligibility", "drain", "deregister_node", "clients", "node_status")
    assert [kind for kind in kinds if not sums[kind]] == []
    assert any(kind.endswith("OutcomeUnknown") for kind in sums)


def test_nothing_is_violated() -> None:
    assert_much_happened(*run(range(SEEDS)), SEEDS)


@pytest.mark.slow
def test_nothing_is_violated_in_many_seeds() -> None:
    assert_much_happened(*run(range(SEEDS, SLOW_SEEDS)), SLOW_SEEDS - SEEDS)


def test_the_same_seed_gives_the_same_log_in_any_process() -> None:
    """Whatever the order in which sets of texts are walked through, which differs from process to process."""
    digests = set()
    for hash_seed in ("1", "2"):
        done = subprocess.run([sys.executable, "-c", DIGEST], env={**os.environ, "PYTHONHASHSEED": hash_seed}, check=True, stdout=subprocess.PIPE, text=True)
        digests.add(done.stdout)
    assert len(digests) == 1


def test_other_seeds_give_other_logs() -> None:
    settings = SimulationSettings(steps=10)
    logs = []
    for seed in (1, 2):
        simulation = Simulation(seed, settings)
        simulation.run()
        logs.append(simulation.storage.items)
    assert logs[0] != logs[1]


def test_a_violation_says_where_it_happened() -> None:
    simulation = Simulation(5, SimulationSettings(steps=20))
    simulation.witness.violations.append("something does not hold")
    with pytest.raises(Violation) as violation:
        simulation.run()
    assert (violation.value.seed, violation.value.step, violation.value.found) == (5, 1, ["something does not hold"])
    assert str(violation.value).startswith("seed 5, step 1:\n  something does not hold\nlast actions:\n")


def test_what_is_raised_on_the_way_is_a_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation(5, SimulationSettings(steps=20))
    monkeypatch.setattr(simulation, "look", lambda: 1 // 0)
    with pytest.raises(Violation, match="ZeroDivisionError"):
        simulation.run()
