"""What a record from a lossy source cannot decide (plan-apply 1.13)."""

from __future__ import annotations

from fastplan.structs.alloc import Allocation
from fastplan.structs.node import Node

_SUPPLY = ("cpu", "memory", "disk", "cores", "port", "device")


def lossy_dimensions(record: Node | Allocation) -> dict[str, str]:
    """Return the dimensions of the fit check that *record*, as it was read, cannot decide, each with the reason.

    The dimensions are those of `FitChecker.explain`: cpu, memory, disk, cores, max_allocs, port, device, host_volume. Ask before the record is made
    canonical. A record made in Python decides everything that it holds resources for.
    """
    return _node(record) if isinstance(record, Node) else _alloc(record)


def _node(node: Node) -> dict[str, str]:
    found: dict[str, str] = {}
    resources = node.node_resources
    if resources is None:
        if node.resources is None:
            found = dict.fromkeys(_SUPPLY, "no resources: a list without ?resources=true")
        else:
            found = dict.fromkeys(("cores", "device"), "the older resource layout has none")
    elif resources.is_from_api:
        if resources.processors.topology is None:
            found["cores"] = "no Processors: printed by a client tool or an older server"
        if resources.node_networks is None:
            found["port"] = "no NodeNetworks: printed by a client tool or an older server"
    # The list endpoint says that a node drains, but neither how nor how many allocations it takes.
    if node.is_from_api and node.is_given("drain") and not node.is_given("drain_strategy") and not node.is_given("node_max_allocs"):
        found["max_allocs"] = "no NodeMaxAllocs: an entry of the node list"
    return found


def _alloc(alloc: Allocation) -> dict[str, str]:
    if alloc.is_client_terminal:
        return {}
    found: dict[str, str] = {}
    resources = alloc.allocated_resources
    if resources is not None:
        if resources.is_from_api and not resources.is_given("task_lifecycles"):
            reason = "no TaskLifecycles: printed by a client tool, "
            found["cpu"] = found["memory"] = reason + "demand of all tasks is added up, which may be too strict"
            if not any(task is not None and task.cpu.is_given("reserved_cores") for task in resources.tasks.values()):
                found["cores"] = reason + "which leaves out reserved cores"
            if resources.shared.ports:
                found["port"] = reason + "which leaves out that ports ignore collisions"
    elif alloc.task_resources is not None:
        found = dict.fromkeys(("cores", "device"), "the older resource layout does not carry them over")
    elif alloc.resources is not None:
        found = dict.fromkeys(("cores", "device", "port"), "the oldest resource layout does not carry them over")
    else:
        found = dict.fromkeys(_SUPPLY, "no resources: a list without ?resources=true")
    if alloc.job is None:
        found["host_volume"] = "no Job"
    return found
