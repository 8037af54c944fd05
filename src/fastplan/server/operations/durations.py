"""Durations as Nomad writes them in its sentences."""

from __future__ import annotations

from typing import Final

SMALL_UNITS: Final = ((1_000_000, "ms"), (1_000, "µs"))


def duration_text(duration_ns: int) -> str:
    """Return a duration in nanoseconds as text: `1m0s`, `1h5m0.5s`, `250ms`, `0s`."""
    if duration_ns < 0:
        return "-" + duration_text(-duration_ns)
    if duration_ns == 0:
        return "0s"
    for unit_ns, name in SMALL_UNITS:
        if unit_ns <= duration_ns < 1000 * unit_ns:
            return _decimal(duration_ns, unit_ns) + name
    if duration_ns < 1_000:
        return f"{duration_ns}ns"
    minutes, rest_ns = divmod(duration_ns, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = _decimal(rest_ns, 10**9) + "s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _decimal(amount: int, unit: int) -> str:
    """Return *amount* in units, with the decimals that it needs."""
    whole, rest = divmod(amount, unit)
    decimals = f"{rest:0{len(str(unit)) - 1}d}".rstrip("0")
    return f"{whole}.{decimals}" if decimals else str(whole)
