"""Operations on lists of allocations (plan-apply 4). They never change what they are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastplan.structs import Allocation


def remove_allocs(allocs: list[Allocation], remove: Sequence[Allocation]) -> list[Allocation]:
    """Return *allocs* without every entry whose ID occurs in *remove*; order and duplicates of the rest stay (plan-apply 4.1).

    With nothing to remove the very same list comes back.
    """
    if not remove:
        return allocs
    removed_ids = {alloc.id for alloc in remove}
    return [alloc for alloc in allocs if alloc.id not in removed_ids]


def alloc_subset(allocs: Sequence[Allocation], subset: Sequence[Allocation]) -> bool:
    """Return whether each ID of *subset* occurs in *allocs*; content and multiplicity do not count (plan-apply 4.2)."""
    if not subset:
        return True
    known_ids = {alloc.id for alloc in allocs}
    return all(alloc.id in known_ids for alloc in subset)


def filter_terminal_allocs(allocs: Sequence[Allocation]) -> tuple[list[Allocation], dict[str, Allocation]]:
    """Return the live allocations and, by name, the terminal ones (plan-apply 4.3).

    Of several terminal ones with the same name the strictly larger `CreateIndex` stays, on a tie the one met first.
    The live list has Nomad's order, in which the last entry fills each hole: `[T1, A, B, T2, C]` gives `[C, A, B]`.
    """
    live = list(allocs)
    terminal: dict[str, Allocation] = {}
    position = 0
    while position < len(live):
        alloc = live[position]
        if not alloc.is_terminal:
            position += 1
            continue
        known = terminal.get(alloc.name)
        if known is None or alloc.create_index > known.create_index:
            terminal[alloc.name] = alloc
        # The swapped-in entry is looked at next, so the position stays.
        last = live.pop()
        if position < len(live):
            live[position] = last
    return live, terminal
