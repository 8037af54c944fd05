"""The stacks: all that is between a list of nodes and the one that is chosen (schedulers 8.1, 9.1, 10)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastplan.scheduler.feasible.chain import Feasibility
from fastplan.scheduler.rank import RankedNode, Ranker
from fastplan.scheduler.select import NodeSource, best, limited, option_limit, visiting_order
from fastplan.scheduler.ties import final_key, fit_steps, tie_key, tie_seed
from fastplan.structs import Job, Node, TaskGroup

if TYPE_CHECKING:
    from fastplan.scheduler.context import Context


@dataclass(frozen=True, slots=True)
class SelectOptions:
    """What one selection is told beside the group.

    `penalty_node_ids`: nodes on which earlier versions of the allocation failed. `preferred_nodes`: looked at alone first, then all others. `preempt`: others
    may have to give way. `alloc_name`: of the new allocation; volumes may depend on it.
    """

    penalty_node_ids: frozenset[str] = frozenset()
    preferred_nodes: Sequence[Node] = ()
    preempt: bool = False
    alloc_name: str = ""


NO_OPTIONS = SelectOptions()


class _Stack:
    """What both stacks share. The draft is read, and never written."""

    def __init__(self, context: Context, *, generic: bool) -> None:
        self._context = context
        self._feasibility = Feasibility(context, generic=generic)
        self._ranker = Ranker(context, preferences=generic)
        self._source = NodeSource()

    def set_job(self, job: Job) -> None:
        """Say whose allocations are placed."""
        self._feasibility.set_job(job)
        self._ranker.set_job(job)

    def _begin(self, group: TaskGroup, options: SelectOptions) -> None:
        self._context.metrics.reset()
        self._feasibility.set_group(group, options.alloc_name)
        self._ranker.set_group(group)

    def _options(self, options: SelectOptions) -> Iterator[RankedNode]:
        """Yield the nodes that can take the allocation, in the order of the source, and note why others cannot."""
        preemptor = self._ranker.preemptor() if options.preempt else None
        for node in self._source.round():
            self._context.metrics.evaluate_node()
            if self._feasibility.check(node):
                option = self._ranker.rank(node, options.penalty_node_ids, preemptor)
                if option is not None:
                    yield option


class GenericStack(_Stack):
    """Chooses nodes for service and batch jobs.

    Under Nomad's rules a few nodes of a shuffled list are scored, and each selection goes on where the last one stopped. Under strict rules every node is, and
    ties are broken by a permutation (`ties`).
    """

    def __init__(self, context: Context, *, batch: bool) -> None:
        super().__init__(context, generic=True)
        self._batch = batch
        self._limit = 0
        self._fit_steps = fit_steps(context.attempt)
        self._tie_seed = tie_seed(context.evaluation.id, context.state.latest_index(), context.attempt)

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Say which nodes are candidates: ready ones of the job's pool and datacenters."""
        if self._context.setting.strict:
            self._source.set_nodes(nodes)
            return
        self._source.set_nodes(visiting_order(nodes, self._context.evaluation.id, self._context.state.latest_index()))
        self._limit = option_limit(len(nodes), batch=self._batch)

    def select(self, group: TaskGroup, options: SelectOptions = NO_OPTIONS) -> RankedNode | None:
        """Return the best node for one more allocation of *group*, None if there is none; the context's metrics say why."""
        if options.preferred_nodes:
            nodes = self._source.nodes
            self._source.set_nodes(options.preferred_nodes)
            chosen = self._select(group, options)
            self._source.set_nodes(nodes)
            if chosen is not None:
                return chosen
        return self._select(group, options)

    def _select(self, group: TaskGroup, options: SelectOptions) -> RankedNode | None:
        self._begin(group, options)
        if self._context.setting.strict:
            return best(self._options(options), self._strict_key)
        if self._ranker.has_preferences:
            # As recorded, the raised limit stays until nodes are set again: later groups inherit it.
            self._limit = max(group.count, self._context.config.node_limit)
        return best(limited(self._options(options), self._limit), _score)

    def _strict_key(self, option: RankedNode) -> tuple[int, int]:
        row = self._context.state.node_row(option.node.id)
        return final_key(option.scores, self._fit_steps), -tie_key(self._tie_seed, -1 if row is None else row)


class SystemStack(_Stack):
    """Chooses a node for system and sysbatch jobs: each selection concerns the nodes that were set, usually a single one, and the fit alone counts."""

    def __init__(self, context: Context) -> None:
        super().__init__(context, generic=False)

    def set_nodes(self, nodes: Sequence[Node]) -> None:
        """Say which nodes are candidates."""
        self._source.set_nodes(nodes)

    def select(self, group: TaskGroup, options: SelectOptions = NO_OPTIONS) -> RankedNode | None:
        """Return the best node for one more allocation of *group*, None if there is none; the context's metrics say why."""
        self._begin(group, options)
        return best(self._options(options), _score)


def _score(option: RankedNode) -> float:
    return option.final_score
