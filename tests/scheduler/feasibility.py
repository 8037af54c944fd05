"""What tests of feasibility start from: a state, a job, and the checks of its nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastplan.rules import Rules
from fastplan.scheduler.feasible.chain import Feasibility
from fastplan.structs import Allocation, Job, Node
from fastplan.testing.builders import ready_node
from tests.scheduler.ranking import Site


def constraint(left: str, operand: str = "=", right: str = "") -> dict[str, Any]:
    """Return a constraint in the shape of the API."""
    return {"LTarget": left, "Operand": operand, "RTarget": right}


def rack_node(node_id: str, rack: str | None, **more: Any) -> Node:
    """Return a ready node in a rack; None: it does not say in which."""
    return ready_node(node_id, Meta={} if rack is None else {"rack": rack}, **more)


class Checks:
    """The checks of nodes for one job on one state."""

    def __init__(self, job: Job, nodes: Sequence[Node], allocs: Sequence[Allocation] = (), *, rules: Rules = Rules.STRICT) -> None:
        self.site = Site(job, nodes, allocs, rules=rules)
        self.context = self.site.context
        self.job = self.site.job
        self.feasibility = Feasibility(self.context, generic=job.type in ("service", "batch"))
        self.feasibility.set_job(self.job)

    def node(self, node_id: str) -> Node:
        """Return a node as the state has it."""
        node = self.context.node(node_id)
        assert node is not None
        return node

    def begin(self, group: str = "", alloc_name: str = "") -> None:
        """Begin a selection, for the first group unless one is named."""
        chosen = self.job.group(group) if group else self.job.task_groups[0]
        assert chosen is not None
        self.context.metrics.reset()
        self.feasibility.set_group(chosen, alloc_name)

    def reason(self, node_id: str) -> str:
        """Return why a node may not be used, empty if it may; exactly one event tells so."""
        before = self.context.metrics.finish()
        usable = self.feasibility.check(self.node(node_id))
        after = self.context.metrics.finish()
        assert after.nodes_filtered == before.nodes_filtered + (not usable)
        events = {reason: count - before.constraint_filtered.get(reason, 0) for reason, count in after.constraint_filtered.items()}
        new = {reason: count for reason, count in events.items() if count}
        assert sum(new.values()) == (not usable)
        return next(iter(new), "")

    def reasons(self, *node_ids: str, group: str = "", alloc_name: str = "") -> list[str]:
        """Return why nodes may not be used, in the order in which they are looked at in one selection."""
        self.begin(group, alloc_name)
        return [self.reason(node_id) for node_id in node_ids]
