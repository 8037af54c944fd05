"""The table of allocations; the layout stands in `_allocs.pxd`, the idea in docs/architecture.md, "State".

Cost of a new allocation: one identity, one row, one slot of the id index, its claims, and one row and claims of the node table. The loops go over a
batch several times, so that the cache lines of a pass are on their way while the one before it still works.
"""

import numpy

from fastplan.errors import InvalidInput, StateError

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcmp, memcpy, memset

from fastplan.columns._blocks cimport Block, BlockArray, Domain, Pin, payload
from fastplan.columns._ids cimport IdIndex, KeyColumn, format_key, parse_key
from fastplan.fit._kernels cimport ASK_IGNORES, ASK_IRREGULAR, CLAIM_FLAG_BITS, CLAIM_IGNORES, Ask
from fastplan.fit._nodes cimport NodeTable

cdef extern from *:
    """
    #define fastplan_prefetch(address) __builtin_prefetch((address), 1, 3)
    """
    void fastplan_prefetch(const void* address) nogil

cdef enum:
    KEY_CHUNK_SHIFT = 10
    ROW_BYTES = (ROW_MASK + 1) * sizeof(AllocRow)
    GROUP_BYTES = (GROUP_MASK + 1) * sizeof(GroupRow)
    REF_BYTES = (REF_MASK + 1) * sizeof(uint32_t)
    CLAIMS_MAX = CLAIM_MASK - 1     # claims of one allocation: a list lies in one chunk

    AHEAD = 16                      # rows between asking for memory and using it

    # How an allocation counts on its node.
    GONE = 0
    STOPPING = 1
    LIVE = 2


cdef int grow(void** array, uint32_t* room, uint32_t wanted, size_t item_bytes, int fill) except -1:
    """Make room for *wanted* items; new memory is filled with the byte *fill*."""
    cdef uint64_t more
    cdef void* grown
    if wanted <= room[0]:
        return 0
    more = max(<uint64_t> wanted, <uint64_t> room[0] + (room[0] >> 1) + 16)
    grown = realloc(array[0], more * item_bytes)
    if grown == NULL:
        raise MemoryError(f"no memory for {more} items of {item_bytes} bytes")
    memset(<char*> grown + room[0] * item_bytes, fill, (more - room[0]) * item_bytes)
    array[0] = grown
    room[0] = <uint32_t> more
    return 0


cdef int compare_words(const void* left, const void* right) noexcept nogil:
    cdef uint64_t a = (<const uint64_t*> left)[0]
    cdef uint64_t b = (<const uint64_t*> right)[0]
    return (a > b) - (a < b)


cdef void sort_claims(uint64_t* claims, uint32_t count) noexcept nogil:
    cdef uint32_t i, j
    cdef uint64_t claim
    if count > 32:
        qsort(claims, count, sizeof(uint64_t), compare_words)
        return
    for i in range(1, count):
        claim = claims[i]
        j = i
        while j > 0 and claims[j - 1] > claim:
            claims[j] = claims[j - 1]
            j -= 1
        claims[j] = claim


cdef inline int state_of(const AllocRow* row) noexcept nogil:
    if client_terminal(row):
        return GONE
    return STOPPING if server_terminal(row) else LIVE


cdef class KeyRows:
    """Append-only interning of 16-byte keys."""

    def __cinit__(self):
        self.index = IdIndex()
        self.column.shift = KEY_CHUNK_SHIFT
        self.column.stride = 16
        self.column.offset = 0
        self.index.bind(None, &self.column)

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.chunk_count):
            free(self.chunks[i])
        free(self.chunks)

    cdef uint8_t* key(self, uint32_t number) noexcept nogil:
        return <uint8_t*> self.chunks[number >> KEY_CHUNK_SHIFT] + (number & ((1 << KEY_CHUNK_SHIFT) - 1)) * 16

    cdef int64_t find_key(self, const uint8_t* key) noexcept nogil:
        return self.index.find(key)

    cdef int64_t intern_key(self, const uint8_t* key) except -1:
        cdef int64_t number = self.index.find(key)
        if number >= 0:
            return number
        if self.count >> KEY_CHUNK_SHIFT == self.chunk_count:
            grow(<void**> &self.chunks, &self.chunk_room, self.chunk_count + 1, sizeof(char*), 0)
            self.column.chunks = self.chunks
            self.chunks[self.chunk_count] = <char*> malloc(16 << KEY_CHUNK_SHIFT)
            if self.chunks[self.chunk_count] == NULL:
                raise MemoryError("no memory for keys")
            self.chunk_count += 1
        number = self.count
        memcpy(self.key(<uint32_t> number), key, 16)
        self.count += 1
        self.index.insert(key, <uint32_t> number)
        return number

    cdef size_t bytes_used(self):
        return (<size_t> self.chunk_count * 16 << KEY_CHUNK_SHIFT) + <size_t> self.index.bytes_used


cdef class AllocMemory:
    """What is append-only or only read by the writer; shared by a table and all views of it."""

    def __cinit__(self):
        self.index = IdIndex()
        self.column.shift = IDENTITY_SHIFT
        self.column.stride = sizeof(AllocIdentity)
        self.column.offset = 0
        self.index.bind(None, &self.column)
        self.replaced = {}
        self.nodes = KeyRows()
        self.evals = KeyRows()

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.chunk_count):
            free(self.chunks[i])
        for i in range(self.claim_chunk_count):
            free(self.claim_chunks[i])
        free(self.chunks)
        free(self.claim_chunks)
        free(self.stamps)
        free(self.shapes)
        free(self.node_heads)
        free(self.node_rows)
        free(self.eval_heads)
        free(self.runs)
        free(self.group_heads)
        free(self.version_uses)

    cdef int reserve_identities(self, uint32_t count) except -1:
        """Have chunks for *count* identities."""
        while <uint64_t> self.chunk_count << IDENTITY_SHIFT < count:
            grow(<void**> &self.chunks, &self.chunk_room, self.chunk_count + 1, sizeof(char*), 0)
            self.column.chunks = self.chunks
            self.chunks[self.chunk_count] = <char*> malloc(sizeof(AllocIdentity) << IDENTITY_SHIFT)
            if self.chunks[self.chunk_count] == NULL:
                raise MemoryError("no memory for allocations")
            self.chunk_count += 1
        return 0

    cdef uint64_t* store_claims(self, AllocRow* row, const uint64_t* claims, uint32_t count) except? NULL:
        """Append *claims* to the arena and note the place in *row*."""
        cdef uint32_t words = count + (count >= 255)
        cdef uint64_t* place
        cdef uint32_t i
        row.flags &= ~ALLOC_UNSORTED
        if count == 0:
            row.claims_count = 0
            row.claims_offset = 0
            return NULL
        if (self.claims_end & CLAIM_MASK) + words > CLAIM_MASK + 1:
            self.claims_end = (self.claims_end | CLAIM_MASK) + 1
        if self.claims_end + words > 0xFFFFFFFF:
            raise MemoryError("no room for more claims")
        if self.claims_end >> CLAIM_SHIFT >= self.claim_chunk_count:
            grow(<void**> &self.claim_chunks, &self.claim_chunk_room, self.claim_chunk_count + 1, sizeof(void*), 0)
            place = <uint64_t*> malloc(sizeof(uint64_t) << CLAIM_SHIFT)
            if place == NULL:
                raise MemoryError("no memory for claims")
            self.claim_chunks[self.claim_chunk_count] = place
            self.claim_chunk_count += 1
        place = self.claim_chunks[self.claims_end >> CLAIM_SHIFT] + (self.claims_end & CLAIM_MASK)
        if count >= 255:
            place[0] = count
            place += 1
        row.claims_count = 255 if count >= 255 else count
        row.claims_offset = <uint32_t> (self.claims_end + words - count)
        for i in range(count):
            place[i] = claims[i]
            if i > 0 and claims[i - 1] > claims[i]:
                row.flags |= ALLOC_UNSORTED
        self.claims_end += words
        return place


cdef class AllocView:
    """Allocations as they were when the view was taken; may be read from any thread. Row numbers mean rows of this generation of the table."""

    cdef int64_t find_key(self, const uint8_t* key) noexcept:
        """Return the row that has the id in this view, or -1."""
        cdef int64_t row = self.memory.index.find(key)
        while row >= 0:
            if row < self.count and not self.row(<uint32_t> row).flags & ALLOC_DEAD:
                return row
            # Newer than the view or deleted: an older row may have had the id when the view was taken.
            row = <int64_t> self.memory.replaced.get(row, -1) if self.memory.replaced else -1
        return -1

    cdef uint32_t ref_of_node(self, uint32_t node_row) noexcept nogil:
        if node_row >> REF_SHIFT >= self.refs.length:
            return NONE
        # 0 - 1 is NONE.
        return (<uint32_t*> payload(self.refs.get(node_row >> REF_SHIFT)))[node_row & REF_MASK] - 1

    cdef void ask_of(self, const AllocRow* row, Ask* ask) noexcept nogil:
        cdef uint32_t count
        ask[0] = self.memory.shapes[row.shape_row]
        ask.claims = self.memory.claims_of(row, &count)
        ask.claims_count = count
        if row.flags & ALLOC_IRREGULAR:
            ask.flags |= ASK_IRREGULAR

    def __len__(self):
        """Return how many allocations there are."""
        cdef uint32_t row
        cdef Py_ssize_t alive = 0
        for row in range(self.count):
            alive += not self.row(row).flags & ALLOC_DEAD
        return alive

    def find(self, str alloc_id not None):
        """Return the row of an allocation, or -1."""
        cdef uint8_t key[16]
        parse_key(alloc_id, key)
        return self.find_key(key)

    def find_rows(self, const uint8_t[:, ::1] keys not None):
        """Return the rows of many ids: keys uint8 (n, 16) → uint32 (n), NO_ROW where the id is not there."""
        cdef Py_ssize_t i, count = keys.shape[0]
        cdef int64_t row
        check_width(keys)
        rows = numpy.empty(count, numpy.uint32)
        cdef uint32_t[::1] out = rows
        for i in range(count):
            self.memory.index.prefetch(&keys[i, 0])
        for i in range(count):
            row = self.find_key(&keys[i, 0])
            out[i] = <uint32_t> row if row >= 0 else NONE
        return rows

    def node_ref(self, str node_id not None):
        """Return the ref of a node id, or -1 if no allocation and no node ever had it."""
        cdef uint8_t key[16]
        parse_key(node_id, key)
        return self.memory.nodes.find_key(key)

    def ref_of_row(self, uint32_t node_row):
        """Return the ref of the node in a row of the node table, NO_ROW if the row holds none."""
        return self.ref_of_node(node_row)

    def node_id_of_ref(self, uint32_t ref):
        """Return the node id of a ref. Raises StateError for a number that is none."""
        if ref >= self.memory.nodes.count:
            raise StateError(f"node ref {ref} does not exist")
        return format_key(self.memory.nodes.key(ref))

    def eval_id_of_ref(self, uint32_t ref):
        """Return the evaluation id of a ref; empty for NO_ROW. Raises StateError for a number that is none."""
        if ref == NONE:
            return ""
        if ref >= self.memory.evals.count:
            raise StateError(f"evaluation ref {ref} does not exist")
        return format_key(self.memory.evals.key(ref))

    cdef int check_row(self, int64_t row) except -1:
        if row < 0 or row >= self.count or self.row(<uint32_t> row).flags & ALLOC_DEAD:
            raise StateError(f"allocation row {row} does not exist")
        return 0

    def alloc_id(self, int64_t row):
        """Return the id of an allocation. Raises StateError if the row holds none."""
        self.check_row(row)
        return format_key(self.memory.identity(<uint32_t> row).key)

    def row_state(self, int64_t row):
        """Return (node ref, desired status number, client status number) of a row. Raises StateError if it holds no allocation."""
        self.check_row(row)
        cdef AllocRow* entry = self.row(<uint32_t> row)
        return self.memory.identity(<uint32_t> row).node_ref, entry.desired, entry.client

    def fields(self, int64_t row):
        """Return everything that the columns hold of an allocation, as a tuple in the order of `AllocFields`. Raises StateError if the row holds none."""
        self.check_row(row)
        cdef AllocIdentity* identity = self.memory.identity(<uint32_t> row)
        cdef AllocRow* entry = self.row(<uint32_t> row)
        cdef Stamp* stamps = self.memory.stamps
        cdef uint32_t i, count
        cdef uint64_t* words = self.memory.claims_of(entry, &count)
        return (
            format_key(identity.key), identity.node_ref, identity.group_row, identity.name_index,
            stamps[identity.create_stamp].index, stamps[identity.create_stamp].time_ns,
            stamps[entry.modify_stamp].index, stamps[entry.modify_stamp].time_ns, stamps[entry.alloc_modify_stamp].index,
            entry.desired, entry.client, entry.flags & ALLOC_IRREGULAR != 0, entry.job_version_row, entry.eval_ref, entry.shape_row,
            [words[i] for i in range(count)], entry.extra, entry.note,
        )

    def rows_of_node(self, int64_t ref, int terminal=-1):
        """Return the rows of a node's allocations, newest first.

        *ref*: the node's; −1 gives none. *terminal*: −1 all, 0 those terminal on neither side, 1 the others.
        """
        cdef list rows = []
        if 0 <= ref < self.memory.node_room:
            self.collect(self.memory.node_heads[ref], True, terminal, rows)
        return rows

    def rows_of_group(self, uint32_t group_row, int terminal=-1):
        """Return the rows of a task group's allocations, newest first; *terminal* as in `rows_of_node`."""
        cdef list rows = []
        if group_row < self.memory.group_room:
            self.collect(self.memory.group_heads[group_row], False, terminal, rows)
        return rows

    cdef int collect(self, uint32_t row, bint of_node, int terminal, list rows) except -1:
        """Follow a chain from *row* and append the rows that the view shows."""
        cdef AllocIdentity* identity
        cdef AllocRow* entry
        while row != NONE:
            identity = self.memory.identity(row)
            if row < self.count:
                entry = self.row(row)
                if not entry.flags & ALLOC_DEAD and (terminal < 0 or terminal == (state_of(entry) != LIVE)):
                    rows.append(row)
            row = identity.older_on_node if of_node else identity.older_in_group
        return 0

    def rows_of_eval(self, str eval_id not None, int terminal=-1):
        """Return the rows of the allocations that carry an evaluation id, ascending; *terminal* as in `rows_of_node`."""
        cdef uint8_t key[16]
        cdef int64_t ref
        cdef uint32_t run, row
        cdef EvalRun* entry_run
        cdef AllocRow* entry
        cdef set found = set()
        parse_key(eval_id, key)
        ref = self.memory.evals.find_key(key)
        if ref < 0 or ref >= self.memory.eval_room:
            return []
        run = self.memory.eval_heads[ref]
        while run != NONE:
            entry_run = &self.memory.runs[run]
            for row in range(entry_run.first, min(<uint64_t> entry_run.first + entry_run.count, self.count)):
                entry = self.row(row)
                # A run says what was written; whether the row still carries the evaluation, the row says.
                if entry.eval_ref == ref and not entry.flags & ALLOC_DEAD and (terminal < 0 or terminal == (state_of(entry) != LIVE)):
                    found.add(row)
            run = entry_run.older
        return sorted(found)

    def rows_by_prefix(self, str prefix not None):
        """Return the rows whose id text starts with *prefix*, in order of rows. Looks at every id (about 0.1 µs each)."""
        cdef list rows = []
        cdef uint32_t row
        for row in range(self.count):
            if not self.row(row).flags & ALLOC_DEAD and format_key(self.memory.identity(row).key).startswith(prefix):
                rows.append(row)
        return rows

    def live_rows(self):
        """Return the rows of all allocations, ascending, uint32 (n)."""
        cdef uint32_t row
        cdef Py_ssize_t found = 0
        rows = numpy.empty(self.count, numpy.uint32)
        cdef uint32_t[::1] out = rows
        for row in range(self.count):
            if not self.row(row).flags & ALLOC_DEAD:
                out[found] = row
                found += 1
        return rows[:found]

    def group_counts(self, uint32_t group_row):
        """Return ([allocations by client status number], how many are terminal on neither side) of a task group."""
        cdef GroupRow* group
        if group_row >> GROUP_SHIFT >= self.groups.length:
            return [0] * CLIENT_STATUSES, 0
        group = <GroupRow*> payload(self.groups.get(group_row >> GROUP_SHIFT)) + (group_row & GROUP_MASK)
        return [group.clients[i] for i in range(CLIENT_STATUSES)], group.live

    def shape_demand(self, uint32_t shape_row):
        """Return (cpu_mhz, memory_mib, memory_max_mib, disk_mib) that the columns hold for a shape."""
        if shape_row >= self.memory.shape_count:
            raise StateError(f"shape row {shape_row} does not exist")
        cdef Ask* shape = &self.memory.shapes[shape_row]
        return shape.cpu_mhz, shape.memory_mib, shape.memory_max_mib, shape.disk_mib


cdef int check_width(const uint8_t[:, ::1] keys) except -1:
    if keys.shape[1] != 16:
        raise ValueError(f"a key has 16 bytes, not {keys.shape[1]}")
    return 0


cdef int check_length(str name, Py_ssize_t length, Py_ssize_t count, bint may_be_one) except -1:
    if length != count and not (may_be_one and length == 1):
        raise ValueError(f"{name}: {length} entries for {count} rows")
    return 0


cdef class AllocTable(AllocView):
    """All allocations, and what they use of the nodes in a node table. The one writer keeps both equal to each other at all times."""

    def __init__(self, NodeTable nodes not None, uint32_t generation=0):
        """Start an empty table over the node table *nodes*, in whose domain its blocks live too."""
        self.nodes = nodes
        self.domain = nodes.blocks.domain
        self.generation = generation
        self.memory = AllocMemory()
        self.rows = BlockArray(self.domain)
        self.groups = BlockArray(self.domain)
        self.refs = BlockArray(self.domain)

    def view(self, Pin pin not None):
        """Return the table as it is now, frozen, in O(1). *pin* must be the newest of its domain, taken after the last write."""
        cdef AllocView view = AllocView.__new__(AllocView)
        view.count = self.count
        view.generation = self.generation
        view.memory = self.memory
        view.rows = self.rows.view(pin)
        view.groups = self.groups.view(pin)
        view.refs = self.refs.view(pin)
        return view

    cdef AllocRow* writable(self, uint32_t row) except NULL:
        return <AllocRow*> payload(self.rows.writable(row >> ROW_SHIFT, 0)) + (row & ROW_MASK)

    cdef GroupRow* writable_group(self, uint32_t group_row) except NULL:
        while group_row >> GROUP_SHIFT >= self.groups.length:
            self.groups.append(GROUP_BYTES)
        return <GroupRow*> payload(self.groups.writable(group_row >> GROUP_SHIFT, 0)) + (group_row & GROUP_MASK)

    # --- numbers that rows refer to -------------------------------------------------------------------------------

    def stamp(self, uint64_t index, int64_t time_ns):
        """Return the number of the pair (index of the log, Unix nanoseconds): rows refer to it instead of repeating it."""
        cdef AllocMemory memory = self.memory
        cdef uint32_t last = memory.stamp_count - 1
        if memory.stamp_count > 0 and memory.stamps[last].index == index and memory.stamps[last].time_ns == time_ns:
            return last
        if memory.stamp_count == NONE:
            raise MemoryError("no room for more stamps")
        grow(<void**> &memory.stamps, &memory.stamp_room, memory.stamp_count + 1, sizeof(Stamp), 0)
        memory.stamps[memory.stamp_count].index = index
        memory.stamps[memory.stamp_count].time_ns = time_ns
        memory.stamp_count += 1
        return memory.stamp_count - 1

    def set_shape(self, uint32_t row, int64_t cpu_mhz, int64_t memory_mib, int64_t memory_max_mib, int64_t disk_mib, bint irregular=False):
        """Say what an allocation of the shape in *row* asks of its node: MHz and MiB. A shape never changes. Raises StateError if it would."""
        cdef AllocMemory memory = self.memory
        cdef Ask ask
        memset(&ask, 0, sizeof(Ask))
        ask.cpu_mhz = cpu_mhz
        ask.memory_mib = memory_mib
        ask.memory_max_mib = memory_max_mib
        ask.disk_mib = disk_mib
        ask.count = 1
        ask.flags = ASK_IRREGULAR if irregular else 0
        if row < memory.shape_count and memcmp(&memory.shapes[row], &ask, sizeof(Ask)) != 0:
            raise StateError(f"shape row {row} is taken")
        grow(<void**> &memory.shapes, &memory.shape_room, row + 1, sizeof(Ask), 0)
        memory.shapes[row] = ask
        memory.shape_count = max(memory.shape_count, row + 1)

    def intern_node(self, str node_id not None):
        """Return the ref of a node id, whether such a node exists or not."""
        cdef uint8_t key[16]
        parse_key(node_id, key)
        return self.intern_node_key(key)

    cdef uint32_t intern_node_key(self, const uint8_t* key) except? 0xFFFFFFFF:
        cdef AllocMemory memory = self.memory
        cdef uint32_t ref = <uint32_t> memory.nodes.intern_key(key)
        cdef uint32_t room = memory.node_room
        if ref >= memory.node_room:
            grow(<void**> &memory.node_heads, &room, ref + 1, sizeof(uint32_t), 0xFF)
            grow(<void**> &memory.node_rows, &memory.node_room, ref + 1, sizeof(uint32_t), 0xFF)
        return ref

    def intern_eval(self, str eval_id not None):
        """Return the ref of an evaluation id; NO_ROW for an empty id."""
        cdef uint8_t key[16]
        if not eval_id:
            return <uint32_t> NONE
        parse_key(eval_id, key)
        cdef uint32_t ref = <uint32_t> self.memory.evals.intern_key(key)
        grow(<void**> &self.memory.eval_heads, &self.memory.eval_room, ref + 1, sizeof(uint32_t), 0xFF)
        return ref

    def refs_of_rows(self, const uint32_t[::1] node_rows not None):
        """Return the refs of the nodes in many rows of the node table, uint32 (n); NO_ROW where a row holds none."""
        refs = numpy.empty(node_rows.shape[0], numpy.uint32)
        cdef uint32_t[::1] out = refs
        cdef Py_ssize_t i
        for i in range(node_rows.shape[0]):
            out[i] = self.ref_of_node(node_rows[i])
        return refs

    def bind_node(self, uint32_t ref, uint32_t node_row):
        """The node of *ref* now stands in *node_row* of the node table: count what its allocations use there."""
        cdef uint32_t* block
        if ref >= self.memory.nodes.count:
            raise StateError(f"node ref {ref} does not exist")
        while node_row >> REF_SHIFT >= self.refs.length:
            self.refs.append(REF_BYTES)
        block = <uint32_t*> payload(self.refs.writable(node_row >> REF_SHIFT, 0))
        block[node_row & REF_MASK] = ref + 1
        self.memory.node_rows[ref] = node_row
        self.recount_node(ref)

    def unbind_node(self, uint32_t ref):
        """The node of *ref* is gone from the node table; its allocations stay and count nowhere."""
        cdef uint32_t node_row
        if ref >= self.memory.nodes.count or self.memory.node_rows[ref] == NONE:
            raise StateError(f"node ref {ref} is not bound")
        node_row = self.memory.node_rows[ref]
        (<uint32_t*> payload(self.refs.writable(node_row >> REF_SHIFT, 0)))[node_row & REF_MASK] = 0
        self.memory.node_rows[ref] = NONE

    def recount_node(self, uint32_t ref):
        """Add all allocations of a node to its row, which must be empty: after `bind_node`, or when a new supply emptied it."""
        cdef AllocRow* entry
        cdef uint32_t row
        if ref >= self.memory.nodes.count or self.memory.node_rows[ref] == NONE:
            raise StateError(f"node ref {ref} is not bound")
        row = self.memory.node_heads[ref]
        while row != NONE:
            entry = self.row(row)
            if not entry.flags & ALLOC_DEAD:
                self.recount(ref, entry, GONE, state_of(entry))
            row = self.memory.identity(row).older_on_node

    cdef int recount(self, uint32_t ref, const AllocRow* row, int before, int after) except -1:
        """Move an allocation on its node from one way of counting to another."""
        cdef uint32_t node_row = self.memory.node_rows[ref]
        cdef Ask ask
        if before == after or node_row == NONE:
            return 0
        self.ask_of(row, &ask)
        if before == GONE:
            self.nodes.add(node_row, &ask, after == STOPPING)
        elif after == GONE:
            self.nodes.remove(node_row, &ask, before == STOPPING)
        elif before == LIVE:
            self.nodes.stop(node_row, &ask)
        else:
            self.nodes.remove(node_row, &ask, True)
            self.nodes.add(node_row, &ask, False)
        return 0

    cdef int use_version(self, uint32_t version, int change) except -1:
        if version != NONE:
            grow(<void**> &self.memory.version_uses, &self.memory.version_room, version + 1, sizeof(uint32_t), 0)
            self.memory.version_uses[version] += change
        return 0

    def version_uses(self, uint32_t version):
        """Return how many allocations use a job version row."""
        return self.memory.version_uses[version] if version < self.memory.version_room else 0

    cdef int note_eval(self, uint32_t ref, uint32_t row) except -1:
        """Remember that *row* carries an evaluation: extend the newest run of the evaluation or start another one."""
        cdef AllocMemory memory = self.memory
        cdef uint32_t head
        if ref == NONE:
            return 0
        head = memory.eval_heads[ref]
        if head != NONE and memory.runs[head].first + memory.runs[head].count == row:
            memory.runs[head].count += 1
            return 0
        grow(<void**> &memory.runs, &memory.run_room, memory.run_count + 1, sizeof(EvalRun), 0)
        memory.runs[memory.run_count].first = row
        memory.runs[memory.run_count].count = 1
        memory.runs[memory.run_count].older = head
        memory.eval_heads[ref] = memory.run_count
        memory.run_count += 1
        return 0

    # --- writing many rows ----------------------------------------------------------------------------------------

    def insert_rows(
        self, const uint32_t[::1] stamps not None, const uint8_t[:, ::1] ids not None, const uint32_t[::1] node_refs not None, const uint32_t[::1] group_rows not None,
        const uint32_t[::1] job_version_rows not None, const uint32_t[::1] eval_refs not None, const uint32_t[::1] shape_rows not None,
        const int32_t[::1] name_index not None, const uint8_t[::1] client_status not None, const uint32_t[::1] claim_offsets not None, const uint64_t[::1] claims not None, *,
        const uint8_t[::1] desired_status=None, const uint8_t[::1] irregular=None, const uint32_t[::1] extras=None, const uint32_t[::1] notes=None,
        const uint32_t[::1] create_stamps=None, const uint32_t[::1] alloc_modify_stamps=None,
    ):
        """Insert n new allocations and return the row of the first; the others follow.

        Every array has n entries; all but `ids` (n, 16), `node_refs` and `claim_offsets` (n + 1) may have one entry for all. Claims of row i are
        `claims[claim_offsets[i]:claim_offsets[i + 1]]`, in slot order of its shape, volumes behind. `extras` and `notes`: NO_ROW for none.
        Stamps are numbers from `stamp`; the create and alloc-modify stamps are the same if left out. `irregular`: not 0 where only the ordered reference can judge.

        Raises ValueError for arrays that do not belong together, StateError for a number that does not exist or an id that is stored already; then
        nothing has been inserted.
        """
        cdef Py_ssize_t n = ids.shape[0]
        cdef AllocMemory memory = self.memory
        cdef Py_ssize_t i
        cdef uint32_t row, first = self.count
        cdef int64_t old
        cdef AllocIdentity* identity
        cdef AllocRow* entry
        cdef GroupRow* group
        cdef uint32_t node_row, ref, last_eval
        cdef Ask ask
        cdef uint32_t one = NONE
        check_width(ids)
        check_length("node_refs", node_refs.shape[0], n, False)
        check_length("claim_offsets", claim_offsets.shape[0], n + 1, False)
        check_length("stamps", stamps.shape[0], n, True)
        check_length("group_rows", group_rows.shape[0], n, True)
        check_length("job_version_rows", job_version_rows.shape[0], n, True)
        check_length("eval_refs", eval_refs.shape[0], n, True)
        check_length("shape_rows", shape_rows.shape[0], n, True)
        check_length("name_index", name_index.shape[0], n, True)
        check_length("client_status", client_status.shape[0], n, True)
        if n == 0:
            return first
        if <uint64_t> first + n >= NONE:
            raise MemoryError("no room for more allocations")
        # How far each array advances from row to row: 0 where one entry stands for all.
        cdef Py_ssize_t d_stamp = stamps.shape[0] > 1, d_group = group_rows.shape[0] > 1, d_version = job_version_rows.shape[0] > 1
        cdef Py_ssize_t d_eval = eval_refs.shape[0] > 1, d_shape = shape_rows.shape[0] > 1, d_name = name_index.shape[0] > 1, d_client = client_status.shape[0] > 1
        cdef Py_ssize_t d_desired = 0, d_irregular = 0, d_extra = 0, d_note = 0, d_create = 0, d_alloc = 0
        if desired_status is not None:
            check_length("desired_status", desired_status.shape[0], n, True)
            d_desired = desired_status.shape[0] > 1
        if irregular is not None:
            check_length("irregular", irregular.shape[0], n, True)
            d_irregular = irregular.shape[0] > 1
        if extras is not None:
            check_length("extras", extras.shape[0], n, True)
            d_extra = extras.shape[0] > 1
        if notes is not None:
            check_length("notes", notes.shape[0], n, True)
            d_note = notes.shape[0] > 1
        if create_stamps is not None:
            check_length("create_stamps", create_stamps.shape[0], n, True)
            d_create = create_stamps.shape[0] > 1
        if alloc_modify_stamps is not None:
            check_length("alloc_modify_stamps", alloc_modify_stamps.shape[0], n, True)
            d_alloc = alloc_modify_stamps.shape[0] > 1
        for i in range(n):
            if node_refs[i] >= memory.nodes.count:
                raise StateError(f"row {i}: node ref {node_refs[i]} does not exist")
            if shape_rows[i * d_shape] >= memory.shape_count:
                raise StateError(f"row {i}: shape row {shape_rows[i * d_shape]} does not exist")
            if eval_refs[i * d_eval] != NONE and eval_refs[i * d_eval] >= memory.evals.count:
                raise StateError(f"row {i}: evaluation ref {eval_refs[i * d_eval]} does not exist")
            if client_status[i * d_client] >= CLIENT_STATUSES or (desired_status is not None and desired_status[i * d_desired] > DESIRED_EVICT):
                raise StateError(f"row {i}: no such status")
            if stamps[i * d_stamp] >= memory.stamp_count:
                raise StateError(f"row {i}: stamp {stamps[i * d_stamp]} does not exist")
            self.check_claims(i, claim_offsets, claims)
            if group_rows[i * d_group] >= memory.group_room:
                if group_rows[i * d_group] == NONE:
                    raise StateError(f"row {i}: an allocation needs a group")
                grow(<void**> &memory.group_heads, &memory.group_room, group_rows[i * d_group] + 1, sizeof(uint32_t), 0xFF)
                self.writable_group(group_rows[i * d_group])

        memory.reserve_identities(first + <uint32_t> n)
        memory.index.reserve(n)
        while <uint64_t> self.rows.length << ROW_SHIFT < first + <uint64_t> n:
            self.rows.append(ROW_BYTES)

        # First pass: identities, sequentially; the slots of the index are random.
        for i in range(n):
            identity = memory.identity(first + <uint32_t> i)
            memcpy(identity.key, &ids[i, 0], 16)
            memory.index.prefetch(&ids[i, 0])
            identity.node_ref = node_refs[i]
            identity.group_row = group_rows[i * d_group]
            identity.name_index = name_index[i * d_name]
            identity.create_stamp = create_stamps[i * d_create] if create_stamps is not None else stamps[i * d_stamp]
            fastplan_prefetch(&memory.node_heads[node_refs[i]])
            fastplan_prefetch(&memory.node_rows[node_refs[i]])

        # Second pass: the index.
        for i in range(n):
            row = first + <uint32_t> i
            old = memory.index.insert(&ids[i, 0], row)
            if old >= 0:
                memory.replaced[row] = old
                if old >= first or not self.row(<uint32_t> old).flags & ALLOC_DEAD:
                    self.abandon(first, <uint32_t> n)
                    raise StateError(f"allocation {format_key(&ids[i, 0])} is already stored")

        # Third pass: everything else; the rows of the nodes are random, and their claims are found through them.
        for i in range(min(n, AHEAD)):
            self.prefetch_node(node_refs[i], False)
        for i in range(n):
            if i + AHEAD < n:
                self.prefetch_node(node_refs[i + AHEAD], False)
            if i + AHEAD // 2 < n:
                self.prefetch_node(node_refs[i + AHEAD // 2], True)
            row = first + <uint32_t> i
            ref = node_refs[i]
            identity = memory.identity(row)
            identity.older_on_node = memory.node_heads[ref]
            memory.node_heads[ref] = row
            identity.older_in_group = memory.group_heads[identity.group_row]
            memory.group_heads[identity.group_row] = row
            entry = self.writable(row)
            entry.modify_stamp = stamps[i * d_stamp]
            entry.alloc_modify_stamp = alloc_modify_stamps[i * d_alloc] if alloc_modify_stamps is not None else stamps[i * d_stamp]
            entry.desired = desired_status[i * d_desired] if desired_status is not None else DESIRED_RUN
            entry.client = client_status[i * d_client]
            entry.flags = ALLOC_IRREGULAR if irregular is not None and irregular[i * d_irregular] else 0
            entry.job_version_row = job_version_rows[i * d_version]
            entry.eval_ref = eval_refs[i * d_eval]
            entry.shape_row = shape_rows[i * d_shape]
            entry.extra = extras[i * d_extra] if extras is not None else one
            entry.note = notes[i * d_note] if notes is not None else one
            memory.store_claims(entry, &claims[claim_offsets[i]] if claim_offsets[i + 1] > claim_offsets[i] else NULL, claim_offsets[i + 1] - claim_offsets[i])
            self.use_version(entry.job_version_row, 1)
            self.note_eval(entry.eval_ref, row)
            group = self.writable_group(identity.group_row)
            group.clients[entry.client] += 1
            group.live += state_of(entry) == LIVE
            self.recount(ref, entry, GONE, state_of(entry))
        self.count = first + <uint32_t> n
        return first

    cdef int check_claims(self, Py_ssize_t i, const uint32_t[::1] claim_offsets, const uint64_t[::1] claims) except -1:
        if claim_offsets[i + 1] < claim_offsets[i] or claim_offsets[i + 1] > claims.shape[0]:
            raise ValueError(f"claim_offsets: entry {i + 1} is {claim_offsets[i + 1]}, of {claims.shape[0]} claims")
        if claim_offsets[i + 1] - claim_offsets[i] > CLAIMS_MAX:
            raise InvalidInput(f"allocation {i}", claim_offsets[i + 1] - claim_offsets[i], f"at most {CLAIMS_MAX} ports, cores, devices and volumes")
        return 0

    cdef int abandon(self, uint32_t first, uint32_t n) except -1:
        """Leave *n* rows behind dead: some of their ids are in the index already."""
        cdef uint32_t row
        for row in range(first, first + n):
            self.writable(row).flags = ALLOC_DEAD
        self.count = first + n
        self.dead_count += n
        return 0

    cdef int check_rows(self, const uint32_t[::1] rows, const uint32_t[::1] stamps) except -1:
        """Before anything changes: all rows must hold allocations."""
        cdef Py_ssize_t i
        check_length("stamps", stamps.shape[0], rows.shape[0], True)
        for i in range(rows.shape[0]):
            if rows[i] < self.count:
                fastplan_prefetch(self.row(rows[i]))
                fastplan_prefetch(memory_of(self, rows[i]))
        for i in range(rows.shape[0]):
            if rows[i] >= self.count or self.row(rows[i]).flags & ALLOC_DEAD:
                raise StateError(f"allocation row {rows[i]} does not exist")
            if stamps[i if stamps.shape[0] > 1 else 0] >= self.memory.stamp_count:
                raise StateError(f"stamp {stamps[i if stamps.shape[0] > 1 else 0]} does not exist")
        return 0

    cdef void prefetch_node(self, uint32_t ref, bint claims) noexcept nogil:
        """Ask for the memory of a node's row, or, some steps later, of its claims."""
        cdef uint32_t node_row = self.memory.node_rows[ref]
        if node_row == NONE:
            return
        if claims:
            self.nodes.prefetch_claims(node_row)
        else:
            self.nodes.prefetch(node_row)

    cdef void prefetch_ahead(self, const uint32_t[::1] rows, Py_ssize_t i) noexcept nogil:
        """Before row *i* of a batch is written: ask for what the rows behind it will touch, the farther ones first."""
        cdef const char* block
        cdef size_t line
        if i + 3 * AHEAD < rows.shape[0]:
            # A snapshot makes the whole block move.
            block = <const char*> self.rows.get(rows[i + 3 * AHEAD] >> ROW_SHIFT)
            for line in range(0, sizeof(Block) + ROW_BYTES, 64):
                fastplan_prefetch(block + line)
        if i + 2 * AHEAD < rows.shape[0]:
            self.prefetch_node(self.memory.identity(rows[i + 2 * AHEAD]).node_ref, False)
        if i + AHEAD < rows.shape[0]:
            self.prefetch_node(self.memory.identity(rows[i + AHEAD]).node_ref, True)

    cdef int set_status(self, uint32_t row, uint8_t desired, uint8_t client, uint32_t modify_stamp, uint32_t alloc_modify_stamp, uint32_t note) except -1:
        """Change the statuses of one row and all that is counted by them. KEEP, NONE: as it is."""
        cdef AllocRow* entry = self.writable(row)
        cdef AllocIdentity* identity = self.memory.identity(row)
        cdef int before = state_of(entry)
        cdef uint8_t client_before = entry.client
        cdef GroupRow* group
        if desired != KEEP:
            entry.desired = desired
        if client != KEEP:
            entry.client = client
        entry.modify_stamp = modify_stamp
        if alloc_modify_stamp != NONE:
            entry.alloc_modify_stamp = alloc_modify_stamp
        if note != NONE:
            entry.note = note
        if client_before != entry.client or before != state_of(entry):
            group = self.writable_group(identity.group_row)
            group.clients[client_before] -= 1
            group.clients[entry.client] += 1
            group.live += (state_of(entry) == LIVE) - (before == LIVE)
            self.recount(identity.node_ref, entry, before, state_of(entry))
        return 0

    def update_client_status(self, const uint32_t[::1] stamps not None, const uint32_t[::1] rows not None, const uint8_t[::1] statuses not None):
        """Set client statuses: rows uint32 (n), statuses uint8 (n), stamps uint32 (1 or n). The alloc-modify index stays, as for every word of a client.

        Raises ValueError, or StateError for a row or number that does not exist; then nothing has changed.
        """
        cdef Py_ssize_t i
        check_length("statuses", statuses.shape[0], rows.shape[0], True)
        self.check_rows(rows, stamps)
        for i in range(statuses.shape[0]):
            if statuses[i] >= CLIENT_STATUSES:
                raise StateError(f"client status {statuses[i]} does not exist")
        for i in range(rows.shape[0]):
            self.prefetch_ahead(rows, i)
            self.set_status(rows[i], KEEP, statuses[i if statuses.shape[0] > 1 else 0], stamps[i if stamps.shape[0] > 1 else 0], NONE, NONE)

    def stop_rows(self, const uint32_t[::1] stamps not None, const uint32_t[::1] rows not None, const uint32_t[::1] notes not None, const uint8_t[::1] client_status not None):
        """Tell allocations to stop (plan-apply 5.4, 6.10). rows uint32 (n); the others have 1 or n entries.

        *notes*: number of the stop note. *client_status*: a number, or 255 to keep what the client said last.
        Returns [(row, its note before, its extra)] of those that had a note or have an extra, for whoever wants to merge them.
        Raises ValueError, or StateError for a row or number that does not exist; then nothing has changed.
        """
        return self.end_rows(stamps, rows, notes, client_status, DESIRED_STOP)

    def preempt_rows(self, const uint32_t[::1] stamps not None, const uint32_t[::1] rows not None, const uint32_t[::1] notes not None):
        """Evict allocations in favour of others (plan-apply 5.4, 6.10); arguments and result as of `stop_rows`."""
        return self.end_rows(stamps, rows, notes, numpy.full(1, KEEP, numpy.uint8), DESIRED_EVICT)

    cdef list end_rows(
        self, const uint32_t[::1] stamps, const uint32_t[::1] rows, const uint32_t[::1] notes, const uint8_t[::1] client_status, uint8_t desired,
    ):
        cdef Py_ssize_t i
        cdef uint32_t stamp
        cdef list noted = []
        check_length("notes", notes.shape[0], rows.shape[0], True)
        check_length("client_status", client_status.shape[0], rows.shape[0], True)
        self.check_rows(rows, stamps)
        for i in range(client_status.shape[0]):
            if client_status[i] >= CLIENT_STATUSES and client_status[i] != KEEP:
                raise StateError(f"client status {client_status[i]} does not exist")
        for i in range(rows.shape[0]):
            self.prefetch_ahead(rows, i)
            stamp = stamps[i if stamps.shape[0] > 1 else 0]
            if self.row(rows[i]).note != NONE or self.row(rows[i]).extra != NONE:
                noted.append((rows[i], self.row(rows[i]).note, self.row(rows[i]).extra))
            self.set_status(rows[i], desired, client_status[i if client_status.shape[0] > 1 else 0], stamp, stamp, notes[i if notes.shape[0] > 1 else 0])
        return noted

    def set_note(self, uint32_t row, uint32_t note):
        """Set the number of the stop note of an allocation, NO_ROW for none."""
        self.check_row(row)
        self.writable(row).note = note

    def update_row(
        self, uint32_t row, uint32_t modify_stamp, uint32_t alloc_modify_stamp, uint8_t desired, uint8_t client, uint32_t job_version_row, uint32_t eval_ref,
        uint32_t shape_row, const uint64_t[::1] claims not None, bint irregular, uint32_t extra, uint32_t note,
    ):
        """Write one allocation anew, in place: an update that a plan or a record carries. Raises StateError as `insert_rows` does."""
        cdef AllocMemory memory = self.memory
        cdef AllocIdentity* identity
        cdef AllocRow* entry
        cdef GroupRow* group
        cdef uint32_t offsets[2]
        self.check_row(row)
        if shape_row >= memory.shape_count or client >= CLIENT_STATUSES or desired > DESIRED_EVICT or max(modify_stamp, alloc_modify_stamp) >= memory.stamp_count:
            raise StateError(f"allocation row {row}: no such shape, status or stamp")
        if eval_ref != NONE and eval_ref >= memory.evals.count:
            raise StateError(f"allocation row {row}: evaluation ref {eval_ref} does not exist")
        if claims.shape[0] > CLAIMS_MAX:
            raise InvalidInput(f"allocation row {row}", claims.shape[0], f"at most {CLAIMS_MAX} ports, cores, devices and volumes")
        identity = memory.identity(row)
        entry = self.writable(row)
        group = self.writable_group(identity.group_row)
        group.clients[entry.client] -= 1
        group.live -= state_of(entry) == LIVE
        self.recount(identity.node_ref, entry, state_of(entry), GONE)
        entry.modify_stamp = modify_stamp
        entry.alloc_modify_stamp = alloc_modify_stamp
        entry.desired = desired
        entry.client = client
        if job_version_row != entry.job_version_row:
            self.use_version(entry.job_version_row, -1)
            self.use_version(job_version_row, 1)
            entry.job_version_row = job_version_row
        if eval_ref != entry.eval_ref:
            self.note_eval(eval_ref, row)
            entry.eval_ref = eval_ref
        if not self.holds(entry, claims):
            memory.store_claims(entry, &claims[0] if claims.shape[0] else NULL, <uint32_t> claims.shape[0])
        entry.flags = (entry.flags & ALLOC_UNSORTED) | (ALLOC_IRREGULAR if irregular else 0)
        entry.shape_row = shape_row
        entry.extra = extra
        entry.note = note
        group.clients[entry.client] += 1
        group.live += state_of(entry) == LIVE
        self.recount(identity.node_ref, entry, GONE, state_of(entry))

    cdef bint holds(self, const AllocRow* entry, const uint64_t[::1] claims) noexcept:
        """Whether *entry* has exactly these claims already."""
        cdef uint32_t count
        cdef uint64_t* words = self.memory.claims_of(entry, &count)
        return count == claims.shape[0] and (count == 0 or memcmp(words, &claims[0], count * sizeof(uint64_t)) == 0)

    def set_extra(self, uint32_t row, uint32_t extra):
        """Set the number of the extra of an allocation, NO_ROW for none."""
        self.check_row(row)
        self.writable(row).extra = extra

    def delete_rows(self, const uint32_t[::1] rows not None):
        """Forget allocations; a row is not used again in this generation. Returns the numbers of their extras.

        Raises StateError for a row that does not exist; then nothing has changed. A row that is listed twice is an error too.
        """
        cdef Py_ssize_t i
        cdef AllocRow* entry
        cdef AllocIdentity* identity
        cdef GroupRow* group
        cdef list extras = []
        for i in range(rows.shape[0]):
            self.check_row(rows[i])
        if len(set(rows)) != rows.shape[0]:
            raise StateError("an allocation row is listed twice")
        for i in range(rows.shape[0]):
            entry = self.writable(rows[i])
            identity = self.memory.identity(rows[i])
            group = self.writable_group(identity.group_row)
            group.clients[entry.client] -= 1
            group.live -= state_of(entry) == LIVE
            self.recount(identity.node_ref, entry, state_of(entry), GONE)
            self.use_version(entry.job_version_row, -1)
            if entry.extra != NONE:
                extras.append(entry.extra)
            entry.flags |= ALLOC_DEAD
            self.dead_count += 1
        return extras


cdef inline const void* memory_of(AllocTable table, uint32_t row) noexcept nogil:
    return table.memory.identity(row)
