"""The state store: columnar tables with indexes, and snapshots that cost what changes after them."""

from fastplan.state.snapshot import StateReader, StateSnapshot
from fastplan.state.store import StateStore

__all__ = ["StateReader", "StateSnapshot", "StateStore"]
