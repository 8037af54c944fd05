"""The class of a node: what nodes have in common that constraints cannot tell apart (schedulers 8.2)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

from fastplan.structs import Node

_UNIQUE: Final = "unique."


def computed_class(node: Node) -> str:
    """Return the class of a node: what it says itself, else a hash over datacenter, class, pool, attributes, metadata and kinds of devices.

    Keys that start with `unique.` do not count, nor do id, name, status, resources, drivers and host volumes.
    """
    if node.computed_class:
        return node.computed_class
    devices = [] if node.node_resources is None else [device for device in node.node_resources.devices if device is not None]
    parts = (
        node.datacenter,
        node.node_class,
        node.node_pool,
        _common(node.attributes),
        _common(node.meta),
        [(device.vendor, device.type, device.name, _common(device.attributes)) for device in devices],
    )
    digest = hashlib.blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=8).digest()
    return f"v1:{int.from_bytes(digest, 'big')}"


def _common(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.startswith(_UNIQUE)}
