"""What operands of constraints mean (schedulers 8.4): rows F1 to F14 and F35, and the recorded answers."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.scheduler import check_constraint
from fastplan.scheduler.numbers import parse_float64, parse_int64
from fastplan.scheduler.patterns import matches
from tests.scheduler.constraint_answers import recorded

# The table of 8.4, row by row; None is a value that is missing.
TABLE = [
    ("1.2.3", "version", "~> 1.0", True),
    ("1.4", "version", ">= 1.0, < 1.4", False),
    ("1.3.0-beta1", "version", ">= 0.6.1", False),
    ("1.3.0-beta1", "semver", ">= 0.6.1", True),
    ("1.7.0-alpha1", "version", ">= 1.6.0-beta1", False),
    ("1.7.0-alpha1", "semver", ">= 1.6.0-beta1", True),
    ("1.7.0-beta", "semver", ">= 1.7.0", False),
    ("10", "<", "9", False),
    ("10", "<", "9a", True),
    ("1.5", ">", "1", True),
    (None, "!=", "x", True),
    (None, "=", None, False),
    ("foo,bar,baz", "set_contains", "bar, foo", True),
    ("foo", "set_contains_any", "x, foo", True),
    ("linux", "regexp", "inu", True),
]
ALL_OPERANDS = ["=", "==", "is", "!=", "not", "<", "<=", ">", ">=", "is_set", "is_not_set", "version", "semver", "regexp", "set_contains"]
ALL_OPERANDS += ["set_contains_all", "set_contains_any", "distinct_hosts", "distinct_property", "nobody_knows", ""]


def check(left: str | None, operand: str, right: str | None) -> bool:
    return check_constraint(operand, left or "", right or "", left is not None, right is not None)


@pytest.mark.parametrize(("left", "operand", "right", "holds"), TABLE)
def test_f1_to_f14_the_table(left, operand, right, holds):
    assert check(left, operand, right) is holds


def test_recorded_answers():
    differing = []
    for case in recorded("constraint"):
        given = case["input"]
        if check_constraint(given["operand"], given["left"], given["right"], given["left_found"], given["right_found"]) is not case["answer"]:
            differing.append(case["id"])
    assert differing == []


@pytest.mark.parametrize(
    ("operand", "left", "right", "holds"),
    [
        ("=", "a", "a", True),
        ("==", "a", "b", False),
        ("is", "a", "A", False),
        ("!=", "a", "b", True),
        ("not", "a", "a", False),
        ("not", None, None, False),
        ("!=", "", None, False),
        ("is_set", "", None, True),
        ("is_set", None, "x", False),
        ("is_not_set", None, None, True),
        ("is_not_set", "", None, False),
        ("set_contains", "a, b ,c", "c,a", True),
        ("set_contains_all", "a,b", "a,d", False),
        ("set_contains", "a,", "", True),
        ("set_contains", "a", "", False),
        ("set_contains_any", "a,b", "d,b", True),
        ("set_contains_any", "a,b", "d", False),
        ("set_contains_any", None, "d", False),
        ("distinct_hosts", None, None, True),
        ("distinct_property", None, "x", True),
        ("<", "a", None, False),
        ("set_contains_none", "a", "b", False),
        ("Version", "1", "1", False),
        ("", "a", "a", False),
    ],
)
def test_each_operand(operand, left, right, holds):
    assert check(left, operand, right) is holds


@pytest.mark.parametrize(
    ("left", "operand", "right", "holds"),
    [
        ("9223372036854775807", ">", "9223372036854775806", True),
        # One beyond 64 bits: both are floats, and equal.
        ("9223372036854775808", ">", "9223372036854775807", False),
        ("9223372036854775808", ">=", "9223372036854775807", True),
        ("007", "<=", "7", True),
        ("+5", ">=", "5", True),
        ("1_000", "<", "2", False),
        ("1_000", "<", "999.5", False),
        ("0x1p4", ">", "15.5", True),
        ("inf", ">", "1", True),
        ("-Infinity", "<", "0", True),
        ("0x10", "<", "9", True),
        (" 10", "<", "9", True),
        ("1e400", "<", "9", True),
        ("٣", ">", "2", True),
        ("-nan", "<", "5", True),
        ("B", "<", "a", True),
        ("é", ">", "z", True),
    ],
)
def test_numbers_are_integers_then_floats_then_bytes(left, operand, right, holds):
    assert check(left, operand, right) is holds


@pytest.mark.parametrize("operand", ["<", "<=", ">", ">="])
def test_what_is_not_a_number_meets_no_order(operand):
    assert not check("nan", operand, "1")
    assert not check("1", operand, "NaN")


@pytest.mark.parametrize("text", ["", "+", "-", "1.", "x", "1_0", "0x1", "9223372036854775808", "-9223372036854775809", "1" * 5000])
def test_texts_that_are_no_integers(text):
    assert parse_int64(text) is None


def test_integers():
    assert [parse_int64(text) for text in ("0", "-0", "+7", "-9223372036854775808", "0" * 5000 + "12")] == [0, 0, 7, -(2**63), 12]


@pytest.mark.parametrize("text", ["", ".", "e5", "1e", "1__0", "_1", "1_", "1e400", "-1e400", "0x1", "0x1p2000", "0x_p1", "infinit", "+nan", "1 ", "nan()"])
def test_texts_that_are_no_floats(text):
    assert parse_float64(text) is None


def test_floats():
    texts = (".5", "5.", "1_0.2_5", "1e1_0", "0x.8p1", "0x_1p1_0", "1e-999", "+INF")
    assert [parse_float64(text) for text in texts] == [0.5, 5.0, 10.25, 1e10, 1.0, 1024.0, 0.0, math.inf]
    not_a_number = parse_float64("NaN")
    assert not_a_number is not None
    assert math.isnan(not_a_number)


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("linux", "inu"),
        ("a.b", r"\Qa.b\E"),
        ("é1", r"^\pL\p{Nd}$"),
        ("é", r"^\p{Letter}$"),
        ("Ä", r"^\p{^ lower-case_letter}$"),
        ("x", r"^x\z"),
        ("aaa", "(?U)a+"),
        ("ab", "(?P<n>a)(?<m>b)"),
        ("a{,2}", "a{,2}"),
        ("7", "[[:digit:]]"),
        ("LINUX", "(?i)linux"),
        ("a", "(?s:.)"),
        ("", ""),
        ("é" * 1000, r"^\pL{1000}$"),
        (r"\p{Letter}", r"\Q\p{Letter}\E"),
    ],
)
def test_patterns_that_match(text, pattern):
    assert check(text, "regexp", pattern)


@pytest.mark.parametrize(
    "pattern",
    ["a(?=b)", "(?<!a)b", r"(a)\1", "(?>a)", "a*+", "a{1001}", "(?#a)a", "(", "[a", r"\C", r"[\C]", r"\p{Nobody}", "a**", r"[\P{LC}]", "\ud800", "*"],
)
def test_f35_patterns_that_are_refused(pattern):
    assert not any(check(text, "regexp", pattern) for text in ("a", "ab", "aa", "b", "é", ""))


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        (r"\p{Lu}", "A"),
        (r"\p{lu}", "A"),
        (r"\pl", "aAαǅ中"),
        (r"\p{LC}", "aAαǅ"),
        (r"\P{Cased_Letter}", "\u0378\x011中"),
        (r"\p{^LC}", "\u0378\x011中"),
        (r"[\p{LC}1]", "aAα1ǅ"),
        (r"\p{Cn}", "\u0378"),
        (r"\p{Assigned}", "aAα\x011ǅ中"),
        (r"\pC", "\u0378\x01"),
        (r"\PC", "aAα1ǅ中"),
        (r"[\pC]", "\x01"),
        (r"\p{ascii}", "aA\x011"),
        (r"[^\p{ASCII}]", "\u0378αǅ中"),
        (r"\p{GREEK}", "α"),
        (r"[[:alpha:]]", "aA"),
        (r"[[a]", "a"),
        (r"[]\p{LC}]\p{LC}?", "aAαǅ"),
        (r"[^]\p{LC}]", "\u0378\x011中"),
    ],
)
def test_properties_have_the_names_that_the_original_knows(pattern, matching):
    assert "".join(letter for letter in "\u0378aAα\x011ǅ中" if matches(letter, pattern)) == "".join(sorted(matching, key="\u0378aAα\x011ǅ中".index))


def test_digits_and_words_are_ascii():
    assert not any(matches("٣", pattern) for pattern in (r"\d", r"\w"))
    assert not matches("\ud800", ".")


def test_a_pattern_takes_no_more_memory_than_it_may():
    """It is refused, quickly: the terms of one pattern are many times what a compiled pattern may take."""
    assert not matches("a", r"(?i)" + r"\pL{1000}" * 20)


def test_matching_takes_linear_time():
    """Python's own engine would take 2**5000 steps."""
    assert not matches("a" * 5000 + "b", "^(a|a)*$")


@pytest.mark.parametrize(("operand", "right"), [("version", "nonsense"), ("version", ""), ("semver", "~> 1.0"), ("semver", ">= 1.2beta"), ("regexp", "(")])
def test_f35_what_cannot_be_read_is_not_met(operand, right):
    assert check("1.2.3", operand, right) is False


TEXTS = st.one_of(st.text(max_size=12), st.text(alphabet="0123456789.-+eExXpP_~<>=!, vab()[]*?{}|^$", max_size=12))


@given(st.sampled_from(ALL_OPERANDS), st.one_of(st.none(), TEXTS), st.one_of(st.none(), TEXTS))
def test_no_text_raises(operand, left, right):
    assert check(left, operand, right) in (True, False)


@given(TEXTS, TEXTS)
def test_orders_agree_with_each_other(left, right):
    less, most, greater, least = (check(left, operand, right) for operand in ("<", "<=", ">", ">="))
    if not any((less, most, greater, least)):
        # Only what is not a number compares with nothing.
        assert "nan" in (left.lower(), right.lower())
    else:
        assert most is not greater
        assert least is not less
        assert less is check(right, ">", left)
