"""Strict reading of JSON text, with the place of what is wrong."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

from fastplan.errors import InvalidInput


def decode_json(data: bytes, name: str) -> Any:
    """Return the value of a JSON text (RFC 8259, UTF-8); integers of any size stay exact. *name* stands for the text in errors.

    Raises InvalidInput for an empty text, malformed JSON with its line and column, NaN and infinity with their path, and text that is not UTF-8.
    """
    if not data.strip():
        raise InvalidInput(name, "", "JSON")
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        # The fast decoder does not say where; a second look with the standard one does.
        raise _fault(data, name) from None


def _fault(data: bytes, name: str) -> InvalidInput:
    start = data[:20].decode(errors="replace")
    try:
        value = json.loads(data)
    except json.JSONDecodeError as problem:
        return InvalidInput(f"{name} (line {problem.lineno}, column {problem.colno})", problem.doc[problem.pos : problem.pos + 20], f"JSON ({problem.msg})")
    except UnicodeDecodeError as problem:
        return InvalidInput(name, data[problem.start : problem.start + 8].hex(" "), "UTF-8 text")
    except RecursionError:
        return InvalidInput(name, start, "JSON that is nested less deeply")
    except ValueError as problem:
        return InvalidInput(name, start, f"JSON ({problem})")
    return _not_finite(value, name) or InvalidInput(name, start, "JSON as RFC 8259 has it, in Unicode")


def _not_finite(value: Any, path: str) -> InvalidInput | None:
    """Return what is wrong with the first number that is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return InvalidInput(path, value, "a finite number")
    steps: Any = ()
    if isinstance(value, dict):
        steps = ((f"{path}.{key}", item) for key, item in value.items())
    elif isinstance(value, list):
        steps = ((f"{path}[{index}]", item) for index, item in enumerate(value))
    return next((fault for step, item in steps if (fault := _not_finite(item, step))), None)
