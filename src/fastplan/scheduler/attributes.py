"""Attributes of devices: typed values with units (schedulers 8.4, "Device attributes")."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final, NamedTuple

from fastplan.scheduler.numbers import parse_float64, parse_int64
from fastplan.structs import Attribute

_TRUE: Final = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class Unit(NamedTuple):
    """A unit: what it measures, and how many of the base unit it is; a part of it where `divides`."""

    base: str
    factor: int
    divides: bool = False


def _units() -> dict[str, Unit]:
    units = {"MHz": Unit("Hz", 10**6), "GHz": Unit("Hz", 10**9), "mW": Unit("W", 1000, True), "W": Unit("W", 1)}
    units |= {name: Unit("W", 10**power) for name, power in (("kW", 3), ("MW", 6), ("GW", 9))}
    for suffix, base in (("", "B"), ("/s", "B/s")):
        for place, prefix in enumerate("KMGTPE", 1):
            units[f"{prefix}iB{suffix}"] = Unit(base, 1024**place)
            units[f"{prefix}B{suffix}"] = Unit(base, 1000**place)
        units[f"kB{suffix}"] = Unit(base, 1000)
    return units


UNITS: Final = _units()
_BY_LENGTH: Final = sorted(UNITS, key=len, reverse=True)


def parse_attribute(text: str) -> Attribute:
    """Return the typed value that a literal stands for: a number with a unit, an integer, a float, a boolean, else the text."""
    unit = next((unit for unit in _BY_LENGTH if text.endswith(unit)), "")
    if unit:
        number = _number(text.removesuffix(unit).strip())
        if number is not None:
            return Attribute(number, unit)
    number = _number(text)
    if number is not None:
        return Attribute(number)
    if text in _TRUE or text in _FALSE:
        return Attribute(text in _TRUE)
    return Attribute(text)


def _number(text: str) -> int | float | None:
    integer = parse_int64(text)
    return parse_float64(text) if integer is None else integer


def compare_attributes(left: Attribute, right: Attribute, *, exact: bool = False) -> int | None:
    """Return −1, 0 or 1, None where two values cannot be compared.

    *exact*: without the 64-bit wrap, and without cutting off parts of a watt. Booleans are equal (0) or different (1).
    """
    mine, theirs = left.value, right.value
    if isinstance(mine, bool) or isinstance(theirs, bool):
        both = isinstance(mine, bool) and isinstance(theirs, bool) and not left.unit and not right.unit
        return int(mine is not theirs) if both else None
    if isinstance(mine, str) or isinstance(theirs, str):
        if not (isinstance(mine, str) and isinstance(theirs, str)):
            return None
        return _order(mine.encode(errors="surrogatepass"), theirs.encode(errors="surrogatepass"))
    my_unit, their_unit = UNITS.get(left.unit), UNITS.get(right.unit)
    if bool(left.unit) != bool(right.unit) or (left.unit and (my_unit is None or their_unit is None or my_unit.base != their_unit.base)):
        return None
    if not exact and isinstance(mine, int) and isinstance(theirs, int):
        return _order(_wrapped(mine, my_unit), _wrapped(theirs, their_unit))
    if any(isinstance(value, float) and math.isnan(value) for value in (mine, theirs)):
        return None
    return _order(_exact(mine, my_unit), _exact(theirs, their_unit))


def _order(mine: bytes | int | Fraction | float, theirs: bytes | int | Fraction | float) -> int:
    return (mine > theirs) - (mine < theirs)  # type: ignore[operator]


def _wrapped(value: int, unit: Unit | None) -> int:
    """Return an integer in the base unit, as 64-bit arithmetic has it."""
    if unit is None:
        return value
    if unit.divides:
        return abs(value) // unit.factor * (1 if value >= 0 else -1)
    return (value * unit.factor + 2**63) % 2**64 - 2**63


def _exact(value: int | float, unit: Unit | None) -> Fraction | float:
    if isinstance(value, float) and math.isinf(value):
        return value
    fraction = Fraction(value)
    if unit is None:
        return fraction
    return fraction / unit.factor if unit.divides else fraction * unit.factor
