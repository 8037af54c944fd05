"""The node table: one row a node with its supply, its use and its claims, in versioned blocks.

Rows and claims of ROWS_PER_BLOCK neighbouring nodes share a block, so a write copies no more than that when a snapshot holds on to the old one:

    2 NodeRow | filter and claims of node 0 | filter and claims of node 1 | ... | room to grow

Writing needs the interpreter lock and a table that is not a view; reading with `row_at` does not.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from fastplan.columns._blocks cimport BlockArray, payload
from fastplan.fit._kernels cimport Ask, NodeRow, Supply

cdef enum:
    ROW_SHIFT = 1
    ROWS_PER_BLOCK = 2
    ROW_MASK = 1


cdef class SupplyPool:
    """Immutable supplies at stable addresses, each content once; shared by a table, its views and its forks."""
    cdef dict _known        # content -> address
    cdef dict _arrays       # bytes -> the same bytes: equal parts are kept once, the supplies point into them
    cdef tuple _order       # (node_version, what was derived from the nodes' rows then)
    cdef const Supply* intern(self, object numbers) except NULL


cdef class NodeTable:
    cdef readonly BlockArray blocks
    cdef readonly uint32_t row_count    # rows ever given out, free ones included
    cdef readonly uint32_t node_count
    cdef readonly uint64_t node_version     # changes whenever a node gets or leaves a row; equal numbers mean equal nodes in equal rows
    cdef readonly bint read_only
    cdef SupplyPool pool
    cdef uint32_t _free_row             # row + 1 of the first free row; the chain goes on in `max_allocs` of free rows

    cdef inline const NodeRow* row_at(self, uint32_t row) noexcept nogil:
        """The row for reading. It must be below `row_count`. On a writable table the pointer is good until the next write."""
        return <const NodeRow*> payload(self.blocks.get(row >> ROW_SHIFT)) + (row & ROW_MASK)

    # What an allocation that is not client-terminal adds to its node; an irregular one (ASK_IRREGULAR) is counted, but not summed.
    # `stopping`: it is told to stop. Each undoes the other exactly if called with equal arguments. StateError if the row holds no node or not those claims.
    cdef int add(self, uint32_t row, const Ask* alloc, bint stopping) except -1
    cdef int remove(self, uint32_t row, const Ask* alloc, bint stopping) except -1
    # An allocation that was added as running is told to stop.
    cdef int stop(self, uint32_t row, const Ask* alloc) except -1

    # Ask for the memory of a row some steps before it is needed: first the row, and when that is there its claims. The row must be below `row_count`.
    cdef void prefetch(self, uint32_t row) noexcept nogil
    cdef void prefetch_claims(self, uint32_t row) noexcept nogil

    cdef uint32_t _take_row(self) except? 0xFFFFFFFF
    cdef void _count_nodes(self, int32_t more) noexcept
    cdef NodeRow* _writable(self, uint32_t row) except NULL
    cdef NodeRow* _reserve(self, uint32_t row, NodeRow* node, uint32_t claims) except NULL
