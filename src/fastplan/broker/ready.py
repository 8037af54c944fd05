"""Evaluations that are ready, in the order in which they are handed out (worker-and-broker 3.2)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Final, Protocol

from fastplan.structs import Evaluation

Entry = tuple[int, int, int, Evaluation]
"""−priority, create index, number of arrival, evaluation: the least one is next."""

_VOID_AT_LEAST: Final = 64
"""So many void entries are no reason to clear heaps up."""


class ReadyQueue(Protocol):
    """The ready evaluations of one scheduler type."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Evaluation]:
        """Go through all evaluations, in no order."""
        ...

    def push(self, evaluation: Evaluation) -> None:
        """Add an evaluation."""
        ...

    def priority(self) -> int:
        """Return the priority of the next one; only if there is one."""
        ...

    def pop(self) -> Evaluation:
        """Take the next one; only if there is one."""
        ...


class PriorityQueue:
    """Higher priority first, then lower create index, then order of arrival."""

    __slots__ = ("_arrivals", "_heap")

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[Evaluation]:
        return (entry[3] for entry in self._heap)

    def push(self, evaluation: Evaluation) -> None:
        self._arrivals += 1
        heapq.heappush(self._heap, (-evaluation.priority, evaluation.create_index, self._arrivals, evaluation))

    def priority(self) -> int:
        return -self._heap[0][0]

    def pop(self) -> Evaluation:
        return heapq.heappop(self._heap)[3]


class FairQueue:
    """The same by namespaces: of those whose next evaluation has the highest priority, the one that was served least is next (docs/guide/fairness.md).

    A namespace that comes, or comes back, starts from the least served of those that wait: having been away earns nothing.
    """

    __slots__ = ("_count", "_queues", "_served", "_shares", "_turns")

    def __init__(self) -> None:
        self._queues: dict[str, PriorityQueue] = {}
        self._served: dict[str, int] = {}
        self._count = 0
        # Heaps of namespaces that wait, by turn (−priority, served, name) and by share (served, name). An entry that is not true any more is void.
        self._turns: list[tuple[int, int, str]] = []
        self._shares: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Evaluation]:
        return itertools.chain.from_iterable(self._queues.values())

    def push(self, evaluation: Evaluation) -> None:
        name = evaluation.namespace
        queue = self._queues.get(name)
        self._count += 1
        if queue is None:
            self._served[name] = max(self._served.get(name, 0), self._least_served())
            queue = self._queues[name] = PriorityQueue()
        elif evaluation.priority <= queue.priority():
            queue.push(evaluation)
            return
        queue.push(evaluation)
        self._enter(name)

    def priority(self) -> int:
        return -self._next()[0]

    def pop(self) -> Evaluation:
        name = self._next()[2]
        queue = self._queues[name]
        evaluation = queue.pop()
        self._served[name] += 1
        self._count -= 1
        if len(queue):
            self._enter(name)
        else:
            del self._queues[name]
            if not self._queues:
                # Nobody waits: everybody starts from the same again.
                self._served = {}
                self._turns, self._shares = [], []
        return evaluation

    def _next(self) -> tuple[int, int, str]:
        """Return the turn of the namespace that is next."""
        while True:
            turn = self._turns[0]
            queue = self._queues.get(turn[2])
            if queue is not None and turn == (-queue.priority(), self._served[turn[2]], turn[2]):
                return turn
            heapq.heappop(self._turns)

    def _least_served(self) -> int:
        """Return how often the least served namespace that waits was served, 0 if none waits."""
        while self._shares:
            served, name = self._shares[0]
            if name in self._queues and served == self._served[name]:
                return served
            heapq.heappop(self._shares)
        return 0

    def _enter(self, name: str) -> None:
        """Put a namespace where it now belongs."""
        if len(self._turns) + len(self._shares) > 4 * len(self._queues) + _VOID_AT_LEAST:
            # Void entries that never come up would pile up.
            self._turns = [(-queue.priority(), self._served[each], each) for each, queue in self._queues.items()]
            self._shares = [(self._served[each], each) for each in self._queues]
            heapq.heapify(self._turns)
            heapq.heapify(self._shares)
            return
        served = self._served[name]
        heapq.heappush(self._turns, (-self._queues[name].priority(), served, name))
        heapq.heappush(self._shares, (served, name))
