"""A stranger's package: does an allocation fit each node of a fleet? One loop over fastplan's rows, without the interpreter lock."""

from libc.stdint cimport int32_t, uint32_t

import numpy as np

from fastplan.fit._kernels cimport RULE_CHECK_DEVICES, RULE_PHYSICAL, AskNumbers, check_row
from fastplan.fit._nodes cimport NodeTable


def verdicts(NodeTable table, AskNumbers ask):
    """Return the verdict on each row of *table* for *ask*: int32, 0 where it fits, a reason number, or -1 where only the reference can decide."""
    cdef uint32_t row
    codes = np.empty(table.row_count, np.int32)
    cdef int32_t[::1] view = codes
    with nogil:
        for row in range(table.row_count):
            view[row] = check_row(table.row_at(row), &ask.ask, NULL, NULL, RULE_PHYSICAL | RULE_CHECK_DEVICES)
    return codes
