"""What the operands of constraints mean (schedulers 8.4). None of them raises: what cannot be read is not met."""

from __future__ import annotations

import math
from typing import Final

from fastplan.scheduler.attributes import compare_attributes
from fastplan.scheduler.numbers import parse_float64, parse_int64
from fastplan.scheduler.patterns import matches
from fastplan.scheduler.versions import semver_meets, version_meets
from fastplan.structs import Attribute

_EQUAL: Final = frozenset({"=", "==", "is"})
_UNEQUAL: Final = frozenset({"!=", "not"})
_ORDERS: Final = frozenset({"<", "<=", ">", ">="})
_CONTAINS: Final = frozenset({"set_contains", "set_contains_all"})
CHECKED_ELSEWHERE: Final = frozenset({"distinct_hosts", "distinct_property"})
"""Operands that compare a node with others: they have steps of their own (schedulers 8.5)."""


def check_constraint(operand: str, left: str, right: str, left_found: bool = True, right_found: bool = True) -> bool:
    """Return whether *left* and *right*, already resolved, meet a constraint; False for an operand that nobody knows.

    *left_found*, *right_found*: whether a target was there at all; the text is empty otherwise.
    """
    if operand in CHECKED_ELSEWHERE:
        return True
    if operand == "is_set":
        return left_found
    if operand == "is_not_set":
        return not left_found
    left, right = left if left_found else "", right if right_found else ""
    if operand in _UNEQUAL:
        return left != right
    if not (left_found and right_found):
        return False
    if operand in _EQUAL:
        return left == right
    if operand in _ORDERS:
        return _in_order(operand, left, right)
    if operand == "version":
        return version_meets(left, right)
    if operand == "semver":
        return semver_meets(left, right)
    if operand == "regexp":
        return matches(left, right)
    if operand in _CONTAINS:
        return _items(right) <= _items(left)
    if operand == "set_contains_any":
        return not _items(right).isdisjoint(_items(left))
    return False


def check_attribute_constraint(
    operand: str,
    left: Attribute | None,
    right: Attribute | None,
    left_found: bool = True,
    right_found: bool = True,
    *,
    exact: bool = False,
) -> bool:
    """Return whether two attributes of devices meet a constraint. *exact*: see `compare_attributes`."""
    if operand in CHECKED_ELSEWHERE:
        return True
    if operand == "is_set":
        return left_found
    if operand == "is_not_set":
        return not left_found
    mine, theirs = left if left_found else None, right if right_found else None
    if operand in _UNEQUAL and (mine is None) != (theirs is None):
        return True
    if mine is None or theirs is None:
        return False
    if operand in _EQUAL | _UNEQUAL | _ORDERS:
        order = compare_attributes(mine, theirs, exact=exact)
        return order is not None and _meets_order(operand, order)
    if not isinstance(theirs.value, str):
        return False
    if operand in ("version", "semver"):
        if isinstance(mine.value, bool | float):
            return False
        return (version_meets if operand == "version" else semver_meets)(str(mine.value), theirs.value)
    if not isinstance(mine.value, str):
        return False
    if operand == "regexp":
        return matches(mine.value, theirs.value)
    if operand in _CONTAINS:
        return _items(theirs.value) <= _items(mine.value)
    if operand == "set_contains_any":
        return not _items(theirs.value).isdisjoint(_items(mine.value))
    return False


def _in_order(operand: str, left: str, right: str) -> bool:
    """Compare as 64-bit integers if both are, else as floats, else as bytes."""
    my_integer, their_integer = parse_int64(left), parse_int64(right)
    if my_integer is not None and their_integer is not None:
        return _meets_order(operand, (my_integer > their_integer) - (my_integer < their_integer))
    mine, theirs = parse_float64(left), parse_float64(right)
    if mine is not None and theirs is not None:
        if math.isnan(mine) or math.isnan(theirs):
            return False
        return _meets_order(operand, (mine > theirs) - (mine < theirs))
    my_bytes, their_bytes = left.encode(errors="surrogatepass"), right.encode(errors="surrogatepass")
    return _meets_order(operand, (my_bytes > their_bytes) - (my_bytes < their_bytes))


def _meets_order(operand: str, order: int) -> bool:
    if operand in _EQUAL:
        return order == 0
    if operand in _UNEQUAL:
        return order != 0
    if operand == "<":
        return order < 0
    if operand == "<=":
        return order <= 0
    return order > 0 if operand == ">" else order >= 0


def _items(text: str) -> set[str]:
    return {item.strip() for item in text.split(",")}
