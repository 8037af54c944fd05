"""What a leader notices of entries that were applied: evaluations that have to go to the broker or the tracker (worker-and-broker 2.2)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastplan.fsm import StateMachine
from fastplan.state import StateStore
from fastplan.structs import Evaluation


class AppliedEntries:
    """The state machine as the applier of plans sees it, with an ear of the leader's own."""

    def __init__(self, machine: StateMachine) -> None:
        self._machine = machine
        self._planner: Callable[[], None] | None = None
        self._evals: Callable[[list[Evaluation]], None] | None = None
        machine.set_listener(self._heard)

    @property
    def store(self) -> StateStore:
        """The state."""
        return self._machine.store

    @property
    def foreign_changes(self) -> int:
        """How many entries other than plans were applied."""
        return self._machine.foreign_changes

    def result_of(self, key: bytes) -> Any:
        """Return what became of the entry with *key*, None if it is not among the recent ones."""
        return self._machine.result_of(key)

    def set_listener(self, listener: Callable[[], None] | None) -> None:
        """Have *listener* called after every batch of entries that was applied."""
        self._planner = listener

    def follow_evals(self, listener: Callable[[list[Evaluation]], None] | None) -> None:
        """Have *listener* called with the evaluations that entries write from now on: shared, not to be changed. None ends that."""
        self._evals = listener
        self.store.note_written_evals(listener is not None)

    def _heard(self) -> None:
        if self._evals is not None:
            written = self.store.take_written_evals()
            if written:
                self._evals(written)
        if self._planner is not None:
            self._planner()
