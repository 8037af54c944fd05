"""System and sysbatch jobs on many nodes under strict rules: what is as it should be, and what is to be placed on nodes that have nothing yet, in columns.

The plain path is left with the nodes of which more has to be known: those with several allocations in a slot, with old versions, with something that has
ended, and nodes that are not ready.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy
from numpy.typing import NDArray

from fastplan.scheduler._ranking import fitting_rows
from fastplan.scheduler._slots import read_slots, rows_to_look_at
from fastplan.scheduler.alloc_facts import alloc_name
from fastplan.scheduler.cluster_nodes import JobNodes, UsableNodes
from fastplan.scheduler.context import Context
from fastplan.scheduler.feasible.chain import Feasibility
from fastplan.scheduler.feasible.sets import NodeKinds
from fastplan.scheduler.group_amounts import GroupAmounts
from fastplan.scheduler.group_ask import GroupAsk
from fastplan.scheduler.reconciler.node import Entry
from fastplan.scheduler.reconciler.rollout import is_empty
from fastplan.state.copies import Copies
from fastplan.state.resource_shapes import shape_of
from fastplan.structs import Allocation, AllocMetric, Job, Node, TaskGroup

SETTLED: Final = 1
OTHER: Final = 2
LINGERS: Final = 8

FITS: Final = 1


@dataclass(slots=True)
class SystemColumns:
    """What was sorted in columns.

    `nodes` and `allocs`: what is left to the plain path. `settled`: by group, how many allocations stay as they are. `fresh`: by group, how many are to be
    placed on nodes that have nothing of the job. `entries`: those of them that the plain path has to place, on the nodes `full`, which
    take nothing or cannot be judged; `filtered`: nodes that do not suit a group, by group.
    """

    nodes: JobNodes
    allocs: list[Allocation]
    settled: dict[str, int] = field(default_factory=dict)
    fresh: dict[str, int] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    full: list[Node] = field(default_factory=list)
    filtered: dict[str, AllocMetric] = field(default_factory=dict)


def system_columns(context: Context, job: Job, nodes: UsableNodes) -> SystemColumns | None:
    """Sort and place in columns what can be, None where each node has to be looked at: the draft has the placements then.

    That is so for jobs that are rolled out step by step, whose groups ask for more than amounts, or have several allocations on a node.
    """
    amounts = _amounts(context, job)
    if amounts is None:
        return None
    return _Sorter(context, job, nodes, amounts).sorted()


def _amounts(context: Context, job: Job) -> dict[str, GroupAmounts] | None:
    state = context.state
    simple = context.setting.strict and not context.evaluation.annotate_plan and job.name == job.id and not job.stop
    if not simple or any(group.count > 1 or not is_empty(group.update) for group in job.task_groups):
        return None
    if state.jobs_view.row_of(job.namespace or "default", job.id, job.version) is None or state.deployments_by_job(job.namespace, job.id):
        return None
    amounts: dict[str, GroupAmounts] = {}
    for group in job.task_groups:
        asked = GroupAmounts.of(GroupAsk.of(group, oversubscription=context.config.memory_oversubscription))
        if asked is None or asked.resources is None:
            return None
        amounts[group.name] = asked
    return amounts


class _Sorter:
    def __init__(self, context: Context, job: Job, nodes: UsableNodes, amounts: dict[str, GroupAmounts]) -> None:
        self._context = context
        self._job = job
        self._nodes = nodes
        self._amounts = amounts
        self._groups = [group for group in job.task_groups if group.count == 1]
        self._feasibility = Feasibility(context, generic=False)
        self._feasibility.set_job(job)

    def sorted(self) -> SystemColumns | None:
        """Return what was sorted, None if a group has passing problems."""
        if any(self._has_passing_problems(group) for group in self._groups):
            return None
        state, columns = self._context.state, self._nodes.columns
        view, table = state.allocs_view, state.nodes_view
        namespace = self._job.namespace or "default"
        group_rows = numpy.array(state.jobs_view.groups.of_job(namespace, self._job.id), numpy.uint32)
        slot_of = {group.name: slot for slot, group in enumerate(self._groups)}
        slots_of_groups = numpy.array([slot_of.get(state.jobs_view.groups.keys[row].group, -1) for row in group_rows.tolist()], numpy.int8)
        slots = numpy.zeros((len(self._groups) + 1, table.row_count), numpy.uint8)
        version = state.jobs_view.row_of(namespace, self._job.id, self._job.version)
        assert version is not None
        read_slots(view, group_rows, slots_of_groups, version, slots)
        wanted, rest = slots[:-1, columns.rows], slots[-1, columns.rows]
        usable = numpy.zeros(len(columns.rows), numpy.bool_)
        usable[self._nodes.usable] = True
        live_elsewhere = rest & (SETTLED | OTHER) != 0
        settled = usable & ~live_elsewhere & (wanted & (SETTLED | OTHER) == SETTLED).all(axis=0)
        fresh = usable & ~live_elsewhere & (wanted == 0).all(axis=0)
        held = ((wanted & (SETTLED | OTHER | LINGERS)).any(axis=0)) | (rest & (SETTLED | OTHER | LINGERS) != 0)
        odd = numpy.where(usable, ~settled & ~fresh, held)
        looked_at = numpy.zeros(table.row_count, numpy.uint8)
        looked_at[columns.rows[odd]] = 1
        allocs = [state.alloc_at(row) for row in rows_to_look_at(view, group_rows, looked_at).tolist()]
        settled_count, places = int(settled.sum()), numpy.flatnonzero(fresh)
        result = SystemColumns(self._nodes.part(odd), allocs, {group.name: settled_count for group in self._groups if settled_count})
        if len(places):
            self._place(places, result)
        return result

    def _has_passing_problems(self, group: TaskGroup) -> bool:
        self._feasibility.set_group(group)
        return self._feasibility.has_passing_problems

    def _place(self, places: NDArray[numpy.int64], result: SystemColumns) -> None:
        """Place every group on the nodes at these *places*, in order of node id."""
        columns, table = self._nodes.columns, self._context.state.nodes_view
        records = [columns.records[place] for place in places.tolist()]
        kinds = NodeKinds(records, columns.kinds[places])
        rows = columns.rows[places]
        taken = numpy.zeros((4, len(places)), numpy.int64)
        left = numpy.zeros(len(places), numpy.bool_)
        for group in self._groups:
            result.fresh[group.name] = len(places)
            self._feasibility.set_group(group)
            feasible = kinds.feasible(self._feasibility)
            if feasible.filtered:
                result.filtered[group.name] = _metric(feasible.filtered)
            amounts = self._amounts[group.name]
            suiting = numpy.zeros(len(places), numpy.bool_)
            suiting[feasible.usable] = True
            # On a node that the plain path looks at for one group it places the later groups as well.
            chosen = numpy.flatnonzero(suiting & ~left)
            fits = numpy.empty(len(chosen), numpy.uint8)
            beside = numpy.ascontiguousarray(taken[:, chosen])
            fitting_rows(table, rows[chosen], amounts.cpu_mhz, amounts.memory_mib, amounts.disk_mib, beside, fits)
            taken[:, chosen] = beside
            self._add_copies(group, amounts, rows[chosen[fits == FITS]])
            left[chosen[fits != FITS]] = True
            name = alloc_name(self._job.name, group.name, 0)
            result.entries += [Entry(records[place].id, name, group, None) for place in numpy.flatnonzero(suiting & left).tolist()]
        used = numpy.zeros(len(columns.rows), numpy.bool_)
        used[places[left]] = True
        result.full = list(self._nodes.part(used).ready)

    def _add_copies(self, group: TaskGroup, amounts: GroupAmounts, rows: NDArray[numpy.uint32]) -> None:
        if not len(rows):
            return
        assert amounts.resources is not None
        shape, _ = shape_of(amounts.resources)
        alloc_ids = self._context.setting.new_keys(len(rows))
        self._context.draft.add_copies(Copies(group.name, shape, alloc_ids, rows, numpy.zeros(len(rows), numpy.int32)))


def _metric(filtered: dict[tuple[str, str], int]) -> AllocMetric:
    """Return the counters of the nodes that do not suit a group."""
    metric = AllocMetric()
    for (reason, node_class), count in filtered.items():
        metric.nodes_evaluated += count
        metric.nodes_filtered += count
        for counts, key in ((metric.constraint_filtered, reason), (metric.class_filtered, node_class)):
            if key:
                counts[key] = counts.get(key, 0) + count
    return metric
