"""The table of allocations, for its one writer. Everything that is read stands in `_alloc_view.pxd`."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t

from fastplan.columns._blocks cimport Domain
from fastplan.fit._nodes cimport NodeTable
from fastplan.state._alloc_view cimport AllocRow, AllocView, GroupRow


cdef class AllocTable(AllocView):
    """The one that is written; it keeps the node table equal to itself."""
    cdef NodeTable nodes
    cdef Domain domain
    cdef list unused_versions
    cdef uint64_t wasted_claims         # words of the arena that no row refers to any more
    cdef AllocRow* writable(self, uint32_t row) except NULL
    cdef GroupRow* writable_group(self, uint32_t group_row) except NULL
    cdef uint32_t intern_node_key(self, const uint8_t* key) except? 0xFFFFFFFF
    cdef uint32_t intern_eval_key(self, const uint8_t* key) except? 0xFFFFFFFF
    cdef int recount(self, uint32_t ref, const AllocRow* row, int before, int after) except -1
    cdef int use_version(self, uint32_t version, int change) except -1
    cdef int note_eval(self, uint32_t ref, uint32_t row) except -1
    cdef int check_claims(self, Py_ssize_t i, const uint32_t[::1] claim_offsets, const uint64_t[::1] claims) except -1
    cdef int abandon(self, uint32_t first, uint32_t n) except -1
    cdef int check_rows(self, const uint32_t[::1] rows, const uint32_t[::1] stamps) except -1
    cdef void prefetch_node(self, uint32_t ref, bint claims) noexcept nogil
    cdef void prefetch_ahead(self, const uint32_t[::1] rows, Py_ssize_t i) noexcept nogil
    cdef int set_status(self, uint32_t row, uint8_t desired, uint8_t client, uint32_t modify_stamp, uint32_t alloc_modify_stamp, uint32_t note) except -1
    cdef list end_rows(
        self, const uint32_t[::1] stamps, const uint32_t[::1] rows, const uint32_t[::1] notes, const uint8_t[::1] client_status, uint8_t desired,
    )
    cdef bint holds(self, const AllocRow* entry, const uint64_t[::1] claims) noexcept
