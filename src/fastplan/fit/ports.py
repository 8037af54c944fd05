"""Port accounting on one node: which ports are held where, and which could be given out (plan-apply 3, schedulers.md 9.3)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from fastplan.errors import PortsUnavailable
from fastplan.fit.assign import PortOffer, TaskNetworkOffer, candidate_addresses, draw_port
from fastplan.fit.demand import PortList, port_lists
from fastplan.fit.node_ports import NodePorts, TaskNetwork, node_ports
from fastplan.fit.port_ranges import PORT_COUNT, PortRange
from fastplan.fit.port_set import PortSet
from fastplan.structs.canonical import canonical_alloc, canonical_node
from fastplan.structs.resources import NetworkResource

if TYPE_CHECKING:
    import random

    from fastplan.structs import Allocation, Node, Port


_NOTHING_HELD = PortSet()


class PortIndex:
    """The ports of one node and of the allocations added to it.

    `error` is empty, or why the node's reserved-port text is unusable; such an index holds what was read before the problem.
    Raises `InvalidInput` when the text reaches 65536 on some address, which parses but no port set can hold (plan-apply 2.10).
    """

    def __init__(self, node: Node) -> None:
        self._bind(node_ports(canonical_node(node)))

    @classmethod
    def of(cls, ports: NodePorts) -> PortIndex:
        """Return the index of a node whose port data is known already."""
        index = cls.__new__(cls)
        index._bind(ports)
        return index

    def _bind(self, ports: NodePorts) -> None:
        if ports.invalid is not None:
            raise ports.invalid.error()
        self._node = ports
        self._sets = {address: PortSet(reserved) for address, reserved in ports.reserved.items()}
        self._used_mbits: dict[str, int] = {}

    @property
    def error(self) -> str:
        """Empty, or why the node's reserved-port text is unusable, as Nomad words it (plan-apply 3.2, 3.3)."""
        return self._node.error

    @property
    def host_networks(self) -> dict[str, list[str]]:
        """The addresses of each alias, in node order."""
        return {alias: list(addresses) for alias, addresses in self._node.host_networks.items()}

    @property
    def dynamic_range(self) -> tuple[int, int]:
        """The lowest and the highest dynamic port; a node may state them inverted."""
        return self._node.dynamic_range

    def used_ports(self) -> dict[str, list[PortRange]]:
        """Return the ports in use by address, as ascending (first, last) pairs; an address may have none."""
        return {address: ports.ranges() for address, ports in self._sets.items()}

    def add_allocs(self, allocs: Iterable[Allocation]) -> str:
        """Book the ports of *allocs*, in order; return the reason of the last collision, or "" (plan-apply 3.4, 3.6).

        Client-terminal allocations hold nothing. All are booked even after a collision. Raises `InvalidInput` at a null network.
        """
        return self.add_canonical_allocs(canonical_alloc(alloc) for alloc in allocs)

    def add_canonical_allocs(self, allocs: Iterable[Allocation]) -> str:
        """Do what `add_allocs` does, for allocations that are in canonical form already (plan-apply 1.7)."""
        reason = ""
        for alloc in allocs:
            if alloc.is_client_terminal:
                continue
            for booked in port_lists(alloc):
                if texts := self._book(booked):
                    reason = f"collision when reserving port for {_holder(alloc, booked)}: [{' '.join(texts)}]"
        return reason

    def _book(self, booked: PortList) -> list[str]:
        texts: list[str] = []
        for address, port, ignores_collision in booked.uses:
            if not 0 <= port < PORT_COUNT:
                # Ends the list at once: earlier texts are dropped, later ports stay unmarked, bandwidth is not added.
                return [f"invalid port {port}"]
            ports = self._set_of(address)
            if port not in ports:
                ports.add(port)
            elif not ignores_collision:
                texts.append(f"port {port} already in use")
        if booked.network is not None:
            device = booked.network.device
            self._used_mbits[device] = self._used_mbits.get(device, 0) + booked.network.mbits
        return texts

    def _set_of(self, address: str) -> PortSet:
        ports = self._sets.get(address)
        if ports is None:
            ports = self._sets[address] = PortSet()
        return ports

    def assign(self, ask: dict[str, Any], rng: random.Random | None = None) -> list[PortOffer]:
        """Return ports for a group network *ask* (network object of the API), static ones first; nothing is booked (schedulers.md 9.3).

        A static port is offered on the first address of its host network where it is free, a dynamic one on the first that has a free
        port: the lowest, or with *rng* a random one. All dynamic ports of an offer differ from every other port in it.

        Raises `PortsUnavailable` with Nomad's text, `InvalidInput` when *ask* cannot be read.
        """
        wanted = NetworkResource.from_api(ask, "ask")
        offers = [self._offer_static(port) for port in wanted.reserved_ports]
        offered = {offer.value for offer in offers}
        offers += [self._offer_dynamic(port, self._addresses(port.host_network), offered, rng) for port in wanted.dynamic_ports]
        return offers

    def _addresses(self, host_network: str) -> tuple[str, ...]:
        addresses = self._node.host_networks.get(host_network, ()) if host_network else ()
        if not addresses:
            raise PortsUnavailable(f"no addresses available for {host_network} network")
        return addresses

    def _offer_static(self, port: Port) -> PortOffer:
        addresses = self._addresses(port.host_network)
        for address in addresses:
            if self._static_problem(port, address) == "":
                return _offer(port, port.value, port.to, address)
        raise PortsUnavailable(self._static_problem(port, addresses[-1]))

    def _static_problem(self, port: Port, address: str, *, may_ignore: bool = True) -> str:
        if not 0 <= port.value < PORT_COUNT:
            return f"invalid port {port.value} (out of range)"
        if port.value in self._sets.get(address, _NOTHING_HELD) and not (may_ignore and port.ignore_collision):
            return f"reserved port collision {port.label}={port.value}"
        return ""

    def _offer_dynamic(self, port: Port, addresses: Iterable[str], offered: set[int], rng: random.Random | None) -> PortOffer:
        """Return a port that is not among *offered*, and add it to them."""
        for address in addresses:
            value = draw_port(self._node.dynamic_range, self._sets.get(address, _NOTHING_HELD), offered, rng)
            if value is not None:
                offered.add(value)
                return _offer(port, value, value if port.to == -1 else port.to, address)
        raise PortsUnavailable("dynamic port selection failed")

    def assign_task(self, ask: dict[str, Any], rng: random.Random | None = None) -> TaskNetworkOffer:
        """Return an address and ports for the network *ask* of a single task, the older kind; nothing is booked (schedulers.md 9.3).

        The node's networks with a device are tried in order; here bandwidth counts, and host networks do not.

        Raises `PortsUnavailable` with the text of the last address tried, `InvalidInput` when *ask* cannot be read.
        """
        wanted = NetworkResource.from_api(ask, "ask")
        problem = "no networks available"
        for network in self._node.task_networks:
            for address in candidate_addresses(network, self._sets):
                try:
                    return self._offer_task(wanted, network, address, rng)
                except PortsUnavailable as refusal:
                    problem = str(refusal)
        raise PortsUnavailable(problem)

    def _offer_task(self, wanted: NetworkResource, network: TaskNetwork, address: str, rng: random.Random | None) -> TaskNetworkOffer:
        if self._used_mbits.get(network.device, 0) + wanted.mbits > network.mbits:
            raise PortsUnavailable("bandwidth exceeded")
        for port in wanted.reserved_ports:
            if problem := self._static_problem(port, address, may_ignore=False):
                raise PortsUnavailable(problem)
        reserved = tuple(_offer(port, port.value, port.to, address) for port in wanted.reserved_ports)
        offered = {offer.value for offer in reserved}
        dynamic = tuple(self._offer_dynamic(port, (address,), offered, rng) for port in wanted.dynamic_ports)
        return TaskNetworkOffer(address, network.device, wanted.mbits, reserved, dynamic)


def _holder(alloc: Allocation, booked: PortList) -> str:
    if booked.network is None:
        return f"alloc {alloc.id}"
    owner = f"task {booked.task} of alloc {alloc.id}" if booked.task is not None else f"alloc {alloc.id}"
    return f"network {booked.network.ip} in {owner}"


def _offer(port: Port, value: int, to: int, address: str) -> PortOffer:
    return PortOffer(port.label, value, to, address, port.ignore_collision)
