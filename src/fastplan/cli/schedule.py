"""`fastplan schedule`: where would a job's allocations go, and why not?"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import click

from fastplan.cli import ALL_FITS, DOES_NOT_FIT
from fastplan.cli.inputs import read_json, refuse_two_readers_of_stdin
from fastplan.cli.output import add_row, console, print_json, print_undecided, table
from fastplan.cli.plan import read_state
from fastplan.errors import InvalidInput
from fastplan.fit import NodeExplanation
from fastplan.rules import Rules
from fastplan.scheduler.setting import Setting
from fastplan.server.dry_run import DryRun, dry_run, registered
from fastplan.state import StateSnapshot
from fastplan.structs import AllocMetric, Job

_NODES_SHOWN: Final = 20
_NEAREST_SHOWN: Final = 5


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("state")
@click.argument("job")
@click.option(
    "--rules",
    type=click.Choice([rules.value for rules in Rules]),
    default=Rules.STRICT.value,
    show_default=True,
    help="By which rules: Nomad's own, which look at a few nodes, or those with its gaps repaired, which look at all.",
)
@click.option("--seed", default=0, show_default=True, help="Decides ids, ports that are drawn, and which of equal nodes is taken.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(state: str, job: str, rules: str, seed: int, as_json: bool) -> int:
    """Schedule a job on a state, as if it were registered now; nothing is written.

    STATE is a dump: a JSON object with nodes, allocs, jobs, … or a folder with one JSON file for each. JOB is one job in the shape of Nomad's API,
    or the request that registers it. - is stdin. Exit code 0: everything has a place; 1: something has none, and it is said why; 2: bad input.
    """
    refuse_two_readers_of_stdin(state, job)
    store = read_state(state)
    asked = _job(read_json(job, "job"))
    setting = Setting(now_ns=time.time_ns, rules=Rules(rules), randomness=random.Random(seed))
    snapshot = store.snapshot()
    outcome = dry_run(snapshot, registered(snapshot, asked, setting), setting)
    lacking = {group: _nearest(snapshot, outcome.job, group) for group in outcome.failed}
    if as_json:
        print_json(_json(outcome, lacking, store.undecided))
    else:
        _print(outcome, lacking)
        print_undecided(store.undecided)
    return DOES_NOT_FIT if outcome.failed or outcome.refused else ALL_FITS


def _job(value: Any) -> Job:
    """Return the job in *value*, which may be a whole registration request."""
    if isinstance(value, dict) and "ID" not in value and isinstance(value.get("Job"), dict):
        value = value["Job"]
    if not isinstance(value, dict):
        raise InvalidInput("job", value, "an object")
    return Job.from_api(value, "job")


def _nearest(snapshot: StateSnapshot, job: Job, group: str) -> list[NodeExplanation]:
    """Return what the ready nodes lack that come nearest to taking one more of a group: those that lack the fewest things first."""
    explanations = [node for node in snapshot.fit_checker().explain((job, group)) if node.failing]
    return sorted(explanations, key=lambda node: (len(node.failing), sum(shortfall.missing for shortfall in node.failing), node.node_id))[:_NEAREST_SHOWN]


def _placements(outcome: DryRun) -> dict[str, Counter[str]]:
    """Return for each group how many allocations each node gets."""
    placed: dict[str, Counter[str]] = {}
    if outcome.plan is not None:
        for node_id, allocs in outcome.plan.node_allocation.items():
            for alloc in allocs or ():
                placed.setdefault(alloc.task_group, Counter())[node_id] += 1
    return placed


def _json(outcome: DryRun, lacking: dict[str, list[NodeExplanation]], undecided: Sequence[str]) -> dict[str, Any]:
    return {
        "fits": not outcome.failed and not outcome.refused,
        "placements": {group: dict(nodes) for group, nodes in _placements(outcome).items()},
        "plan": None if outcome.plan is None else outcome.plan.to_api(),
        "refused": dict(outcome.refused),
        "desired_updates": {group: None if counts is None else counts.to_api() for group, counts in outcome.desired.items()},
        "queued": dict(outcome.queued),
        "failed": {group: None if metric is None else metric.to_api() for group, metric in outcome.failed.items()},
        "nearest": {
            group: [
                {
                    "node_id": node.node_id,
                    "failing": [
                        {
                            "dimension": shortfall.dimension,
                            "subject": shortfall.subject,
                            "asked": shortfall.asked,
                            "free": shortfall.free,
                            "missing": shortfall.missing,
                            "held_by": list(shortfall.held_by),
                        }
                        for shortfall in node.failing
                    ],
                }
                for node in nodes
            ]
            for group, nodes in lacking.items()
        },
        "undecided": list(undecided),
    }


def _print(outcome: DryRun, lacking: dict[str, list[NodeExplanation]]) -> None:
    output = console()
    for group, nodes in sorted(_placements(outcome).items()):
        shown = table("node", ">allocations", title=f"{outcome.job.id}.{group}: {nodes.total()} on {len(nodes)} nodes")
        for node_id, count in nodes.most_common(_NODES_SHOWN):
            add_row(shown, node_id, count)
        output.print(shown)
        if len(nodes) > _NODES_SHOWN:
            output.print(f"… and {len(nodes) - _NODES_SHOWN} more nodes.")
    stops = 0 if outcome.plan is None else sum(len(entries or ()) for entries in outcome.plan.node_update.values())
    preempted = 0 if outcome.plan is None else sum(len(entries or ()) for entries in outcome.plan.node_preemptions.values())
    if stops or preempted:
        output.print(f"{stops} allocations would be stopped, {preempted} evicted.")
    for node_id, reason in outcome.refused.items():
        output.print(f"The part of node {node_id} would be refused: {reason}.", markup=False)
    for group, metric in outcome.failed.items():
        if metric is not None:
            _print_failure(outcome.job, group, metric, lacking[group])
    if not outcome.failed:
        output.print("Everything has a place." if outcome.plan is not None else "Nothing would change.")


def _print_failure(job: Job, group: str, metric: AllocMetric, nearest: Sequence[NodeExplanation]) -> None:
    output = console()
    missing = metric.coalesced_failures + 1
    output.print(f"{job.id}.{group}: {missing} {'has' if missing == 1 else 'have'} no place; {metric.nodes_evaluated} nodes were looked at.", markup=False)
    reasons = table("nodes", "why not")
    for constraint, count in sorted(metric.constraint_filtered.items(), key=lambda item: (-item[1], item[0])):
        add_row(reasons, count, f"filtered: {constraint}")
    for dimension, count in sorted(metric.dimension_exhausted.items(), key=lambda item: (-item[1], item[0])):
        add_row(reasons, count, f"exhausted: {dimension}")
    if reasons.row_count:
        output.print(reasons)
    lacks = table("nearest node", "lacks", ">asked", ">free", ">missing", "held by")
    for node in nearest:
        for shortfall in node.failing:
            subject = f"{shortfall.dimension} {shortfall.subject}".strip()
            add_row(lacks, node.node_id, subject, shortfall.asked, shortfall.free, shortfall.missing, " ".join(shortfall.held_by))
    if lacks.row_count:
        output.print(lacks)
