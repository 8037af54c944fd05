"""Workers: each plans on a snapshot of its own, in a thread of its own, by best fit over every node.

Many nodes are often as good as the best one, or nearly so. Workers that all took the same of them would refuse each other, so scores count in steps of
`SCORE_STEP`, and which of equal nodes an attempt takes is drawn from the evaluation and the number of the attempt.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.fit import FitChecker
from fastplan.fit.asks import PreparedAsk
from fastplan.replay.asks import ShapeAsks
from fastplan.replay.shapes import GROUP, uuid_text
from fastplan.state.plan_builder import ColumnarPlan, PlanBuilder
from fastplan.state.snapshot import StateSnapshot
from fastplan.structs import Allocation, Job

SCORE_STEP: Final = 1.0
"""Scores, which are from 0 to 18, are equal to a worker if they lie in one interval of this length."""

REST_STEPS: Final = 8
"""What is left on a node, after copies of a job of many have gone there, counts in steps of this part of the job."""


class Ticket(NamedTuple):
    """What a worker is told to place: the copies of a task with these numbers, for an evaluation that it holds.

    `ids`: the ids of all copies of the task, 16 bytes each, by number. `attempt`: how often that has been tried. `refused`: rows of the nodes that were
    refused then, which are taken only if there are no others.
    """

    asks: ShapeAsks
    job: Job
    eval_id: str
    eval_token: str
    copies: Sequence[int]
    ids: bytes
    attempt: int
    refused: Sequence[int]

    def alloc_id(self, copy: int) -> str:
        """Return the id of a copy."""
        return uuid_text(self.ids[16 * copy : 16 * copy + 16])


class Attempt(NamedTuple):
    """What a worker answers: a plan for as many copies as fit, None if not even one does, and the index of the snapshot that it looked at."""

    plan: ColumnarPlan | None
    snapshot_index: int


class _Choice(NamedTuple):
    """A node, the ask that fits there, and what it would be given."""

    row: int
    ask: PreparedAsk
    chosen: PreparedAsk


class Worker:
    """Plans for tickets, in one thread at a time. Workers share nothing but what never changes."""

    def __init__(self, take_snapshot: Callable[[], StateSnapshot], stale: int) -> None:
        """*stale*: for how many plans a snapshot is kept, without regard to what has been planned on it.

        With 1 all tickets of one call are planned on one new snapshot, each on top of what the worker has planned before it.
        """
        self._take_snapshot = take_snapshot
        self._stale = stale
        self._plans_left = 0
        self._snapshot: StateSnapshot
        self._checker: FitChecker
        self._orders: dict[int, NDArray[numpy.uint32]] = {}

    def forget(self) -> None:
        """Take a new snapshot for the next plan."""
        self._plans_left = 0

    def plan(self, tickets: Sequence[Ticket]) -> list[Attempt]:
        """Return one answer for each ticket."""
        attempts = []
        for place, ticket in enumerate(tickets):
            if self._plans_left == 0 and (place == 0 or self._stale > 1):
                self._look()
            self._plans_left -= self._stale > 1
            books = self._stale == 1 and place + 1 < len(tickets)
            attempts.append(Attempt(self._plan(ticket, books), self._snapshot.latest_index()))
        return attempts

    def _look(self) -> None:
        self._snapshot = self._take_snapshot()
        self._checker = self._snapshot.fit_checker()
        self._plans_left = self._stale if self._stale > 1 else 0

    def _plan(self, ticket: Ticket, books: bool) -> ColumnarPlan | None:
        """Plan for one ticket. *books*: let the checker know, for the next one."""
        builder = PlanBuilder(
            self._snapshot,
            ticket.job,
            eval_id=ticket.eval_id,
            eval_token=ticket.eval_token,
            priority=ticket.job.priority,
            snapshot_index=self._snapshot.latest_index(),
        )
        order = self._order(ticket)
        if len(ticket.copies) > 1 and ticket.asks.plain:
            return builder.build() if self._fill(builder, ticket, order) else None
        choice = self._best(ticket, order)
        if choice is None:
            return None
        shape, claims = ticket.asks.shape_of(choice.ask, choice.chosen)
        copy = ticket.copies[0]
        builder.place(choice.row, shape, GROUP, copy, claims, alloc_id=ticket.alloc_id(copy))
        if books:
            self._book(ticket, copy, choice)
        return builder.build()

    def _order(self, ticket: Ticket) -> NDArray[numpy.uint32]:
        """Return a permutation of the rows: which of equally good nodes this attempt takes."""
        (number,) = hashlib.blake2b(f"{ticket.eval_id} {ticket.attempt}".encode(), digest_size=1).digest()
        order = self._orders.get(number)
        if order is None:
            order = self._orders[number] = numpy.random.default_rng(number).permutation(self._snapshot.nodes_view.row_count).astype(numpy.uint32)
        return order

    def _best(self, ticket: Ticket, order: NDArray[numpy.uint32]) -> _Choice | None:
        """Return the best node for one copy, its ports, cores and GPUs chosen; None if there is none."""
        if ticket.refused:
            allowed = numpy.ones(len(order), numpy.bool_)
            allowed[list(ticket.refused)] = False
            choice = self._best_of(ticket.asks, order, allowed)
            if choice is not None:
                return choice
        return self._best_of(ticket.asks, order, None)

    def _best_of(self, asks: ShapeAsks, order: NDArray[numpy.uint32], allowed: NDArray[numpy.bool_] | None) -> _Choice | None:
        choices = [choice for ask in asks.asks if (choice := self._best_for(ask, order, allowed)) is not None]
        if len(choices) < 2:
            return choices[0] if choices else None
        return max(choices, key=lambda choice: (self._checker.score(choice.row, choice.ask) // SCORE_STEP, -int(order[choice.row])))

    def _best_for(self, ask: PreparedAsk, order: NDArray[numpy.uint32], allowed: NDArray[numpy.bool_] | None) -> _Choice | None:
        while (row := self._checker.best_node(ask, allowed=allowed, score_step=SCORE_STEP, permutation=order)) >= 0:
            chosen = self._checker.choose(row, ask)
            if chosen is not None:
                return _Choice(row, ask, chosen)
            # There is room, but what is free does not go together: the next best.
            allowed = numpy.ones(len(order), numpy.bool_) if allowed is None else allowed.copy()
            allowed[row] = False
        return None

    def _book(self, ticket: Ticket, copy: int, choice: _Choice) -> None:
        node_id = self._snapshot.node_id(choice.row)
        assert node_id is not None
        resources = choice.chosen.allocs[0].allocated_resources
        self._checker.add([Allocation(id=ticket.alloc_id(copy), node_id=node_id, allocated_resources=resources)])

    def _fill(self, builder: PlanBuilder, ticket: Ticket, order: NDArray[numpy.uint32]) -> bool:
        """Place copies that all hold the same, as many as possible on one node after the other; return whether any fits.

        The best node is the one that has the least room for further copies when it holds all it can, in steps of an eighth of what is to be placed:
        so a job takes nodes whole where it can, of which any will do, and tops up those that others have begun.
        """
        (ask,) = ticket.asks.asks
        headroom = self._checker.headroom(ask)
        chosen: PreparedAsk | None = None
        left = headroom.copy()
        left[list(ticket.refused)] = 0
        if not left.any():
            left = headroom
        placed = 0
        step = max(len(ticket.copies) // REST_STEPS, 1)
        while placed < len(ticket.copies):
            open_rows = numpy.flatnonzero(left)
            if not len(open_rows):
                break
            rest = (left[open_rows] - numpy.minimum(left[open_rows], len(ticket.copies) - placed)) // step
            tightest = open_rows[rest == rest.min()]
            row = int(tightest[order[tightest].argmin()])
            chosen = chosen or self._checker.choose(row, ask)
            assert chosen is not None
            shape, claims = ticket.asks.shape_of(ask, chosen)
            for copy in ticket.copies[placed : placed + int(left[row])]:
                builder.place(row, shape, GROUP, copy, claims, alloc_id=ticket.alloc_id(copy))
            placed += min(int(left[row]), len(ticket.copies) - placed)
            left[row] = 0
        return placed > 0
