"""How much the slow tests try: what CI has time for, or with FASTPLAN_LONG=1 what a night has time for."""

from __future__ import annotations

import os


def sized(usual: int, long: int) -> int:
    """Return *usual*, or *long* where FASTPLAN_LONG=1 is set."""
    return long if os.environ.get("FASTPLAN_LONG") == "1" else usual
