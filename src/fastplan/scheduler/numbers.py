"""Numbers in texts, read as the original's language reads them (schedulers 8.4, "Number details")."""

from __future__ import annotations

import math
import re
from typing import Final

_INTEGER: Final = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)
_INT64_DIGITS: Final = 19
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+(?:_[0-9]+)*\.?(?:[0-9]+(?:_[0-9]+)*)?|\.[0-9]+(?:_[0-9]+)*)(?:[eE][+-]?[0-9]+(?:_[0-9]+)*)?", re.ASCII)
_HEXADECIMAL: Final = re.compile(
    r"[+-]?0[xX](?:_?[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*\.?(?:[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*)?|\.[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*)[pP][+-]?[0-9]+(?:_[0-9]+)*",
    re.ASCII,
)
_INFINITE: Final = re.compile(r"[+-]?inf(?:inity)?", re.ASCII | re.IGNORECASE)


def parse_int64(text: str) -> int | None:
    """Return a signed 64-bit integer in decimal, None for anything else."""
    match = _INTEGER.fullmatch(text)
    if match is None or len(match[2]) > _INT64_DIGITS:
        return None
    number = int(match[1] + match[2])
    return number if -(2**63) <= number < 2**63 else None


def parse_float64(text: str) -> float | None:
    """Return a 64-bit float, None for anything else and for one that is too large."""
    if _INFINITE.fullmatch(text):
        return -math.inf if text.startswith("-") else math.inf
    if text.isascii() and text.lower() == "nan":
        return math.nan
    try:
        if _DECIMAL.fullmatch(text):
            number = float(text.replace("_", ""))
        elif _HEXADECIMAL.fullmatch(text):
            number = float.fromhex(text.replace("_", ""))
        else:
            return None
    except (OverflowError, ValueError):
        return None
    return None if math.isinf(number) else number
