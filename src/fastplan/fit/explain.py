"""Why an ask does not fit a node: every failing dimension, and who holds what (design: `FitChecker.explain`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastplan.fit.asks import PreparedAsk
from fastplan.fit.demand import demand_of
from fastplan.fit.encode import CLAIM_EXCLUSIVE, CLAIM_IGNORES, KIND_CORE, KIND_DEVICE, KIND_PORT, KIND_VOLUME, Claim, core_speeds
from fastplan.fit.interning import Internable
from fastplan.fit.judge import held_by
from fastplan.fit.port_ranges import PORT_COUNT
from fastplan.fit.supply import NodeSupply
from fastplan.structs import Allocation

if TYPE_CHECKING:
    from fastplan.structs import Node

_DIMENSIONS = {KIND_PORT: "port", KIND_CORE: "cores", KIND_DEVICE: "device", KIND_VOLUME: "host_volume"}


@dataclass(frozen=True, slots=True)
class Shortfall:
    """One dimension in which an ask does not fit a node. MHz, MiB or a count.

    `dimension` is cpu, memory, disk, cores, max_allocs, port, device or host_volume. `subject` is the address:port, the core id, the pattern or
    vendor/type/name/instance of a device, or the source of a volume, and empty for sums. For a single thing `asked` / `free` / `missing` are
    1 / 0 / 1. `held_by` are the ids of the allocations in the way, ascending; nobody's if the node lacks the thing or keeps it for itself.
    """

    dimension: str
    subject: str
    asked: int
    free: int
    missing: int
    held_by: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class NodeExplanation:
    """Whether an ask fits a node, and if not all that is missing, in the order of the checks."""

    node_id: str
    fits: bool
    failing: list[Shortfall] = field(default_factory=list)


Holders = dict[tuple[int, Internable, int | str], list[tuple[str, int]]]


def shortfalls(ask: PreparedAsk, node: Node, supply: NodeSupply, others: Sequence[Allocation]) -> list[Shortfall]:
    """Return everything that keeps the ask from fitting a canonical node beside the *others*, in the order of the checks (plan-apply 2.2).

    That includes what is at odds on the node already, which refuses every ask. What cannot be read counts as nothing.
    """
    holders: Holders = {}
    for alloc in others:
        for claim in held_by(alloc):
            holders.setdefault((claim.kind, claim.subject, claim.value), []).append((alloc.id, claim.flags))
    found = list(_sums(ask, node, supply, others))
    claims = [claim for alloc in ask.allocs for claim in held_by(alloc)] if ask.need is None else _volume_claims(ask)
    found.extend(_single_things(claims, supply, holders))
    named = {(shortfall.dimension, shortfall.subject) for shortfall in found}
    found.extend(conflict for conflict in _conflicts(supply, holders, [*others, *ask.allocs]) if (conflict.dimension, conflict.subject) not in named)
    if ask.need is not None:
        found.extend(_counts(ask, supply, holders))
    order = ["max_allocs", "cpu", "cores", "memory", "disk", "port", "device", "host_volume"]
    return sorted(found, key=lambda shortfall: order.index(shortfall.dimension))


def _sums(ask: PreparedAsk, node: Node, supply: NodeSupply, others: Sequence[Allocation]) -> Iterator[Shortfall]:
    count = 1 if ask.need is not None else len(ask.allocs)
    if supply.max_allocs != 0 and supply.max_allocs < len(others) + count:
        yield _short("max_allocs", count, supply.max_allocs - len(others))
    used = [_amounts(alloc) for alloc in others if not alloc.is_client_terminal]
    if ask.need is None:
        asked = [_amounts(alloc) for alloc in ask.allocs if not alloc.is_client_terminal]
    else:
        cores = sorted(supply.cores - {int(claim.value) for alloc in others for claim in held_by(alloc) if claim.kind == KIND_CORE})[: ask.need.cores]
        speeds = core_speeds(node) if cores else {}
        asked = [(ask.need.cpu_mhz + sum(speeds.get(core, 0) for core in cores), ask.need.memory_mib, ask.need.disk_mib)]
    for position, (dimension, total) in enumerate((("cpu", supply.cpu_mhz), ("memory", supply.memory_mib), ("disk", supply.disk_mib))):
        wanted = sum(amounts[position] for amounts in asked)
        free = total - sum(amounts[position] for amounts in used)
        if wanted > free:
            yield _short(dimension, wanted, free)


def _amounts(alloc: Allocation) -> tuple[int, int, int]:
    demand = demand_of(alloc)
    return demand.cpu_mhz, demand.memory_mib, demand.disk_mib


def _short(dimension: str, asked: int, free: int, subject: str = "", held_by: Sequence[str] = ()) -> Shortfall:
    return Shortfall(dimension, subject, asked, free, asked - free, sorted(set(held_by)))


def _volume_claims(ask: PreparedAsk) -> list[Claim]:
    assert ask.need is not None
    return [Claim(KIND_VOLUME, volume.source, 0, CLAIM_EXCLUSIVE if volume.exclusive else 0) for volume in ask.need.volumes]


def _single_things(claims: Sequence[Claim], supply: NodeSupply, holders: Holders) -> Iterator[Shortfall]:
    """Literal claims against what others hold, what the node keeps for itself, and each other."""
    known = {(kind, instance) for kind, instances in supply.devices.items() for instance in instances}
    if supply.ports.error:
        yield _short("port", 1, 0, supply.ports.error)
    mine: Holders = {}
    seen: set[tuple[int, str]] = set()
    for claim in claims:
        thing = (claim.kind, claim.subject, claim.value)
        own = mine.setdefault(thing, [])
        if claim.kind == KIND_DEVICE and (claim.subject, claim.value) not in known:
            # Unknown and unhealthy instances never collide (plan-apply 2.7).
            continue
        in_the_way = [*holders.get(thing, ()), *own]
        own.append(("", claim.flags))
        lacking = False
        if claim.kind == KIND_PORT:
            lacking = any(first <= int(claim.value) <= last for first, last in supply.ports.reserved.get(str(claim.subject), ()))
            if claim.flags & CLAIM_IGNORES:
                continue
        elif claim.kind == KIND_CORE:
            lacking = bool(supply.cores) and claim.value not in supply.cores
        elif claim.kind == KIND_VOLUME and not claim.flags & CLAIM_EXCLUSIVE:
            in_the_way = [holder for holder in in_the_way if holder[1] & CLAIM_EXCLUSIVE]
        subject = subject_of(claim)
        if (in_the_way or lacking) and (claim.kind, subject) not in seen:
            seen.add((claim.kind, subject))
            yield _short(_DIMENSIONS[claim.kind], 1, 0, subject, [holder for holder, _ in in_the_way if holder])


def _conflicts(supply: NodeSupply, holders: Holders, allocs: Sequence[Allocation]) -> Iterator[Shortfall]:
    """What is at odds without the ask: things held twice or outside of the supply, and port numbers that cannot be."""
    known = {(kind, instance) for kind, instances in supply.devices.items() for instance in instances}
    for (kind, subject, value), holding in holders.items():
        flags = [flag for _, flag in holding]
        if kind == KIND_PORT:
            reserved = any(first <= int(value) <= last for first, last in supply.ports.reserved.get(str(subject), ()))
            # All but the first have to ignore collisions; a reservation comes before all (plan-apply 3.5).
            at_odds = any(not flag & CLAIM_IGNORES for flag in (flags if reserved else flags[1:]))
        elif kind == KIND_CORE:
            at_odds = len(flags) > 1 or (bool(supply.cores) and value not in supply.cores)
        elif kind == KIND_DEVICE:
            at_odds = len(flags) > 1 and (subject, value) in known
        else:
            at_odds = len(flags) > 1 and any(flag & CLAIM_EXCLUSIVE for flag in flags)
        if at_odds:
            yield _short(_DIMENSIONS[kind], 1, 0, subject_of(Claim(kind, subject, value, 0)), [holder for holder, _ in holding])
    for alloc in allocs:
        for address, port, _ in demand_of(alloc).ports if not alloc.is_client_terminal else ():
            if not 0 <= port < PORT_COUNT:
                yield _short("port", 1, 0, f"{address}:{port}", [alloc.id] if alloc.id else [])


def subject_of(claim: Claim) -> str:
    """Return how a claim is named: address:port, core id, vendor/type/name/instance, or source."""
    if claim.kind == KIND_PORT:
        return f"{claim.subject}:{claim.value}"
    if claim.kind == KIND_CORE:
        return str(claim.value)
    return "/".join([*claim.subject, str(claim.value)]) if isinstance(claim.subject, tuple) else claim.subject


def _counts(ask: PreparedAsk, supply: NodeSupply, holders: Holders) -> Iterator[Shortfall]:
    """Ports by host network, cores and device instances that a group counts."""
    need = ask.need
    assert need is not None
    free_cores = [core for core in supply.cores if (KIND_CORE, "", core) not in holders]
    if need.cores > len(free_cores):
        yield _short("cores", need.cores, len(free_cores), "", [holder for core in supply.cores for holder, _ in holders.get((KIND_CORE, "", core), ())])
    yield from _static_ports(ask, supply, holders)
    yield from _dynamic_ports(ask, supply, holders)
    for pattern in dict.fromkeys(request.pattern for request in need.device_requests):
        widest = next(request for request in need.device_requests if request.pattern == pattern)
        asked = sum(request.count for request in need.device_requests if widest.contains(request))
        matching = [(kind, instance) for kind, instances in supply.devices.items() if widest.matches(kind) for instance in instances]
        free = [thing for thing in matching if (KIND_DEVICE, *thing) not in holders]
        if asked > len(free):
            in_the_way = [holder for thing in matching for holder, _ in holders.get((KIND_DEVICE, *thing), ())]
            yield _short("device", asked, len(free), "/".join(pattern), in_the_way)


def _static_ports(ask: PreparedAsk, supply: NodeSupply, holders: Holders) -> Iterator[Shortfall]:
    assert ask.need is not None
    chosen: set[tuple[str, int]] = set()
    for port in ask.need.static_ports:
        addresses = supply.ports.host_networks.get(port.host_network, ())
        in_the_way: list[str] = []
        offered = None
        for address in addresses:
            if not 0 <= port.value < PORT_COUNT:
                break
            reserved = any(first <= port.value <= last for first, last in supply.ports.reserved.get(address, ()))
            holding = [holder for holder, _ in holders.get((KIND_PORT, address, port.value), ())]
            if port.ignore_collision or not (reserved or holding):
                offered = address
                break
            in_the_way.extend(holding)
        if offered is None or ((offered, port.value) in chosen and not port.ignore_collision):
            yield _short("port", 1, 0, f"{addresses[0] if addresses else port.host_network}:{port.value}", in_the_way)
        else:
            chosen.add((offered, port.value))


def _dynamic_ports(ask: PreparedAsk, supply: NodeSupply, holders: Holders) -> Iterator[Shortfall]:
    assert ask.need is not None
    asked: dict[str, int] = {}
    for port in ask.need.dynamic_ports:
        asked[port.host_network] = asked.get(port.host_network, 0) + 1
    low, high = supply.ports.dynamic_range
    for network, count in asked.items():
        free = 0
        in_the_way: list[str] = []
        for address in supply.ports.host_networks.get(network, ()):
            taken = {port for first, last in supply.ports.reserved.get(address, ()) for port in range(max(first, low), min(last, high) + 1)}
            for (kind, subject, value), holding in holders.items():
                if kind == KIND_PORT and subject == address and low <= int(value) <= max(low, high):
                    taken.add(int(value))
                    in_the_way.extend(holder for holder, _ in holding)
            free += max(0, min(max(low, high), PORT_COUNT - 1) - low + 1 - len(taken))
        if count > free:
            yield _short("port", count, free, network, in_the_way)
