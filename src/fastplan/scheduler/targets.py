"""What the two sides of a constraint stand for (schedulers 8.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

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


class TargetKey(NamedTuple):
    """What of a node a target reads: `table` is `node`, `attr` or `meta`, `name` the field or key in it."""

    table: str
    name: str


_FIELDS: Final = {
    "${node.unique.id}": TargetKey("node", "id"),
    "${node.unique.name}": TargetKey("node", "name"),
    "${node.datacenter}": TargetKey("node", "datacenter"),
    "${node.class}": TargetKey("node", "node_class"),
    "${node.pool}": TargetKey("node", "node_pool"),
}


def read_key(target: str) -> TargetKey | None:
    """Return what of a node a target reads, None if it is the same for every node.

    Nodes with equal values there resolve the target alike, so a constraint needs to be checked once for each value.
    """
    for table, prefix in (("attr", ATTRIBUTE), ("meta", META)):
        if target.startswith(prefix):
            return TargetKey(table, target[len(prefix) :].removesuffix("}"))
    return _FIELDS.get(target)


def resolve_target(target: str, node: Node) -> tuple[str, bool]:
    """Return the text that *target* stands for on *node*, and whether it is there. Text that is no `${…}` stands for itself."""
    if not target.startswith("${"):
        return target, True
    key = read_key(target)
    return ("", False) if key is None else value_at(key, node)


def value_at(key: TargetKey, node: Node) -> tuple[str, bool]:
    """Return the text that a node has at *key*, and whether it is there: fields of a node always are."""
    if key.table == "node":
        text: str = getattr(node, key.name)
        return text, True
    value = (node.attributes if key.table == "attr" else node.meta).get(key.name)
    return ("", False) if value is None else (value, True)


def resolve_device_target(target: str, device: Mapping[str, Any]) -> tuple[Attribute | None, bool]:
    """Return what *target* stands for on a group of devices, in the shape of the API, and whether it is there."""
    if not target.startswith("${"):
        return parse_attribute(target), True
    match target:
        case "${device.ids}":
            instances = device.get("Instances") or ()
            return Attribute(",".join(str(instance.get("ID") or "") for instance in instances if isinstance(instance, Mapping))), True
        case "${device.model}":
            return Attribute(str(device.get("Name") or "")), True
        case "${device.vendor}":
            return Attribute(str(device.get("Vendor") or "")), True
        case "${device.type}":
            return Attribute(str(device.get("Type") or "")), True
    if target.startswith(_DEVICE_ATTRIBUTE):
        attributes = device.get("Attributes") or {}
        name = target[len(_DEVICE_ATTRIBUTE) :].removesuffix("}")
        if attributes.get(name) is not None:
            return attribute_of(attributes[name]), True
    return None, False


# The types that a value of each key may have: a boolean is an integer in Python, but not here.
_KINDS: Final[tuple[tuple[str, Any], ...]] = (("Int", int), ("Float", (int, float)), ("String", str), ("Bool", bool))


def attribute_of(value: Any) -> Attribute | None:
    """Return an attribute in the shape of the API, None for an empty or unreadable one."""
    if not isinstance(value, Mapping):
        return None
    for key, kinds in _KINDS:
        found = value.get(key)
        if found is None:
            continue
        if not isinstance(found, kinds) or (isinstance(found, bool) and key != "Bool"):
            return None
        return Attribute(float(found) if key == "Float" else found, str(value.get("Unit") or ""))
    return None
