"""What a node contributes to port accounting: reservations, host networks, dynamic range (plan-apply 3.3, 3.7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from fastplan.fit.faults import Fault
from fastplan.fit.port_ranges import PORT_COUNT, PortRange, merge_port_ranges, parse_port_ranges

if TYPE_CHECKING:
    from fastplan.structs import Node, NodeResources

DYNAMIC_RANGE = (20000, 32000)
"""Where dynamic ports are drawn from unless the node says otherwise."""


class TaskNetwork(NamedTuple):
    """A node network that can serve the networks of single tasks: one with a device. `mbits` is its bandwidth."""

    device: str
    ip: str
    cidr: str
    mbits: int


@dataclass(frozen=True, slots=True)
class NodePorts:
    """The ports of one node before any allocation.

    `reserved` has for each address of the node, in node order, its reserved ports as ascending ranges that neither overlap nor touch.
    `error` is why the reserved-port text is unusable (step 7 of the check), `invalid` that it reaches 65536, which no port set holds.
    `host_networks` maps an alias to its addresses in node order; `dynamic_range` is lowest and highest dynamic port, possibly inverted.
    """

    reserved: Mapping[str, tuple[PortRange, ...]] = field(default_factory=dict)
    error: str = ""
    invalid: Fault | None = None
    host_networks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    dynamic_range: tuple[int, int] = DYNAMIC_RANGE
    task_networks: tuple[TaskNetwork, ...] = ()


NO_PORTS = NodePorts()


def node_ports(node: Node) -> NodePorts:
    """Return the port data of a canonical *node*; nothing is raised (plan-apply 3.3).

    Work stops at the first unusable text, as only its error counts then.
    """
    resources = node.node_resources
    if resources is None:
        return NO_PORTS
    low, high = resources.min_dynamic_port, resources.max_dynamic_port
    ranges: dict[str, list[PortRange]] = {}
    host_networks: dict[str, list[str]] = {}
    error, invalid = _collect(node, resources, ranges, host_networks)
    return NodePorts(
        reserved={address: _merged(tuple(written)) for address, written in ranges.items()},
        error=error,
        invalid=invalid,
        host_networks={alias: tuple(addresses) for alias, addresses in host_networks.items()},
        dynamic_range=(low if low > 0 else DYNAMIC_RANGE[0], high if high > 0 else DYNAMIC_RANGE[1]),
        task_networks=tuple(
            TaskNetwork(network.device, network.ip, network.cidr, network.mbits)
            for network in resources.networks or ()
            if network is not None and network.device
        ),
    )


def _collect(node: Node, resources: NodeResources, ranges: dict[str, list[PortRange]], host_networks: dict[str, list[str]]) -> tuple[str, Fault | None]:
    """Fill *ranges* by address and *host_networks* by alias; return the error of the first unusable text, or the fault that Nomad crashes on."""
    text = node.reserved_resources.networks.reserved_host_ports if node.reserved_resources is not None else ""
    parsed = parse_port_ranges(text)
    if parsed.error:
        return f"error parsing reserved_ports: {parsed.error}", None
    everywhere = list(parsed.ranges)
    everywhere_fault = _beyond("node.ReservedResources.Networks.ReservedHostPorts", text) if parsed.beyond_last_port else None
    for index, network in enumerate(node.legacy_reserved_networks):
        if network is None:
            return "", Fault(f"node.Reserved.Networks[{index}]", None, "an object")
        for port in [*network.reserved_ports, *network.dynamic_ports]:
            if not 0 <= port.value <= PORT_COUNT:
                return f"invalid port {port.value} for reserved_ports", None
            if port.value == PORT_COUNT:
                return "", _beyond(f"node.Reserved.Networks[{index}]", port.value)
            ranges.setdefault(network.ip, []).append((port.value, port.value))
            everywhere.append((port.value, port.value))
    for index, network in enumerate(resources.networks or ()):
        if network is None:
            return "", Fault(f"node.NodeResources.Networks[{index}]", None, "an object")
        if network.device:
            if everywhere_fault is not None:
                return "", everywhere_fault
            ranges.setdefault(network.ip, []).extend(everywhere)
    for index, host_network in enumerate(resources.node_networks or ()):
        if host_network is None:
            return "", Fault(f"node.NodeResources.NodeNetworks[{index}]", None, "an object")
        for address_index, address in enumerate(host_network.addresses):
            host_networks.setdefault(address.alias, []).append(address.address)
            if everywhere_fault is not None:
                return "", everywhere_fault
            own = parse_port_ranges(address.reserved_ports)
            if own.error:
                return f'error parsing reserved_ports for network "{address.alias}": {own.error}', None
            if own.beyond_last_port:
                return "", _beyond(f"node.NodeResources.NodeNetworks[{index}].Addresses[{address_index}].ReservedPorts", address.reserved_ports)
            ranges.setdefault(address.address, []).extend([*everywhere, *own.ranges])
    return "", None


@lru_cache(maxsize=4096)
def _merged(ranges: tuple[PortRange, ...]) -> tuple[PortRange, ...]:
    """Return *ranges* merged; remembered, since many nodes reserve the same ports, and shared by them."""
    return merge_port_ranges(ranges)


def _beyond(path: str, value: object) -> Fault:
    return Fault(path, value, f"ports below {PORT_COUNT}")
