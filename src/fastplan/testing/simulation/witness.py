"""A second replica that sees the log entry by entry and looks at the state after each one."""

from __future__ import annotations

from collections.abc import Sequence

from fastplan import codec
from fastplan.fsm import StateMachine
from fastplan.replication.contract import LogItem
from fastplan.testing import invariants


class Witness:
    """Follows the log. `violations` has what did not hold, with the index at which it was seen."""

    def __init__(self) -> None:
        self.machine = StateMachine()
        self.violations: list[str] = []

    def hear(self, items: Sequence[LogItem]) -> None:
        """Apply entries that were stored, one after the other."""
        for item in items:
            self.machine.apply([item])
            if isinstance(codec.decode(item[2]), codec.PlanEntry):
                self._look(item[0])

    def _look(self, index: int) -> None:
        store = self.machine.store
        self.violations += [f"at index {index}: {sentence}" for sentence in invariants.over_committed(store)]
