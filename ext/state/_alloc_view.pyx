"""Allocations as columns, for reading: what a table and its snapshots share, and the view that a snapshot is (docs/architecture.md, "State")."""

import numpy

from fastplan.errors import StateError

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memcpy, memset

from fastplan.columns._blocks cimport PAGE_SLOTS, Block, payload
from fastplan.columns._ids cimport IdIndex, format_key, parse_key
from fastplan.fit._kernels cimport ASK_IRREGULAR, Ask

cdef enum:
    KEY_CHUNK_SHIFT = 10
    ROW_BYTES = (ROW_MASK + 1) * sizeof(AllocRow)
    GROUP_BYTES = (GROUP_MASK + 1) * sizeof(GroupRow)
    REF_BYTES = (REF_MASK + 1) * sizeof(uint32_t)


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
        for i in range(self.outgrown_count):
            free(self.outgrown[i])
        free(self.outgrown)
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

    cdef int grow_shared(self, void** array, uint32_t* room, uint32_t wanted, size_t item_bytes) except -1:
        """Make room in an array that others may be reading without the interpreter lock: the old one stays until the end."""
        cdef void* before = array[0]
        cdef uint32_t count = room[0]
        if wanted <= count:
            return 0
        grow(<void**> &self.outgrown, &self.outgrown_room, self.outgrown_count + 1, sizeof(void*), 0)
        array[0] = NULL
        room[0] = 0
        grow(array, room, max(wanted, 2 * count), item_bytes, 0)
        if before != NULL:
            memcpy(array[0], before, count * item_bytes)
            self.outgrown[self.outgrown_count] = before
            self.outgrown_count += 1
        return 0

    cdef int reserve_identities(self, uint32_t count) except -1:
        """Have chunks for *count* identities."""
        while <uint64_t> self.chunk_count << IDENTITY_SHIFT < count:
            self.grow_shared(<void**> &self.chunks, &self.chunk_room, self.chunk_count + 1, sizeof(char*))
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
            self.grow_shared(<void**> &self.claim_chunks, &self.claim_chunk_room, self.claim_chunk_count + 1, sizeof(void*))
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
        return self.count - self.dead_count

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

    def bytes_used(self):
        """Return the bytes that the table takes, by part. What snapshots hold on to in older blocks is not in it."""
        cdef AllocMemory memory = self.memory
        cdef uint64_t pages
        cdef uint64_t blocks = 0
        for array, size in ((self.rows, ROW_BYTES), (self.groups, GROUP_BYTES), (self.refs, REF_BYTES)):
            pages = (array.length + PAGE_SLOTS - 1) // PAGE_SLOTS
            blocks += array.length * (size + sizeof(Block)) + pages * (PAGE_SLOTS * sizeof(void*) + sizeof(Block))
        return {
            "identities": <uint64_t> memory.chunk_count * sizeof(AllocIdentity) << IDENTITY_SHIFT,
            "rows": blocks,
            "claims": <uint64_t> memory.claim_chunk_count * sizeof(uint64_t) << CLAIM_SHIFT,
            "ids": memory.index.bytes_used,
            "refs": memory.nodes.bytes_used() + memory.evals.bytes_used() + (2 * memory.node_room + memory.eval_room + memory.group_room) * sizeof(uint32_t),
            "stamps": memory.stamp_room * sizeof(Stamp) + memory.run_room * sizeof(EvalRun),
            "shapes": memory.shape_room * sizeof(Ask) + memory.version_room * sizeof(uint32_t),
        }

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
