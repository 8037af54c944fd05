"""Choosing ports for an ask: what is offered, how a dynamic port is drawn, which addresses a task may get (schedulers.md 9.3)."""

from __future__ import annotations

import ipaddress
from collections.abc import Container, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastplan.fit.node_ports import TaskNetwork
from fastplan.fit.port_ranges import PORT_COUNT
from fastplan.fit.port_set import PortSet

if TYPE_CHECKING:
    import random

RANDOM_TRIES = 20
"""How often a dynamic port is drawn before the whole range is searched."""


@dataclass(frozen=True, slots=True)
class PortOffer:
    """One port that could be given out: an entry of `Shared.Ports`."""

    label: str
    value: int
    to: int
    host_ip: str
    ignore_collision: bool = False


@dataclass(frozen=True, slots=True)
class TaskNetworkOffer:
    """An address, its device, the bandwidth in Mbit/s and the ports for the network of a single task."""

    ip: str
    device: str
    mbits: int
    reserved_ports: tuple[PortOffer, ...]
    dynamic_ports: tuple[PortOffer, ...]


def draw_port(dynamic_range: tuple[int, int], used: PortSet, offered: set[int], rng: random.Random | None) -> int | None:
    """Return a port of *dynamic_range* that is neither *used* nor *offered* yet, or None: the lowest, or with *rng* a random one.

    As in Nomad the tries are drawn below the upper bound and the search includes it; an inverted range still offers its lower bound.
    """
    low, high = dynamic_range
    if rng is not None:
        for _ in range(RANDOM_TRIES):
            port = rng.randrange(low, high) if low < high else low
            if port < PORT_COUNT and port not in used and port not in offered:
                return port
    free = (port for port in range(low, min(max(low, high) + 1, PORT_COUNT)) if port not in used and port not in offered)
    if rng is None:
        return next(free, None)
    found = list(free)
    return rng.choice(found) if found else None


def candidate_addresses(network: TaskNetwork, known: Container[str]) -> Iterator[str]:
    """Yield the addresses of a node network that a task could get, ascending: those of its CIDR block, or its own if it has no block.

    All addresses on which nothing is held or reserved fare alike, so the block ends after the first of them that is not in *known*.
    An unreadable block has no addresses.
    """
    if not network.cidr:
        if network.ip:
            yield network.ip
        return
    try:
        block = ipaddress.ip_network(network.cidr, strict=False)
    except ValueError:
        return
    for address in block:
        yield str(address)
        if str(address) not in known:
            return
