"""The checks of one node that need nothing but the node (schedulers 8.5). Each returns why a node cannot be used, empty if it can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fastplan.scheduler.device_offers import group_matches
from fastplan.scheduler.node_facts import NodeFacts
from fastplan.scheduler.operands import check_constraint
from fastplan.scheduler.targets import resolve_target
from fastplan.structs import Constraint, Node, Port, RequestedDevice, TaskGroup, VolumeRequest

CLASS_INELIGIBLE: Final = "computed class ineligible"
MISSING_DRIVERS: Final = "missing drivers"
MISSING_DEVICES: Final = "missing devices"
MISSING_NETWORK: Final = "missing network"
MISSING_SECRETS: Final = "missing secrets provider"
MISSING_VOLUMES: Final = "missing compatible host volumes"
SHARED_CLAIM: Final = "conflicting claims for host volume with single-writer"
DISTINCT_HOSTS: Final = "distinct_hosts"

DEFAULT_MODE: Final = "host"
_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


def printed(constraint: Constraint) -> str:
    """Return a constraint as metrics name it."""
    return f"{constraint.ltarget} {constraint.operand} {constraint.rtarget}"


def constraint_holds(constraint: Constraint, node: Node) -> bool:
    """Return whether a node meets a constraint."""
    left, left_found = resolve_target(constraint.ltarget, node)
    right, right_found = resolve_target(constraint.rtarget, node)
    return check_constraint(constraint.operand, left, right, left_found, right_found)


def constraint_problem(constraints: Iterable[Constraint], node: Node) -> str:
    """Return the first constraint that a node does not meet."""
    return next((printed(constraint) for constraint in constraints if not constraint_holds(constraint, node)), "")


def driver_problem(drivers: Iterable[str], node: Node) -> str:
    """Return whether a driver is missing: not detected or not healthy, or, where the node says nothing of it, not among its attributes."""
    for driver in drivers:
        if driver in node.drivers:
            info = node.drivers[driver]
            if info is None or not (info.detected and info.healthy):
                return MISSING_DRIVERS
        elif node.attributes.get(f"driver.{driver}") not in _TRUE:
            return MISSING_DRIVERS
    return ""


def device_problem(requests: Sequence[RequestedDevice], facts: NodeFacts, *, exact: bool) -> str:
    """Return whether there are too few healthy devices for all requests together; a request may take from several groups."""
    if not requests:
        return ""
    free = {kind: sum(instance is not None and instance.healthy for instance in group.instances) for kind, group in facts.device_groups.items()}
    for request in requests:
        wanted = request.count
        for kind, group in facts.device_groups.items():
            if wanted and free[kind] and group_matches(request, kind, group, exact=exact):
                taken = min(wanted, free[kind])
                free[kind] -= taken
                wanted -= taken
        if wanted > 0:
            return MISSING_DEVICES
    return ""


def network_problem(mode: str, ports: Sequence[Port], node: Node) -> str:
    """Return whether a node lacks a network of a mode, or the host network of a port."""
    if mode == "none":
        return ""
    if mode not in _network_modes(node):
        return MISSING_NETWORK
    for port in ports:
        if not port.host_network:
            continue
        name, found = resolve_target(port.host_network, node)
        if not found:
            return f'invalid host network "{port.host_network}" template for port "{port.label}"'
        if name not in _aliases(node):
            return f'missing host network "{name}" for port "{port.label}"'
    return ""


def _network_modes(node: Node) -> set[str]:
    resources = node.node_resources
    if resources is None:
        return set()
    return {network.mode or DEFAULT_MODE for networks in (resources.networks, resources.node_networks) for network in networks or () if network is not None}


def _aliases(node: Node) -> set[str]:
    resources = node.node_resources
    networks = () if resources is None else resources.node_networks or ()
    return {address.alias for network in networks if network is not None for address in network.addresses}


def secrets_problem(group: TaskGroup, node: Node) -> str:
    """Return whether a provider of secrets is missing."""
    for task in group.tasks:
        for secret in task.secrets:
            provider = secret.get("Provider") if isinstance(secret, Mapping) else None
            if provider and f"plugins.secrets.{provider}.version" not in node.attributes:
                return MISSING_SECRETS
    return ""


def volume_problem(requests: Iterable[VolumeRequest], alloc_name: str, node: Node) -> str:
    """Return whether a host volume is missing, or may not be written to."""
    for request in requests:
        if request.type == "csi":
            # Volumes of that kind are registered with the cluster, which keeps none here.
            return f"missing CSI volume(s) {volume_source(request, alloc_name)}"
        if request.type not in ("", "host"):
            continue
        volume = node.host_volumes.get(volume_source(request, alloc_name))
        if volume is None or (volume.read_only and not request.read_only):
            return MISSING_VOLUMES
    return ""


def volume_source(request: VolumeRequest, alloc_name: str) -> str:
    """Return the name of the volume: one of its own for each allocation carries the index of the allocation's name."""
    if not request.per_alloc:
        return request.source
    start = alloc_name.rfind("[")
    return request.source + (alloc_name[start:] if start >= 0 else "")


def is_on(flag: str) -> bool:
    """Return whether the right side of `distinct_hosts` leaves it on: only a text that means false turns it off."""
    return flag not in _FALSE
