"""What must hold of a server between two steps."""

from __future__ import annotations

from fastplan.server.server import Server
from fastplan.testing import invariants


def of_server(server: Server) -> list[str]:
    """Return what does not hold of a server that runs."""
    store = server.machine.store
    return [
        *invariants.over_committed(store),
        *invariants.doubled_slots(store),
        *invariants.doubled_names(store),
        *invariants.wrong_sums(store),
        *server.broker.contradictions(),
        *server.blocked.contradictions(),
    ]
