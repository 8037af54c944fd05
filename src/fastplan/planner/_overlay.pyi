from typing import Any

import numpy
from numpy.typing import NDArray

from fastplan.fit._nodes import NodeTable
from fastplan.state._alloc_view import AllocView

class PlanView:
    def __init__(
        self,
        node_rows: NDArray[numpy.uint32],
        node_generations: NDArray[numpy.uint32],
        in_scope: NDArray[numpy.uint8],
        place_offsets: NDArray[numpy.uint32],
        alloc_ids: NDArray[numpy.uint8],
        shape_index: NDArray[numpy.uint16],
        client_status: NDArray[numpy.uint8],
        place_flags: NDArray[numpy.uint8],
        claim_offsets: NDArray[numpy.uint32],
        claims: NDArray[numpy.uint64],
        shape_amounts: NDArray[numpy.int64],
        stop_offsets: NDArray[numpy.uint32],
        stop_ids: NDArray[numpy.uint8],
        stop_client: NDArray[numpy.uint8],
        preempt_offsets: NDArray[numpy.uint32],
        preempt_ids: NDArray[numpy.uint8],
    ) -> None: ...

class Overlay:
    def __init__(self) -> None: ...
    @property
    def odd_count(self) -> int: ...
    def __len__(self) -> int: ...
    def add(self, plan: PlanView, owner: Any, codes: NDArray[numpy.int8], kept: NDArray[numpy.uint8], nodes: NodeTable, allocs: AllocView) -> None: ...
    def remove(self, plan: PlanView) -> None: ...
    def changes_on(self, node_row: int, generation: int) -> list[tuple[Any, int, int]]: ...
    def all_changes(self) -> list[tuple[Any, int, int]]: ...
    def placement(self, key: bytes) -> tuple[Any, int] | None: ...
