"""The recorded answers about constraints (oracles/constraints.md), by kind."""

from __future__ import annotations

import gzip
import json
from typing import Any

from fastplan.structs import Attribute
from tests.shared_data import shared_path


def recorded(kind: str) -> list[dict[str, Any]]:
    """Return the cases of one kind; never none."""
    with gzip.open(shared_path("oracles", "constraints.jsonl.gz"), "rt", encoding="utf-8") as lines:
        cases = [case for case in map(json.loads, lines) if case["kind"] == kind]
    assert cases
    return cases


def attribute_from(value: dict[str, Any] | None) -> Attribute | None:
    """Return an attribute as the recorded answers write it."""
    if value is None:
        return None
    unit = value.get("Unit", "")
    if "FloatText" in value:
        return Attribute(float(value["FloatText"]), unit)
    if "Float" in value:
        return Attribute(float(value["Float"]), unit)
    return Attribute(next(value[key] for key in ("Int", "String", "Bool") if key in value), unit)
