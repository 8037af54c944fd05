"""`fastplan check`: does each node fit the allocations that name it, and new ones besides?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import click

from fastplan.bitset import RowSet
from fastplan.cli import ALL_FITS, DOES_NOT_FIT
from fastplan.cli.inputs import at_path, read_records, refuse_two_readers_of_stdin
from fastplan.cli.output import add_row, console, print_json, print_undecided, table
from fastplan.errors import InvalidInput, Reason
from fastplan.fit import FitChecker, FitResult, UsedResources, allocs_fit
from fastplan.fit.supply import supply_of
from fastplan.state.undecided import list_undecided
from fastplan.structs import Allocation, Node, canonical_node

_ROWS_SHOWN = 40


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """What was found on one node: the verdict, what is used and supplied, and what each new allocation lacks."""

    node_id: str
    node_name: str
    result: FitResult
    alloc_ids: tuple[str, ...]
    new_alloc_ids: tuple[str, ...]
    supply: UsedResources
    failing: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return the finding as JSON; amounts in MHz and MiB."""
        return {
            "node_id": self.node_id,
            "node_name": self.node_name,
            "fits": self.result.fit,
            "reason": self.result.reason,
            "allocs": list(self.alloc_ids),
            "new_allocs": list(self.new_alloc_ids),
            "used": _amounts(self.result.used),
            "supply": _amounts(self.supply),
            "failing": self.failing,
        }


def _amounts(amounts: UsedResources) -> dict[str, Any]:
    return asdict(amounts) | {"reserved_cores": list(amounts.reserved_cores)}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("nodes")
@click.argument("allocs")
@click.option("--add", "new", metavar="NEW", help="Also place these allocations, each on the node that it names.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(nodes: str, allocs: str, new: str | None, as_json: bool) -> int:
    """Check each node with the allocations that name it.

    NODES, ALLOCS and NEW are files with one object or a list of objects in the shape of Nomad's HTTP API; - is stdin. Allocations whose client
    status is terminal hold nothing and are left out. A new allocation replaces the one with its ID. Exit code 0: all fits; 1: something does not,
    or an allocation names a node that is not there; 2: bad input.
    """
    refuse_two_readers_of_stdin(nodes, allocs, new)
    cluster = read_records(Node, nodes, "node", "nodes")
    present = [alloc for alloc in read_records(Allocation, allocs, "alloc", "allocs") if not alloc.is_client_terminal]
    added = [] if new is None else [alloc for alloc in read_records(Allocation, new, "new", "new") if not alloc.is_client_terminal]

    checks, broken_before, missing = check_cluster(cluster, present, added)
    unknown = {alloc_id for alloc_ids in missing.values() for alloc_id in alloc_ids}
    undecided = list_undecided(cluster, [], [alloc for alloc in present + added if alloc.id not in unknown])
    fits = not missing and all(check.result.fit for check in checks)
    if as_json:
        missing_nodes = [{"node_id": node_id, "reason": Reason.NODE_MISSING.text, "allocs": alloc_ids} for node_id, alloc_ids in missing.items()]
        print_json({"fits": fits, "nodes": [check.to_json() for check in checks], "missing_nodes": missing_nodes, "undecided": undecided})
    else:
        _print(checks, broken_before, missing)
        print_undecided(undecided)
    return ALL_FITS if fits else DOES_NOT_FIT


def check_cluster(nodes: list[Node], present: list[Allocation], new: list[Allocation]) -> tuple[list[NodeCheck], RowSet, dict[str, list[str]]]:
    """Check every node with the *present* and *new* allocations that name it.

    Returns one finding a node in the order of *nodes*; the rows of the nodes on which the present ones alone do not fit; and for each node that is
    named and not there the ids of the allocations that name it. Raises InvalidInput naming the field where a node cannot be judged.
    """
    replaced = {alloc.id for alloc in new}
    before, kept, arriving = _by_node(present), _by_node(alloc for alloc in present if alloc.id not in replaced), _by_node(new)
    checks, broken_before = [], []
    for row, node in enumerate(nodes):
        path = f"nodes[{row}]" if len(nodes) > 1 else "node"
        result = _fit(node, before[node.id], path)
        if not result.fit:
            broken_before.append(row)
        if node.id in arriving or before[node.id] != kept[node.id]:
            result = _fit(node, kept[node.id] + arriving[node.id], path)
        checks.append(_finding(node, result, kept[node.id], arriving[node.id]))
    known = {node.id for node in nodes}
    named = _by_node(present + new)
    missing = {node_id: [alloc.id for alloc in allocs] for node_id, allocs in named.items() if node_id not in known and allocs}
    return checks, RowSet(broken_before), missing


def _by_node(allocs: Iterable[Allocation]) -> defaultdict[str, list[Allocation]]:
    groups: defaultdict[str, list[Allocation]] = defaultdict(list)
    for alloc in allocs:
        groups[alloc.node_id].append(alloc)
    return groups


def _fit(node: Node, allocs: list[Allocation], path: str) -> FitResult:
    try:
        return allocs_fit(node, allocs)
    except InvalidInput as problem:
        raise at_path(problem, "node", path) from None


def _finding(node: Node, result: FitResult, kept: list[Allocation], arriving: list[Allocation]) -> NodeCheck:
    supply = supply_of(canonical_node(node))
    return NodeCheck(
        node_id=node.id,
        node_name=node.name,
        result=result,
        alloc_ids=tuple(alloc.id for alloc in kept),
        new_alloc_ids=tuple(alloc.id for alloc in arriving),
        supply=UsedResources(supply.cpu_mhz, supply.memory_mib, 0, supply.disk_mib, supply.cores),
        failing=[] if result.fit else _failing(node, kept, arriving),
    )


def _failing(node: Node, kept: list[Allocation], arriving: list[Allocation]) -> list[dict[str, Any]]:
    """Return what each new allocation lacks on *node* beside all the others."""
    failing = []
    for alloc in arriving:
        others = kept + [other for other in arriving if other is not alloc]
        for explanation in FitChecker([node], others).explain(alloc):
            failing += [{"alloc_id": alloc.id, **asdict(shortfall)} for shortfall in explanation.failing]
    return failing


def _print(checks: list[NodeCheck], broken_before: RowSet, missing: dict[str, list[str]]) -> None:
    broken = RowSet.from_mask([not check.result.fit for check in checks])
    shown = [check for check in checks if len(checks) <= _ROWS_SHOWN or not check.result.fit]
    overview = table("node", ">allocs", ">new", ">cpu MHz", ">memory MiB", ">disk MiB", "verdict")
    for check in shown:
        used, supply = check.result.used, check.supply
        amounts = [f"{getattr(used, name)} / {getattr(supply, name)}" for name in ("cpu_mhz", "memory_mib", "disk_mib")]
        add_row(overview, _label(check), len(check.alloc_ids), len(check.new_alloc_ids), *amounts, check.result.reason or "fits")
    for node_id, alloc_ids in missing.items():
        add_row(overview, node_id or '""', len(alloc_ids), "", "", "", "", Reason.NODE_MISSING.text)
    output = console()
    if overview.row_count:
        output.print(overview)
    lacks = table("node", "new allocation", "lacks", ">asked", ">free", ">missing", "held by")
    for check in shown:
        for entry in check.failing:
            subject = f"{entry['dimension']} {entry['subject']}".strip()
            add_row(lacks, _label(check), entry["alloc_id"], subject, entry["asked"], entry["free"], entry["missing"], " ".join(entry["held_by"]))
    if lacks.row_count:
        output.print(lacks)
    text = f"{len(checks) - len(broken)} of {len(checks)} nodes fit."
    if broken and any(check.new_alloc_ids for check in checks):
        text += f" Without what is new: {len(checks) - len(broken_before)}; because of it {len(broken - broken_before)} no longer fit."
    if missing:
        text += f" Named and not there: {len(missing)}."
    output.print(text)


def _label(check: NodeCheck) -> str:
    return f"{check.node_name} ({check.node_id[:8]})" if check.node_name and check.node_name != check.node_id else check.node_id
