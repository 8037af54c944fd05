"""`fastplan schedule`: where would a job's allocations go, and why not?"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import click
from rich.table import Table

from fastplan.cli import ALL_FITS, DOES_NOT_FIT
from fastplan.cli.inputs import read_json, refuse_two_readers_of_stdin
from fastplan.cli.output import add_row, console, print_json, print_undecided, table
from fastplan.cli.plan import read_state
from fastplan.errors import InvalidInput
from fastplan.fit import NodeExplanation
from fastplan.fit.demand import totals_of
from fastplan.rules import Rules
from fastplan.scheduler.setting import Setting
from fastplan.server.dry_run import DryRun, dry_run, registered
from fastplan.state import StateSnapshot
from fastplan.structs import Allocation, AllocMetric, DesiredUpdates, Job

_ROWS_SHOWN: Final = 40
_COUNTS: Final = (
    ("place", "to place"),
    ("destructive_update", "to replace"),
    ("in_place_update", "to update in place"),
    ("migrate", "to migrate"),
    ("stop", "to stop"),
    ("canary", "canaries"),
    ("preemptions", "preemptions"),
    ("disconnect", "disconnected"),
    ("reconnect", "reconnected"),
    ("reschedule_now", "to reschedule now"),
    ("reschedule_later", "to reschedule later"),
    ("ignore", "as before"),
)
_GROUPS_SHOWN: Final = 20
_NEAREST_SHOWN: Final = 5
_HOLDERS_SHOWN: Final = 3
_SUMS: Final = {"cpu": "cpu_mhz", "memory": "memory_mib", "disk": "disk_mib"}


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
    changes, lacking = _changes(outcome, snapshot), _nearest(snapshot, outcome)
    if as_json:
        print_json(_json(outcome, changes, lacking, store.undecided))
    else:
        _print(outcome, changes, lacking)
        print_undecided(store.undecided)
    return DOES_NOT_FIT if outcome.failed or outcome.refused else ALL_FITS


def _job(value: Any) -> Job:
    """Return the job in *value*, which may be a whole registration request."""
    if isinstance(value, dict) and "ID" not in value and isinstance(value.get("Job"), dict):
        value = value["Job"]
    if not isinstance(value, dict):
        raise InvalidInput("job", value, "an object")
    return Job.from_api(value, "job")


def _nearest(snapshot: StateSnapshot, outcome: DryRun) -> dict[str, list[NodeExplanation]]:
    """Return for the first groups that fail what the ready nodes lack that come nearest to taking one more of it, once all of the plan stands.

    Those that lack the fewest things come first. Resources alone are looked at: a node that a constraint rules out may be among them.
    """
    if not outcome.failed:
        return {}
    checker = snapshot.fit_checker()
    placed = [alloc for _, alloc in _entries(outcome, "node_allocation")]
    evicted = [alloc.id for _, alloc in _entries(outcome, "node_preemptions")]
    checker.remove([alloc_id for alloc_id in [*evicted, *(alloc.id for alloc in placed)] if snapshot.alloc(alloc_id) is not None])
    checker.add(placed)
    ready = {node.id for node in snapshot.nodes() if node.status == "ready" and node.scheduling_eligibility == "eligible"}
    nearest = {}
    for group in list(outcome.failed)[:_GROUPS_SHOWN]:
        lacking = [node for node in checker.explain((outcome.job, group)) if node.failing and node.node_id in ready]
        lacking.sort(key=lambda node: (len(node.failing), sum(shortfall.missing for shortfall in node.failing), node.node_id))
        nearest[group] = [_with_holders(node, _standing(snapshot, node.node_id, placed, set(evicted))) for node in lacking[:_NEAREST_SHOWN]]
    return nearest


def _standing(snapshot: StateSnapshot, node_id: str, placed: list[Allocation], evicted: set[str]) -> list[Allocation]:
    """Return the allocations that hold something of a node once the plan stands."""
    new = {alloc.id: alloc for alloc in placed if alloc.node_id == node_id}
    old = [alloc for alloc in snapshot.allocs_by_node(node_id) if not alloc.is_client_terminal and alloc.id not in evicted and alloc.id not in new]
    return [*old, *new.values()]


def _with_holders(node: NodeExplanation, standing: list[Allocation]) -> NodeExplanation:
    """Return *node* with the holders of sums as well, of which a checker names none: the largest first."""
    failing = []
    for shortfall in node.failing:
        if shortfall.dimension in _SUMS:
            held = {alloc.id: getattr(totals_of(alloc), _SUMS[shortfall.dimension]) for alloc in standing}
            shortfall = replace(shortfall, held_by=sorted(filter(held.__getitem__, held), key=lambda alloc_id: (-held[alloc_id], alloc_id)))
        failing.append(shortfall)
    return replace(node, failing=failing)


def _entries(outcome: DryRun, part: Literal["node_allocation", "node_update", "node_preemptions"]) -> list[tuple[str, Allocation]]:
    """Return the allocations in one part of the plan, each with the id of its node."""
    by_node = {} if outcome.plan is None else getattr(outcome.plan, part)
    return [(node_id, alloc) for node_id, allocs in by_node.items() for alloc in allocs or ()]


def _score(alloc: Allocation) -> float | None:
    """Return the normalised score of the node that was taken, None where it was not scored."""
    scored = [] if alloc.metrics is None else alloc.metrics.score_meta_data
    return next((score.norm_score for score in scored if score is not None and score.node_id == alloc.node_id), None)


def _given(alloc: Allocation) -> list[str]:
    """Return the ports, cores and device instances that a placement was given, as texts."""
    resources = alloc.allocated_resources
    if resources is None:
        return []
    given = [f"{port.label}={port.host_ip}:{port.value}" for port in resources.shared.ports]
    for task in resources.tasks.values():
        if task is None:
            continue
        for network in task.networks:
            if network is not None:
                ports = [*network.reserved_ports, *network.dynamic_ports]
                given += [f"{port.label}={network.ip}:{port.value}" for port in ports]
        if task.cpu.reserved_cores:
            given.append("cores " + ",".join(map(str, task.cpu.reserved_cores)))
        given += [f"{device.vendor}/{device.type}/{device.name} {','.join(device.device_ids)}" for device in task.devices if device is not None]
    return given


def _changes(outcome: DryRun, snapshot: StateSnapshot) -> dict[str, list[dict[str, Any]]]:
    """Return what becomes of allocations: `placed`, `updated` in place, `stopped` and `preempted`, each in the order of name and node."""
    changes: dict[str, list[dict[str, Any]]] = {"placed": [], "updated": [], "stopped": [], "preempted": []}
    for node_id, alloc in _entries(outcome, "node_allocation"):
        node = snapshot.node(node_id)
        changes["placed" if snapshot.alloc(alloc.id) is None else "updated"].append(
            {
                "alloc_id": alloc.id,
                "group": alloc.task_group,
                "name": alloc.name,
                "node_id": node_id,
                "node_name": "" if node is None else node.name,
                "score": _score(alloc),
                "given": _given(alloc),
                "replaces": alloc.previous_allocation,
                "preempts": list(alloc.preempted_allocations),
            }
        )
    for key, entries_of_part in (("stopped", _entries(outcome, "node_update")), ("preempted", _entries(outcome, "node_preemptions"))):
        for node_id, alloc in entries_of_part:
            known = snapshot.alloc(alloc.id)
            why = alloc.desired_description or ("preempted by " + alloc.preempted_by_allocation if alloc.preempted_by_allocation else "")
            of = alloc if known is None else known
            changes[key].append({"alloc_id": alloc.id, "group": of.task_group, "name": of.name, "node_id": node_id, "job_id": of.job_id, "reason": why})
    for entries in changes.values():
        entries.sort(key=_place)
    return changes


def _place(entry: dict[str, Any]) -> tuple[str, str, int, str, str]:
    """Order by group and index, the names of one group as `web.app[2]` before `web.app[10]`."""
    stem, _, index = entry["name"].rpartition("[")
    number = index.removesuffix("]")
    return entry["group"], stem, int(number) if number.isdecimal() else -1, entry["name"], entry["node_id"]


def _json(outcome: DryRun, changes: dict[str, list[dict[str, Any]]], lacking: dict[str, list[NodeExplanation]], undecided: Sequence[str]) -> dict[str, Any]:
    return {
        "fits": not outcome.failed and not outcome.refused,
        **changes,
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


def _print(outcome: DryRun, changes: dict[str, list[dict[str, Any]]], lacking: dict[str, list[NodeExplanation]]) -> None:
    output = console()
    for group, counts in sorted(outcome.desired.items())[:_GROUPS_SHOWN]:
        if counts is not None:
            output.print(f"{outcome.job.id}.{group}: {_counted(counts)}.", markup=False)
    if len(outcome.desired) > _GROUPS_SHOWN:
        output.print(f"… and {len(outcome.desired) - _GROUPS_SHOWN} more groups; --json has all.")
    for title, key in (("placed", "placed"), ("updated in place", "updated")):
        shown = table(title, "node", ">score", "given", "evicts")
        for entry in changes[key][:_ROWS_SHOWN]:
            node = entry["node_id"] if entry["node_name"] in ("", entry["node_id"]) else f"{entry['node_name']} ({entry['node_id'][:8]})"
            score = "" if entry["score"] is None else f"{entry['score']:.3f}"
            add_row(shown, entry["name"], node, score, " ".join(entry["given"]), " ".join(entry["preempts"]))
        _print_table(shown, len(changes[key]))
    for title, key in (("stopped", "stopped"), ("evicted", "preempted")):
        shown = table(title, "allocation", "node", "why")
        for entry in changes[key][:_ROWS_SHOWN]:
            add_row(shown, entry["name"], entry["alloc_id"], entry["node_id"], entry["reason"])
        _print_table(shown, len(changes[key]))
    for node_id, reason in outcome.refused.items():
        output.print(f"The part of node {node_id} would be refused: {reason}.", markup=False)
    for group in lacking:
        metric = outcome.failed[group]
        if metric is not None:
            _print_failure(outcome.job, group, metric, lacking[group])
    if len(outcome.failed) > len(lacking):
        output.print(f"… and {len(outcome.failed) - len(lacking)} more groups have no place for all of theirs; --json has their counts.")
    if not outcome.failed:
        output.print("Everything has a place." if any(changes.values()) else "No allocation would change.")


def _counted(counts: DesiredUpdates) -> str:
    """Return the counts of a group's changes that are not zero, in words."""
    return ", ".join(f"{getattr(counts, name)} {words}" for name, words in _COUNTS if getattr(counts, name)) or "nothing to do"


def _print_table(shown: Table, total: int) -> None:
    if shown.row_count:
        console().print(shown)
    if total > _ROWS_SHOWN:
        console().print(f"… and {total - _ROWS_SHOWN} more; --json has all.")


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
            more = len(shortfall.held_by) - _HOLDERS_SHOWN
            held_by = " ".join(shortfall.held_by[:_HOLDERS_SHOWN]) + (f" and {more} more" if more > 0 else "")
            add_row(lacks, node.node_id, subject, shortfall.asked, shortfall.free, shortfall.missing, held_by)
    if lacks.row_count:
        output.print(lacks)
