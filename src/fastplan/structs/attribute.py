"""Typed values of device attributes (schedulers 4)."""

from __future__ import annotations

import msgspec


class Attribute(msgspec.Struct, frozen=True):
    """A value of a device attribute. `value` is int, float, str or bool, and the type matters; `unit` is empty for none."""

    value: int | float | str | bool
    unit: str = ""
