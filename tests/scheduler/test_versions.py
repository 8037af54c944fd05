"""Versions and what is asked of them (schedulers 8.4, "Version details")."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.scheduler.versions import parse_version, semver_meets, version_meets


@pytest.mark.parametrize(
    ("text", "segments", "given_count", "prerelease"),
    [
        ("1", (1, 0, 0), 1, ""),
        ("1.2", (1, 2, 0), 2, ""),
        ("v1.2.3-beta+x", (1, 2, 3), 3, "beta"),
        ("1.2.3.4", (1, 2, 3, 4), 4, ""),
        ("1.2beta", (1, 2, 0), 2, "beta"),
        ("1.2.3-rc.1", (1, 2, 3), 3, "rc.1"),
        ("1.2.3+build.7", (1, 2, 3), 3, ""),
        ("9223372036854775807", (2**63 - 1, 0, 0), 1, ""),
        ("0001", (1, 0, 0), 1, ""),
    ],
)
def test_versions_are_read_leniently(text, segments, given_count, prerelease):
    version = parse_version(text)
    assert version is not None
    assert (version.segments, version.given, version.prerelease) == (segments, given_count, prerelease)


@pytest.mark.parametrize("text", ["", "x", "V1", "vv1", " 1", "1 ", "1..2", ".1", "1.", "-1", "9223372036854775808", "1" * 5000, "1.2.3+", "1_0", "٣", "1\n"])
def test_texts_that_are_no_versions(text):
    assert parse_version(text) is None
    assert not version_meets(text, "!= 0.0.1")
    assert not version_meets("1.0", f"!= {text},")


@pytest.mark.parametrize(
    ("version", "asks", "holds"),
    [
        ("1.2.3", "1.2.3", True),
        ("1.2", "= 1.2.0", True),
        ("1.2.3+a", "= 1.2.3+b", True),
        ("1.2.3", "!= 1.2.3", False),
        ("1.2.3", "!= 1.2.4", True),
        ("1.2.3", ">1.2,<2", True),
        ("1.2.3", ">= 1.2.3, <= 1.2.3", True),
        ("1.2.3", ">= 1.2.3,", False),
        ("1.2.3", ", >= 1.2.3", False),
        ("1.2.3", ">=  1.0  ", True),
        ("1.2.3", ">= v1.0", True),
        ("1.2.3", "=> 1.0", False),
        ("1.2.3", "== 1.2.3", False),
        # The last number that is given may grow.
        ("1.9", "~> 1.2", True),
        ("2.0", "~> 1.2", False),
        ("1.1", "~> 1.2", False),
        ("1.2.9", "~> 1.2.3", True),
        ("1.3.0", "~> 1.2.3", False),
        ("7", "~> 1", True),
        # Pre-releases are compared with those of the same release only.
        ("1.2.3-beta2", "> 1.2.3-beta1", True),
        ("1.2.4-beta2", "> 1.2.3-beta1", False),
        ("1.2.3-beta", ">= 1.2.3", False),
        ("1.2.3-beta", "< 1.2.3", False),
        ("1.2.3", "> 1.2.3-beta", True),
        ("1.2.3-beta", "!= 1.2.3", True),
        ("1.2.3-beta", "= 1.2.3-beta", True),
        ("1.2.3", "~> 1.2.3-beta", False),
        ("1.2.3-beta.2", "~> 1.2.3-beta.1", True),
        ("1.2.3-10", "> 1.2.3-9", True),
        ("1.2.3-9", "< 1.2.3-a", True),
        ("1.2.3-a", "< 1.2.3-a.1", True),
        ("1.2beta", "= 1.2-beta", True),
    ],
)
def test_version(version, asks, holds):
    assert version_meets(version, asks) is holds


@pytest.mark.parametrize(
    ("version", "asks", "holds"),
    [
        ("1.2.3-beta", "< 1.2.3", True),
        ("1.2.3-beta", ">= 1.2.3", False),
        ("1.2.4-alpha", "> 1.2.3", True),
        ("1.2.3-alpha.1", "< 1.2.3-alpha.beta", True),
        ("1.2.3-beta.2", "< 1.2.3-beta.11", True),
        ("1.2.3-rc.1", "> 1.2.3-beta.11", True),
        ("1.2.3+a", "= 1.2.3", True),
        ("1.2.3", "~> 1.2", False),
        ("1.2beta", "= 1.2-beta", True),
        ("1.2.3", ">= 1.2beta", False),
        ("1.2.3", ">= 1.2, < 1.3", True),
    ],
)
def test_semver(version, asks, holds):
    assert semver_meets(version, asks) is holds


VERSIONS = st.builds(
    lambda numbers, prerelease: ".".join(map(str, numbers)) + prerelease,
    st.lists(st.integers(0, 3), min_size=1, max_size=4),
    st.sampled_from(["", "", "-a", "-a.1", "-a.b", "-1", "-rc2"]),
)


@given(VERSIONS, VERSIONS)
def test_semver_puts_all_versions_in_one_order(one, other):
    less, equal, greater = (semver_meets(one, f"{operand} {other}") for operand in ("<", "=", ">"))
    assert [less, equal, greater].count(True) == 1
    assert greater is semver_meets(other, f"< {one}")
    assert semver_meets(one, f"<= {other}") is (less or equal)
    assert semver_meets(one, f"!= {other}") is not equal


@given(VERSIONS, VERSIONS)
def test_without_pre_releases_both_operands_agree(one, other):
    one, other = one.partition("-")[0], other.partition("-")[0]
    for operand in ("", "=", "!=", "<", "<=", ">", ">="):
        assert version_meets(one, operand + other) is semver_meets(one, operand + other)
