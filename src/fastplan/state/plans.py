"""Plans as columns: how a plan travels from the scheduler to the log (docs/architecture.md, "Plan columns").

`PlanColumns` are the arrays. They are made once of a `Plan` record, or written directly by a `PlanBuilder`, whose `ColumnarPlan` is accepted wherever a
record is: it makes records only when somebody asks for one.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy
from numpy.typing import NDArray

from fastplan.columns.ids import keys_of, text_of
from fastplan.errors import InvalidInput
from fastplan.fit.demand import demand_of
from fastplan.fit.encode import encode_demand
from fastplan.state._plan_view import PlanView
from fastplan.state.alloc_records import NO_ROW, name_index_of
from fastplan.state.resource_shapes import ResourceShape
from fastplan.state.statuses import client_number
from fastplan.structs import Allocation, Deployment, DeploymentUpdate, Job, JobInfo, canonical_alloc

if TYPE_CHECKING:
    from fastplan.state.snapshot import StateReader

PLACE_IRREGULAR = 1
PLACE_OTHER_NODE = 2
PLACE_NOT_REPLACEABLE = 4
PLACE_OWN_JOB = 8
KEEP = 255
"""As the client status of a stop: the client's word stays."""

NUMBER_MAX = 0xFFFF

AllocsByNode = Mapping[str, Sequence[Allocation] | None]


class AnyPlan(Protocol):
    """What is read of a plan, be it a `Plan` record or a `ColumnarPlan` (plan-apply 1.10)."""

    _columns: Any

    @property
    def eval_id(self) -> str: ...
    @property
    def eval_token(self) -> str: ...
    @property
    def priority(self) -> int: ...
    @property
    def all_at_once(self) -> bool: ...
    @property
    def job(self) -> Job | None: ...
    @property
    def job_info(self) -> JobInfo | None: ...
    @property
    def node_update(self) -> AllocsByNode: ...
    @property
    def node_allocation(self) -> AllocsByNode: ...
    @property
    def node_preemptions(self) -> AllocsByNode: ...
    @property
    def deployment(self) -> Deployment | None: ...
    @property
    def deployment_updates(self) -> list[DeploymentUpdate]: ...
    @property
    def snapshot_index(self) -> int: ...
    @property
    def number(self) -> int: ...
    def to_api(self) -> dict[str, Any]: ...


class PlanStop(NamedTuple):
    """What a plan says about an allocation that it stops (plan-apply 5.4)."""

    description: str = ""
    client_status: str = ""
    followup_eval_id: str = ""


class PlanColumns:
    """The columns of one plan over the node rows of one state; nodes ascend by id. Nothing changes them, except that node rows are looked up anew.

    k nodes, n placements, m claims, s stops, p preemptions:

    * `node_ids` list of k texts, `node_rows` uint32 (k) with NO_ROW where the node does not exist, `node_generations` uint32 (k), `in_scope` uint8 (k),
      0 for a node that is only preempted on, whose preemptions vanish (plan-apply 5.5);
    * `place_offsets` uint32 (k+1), `alloc_ids` uint8 (n, 16), `shape_index` and `group_index` uint16 (n) into `shapes` and `groups`, `name_index` int32 (n),
      `client_status` uint8 (n), `place_flags` uint8 (n), `claim_offsets` uint32 (n+1), `claims` uint64 (m): ports, cores, devices, volumes of the plan's job;
    * `stop_offsets` uint32 (k+1), `stop_ids` uint8 (s, 16), `stop_note_index` uint16 (s) into `stop_notes`, `stop_client` uint8 (s);
    * `preempt_offsets` uint32 (k+1), `preempt_ids` and `preempted_by` uint8 (p, 16);
    * `extras`: row of a placement → its API record, where the columns do not hold everything.

    `repeats_ids` tells whether one id is placed on several nodes. `bound` is what `view` keeps.
    """

    __slots__ = (
        "alloc_ids",
        "bound",
        "claim_offsets",
        "claims",
        "client_status",
        "extras",
        "group_index",
        "groups",
        "in_scope",
        "name_index",
        "node_generations",
        "node_ids",
        "node_rows",
        "place_flags",
        "place_offsets",
        "preempt_ids",
        "preempt_offsets",
        "preempted_by",
        "repeats_ids",
        "shape_index",
        "shapes",
        "state_token",
        "stop_client",
        "stop_ids",
        "stop_note_index",
        "stop_notes",
        "stop_offsets",
    )

    def __init__(
        self,
        *,
        node_ids: list[str],
        node_rows: NDArray[numpy.uint32],
        node_generations: NDArray[numpy.uint32],
        in_scope: NDArray[numpy.uint8],
        place_offsets: NDArray[numpy.uint32],
        alloc_ids: NDArray[numpy.uint8],
        shape_index: NDArray[numpy.uint16],
        group_index: NDArray[numpy.uint16],
        name_index: NDArray[numpy.int32],
        client_status: NDArray[numpy.uint8],
        place_flags: NDArray[numpy.uint8],
        claim_offsets: NDArray[numpy.uint32],
        claims: NDArray[numpy.uint64],
        shapes: list[ResourceShape],
        groups: list[str],
        stop_offsets: NDArray[numpy.uint32],
        stop_ids: NDArray[numpy.uint8],
        stop_note_index: NDArray[numpy.uint16],
        stop_notes: list[PlanStop],
        preempt_offsets: NDArray[numpy.uint32],
        preempt_ids: NDArray[numpy.uint8],
        preempted_by: NDArray[numpy.uint8],
        extras: dict[int, Allocation],
        repeats_ids: bool,
        state_token: object,
    ) -> None:
        self.node_ids = node_ids
        self.node_rows = node_rows
        self.node_generations = node_generations
        self.in_scope = in_scope
        self.place_offsets = place_offsets
        self.alloc_ids = alloc_ids
        self.shape_index = shape_index
        self.group_index = group_index
        self.name_index = name_index
        self.client_status = client_status
        self.place_flags = place_flags
        self.claim_offsets = claim_offsets
        self.claims = claims
        self.shapes = shapes
        self.groups = groups
        self.stop_offsets = stop_offsets
        self.stop_ids = stop_ids
        self.stop_note_index = stop_note_index
        self.stop_notes = stop_notes
        statuses = numpy.array([client_number(note.client_status) if note.client_status else KEEP for note in stop_notes], numpy.uint8)
        self.stop_client = statuses[stop_note_index] if stop_notes else numpy.empty(0, numpy.uint8)
        self.preempt_offsets = preempt_offsets
        self.preempt_ids = preempt_ids
        self.preempted_by = preempted_by
        self.extras = extras
        self.repeats_ids = repeats_ids
        self.state_token = state_token
        self.bound: PlanView | None = None

    def view(self) -> PlanView:
        """Return the columns for compiled code. Made once: whoever changes a column sets `bound` to None. Raises ValueError for contradicting columns."""
        view = self.bound
        if view is None:
            view = self.bound = PlanView(self, _amounts(tuple(self.shapes)))
        return view

    @classmethod
    def of(cls, plan: AnyPlan, state: StateReader) -> PlanColumns:
        """Return the columns of *plan* over the rows of *state*: those kept with the plan, else fresh ones that are not kept."""
        columns: PlanColumns | None = plan._columns
        return columns if columns is not None and columns.state_token is state.shapes else _encode(plan, state)

    @classmethod
    def from_plan(cls, plan: AnyPlan, state: StateReader) -> PlanColumns:
        """Return the columns of *plan* over the rows of *state* and keep them with the plan, which must not change from now on.

        Raises InvalidInput for more than 65,535 shapes, groups or notes of stops.
        """
        columns = cls.of(plan, state)
        plan._columns = columns
        return columns

    def locate(self, state: StateReader) -> bool:
        """Look up the rows of the plan's nodes anew: a node may have come, or come back in another row. Returns whether any row changed."""
        changed = False
        for i, node_id in enumerate(self.node_ids):
            row, generation = _row_of(node_id, state)
            if row != self.node_rows[i] or generation != self.node_generations[i]:
                self.node_rows[i], self.node_generations[i] = row, generation
                self.bound = None
                changed = True
        return changed

    def changed_id(self, number: int) -> str:
        """Return the id of a stop, or of a preemption counted on from the stops."""
        stops = len(self.stop_ids)
        return text_of(self.stop_ids[number] if number < stops else self.preempt_ids[number - stops])

    def stop_note(self, row: int) -> PlanStop:
        """Return what the plan says about the stop in a row."""
        note: PlanStop = self.stop_notes[self.stop_note_index[row]]
        return note


@functools.lru_cache(4096)
def _amounts(shapes: tuple[ResourceShape, ...]) -> NDArray[numpy.int64]:
    """Return what the shapes ask: int64 (shapes, 4). Plan after plan has the same few."""
    return numpy.array([shape.amounts for shape in shapes], numpy.int64).reshape(-1, 4)


def _row_of(node_id: str, state: StateReader) -> tuple[int, int]:
    row = state.node_row(node_id)
    return (NO_ROW, 0) if row is None else (row, state.node_generation(row))


class Numbers(dict[Any, int]):
    """Numbers things from 0 in the order in which they first come. Raises InvalidInput beyond 16 bits."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what

    def of(self, thing: Any) -> int:
        """Return the number of *thing*."""
        number = self.get(thing)
        if number is None:
            number = len(self)
            if number > NUMBER_MAX:
                raise InvalidInput(f"plan: {self._what}", number + 1, f"at most {NUMBER_MAX + 1} different ones")
            self[thing] = number
        return number


def offsets_of(counts: Iterable[int]) -> NDArray[numpy.uint32]:
    """Return where each of several runs starts, and where the last one ends: uint32."""
    return numpy.cumsum([0, *counts], dtype=numpy.uint32)


def plan_job(plan: AnyPlan, state: StateReader) -> Job | None:
    """Return the job of *plan*: carried along, or looked up as on submission (plan-apply 7.5); None if there is none."""
    if plan.job is not None or plan.job_info is None:
        return plan.job
    return state.job(plan.job_info.namespace, plan.job_info.id)


def _encode(plan: AnyPlan, state: StateReader) -> PlanColumns:
    """Take a plan record apart."""
    node_ids = sorted({*plan.node_update, *plan.node_allocation, *plan.node_preemptions})
    located = [_row_of(node_id, state) for node_id in node_ids]
    job = plan_job(plan, state)
    placed = [(node_id, alloc) for node_id in node_ids for alloc in plan.node_allocation.get(node_id) or ()]
    stops = [alloc for node_id in node_ids for alloc in plan.node_update.get(node_id) or ()]
    preemptions = [alloc for node_id in node_ids for alloc in plan.node_preemptions.get(node_id) or ()]
    shapes, groups, notes = Numbers("resource shapes"), Numbers("groups"), Numbers("notes of stops")
    flags = bytearray()
    shape_index: list[int] = []
    claims: list[bytes] = []
    for node_id, alloc in placed:
        with_job = canonical_alloc(alloc)
        if with_job.job is None and job is not None:
            with_job = with_job_of(with_job, job)
        numbers = encode_demand(demand_of(with_job))
        flags.append(
            (PLACE_IRREGULAR if numbers.irregular else 0)
            | (PLACE_OTHER_NODE if alloc.node_id not in ("", node_id) else 0)
            | (0 if alloc.replaceable_on_disconnect else PLACE_NOT_REPLACEABLE)
            | (PLACE_OWN_JOB if alloc.job is not None else 0)
        )
        shape_index.append(shapes.of(ResourceShape(*numbers[:4], irregular=numbers.irregular)))
        claims.append(numbers.claims)
    nodes_of_id: dict[str, str] = {}
    return PlanColumns(
        node_ids=node_ids,
        node_rows=numpy.array([row for row, _ in located], numpy.uint32),
        node_generations=numpy.array([generation for _, generation in located], numpy.uint32),
        in_scope=numpy.array([node_id in plan.node_update or node_id in plan.node_allocation for node_id in node_ids], numpy.uint8),
        place_offsets=offsets_of(len(plan.node_allocation.get(node_id) or ()) for node_id in node_ids),
        alloc_ids=keys_of([alloc.id for _, alloc in placed]),
        shape_index=numpy.array(shape_index, numpy.uint16),
        group_index=numpy.array([groups.of(alloc.task_group) for _, alloc in placed], numpy.uint16),
        name_index=numpy.array([name_index_of(alloc.name, alloc.job_id, alloc.task_group) for _, alloc in placed], numpy.int32),
        client_status=numpy.array([client_number(alloc.client_status) for _, alloc in placed], numpy.uint8),
        place_flags=numpy.frombuffer(flags, numpy.uint8),
        claim_offsets=offsets_of(len(each) // 8 for each in claims),
        claims=numpy.frombuffer(b"".join(claims), numpy.uint64),
        shapes=list(shapes),
        groups=list(groups),
        stop_offsets=offsets_of(len(plan.node_update.get(node_id) or ()) for node_id in node_ids),
        stop_ids=keys_of([alloc.id for alloc in stops]),
        stop_note_index=numpy.array(
            [notes.of(PlanStop(alloc.desired_description, alloc.client_status, alloc.followup_eval_id)) for alloc in stops], numpy.uint16
        ),
        stop_notes=list(notes),
        preempt_offsets=offsets_of(len(plan.node_preemptions.get(node_id) or ()) for node_id in node_ids),
        preempt_ids=keys_of([alloc.id for alloc in preemptions]),
        preempted_by=keys_of([alloc.preempted_by_allocation for alloc in preemptions]),
        extras=dict(enumerate(alloc for _, alloc in placed)),
        repeats_ids=any(nodes_of_id.setdefault(alloc.id, node_id) != node_id for node_id, alloc in placed),
        state_token=state.shapes,
    )


def with_job_of(alloc: Allocation, job: Job) -> Allocation:
    """Return a shallow copy of *alloc* with *job* attached."""
    twin = copy.copy(alloc)
    twin.job = job
    return twin
