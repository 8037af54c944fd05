"""Who gives way for device instances (schedulers 11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastplan.fit.demand import DeviceUse, device_uses
from fastplan.fit.supply import DeviceKind, NodeSupply
from fastplan.scheduler.preemption import Preemptor
from fastplan.structs import Allocation
from fastplan.structs.canonical import canonical_alloc


def victims_for_device(
    preemptor: Preemptor, supply: NodeSupply, allocs: Sequence[Allocation], matches: Callable[[DeviceKind], bool], count: int
) -> list[Allocation] | None:
    """Choose victims among *allocs*, all that are proposed on a node, so that *count* instances of one matching kind are free; None if that cannot be.

    Of each kind allocations go by ascending priority until there are enough. Of several kinds the one is taken whose victims have the smallest sum of
    distinct priorities.
    """
    holders: dict[DeviceKind, list[tuple[Allocation, int]]] = {}
    used: set[DeviceUse] = {use for alloc in allocs for use in device_uses(canonical_alloc(alloc))}
    for alloc in preemptor.others(allocs):
        counts: dict[DeviceKind, int] = {}
        for use in device_uses(alloc):
            counts[use.kind] = counts.get(use.kind, 0) + 1
        for kind, held in counts.items():
            if kind in supply.devices and matches(kind):
                holders.setdefault(kind, []).append((alloc, held))
    best: list[Allocation] | None = None
    least = 0
    for kind, held_by in holders.items():
        free = sum(DeviceUse(kind, instance) not in used for instance in supply.devices[kind])
        victims = _of_one_kind(preemptor, held_by, count, free)
        if victims is None:
            continue
        priorities = sum({alloc.job.priority for alloc in victims if alloc.job is not None})
        if best is None or priorities < least:
            best, least = victims, priorities
    return best


def _of_one_kind(preemptor: Preemptor, held_by: list[tuple[Allocation, int]], count: int, free: int) -> list[Allocation] | None:
    instances = {alloc.id: held for alloc, held in held_by}
    chosen: list[Allocation] = []
    freed = 0
    for group in preemptor.by_priority(alloc for alloc, _ in held_by):
        for candidate in group:
            chosen.append(candidate.alloc)
            freed += instances[candidate.alloc.id]
            if freed + free >= count:
                break
        else:
            continue
        break
    else:
        return None
    # As recorded, what is free already does not count when superfluous victims are left out.
    missing = count - free if preemptor.strict else count
    kept: list[Allocation] = []
    freed = 0
    for alloc in sorted(chosen, key=lambda alloc: instances[alloc.id], reverse=True):
        if kept and freed >= missing:
            break
        kept.append(alloc)
        freed += instances[alloc.id]
    return kept
