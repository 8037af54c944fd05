"""`fastplan plan`: what of a plan would be committed on a state, and why not the rest?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fastplan.cli import ALL_FITS, DOES_NOT_FIT
from fastplan.cli.inputs import STDIN, read_json, refuse_two_readers_of_stdin
from fastplan.cli.output import add_row, console, print_json, print_undecided, table
from fastplan.errors import InvalidInput, PlanError, StateError
from fastplan.planner import PlanResult, Rules, evaluate_plan
from fastplan.state import StateStore
from fastplan.structs import Plan


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("state")
@click.argument("plan")
@click.option(
    "--rules",
    type=click.Choice([rules.value for rules in Rules]),
    default=Rules.STRICT.value,
    show_default=True,
    help="By which rules: Nomad's own, or those with its gaps repaired.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(state: str, plan: str, rules: str, as_json: bool) -> int:
    """Verify a plan against a state; nothing is written.

    STATE is a dump: a JSON object with nodes, allocs, jobs, … or a folder with one JSON file for each. PLAN is one plan in the shape of Nomad's
    API. - is stdin. Exit code 0: all of the plan is accepted; 1: something is refused; 2: bad input.
    """
    refuse_two_readers_of_stdin(state, plan)
    store = read_state(state)
    proposed = Plan.from_api(read_json(plan, "plan"), "plan")
    try:
        result = evaluate_plan(store.snapshot(), proposed, rules=Rules(rules))
    except PlanError as problem:
        if as_json:
            print_json({"fits": False, "error": str(problem), "refused": {}, "result": None, "undecided": store.undecided})
        else:
            console().print(f"The whole plan is an error: {problem}.", markup=False)
        return DOES_NOT_FIT
    placed_all, expected, actual = result.full_commit(proposed)
    fits = placed_all and not result.rejected_nodes
    if as_json:
        print_json(
            {
                "fits": fits,
                "error": "",
                "expected": expected,
                "placed": actual,
                "refused": result.reasons,
                "result": result.to_api(),
                "undecided": store.undecided,
            }
        )
    else:
        _print(proposed, result)
        print_undecided(store.undecided)
    return ALL_FITS if fits else DOES_NOT_FIT


def read_state(source: str) -> StateStore:
    """Return the state that *source* describes; every fault of a dump is bad input."""
    dump: Any = Path(source) if source != STDIN and Path(source).is_dir() else read_json(source, "state")
    if not isinstance(dump, dict | Path):
        raise InvalidInput("state", dump, "an object with nodes, allocs, …")
    try:
        store = StateStore.from_dump(dump)
    except StateError as problem:
        raise InvalidInput("state", source, f"a consistent dump ({problem})") from problem
    if store.latest_index() == 0:
        # Nothing in the dump says at which index it was taken, and a refusal needs one to refresh to (plan-apply 5.5).
        store.touch(1, "nodes", "allocs")
    return store


def _print(plan: Plan, result: PlanResult) -> None:
    nodes = list(dict.fromkeys([*plan.node_update, *plan.node_preemptions, *plan.node_allocation]))
    verdicts = table("node", ">placements", ">stops", ">preemptions", "verdict")
    for node_id in nodes:
        counts = [len(part.get(node_id) or ()) for part in (plan.node_allocation, plan.node_update, plan.node_preemptions)]
        verdict = result.reasons.get(node_id) or ("accepted" if result.kept else "not committed: all of the plan or nothing")
        add_row(verdicts, node_id, *counts, verdict)
    output = console()
    if nodes:
        output.print(verdicts)
    _, expected, actual = result.full_commit(plan)
    refresh = f"; refresh to index {result.refresh_index}" if result.refresh_index else ""
    output.print(f"{actual} of {expected} placements accepted, {len(result.rejected_nodes)} of {len(nodes)} nodes refused{refresh}.")
