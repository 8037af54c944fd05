"""A compact set of ports, one for each address in use."""

from __future__ import annotations

from bisect import bisect_right

from fastplan.fit.port_ranges import PORT_COUNT, PortRange, merge_port_ranges


class PortSet:
    """The ports in use on one address: the node's reserved ranges, shared among nodes, and a set of what allocations took."""

    __slots__ = ("_reserved", "_taken")

    def __init__(self, reserved: tuple[PortRange, ...] = ()) -> None:
        """*reserved* are ascending ranges that neither overlap nor touch."""
        self._reserved = reserved
        self._taken: set[int] = set()

    def __contains__(self, port: int) -> bool:
        """Return whether *port* is in use."""
        if port in self._taken:
            return True
        at = bisect_right(self._reserved, (port, PORT_COUNT))
        return at > 0 and self._reserved[at - 1][1] >= port

    def add(self, port: int) -> None:
        """Mark *port* as in use."""
        self._taken.add(port)

    def ranges(self) -> list[PortRange]:
        """Return the ports in use as ascending ranges that neither overlap nor touch."""
        return list(merge_port_ranges([*self._reserved, *((port, port) for port in self._taken)]))
