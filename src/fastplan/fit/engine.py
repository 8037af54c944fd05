"""What a checker computes with: the compiled kernels, or on request nothing but the reference.

An engine may answer SLOW for any row; the checker then asks the reference, so both engines lead to the same answers.
`FASTPLAN_KERNELS=reference` in the environment chooses the second one, which needs no extension; `compiled`, or nothing, the first.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from fastplan.errors import InvalidInput

if TYPE_CHECKING:
    from fastplan.fit.asks import PreparedAsk
    from fastplan.fit.encode import AllocNumbers, NodeNumbers
    from fastplan.fit.results import FitResult

SLOW = -1
"""The verdict of an engine that does not decide."""

Codes = npt.NDArray[np.int8]
Counts = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int64]


Verdict = tuple[int, int, int, int, int, tuple[int, ...]]
"""A verdict on one row: a Reason number or SLOW, and what would be used with the ask: MHz, MiB, MiB at most, MiB of disk, cores ascending."""


class NodeOrder(NamedTuple):
    """Ids by row (empty text for a row without a node), and the rank of each row by ascending id."""

    node_ids: list[str]
    ranks: npt.NDArray[np.uint32]


class Engine(Protocol):
    """The numbers of all nodes. Rows are those of the checker."""

    def allocate(self, numbers: NodeNumbers, status: int) -> int:
        """Add a node and return its row."""

    def add(self, row: int, numbers: AllocNumbers) -> None:
        """Add what an allocation asks."""

    def remove(self, row: int, numbers: AllocNumbers, *, stopping: bool) -> None:
        """Undo an `add`; *stopping*: what was there before the checker, and is told to stop."""

    def frozen(self) -> Engine:
        """Return the engine as it is now; it may be read from any thread while this one is written."""

    @property
    def row_count(self) -> int:
        """Rows, those without a node included."""

    def remember(self, order: NodeOrder) -> None:
        """Keep the order of the nodes as long as the same nodes are in the same rows."""

    def remembered(self) -> NodeOrder | None:
        """Return the order kept, if it still holds."""

    def held(self, row: int) -> Sequence[int] | None:
        """Return the claims held on a row, or None if only the allocations know."""

    def verdict(self, row: int, ask: PreparedAsk, release: tuple[AllocNumbers, int] | None) -> Verdict:
        """Return the verdict on a row after *release*, a sum of so many allocations, has left it."""

    def result(self, verdict: Verdict, detail: str) -> FitResult:
        """Return the answer that a verdict with a sum stands for; *detail* follows the colon of its reason."""

    def codes(self, rows: Rows, asks: PreparedAsk | Sequence[PreparedAsk] | object) -> Codes:
        """Return the verdict on each row for one ask, or for one ask a row. Raises StateError for a row beyond the last."""

    def batch(self, asks: Sequence[PreparedAsk]) -> object:
        """Return asks in the form that `codes` takes quickest."""

    def copies(self, ask: PreparedAsk, ready_only: bool, wanted: int) -> Counts:
        """Return how many copies fit on each row, at most *wanted*; SLOW for rows that are not decided, 0 for nodes that do not count."""

    def best(
        self, ask: PreparedAsk, spread: bool, ready_only: bool, allowed: npt.NDArray[np.uint8] | None, order: npt.NDArray[np.uint32], step: float
    ) -> tuple[int, list[int]]:
        """Return the best row among those that surely fit (or -1), and the rows that are not decided. Equal scores: the lowest in *order*.

        With a *step* above 0 scores are equal whose quotients by it have one whole part.
        """

    def score(self, row: int, ask: PreparedAsk, spread: bool) -> float | None:
        """Return how good the row would look with the ask, 0 to 18, or None if only the allocations know."""


def make_engine(*, physical: bool) -> Engine:
    """Return an empty engine of the kind that the environment asks for. Raises ImportError if the extensions are not built."""
    if uses_reference():
        from fastplan.fit.engine_reference import ReferenceEngine

        return ReferenceEngine()
    from fastplan.fit.engine_compiled import CompiledEngine

    return CompiledEngine(physical=physical)


def uses_reference() -> bool:
    """Return whether the environment asks for the reference. Raises InvalidInput for an unknown name."""
    wanted = os.environ.get("FASTPLAN_KERNELS", "")
    if wanted not in ("", "compiled", "reference"):
        raise InvalidInput("FASTPLAN_KERNELS", wanted, '"compiled" or "reference"')
    return wanted == "reference"
