"""Typed attributes of devices (schedulers 8.4, "Device attributes"), under both rule sets, and the recorded answers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.scheduler import check_attribute_constraint, parse_attribute
from fastplan.scheduler.attributes import UNITS, compare_attributes
from fastplan.structs import Attribute
from tests.scheduler.constraint_answers import attribute_from, recorded


def check(left: str, operand: str, right: str, *, exact: bool = False) -> bool:
    return check_attribute_constraint(operand, parse_attribute(left), parse_attribute(right), exact=exact)


def test_recorded_answers():
    differing = []
    for case in recorded("attribute"):
        given = case["input"]
        left, right = attribute_from(given["left"]), attribute_from(given["right"])
        found = check_attribute_constraint(given["operand"], left, right, given["left_found"], given["right_found"])
        order = None if left is None or right is None else compare_attributes(left, right)
        if found is not case["answer"]["result"] or order != case["answer"]["compare"]:
            differing.append(case["id"])
    assert differing == []


def test_recorded_crashes_are_not_met():
    for case in recorded("attribute-invalid"):
        given = case["input"]
        for exact in (False, True):
            assert not check_attribute_constraint(given["operand"], attribute_from(given["left"]), attribute_from(given["right"]), exact=exact), case["id"]


def test_recorded_literals():
    for case in recorded("attribute-parse"):
        found, wanted = parse_attribute(case["input"]["text"]), attribute_from(case["answer"])
        assert wanted is not None
        assert repr(found) == repr(wanted), case["id"]


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("4GiB", 4, "GiB"),
        ("4 GiB", 4, "GiB"),
        ("1.5 GB/s", 1.5, "GB/s"),
        ("500mW", 500, "mW"),
        ("2GHz", 2, "GHz"),
        ("12", 12, ""),
        ("1.5", 1.5, ""),
        ("1", 1, ""),
        ("0", 0, ""),
        ("t", True, ""),
        ("FALSE", False, ""),
        ("tRUE", "tRUE", ""),
        ("GiB", "GiB", ""),
        ("x GiB", "x GiB", ""),
        ("4gib", "4gib", ""),
        ("9223372036854775808", 9223372036854775808.0, ""),
        ("", "", ""),
    ],
)
def test_literals(text, value, unit):
    found = parse_attribute(text)
    assert (found.value, type(found.value), found.unit) == (value, type(value), unit)


@pytest.mark.parametrize(
    ("left", "operand", "right", "holds"),
    [
        ("4GiB", ">", "4000MiB", True),
        ("1GiB", "=", "1024MiB", True),
        ("1kB", "=", "1KB", True),
        ("1GHz", "<", "1001MHz", True),
        ("1.5GiB", "=", "1536MiB", True),
        ("1500mW", "=", "1.5W", True),
        ("2", ">", "1.5", True),
        # Of different kinds: nothing holds, not even that they differ.
        ("1GiB", "!=", "1GHz", False),
        ("1GiB", "!=", "1", False),
        ("1GiB", "!=", "1GiB/s", False),
        ("x", "!=", "1", False),
        ("x", "!=", "y", True),
        ("a", "<", "b", True),
        # Booleans are equal or different.
        ("true", "=", "t", True),
        ("true", ">", "false", True),
        ("false", ">", "true", True),
        ("false", "<", "true", False),
        ("true", ">=", "true", True),
        ("true", "<=", "true", True),
        ("true", "<=", "false", False),
        ("true", "=", "1", False),
        # The right side of these must be text, and literals are typed.
        ("1", "regexp", "1", False),
        ("abc", "regexp", "b", True),
        ("abc", "regexp", "1", False),
        ("a,b", "set_contains", "a", True),
        ("a,b", "set_contains_any", "x,b", True),
        ("a,4GiB", "set_contains", "4GiB", False),
        ("1.2.3", "version", ">= 1.2.0", True),
        ("2", "version", ">= 1.2.0", True),
        ("1.5", "version", ">= 1.2.0", False),
        ("1.2.3", "version", "1.5", False),
        ("1.2.3", "semver", "~> 1.2", False),
        ("a", "distinct_hosts", "b", True),
        ("a", "nobody_knows", "a", False),
    ],
)
@pytest.mark.parametrize("exact", [False, True])
def test_operands(left, operand, right, holds, exact):
    assert check(left, operand, right, exact=exact) is holds


@pytest.mark.parametrize(
    ("left", "operand", "right", "nomad", "strict"),
    [
        ("16EiB", "=", "0GiB", True, False),
        ("16EiB", ">", "1GiB", False, True),
        ("8EiB", "<", "0GiB", True, False),
        ("1499mW", "=", "1W", True, False),
        ("1499mW", ">", "1W", False, True),
        ("999mW", "=", "0W", True, False),
        ("-1499mW", "<", "-1W", False, True),
    ],
)
def test_rules_differ_where_64_bits_wrap_and_parts_of_a_watt_are_cut_off(left, operand, right, nomad, strict):
    assert (check(left, operand, right), check(left, operand, right, exact=True)) == (nomad, strict)


@pytest.mark.parametrize(
    ("operand", "left", "right", "holds"),
    [
        ("=", None, None, False),
        ("!=", None, None, False),
        ("!=", Attribute(1), None, True),
        ("not", None, Attribute(1), True),
        ("is_set", Attribute(1), None, True),
        ("is_set", None, None, False),
        ("is_not_set", None, None, True),
        ("<", None, Attribute(1), False),
        ("regexp", None, Attribute("x"), False),
    ],
)
def test_what_is_missing(operand, left, right, holds):
    assert check_attribute_constraint(operand, left, right, left is not None, right is not None) is holds


def test_an_unknown_unit_compares_with_nothing():
    assert compare_attributes(Attribute(1, "furlong"), Attribute(1, "furlong")) is None


def test_numbers_beyond_every_float():
    huge, nan = Attribute(10**400), Attribute(math.nan)
    assert compare_attributes(huge, Attribute(math.inf), exact=True) == -1
    assert compare_attributes(huge, Attribute(1.5), exact=True) == 1
    assert compare_attributes(huge, nan, exact=True) is None
    assert compare_attributes(nan, nan) is None


UNITLESS = st.builds(Attribute, st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(), st.text(max_size=4), st.booleans()))
WITH_UNIT = st.builds(Attribute, st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)), st.sampled_from(sorted(UNITS)))
ATTRIBUTES = st.one_of(UNITLESS, WITH_UNIT)


@given(ATTRIBUTES, ATTRIBUTES, st.booleans())
def test_orders_agree_with_each_other(left, right, exact):
    there, back = compare_attributes(left, right, exact=exact), compare_attributes(right, left, exact=exact)
    if isinstance(left.value, bool):
        assert there == back
    else:
        assert there == (None if back is None else -back)
    for operand in ("=", "!=", "<", "<=", ">", ">=", "version", "regexp", "set_contains", "?"):
        assert check_attribute_constraint(operand, left, right, exact=exact) in (True, False)


@given(st.integers(0, 2**20), st.integers(0, 2**20), st.sampled_from(["MiB", "GB", "MHz", "W"]))
def test_small_amounts_are_the_same_under_both_rules(one, other, unit):
    left, right = Attribute(one, unit), Attribute(other, unit)
    assert compare_attributes(left, right) == compare_attributes(left, right, exact=True) == (one > other) - (one < other)


@given(st.text(max_size=12))
def test_no_literal_raises(text):
    assert isinstance(parse_attribute(text), Attribute)
