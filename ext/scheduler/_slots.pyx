"""What stands in the slots of a system job on every node, in one walk over the allocations of its groups (schedulers 4.4 to 4.6)."""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc

import numpy

from fastplan.state._alloc_view cimport (
    ALLOC_DEAD, DESIRED_RUN, LIVE, NONE, AllocIdentity, AllocRow, AllocView, client_terminal, state_of,
)

cdef enum:
    # Bits of a slot.
    SETTLED = 1             # one live allocation of the current version, of which nothing else is to be known
    OTHER = 2               # several live ones, or one that has to be looked at
    ENDED = 4               # an allocation that has ended, or was told to
    LINGERS = 8             # that was told to, and its client has not ended

    CLIENT_PENDING = 1
    CLIENT_RUNNING = 2


cdef int32_t* rows_by_ref(AllocView view, uint32_t row_count) except NULL:
    """Node ref → row in the node table of the snapshot, −1 while the node does not exist."""
    cdef uint32_t count = view.memory.nodes.count
    cdef int32_t* rows = <int32_t*> malloc((count or 1) * sizeof(int32_t))
    cdef uint32_t ref, row
    if rows == NULL:
        raise MemoryError("no memory for node rows")
    for ref in range(count):
        rows[ref] = -1
    for row in range(row_count):
        ref = view.ref_of_node(row)
        if ref != NONE and ref < count:
            rows[ref] = <int32_t> row
    return rows


def read_slots(
    AllocView view not None,
    const uint32_t[::1] group_rows not None,
    const int8_t[::1] slots_of_groups not None,
    int64_t current_version,
    uint8_t[:, ::1] slots not None,
):
    """Write the bits of each slot (uint8: slot × node row); whatever is in a group without a slot (−1) goes to the last line.

    *group_rows* (uint32) and *slots_of_groups* (int8): all groups that the job has ever had. *current_version*: the row of the job's version.
    """
    cdef Py_ssize_t i
    cdef uint32_t row
    cdef int32_t node_row
    cdef uint8_t bits
    cdef uint8_t* slot
    cdef AllocIdentity* identity
    cdef AllocRow* entry
    cdef int32_t* node_rows = rows_by_ref(view, <uint32_t> slots.shape[1])
    try:
        for i in range(group_rows.shape[0]):
            if not -1 <= slots_of_groups[i] < slots.shape[0] - 1:
                raise ValueError(f"slot {slots_of_groups[i]} does not exist")
            row = view.memory.group_heads[group_rows[i]] if group_rows[i] < view.memory.group_room else <uint32_t> NONE
            while row != NONE:
                identity = view.memory.identity(row)
                if row < view.count:
                    entry = view.row(row)
                    node_row = -1 if entry.flags & ALLOC_DEAD else node_rows[identity.node_ref]
                    if node_row >= 0:
                        slot = &slots[slots_of_groups[i] if slots_of_groups[i] >= 0 else slots.shape[0] - 1, node_row]
                        if state_of(entry) != LIVE:
                            bits = ENDED if client_terminal(entry) else ENDED | LINGERS
                        elif (
                            entry.desired == DESIRED_RUN
                            and CLIENT_PENDING <= entry.client <= CLIENT_RUNNING
                            and entry.job_version_row == current_version
                            and identity.name_index == 0
                            and entry.extra == NONE
                            and not slot[0] & (SETTLED | OTHER)
                        ):
                            bits = SETTLED
                        else:
                            bits = OTHER
                        slot[0] |= bits
                row = identity.older_in_group
    finally:
        free(node_rows)


def rows_to_look_at(AllocView view not None, const uint32_t[::1] group_rows not None, const uint8_t[::1] looked_at not None):
    """Return the rows (uint32) of all allocations of the groups on nodes that are *looked_at* (uint8 by node row), and of those that have not ended on nodes
    that do not exist."""
    cdef Py_ssize_t i
    cdef uint32_t row
    cdef int32_t node_row
    cdef AllocIdentity* identity
    cdef AllocRow* entry
    cdef list found = []
    cdef int32_t* node_rows = rows_by_ref(view, <uint32_t> looked_at.shape[0])
    try:
        for i in range(group_rows.shape[0]):
            row = view.memory.group_heads[group_rows[i]] if group_rows[i] < view.memory.group_room else <uint32_t> NONE
            while row != NONE:
                identity = view.memory.identity(row)
                if row < view.count:
                    entry = view.row(row)
                    node_row = node_rows[identity.node_ref]
                    if not entry.flags & ALLOC_DEAD and (looked_at[node_row] if node_row >= 0 else not client_terminal(entry)):
                        found.append(row)
                row = identity.older_in_group
    finally:
        free(node_rows)
    return numpy.array(found, numpy.uint32)
