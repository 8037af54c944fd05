"""`python -m fastplan.testing.simulation [--seeds 2000] [--first 0]`: run many seeds, one after the other."""

from __future__ import annotations

import sys
import time

import click

from fastplan.testing.simulation.simulation import SimulationSettings, Violation, simulate


@click.command()
@click.option("--seeds", default=2000, envvar="SEEDS", show_default=True, type=click.IntRange(1), help="How many seeds to run.")
@click.option("--first", default=0, envvar="FIRST", show_default=True, type=click.IntRange(0), help="The first seed.")
@click.option("--steps", default=SimulationSettings().steps, show_default=True, type=click.IntRange(1), help="Actions in each of them.")
@click.option("--disconnects", is_flag=True, help="Let clients lose the server, too.")
def main(seeds: int, first: int, steps: int, disconnects: bool) -> None:
    """Run seeds; print each violation, and at the end how many seeds a second were run. Ends with 1 if anything was violated."""
    settings = SimulationSettings(steps=steps, disconnects=disconnects)
    start_s = time.perf_counter()
    violated, plans, refused, placed, restarts = [], 0, 0, 0, 0
    for number, seed in enumerate(range(first, first + seeds), 1):
        try:
            report = simulate(seed, settings)
        except Violation as violation:
            violated.append(seed)
            click.echo(str(violation))
        else:
            plans, refused, placed, restarts = plans + report.plans, refused + report.refused, placed + report.placed, restarts + report.restarts
        if number % 100 == 0 or number == seeds:
            per_s = number / (time.perf_counter() - start_s)
            click.echo(f"{number} of {seeds} seeds, {per_s:.1f} seeds/s, {len(violated)} violated")
    share = 100 * refused / max(plans, 1)
    click.echo(f"{plans} plans, {share:.1f} % of them refused in part or whole; {placed} placements, {restarts} restarts after a crash")
    if violated:
        click.echo(f"violated: {' '.join(map(str, violated))}")
        sys.exit(1)


if __name__ == "__main__":
    main()
