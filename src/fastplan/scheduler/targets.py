"""What the two sides of a constraint stand for (schedulers 8.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastplan.scheduler.attributes import parse_attribute
from fastplan.structs import Attribute, Node

ATTRIBUTE: Final = "${attr."
META: Final = "${meta."
_DEVICE_ATTRIBUTE: Final = "${device.attr."

# A constraint on one of these says something of single nodes, not of classes of them (schedulers 8.2).
_UNIQUE: Final = ("${unique.", "${node.unique.", "${attr.unique.", "${meta.unique.")


def is_unique(target: str) -> bool:
    """Return whether a target tells nodes of one class apart."""
    return target.startswith(_UNIQUE)


def resolve_target(target: str, node: Node) -> tuple[str, bool]:
    """Return the text that *target* stands for on *node*, and whether it is there. Text that is no `${…}` stands for itself."""
    if not target.startswith("${"):
        return target, True
    match target:
        case "${node.unique.id}":
            return node.id, True
        case "${node.unique.name}":
            return node.name, True
        case "${node.datacenter}":
            return node.datacenter, True
        case "${node.class}":
            return node.node_class, True
        case "${node.pool}":
            return node.node_pool, True
    for prefix, values in ((ATTRIBUTE, node.attributes), (META, node.meta)):
        if target.startswith(prefix):
            value = values.get(target[len(prefix) :].removesuffix("}"))
            return ("", False) if value is None else (value, True)
    return "", False


def resolve_device_target(target: str, device: Mapping[str, Any]) -> tuple[Attribute | None, bool]:
    """Return what *target* stands for on a group of devices, in the shape of the API, and whether it is there."""
    if not target.startswith("${"):
        return parse_attribute(target), True
    match target:
        case "${device.ids}":
            return Attribute(",".join(str(instance.get("ID") or "") for instance in device.get("Instances") or ())), True
        case "${device.model}":
            return Attribute(str(device.get("Name") or "")), True
        case "${device.vendor}":
            return Attribute(str(device.get("Vendor") or "")), True
        case "${device.type}":
            return Attribute(str(device.get("Type") or "")), True
    if target.startswith(_DEVICE_ATTRIBUTE):
        value = (device.get("Attributes") or {}).get(target[len(_DEVICE_ATTRIBUTE) :].removesuffix("}"))
        if value is not None:
            return attribute_of(value), True
    return None, False


def attribute_of(value: Mapping[str, Any]) -> Attribute | None:
    """Return an attribute in the shape of the API, None for an empty one."""
    unit = str(value.get("Unit") or "")
    for key in ("Int", "Float", "String", "Bool"):
        found = value.get(key)
        if found is not None:
            return Attribute(float(found) if key == "Float" else found, unit)
    return None
