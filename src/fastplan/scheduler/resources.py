"""What a new allocation gets on one node: ports, device instances and cores, and who has to give way for them (schedulers 9.2, 9.3, 11)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from fastplan.errors import PortsUnavailable
from fastplan.fit.assign import PortOffer, TaskNetworkOffer
from fastplan.fit.demand import DeviceUse, device_uses
from fastplan.fit.lists import remove_allocs
from fastplan.fit.ports import PortIndex
from fastplan.scheduler.device_offers import group_matches, offer_devices, weight_of_affinities
from fastplan.scheduler.device_sharing import share_devices
from fastplan.scheduler.group_ask import GroupAsk, TaskAsk
from fastplan.scheduler.node_facts import NodeFacts
from fastplan.scheduler.preempt_devices import victims_for_device
from fastplan.scheduler.preempt_network import victims_for_network
from fastplan.scheduler.preemption import Preemptor
from fastplan.scheduler.targets import resolve_target
from fastplan.structs import (
    AllocatedCpu,
    AllocatedPort,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    Allocation,
    NetworkResource,
    Port,
    RequestedDevice,
)

INVALID_NODE: Final = "network: invalid node"
PORT_COLLISION: Final = "network: port collision"
NO_CORES: Final = "cores"
NO_NUMA_CORES: Final = "numa-cores"

T = TypeVar("T")


class ResourceChoice:
    """The choice of resources on one node. `choose` fills `resources`; `proposed` becomes what is left after `victims` gave way."""

    def __init__(self, facts: NodeFacts, proposed: list[Allocation], rng: random.Random, preemptor: Preemptor | None, *, exact: bool) -> None:
        """*proposed*: what is on the node, in canonical form. *rng* draws dynamic ports. *preemptor*: None where nobody has to give way.

        *exact*: how attributes of devices are compared, see `check_attribute_constraint`, and whether requests for devices make room for each other.
        """
        self.proposed = proposed
        self.victims: list[Allocation] = []
        self.resources = AllocatedResources()
        self.matched_weight = 0
        """Weights of the device affinities that are matched; `total_weight` those of all."""
        self.total_weight = 0
        self._facts = facts
        self._rng = rng
        self._preemptor = preemptor
        self._exact = exact
        self._booked: list[Allocation] = []
        self._requests: list[tuple[RequestedDevice, AllocatedTaskResources]] = []
        self._ports = PortIndex.of(facts.supply.ports)

    def choose(self, ask: GroupAsk) -> str:
        """Choose for all that is asked; return "" or the dimension that is exhausted (schedulers 12). Amounts are not checked here."""
        if self._ports.error:
            return INVALID_NODE
        if self._ports.add_canonical_allocs(self.proposed):
            return PORT_COLLISION
        self.resources = AllocatedResources(task_lifecycles=dict(ask.lifecycles), shared=AllocatedSharedResources(disk_mb=ask.disk_mib))
        if ask.network is not None and (problem := self._choose_group_network(ask.network)):
            return problem
        for task in ask.tasks:
            if problem := self._choose_task(task):
                return problem
        return ""

    # --- networks -------------------------------------------------------------------------------------------------

    def _choose_group_network(self, asked: NetworkResource) -> str:
        asked = self._interpolated(asked)
        ask = asked.to_api()
        offers = self._offer_ports(asked, lambda ports: ports.assign(ask, self._rng))
        if isinstance(offers, str):
            return offers
        shared = self.resources.shared
        shared.ports = [
            AllocatedPort(label=offer.label, value=offer.value, to=offer.to, host_ip=offer.host_ip, ignore_collision=offer.ignore_collision) for offer in offers
        ]
        shared.networks = [_group_network(asked, offers)]
        self._book(AllocatedResources(shared=shared))
        return ""

    def _interpolated(self, asked: NetworkResource) -> NetworkResource:
        """Return a network whose ports name host networks of this node, where they are templates."""
        if not any(port.host_network.startswith("${") for port in [*asked.reserved_ports, *asked.dynamic_ports]):
            return asked
        named = asked.copy()
        for port in [*named.reserved_ports, *named.dynamic_ports]:
            name, found = resolve_target(port.host_network, self._facts.node)
            port.host_network = name if found and name else port.host_network
        return named

    def _choose_task_network(self, asked: NetworkResource, task: AllocatedTaskResources) -> str:
        ask = asked.to_api()
        offer = self._offer_ports(asked, lambda ports: ports.assign_task(ask, self._rng))
        if isinstance(offer, str):
            return offer
        task.networks = [_task_network(asked, offer)]
        self._book(AllocatedResources(tasks={"": task}))
        return ""

    def _offer_ports(self, asked: NetworkResource, offer: Callable[[PortIndex], T]) -> T | str:
        """Return the offer, after somebody gave way if need be, or the dimension that is exhausted."""
        try:
            return offer(self._ports)
        except PortsUnavailable as problem:
            dimension = f"network: {problem}"
        if self._preemptor is None:
            return dimension
        victims = victims_for_network(self._preemptor, self._facts.supply, self.proposed, asked)
        if victims is None:
            return dimension
        self._evict(victims)
        try:
            return offer(self._ports)
        except PortsUnavailable as problem:
            return f"network: {problem}"

    def _book(self, resources: AllocatedResources) -> None:
        booked = Allocation(allocated_resources=resources)
        self._booked.append(booked)
        self._ports.add_canonical_allocs([booked])

    def _evict(self, victims: list[Allocation]) -> None:
        self.victims += victims
        self.proposed = remove_allocs(self.proposed, victims)
        self._ports = PortIndex.of(self._facts.supply.ports)
        self._ports.add_canonical_allocs([*self.proposed, *self._booked])

    # --- tasks ----------------------------------------------------------------------------------------------------

    def _choose_task(self, ask: TaskAsk) -> str:
        task = AllocatedTaskResources(cpu=AllocatedCpu(cpu_shares=ask.cpu_mhz), memory=ask.memory.copy())
        self.resources.tasks[ask.name] = task
        if ask.network is not None and (problem := self._choose_task_network(ask.network, task)):
            return problem
        for request in ask.devices:
            if problem := self._choose_devices(request, task):
                return problem
        return self._choose_cores(ask, task) if ask.cores > 0 else ""

    def _choose_devices(self, request: RequestedDevice, task: AllocatedTaskResources) -> str:
        self._requests.append((request, task))
        problem = self._offer_devices(request, task)
        if problem and self._preemptor is not None:
            victims = victims_for_device(self._preemptor, self._facts.supply, self.proposed, self._matcher(request), request.count)
            if victims is not None:
                self._evict(victims)
                problem = self._offer_devices(request, task)
        self.total_weight += weight_of_affinities(request)
        return problem

    def _offer_devices(self, request: RequestedDevice, task: AllocatedTaskResources) -> str:
        """Give instances to a request, under strict rules by taking others from the requests before if need be; or return what is exhausted."""
        offer = offer_devices(self._facts, request, self._used_devices(), exact=self._exact)
        if not isinstance(offer, str):
            task.devices.append(offer.device)
            self.matched_weight += offer.matched_weight
            return ""
        shared = share_devices(self._facts, [asked for asked, _ in self._requests], self._used_by_others()) if self._exact else None
        if shared is None:
            return f"devices: {offer}"
        for _, holder in self._requests:
            holder.devices = []
        self.matched_weight = 0
        for (_, holder), offers in zip(self._requests, shared, strict=True):
            holder.devices += [each.device for each in offers]
            self.matched_weight += sum(each.matched_weight for each in offers)
        return ""

    def _matcher(self, request: RequestedDevice) -> Callable[[tuple[str, str, str]], bool]:
        groups = self._facts.device_groups
        return lambda kind: group_matches(request, kind, groups[kind], exact=self._exact)

    def _used_devices(self) -> set[DeviceUse]:
        return self._used_by_others().union(device_uses(Allocation(allocated_resources=self.resources)))

    def _used_by_others(self) -> set[DeviceUse]:
        return {use for alloc in self.proposed for use in device_uses(alloc)}

    def _choose_cores(self, ask: TaskAsk, task: AllocatedTaskResources) -> str:
        free = set(self._facts.supply.cores)
        for resources in [*(alloc.allocated_resources for alloc in self.proposed), self.resources]:
            for other in () if resources is None else resources.tasks.values():
                if other is not None:
                    free.difference_update(other.cpu.reserved_cores)
        if len(free) < ask.cores:
            return NO_CORES
        chosen = self._on_one_numa_node(free, ask.cores) if ask.numa in ("require", "prefer") else None
        if chosen is None:
            if ask.numa == "require":
                return NO_NUMA_CORES
            chosen = sorted(free)[: ask.cores]
        speeds_mhz = self._facts.core_speeds_mhz
        task.cpu = AllocatedCpu(cpu_shares=sum(speeds_mhz.get(core, 0) for core in chosen), reserved_cores=chosen)
        return ""

    def _on_one_numa_node(self, free: set[int], count: int) -> list[int] | None:
        """Return the lowest cores of the first memory domain that has enough."""
        domains: dict[int, list[int]] = {}
        for core in self._facts.cores:
            if core.id in free:
                domains.setdefault(core.node_id, []).append(core.id)
        return next((sorted(cores)[:count] for _, cores in sorted(domains.items()) if len(cores) >= count), None)


def _group_network(asked: NetworkResource, offers: list[PortOffer]) -> NetworkResource:
    """Return the network of the group with the ports that it got; `Shared.Ports` is what counts (plan-apply 3.4)."""
    network = asked.copy()
    ports = [*network.reserved_ports, *network.dynamic_ports]
    for port, offer in zip(ports, offers, strict=True):
        port.value, port.to = offer.value, offer.to
    network.ip = offers[0].host_ip if offers else ""
    return network


def _task_network(asked: NetworkResource, offer: TaskNetworkOffer) -> NetworkResource:
    return NetworkResource(
        mode=asked.mode,
        device=offer.device,
        ip=offer.ip,
        mbits=offer.mbits,
        reserved_ports=_ports(offer.reserved_ports),
        dynamic_ports=_ports(offer.dynamic_ports),
    )


def _ports(offers: Iterable[PortOffer]) -> list[Port]:
    return [Port(label=offer.label, value=offer.value, to=offer.to) for offer in offers]
