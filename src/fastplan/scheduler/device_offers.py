"""Device instances for a request (schedulers 8.5, 9.2): which group of a node serves it best, and which instances are free."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final, NamedTuple

from fastplan.fit.demand import DeviceUse
from fastplan.fit.group import DeviceRequest
from fastplan.fit.supply import DeviceKind
from fastplan.scheduler.node_facts import NodeFacts
from fastplan.scheduler.operands import check_attribute_constraint
from fastplan.scheduler.targets import resolve_device_target
from fastplan.structs import Affinity, AllocatedDevice, Constraint, NodeDevice, RequestedDevice

NO_DEVICES: Final = "no devices available"
NONE_ASKED: Final = "invalid request of zero devices"
NO_MATCH: Final = "no devices match request"

_IDS_TARGET: Final = "${device.ids}"
_NAMING_OPERANDS: Final = frozenset({"=", "==", "is", "set_contains", "set_contains_all", "set_contains_any"})


class DeviceOffer(NamedTuple):
    """Instances of one device group, and the weights of the affinities that it matches."""

    device: AllocatedDevice
    matched_weight: int


def offer_devices(facts: NodeFacts, request: RequestedDevice, used: Collection[DeviceUse], *, exact: bool) -> DeviceOffer | str:
    """Return free healthy instances of the device group whose affinities match best, the last one of equals; or why there are none.

    *exact*: how attributes are compared, see `check_attribute_constraint`.
    """
    if not facts.device_groups:
        return NO_DEVICES
    if request.count == 0:
        return NONE_ASKED
    offer: DeviceOffer | None = None
    for kind, group in facts.device_groups.items():
        if not group_matches(request, kind, group, exact=exact):
            continue
        free = free_instances(facts, request, kind, used)
        if len(free) < request.count:
            continue
        matched = matched_weight(request, group, exact=exact)
        if offer is None or matched >= offer.matched_weight:
            vendor, device_type, name = kind
            offer = DeviceOffer(AllocatedDevice(vendor=vendor, type=device_type, name=name, device_ids=free[: request.count]), matched)
    return NO_MATCH if offer is None else offer


def group_matches(request: RequestedDevice, kind: DeviceKind, group: NodeDevice, *, exact: bool) -> bool:
    """Return whether a device group has the name that is asked for, and meets the constraints of the request."""
    if not DeviceRequest(tuple(request.name.split("/", 2)), request.count).matches(kind):
        return False
    device = group.to_api() if request.constraints else {}
    return all(_holds(constraint, device, exact) for constraint in request.constraints if constraint is not None)


def weight_of_affinities(request: RequestedDevice) -> int:
    """Return the weights of a request's affinities together, without their signs."""
    return sum(abs(affinity.weight) for affinity in request.affinities if affinity is not None)


def matched_weight(request: RequestedDevice, group: NodeDevice, *, exact: bool) -> int:
    """Return the weights of those affinities of a request that a device group matches."""
    device = group.to_api() if request.affinities else {}
    return sum(affinity.weight for affinity in request.affinities if affinity is not None and _holds(affinity, device, exact))


def free_instances(facts: NodeFacts, request: RequestedDevice, kind: DeviceKind, used: Collection[DeviceUse]) -> list[str]:
    """Return the healthy instances of a device group that nobody uses and that the request admits, in node order."""
    return [instance for instance in facts.supply.devices[kind] if DeviceUse(kind, instance) not in used and _may_be_given(request, instance)]


def _holds(condition: Constraint | Affinity, device: dict[str, Any], exact: bool) -> bool:
    left, left_found = resolve_device_target(condition.ltarget, device)
    right, right_found = resolve_device_target(condition.rtarget, device)
    return check_attribute_constraint(condition.operand, left, right, left_found, right_found, exact=exact)


def _may_be_given(request: RequestedDevice, instance: str) -> bool:
    """Return whether the constraints on instance ids leave an instance: one that names ids is about those instances, not about their whole group."""
    for constraint in request.constraints:
        if constraint is not None and constraint.ltarget == _IDS_TARGET and constraint.operand in _NAMING_OPERANDS:
            named = {text.strip() for text in constraint.rtarget.split(",")}
            if instance not in named:
                return False
    return True
