"""Placements of many equal allocations as columns, and how they join a plan (docs/architecture.md, "Plan columns")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from fastplan.columns.ids import text_of
from fastplan.state.alloc_records import alloc_name
from fastplan.state.plan_builder import ColumnarPlan
from fastplan.state.plans import Numbers, PlanColumns
from fastplan.state.resource_shapes import ResourceShape
from fastplan.state.statuses import CLIENT_PENDING
from fastplan.structs import Allocation, Job, Plan

if TYPE_CHECKING:
    from fastplan.state.snapshot import StateReader

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of one group, in the order in which they were chosen.

    `alloc_ids` uint8 (n, 16), `node_rows` uint32 (n) of the snapshot, `name_indexes` int32 (n). The shape has no slots: none of them holds anything that
    only one can hold.
    """

    group: str
    shape: ResourceShape
    alloc_ids: NDArray[numpy.uint8]
    node_rows: NDArray[numpy.uint32]
    name_indexes: NDArray[numpy.int32]

    def __len__(self) -> int:
        return len(self.node_rows)

    def records(self, state: StateReader, eval_id: str, job: Job | None, row: int | None = None) -> Iterator[Allocation]:
        """Yield the copies, or those on the node in *row*, as records without job."""
        places = range(len(self)) if row is None else numpy.flatnonzero(self.node_rows == row).tolist()
        namespace, job_id = ("default", "") if job is None else (job.namespace or "default", job.id)
        for place in places:
            yield Allocation(
                id=text_of(self.alloc_ids[place]),
                namespace=namespace,
                eval_id=eval_id,
                name=alloc_name(job_id, self.group, int(self.name_indexes[place])),
                node_id=state.node_id(int(self.node_rows[place])) or "",
                job_id=job_id,
                task_group=self.group,
                allocated_resources=self.shape.resources(()),
                desired_status="run",
                client_status="pending",
            )


def plan_with_copies(plan: Plan, copies: Sequence[Copies], state: StateReader) -> ColumnarPlan:
    """Return *plan* with *copies* placed as well; on each node they come behind its own placements. Nodes are rows of *state*.

    Raises InvalidInput for more than 65,535 shapes, groups or notes of stops.
    """
    joined = ColumnarPlan(
        plan.job,
        eval_id=plan.eval_id,
        eval_token=plan.eval_token,
        priority=plan.priority,
        all_at_once=plan.all_at_once,
        snapshot_index=plan.snapshot_index,
    )
    joined.job_info = plan.job_info
    joined.number = plan.number
    joined.deployment = plan.deployment
    joined.deployment_updates = plan.deployment_updates
    joined._columns = _joined(PlanColumns.of(plan, state), copies, state)
    return joined


def _joined(columns: PlanColumns, copies: Sequence[Copies], state: StateReader) -> PlanColumns:
    rows = numpy.concatenate([each.node_rows for each in copies])
    touched, which = numpy.unique(rows, return_inverse=True)
    touched_ids = state.node_ids_at(touched.tolist())
    node_ids = sorted({*columns.node_ids, *touched_ids}) if columns.node_ids else sorted(touched_ids)
    number_of = dict(zip(node_ids, range(len(node_ids)), strict=True))
    new_number = numpy.array([number_of[node_id] for node_id in columns.node_ids], numpy.int64)
    touched_number = numpy.array([number_of[node_id] for node_id in touched_ids], numpy.int64)
    node_rows, generations = numpy.empty(len(node_ids), numpy.uint32), numpy.empty(len(node_ids), numpy.uint32)
    node_rows[touched_number] = touched
    generations[touched_number] = state.nodes_view.generations(touched)
    # What the plan says of its own nodes stays: one of them may not exist.
    node_rows[new_number], generations[new_number] = columns.node_rows, columns.node_generations
    copy_nodes = touched_number[which]
    nodes = numpy.concatenate([numpy.repeat(new_number, numpy.diff(columns.place_offsets)), copy_nodes])
    order = numpy.argsort(nodes, kind="stable")
    in_scope = numpy.zeros(len(node_ids), numpy.uint8)
    in_scope[new_number] = columns.in_scope
    in_scope[copy_nodes] = 1
    shapes, groups = _numbered("resource shapes", columns.shapes), _numbered("groups", columns.groups)

    def per_copy(numbers: Sequence[int], kind: type[numpy.generic]) -> Array:
        return numpy.repeat(numpy.array(numbers, kind), [len(each) for each in copies])

    def placed(own: Array, more: Array) -> Array:
        return numpy.ascontiguousarray(numpy.concatenate([own, more])[order])

    claim_counts = placed(numpy.diff(columns.claim_offsets), numpy.zeros(len(rows), numpy.uint32))
    none = numpy.zeros(len(rows), numpy.uint8)
    new_place = numpy.empty(len(order), numpy.int64)
    new_place[order] = numpy.arange(len(order))
    return PlanColumns(
        node_ids=node_ids,
        node_rows=node_rows,
        node_generations=generations,
        in_scope=in_scope,
        place_offsets=_offsets(numpy.bincount(nodes, minlength=len(node_ids))),
        alloc_ids=placed(columns.alloc_ids, numpy.concatenate([each.alloc_ids for each in copies])),
        shape_index=placed(columns.shape_index, per_copy([shapes.of(each.shape) for each in copies], numpy.uint16)),
        group_index=placed(columns.group_index, per_copy([groups.of(each.group) for each in copies], numpy.uint16)),
        name_index=placed(columns.name_index, numpy.concatenate([each.name_indexes for each in copies])),
        client_status=placed(columns.client_status, none + numpy.uint8(CLIENT_PENDING)),
        place_flags=placed(columns.place_flags, none),
        claim_offsets=_offsets(claim_counts),
        # Copies claim nothing, and the nodes of the others keep their order.
        claims=columns.claims,
        shapes=list(shapes),
        groups=list(groups),
        stop_offsets=_spread_out(columns.stop_offsets, new_number, len(node_ids)),
        stop_ids=columns.stop_ids,
        stop_note_index=columns.stop_note_index,
        stop_notes=columns.stop_notes,
        preempt_offsets=_spread_out(columns.preempt_offsets, new_number, len(node_ids)),
        preempt_ids=columns.preempt_ids,
        preempted_by=columns.preempted_by,
        extras={int(new_place[row]): record for row, record in columns.extras.items()},
        repeats_ids=columns.repeats_ids,
        state_token=columns.state_token,
    )


def _numbered(what: str, things: Sequence[Any]) -> Numbers:
    numbers = Numbers(what)
    for thing in things:
        numbers.of(thing)
    return numbers


def _offsets(counts: Array) -> NDArray[numpy.uint32]:
    offsets = numpy.zeros(len(counts) + 1, numpy.uint32)
    numpy.cumsum(counts, out=offsets[1:])
    return offsets


def _spread_out(offsets: NDArray[numpy.uint32], new_number: Array, count: int) -> NDArray[numpy.uint32]:
    """Return the offsets of runs whose nodes have got other numbers, in the same order."""
    counts = numpy.zeros(count, numpy.int64)
    counts[new_number] = numpy.diff(offsets)
    return _offsets(counts)
