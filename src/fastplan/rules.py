"""The two rule sets. Every difference between them is a row of docs/rules.md."""

from __future__ import annotations

import enum


class Rules(enum.Enum):
    """By which rules plans are made and verified.

    `NOMAD` answers exactly as Nomad does today, quirks included. `STRICT`, the default, repairs its known gaps: under it the allocations of a node that
    are terminal on neither side never need more than the node supplies, unless the node itself shrank.
    """

    NOMAD = "nomad"
    STRICT = "strict"
