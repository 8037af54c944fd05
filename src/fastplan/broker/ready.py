"""Evaluations that are ready, in the order in which they are handed out (worker-and-broker 3.2)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Protocol

from fastplan.structs import Evaluation

Entry = tuple[int, int, int, Evaluation]
"""−priority, create index, number of arrival, evaluation: the least one is next."""


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

    __slots__ = ("_count", "_queues", "_served")

    def __init__(self) -> None:
        self._queues: dict[str, PriorityQueue] = {}
        self._served: dict[str, int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Evaluation]:
        return itertools.chain.from_iterable(self._queues.values())

    def push(self, evaluation: Evaluation) -> None:
        queue = self._queues.get(evaluation.namespace)
        if queue is None:
            least = min((self._served[waiting] for waiting in self._queues), default=0)
            self._served[evaluation.namespace] = max(self._served.get(evaluation.namespace, 0), least)
            queue = self._queues[evaluation.namespace] = PriorityQueue()
        queue.push(evaluation)
        self._count += 1

    def priority(self) -> int:
        return max(queue.priority() for queue in self._queues.values())

    def pop(self) -> Evaluation:
        namespace = min(self._queues, key=lambda name: (-self._queues[name].priority(), self._served[name], name))
        queue = self._queues[namespace]
        evaluation = queue.pop()
        self._served[namespace] += 1
        self._count -= 1
        if not len(queue):
            del self._queues[namespace]
            if not self._queues:
                # Nobody waits: everybody starts from the same again.
                self._served = {}
        return evaluation
