"""Port-range text such as `22,8000-8100`, read as strictly as Nomad reads it (plan-apply 3.2)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

PORT_COUNT = 65536
"""Ports are 0 to 65535; the parser accepts 65536 too, which no port set can hold (plan-apply 2.10)."""

PortRange = tuple[int, int]
"""First and last port, both included."""

# White space as Go trims it: Python's own strip() also takes the four separators U+001C to U+001F.
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
_LARGEST_UINT64 = 2**64 - 1
_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'}


class PortText(NamedTuple):
    """What a port-range text says: `ranges` in the order written, duplicates kept, or `error`, Nomad's text of the first problem."""

    ranges: tuple[PortRange, ...]
    error: str

    @property
    def beyond_last_port(self) -> bool:
        """Whether the text names 65536, which parses but is not a port."""
        return any(last >= PORT_COUNT for _, last in self.ranges)


class _Unreadable(Exception):
    """The first problem of a text; never leaves this module."""


@lru_cache(maxsize=4096)
def parse_port_ranges(text: str) -> PortText:
    """Read a port-range text; linear in its length, and remembered, since many nodes share few texts.

    A problem is answered in `PortText.error`, with no ranges; nothing is raised.
    """
    if not text:
        return PortText((), "")
    ranges: list[PortRange] = []
    count = 0
    try:
        for item in text.split(","):
            first, last = _parse_item(item.strip(_WHITE_SPACE))
            # Nomad counts a range one short, so `1-65536` is within the limit.
            count += last - first if "-" in item else 1
            if count > PORT_COUNT:
                raise _Unreadable(f"maximum of {PORT_COUNT} ports can be reserved")
            ranges.append((first, last))
    except _Unreadable as problem:
        return PortText((), str(problem))
    return PortText(tuple(ranges), "")


def _parse_item(item: str) -> PortRange:
    pieces = item.split("-")
    if len(pieces) == 1:
        if not item:
            raise _Unreadable("can't specify empty port")
        port = _parse_number(item)
        _require_port(first=port, last=port)
        return port, port
    if len(pieces) == 2:
        first, last = _parse_number(pieces[0]), _parse_number(pieces[1])
        if last < first:
            raise _Unreadable(f"invalid range: ending value ({last}) less than starting ({first}) value")
        _require_port(first=first, last=last)
        return first, last
    raise _Unreadable("can only parse single port numbers or port ranges (ex. 80,100-120,150)")


def _require_port(first: int, last: int) -> None:
    if first == 0:
        raise _Unreadable("port must be > 0")
    if last > PORT_COUNT:
        raise _Unreadable(f"port must be < {PORT_COUNT} but found {last}")


def _parse_number(piece: str) -> int:
    # str.isdigit() alone also accepts digits of other scripts, and int() accepts signs, blanks and underscores.
    if not (piece.isascii() and piece.isdigit()):
        raise _Unreadable(f"strconv.ParseUint: parsing {_quoted(piece)}: invalid syntax")
    # The length is looked at first: int() refuses very long texts, and takes quadratic time for long ones.
    if len(piece.lstrip("0")) > 20 or (number := int(piece.lstrip("0") or "0")) > _LARGEST_UINT64:
        raise _Unreadable(f"strconv.ParseUint: parsing {_quoted(piece)}: value out of range")
    return number


def _quoted(piece: str) -> str:
    """Return *piece* in double quotes, escaped as Go does in its error texts."""
    return '"' + "".join(_ESCAPES.get(char) or (char if char.isprintable() else _escaped(ord(char))) for char in piece) + '"'


def _escaped(code: int) -> str:
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def merge_port_ranges(ranges: Iterable[PortRange]) -> tuple[PortRange, ...]:
    """Return the same ports as ascending ranges that neither overlap nor touch."""
    merged: list[PortRange] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            if last > merged[-1][1]:
                merged[-1] = (merged[-1][0], last)
        else:
            merged.append((first, last))
    return tuple(merged)
