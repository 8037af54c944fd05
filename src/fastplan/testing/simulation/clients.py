"""The clients on the nodes: they start and end what they are told to, and what runs may end by itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from fastplan.state import StateReader
from fastplan.structs import Allocation

_ENDS: Final = ("batch", "sysbatch")


class Clients:
    """The clients of all nodes. What has ended stays so, and is said again until the state has it."""

    def __init__(self, randomness: random.Random) -> None:
        self._random = randomness
        self._ended: dict[str, str] = {}

    def reports(self, state: StateReader, *, calm: bool = False) -> list[Allocation]:
        """Return what clients say in one round. *calm*: nothing fails any more, and all of them report."""
        said = []
        for alloc in _reachable(state):
            if calm or self._random.random() < 0.5:
                status = self._ended.get(alloc.id) or self._next_status(alloc, calm)
                if status is not None:
                    said.append(_report(alloc, status, calm or self._random.random() < 0.9))
                    if status in ("complete", "failed"):
                        self._ended[alloc.id] = status
        return said

    def _next_status(self, alloc: Allocation, calm: bool) -> str | None:
        """Return what becomes of an allocation, None if there is nothing to say."""
        if alloc.desired_status != "run":
            return "complete"
        if alloc.client_status in ("pending", "unknown"):
            return "running"
        ends = alloc.job is not None and alloc.job.type in _ENDS
        if calm:
            if ends:
                return "complete"
        else:
            chance = self._random.random()
            if chance < 0.1:
                return "failed"
            if chance < 0.4 and ends:
                return "complete"
        return "running" if alloc.deployment_id and _health(alloc) is None else None


def _reachable(state: StateReader) -> Iterator[Allocation]:
    """Yield what has not ended, on nodes whose client can be heard."""
    for node in state.nodes():
        if node.status == "ready":
            yield from (alloc for alloc in state.allocs_by_node(node.id) if not alloc.is_client_terminal)


def _health(alloc: Allocation) -> bool | None:
    return None if alloc.deployment_status is None else alloc.deployment_status.healthy


def _report(alloc: Allocation, status: str, well: bool) -> Allocation:
    said: dict[str, Any] = {"ID": alloc.id, "ClientStatus": status}
    if alloc.deployment_id and status in ("running", "failed"):
        said["DeploymentStatus"] = {"Healthy": well and status == "running"}
    return Allocation.from_api(said)
