"""Versions, and what is asked of them (schedulers 8.4)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Final, NamedTuple

_KEPT: Final = 4096
"""Versions and asks that are kept parsed."""

_SEGMENT_MAX: Final = 2**63 - 1
_WORD: Final = r"[0-9A-Za-z\-~]+(?:\.[0-9A-Za-z\-~]+)*"
_NUMERIC: Final = r"[0-9]+[0-9A-Za-z\-~]*(?:\.[0-9A-Za-z\-~]+)*"
_LETTERS: Final = r"[A-Za-z\-~]+[0-9A-Za-z\-~]*(?:\.[0-9A-Za-z\-~]+)*"
_LENIENT: Final = re.compile(rf"v?([0-9]+(?:\.[0-9]+)*?)(?:-({_NUMERIC})|-?({_LETTERS}))?(?:\+({_WORD}))?", re.ASCII)
_STRICT: Final = re.compile(rf"v?([0-9]+(?:\.[0-9]+)*?)(?:-({_NUMERIC})|-({_LETTERS}))?(?:\+({_WORD}))?", re.ASCII)
_ASK: Final = re.compile(r"(=|!=|>=|<=|>|<|~>)?\s*(.+)", re.ASCII | re.DOTALL)
_NUMBER: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)


class Version(NamedTuple):
    """A parsed version: its numbers, at least three, how many of them were given, and its pre-release, empty for none."""

    segments: tuple[int, ...]
    given: int
    prerelease: str

    def compare(self, other: Version) -> int:
        """Return −1, 0 or 1; build metadata does not count."""
        length = max(len(self.segments), len(other.segments))
        mine, theirs = (segments + (0,) * (length - len(segments)) for segments in (self.segments, other.segments))
        if mine != theirs:
            return 1 if mine > theirs else -1
        if self.prerelease == other.prerelease:
            return 0
        if not self.prerelease:
            return 1
        if not other.prerelease:
            return -1
        return _compare_prereleases(self.prerelease, other.prerelease)


def _compare_prereleases(mine: str, theirs: str) -> int:
    parts, others = mine.split("."), theirs.split(".")
    for place in range(max(len(parts), len(others))):
        order = _compare_parts(parts[place] if place < len(parts) else "", others[place] if place < len(others) else "")
        if order:
            return order
    return 0


def _compare_parts(mine: str, theirs: str) -> int:
    """Compare two parts of pre-releases: numbers come before words; a part that is not there before a number and after a word."""
    if mine == theirs:
        return 0
    my_number, their_number = _number(mine), _number(theirs)
    if not mine:
        return -1 if their_number is not None else 1
    if not theirs:
        return 1 if my_number is not None else -1
    if my_number is not None and their_number is not None:
        return 1 if my_number > their_number else -1
    if my_number is not None:
        return -1
    if their_number is not None:
        return 1
    return 1 if mine > theirs else -1


def _number(part: str) -> int | None:
    if not _NUMBER.fullmatch(part):
        return None
    number = int(part)
    return number if -_SEGMENT_MAX - 1 <= number <= _SEGMENT_MAX else None


def _parse(grammar: re.Pattern[str], text: str) -> Version | None:
    match = grammar.fullmatch(text)
    if match is None:
        return None
    numbers = match[1].split(".")
    # int() refuses thousands of digits, which are too many anyway.
    if any(len(number.lstrip("0")) > len(str(_SEGMENT_MAX)) for number in numbers):
        return None
    segments = tuple(map(int, numbers))
    if max(segments) > _SEGMENT_MAX:
        return None
    given = len(segments)
    return Version(segments + (0,) * (3 - given), given, match[2] or match[3] or "")


@functools.lru_cache(_KEPT)
def parse_version(text: str) -> Version | None:
    """Return a version, read leniently (`1`, `1.2`, `v1.2.3-beta+x`); None for what is none."""
    return _parse(_LENIENT, text)


Check = Callable[[Version, Version], bool]


def _same_base(version: Version, asked: Version) -> bool:
    """Return whether pre-releases may be compared: those of the same release only."""
    if version.prerelease and asked.prerelease:
        return version.segments == asked.segments
    return not version.prerelease


def _pessimistic(version: Version, asked: Version) -> bool:
    """`~>`: the last number that is given may grow."""
    if not _same_base(version, asked) or (asked.prerelease and not version.prerelease):
        return False
    if version.compare(asked) < 0 or asked.given > len(version.segments):
        return False
    last = asked.given - 1
    return version.segments[:last] == asked.segments[:last] and version.segments[last] >= asked.segments[last]


_VERSION_CHECKS: Final[dict[str, Check]] = {
    "": lambda version, asked: version.compare(asked) == 0,
    "=": lambda version, asked: version.compare(asked) == 0,
    "!=": lambda version, asked: version.compare(asked) != 0,
    ">": lambda version, asked: _same_base(version, asked) and version.compare(asked) > 0,
    "<": lambda version, asked: _same_base(version, asked) and version.compare(asked) < 0,
    ">=": lambda version, asked: _same_base(version, asked) and version.compare(asked) >= 0,
    "<=": lambda version, asked: _same_base(version, asked) and version.compare(asked) <= 0,
    "~>": _pessimistic,
}
_SEMVER_CHECKS: Final[dict[str, Check]] = {
    "": lambda version, asked: version.compare(asked) == 0,
    "=": lambda version, asked: version.compare(asked) == 0,
    "!=": lambda version, asked: version.compare(asked) != 0,
    ">": lambda version, asked: version.compare(asked) > 0,
    "<": lambda version, asked: version.compare(asked) < 0,
    ">=": lambda version, asked: version.compare(asked) >= 0,
    "<=": lambda version, asked: version.compare(asked) <= 0,
}


@functools.lru_cache(_KEPT)
def _parse_asks(text: str, semver: bool) -> tuple[tuple[Check, Version], ...] | None:
    """Return the asks in a comma-separated text, None if one of them is none."""
    checks, grammar = (_SEMVER_CHECKS, _STRICT) if semver else (_VERSION_CHECKS, _LENIENT)
    asks = []
    for item in text.split(","):
        match = _ASK.fullmatch(item.strip())
        check = None if match is None else checks.get(match[1] or "")
        asked = None if match is None else _parse(grammar, match[2])
        if check is None or asked is None:
            return None
        asks.append((check, asked))
    return tuple(asks)


def version_meets(version: str, asks: str) -> bool:
    """Return whether *version* meets every ask of a comma-separated text; False for what cannot be read (operand `version`)."""
    return _meets(version, asks, semver=False)


def semver_meets(version: str, asks: str) -> bool:
    """Return the same by the precedence of Semantic Versioning, without `~>` (operand `semver`)."""
    return _meets(version, asks, semver=True)


def _meets(version: str, asks: str, *, semver: bool) -> bool:
    parsed, wanted = parse_version(version), _parse_asks(asks, semver)
    if parsed is None or wanted is None:
        return False
    return all(check(parsed, asked) for check, asked in wanted)
