"""Who gives way for bandwidth and static ports (schedulers 11, 7.9)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastplan.fit.demand import port_lists
from fastplan.fit.supply import NodeSupply
from fastplan.scheduler.preemption import Candidate, Preemptor
from fastplan.structs import Allocation, NetworkResource
from fastplan.structs.canonical import canonical_alloc


def victims_for_network(preemptor: Preemptor, supply: NodeSupply, allocs: Sequence[Allocation], ask: NetworkResource) -> list[Allocation] | None:
    """Choose victims among *allocs*, all that are proposed on a node, for the network *ask* of a group or task; None if none would help.

    The devices are tried one after another. First those go that hold static ports of the ask: a port that is held by somebody whose priority is too high
    rules the device out. Then, if bandwidth (Mbit/s) is short still, those whose bandwidth is nearest to what is missing, lowest priorities first.
    """
    others = preemptor.others(allocs)
    bandwidth_mbits = {network.device: network.mbits for network in supply.ports.task_networks}
    used_mbits = _used_mbits(allocs)
    by_device: dict[str, list[Allocation]] = {}
    kept_ports: dict[str, set[int]] = {}
    for alloc in others:
        networks = networks_of(alloc)
        if preemptor.may_evict(alloc):
            if networks:
                by_device.setdefault(networks[0].device, []).append(alloc)
            continue
        for network in networks:
            kept_ports.setdefault(network.device, set()).update(port.value for port in network.reserved_ports)
    for device, holders in by_device.items():
        available_mbits = bandwidth_mbits.get(device, 0)
        if ask.mbits > available_mbits:
            continue
        victims = _on_device(preemptor, holders, ask, kept_ports.get(device, set()), available_mbits - used_mbits.get(device, 0))
        if not victims:
            continue
        if not preemptor.strict and ask.mbits == 0 and available_mbits > 0:
            # As recorded: an ask without bandwidth counts as met by the first victim, so that the others seem superfluous, ports or not.
            del victims[1:]
        return victims
    return None


def _on_device(preemptor: Preemptor, holders: list[Allocation], ask: NetworkResource, kept_ports: set[int], free_mbits: int) -> list[Allocation] | None:
    by_port = {port.value: alloc for alloc in holders for network in networks_of(alloc) for port in network.reserved_ports}
    victims: dict[str, Allocation] = {}
    freed_mbits = 0
    for port in ask.reserved_ports:
        holder = by_port.get(port.value)
        if holder is not None:
            if holder.id not in victims:
                freed_mbits += mbits_of(holder)
                victims[holder.id] = holder
        elif port.value in kept_ports:
            return None
    if freed_mbits + free_mbits >= ask.mbits:
        return list(victims.values())
    missing_mbits = ask.mbits - freed_mbits
    for group in preemptor.by_priority(alloc for alloc in holders if alloc.id not in victims):
        while group:
            nearest = min(group, key=lambda candidate: _distance(candidate, missing_mbits))
            group.remove(nearest)
            mbits = mbits_of(nearest.alloc)
            victims[nearest.alloc.id] = nearest.alloc
            freed_mbits += mbits
            missing_mbits -= mbits
            if freed_mbits + free_mbits >= ask.mbits:
                return list(victims.values())
    return None


def _distance(candidate: Candidate, missing_mbits: int) -> float:
    if missing_mbits <= 0:
        return math.inf
    return abs((missing_mbits - mbits_of(candidate.alloc)) / missing_mbits) + candidate.penalty


def networks_of(alloc: Allocation) -> list[NetworkResource]:
    """Return the networks that a canonical allocation holds, those of its tasks first, by name."""
    resources = alloc.allocated_resources
    if resources is None:
        return []
    networks = [network for _, task in sorted(resources.tasks.items()) if task is not None for network in task.networks]
    return [network for network in [*networks, *resources.shared.networks] if network is not None]


def mbits_of(alloc: Allocation) -> int:
    """Return the bandwidth of an allocation's networks."""
    return sum(network.mbits for network in networks_of(alloc))


def _used_mbits(allocs: Sequence[Allocation]) -> dict[str, int]:
    used: dict[str, int] = {}
    for alloc in allocs:
        for booked in port_lists(canonical_alloc(alloc)):
            if booked.network is not None:
                used[booked.network.device] = used.get(booked.network.device, 0) + booked.network.mbits
    return used
