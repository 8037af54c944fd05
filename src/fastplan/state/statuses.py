"""Numbers of the statuses of an allocation, as columns hold them (plan-apply 1.5, 1.9).

The numbers are part of the log and snapshot formats: new ones are added at the end only.
"""

from __future__ import annotations

DESIRED_TEXTS = ("", "run", "stop", "evict")
"""Desired status by number. From `DESIRED_STOP` on an allocation is server-terminal."""

CLIENT_TEXTS = ("", "pending", "running", "unknown", "complete", "failed", "lost")
"""Client status by number. From `CLIENT_COMPLETE` to `CLIENT_LOST` an allocation is client-terminal."""

DESIRED_RUN = 1
DESIRED_STOP = 2
DESIRED_EVICT = 3

CLIENT_PENDING = 1
CLIENT_RUNNING = 2
CLIENT_UNKNOWN = 3
CLIENT_COMPLETE = 4
CLIENT_FAILED = 5
CLIENT_LOST = 6

CLIENT_ENDED = frozenset({CLIENT_COMPLETE, CLIENT_FAILED, CLIENT_LOST})
"""Client statuses by number with which an allocation holds nothing any more."""

DESIRED_NUMBERS = {text: number for number, text in enumerate(DESIRED_TEXTS)}
CLIENT_NUMBERS = {text: number for number, text in enumerate(CLIENT_TEXTS)}

EVALS_ENDED = frozenset({"complete", "failed", "canceled"})
"""Statuses of an evaluation that nobody works on any more (worker-and-broker 2.2)."""

OTHER = 0
"""Number of a status text that is not listed: not terminal, as the empty one; the text is kept in the extra of the allocation."""


def desired_number(text: str) -> int:
    """Return the number of a desired status; unlisted texts count as not terminal."""
    return DESIRED_NUMBERS.get(text, OTHER)


def client_number(text: str) -> int:
    """Return the number of a client status; unlisted texts count as not terminal."""
    return CLIENT_NUMBERS.get(text, OTHER)
