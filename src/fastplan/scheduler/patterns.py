"""Regular expressions of constraints: RE2's, never anchored (schedulers 8.4)."""

from __future__ import annotations

import functools
import re
from typing import Final

import re2

_KEPT: Final = 256
"""Patterns that are kept compiled."""

_LARGEST_BYTES: Final = 32 * 2**20
"""What a compiled pattern may take. RE2's own limit of 8 MiB refuses `\\pL{1000}`, which the original accepts."""

# Categories by their long names, which the original reads and RE2 does not.
_CATEGORIES: Final = {
    "any": "Any",
    "letter": "L",
    "uppercaseletter": "Lu",
    "lowercaseletter": "Ll",
    "titlecaseletter": "Lt",
    "modifierletter": "Lm",
    "otherletter": "Lo",
    "mark": "M",
    "combiningmark": "M",
    "nonspacingmark": "Mn",
    "spacingmark": "Mc",
    "enclosingmark": "Me",
    "number": "N",
    "decimalnumber": "Nd",
    "digit": "Nd",
    "letternumber": "Nl",
    "othernumber": "No",
    "punctuation": "P",
    "punct": "P",
    "connectorpunctuation": "Pc",
    "dashpunctuation": "Pd",
    "openpunctuation": "Ps",
    "closepunctuation": "Pe",
    "initialpunctuation": "Pi",
    "finalpunctuation": "Pf",
    "otherpunctuation": "Po",
    "symbol": "S",
    "mathsymbol": "Sm",
    "currencysymbol": "Sc",
    "modifiersymbol": "Sk",
    "othersymbol": "So",
    "separator": "Z",
    "spaceseparator": "Zs",
    "lineseparator": "Zl",
    "paragraphseparator": "Zp",
    "other": "C",
    "control": "Cc",
    "cntrl": "Cc",
    "format": "Cf",
    "surrogate": "Cs",
    "privateuse": "Co",
}
# A quoted run, a named property, or any escape.
_TOKEN: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\[pP]\{(\^?)([^}]*)\}|\\.", re.DOTALL)


class _Refused(Exception):
    """The original refuses something that RE2 accepts."""


def _translated(token: re.Match[str]) -> str:
    text = token[0]
    if text == "\\C":
        # A single byte, which no text of characters has.
        raise _Refused
    if token[2] is None:
        return text
    category = _CATEGORIES.get(re.sub(r"[ _-]", "", token[2]).lower())
    return text if category is None else f"{text[:2]}{{{token[1]}{category}}}"


_OPTIONS: Final = re2.Options()
# A pattern that is refused is an answer, nothing to print.
_OPTIONS.log_errors = False
_OPTIONS.max_mem = _LARGEST_BYTES


@functools.lru_cache(_KEPT)
def _compiled(pattern: str) -> re2.Regexp | None:
    try:
        return re2.compile(_TOKEN.sub(_translated, pattern), _OPTIONS)
    except (_Refused, re2.error, UnicodeEncodeError):
        return None


def matches(text: str, pattern: str) -> bool:
    """Return whether *pattern* is found anywhere in *text*; False for a pattern that RE2 refuses."""
    compiled = _compiled(pattern)
    if compiled is None:
        return False
    try:
        return compiled.search(text) is not None
    except UnicodeEncodeError:
        return False
