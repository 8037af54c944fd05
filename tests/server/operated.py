"""A state machine that operations are applied to, one entry each."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from fastplan import codec
from fastplan.fsm import Refused, StateMachine
from fastplan.server.operations import Operation
from fastplan.state import StateStore
from fastplan.structs import Evaluation, Job, Node

NOW = 1_800_000_000_123_456_789
"""When operations happen, in Unix nanoseconds."""


def job(job_id: str = "web", **changes: Any) -> Job:
    """Return a job as a user writes it: one group `g` of one task."""
    groups = [{"Name": "g", "Tasks": [{"Name": "t", "Driver": "exec"}]}]
    return Job.from_api({"ID": job_id, "TaskGroups": groups, **changes})


def node(node_id: str = "n1", **changes: Any) -> Node:
    """Return a ready node of class `c`."""
    return Node.from_api({"ID": node_id, "Name": node_id, "Datacenter": "dc1", "ComputedClass": "c", "Status": "ready", **changes})


def alloc(alloc_id: str, job_id: str = "web", **changes: Any) -> dict[str, Any]:
    """Return a running allocation of the group `g` on node `n1`."""
    return {
        "ID": alloc_id,
        "Namespace": "default",
        "JobID": job_id,
        "TaskGroup": "g",
        "Name": f"{job_id}.g[0]",
        "NodeID": "n1",
        "DesiredStatus": "run",
        "ClientStatus": "running",
        **changes,
    }


class Operated:
    """A state machine and the entries that it was given."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.items: list[tuple[int, int, bytes, bytes]] = []
        self.operation = Operation()
        self._numbers = itertools.count(1)

    @property
    def store(self) -> StateStore:
        return self.machine.store

    @property
    def index(self) -> int:
        return self.machine.applied

    def new_id(self) -> str:
        return f"{next(self._numbers):08x}-0000-4000-8000-000000000000"

    def work_out(self, operation: Callable[..., Operation], *inputs: Any, now_ns: int = NOW, **options: Any) -> Operation:
        """Work an operation out and leave the state as it is."""
        before = self.store.to_dump()
        self.operation = operation(self.store, *inputs, now_ns=now_ns, new_id=self.new_id, **options)
        assert self.store.to_dump() == before
        return self.operation

    def do(self, operation: Callable[..., Operation], *inputs: Any, **options: Any) -> list[Evaluation]:
        """Work an operation out, apply it, and return its evaluations as they are stored."""
        entry = self.work_out(operation, *inputs, **options).entry()
        if entry is not None:
            assert self.apply(entry) is None
        stored = [self.store.eval(evaluation.id) for evaluation in self.operation.evaluations]
        assert None not in stored
        return [evaluation for evaluation in stored if evaluation is not None]

    def apply(self, command: codec.Command) -> Refused | None:
        """Apply a command of its own."""
        self.items.append((self.index + 1, 1, codec.encode_command(command, NOW), b""))
        (result,) = self.machine.apply(self.items[-1:])
        assert result is None or isinstance(result, Refused)
        return result

    def check_replay(self) -> None:
        """Apply the same entries to another machine: everything must come out the same."""
        other = StateMachine()
        other.apply(self.items)
        assert other.store.to_dump() == self.store.to_dump()
