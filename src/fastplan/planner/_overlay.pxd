"""The overlay of plans in flight (plan-apply 6.9).

It holds the accepted parts of plans that are on their way to the log, as a list of changes a node, in dispatch order. The changes name allocations by
id and are looked up again at every verification: what they mean depends on what is committed at that moment, so nothing goes stale.
"""

from libc.stdint cimport int8_t, uint8_t, uint32_t, uint64_t

from fastplan.fit._nodes cimport NodeTable
from fastplan.state._alloc_view cimport AllocView
from fastplan.state._plan_view cimport PlanView

# What a change in flight is.
cdef enum:
    KIND_PLACE = 0
    KIND_STOP = 1
    KIND_PREEMPT = 2

# Make room for *wanted* items in a growing array of *room* ones. Raises MemoryError.
cdef int reserve(void** array, uint32_t* room, uint64_t wanted, size_t item_bytes) except -1


cdef struct Change:
    void* plan                  # PlanView, borrowed: the overlay keeps it
    const uint8_t* key
    uint64_t sequence           # order of dispatch, of a placement
    uint32_t item               # row among the plan's placements, stops or preemptions
    uint32_t next               # next change of the node, number + 1
    uint32_t before             # the change of the plan before this one, number + 1
    uint32_t node_row
    uint32_t generation
    uint8_t kind
    uint8_t odd                 # concerns an allocation that is not on the node; in no chain


cdef class Overlay:
    cdef Change* changes
    cdef uint32_t change_room
    cdef uint32_t free_change   # number + 1 of the first free one
    cdef uint32_t* heads        # by node row: number + 1 of the first change
    cdef uint32_t* tails
    cdef uint32_t node_room
    cdef uint32_t* slots        # placements in flight by id: number + 1; open addressing
    cdef uint64_t slot_mask
    cdef uint64_t slots_used    # with deleted ones
    cdef uint64_t keys_in_flight
    cdef uint64_t sequence
    cdef dict entries           # plan view → (owner, number + 1 of its last change)
    cdef readonly Py_ssize_t odd_count  # changes that only the reference understands
    cdef int add_accepted(self, PlanView plan, object owner, const int8_t* codes, const uint8_t* kept, NodeTable nodes, AllocView allocs) except -1
    cdef uint32_t enter(
        self, PlanView plan, const uint8_t* key, uint32_t item, uint8_t kind, Py_ssize_t i, uint32_t ref, AllocView allocs, uint32_t before,
    ) except 0
    cdef uint32_t new_change(self) except? 0xFFFFFFFF
    cdef int link(self, uint32_t number, uint32_t node_row) except -1
    cdef void unlink(self, uint32_t number) noexcept
    cdef Change* find_place(self, const uint8_t* key) noexcept nogil
    cdef int enter_key(self, uint32_t number) except -1
    cdef void leave_key(self, uint32_t number) noexcept
    cdef int rebuild_slots(self, uint64_t size) except -1
