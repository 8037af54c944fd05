"""Asks, taken apart once: what a checker is asked about again and again (design: `FitChecker.prepare`)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeGuard, cast

from fastplan.errors import InvalidInput
from fastplan.fit.demand import demand_of
from fastplan.fit.encode import AMOUNT_LIMIT, CLAIM_FLAG_BITS, IRREGULAR_ASK, AllocNumbers, encode_demand, volume_claim
from fastplan.fit.group import GroupNeed, group_need
from fastplan.structs import Allocation, Job
from fastplan.structs.canonical import canonical_alloc


@dataclass(slots=True, eq=False)
class PreparedAsk:
    """An ask that was taken apart: literal *allocs*, or one copy of a group as *need*. It is good for any checker and any number of calls.

    The records are kept; they must not change meanwhile.
    """

    allocs: tuple[Allocation, ...]
    need: GroupNeed | None
    alloc_ids: tuple[str, ...]
    numbers: AllocNumbers
    compiled: object = field(default=None, repr=False)
    """What the engine made of it, and keeps here."""


Ask = Allocation | PreparedAsk | tuple[Job, str]
"""An allocation (ports, cores and device ids taken literally), a group of a job (counts), or either of them prepared."""


def prepare(ask: Ask) -> PreparedAsk:
    """Take an ask apart. Raises `InvalidInput` for something else, an unknown group or a negative amount of a group."""
    if isinstance(ask, PreparedAsk):
        return ask
    if isinstance(ask, Allocation):
        return prepare_allocs((ask,))
    if is_group(ask):
        need = group_need(*ask)
        return PreparedAsk((), need, (), _amounts(need))
    raise InvalidInput("ask", ask, "an Allocation, a prepared ask, or a Job and the name of a group")


def is_group(ask: object) -> TypeGuard[tuple[Job, str]]:
    """Return whether an ask is a job with the name of a group."""
    return isinstance(ask, tuple) and len(ask) == 2 and isinstance(ask[0], Job) and isinstance(ask[1], str)


def prepare_list(asks: Ask | Sequence[Ask]) -> PreparedAsk:
    """Take one ask, or several that are to fit together, apart as one. Several have to be literal."""
    if isinstance(asks, PreparedAsk | Allocation) or is_group(asks):
        return prepare(asks)
    if not isinstance(asks, Iterable):
        raise InvalidInput("allocs", asks, "an ask, or a list of allocations")
    prepared = [prepare(ask) for ask in cast("Sequence[Ask]", asks)]
    if len(prepared) == 1:
        return prepared[0]
    if any(ask.need is not None for ask in prepared):
        raise InvalidInput("allocs", asks, "a single group, or allocations")
    return prepare_allocs([alloc for ask in prepared for alloc in ask.allocs])


def prepare_allocs(allocs: Iterable[Allocation]) -> PreparedAsk:
    """Take allocations that are to fit together apart as one ask, in this order."""
    canonical = tuple(canonical_alloc(alloc) for alloc in allocs)
    return PreparedAsk(canonical, None, tuple(alloc.id for alloc in canonical), total_numbers([numbers_of(alloc) for alloc in canonical]))


def numbers_of(alloc: Allocation) -> AllocNumbers:
    """Return what a canonical allocation asks; nothing if its client is terminal."""
    return AllocNumbers() if alloc.is_client_terminal else encode_demand(demand_of(alloc))


def total_numbers(parts: Sequence[AllocNumbers]) -> AllocNumbers:
    """Return the sum of what several allocations ask; irregular if two of them ask for the same thing, or one is irregular."""
    if len(parts) == 1:
        return parts[0]
    claims = array("Q")
    for part in parts:
        if part.irregular:
            return IRREGULAR_ASK
        claims.frombytes(part.claims)
    keys: set[int] = set()
    for claim in claims:
        key = claim >> CLAIM_FLAG_BITS
        if key in keys:
            return IRREGULAR_ASK
        keys.add(key)
    amounts = (
        sum(part.cpu_mhz for part in parts),
        sum(part.memory_mib for part in parts),
        sum(part.memory_max_mib for part in parts),
        sum(part.disk_mib for part in parts),
    )
    if any(abs(amount) > AMOUNT_LIMIT for amount in amounts):
        return IRREGULAR_ASK
    return AllocNumbers(*amounts, claims=claims.tobytes())


def _amounts(need: GroupNeed) -> AllocNumbers:
    """Return the amounts and volume claims of a group."""
    amounts = (need.cpu_mhz, need.memory_mib, need.memory_max_mib, need.disk_mib)
    sources: dict[str, bool] = {}
    for source, exclusive in need.volumes:
        if source in sources and (exclusive or sources[source]):
            return IRREGULAR_ASK
        sources[source] = exclusive
    if any(abs(amount) > AMOUNT_LIMIT for amount in amounts):
        return IRREGULAR_ASK
    return AllocNumbers(*amounts, claims=array("Q", [volume_claim(source, exclusive=exclusive) for source, exclusive in sources.items()]).tobytes())
