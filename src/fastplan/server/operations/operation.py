"""What an operation comes to: commands for the log, evaluations in the same entry, and what is unblocked once it is committed."""

from __future__ import annotations

from typing import Literal

import msgspec

from fastplan import codec
from fastplan.structs import Evaluation


class Unblock(msgspec.Struct, frozen=True):
    """Room may have appeared (worker-and-broker 5.4).

    `class`: nodes of `computed_class` take work. `class_and_quota`: allocations of `quota` (empty: of none) ended on a node of `computed_class`.
    `node`: for evaluations of system jobs that wait for the node `node_id`.
    """

    kind: Literal["class", "class_and_quota", "node"]
    computed_class: str = ""
    quota: str = ""
    node_id: str = ""


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
