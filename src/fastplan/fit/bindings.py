"""Which allocations are bound to which node: what the checker needs to know beyond sums and claims."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from fastplan.errors import StateError
from fastplan.fit.demand import demand_of
from fastplan.fit.encode import AllocNumbers, encode_demand

if TYPE_CHECKING:
    from fastplan.structs import Allocation, Node


class AllocLookup(Protocol):
    """Nodes by row and allocations by id or row, all canonical and with their job attached. A state snapshot can be one."""

    def row_of(self, node_id: str) -> int | None:
        """Return the row of a node, None if there is no such node."""

    def node(self, row: int) -> Node | None:
        """Return the node of a row, None if the row holds none."""

    def alloc(self, alloc_id: str) -> tuple[int, Allocation] | None:
        """Return an allocation whose client is not terminal, with the row of its node; None if there is none."""

    def allocs_on(self, row: int) -> Sequence[Allocation]:
        """Return the allocations on a row whose client is not terminal, in any order."""


class BoundAlloc(NamedTuple):
    """An allocation, the row of its node, what it asks, and whether the view counts it.

    `summed`: the engine has it in its sums; `stopping`: there it is marked as told to stop.
    """

    alloc: Allocation
    row: int
    numbers: AllocNumbers
    counted: bool
    summed: bool
    stopping: bool


class Bindings:
    """Allocations by id and by row: those of a lookup, less the removed, plus the added. With *drop_stopping* those told to stop do not count."""

    def __init__(self, base: AllocLookup | None = None, *, drop_stopping: bool = False) -> None:
        self._base = base
        self._drop_stopping = drop_stopping
        self._added: dict[str, BoundAlloc] = {}
        self._on: dict[int, dict[str, BoundAlloc]] = {}
        self._removed: set[str] = set()

    def bind(self, alloc: Allocation, row: int) -> BoundAlloc:
        """Bind a canonical allocation. The caller has checked that its id is free."""
        counted = not alloc.is_client_terminal and not (self._drop_stopping and alloc.is_server_terminal)
        bound = BoundAlloc(alloc, row, encode_demand(demand_of(alloc)), counted, summed=counted, stopping=False)
        self._added[alloc.id] = bound
        self._on.setdefault(row, {})[alloc.id] = bound
        return bound

    def release(self, alloc_id: str) -> BoundAlloc:
        """Take an allocation off and return it. Raises StateError if it is not bound."""
        bound = self.get(alloc_id)
        if bound is None:
            raise StateError(f"allocation {alloc_id!r} is not bound")
        if self._added.pop(alloc_id, None) is not None:
            del self._on[bound.row][alloc_id]
        else:
            self._removed.add(alloc_id)
        return bound

    def get(self, alloc_id: str) -> BoundAlloc | None:
        """Return the bound allocation with this id."""
        bound = self._added.get(alloc_id)
        if bound is None and self._base is not None and alloc_id not in self._removed:
            found = self._base.alloc(alloc_id)
            if found is not None:
                row, alloc = found
                counted = not (self._drop_stopping and alloc.is_server_terminal)
                # A table has everything whose client is not terminal.
                bound = BoundAlloc(alloc, row, encode_demand(demand_of(alloc)), counted, summed=True, stopping=alloc.is_server_terminal)
        return bound

    def bound_among(self, alloc_ids: Collection[str]) -> list[str]:
        """Return those of the ids that are bound and counted."""
        if self._base is None:
            return [alloc_id for alloc_id in alloc_ids if (bound := self._added.get(alloc_id)) is not None and bound.counted]
        return [alloc_id for alloc_id in alloc_ids if (bound := self.get(alloc_id)) is not None and bound.counted]

    def counted_on(self, row: int) -> list[Allocation]:
        """Return the allocations that count on a row, ascending by id (plan-apply 5.3)."""
        allocs = [bound.alloc for bound in self._on.get(row, {}).values() if bound.counted]
        if self._base is not None:
            allocs.extend(
                alloc
                for alloc in self._base.allocs_on(row)
                if alloc.id not in self._removed and alloc.id not in self._added and not (self._drop_stopping and alloc.is_server_terminal)
            )
        allocs.sort(key=lambda alloc: alloc.id)
        return allocs
