"""Input on which Nomad crashes (plan-apply 2.10), noticed early and reported where the order of checks says."""

from __future__ import annotations

from typing import NamedTuple

from fastplan.errors import InvalidInput


class Fault(NamedTuple):
    """An error that is kept as data until the check reaches it; the fields are those of `InvalidInput`."""

    path: str
    value: object
    expected: str

    def error(self) -> InvalidInput:
        """Return a fresh error to raise."""
        return InvalidInput(self.path, self.value, self.expected)
