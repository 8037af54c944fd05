from typing import Any

import numpy
from numpy.typing import NDArray

from fastplan.state._alloc_view import AllocView

class Renumbering: ...

class AllocExport:
    def __init__(self, view: AllocView, *, portable: bool) -> None: ...
    def take(self, rows_max: int) -> dict[str, Any] | None: ...

def translate_claims(claims: NDArray[numpy.uint64], numbers: NDArray[numpy.uint32]) -> None: ...
