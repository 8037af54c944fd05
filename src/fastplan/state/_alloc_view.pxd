"""Allocations as columns: what compiled modules may read of them (docs/architecture.md, "State").

An allocation is an *identity*, written once and shared by all snapshots, and a *row* in versioned blocks that changes. A view skips identities
beyond its count and rows that are marked dead. Chains go from newer to older rows, so one chain serves every view.

Nodes and evaluations are named by *refs*: numbers of interned ids, private to one generation of the table. A node keeps its ref when its row in the
node table changes hands, so an allocation never moves to another node.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from fastplan.columns._blocks cimport BlockArray, payload
from fastplan.columns._ids cimport IdIndex, KeyColumn
from fastplan.fit._kernels cimport Ask


cdef enum:
    ROW_SHIFT = 4               # rows per versioned block
    ROW_MASK = 15
    IDENTITY_SHIFT = 12         # identities per chunk
    IDENTITY_MASK = 4095
    GROUP_SHIFT = 6             # groups per versioned block
    GROUP_MASK = 63
    REF_SHIFT = 9               # node rows per versioned block of refs
    REF_MASK = 511
    CLAIM_SHIFT = 16            # words per chunk of the claims arena
    CLAIM_MASK = 65535

cdef enum:
    NONE = 0xFFFFFFFF           # no row, no ref
    KEEP = 255                  # status argument: leave as it is

# AllocRow.flags
cdef enum:
    ALLOC_DEAD = 1              # deleted; the row is never used again in this generation of the table
    ALLOC_IRREGULAR = 2         # only the ordered reference can judge it
    ALLOC_UNSORTED = 4          # the claims, kept in slot order, do not ascend

# Numbers of statuses, as in statuses.py.
cdef enum:
    DESIRED_RUN = 1
    DESIRED_STOP = 2
    DESIRED_EVICT = 3
    CLIENT_COMPLETE = 4
    CLIENT_LOST = 6
    CLIENT_STATUSES = 7

ctypedef struct AllocIdentity:
    uint8_t key[16]
    uint32_t node_ref
    uint32_t group_row
    int32_t name_index          # name is job.group[index]; -1: it stands in the extra
    uint32_t create_stamp
    uint32_t older_on_node      # next row of the node's chain
    uint32_t older_in_group

ctypedef struct AllocRow:
    uint32_t modify_stamp
    uint32_t alloc_modify_stamp
    uint8_t desired
    uint8_t client
    uint8_t flags               # ALLOC_*
    uint8_t claims_count        # 255: the count is the word before the claims
    uint32_t job_version_row
    uint32_t eval_ref
    uint32_t shape_row
    uint32_t claims_offset      # in the claims arena, in words
    uint32_t extra              # number of the extra, NONE without
    uint32_t note               # number of the stop note, NONE without

ctypedef struct GroupRow:
    uint32_t clients[CLIENT_STATUSES]   # allocations by client status
    uint32_t live               # terminal on neither side

ctypedef struct Stamp:
    uint64_t index
    int64_t time_ns

ctypedef struct EvalRun:
    # Rows first … first + count - 1 carried one evaluation when they were written.
    uint32_t first
    uint32_t count
    uint32_t older
    uint32_t spare


cdef inline bint client_terminal(const AllocRow* row) noexcept nogil:
    return row.client >= CLIENT_COMPLETE


cdef inline bint server_terminal(const AllocRow* row) noexcept nogil:
    return row.desired >= DESIRED_STOP


# Sort claims in place, ascending.
cdef void sort_claims(uint64_t* claims, uint32_t count) noexcept nogil


# How an allocation counts on its node.
cdef enum:
    GONE = 0
    STOPPING = 1
    LIVE = 2


cdef inline int state_of(const AllocRow* row) noexcept nogil:
    if client_terminal(row):
        return GONE
    return STOPPING if server_terminal(row) else LIVE


# Make room for *wanted* items; new memory is filled with the byte *fill*.
cdef int grow(void** array, uint32_t* room, uint32_t wanted, size_t item_bytes, int fill) except -1

# ValueError unless keys have 16 bytes.
cdef int check_width(const uint8_t[:, ::1] keys) except -1


cdef class KeyRows:
    """Append-only interning of 16-byte keys: number ↔ key."""
    cdef char** chunks
    cdef uint32_t chunk_count
    cdef uint32_t chunk_room
    cdef readonly uint32_t count
    cdef KeyColumn column
    cdef IdIndex index
    cdef uint8_t* key(self, uint32_t number) noexcept nogil
    cdef int64_t find_key(self, const uint8_t* key) noexcept nogil
    cdef int64_t intern_key(self, const uint8_t* key) except -1
    cdef size_t bytes_used(self)


cdef class AllocMemory:
    """What is append-only or only read by the writer; shared by a table and all views of it."""
    cdef char** chunks          # of AllocIdentity; the chunks never move
    cdef uint32_t chunk_count
    cdef uint32_t chunk_room
    cdef KeyColumn column
    cdef IdIndex index
    cdef dict replaced          # row → older row with the same id
    cdef uint64_t** claim_chunks
    cdef uint32_t claim_chunk_count
    cdef uint32_t claim_chunk_room
    cdef uint64_t claims_end    # next free word of the arena
    cdef Stamp* stamps
    cdef uint32_t stamp_count
    cdef uint32_t stamp_room
    cdef Ask* shapes            # what an allocation of the shape asks, without claims
    cdef uint32_t shape_count
    cdef uint32_t shape_room
    cdef KeyRows nodes
    cdef uint32_t* node_heads   # by node ref: newest row
    cdef uint32_t* node_rows    # by node ref: row in the node table now, NONE while the node does not exist. For the writer
    cdef uint32_t node_room
    cdef KeyRows evals
    cdef uint32_t* eval_heads   # by eval ref: newest run
    cdef uint32_t eval_room
    cdef EvalRun* runs
    cdef uint32_t run_count
    cdef uint32_t run_room
    cdef uint32_t* group_heads
    cdef uint32_t group_room
    cdef uint32_t* version_uses  # by job version row: rows alive that use it. For the writer
    cdef uint32_t version_room

    cdef void** outgrown        # arrays that were too small and may still be read
    cdef uint32_t outgrown_count
    cdef uint32_t outgrown_room

    cdef int grow_shared(self, void** array, uint32_t* room, uint32_t wanted, size_t item_bytes) except -1
    cdef int reserve_identities(self, uint32_t count) except -1
    cdef uint64_t* store_claims(self, AllocRow* row, const uint64_t* claims, uint32_t count) except? NULL

    cdef inline AllocIdentity* identity(self, uint32_t row) noexcept nogil:
        return <AllocIdentity*> self.chunks[row >> IDENTITY_SHIFT] + (row & IDENTITY_MASK)

    cdef inline uint64_t* claims_of(self, const AllocRow* row, uint32_t* count) noexcept nogil:
        """Return the claims of *row* and write how many there are to *count*."""
        cdef uint64_t* words
        if row.claims_count == 0:
            count[0] = 0
            return NULL
        words = self.claim_chunks[row.claims_offset >> CLAIM_SHIFT] + (row.claims_offset & CLAIM_MASK)
        count[0] = <uint32_t> (words - 1)[0] if row.claims_count == 255 else row.claims_count
        return words


cdef class AllocView:
    """Allocations as they were when the view was taken. A table is the view of the present."""
    cdef readonly uint32_t count        # identities that the view may see, dead ones included
    cdef readonly uint32_t dead_count   # of them, those that are deleted
    cdef readonly uint32_t generation   # of the table; row numbers and refs of another generation mean nothing here
    cdef AllocMemory memory
    cdef BlockArray rows
    cdef BlockArray groups
    cdef BlockArray refs                # by node row: ref + 1 of the node that has it, 0 for none

    cdef inline AllocRow* row(self, uint32_t row) noexcept nogil:
        return <AllocRow*> payload(self.rows.get(row >> ROW_SHIFT)) + (row & ROW_MASK)

    cdef int64_t find_key(self, const uint8_t* key) noexcept
    cdef uint32_t ref_of_node(self, uint32_t node_row) noexcept nogil
    cdef void ask_of(self, const AllocRow* row, Ask* ask) noexcept nogil    # claims in slot order: `sort_claims` a copy where ALLOC_UNSORTED is set
    cdef int check_row(self, int64_t row) except -1
    cdef int collect(self, uint32_t row, bint of_node, int terminal, list rows) except -1
