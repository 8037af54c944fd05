"""The state machine: applies committed log entries to the state store, the same way on every replica (replication.md 1.2, plan-apply 6.10)."""

from fastplan.fsm.machine import StateMachine
from fastplan.fsm.results import Refused, Repeated

__all__ = ["Refused", "Repeated", "StateMachine"]
