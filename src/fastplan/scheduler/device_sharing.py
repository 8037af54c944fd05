"""Sharing device instances among all requests of an allocation, where each request alone took what another one needs (known fault 22)."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from fastplan.fit.demand import DeviceUse
from fastplan.scheduler.device_offers import DeviceOffer, free_instances, group_matches, matched_weight
from fastplan.scheduler.node_facts import NodeFacts
from fastplan.structs import AllocatedDevice, RequestedDevice


def share_devices(facts: NodeFacts, requests: Sequence[RequestedDevice], used: Collection[DeviceUse]) -> list[list[DeviceOffer]] | None:
    """Return for each request what it gets, of one or several device groups, so that all are served; None if that cannot be."""
    candidates = [_candidates(facts, request, used) for request in requests]
    holders: dict[DeviceUse, int] = {}
    for place, request in enumerate(requests):
        for _ in range(request.count):
            if not _find_instance(place, candidates, holders):
                return None
    return [_offers(facts, request, candidates[place], place, holders) for place, request in enumerate(requests)]


def _candidates(facts: NodeFacts, request: RequestedDevice, used: Collection[DeviceUse]) -> list[DeviceUse]:
    matching = [kind for kind, group in facts.device_groups.items() if group_matches(request, kind, group, exact=True)]
    return [DeviceUse(kind, instance) for kind in matching for instance in free_instances(facts, request, kind, used)]


def _find_instance(place: int, candidates: Sequence[Sequence[DeviceUse]], holders: dict[DeviceUse, int]) -> bool:
    """Give one more instance to a request; whoever holds it may have to take another one, and so on."""
    # What each request that was reached would give up, and to whom.
    gives: dict[int, tuple[int, DeviceUse]] = {}
    waiting = deque([place])
    while waiting:
        taker = waiting.popleft()
        for use in candidates[taker]:
            holder = holders.get(use)
            if holder is None:
                holders[use] = taker
                while taker != place:
                    taker, use = gives[taker]
                    holders[use] = taker
                return True
            if holder != place and holder not in gives:
                gives[holder] = taker, use
                waiting.append(holder)
    return False


def _offers(facts: NodeFacts, request: RequestedDevice, candidates: Sequence[DeviceUse], place: int, holders: dict[DeviceUse, int]) -> list[DeviceOffer]:
    """Return the instances of a request by device group. An affinity counts in so far as all of its instances match: as the least group does."""
    by_kind: dict[tuple[str, str, str], list[str]] = {}
    for use in candidates:
        if holders.get(use) == place:
            by_kind.setdefault(use.kind, []).append(use.instance_id)
    least = min((matched_weight(request, facts.device_groups[kind], exact=True) for kind in by_kind), default=0)
    devices = [AllocatedDevice(vendor=vendor, type=device_type, name=name, device_ids=ids) for (vendor, device_type, name), ids in by_kind.items()]
    return [DeviceOffer(device, least if number == 0 else 0) for number, device in enumerate(devices)]
