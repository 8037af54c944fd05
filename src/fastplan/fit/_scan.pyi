from array import array
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from fastplan.fit._kernels import AskNumbers
from fastplan.fit._nodes import NodeTable

class AskBatch:
    def __init__(self, asks: list[AskNumbers]) -> None: ...
    @property
    def count(self) -> int: ...
    def __len__(self) -> int: ...

class GroupNumbers:
    def __init__(
        self,
        base: AskNumbers,
        statics: Sequence[tuple[int, int, bool]] = (),
        dynamics: Sequence[tuple[int, int]] = (),
        cores: int = 0,
        devices: Sequence[tuple[array[Any], int]] = (),
        irregular: bool = False,
    ) -> None: ...

def check_rows(table: NodeTable, rows: npt.NDArray[np.int64], asks: AskNumbers | AskBatch, rules: int, codes: npt.NDArray[np.int8]) -> None: ...
def row_verdict(table: NodeTable, row: int, ask: AskNumbers, release: AskNumbers | None, prior: AskNumbers | None, rules: int) -> int: ...
def check_one(
    table: NodeTable, row: int, ask: AskNumbers | GroupNumbers, release: AskNumbers | None, rules: int
) -> tuple[int, int, int, int, int, tuple[int, ...]]: ...
def result_of(result_type: type[Any], used_type: type[Any], verdict: tuple[int, int, int, int, int, tuple[int, ...]], code: Any, reason: str) -> Any: ...
def group_codes(table: NodeTable, rows: npt.NDArray[np.int64], group: GroupNumbers, rules: int, codes: npt.NDArray[np.int8]) -> None: ...
def copies_of(table: NodeTable, ask: AskNumbers | GroupNumbers, rules: int, ready_only: bool, wanted: int, copies: npt.NDArray[np.int64]) -> None: ...
def scores_of(table: NodeTable, ask: AskNumbers | GroupNumbers, rules: int, spread: bool, scores: npt.NDArray[np.float64]) -> None: ...
def score_one(table: NodeTable, row: int, ask: AskNumbers | GroupNumbers, rules: int, spread: bool) -> float | None: ...
def best_row(
    table: NodeTable,
    ask: AskNumbers | GroupNumbers,
    rules: int,
    spread: bool,
    ready_only: bool,
    allowed: npt.NDArray[np.uint8] | None,
    order: npt.NDArray[np.uint32] | None,
    step: float = 0.0,
) -> tuple[int, list[int]]: ...
