"""The stack of service and batch jobs under strict rules: every feasible node is scored, by the kernel where it can (docs/architecture.md, "Scheduling")."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy
from numpy.typing import NDArray

from fastplan.scheduler.cluster_nodes import ReadyNodes
from fastplan.scheduler.group_amounts import GroupAmounts
from fastplan.scheduler.group_ask import GroupAsk
from fastplan.scheduler.group_ranking import CandidateNodes, GroupRanking
from fastplan.scheduler.rank import RankedNode
from fastplan.scheduler.spread_columns import SpreadColumns
from fastplan.scheduler.stack import GenericStack, SelectOptions
from fastplan.structs import AllocatedResources, Job, Node, TaskGroup

if TYPE_CHECKING:
    from fastplan.scheduler.context import Context


@dataclass(frozen=True, slots=True)
class SelectedCopies:
    """Where many equal allocations go: `rows` uint32, in the order in which they were chosen, and what each gets."""

    rows: NDArray[numpy.uint32]
    resources: AllocatedResources
    _ranking: GroupRanking

    def note_placed(self) -> None:
        """Say that they, and nothing else since, have been put into the plan."""
        self._ranking.note_placed()


class EveryNodeStack(GenericStack):
    """Chooses as `GenericStack` does under strict rules, of which it is a faster form.

    Preemption, the nodes of a single update in place, and groups whose devices are scored go the plain way.
    """

    def __init__(self, context: Context, *, batch: bool) -> None:
        super().__init__(context, batch=batch)
        self._candidates: CandidateNodes | None = None
        self._rankings: dict[tuple[int, str, str], GroupRanking | None] = {}

    def set_job(self, job: Job) -> None:
        """Say whose allocations are placed."""
        super().set_job(job)
        self._job = job

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Say which nodes are candidates. `ReadyNodes` are looked at by the kernel, others one by one."""
        super().set_nodes(nodes)
        self._rankings = {}
        self._candidates = CandidateNodes(nodes, self._tie_seed) if isinstance(nodes, ReadyNodes) else None

    def _select(self, group: TaskGroup, options: SelectOptions) -> RankedNode | None:
        looks_at_all = self._candidates is not None and self._source.nodes is self._candidates.nodes
        ranking = self._ranking(group, options.alloc_name) if looks_at_all and not options.preempt else None
        return super()._select(group, options) if ranking is None else ranking.select(options.penalty_node_ids)

    def select_copies(self, group: TaskGroup, count: int, penalty_node_ids: frozenset[str]) -> SelectedCopies | None:
        """Return places for up to *count* equal allocations; None where they have to be selected one by one.

        As many as there is room for: the one after the last would find no place.
        """
        ranking = self._ranking(group, "") if self._candidates is not None else None
        resources = None if ranking is None else ranking.copies_resources
        if ranking is None or resources is None:
            return None
        return SelectedCopies(ranking.select_copies(count, penalty_node_ids), resources, ranking)

    def _ranking(self, group: TaskGroup, alloc_name: str) -> GroupRanking | None:
        """Return the ranking for a group, None where only the plain path will do. What lasts is worked out once."""
        assert self._candidates is not None
        self._feasibility.set_group(group, alloc_name)
        key = (id(self._job), group.name, alloc_name if self._feasibility.names_volumes else "")
        if key not in self._rankings:
            amounts = GroupAmounts.of(GroupAsk.of(group, oversubscription=self._context.config.memory_oversubscription))
            self._ranker.set_group(group)
            suits = amounts is not None and SpreadColumns.suits(self._ranker.spreads)
            self._rankings[key] = (
                GroupRanking(self._context, self._candidates, self._job, group, amounts, self._feasibility, self._ranker)
                if suits and amounts is not None
                else None
            )
        return self._rankings[key]
