"""Plans in flight; the contract stands in `_overlay.pxd`. Everything here runs under the interpreter lock."""

cimport cython
from libc.stdint cimport int8_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

from fastplan.columns._ids cimport hash_key
from fastplan.fit._nodes cimport NodeTable
from fastplan.state._alloc_view cimport NONE, AllocView
from fastplan.state._plan_view cimport PLACE_OTHER_NODE, PlanView

cdef enum:
    TOMBSTONE = 0xFFFFFFFF


cdef int reserve(void** array, uint32_t* room, uint64_t wanted, size_t item_bytes) except -1:
    cdef uint64_t more
    cdef void* grown
    if wanted <= room[0]:
        return 0
    more = wanted + wanted // 2 + 32
    grown = realloc(array[0], more * item_bytes)
    if grown == NULL:
        raise MemoryError(f"no memory to verify a plan: {more} items of {item_bytes} bytes")
    array[0] = grown
    room[0] = <uint32_t> more
    return 0


@cython.no_gc_clear
cdef class Overlay:
    """The accepted parts of plans in flight, by node and in dispatch order."""

    def __cinit__(self):
        self.entries = {}
        self.rebuild_slots(256)

    def __dealloc__(self):
        free(self.changes)
        free(self.heads)
        free(self.tails)
        free(self.slots)

    def __len__(self):
        """Return how many plans are in flight."""
        return len(self.entries)

    def add(
        self, PlanView plan not None, owner, const int8_t[::1] codes not None, const uint8_t[::1] kept not None, NodeTable nodes not None,
        AllocView allocs not None,
    ):
        """Put the accepted parts of *plan* in flight: those of nodes whose code is 0, without preemptions that are not *kept* (uint8, p).

        *owner* is what `changes_on` names the plan by.

        Raises ValueError if the plan is in flight already.
        """
        if codes.shape[0] != plan.node_count:
            raise ValueError(f"codes needs {plan.node_count} entries")
        if kept.shape[0] != plan.preempt_count:
            raise ValueError(f"kept needs {plan.preempt_count} entries")
        self.add_accepted(plan, owner, &codes[0] if plan.node_count else NULL, &kept[0] if plan.preempt_count else NULL, nodes, allocs)

    cdef int add_accepted(self, PlanView plan, object owner, const int8_t* codes, const uint8_t* kept, NodeTable nodes, AllocView allocs) except -1:
        """Put the accepted parts of *plan* in flight; codes and kept as of `add`."""
        cdef Py_ssize_t i
        cdef int kind
        cdef uint32_t j, node_row, ref, last = 0
        if plan in self.entries:
            raise ValueError("this plan is in flight already")
        # What has been entered must be found again, even if memory runs out half-way.
        try:
            # In the order in which the state machine writes them (plan-apply 6.10): an id may occur more than once.
            for kind in range(3):
                if (kind == KIND_STOP and plan.stop_count == 0) or (kind == KIND_PREEMPT and plan.preempt_count == 0):
                    continue
                for i in range(plan.node_count):
                    if codes[i] != 0 or not plan.in_scope[i]:
                        continue
                    node_row = plan.node_rows[i]
                    ref = NONE
                    if node_row < nodes.row_count and nodes.row_at(node_row).generation == plan.node_generations[i]:
                        ref = allocs.ref_of_node(node_row)
                    if kind == KIND_PLACE:
                        for j in range(plan.place_offsets[i], plan.place_offsets[i + 1]):
                            last = self.enter(plan, plan.alloc_ids + <size_t> 16 * j, j, KIND_PLACE, i, ref, allocs, last)
                    elif kind == KIND_STOP:
                        for j in range(plan.stop_offsets[i], plan.stop_offsets[i + 1]):
                            last = self.enter(plan, plan.stop_ids + <size_t> 16 * j, j, KIND_STOP, i, ref, allocs, last)
                    else:
                        for j in range(plan.preempt_offsets[i], plan.preempt_offsets[i + 1]):
                            if kept[j]:
                                last = self.enter(plan, plan.preempt_ids + <size_t> 16 * j, j, KIND_PREEMPT, i, ref, allocs, last)
        finally:
            self.entries[plan] = (owner, last)
        return 0

    cdef uint32_t enter(
        self, PlanView plan, const uint8_t* key, uint32_t item, uint8_t kind, Py_ssize_t i, uint32_t ref, AllocView allocs, uint32_t before,
    ) except 0:
        """Add one change behind those of its node and return its number + 1. *before*: the plan's change before it, number + 1."""
        cdef uint32_t number = self.new_change()
        cdef uint32_t node_row = plan.node_rows[i]
        cdef Change* change = &self.changes[number]
        cdef Change* place = self.find_place(key)
        cdef int64_t row = allocs.find_key(key)
        change.plan = <void*> plan
        change.key = key
        change.item = item
        change.kind = kind
        change.node_row = node_row
        change.generation = plan.node_generations[i]
        change.next = 0
        change.before = before
        # What it concerns must be on the node that lists it; anything else is left to the reference.
        if row >= 0:
            change.odd = ref == NONE or allocs.memory.identity(<uint32_t> row).node_ref != ref
        elif place != NULL:
            change.odd = place.odd or place.node_row != node_row or place.generation != change.generation
        else:
            change.odd = kind != KIND_PLACE or ref == NONE
        # Where an allocation moves to another node, so do the changes that follow.
        if (place != NULL and place.odd) or (kind == KIND_PLACE and plan.place_flags[item] & PLACE_OTHER_NODE):
            change.odd = True
        if change.odd:
            self.odd_count += 1
        else:
            self.link(number, node_row)
        if kind == KIND_PLACE:
            self.enter_key(number)
        return number + 1

    def remove(self, PlanView plan not None):
        """The plan is committed or has failed: it is no longer in flight. Raises KeyError if it was not."""
        cdef uint32_t number = self.entries.pop(plan)[1]
        cdef Change* change
        while number:
            change = &self.changes[number - 1]
            if change.odd:
                self.odd_count -= 1
            else:
                self.unlink(number - 1)
            if change.kind == KIND_PLACE:
                self.leave_key(number - 1)
            change.plan = NULL
            change.next = self.free_change
            self.free_change = number
            number = change.before

    def changes_on(self, uint32_t node_row, uint32_t generation):
        """Return what is in flight on a node, in dispatch order: [(owner of the plan, kind, row)]; kind 0 placement, 1 stop, 2 preemption."""
        cdef list found = []
        cdef uint32_t number = self.heads[node_row] if node_row < self.node_room else 0
        cdef Change* change
        while number:
            change = &self.changes[number - 1]
            if change.generation == generation:
                found.append((self.entries[<PlanView> change.plan][0], change.kind, change.item))
            number = change.next
        return found

    def all_changes(self):
        """Return everything in flight, in dispatch order, as `changes_on` does."""
        cdef list found = []
        cdef list numbers
        cdef uint32_t number
        for owner, last in self.entries.values():
            number = last
            numbers = []
            while number:
                numbers.append((owner, self.changes[number - 1].kind, self.changes[number - 1].item))
                number = self.changes[number - 1].before
            numbers.reverse()
            found += numbers
        return found

    def placement(self, bytes key not None):
        """Return (owner of the plan, row) of the newest placement in flight with this key, None without one."""
        cdef Change* change
        if len(key) != 16:
            raise ValueError("a key has 16 bytes")
        change = self.find_place(<const uint8_t*> <const char*> key)
        return None if change == NULL else (self.entries[<PlanView> change.plan][0], change.item)

    cdef uint32_t new_change(self) except? 0xFFFFFFFF:
        cdef uint32_t number, room = self.change_room
        if not self.free_change:
            reserve(<void**> &self.changes, &self.change_room, <uint64_t> room + 1, sizeof(Change))
            for number in range(self.change_room, room, -1):
                self.changes[number - 1].next = self.free_change
                self.free_change = number
        number = self.free_change - 1
        self.free_change = self.changes[number].next
        return number

    cdef int link(self, uint32_t number, uint32_t node_row) except -1:
        """Append a change to the chain of its node."""
        cdef uint32_t old_room = self.node_room
        cdef uint32_t room = old_room
        if node_row >= old_room:
            reserve(<void**> &self.tails, &room, <uint64_t> node_row + 1, sizeof(uint32_t))
            reserve(<void**> &self.heads, &self.node_room, <uint64_t> node_row + 1, sizeof(uint32_t))
            memset(&self.heads[old_room], 0, (self.node_room - old_room) * sizeof(uint32_t))
        if self.heads[node_row]:
            self.changes[self.tails[node_row] - 1].next = number + 1
        else:
            self.heads[node_row] = number + 1
        self.tails[node_row] = number + 1
        return 0

    cdef void unlink(self, uint32_t number) noexcept:
        """Take a change out of the chain of its node."""
        cdef uint32_t node_row = self.changes[number].node_row
        cdef uint32_t at = self.heads[node_row], older = 0
        while at != number + 1:
            older = at
            at = self.changes[at - 1].next
        at = self.changes[number].next
        if older:
            self.changes[older - 1].next = at
        else:
            self.heads[node_row] = at
        if not at:
            self.tails[node_row] = older

    cdef Change* find_place(self, const uint8_t* key) noexcept nogil:
        """Return the newest placement in flight with this id, NULL without one."""
        cdef uint64_t place = hash_key(key) & self.slot_mask
        cdef uint32_t slot
        cdef Change* change
        cdef Change* found = NULL
        while self.slots[place]:
            slot = self.slots[place]
            place = (place + 1) & self.slot_mask
            if slot == TOMBSTONE:
                continue
            change = &self.changes[slot - 1]
            if memcmp(change.key, key, 16) == 0 and (found == NULL or change.sequence > found.sequence):
                found = change
        return found

    cdef int enter_key(self, uint32_t number) except -1:
        if (self.slots_used + 1) * 2 > self.slot_mask:
            # Deleted slots go; twice the room of what is left.
            self.rebuild_slots((self.keys_in_flight + 1) * 4)
        cdef uint64_t place = hash_key(self.changes[number].key) & self.slot_mask
        while self.slots[place]:
            place = (place + 1) & self.slot_mask
        self.sequence += 1
        self.changes[number].sequence = self.sequence
        self.slots[place] = number + 1
        self.slots_used += 1
        self.keys_in_flight += 1
        return 0

    cdef void leave_key(self, uint32_t number) noexcept:
        cdef uint64_t place = hash_key(self.changes[number].key) & self.slot_mask
        while self.slots[place] != number + 1:
            place = (place + 1) & self.slot_mask
        # At the end of a chain nothing lies behind, so the slot can be empty again.
        if self.slots[(place + 1) & self.slot_mask]:
            self.slots[place] = <uint32_t> TOMBSTONE
        else:
            self.slots[place] = 0
            self.slots_used -= 1
        self.keys_in_flight -= 1

    cdef int rebuild_slots(self, uint64_t size) except -1:
        """Move to a table with room for at least *size* slots, without deleted ones."""
        cdef uint64_t room = 256, i, place
        cdef uint32_t slot
        cdef uint32_t* slots
        while room < size:
            room *= 2
        slots = <uint32_t*> calloc(room, sizeof(uint32_t))
        if slots == NULL:
            raise MemoryError(f"no memory for {room} ids in flight")
        if self.slots != NULL:
            for i in range(self.slot_mask + 1):
                slot = self.slots[i]
                if slot != 0 and slot != TOMBSTONE:
                    place = hash_key(self.changes[slot - 1].key) & (room - 1)
                    while slots[place]:
                        place = (place + 1) & (room - 1)
                    slots[place] = slot
        free(self.slots)
        self.slots = slots
        self.slot_mask = room - 1
        self.slots_used = self.keys_in_flight
        return 0
