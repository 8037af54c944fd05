"""Port-range text (plan-apply 3.2 and the list at the end of 10.2)."""

from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.fit.port_ranges import merge_port_ranges, parse_port_ranges

INVALID = 'strconv.ParseUint: parsing "{}": invalid syntax'
OUT_OF_RANGE = 'strconv.ParseUint: parsing "{}": value out of range'
FORMAT = "can only parse single port numbers or port ranges (ex. 80,100-120,150)"


def ports(text: str) -> list[int]:
    parsed = parse_port_ranges(text)
    assert parsed.error == ""
    return [port for first, last in parsed.ranges for port in range(first, last + 1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("80,443,1000-1002", [80, 443, 1000, 1001, 1002]),
        ("10,12-14,16", [10, 12, 13, 14, 16]),
        ("1-3,2-4", [1, 2, 3, 2, 3, 4]),
        ("0080", [80]),
        (" 80 , 90 ", [80, 90]),
        ("80, 8000-8001", [80, 8000, 8001]),
        ("\u00a080\t,\u300081\v", [80, 81]),
        ("7-7", [7]),
        ("65536", [65536]),
        ("0000000000000000000000000080", [80]),
    ],
)
def test_readable(text, expected):
    assert ports(text) == expected


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("-1", INVALID.format("")),
        ("-5", INVALID.format("")),
        ("8000-", INVALID.format("")),
        ("+5", INVALID.format("+5")),
        ("1_0", INVALID.format("1_0")),
        ("10 - 12", INVALID.format("10 ")),
        ("a-b", INVALID.format("a")),
        ("1-b", INVALID.format("b")),
        ("80,abc", INVALID.format("abc")),
        ("٣", INVALID.format("٣")),
        ("²", INVALID.format("²")),
        ("8\x1c", INVALID.format("8\\x1c")),  # Python's own strip() would take it away
        ('"8\\"', INVALID.format('\\"8\\\\\\"')),
        ("8\n9", INVALID.format("8\\n9")),
        ("8\u200b", INVALID.format("8\\u200b")),
        ("0", "port must be > 0"),
        ("0-1", "port must be > 0"),
        ("0-70000", "port must be > 0"),
        ("1-65537", "port must be < 65536 but found 65537"),
        ("65537", "port must be < 65536 but found 65537"),
        ("9223372036854775807", "port must be < 65536 but found 9223372036854775807"),
        ("18446744073709551615", "port must be < 65536 but found 18446744073709551615"),
        ("18446744073709551616", OUT_OF_RANGE.format("18446744073709551616")),
        ("1-18446744073709551616", OUT_OF_RANGE.format("18446744073709551616")),
        ("3-1", "invalid range: ending value (1) less than starting (3) value"),
        ("14-12", "invalid range: ending value (12) less than starting (14) value"),
        ("70000-1", "invalid range: ending value (1) less than starting (70000) value"),
        ("1-65536,1-65536", "maximum of 65536 ports can be reserved"),
        ("1-65536,1,2", "maximum of 65536 ports can be reserved"),
        ("1-2-3", FORMAT),
        ("--", FORMAT),
        ("80,", "can't specify empty port"),
        (" ", "can't specify empty port"),
        ("x,0", INVALID.format("x")),  # the first problem ends it
    ],
)
def test_unreadable(text, error):
    assert parse_port_ranges(text) == ((), error)


def test_a_range_counts_one_short():
    assert parse_port_ranges("1-65536,1").error == ""
    assert parse_port_ranges(",".join(["5-5"] * 70000)).error == ""


def test_65536_is_marked():
    assert parse_port_ranges("1-65536").beyond_last_port
    assert not parse_port_ranges("1-65535").beyond_last_port


def test_very_long_numbers_are_out_of_range():
    assert parse_port_ranges("9" * 100_000).error.endswith("value out of range")


def test_parsing_is_remembered_and_linear():
    start = time.perf_counter()
    for _ in range(100_000):
        parse_port_ranges("1-1024")
    assert time.perf_counter() - start < 1
    parse_port_ranges.cache_clear()
    start = time.perf_counter()
    parse_port_ranges(",".join(["8000"] * 65536))
    for low in range(1, 4000):
        parse_port_ranges(f"{low}-{low + 60000}")
    assert time.perf_counter() - start < 2


PORTS = st.integers(1, 65535)
RANGES = st.lists(st.tuples(PORTS, PORTS).map(lambda pair: (min(pair), max(pair))), max_size=8)


@given(RANGES)
def test_merged_ranges_hold_the_same_ports_apart(ranges):
    merged = merge_port_ranges(ranges)
    assert {port for first, last in merged for port in range(first, last + 1)} == {port for first, last in ranges for port in range(first, last + 1)}
    assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(merged))


@given(st.text(alphabet="0123456789-, ax+", max_size=12))
def test_any_text_has_an_answer(text):
    parsed = parse_port_ranges(text)
    assert not (parsed.error and parsed.ranges)
    if not parsed.error:
        assert all(1 <= first <= last <= 65536 for first, last in parsed.ranges)
