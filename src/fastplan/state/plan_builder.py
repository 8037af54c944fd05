"""Writing a plan as columns, without a record for each allocation."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.columns.ids import key_of, new_keys, text_of
from fastplan.errors import InvalidInput, StateError
from fastplan.fit.demand import AllocDemand, volume_claims
from fastplan.fit.encode import CLAIM_EXCLUSIVE, CLAIM_STOPPING, KIND_SHIFT, KIND_VOLUME, encode_demand, sound_claims
from fastplan.state.alloc_records import alloc_name
from fastplan.state.plans import PLACE_IRREGULAR, Numbers, PlanColumns, PlanStop, offsets_of
from fastplan.state.statuses import CLIENT_PENDING, CLIENT_TEXTS
from fastplan.structs import Allocation, Deployment, DeploymentUpdate, Job, JobInfo, Plan

if TYPE_CHECKING:
    from fastplan.state.resource_shapes import ResourceShape
    from fastplan.state.snapshot import StateReader

NO_CLAIMS = numpy.empty(0, numpy.uint64)
NAME_INDEX_MAX = 2**31 - 1


class _Group(NamedTuple):
    number: int
    volumes: bytes
    flags: int


_Place = tuple[bytes | None, int, int, int, int, int, bytes]
"""A placement: key or None, numbers of shape and group, name index, client status, flags, claims with the volumes of the group."""


class _NodePart:
    """What the plan does on one node; lists of rows of the builder."""

    __slots__ = ("places", "preemptions", "stops")

    def __init__(self) -> None:
        self.places: list[_Place] = []
        self.stops: list[tuple[bytes, int]] = []
        self.preemptions: list[tuple[bytes, bytes]] = []


class PlanBuilder:
    """Collects what a scheduler decides and returns it as a plan in columns (plan-apply 1.10).

    *state* is the snapshot that the scheduler works on: node rows are its rows. *job* is the job of all placements.
    """

    def __init__(
        self,
        state: StateReader,
        job: Job | None,
        *,
        eval_id: str = "",
        eval_token: str = "",
        priority: int = 0,
        all_at_once: bool = False,
        snapshot_index: int = 0,
        randomness: Callable[[int], bytes] = os.urandom,
    ) -> None:
        """Start a plan. *randomness* gives so many random bytes, for the ids of new allocations."""
        self.plan = ColumnarPlan(job, eval_id=eval_id, eval_token=eval_token, priority=priority, all_at_once=all_at_once, snapshot_index=snapshot_index)
        self._state = state
        self._job = job
        self._randomness = randomness
        self._nodes: dict[int, _NodePart] = {}
        self._shapes = Numbers("resource shapes")
        self._slots: list[bytes] = []
        self._groups: dict[str, _Group] = {}
        self._notes = Numbers("notes of stops")

    def place(
        self,
        node_row: int,
        shape: ResourceShape,
        group: str,
        name_index: int,
        claims: NDArray[numpy.uint64] = NO_CLAIMS,
        *,
        client_status: int = CLIENT_PENDING,
        alloc_id: str = "",
    ) -> None:
        """Place an allocation: *claims* uint64 in slot order of *shape*; the volumes of the group are added here. A new id unless *alloc_id* is given.

        Raises InvalidInput for a shape without a template, as what such an allocation holds could not be told, for claims that are not as many as the
        shape has slots, for a number out of range, and for text that is not valid Unicode; StateError for a row without a node.
        """
        number = self._shapes.get(shape)
        if number is None:
            slots = shape.slot_kinds()
            number = self._shapes.of(shape)
            self._slots.append(slots)
        if claims.dtype != numpy.uint64 or claims.shape != (len(self._slots[number]),):
            raise InvalidInput("plan: claims", claims.tolist(), f"uint64 ({len(self._slots[number])}), one for each slot of the shape")
        if not 0 <= name_index <= NAME_INDEX_MAX:
            raise InvalidInput("plan: name_index", name_index, f"integer from 0 to {NAME_INDEX_MAX}")
        if not 0 <= client_status < len(CLIENT_TEXTS):
            raise InvalidInput("plan: client_status", client_status, f"integer from 0 to {len(CLIENT_TEXTS) - 1}")
        if not alloc_id.isascii():
            _check_text("plan: alloc_id", alloc_id)
        place = self._group(group)
        self._part(node_row).places.append(
            (
                key_of(alloc_id) if alloc_id else None,
                number,
                place.number,
                name_index,
                client_status,
                place.flags,
                claims.tobytes() + place.volumes,
            )
        )

    def stop(self, node_row: int, alloc_id: str, description: str = "", client_status: str = "", followup_eval_id: str = "") -> None:
        """Stop an allocation of a node (plan-apply 5.4)."""
        note = PlanStop(description, client_status, followup_eval_id)
        if note not in self._notes:
            for name, text in note._asdict().items():
                _check_text(f"plan: stop {name}", text)
        self._part(node_row).stops.append((key_of(alloc_id), self._notes.of(note)))

    def preempt(self, node_row: int, alloc_id: str, preempted_by: str) -> None:
        """Evict an allocation of a node in favour of another one (plan-apply 5.4)."""
        self._part(node_row).preemptions.append((key_of(alloc_id), key_of(preempted_by)))

    def build(self) -> ColumnarPlan:
        """Return the plan. Nothing may be added afterwards. Raises InvalidInput for claims that are not what the slots of their shapes hold."""
        parts = sorted((self._state.node_id(row) or "", row, part) for row, part in self._nodes.items())
        places = [place for _, _, part in parts for place in part.places]
        stops = [stop for _, _, part in parts for stop in part.stops]
        preemptions = [preemption for _, _, part in parts for preemption in part.preemptions]
        claims = numpy.frombuffer(b"".join(place[6] for place in places), numpy.uint64)
        self._check_claims(places, claims)
        fresh = iter(new_keys(self._randomness(16 * sum(place[0] is None for place in places))))
        known = [place[0] for place in places if place[0] is not None]
        alloc_ids = _keys([bytes(next(fresh)) if place[0] is None else place[0] for place in places])
        columns = PlanColumns(
            node_ids=[node_id for node_id, _, _ in parts],
            node_rows=numpy.array([row for _, row, _ in parts], numpy.uint32),
            node_generations=numpy.array([self._state.node_generation(row) for _, row, _ in parts], numpy.uint32),
            in_scope=numpy.array([bool(part.places or part.stops) for _, _, part in parts], numpy.uint8),
            place_offsets=offsets_of(len(part.places) for _, _, part in parts),
            alloc_ids=alloc_ids,
            shape_index=numpy.array([place[1] for place in places], numpy.uint16),
            group_index=numpy.array([place[2] for place in places], numpy.uint16),
            name_index=numpy.array([place[3] for place in places], numpy.int32),
            client_status=numpy.array([place[4] for place in places], numpy.uint8),
            place_flags=numpy.array([place[5] for place in places], numpy.uint8),
            claim_offsets=offsets_of(len(place[6]) // 8 for place in places),
            claims=claims,
            shapes=list(self._shapes),
            groups=list(self._groups),
            stop_offsets=offsets_of(len(part.stops) for _, _, part in parts),
            stop_ids=_keys([key for key, _ in stops]),
            stop_note_index=numpy.array([note for _, note in stops], numpy.uint16),
            stop_notes=list(self._notes),
            preempt_offsets=offsets_of(len(part.preemptions) for _, _, part in parts),
            preempt_ids=_keys([key for key, _ in preemptions]),
            preempted_by=_keys([key for _, key in preemptions]),
            extras={},
            repeats_ids=len(set(known)) < len(known),
            state_token=self._state.shapes,
        )
        # Bound where the plan is made: its maker is one of many, whoever verifies it is alone.
        columns.view()
        self.plan._columns = columns
        return self.plan

    def _check_claims(self, places: Sequence[_Place], claims: NDArray[numpy.uint64]) -> None:
        """Raise InvalidInput unless each claim is one of its slot: of the right kind, with numbers of this process, and not of a state's own marks."""
        kinds = (claims >> KIND_SHIFT).astype(numpy.uint8)
        expected = b"".join(self._slots[shape] + bytes([KIND_VOLUME]) * (len(own) // 8 - len(self._slots[shape])) for _, shape, _, _, _, _, own in places)
        good = kinds == numpy.frombuffer(expected, numpy.uint8)
        good &= claims & (CLAIM_STOPPING | CLAIM_EXCLUSIVE) == 0
        good |= kinds == KIND_VOLUME
        good &= sound_claims(claims)
        if not good.all():
            wrong = int(claims[int(numpy.argmin(good))])
            raise InvalidInput("plan: claims", wrong, "a claim of the kind of its slot, with numbers that were given out")

    def _part(self, node_row: int) -> _NodePart:
        part = self._nodes.get(node_row)
        if part is None:
            if self._state.node_id(node_row) is None:
                raise StateError(f"node row {node_row} holds no node")
            part = self._nodes[node_row] = _NodePart()
        return part

    def _group(self, name: str) -> _Group:
        group = self._groups.get(name)
        if group is None:
            _check_text("plan: group", name)
            flags = 0
            volumes = b""
            if self._job is not None:
                probe = Allocation(task_group=name, job=self._job)
                try:
                    numbers = encode_demand(AllocDemand(volumes=tuple(volume_claims(probe, self._job))))
                    flags, volumes = PLACE_IRREGULAR if numbers.irregular else 0, numbers.claims
                except InvalidInput:
                    flags = PLACE_IRREGULAR
            # The job travels with the plan and not with its placements, so each counts as replaceable on disconnect (plan-apply 1.9).
            group = self._groups[name] = _Group(len(self._groups), volumes, flags)
        return group


def _check_text(path: str, text: str) -> None:
    """Raise InvalidInput for a text that no log entry could hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(path, text, "valid Unicode text") from error


def _keys(keys: Sequence[bytes]) -> NDArray[numpy.uint8]:
    return numpy.frombuffer(b"".join(keys), numpy.uint8).reshape(-1, 16)


class ColumnarPlan:
    """A plan in columns, with the fields of the record `Plan` (plan-apply 1.10). The three maps make the records of a node when they are asked for them."""

    __slots__ = (
        "_columns",
        "_maps",
        "all_at_once",
        "deployment",
        "deployment_updates",
        "eval_id",
        "eval_token",
        "job",
        "job_info",
        "number",
        "priority",
        "snapshot_index",
    )

    _columns: PlanColumns

    def __init__(
        self, job: Job | None, *, eval_id: str = "", eval_token: str = "", priority: int = 0, all_at_once: bool = False, snapshot_index: int = 0
    ) -> None:
        """Start an empty plan; a `PlanBuilder` fills it."""
        self.job = job
        self.job_info: JobInfo | None = None
        self.eval_id = eval_id
        self.eval_token = eval_token
        self.priority = priority
        self.all_at_once = all_at_once
        self.snapshot_index = snapshot_index
        self.number = 0
        self.deployment: Deployment | None = None
        self.deployment_updates: list[DeploymentUpdate] = []
        self._maps: tuple[_AllocsOfNodes, _AllocsOfNodes, _AllocsOfNodes] | None = None

    @property
    def columns(self) -> PlanColumns:
        """The columns."""
        return self._columns

    @property
    def node_update(self) -> Mapping[str, list[Allocation]]:
        """Stops by node, in the lean form (plan-apply 1.10)."""
        return self._all_maps()[0]

    @property
    def node_allocation(self) -> Mapping[str, list[Allocation]]:
        """Placements by node."""
        return self._all_maps()[1]

    @property
    def node_preemptions(self) -> Mapping[str, list[Allocation]]:
        """Preemptions by node, in the lean form (plan-apply 1.10)."""
        return self._all_maps()[2]

    def _all_maps(self) -> tuple[_AllocsOfNodes, _AllocsOfNodes, _AllocsOfNodes]:
        if self._maps is None:
            columns = self._columns
            self._maps = (
                _AllocsOfNodes(columns, columns.stop_offsets, lambda row, _: stop_record(columns, row)),
                _AllocsOfNodes(columns, columns.place_offsets, lambda row, node_id: placement_record(columns, row, node_id, self.eval_id, self.job)),
                _AllocsOfNodes(columns, columns.preempt_offsets, lambda row, _: preemption_record(columns, row)),
            )
        return self._maps

    def is_noop(self) -> bool:
        """Return whether the plan changes nothing: preemptions do not count (plan-apply 1.10)."""
        return not (self.node_update or self.node_allocation or self.deployment_updates) and self.deployment is None

    def to_record(self) -> Plan:
        """Return the plan as a record of its own."""
        return Plan(
            eval_id=self.eval_id,
            eval_token=self.eval_token,
            priority=self.priority,
            all_at_once=self.all_at_once,
            job=self.job,
            job_info=self.job_info,
            node_update=dict(self.node_update),
            node_allocation=dict(self.node_allocation),
            node_preemptions=dict(self.node_preemptions),
            deployment=self.deployment,
            deployment_updates=self.deployment_updates,
            snapshot_index=self.snapshot_index,
            number=self.number,
        )

    def to_api(self) -> dict[str, Any]:
        """Return the plan as fresh JSON in the API's shape."""
        return self.to_record().to_api()


class _AllocsOfNodes(Mapping[str, list[Allocation]]):
    """Node id → records of one kind; only nodes that have any. Made on request and kept."""

    def __init__(self, columns: PlanColumns, offsets: NDArray[numpy.uint32], make: Callable[[int, str], Allocation]) -> None:
        self._rows = {
            node_id: (first, last) for node_id, first, last in zip(columns.node_ids, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True) if first < last
        }
        self._make = make
        self._made: dict[str, list[Allocation]] = {}

    def __getitem__(self, node_id: str) -> list[Allocation]:
        made = self._made.get(node_id)
        if made is None:
            made = self._made[node_id] = [self._make(row, node_id) for row in range(*self._rows[node_id])]
        return made

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


def placement_record(columns: PlanColumns, row: int, node_id: str, eval_id: str, job: Job | None) -> Allocation:
    """Return the record of a placement, without its job, as plans carry it; one that came as a record is the same object."""
    extra = columns.extras.get(row)
    if extra is not None:
        return extra
    first, last = int(columns.claim_offsets[row]), int(columns.claim_offsets[row + 1])
    group = columns.groups[columns.group_index[row]]
    namespace, job_id = ("default", "") if job is None else (job.namespace or "default", job.id)
    return Allocation(
        id=text_of(columns.alloc_ids[row]),
        namespace=namespace,
        eval_id=eval_id,
        name=alloc_name(job_id, group, int(columns.name_index[row])),
        node_id=node_id,
        job_id=job_id,
        task_group=group,
        allocated_resources=columns.shapes[columns.shape_index[row]].resources(columns.claims[first:last].tolist()),
        desired_status="run",
        client_status=CLIENT_TEXTS[columns.client_status[row]],
    )


def stop_record(columns: PlanColumns, row: int) -> Allocation:
    """Return a stop in the lean form (plan-apply 1.10)."""
    note = columns.stop_note(row)
    return Allocation(
        id=text_of(columns.stop_ids[row]),
        desired_status="stop",
        desired_description=note.description,
        client_status=note.client_status,
        followup_eval_id=note.followup_eval_id,
    )


def preemption_record(columns: PlanColumns, row: int) -> Allocation:
    """Return a preemption in the lean form (plan-apply 1.10)."""
    return Allocation(id=text_of(columns.preempt_ids[row]), desired_status="evict", preempted_by_allocation=text_of(columns.preempted_by[row]))
