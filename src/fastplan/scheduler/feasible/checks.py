"""The checks of one node that need nothing but the node (schedulers 8.5). Each returns why a node cannot be used, None if it can."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from fastplan.scheduler.device_offers import group_matches
from fastplan.scheduler.device_sharing import share_devices
from fastplan.scheduler.node_facts import NodeFacts
from fastplan.scheduler.operands import check_constraint
from fastplan.scheduler.targets import is_unique, resolve_target
from fastplan.structs import Affinity, Constraint, Node, Port, RequestedDevice, TaskGroup, VolumeRequest

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


def constraint_holds(constraint: Constraint | Affinity, node: Node) -> bool:
    """Return whether a node meets a constraint, or matches an affinity."""
    left, left_found = resolve_target(constraint.ltarget, node)
    right, right_found = resolve_target(constraint.rtarget, node)
    return check_constraint(constraint.operand, left, right, left_found, right_found)


class Problem(NamedTuple):
    """Why a node cannot be used, as metrics name it; `of_class`: every node of its class has the same problem (schedulers 8.2)."""

    reason: str
    of_class: bool = True


def constraint_problem(constraints: Iterable[Constraint], node: Node) -> Problem | None:
    """Return the first constraint that a node does not meet."""
    failing = next((constraint for constraint in constraints if not constraint_holds(constraint, node)), None)
    return None if failing is None else Problem(printed(failing))


def driver_problem(drivers: Iterable[str], node: Node) -> Problem | None:
    """Return whether a driver is missing: not detected or not healthy, or, where the node says nothing of it, not among its attributes.

    What a node says of a driver is not part of its class, attributes are.
    """
    for driver in drivers:
        if driver in node.drivers:
            info = node.drivers[driver]
            if info is None or not (info.detected and info.healthy):
                return Problem(MISSING_DRIVERS, of_class=False)
        elif node.attributes.get(f"driver.{driver}") not in _TRUE:
            return Problem(MISSING_DRIVERS)
    return None


def device_problem(requests: Sequence[RequestedDevice], facts: NodeFacts, *, exact: bool) -> Problem | None:
    """Return whether there are too few healthy devices for all requests together; a request may take from several groups.

    *exact*: some way to share the devices out is enough. Otherwise each request in turn takes what comes first, as in the original.
    Which kinds of devices a node has is part of its class, how many of them are healthy is not.
    """
    enough = share_devices(facts, requests, ()) is not None if exact else _first_come(requests, facts)
    if enough:
        return None
    groups = facts.device_groups.items()
    lacks_kind = any(request.count > 0 and not any(group_matches(request, kind, group, exact=exact) for kind, group in groups) for request in requests)
    return Problem(MISSING_DEVICES, of_class=lacks_kind)


def _first_come(requests: Sequence[RequestedDevice], facts: NodeFacts) -> bool:
    free = {kind: sum(instance is not None and instance.healthy for instance in group.instances) for kind, group in facts.device_groups.items()}
    for request in requests:
        missing = request.count
        for kind, group in facts.device_groups.items():
            if missing > 0 and free[kind] and group_matches(request, kind, group, exact=False):
                taken = min(missing, free[kind])
                free[kind] -= taken
                missing -= taken
        if missing > 0:
            return False
    return True


def network_problem(mode: str, ports: Sequence[Port], node: Node) -> Problem | None:
    """Return whether a node lacks a network of a mode, or the host network of a port. Networks are not part of a node's class."""
    if mode == "none":
        return None
    if mode not in _network_modes(node):
        return Problem(MISSING_NETWORK, of_class=False)
    for port in ports:
        if not port.host_network:
            continue
        name, found = resolve_target(port.host_network, node)
        if not found:
            return Problem(f'invalid host network "{port.host_network}" template for port "{port.label}"', of_class=not is_unique(port.host_network))
        if name not in _aliases(node):
            return Problem(f'missing host network "{name}" for port "{port.label}"', of_class=False)
    return None


def _network_modes(node: Node) -> set[str]:
    resources = node.node_resources
    if resources is None:
        return set()
    return {network.mode or DEFAULT_MODE for networks in (resources.networks, resources.node_networks) for network in networks or () if network is not None}


def _aliases(node: Node) -> set[str]:
    resources = node.node_resources
    networks = () if resources is None else resources.node_networks or ()
    return {address.alias for network in networks if network is not None for address in network.addresses}


def secrets_problem(group: TaskGroup, node: Node) -> Problem | None:
    """Return whether a provider of secrets is missing."""
    for task in group.tasks:
        for secret in task.secrets:
            provider = secret.get("Provider") if isinstance(secret, Mapping) else None
            if provider and f"plugins.secrets.{provider}.version" not in node.attributes:
                return Problem(MISSING_SECRETS)
    return None


def volume_problem(requests: Iterable[VolumeRequest], alloc_name: str, node: Node) -> Problem | None:
    """Return whether a host volume is missing, or may not be written to. Volumes are not part of a node's class."""
    for request in requests:
        if request.type == "csi":
            # Volumes of that kind are registered with the cluster, which keeps none here.
            return Problem(f"missing CSI volume(s) {volume_source(request, alloc_name)}", of_class=False)
        if request.type not in ("", "host"):
            continue
        volume = node.host_volumes.get(volume_source(request, alloc_name))
        if volume is None or (volume.read_only and not request.read_only):
            return Problem(MISSING_VOLUMES, of_class=False)
    return None


def volume_source(request: VolumeRequest, alloc_name: str) -> str:
    """Return the name of the volume: one of its own for each allocation carries the index of the allocation's name."""
    if not request.per_alloc:
        return request.source
    start = alloc_name.rfind("[")
    return request.source + (alloc_name[start:] if start >= 0 else "")


def is_on(flag: str) -> bool:
    """Return whether the right side of `distinct_hosts` leaves it on: only a text that means false turns it off."""
    return flag not in _FALSE
