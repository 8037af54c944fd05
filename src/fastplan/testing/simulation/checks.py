"""What must hold of a server between two steps, beside what a witness sees of its state."""

from __future__ import annotations

from typing import Any

from fastplan.server.server import Server
from fastplan.state import StateStore
from fastplan.testing import invariants


def of_server(server: Server) -> list[str]:
    """Return what does not hold of a server that runs."""
    return [*invariants.wrong_sums(server.machine.store), *server.broker.contradictions(), *server.blocked.contradictions()]


def differences(found: StateStore, expected: StateStore) -> list[str]:
    """Return which tables of two states differ."""
    left, right = found.to_dump(), expected.to_dump()
    return sorted(name for name in left.keys() | right.keys() if _bare(left.get(name)) != _bare(right.get(name)))


def _bare(value: Any) -> Any:
    """Return a value of a dump without what says nothing: a record that was read may keep a zero which one that was made leaves out."""
    if isinstance(value, dict):
        return {key: bare for key, each in value.items() if (bare := _bare(each))}
    if isinstance(value, list):
        return [_bare(each) for each in value]
    return value
