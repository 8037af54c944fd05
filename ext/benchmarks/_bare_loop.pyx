"""The least that a plan applier could do with a batch: compare four numbers a row, and take them off."""

from libc.stdint cimport int64_t, uint8_t, uint32_t


def check_and_commit(int64_t[:, ::1] free not None, const uint32_t[::1] rows not None, const int64_t[:, ::1] asks not None, uint8_t[::1] accepted not None):
    """Check each row against what is left on its node and take what fits, in order. Return how many fitted.

    *free*: int64 (nodes, 4), is changed. *rows*: uint32 (n), node of each row. *asks*: int64 (n, 4). *accepted*: uint8 (n), is written. Raises
    ValueError for lengths that differ and for a node that is not there; then nothing has changed.
    """
    cdef Py_ssize_t count = rows.shape[0]
    cdef Py_ssize_t i
    cdef Py_ssize_t fitted = 0
    cdef int64_t* node
    cdef const int64_t* ask
    cdef uint8_t fits
    if asks.shape[0] != count or accepted.shape[0] != count or asks.shape[1] != 4 or free.shape[1] != 4:
        raise ValueError("rows, asks and room for verdicts do not belong together")
    for i in range(count):
        if rows[i] >= free.shape[0]:
            raise ValueError(f"there is no node {rows[i]}")
    with nogil:
        for i in range(count):
            node = &free[rows[i], 0]
            ask = &asks[i, 0]
            fits = (node[0] >= ask[0]) & (node[1] >= ask[1]) & (node[2] >= ask[2]) & (node[3] >= ask[3])
            if fits:
                node[0] -= ask[0]
                node[1] -= ask[1]
                node[2] -= ask[2]
                node[3] -= ask[3]
            accepted[i] = fits
            fitted += fits
    return fitted
