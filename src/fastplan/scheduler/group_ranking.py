"""All nodes that a group may use in the order of their scores, kept up to date while the plan grows (docs/architecture.md, "Scheduling").

The kernel knows amounts, copies, penalties, affinities and spreads. Where that is not all, because ports, devices, cores or volumes have to be found, it
proposes the best node and the plain path confirms or refuses it: what those add can only rule a node out. Nodes that no kernel can judge are ranked by the
plain path alone, at each selection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy
from numpy.typing import NDArray

from fastplan.errors import InvalidInput, Reason
from fastplan.fit.asks import prepare
from fastplan.fit.engine_compiled import CompiledEngine
from fastplan.scheduler._ranking import Ranking, regular_rows, tie_keys
from fastplan.scheduler.affinity import affinities_of, affinity_score
from fastplan.scheduler.cluster_nodes import ReadyNodes
from fastplan.scheduler.context import Context
from fastplan.scheduler.feasible.chain import Feasibility
from fastplan.scheduler.feasible.checks import DISTINCT_HOSTS
from fastplan.scheduler.group_amounts import GroupAmounts
from fastplan.scheduler.metrics import NORMALIZED, SCORES_KEPT
from fastplan.scheduler.node_changes import CopiesOnNodes, NodeChanges
from fastplan.scheduler.rank import FIT, RankedNode, Ranker, mean
from fastplan.scheduler.resources import INVALID_NODE
from fastplan.scheduler.spread_columns import SpreadColumns
from fastplan.scheduler.targets import is_unique
from fastplan.scheduler.ties import final_key, fit_steps, on_grid
from fastplan.state.copies import Copies
from fastplan.structs import AllocatedResources, Allocation, Job, Node, TaskGroup

USABLE: Final = 1
NEVER: Final = 2
LEFT_OUT: Final = 127


class CandidateNodes:
    """The nodes that a job may use, and the keys that tell equal ones apart, uint64."""

    def __init__(self, nodes: ReadyNodes, tie_seed: int) -> None:
        self.nodes = nodes
        self.rows = nodes.rows
        self.kinds = nodes.kinds
        self.ties = numpy.empty(len(nodes), numpy.uint64)
        tie_keys(tie_seed, self.rows, self.ties)


class GroupRanking:
    """The candidates of one group. `feasibility` and `ranker` are set to the group whenever it is used."""

    def __init__(
        self,
        context: Context,
        candidates: CandidateNodes,
        job: Job,
        group: TaskGroup,
        amounts: GroupAmounts,
        feasibility: Feasibility,
        ranker: Ranker,
    ) -> None:
        """Raises nothing that the plain path would not."""
        self._context = context
        self._candidates = candidates
        self._job = job
        self._group = group
        self._amounts = amounts
        self._feasibility = feasibility
        self._ranker = ranker
        self._seen_changes = 0
        self._penalised: set[int] = set()
        self._changes = NodeChanges(context, job, group.name)
        self._affinities = affinities_of(job, group)
        feasible = candidates.kinds.feasible(feasibility)
        self._filtered = feasible.filtered
        self._distinct = feasibility.distinct_hosts
        self._confirms = amounts.resources is None or feasibility.has_passing_problems
        self._sort_out(feasible.usable)
        self._rank()

    def _sort_out(self, usable: NDArray[numpy.int64]) -> None:
        """Tell the nodes that the kernel can judge from those that it cannot, and from those that nothing fits."""
        candidates, table = self._candidates, self._context.state.nodes_view
        regular, core_mhz = numpy.empty(len(usable), numpy.uint8), numpy.empty(len(usable), numpy.int64)
        rows = candidates.rows[usable]
        regular_rows(table, rows, regular, core_mhz)
        if self._amounts.cores:
            regular[(regular == USABLE) & (core_mhz == 0)] = 0
        judged = regular == USABLE
        self._plain = usable[regular == 0].tolist()
        self._invalid = [candidates.nodes[place] for place in usable[regular == NEVER].tolist()]
        self._places = usable[judged]
        self._rows = rows[judged]
        self._core_mhz = core_mhz[judged]
        self._index_of_place = numpy.full(len(candidates.nodes), -1, numpy.int64)
        self._index_of_place[self._places] = numpy.arange(len(self._places))

    def _rank(self) -> None:
        candidates, amounts, context = self._candidates, self._amounts, self._context
        count = len(self._places)
        self._copies = CopiesOnNodes(self._rows, context.state.nodes_view.row_count, self._group.name)
        self._affinity = numpy.empty(0)
        affinities = None
        if self._affinities:
            apart = any(is_unique(target) for each in self._affinities for target in (each.ltarget, each.rtarget))
            answers, which = candidates.kinds.each(lambda node: affinity_score(self._affinities, node), apart=apart)
            self._affinity = numpy.array(answers)[which][self._places]
            affinities = numpy.array([on_grid(answer) for answer in answers], numpy.int64)[which][self._places]
        self._spreads = SpreadColumns(self._ranker.spreads, candidates.kinds) if self._ranker.spreads.has_spreads else None
        self._kernel = Ranking(
            context.state.nodes_view,
            self._rows,
            candidates.ties[self._places],
            amounts.cpu_mhz + amounts.cores * self._core_mhz,
            amounts.memory_mib,
            amounts.disk_mib,
            group_count=min(self._group.count, 2**31 - 1),
            fit_steps=fit_steps(context.attempt),
            spread=context.config.algorithm == "spread",
            distinct=bool(self._distinct),
            copies=numpy.zeros(count, numpy.int32),
            affinities=affinities,
            spreads=None if self._spreads is None else self._spreads.counts,
            places=None if self._spreads is None else self._spreads.places[self._places],
        )
        self._classes = candidates.kinds.classes[self._places]
        self._refused: dict[int, tuple[bool, str]] = {}
        """Candidates that were not confirmed: whether they are filtered, and why."""
        self._seen_changes = 0
        self._refresh(self._changes.nodes_of_job())
        self._see_changes(recount=False)
        if self._confirms:
            self._refuse_what_lacks_more()

    def _refuse_what_lacks_more(self) -> None:
        """Leave out where ports, cores or devices are too few in the state, so that they need not be looked at one by one. What is stopped may change that."""
        draft = self._context.draft
        if draft.node_update or draft.node_preemptions:
            return
        try:
            ask = prepare((self._job, self._group.name))
        except InvalidInput:
            return
        codes = CompiledEngine(self._context.state.nodes_view, physical=True).codes(self._rows.astype(numpy.int64), ask)
        words: dict[int, str | RankedNode] = {}
        for index in numpy.flatnonzero((codes == Reason.CORES) | (codes > Reason.DISK)).tolist():
            code = int(codes[index])
            if code not in words:
                # In the words of the plain path, which says the same of all of them.
                words[code] = self._ranker.option(self._node_of(index), frozenset(), None)
            reason = words[code]
            if isinstance(reason, str):
                self._refused[index] = (False, reason)
                self._kernel.set_left_out(index, True)

    # --- keeping up with the plan -------------------------------------------------------------------------------------

    def _see_changes(self, *, recount: bool = True) -> None:
        """Take over what has changed in the plan since the last look."""
        changes = self._context.draft.changes
        news, self._seen_changes = changes[self._seen_changes :], len(changes)
        if not news:
            return
        nodes: dict[str, None] = {}
        if self._refused and any(isinstance(change, str) for change in news):
            nodes = {self._node_of(index).id: None for index in self._refused}
            self._refused = {}
        for change in news:
            if isinstance(change, Copies):
                for index in self._copies.add(change):
                    self._update(index)
            else:
                nodes[change if isinstance(change, str) else change.node_id] = None
        self._refresh(nodes)
        if recount and self._spreads is not None and not self._counted(news):
            self._ranker.set_group(self._group)
            if not self._spreads.recount(self._ranker.spreads):
                self._rank()

    def _counted(self, news: Iterable[object]) -> bool:
        """Count new allocations of the group; False if there is more to it."""
        assert self._spreads is not None
        counted: list[int] = []
        for change in news:
            if isinstance(change, Copies):
                if change.group == self._group.name:
                    return False
            elif not isinstance(change, Allocation):
                # A node on which something was stopped, or is not stopped any more: perhaps of this group.
                return False
            elif change.task_group == self._group.name:
                index = self._index(change.node_id)
                if index is None or self._context.state.allocs_view.find(change.id) >= 0:
                    return False
                counted.append(index)
        for index in counted:
            self._spreads.counts.count(int(self._spreads.places[self._places[index]]))
        return True

    def _node_of(self, index: int) -> Node:
        place: int = self._places[index]
        return self._candidates.nodes[place]

    def _index(self, node_id: str) -> int | None:
        place = self._candidates.nodes.index_by_id.get(node_id)
        index = -1 if place is None else int(self._index_of_place[place])
        return None if index < 0 else index

    def _refresh(self, node_ids: Iterable[str]) -> None:
        for node_id in node_ids:
            index = self._index(node_id)
            if index is not None:
                self._update(index)

    def _update(self, index: int) -> None:
        node_id = self._node_of(index).id
        change = self._changes.on(node_id)
        self._copies.add_to(change, index)
        taken = self._distinct == "job" and (bool(self._copies.all_copies[index]) or self._changes.has_neighbour(node_id))
        self._kernel.set_left_out(index, taken or index in self._refused)
        self._kernel.update(index, change.cpu_mhz, change.memory_mib, change.disk_mib, change.slots, change.copies)

    # --- choosing -----------------------------------------------------------------------------------------------------

    def _penalise(self, node_ids: Iterable[str]) -> None:
        wanted = {index for node_id in node_ids if (index := self._index(node_id)) is not None}
        for index in wanted ^ self._penalised:
            self._kernel.set_penalised(index, index in wanted)
        self._penalised = wanted

    def select(self, penalty_node_ids: frozenset[str]) -> RankedNode | None:
        """Return the best node for one more allocation, None if there is none; the context's metrics say why."""
        self._see_changes()
        self._penalise(penalty_node_ids)
        metrics = self._context.metrics
        metrics.reset()
        option = self._best(penalty_node_ids)
        self._note_counters()
        return option

    def _best(self, penalty_node_ids: frozenset[str]) -> RankedNode | None:
        rival = self._best_plain(penalty_node_ids)
        if self._confirms:
            self._ranker.set_group(self._group)
        while (found := self._kernel.best()) is not None:
            index, key, tie = found
            if rival is not None and rival[0] > (key, -tie):
                break
            option = self._confirmed(index, penalty_node_ids) if self._confirms else self._option(index)
            if option is not None:
                return option
        return None if rival is None else rival[1]

    def _best_plain(self, penalty_node_ids: frozenset[str]) -> tuple[tuple[int, int], RankedNode] | None:
        """Return the best of the nodes that no kernel can judge, and by what it is compared."""
        best: tuple[tuple[int, int], RankedNode] | None = None
        if not self._plain:
            return None
        self._ranker.set_group(self._group)
        for place in self._plain:
            node = self._candidates.nodes[place]
            problem = self._feasibility.passing_problem(node)
            if problem is not None:
                self._context.metrics.filter_node(node, problem.reason)
                continue
            option = self._ranker.rank(node, penalty_node_ids, None)
            if option is not None:
                key = (final_key(option.scores, fit_steps(self._context.attempt)), -int(self._candidates.ties[place]))
                if best is None or key > best[0]:
                    best = (key, option)
        return best

    def _confirmed(self, index: int, penalty_node_ids: frozenset[str]) -> RankedNode | None:
        """Return what the plain path makes of the best node; one that it refuses is out of the question until something in the plan is stopped."""
        node = self._node_of(index)
        problem = self._feasibility.passing_problem(node)
        if problem is None:
            option = self._ranker.option(node, penalty_node_ids, None)
            if isinstance(option, RankedNode):
                return option
            self._refused[index] = (False, option)
        else:
            self._refused[index] = (True, problem.reason)
        self._kernel.set_left_out(index, True)
        return None

    def _option(self, index: int) -> RankedNode:
        resources = self._amounts.resources
        assert resources is not None
        _, counting = self._scores(index)
        return RankedNode(self._node_of(index), resources.copy(), [], counting, mean(counting))

    def _scores(self, index: int) -> tuple[dict[str, float], list[float]]:
        """Return the scores of a candidate by name, and those that count in their order."""
        fit, anti_affinity, penalty, spread = self._kernel.scores(index)
        scores = {FIT: fit, "job-anti-affinity": anti_affinity, "node-reschedule-penalty": penalty, "node-affinity": 0.0, "allocation-spread": spread}
        counting = [fit, *(score for score in (anti_affinity, penalty) if score)]
        if self._affinities:
            scores["node-affinity"] = float(self._affinity[index])
            counting.append(scores["node-affinity"])
        if spread:
            counting.append(spread)
        return scores, counting

    # --- counters -----------------------------------------------------------------------------------------------------

    def _note_counters(self) -> None:
        """Count every node once: what was filtered, and what is exhausted; and note the best scores."""
        metrics = self._context.metrics
        for index in self._kernel.top(SCORES_KEPT):
            node = self._node_of(index)
            scores, counting = self._scores(index)
            for name, score in scores.items():
                metrics.score_node(node, name, score)
            metrics.score_node(node, NORMALIZED, mean(counting))
        metrics.evaluate_nodes(len(self._candidates.nodes))
        for (reason, node_class), count in self._filtered.items():
            metrics.filter_nodes(node_class, reason, count)
        for node in self._invalid:
            problem = self._feasibility.passing_problem(node)
            if problem is None:
                metrics.exhaust_node(node, INVALID_NODE)
            else:
                metrics.filter_node(node, problem.reason)
        codes = numpy.empty(len(self._places), numpy.int8)
        self._kernel.codes(codes)
        failing = numpy.flatnonzero(codes)
        for index in self._refused:
            filtered, reason = self._refused[index]
            note = metrics.filter_nodes if filtered else metrics.exhaust_nodes
            note(self._node_of(index).node_class, reason, 1)
        told = failing[~numpy.isin(failing, list(self._refused))] if self._refused else failing
        for (code, number), count in Counter(zip(codes[told].tolist(), self._classes[told].tolist(), strict=True)).items():
            if code == LEFT_OUT:
                metrics.filter_nodes(self._candidates.kinds.class_name(number), DISTINCT_HOSTS, count)
            else:
                metrics.exhaust_nodes(self._candidates.kinds.class_name(number), Reason(code).text, count)

    # --- many copies --------------------------------------------------------------------------------------------------

    @property
    def copies_resources(self) -> AllocatedResources | None:
        """What each of many copies gets, None where nodes have to be looked at one by one."""
        return None if self._confirms or self._plain else self._amounts.resources

    def select_copies(self, count: int, penalty_node_ids: frozenset[str]) -> NDArray[numpy.uint32]:
        """Return the node rows, uint32, of up to *count* more allocations, as they were chosen. Put them into the plan, then call `note_placed`."""
        self._see_changes()
        self._penalise(penalty_node_ids)
        chosen = numpy.empty(count, numpy.uint32)
        placed = self._kernel.place(chosen)
        rows: NDArray[numpy.uint32] = self._rows[chosen[:placed]]
        return rows

    def note_placed(self) -> None:
        """Say that what `select_copies` returned, and nothing else since, is in the plan."""
        changes = self._context.draft.changes
        for change in changes[self._seen_changes :]:
            if isinstance(change, Copies):
                self._copies.add(change)
        self._seen_changes = len(changes)
