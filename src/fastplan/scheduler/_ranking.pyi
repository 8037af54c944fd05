import numpy as np
import numpy.typing as npt

from fastplan.fit._nodes import NodeTable

class SpreadCounts:
    def __new__(
        cls, blocks: list[tuple[list[int | None], list[float | None] | None, float | None, float]], places: npt.NDArray[np.int32]
    ) -> SpreadCounts: ...
    def count(self, place: int) -> None: ...
    def set_counts(self, counts: list[list[int | None]]) -> None: ...

class Ranking:
    def __new__(
        cls,
        table: NodeTable,
        rows: npt.NDArray[np.uint32],
        ties: npt.NDArray[np.uint64],
        ask_cpu_mhz: npt.NDArray[np.int64],
        memory_mib: int,
        disk_mib: int,
        *,
        group_count: int,
        spread: bool,
        distinct: bool,
        copies: npt.NDArray[np.int32],
        affinities: npt.NDArray[np.int64] | None = None,
        spreads: SpreadCounts | None = None,
        places: npt.NDArray[np.int32] | None = None,
    ) -> Ranking: ...
    @property
    def count(self) -> int: ...
    def best(self) -> tuple[int, int, int] | None: ...
    def top(self, count: int) -> list[int]: ...
    def place(self, chosen: npt.NDArray[np.uint32]) -> int: ...
    def update(self, index: int, cpu_mhz: int, memory_mib: int, disk_mib: int, slots: int, copies: int) -> None: ...
    def set_penalised(self, index: int, penalised: bool) -> None: ...
    def set_left_out(self, index: int, left_out: bool) -> None: ...
    def scores(self, index: int) -> tuple[float, float, float, float]: ...
    def codes(self, codes: npt.NDArray[np.int8]) -> None: ...

def regular_rows(
    table: NodeTable, rows: npt.NDArray[np.uint32], regular: npt.NDArray[np.uint8], core_mhz: npt.NDArray[np.int64]
) -> None: ...
def fitting_rows(
    table: NodeTable,
    rows: npt.NDArray[np.uint32],
    cpu_mhz: int,
    memory_mib: int,
    disk_mib: int,
    taken: npt.NDArray[np.int64],
    fits: npt.NDArray[np.uint8],
) -> None: ...
def tie_keys(seed: int, rows: npt.NDArray[np.uint32], keys: npt.NDArray[np.uint64]) -> None: ...
