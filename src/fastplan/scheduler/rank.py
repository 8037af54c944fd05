"""How good a node is for a new allocation (schedulers 9): the fit, then what speaks for and against it, and the mean of all."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fastplan.fit.portable_score import portable_score
from fastplan.fit.score import BEST_SCORE, score_on_supply
from fastplan.scheduler.affinity import affinities_of, affinity_score
from fastplan.scheduler.metrics import NORMALIZED
from fastplan.scheduler.node_fit import NodeFitter
from fastplan.scheduler.preemption import Preemptor, preemption_score
from fastplan.scheduler.spread import SpreadScorer
from fastplan.structs import Affinity, AllocatedResources, Allocation, Job, Node, TaskGroup

if TYPE_CHECKING:
    from fastplan.scheduler.context import Context

FIT: Final = "binpack"
"""The name of the fit score in the metrics, whichever the algorithm."""


@dataclass(slots=True)
class RankedNode:
    """A node that can take the allocation, its scores in the order in which they were added, and what the allocation gets there."""

    node: Node
    resources: AllocatedResources
    preempted: list[Allocation] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    final_score: float = 0.0


def mean(scores: list[float]) -> float:
    """Return the mean, added up from left to right: compiled code does the same, to the last bit."""
    total = 0.0
    for score in scores:
        total += score
    return total / len(scores)


class Ranker:
    """Scores nodes for one group after another. Without *preferences* only the fit counts, as for system jobs."""

    def __init__(self, context: Context, *, preferences: bool) -> None:
        self._context = context
        self._preferences = preferences
        self._fitter = NodeFitter(context)
        self._spread = SpreadScorer(context)
        self._job = Job()
        self._group = TaskGroup()
        self._affinities: list[Affinity] = []

    def set_job(self, job: Job) -> None:
        """Say whose allocations are placed."""
        self._job = job
        self._fitter.set_job(job)
        self._spread.set_job(job)

    def set_group(self, group: TaskGroup) -> None:
        """Say which group is placed, at the beginning of each selection: what the plan holds by now counts."""
        self._group = group
        self._fitter.set_group(group)
        if self._preferences:
            self._affinities = affinities_of(self._job, group)
            self._spread.set_group(group)

    @property
    def has_preferences(self) -> bool:
        """Whether the group has affinities or spreads, so that more nodes are worth a look."""
        return bool(self._affinities) or self._spread.has_spreads

    def preemptor(self) -> Preemptor:
        """Return who chooses victims in this selection."""
        return self._fitter.preemptor()

    @property
    def spreads(self) -> SpreadScorer:
        """Who scores the spread blocks of the group."""
        return self._spread

    def rank(self, node: Node, penalty_node_ids: AbstractSet[str], preemptor: Preemptor | None) -> RankedNode | None:
        """Return the node with its scores; None if the allocation does not fit, after noting which dimension is exhausted."""
        option = self.option(node, penalty_node_ids, preemptor)
        if isinstance(option, RankedNode):
            return option
        self._context.metrics.exhaust_node(node, option)
        return None

    def option(self, node: Node, penalty_node_ids: AbstractSet[str], preemptor: Preemptor | None) -> RankedNode | str:
        """Return the node with its scores, or the dimension that is exhausted."""
        metrics = self._context.metrics
        proposed = self._context.proposed_allocs(node.id)
        fit = self._fitter.fit(node, proposed, preemptor)
        if isinstance(fit, str):
            return fit
        option = RankedNode(node, fit.resources, fit.victims)
        supply = self._fitter.facts(node).supply
        score = portable_score if self._context.setting.strict else score_on_supply
        self._append(option, FIT, score(supply, fit.used, self._context.config.algorithm) / BEST_SCORE)
        if fit.device_score is not None:
            self._append(option, "devices", fit.device_score)
        if self._preferences:
            self._add_preferences(option, proposed, penalty_node_ids)
        option.final_score = mean(option.scores)
        metrics.score_node(node, NORMALIZED, option.final_score)
        return option

    def _append(self, option: RankedNode, name: str, score: float) -> None:
        option.scores.append(score)
        self._context.metrics.score_node(option.node, name, score)

    def _add_preferences(self, option: RankedNode, proposed: list[Allocation], penalty_node_ids: AbstractSet[str]) -> None:
        """Add the scores in their order. A score of nothing is noted, but not added: it would lower the mean."""
        note = self._context.metrics.score_node
        node = option.node
        copies = self._copies(proposed)
        if copies:
            self._append(option, "job-anti-affinity", -(copies + 1) / max(self._group.count, 1))
        else:
            note(node, "job-anti-affinity", 0.0)
        if node.id in penalty_node_ids:
            self._append(option, "node-reschedule-penalty", -1.0)
        else:
            note(node, "node-reschedule-penalty", 0.0)
        if self._affinities:
            # Added even if it is 0 (schedulers 9.6).
            self._append(option, "node-affinity", affinity_score(self._affinities, node))
        else:
            note(node, "node-affinity", 0.0)
        if self._spread.has_spreads:
            score = self._spread.score(node)
            if score:
                self._append(option, "allocation-spread", score)
            else:
                note(node, "allocation-spread", 0.0)
        if option.preempted:
            self._append(option, "preemption", preemption_score(option.preempted))

    def _copies(self, proposed: list[Allocation]) -> int:
        """Count the allocations of the same group on the node. As recorded, namespaces are not compared."""
        job, group = self._job, self._group
        strict = self._context.setting.strict
        return sum(alloc.job_id == job.id and alloc.task_group == group.name and (not strict or alloc.namespace == job.namespace) for alloc in proposed)
