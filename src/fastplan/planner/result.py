"""What comes out of evaluating a plan (plan-apply 1.11, 5.5 to 5.7)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from fastplan.errors import Reason
from fastplan.state.plans import AnyPlan
from fastplan.structs import Allocation, Deployment, DeploymentUpdate
from fastplan.structs import PlanResult as PlanResultRecord

AllocMap = dict[str, list[Allocation]]
"""Node id to allocations in plan order."""


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """What is thought of one node's part of a plan (plan-apply 5.2).

    `reason` is empty exactly when it fits. `error` is not empty where the plan as a whole fails because of this node. `code` is the reason as a number.
    """

    fit: bool
    reason: str = ""
    error: str = ""
    code: Reason = Reason.FITS


FITS = NodeVerdict(True)


def refusal(code: Reason, detail: str = "") -> NodeVerdict:
    """Return the verdict that a node's part is refused; *detail* follows the reason's text after a colon."""
    return NodeVerdict(False, f"{code.text}: {detail}" if detail else code.text, "", code)


class Accepted(NamedTuple):
    """The accepted parts of a plan. Stops and preemptions are whole allocations with the change applied (plan-apply 5.4)."""

    node_update: AllocMap
    node_allocation: AllocMap
    node_preemptions: AllocMap


NOTHING = Accepted({}, {}, {})


class PlanResult:
    """The answer to a plan: what was accepted, what was refused, and the index to refresh to (plan-apply 1.11).

    The maps are made when somebody asks for them, from the plan and the state that it was evaluated on. `alloc_index` and
    `ineligible_nodes` are filled in by the applier; the record of the same name in `fastplan.structs` is what `to_record` returns.
    """

    __slots__ = (
        "_accepted",
        "_counts",
        "_deployment",
        "_refused",
        "_rejected",
        "alloc_index",
        "ineligible_nodes",
        "kept",
        "partial",
        "plan",
        "planned",
        "refresh_index",
    )

    def __init__(
        self,
        plan: AnyPlan,
        accepted: Accepted | Callable[[PlanResult], Accepted],
        *,
        refused: dict[str, NodeVerdict] | Callable[[], dict[str, NodeVerdict]] | None = None,
        kept: bool = True,
        refresh_index: int = 0,
        counts: tuple[int, int] | Callable[[], tuple[int, int]] | None = None,
        planned: int | None = None,
        rejected: tuple[str, ...] | None = None,
    ) -> None:
        """Record an answer.

        *accepted*: the accepted parts, or what makes them on request; then *counts* has, or finds, the number of stops and placements in them, and
        *planned* the number of placements in the plan.
        *refused*: the refused nodes or what finds them, None if there are none. *kept* is False where nothing at all of the plan is in the
        result: refused all at once (plan-apply 5.5) or over quota (5.8). *rejected*: ids of the refused nodes, ascending, where they are known before
        the reasons are.
        """
        self.plan = plan
        self.planned = planned
        self.kept = kept
        self.partial = refused is not None
        self.refresh_index = refresh_index
        self.alloc_index = 0
        self.ineligible_nodes: tuple[str, ...] = ()
        self._accepted = accepted
        self._refused = refused
        self._rejected = rejected
        self._counts = counts
        self._deployment: Deployment | None = None

    @property
    def refused(self) -> dict[str, NodeVerdict]:
        """The refused nodes with their verdicts, ascending by id."""
        if self._refused is None:
            self._refused = {}
        elif callable(self._refused):
            self._refused = self._refused()
        return self._refused

    @property
    def rejected_nodes(self) -> tuple[str, ...]:
        """Ids of the refused nodes, ascending."""
        if self._rejected is None:
            self._rejected = tuple(self.refused)
        return self._rejected

    @property
    def reasons(self) -> dict[str, str]:
        """Node id to the reason of its refusal."""
        return {node_id: verdict.reason for node_id, verdict in self.refused.items()}

    @property
    def accepted(self) -> Accepted:
        """The three maps of what was accepted."""
        if callable(self._accepted):
            self._accepted = self._accepted(self)
        return self._accepted

    @property
    def accepted_counts(self) -> tuple[int, int]:
        """How many stops and placements were accepted."""
        if callable(self._counts):
            self._counts = self._counts()
        elif self._counts is None:
            self._counts = sum(map(len, self.node_update.values())), sum(map(len, self.node_allocation.values()))
        return self._counts

    @property
    def node_update(self) -> AllocMap:
        """Accepted stops."""
        return self.accepted.node_update

    @property
    def node_allocation(self) -> AllocMap:
        """Accepted placements and in-place updates."""
        return self.accepted.node_allocation

    @property
    def node_preemptions(self) -> AllocMap:
        """Accepted preemptions; a list may be empty where all of its allocations had ended already (plan-apply 5.5)."""
        return self.accepted.node_preemptions

    @property
    def deployment(self) -> Deployment | None:
        """A copy of the plan's deployment; after a refusal its canaries are cut down to those that were placed (plan-apply 5.6)."""
        if self._deployment is None and self.kept and self.plan.deployment is not None:
            deployment = self.plan.deployment.copy()
            if self.partial and any(group.placed_canaries for group in deployment.task_groups.values()):
                placed = {alloc.id for allocs in self.node_allocation.values() for alloc in allocs}
                for group in deployment.task_groups.values():
                    group.placed_canaries = [alloc_id for alloc_id in group.placed_canaries if alloc_id in placed]
            self._deployment = deployment
        return self._deployment

    @property
    def deployment_updates(self) -> list[DeploymentUpdate]:
        """The plan's deployment updates."""
        return self.plan.deployment_updates if self.kept else []

    def is_noop(self) -> bool:
        """Return whether nothing has to be written; preemptions, refusals and indexes do not count (plan-apply 1.11)."""
        if self.ineligible_nodes:
            return False
        if self.kept and isinstance(self._counts, tuple) and (self._counts[0] or self._counts[1]):
            return False
        return not self.kept or not (any(self.accepted_counts) or self.plan.deployment_updates or self.plan.deployment is not None)

    def full_commit(self, plan: AnyPlan) -> tuple[bool, int, int]:
        """Return (all placed?, placements that *plan* wanted, placements that are in the result under the same nodes) (plan-apply 1.11)."""
        if plan is self.plan and self.planned is not None:
            placed = self.accepted_counts[1] if self.kept else 0
            return placed == self.planned, self.planned, placed
        expected = actual = 0
        for node_id, allocs in plan.node_allocation.items():
            expected += len(allocs or ())
            actual += len(self.node_allocation.get(node_id, ()))
        return expected == actual, expected, actual

    def to_record(self) -> PlanResultRecord:
        """Return the result as a record; lists and allocations are shared with this object."""
        return PlanResultRecord(
            node_update=dict(self.node_update),
            node_allocation=dict(self.node_allocation),
            node_preemptions=dict(self.node_preemptions),
            deployment=self.deployment,
            deployment_updates=self.deployment_updates,
            rejected_nodes=list(self.rejected_nodes),
            ineligible_nodes=list(self.ineligible_nodes),
            refresh_index=self.refresh_index,
            alloc_index=self.alloc_index,
        )

    def to_api(self) -> dict[str, Any]:
        """Return the result as fresh JSON in the API's shape."""
        return self.to_record().to_api()
