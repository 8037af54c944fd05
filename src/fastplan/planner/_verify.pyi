from typing import Final

import numpy
from numpy.typing import NDArray

from fastplan.fit._nodes import NodeTable
from fastplan.planner._overlay import Overlay, PlanView
from fastplan.state._alloc_view import AllocView

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
def live_preemptions(nodes: NodeTable, allocs: AllocView, plan: PlanView, kept: NDArray[numpy.uint8], overlay: Overlay | None = None) -> bool: ...
