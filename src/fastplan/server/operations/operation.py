"""What an operation comes to: commands for the log, evaluations in the same entry, and what is unblocked once it is committed."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from fastplan import codec
from fastplan.structs import Evaluation


class Unblocker(Protocol):
    """Who waits for room (worker-and-broker 5.4). *index*: of the entry that made it."""

    def unblock(self, computed_class: str, index: int, /) -> object:
        """Release what nodes of a class may have room for."""
        ...

    def unblock_class_and_quota(self, computed_class: str, quota: str, index: int, /) -> object:
        """The same, when what ended counted against *quota* (empty: none)."""
        ...

    def unblock_node(self, node_id: str, /) -> object:
        """Release what waits for a node."""
        ...


class Unblock(msgspec.Struct, frozen=True):
    """Room may have appeared (worker-and-broker 5.4).

    `class`: nodes of `computed_class` take work. `class_and_quota`: allocations of `quota` (empty: of none) ended on a node of `computed_class`.
    `node`: for evaluations of system jobs that wait for the node `node_id`.
    """

    kind: Literal["class", "class_and_quota", "node"]
    computed_class: str = ""
    quota: str = ""
    node_id: str = ""

    def perform(self, blocked: Unblocker, index: int) -> None:
        """Tell *blocked* that there is room since the entry at *index*."""
        if self.kind == "class":
            blocked.unblock(self.computed_class, index)
        elif self.kind == "class_and_quota":
            blocked.unblock_class_and_quota(self.computed_class, self.quota, index)
        else:
            blocked.unblock_node(self.node_id)


class Operation(msgspec.Struct, frozen=True):
    """A change of state with the evaluations that it calls for. Without commands and evaluations there is nothing to do.

    `commands` and `evaluations` belong into one log entry (`entry`). `unblocks`: to be performed with the index of that entry, once it is committed.
    `job_id`: the job that the operation made or is about, where the caller did not name it (a dispatched child).
    """

    commands: list[codec.Single] = []
    evaluations: list[Evaluation] = []
    unblocks: list[Unblock] = []
    job_id: str = ""

    def entry(self) -> codec.Batch | None:
        """Return the one command that does all of it, None if there is nothing to do."""
        if not self.commands and not self.evaluations:
            return None
        commands = list(self.commands)
        if self.evaluations:
            commands.append(codec.UpsertEvals([evaluation.to_api() for evaluation in self.evaluations]))
        return codec.Batch(commands)
