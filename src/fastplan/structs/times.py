"""Times of the API: RFC 3339 text or Unix nanoseconds, in either direction."""

from __future__ import annotations

import datetime
import re
from typing import Final

from fastplan.errors import InvalidInput

_TEXT: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII)
_EPOCH_DAY: Final = datetime.date(1970, 1, 1).toordinal()


def time_ns(value: int | str, path: str = "time") -> int:
    """Return a time in Unix nanoseconds; 0 for the zero time, which is empty text or the year 1. Raises InvalidInput naming *path* for other text."""
    if isinstance(value, int):
        return value
    if not value or value.startswith("0001-"):
        return 0
    match = _TEXT.fullmatch(value)
    if match is None:
        raise InvalidInput(path, value, "time (RFC 3339 text or integer nanoseconds)")
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    fraction, sign, offset_hours, offset_minutes = match.groups()[6:]
    try:
        days = datetime.date(year, month, day).toordinal() - _EPOCH_DAY
    except ValueError as error:
        raise InvalidInput(path, value, "time (RFC 3339 text or integer nanoseconds)") from error
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    if sign is not None:
        offset_s = (int(offset_hours) * 60 + int(offset_minutes)) * 60
        seconds -= offset_s if sign == "+" else -offset_s
    return seconds * 10**9 + int(((fraction or "") + "0" * 9)[:9])


def time_text(unix_ns: int) -> str:
    """Return Unix nanoseconds as RFC 3339 text in UTC, with as many digits as it needs."""
    seconds, nanoseconds = divmod(unix_ns, 10**9)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}Z"
