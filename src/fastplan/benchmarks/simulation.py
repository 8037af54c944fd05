"""How many seeds of the simulation of a whole server run in a second (docs/guide/simulation.md)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from fastplan.benchmarks.measuring import Answer
from fastplan.testing.simulation import Report, SimulationSettings, simulate


@dataclass(frozen=True, slots=True)
class Sizes:
    """*seeds* simulations of *steps* actions each."""

    seeds: int
    steps: int


SIZES = {"toy": Sizes(1, 10), "full": Sizes(24, SimulationSettings().steps)}


def run(sizes: Sizes) -> list[Report]:
    """Run all seeds. Raises Violation, an AssertionError, if something that must hold does not."""
    settings = SimulationSettings(steps=sizes.steps)
    return [simulate(seed, settings) for seed in range(sizes.seeds)]


def measure(sizes: Sizes, directory: Path) -> Answer:
    """Answer `simulation`. Nothing is written to *directory*: the log is in memory."""
    start_s = perf_counter()
    reports = run(sizes)
    seconds = perf_counter() - start_s
    plans, refused = sum(report.plans for report in reports), sum(report.refused for report in reports)
    figures = {"seeds_per_s": sizes.seeds / seconds, "plans_per_s": plans / seconds}
    return Answer(
        figures,
        [
            f"{sizes.seeds} seeds of {sizes.steps} actions: {plans} plans, {refused} of them refused in part or whole, "
            f"{sum(report.placed for report in reports)} placements, {sum(report.restarts for report in reports)} restarts",
            f"{figures['seeds_per_s']:.1f} seeds/s, nothing violated",
        ],
    )
