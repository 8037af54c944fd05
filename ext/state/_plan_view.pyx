"""Plans in columns for compiled code; the contract stands in `_plan_view.pxd`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef enum:
    # So many arrays, each of which begins at a multiple of eight bytes.
    ARRAYS = 20
    BYTES_OF_NODE = 4 + 4 + 1 + 4 + 4 + 4
    BYTES_OF_PLACE = 16 + 2 + 2 + 4 + 1 + 1 + 4
    BYTES_OF_STOP = 16 + 2 + 1
    BYTES_OF_PREEMPTION = 16 + 16
    BYTES_OF_SHAPE = 32


cdef class PlanView:
    """The columns of a plan as they are now, for the compiled code. ValueError where they do not belong together.

    *columns*: arrays under the names of `state.plans.PlanColumns`. *shape_amounts*: int64 (shapes, 4), what its shapes ask.
    Attributes: `place_count`, `stop_count`, `preempt_count`.
    """

    def __init__(self, columns, shape_amounts):
        cdef Py_ssize_t i
        cdef char* at
        if self.memory != NULL:
            raise ValueError("a plan is bound once")
        self.node_count = len(columns.node_rows)
        self.place_count = len(columns.alloc_ids)
        self.claim_count = len(columns.claims)
        self.shape_count = len(shape_amounts)
        self.stop_count = len(columns.stop_ids)
        self.preempt_count = len(columns.preempt_ids)
        # The offsets have one entry more than there are nodes or placements.
        self.memory_bytes = (
            (self.node_count + 1) * BYTES_OF_NODE + (self.place_count + 1) * BYTES_OF_PLACE + self.claim_count * 8 + self.shape_count * BYTES_OF_SHAPE
            + self.stop_count * BYTES_OF_STOP + self.preempt_count * BYTES_OF_PREEMPTION + ARRAYS * 8
        )
        self.memory = <char*> malloc(self.memory_bytes)
        if self.memory == NULL:
            raise MemoryError("no memory for the columns of a plan")
        at = self.memory
        # First what a verification reads, in its order.
        self.node_rows = <const uint32_t*> self.take(columns.node_rows, 4, self.node_count, &at)
        self.node_generations = <const uint32_t*> self.take(columns.node_generations, 4, self.node_count, &at)
        self.place_offsets = <const uint32_t*> self.take(columns.place_offsets, 4, self.node_count + 1, &at)
        self.stop_offsets = <const uint32_t*> self.take(columns.stop_offsets, 4, self.node_count + 1, &at)
        self.preempt_offsets = <const uint32_t*> self.take(columns.preempt_offsets, 4, self.node_count + 1, &at)
        self.in_scope = <const uint8_t*> self.take(columns.in_scope, 1, self.node_count, &at)
        self.client_status = <const uint8_t*> self.take(columns.client_status, 1, self.place_count, &at)
        self.place_flags = <const uint8_t*> self.take(columns.place_flags, 1, self.place_count, &at)
        self.shape_index = <const uint16_t*> self.take(columns.shape_index, 2, self.place_count, &at)
        self.shape_amounts = <const int64_t*> self.take(shape_amounts, 32, self.shape_count, &at)
        self.claim_offsets = <const uint32_t*> self.take(columns.claim_offsets, 4, self.place_count + 1, &at)
        self.alloc_ids = <const uint8_t*> self.take(columns.alloc_ids, 16, self.place_count, &at)
        self.claims = <const uint64_t*> self.take(columns.claims, 8, self.claim_count, &at)
        self.stop_ids = <const uint8_t*> self.take(columns.stop_ids, 16, self.stop_count, &at)
        self.stop_client = <const uint8_t*> self.take(columns.stop_client, 1, self.stop_count, &at)
        self.preempt_ids = <const uint8_t*> self.take(columns.preempt_ids, 16, self.preempt_count, &at)
        # Then what only the log gets.
        self.group_index = <const uint16_t*> self.take(columns.group_index, 2, self.place_count, &at)
        self.name_index = <const int32_t*> self.take(columns.name_index, 4, self.place_count, &at)
        self.stop_note_index = <const uint16_t*> self.take(columns.stop_note_index, 2, self.stop_count, &at)
        self.preempted_by = <const uint8_t*> self.take(columns.preempted_by, 16, self.preempt_count, &at)
        check_offsets(self.place_offsets, self.node_count + 1, self.place_count)
        check_offsets(self.claim_offsets, self.place_count + 1, self.claim_count)
        check_offsets(self.stop_offsets, self.node_count + 1, self.stop_count)
        check_offsets(self.preempt_offsets, self.node_count + 1, self.preempt_count)
        for i in range(self.place_count):
            if self.shape_index[i] >= self.shape_count:
                raise ValueError(f"placement {i} has shape {self.shape_index[i]} of {self.shape_count}")

    def __dealloc__(self):
        free(self.memory)

    cdef char* take(self, object array, Py_ssize_t item_bytes, Py_ssize_t items, char** at) except NULL:
        """Copy *array* to *at*, move that on, and return where the copy is."""
        cdef Py_buffer view
        cdef char* start = at[0]
        cdef Py_ssize_t size
        PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
        size = view.len
        if size == item_bytes * items:
            memcpy(start, view.buf, size)
        PyBuffer_Release(&view)
        if size != item_bytes * items:
            raise ValueError("the columns of a plan have lengths that do not belong together")
        at[0] = start + (size + 7) // 8 * 8
        return start


cdef int check_offsets(const uint32_t* offsets, Py_ssize_t length, Py_ssize_t count) except -1:
    cdef Py_ssize_t i
    if offsets[0] != 0 or offsets[length - 1] != count:
        raise ValueError(f"the offsets of a plan's column must go from 0 to {count}")
    for i in range(1, length):
        if offsets[i] < offsets[i - 1]:
            raise ValueError("the offsets of a plan's column must ascend")
    return 0
