from typing import Any

import numpy
from numpy.typing import NDArray

class PlanView:
    def __init__(self, columns: Any, shape_amounts: NDArray[numpy.int64]) -> None: ...
