"""The columns of one plan for compiled code (docs/architecture.md, "Plan columns"): copied into one block, which fills few lines of a cold cache."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

# Flags of a placement.
cdef enum:
    PLACE_IRREGULAR = 1         # only the reference can judge it
    PLACE_OTHER_NODE = 2        # its own NodeID names another node than the plan does
    PLACE_NOT_REPLACEABLE = 4   # its group says that it must not be replaced while its node is disconnected
    PLACE_OWN_JOB = 8           # it carries a job, so its volumes count under Nomad's rules too


cdef class PlanView:
    # Ids have 16 bytes a row, amounts 4 numbers a row.
    cdef const uint32_t* node_rows
    cdef const uint32_t* node_generations
    cdef const uint8_t* in_scope
    cdef const uint32_t* place_offsets
    cdef const uint8_t* alloc_ids
    cdef const uint16_t* shape_index
    cdef const uint16_t* group_index
    cdef const int32_t* name_index
    cdef const uint8_t* client_status
    cdef const uint8_t* place_flags
    cdef const uint32_t* claim_offsets
    cdef const uint64_t* claims
    cdef const int64_t* shape_amounts
    cdef const uint32_t* stop_offsets
    cdef const uint8_t* stop_ids
    cdef const uint16_t* stop_note_index
    cdef const uint8_t* stop_client
    cdef const uint32_t* preempt_offsets
    cdef const uint8_t* preempt_ids
    cdef const uint8_t* preempted_by
    cdef Py_ssize_t node_count
    cdef readonly Py_ssize_t place_count
    cdef Py_ssize_t claim_count
    cdef Py_ssize_t shape_count
    cdef readonly Py_ssize_t stop_count
    cdef readonly Py_ssize_t preempt_count
    cdef char* memory
    cdef size_t memory_bytes
    cdef char* take(self, object array, Py_ssize_t item_bytes, Py_ssize_t items, char** at) except NULL
