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
_LONG_NAMES: Final = {
    "letter": "L",
    "uppercaseletter": "Lu",
    "lowercaseletter": "Ll",
    "titlecaseletter": "Lt",
    "casedletter": "Lc",
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
    "unassigned": "Cn",
}
_BUT_OTHER: Final = r"\pL\pM\pN\pP\pS\pZ"
_ASSIGNED: Final = _BUT_OTHER + r"\pC"
# What RE2 does not know, or knows without the characters that are not assigned: the inside of a bracket, and whether that is what it is not.
_COMPOSED: Final = {
    "Lc": (r"\p{Lu}\p{Ll}\p{Lt}", False),
    "Ascii": (r"\x00-\x7F", False),
    "Assigned": (_ASSIGNED, False),
    "Cn": (_ASSIGNED, True),
    "C": (_BUT_OTHER, True),
}
# A quoted run, a property, any other escape, a named class, a bracket.
_TOKEN: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\([pP])(?:\{(\^?)([^}]*)\}|(.))|\\.|\[:\^?\w+:\]|\[\^?\]?|\]", re.DOTALL)


class _Refused(Exception):
    """The original refuses what RE2 accepts, or accepts what cannot be said to RE2."""


def _translated(pattern: str) -> str:
    """Return a pattern in which properties have the names that RE2 knows."""
    parts, end, in_bracket = [], 0, False
    for token in _TOKEN.finditer(pattern):
        parts.append(pattern[end : token.start()])
        text, end = token[0], token.end()
        if token[1]:
            text = _property(token, in_bracket)
        elif text == "\\C":
            # A single byte, which no text of characters has.
            raise _Refused
        elif text == "]":
            in_bracket = False
        elif text.startswith("[") and not in_bracket:
            # A named class outside of brackets is a bracket with some letters.
            in_bracket = not text.endswith(":]")
        elif text.startswith("[") and text.endswith("]") and not text.startswith("[:"):
            # Within brackets a further opening one is a letter, and the closing one ends them.
            in_bracket = False
        parts.append(text)
    return "".join([*parts, pattern[end:]])


def _property(token: re.Match[str], in_bracket: bool) -> str:
    """Return a property as RE2 writes it. Case, blanks, hyphens and underscores in its name do not count."""
    name = re.sub(r"[ _-]", "", token[3] or token[4] or "").lower()
    if not name.isascii():
        raise _Refused
    name = _LONG_NAMES.get(name, name.capitalize())
    is_negated = (token[1] == "P") is not bool(token[2])
    if name not in _COMPOSED or (name == "C" and in_bracket):
        return f"\\{'P' if is_negated else 'p'}{{{name}}}"
    members, is_complement = _COMPOSED[name]
    is_negated = is_negated is not is_complement
    if not in_bracket:
        return f"[{'^' if is_negated else ''}{members}]"
    if is_negated:
        raise _Refused
    return members


_OPTIONS: Final = re2.Options()
# A pattern that is refused is an answer, nothing to print.
_OPTIONS.log_errors = False
_OPTIONS.max_mem = _LARGEST_BYTES


@functools.lru_cache(_KEPT)
def _compiled(pattern: str) -> re2.Regexp | None:
    try:
        return re2.compile(_translated(pattern), _OPTIONS)
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
