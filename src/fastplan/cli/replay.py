"""`fastplan replay`: play a recorded or generated workload through the whole path, and say what became of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from fastplan.cli import ALL_FITS, DOES_NOT_FIT, INTERRUPTED
from fastplan.cli.output import add_row, console, print_json, table
from fastplan.errors import InvalidInput
from fastplan.replay.c2m import c2m
from fastplan.replay.gpu_fleet import gpu_fleet
from fastplan.replay.nomad_bench import NODES, RACKS, nomad_bench
from fastplan.replay.openb import read_openb
from fastplan.replay.report import Figures
from fastplan.replay.session import Policy, ReplaySettings, replay
from fastplan.replay.shapes import Workload
from fastplan.rules import Rules

Command = TypeVar("Command", bound=Callable[..., Any])

_HELP = {"help_option_names": ["-h", "--help"]}


def _options(function: Command) -> Command:
    """Add the options that all workloads have in common."""
    for option in reversed(
        (
            click.option("--workers", default=2, show_default=True, help="How many workers plan in parallel."),
            click.option("--stale", default=1, show_default=True, metavar="N", help="Let a worker keep its snapshot for N evaluations."),
            click.option(
                "--policy",
                "policies",
                type=click.Choice(get_args(Policy)),
                multiple=True,
                default=("binpack",),
                show_default=True,
                help="Score every node and prefer full or empty ones, or score a few as Nomad does. Given several times, they are compared side by side.",
            ),
            click.option(
                "--rules",
                type=click.Choice([rules.value for rules in Rules]),
                default=Rules.STRICT.value,
                show_default=True,
                help="By which rules plans are verified: Nomad's own, or those with its gaps repaired.",
            ),
            click.option("--seed", default=0, show_default=True, help="Decides ids and what is generated; with one worker, everything."),
            click.option("--data-dir", type=click.Path(path_type=Path), metavar="DIR", help="Where the log goes and stays; else it is removed at the end."),
            click.option("--resume", is_flag=True, help="Go on where the log in --data-dir ends."),
            click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        )
    ):
        function = option(function)
    return function


@click.group(context_settings=_HELP)
def command() -> None:
    """Replay a workload: place, verify, commit, end, and check the result.

    Every arrival is a job that is registered with a server: its evaluation goes to a worker, whose scheduler scores the nodes of its own snapshot and
    submits a plan, which is verified and committed to a durable log. It ends at its time. Exit code 0: done and in order; 1: a node was over-committed,
    or a restart gave another state; 2: bad input; 3: storage or environment; 130: stopped by Ctrl-C.
    """


@command.command("gpu-fleet", context_settings=_HELP)
@_options
def _gpu_fleet(seed: int, **options: Any) -> int:
    """A small generated fleet of GPU machines, with tasks that wait and some that never fit."""
    return _run(gpu_fleet(seed=seed), seed=seed, **options)


@command.command("openb", context_settings=_HELP)
@click.option("--nodes", type=click.Path(path_type=Path), required=True, metavar="CSV", help="The nodes.")
@click.option("--pods", type=click.Path(path_type=Path), required=True, metavar="CSV", help="The pods.")
@_options
def _openb(nodes: Path, pods: Path, seed: int, **options: Any) -> int:
    """A recorded GPU cluster: nodes and pods as CSV files in the layout of the openb trace."""
    return _run(read_openb(nodes, pods, seed=seed), seed=seed, **options)


@command.command("c2m", context_settings=_HELP)
@click.option("--nodes", default=610, show_default=True, metavar="N", help="How many nodes.")
@click.option("--allocs", default=200_000, show_default=True, metavar="M", help="How many allocations, in jobs of 1,000.")
@_options
def _c2m(nodes: int, allocs: int, seed: int, **options: Any) -> int:
    """Many small allocations on large nodes, generated at any size."""
    return _run(c2m(nodes, allocs, seed=seed), seed=seed, **options)


@command.command("nomad-bench", context_settings=_HELP)
@click.option("--nodes", default=NODES, show_default=True, metavar="N", help="How many nodes.")
@click.option("--racks", default=RACKS, show_default=True, metavar="N", help="In how many racks they are.")
@click.option("--spread/--no-spread", default=False, show_default=True, help="Whether copies are to be spread evenly over the racks.")
@_options
def _nomad_bench(nodes: int, racks: int, spread: bool, seed: int, **options: Any) -> int:
    """Service jobs of 50 to 1,200 copies that come and go one after the other on equal nodes, generated."""
    return _run(nomad_bench(nodes, racks=racks, spread=spread, seed=seed), seed=seed, **options)


def _run(workload: Workload, *, as_json: bool, rules: str, policies: tuple[Policy, ...], data_dir: Path | None, **options: Any) -> int:
    if len(policies) > 1 and data_dir is not None:
        raise InvalidInput("--data-dir", str(data_dir), "one --policy, as a log belongs to one")
    played = [(policy, replay(workload, ReplaySettings(rules=Rules(rules), policy=policy, data_dir=data_dir, **options))) for policy in dict.fromkeys(policies)]
    if as_json:
        print_json(played[0][1].to_json() if len(played) == 1 else {policy: figures.to_json() for policy, figures in played})
    else:
        _print(workload, played)
    if any(figures.stopped for _, figures in played):
        return INTERRUPTED
    return ALL_FITS if all(figures.restart_equal and not figures.over_committed_nodes for _, figures in played) else DOES_NOT_FIT


def _print(workload: Workload, played: Sequence[tuple[Policy, Figures]]) -> None:
    stopped = any(figures.stopped for _, figures in played)
    columns = [">"] if len(played) == 1 else [f">{policy}" for policy, _ in played]
    closing = table(f"{workload.name}, stopped early" if stopped else workload.name, *columns)
    rows = [dict(figures.rows()) for _, figures in played]
    for what in dict.fromkeys(what for each in rows for what in each):
        add_row(closing, what, *(each.get(what, "") for each in rows))
    console().print(closing)
