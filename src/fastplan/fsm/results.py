"""What the state machine answers for an entry. None: applied."""

from __future__ import annotations

import msgspec


class Refused(msgspec.Struct, frozen=True):
    """The entry changed nothing; `refused` says why."""

    refused: str


class Repeated(msgspec.Struct, frozen=True):
    """The key of the entry is known: this is what became of the first entry with it.

    `first_index`: where it was committed. `refused`: why it changed nothing, None if it was applied. `rejected_nodes`, `refresh_index`: the refused
    part of a plan.
    """

    first_index: int
    refused: str | None = None
    rejected_nodes: tuple[str, ...] = ()
    refresh_index: int = 0


Result = Refused | Repeated | None
