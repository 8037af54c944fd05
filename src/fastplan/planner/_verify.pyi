from typing import Any, Final

import numpy
from numpy.typing import NDArray

from fastplan.fit._nodes import NodeTable
from fastplan.planner._overlay import Overlay
from fastplan.state._alloc_view import AllocView
from fastplan.state._plan_view import PlanView

NOMAD_RULES: Final[int]
STRICT_RULES: Final[int]

def verify(
    nodes: NodeTable,
    allocs: AllocView,
    plan: PlanView,
    rules: int,
    codes: NDArray[numpy.int8],
    flags: NDArray[numpy.uint8],
    overlay: Overlay | None = None,
) -> tuple[int, int, int, int, bool]: ...
def verify_whole(
    nodes: NodeTable,
    allocs: AllocView,
    plans: list[PlanView | None],
    owners: list[Any],
    first: int,
    rules: int,
    overlay: Overlay,
    rests: NDArray[numpy.uint8],
) -> int: ...
def live_preemptions(nodes: NodeTable, allocs: AllocView, plan: PlanView, kept: NDArray[numpy.uint8], overlay: Overlay | None = None) -> bool: ...
