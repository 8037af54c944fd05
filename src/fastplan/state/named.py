"""Records that the state keeps in the API's shape without looking into them: node pools, namespaces, the scheduler configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fastplan.errors import InvalidInput
from fastplan.structs.record import Record


class _Named(Record):
    name: str = ""


class _Opaque(Record):
    pass


def read_named(data: Mapping[str, Any], path: str) -> tuple[str, dict[str, Any]]:
    """Return the name and a checked copy of a node pool or namespace. Raises InvalidInput naming path and value."""
    record = _Named.from_api(_mapping(data, path), path)
    if not record.name:
        raise InvalidInput(f"{path}.Name", record.name, "text that is not empty")
    return record.name, record.to_api()


def read_opaque(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a checked copy of any JSON object. Raises InvalidInput naming path and value."""
    return _Opaque.from_api(_mapping(data, path), path).to_api()


def _mapping(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    if not isinstance(data, Mapping):
        raise InvalidInput(path, data, "object")
    return dict(data)
