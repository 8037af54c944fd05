"""The engine without kernels: it decides nothing, so the reference decides everything."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from fastplan.errors import Reason, StateError
from fastplan.fit.encode import ROW_INELIGIBLE, ROW_READY
from fastplan.fit.engine import SLOW, Codes, Counts, NodeOrder, Rows, Verdict
from fastplan.fit.results import Check, FitResult, UsedResources

if TYPE_CHECKING:
    from fastplan.fit.asks import PreparedAsk
    from fastplan.fit.encode import AllocNumbers, NodeNumbers


class ReferenceEngine:
    """Knows which rows there are and which nodes are ready."""

    def __init__(self) -> None:
        self._status: list[int] = []
        self._order: NodeOrder | None = None

    def allocate(self, numbers: NodeNumbers, status: int) -> int:
        self._status.append(status)
        return len(self._status) - 1

    def add(self, row: int, numbers: AllocNumbers) -> None:
        """The allocations are kept by the checker."""

    def remove(self, row: int, numbers: AllocNumbers, *, stopping: bool) -> None:
        """The allocations are kept by the checker."""

    def frozen(self) -> ReferenceEngine:
        return self

    @property
    def row_count(self) -> int:
        return len(self._status)

    def remember(self, order: NodeOrder) -> None:
        self._order = order

    def remembered(self) -> NodeOrder | None:
        return self._order if self._order is not None and len(self._order.node_ids) == len(self._status) else None

    def held(self, row: int) -> Sequence[int] | None:
        return None

    def verdict(self, row: int, ask: PreparedAsk, release: tuple[AllocNumbers, int] | None) -> Verdict:
        return SLOW, 0, 0, 0, 0, ()

    def result(self, verdict: Verdict, detail: str) -> FitResult:
        code = Reason(verdict[0])
        return FitResult.of(Check(code, detail, used=UsedResources(*verdict[1:])))

    def codes(self, rows: Rows, asks: PreparedAsk | Sequence[PreparedAsk] | object) -> Codes:
        for row in rows[(rows < 0) | (rows >= self.row_count)]:
            raise StateError(f"node row {row} does not exist")
        return np.full(len(rows), SLOW, np.int8)

    def batch(self, asks: Sequence[PreparedAsk]) -> object:
        return asks

    def copies(self, ask: PreparedAsk, ready_only: bool, wanted: int) -> Counts:
        return np.where(self._candidates(ready_only), SLOW, 0).astype(np.int64)

    def best(
        self, ask: PreparedAsk, spread: bool, ready_only: bool, allowed: npt.NDArray[np.uint8] | None, order: npt.NDArray[np.uint32], step: float
    ) -> tuple[int, list[int]]:
        candidates = self._candidates(ready_only)
        if allowed is not None:
            candidates &= allowed != 0
        return -1, np.flatnonzero(candidates).tolist()

    def score(self, row: int, ask: PreparedAsk, spread: bool) -> float | None:
        return None

    def _candidates(self, ready_only: bool) -> npt.NDArray[np.bool_]:
        status = np.array(self._status, np.int64)
        return (status & (ROW_READY | ROW_INELIGIBLE) == ROW_READY) if ready_only else np.ones(len(status), np.bool_)
