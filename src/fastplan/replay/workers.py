"""Workers: each plans on a snapshot of its own, in a thread of its own, by best fit over every node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.fit import FitChecker, UsedResources, score_fit
from fastplan.fit.asks import PreparedAsk
from fastplan.replay.asks import ShapeAsks
from fastplan.replay.shapes import GROUP, uuid_text
from fastplan.state.plan_builder import NO_CLAIMS, ColumnarPlan, PlanBuilder
from fastplan.state.resource_shapes import ResourceShape, shape_of
from fastplan.state.snapshot import StateSnapshot
from fastplan.structs import AllocatedResources, Job


class Ticket(NamedTuple):
    """What a worker is told to place: the copies of a task with these numbers, for an evaluation that it holds.

    `ids`: the ids of all copies of the task, 16 bytes each, by number.
    """

    asks: ShapeAsks
    job: Job
    eval_id: str
    eval_token: str
    copies: Sequence[int]
    ids: bytes


class _Place(NamedTuple):
    """Where a copy goes, and what it holds there."""

    node_row: int
    shape: ResourceShape
    claims: NDArray[numpy.uint64]


class Worker:
    """Plans for one ticket after the other, in one thread at a time. Workers share nothing but what never changes."""

    def __init__(self, take_snapshot: Callable[[], StateSnapshot], stale: int) -> None:
        """*stale*: for how many plans a snapshot is kept."""
        self._take_snapshot = take_snapshot
        self._stale = stale
        self._plans_left = 0
        self._snapshot: StateSnapshot
        self._checker: FitChecker

    @property
    def index(self) -> int:
        """The index of the snapshot that the last plan was made on."""
        return self._snapshot.latest_index()

    def forget(self) -> None:
        """Take a new snapshot for the next plan."""
        self._plans_left = 0

    def plan(self, ticket: Ticket) -> ColumnarPlan | None:
        """Return a plan for as many copies as fit on the snapshot, None if not even one does."""
        if self._plans_left == 0:
            self._snapshot = self._take_snapshot()
            self._checker = self._snapshot.fit_checker()
            self._plans_left = self._stale
        self._plans_left -= 1
        builder = PlanBuilder(
            self._snapshot,
            ticket.job,
            eval_id=ticket.eval_id,
            eval_token=ticket.eval_token,
            priority=ticket.job.priority,
            snapshot_index=self._snapshot.latest_index(),
        )
        found = self._fill(builder, ticket) if ticket.asks.plain else self._place_one(builder, ticket)
        return builder.build() if found else None

    def _place_one(self, builder: PlanBuilder, ticket: Ticket) -> bool:
        """Place the first copy where it scores best; return whether it fits anywhere."""
        place = self._best_place(ticket.asks)
        if place is None:
            return False
        _put(builder, ticket, ticket.copies[0], place)
        return True

    def _best_place(self, asks: ShapeAsks) -> _Place | None:
        places = [place for ask in asks.asks if (place := self._place_for(asks, ask)) is not None]
        if len(places) < 2:
            return places[0] if places else None
        return max(places, key=lambda place: (self._score(place), -place.node_row))

    def _place_for(self, asks: ShapeAsks, ask: PreparedAsk) -> _Place | None:
        """Return the place with the best score for one ask, its ports, cores and GPUs chosen."""
        allowed: NDArray[numpy.bool_] | None = None
        while (row := self._checker.best_node(ask, allowed=allowed)) >= 0:
            node_id = self._snapshot.node_id(row)
            assert node_id is not None
            resources = self._checker.assign(node_id, ask)
            if resources is not None:
                shape, claims = shape_of(AllocatedResources.from_api(resources))
                return _Place(row, asks.same_shape(shape), claims)
            # There is room, but what is free does not go together: the next best.
            if allowed is None:
                allowed = numpy.ones(len(self._checker.node_ids), numpy.bool_)
            allowed[row] = False
        return None

    def _score(self, place: _Place) -> float:
        node = self._snapshot.node_record(place.node_row)
        assert node is not None
        used = self._snapshot.node_used(node.id)
        assert used is not None
        return score_fit(node, UsedResources(used.cpu_mhz + place.shape.cpu_mhz, used.memory_mib + place.shape.memory_mib))

    def _fill(self, builder: PlanBuilder, ticket: Ticket) -> bool:
        """Place copies that all hold the same, one after the other where the next one scores best; return whether any fits.

        A node scores higher with every copy and the others do not change, so the best node is the best until it is full.
        """
        (ask,) = ticket.asks.asks
        checker, copies = self._checker, ticket.copies
        row = checker.best_node(ask)
        if row < 0:
            return False
        shape = self._plain_shape(ticket.asks, ask, row)
        if len(copies) == 1:
            _put(builder, ticket, copies[0], _Place(row, shape, NO_CLAIMS))
            return True
        headroom = checker.headroom(ask)
        allowed = headroom > 0
        placed = 0
        while row >= 0 and placed < len(copies):
            here = copies[placed : placed + int(headroom[row])]
            for copy in here:
                _put(builder, ticket, copy, _Place(row, shape, NO_CLAIMS))
            placed += len(here)
            allowed[row] = False
            row = checker.best_node(ask, allowed=allowed)
        return True

    def _plain_shape(self, asks: ShapeAsks, ask: PreparedAsk, row: int) -> ResourceShape:
        if asks.plain_shape is None:
            node_id = self._snapshot.node_id(row)
            assert node_id is not None
            resources = self._checker.assign(node_id, ask)
            assert resources is not None
            asks.plain_shape = asks.same_shape(shape_of(AllocatedResources.from_api(resources))[0])
        return asks.plain_shape


def _put(builder: PlanBuilder, ticket: Ticket, copy: int, place: _Place) -> None:
    builder.place(place.node_row, place.shape, GROUP, copy, place.claims, alloc_id=uuid_text(ticket.ids[16 * copy : 16 * copy + 16]))
