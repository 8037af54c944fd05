import numpy as np
import numpy.typing as npt

from fastplan.state._alloc_view import AllocView

def read_slots(
    view: AllocView,
    group_rows: npt.NDArray[np.uint32],
    slots_of_groups: npt.NDArray[np.int8],
    current_version: int,
    slots: npt.NDArray[np.uint8],
) -> None: ...
def rows_to_look_at(view: AllocView, group_rows: npt.NDArray[np.uint32], looked_at: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]: ...
