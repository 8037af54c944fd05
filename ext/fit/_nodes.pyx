"""The node table; the contract stands in `_nodes.pxd`, the idea in docs/architecture.md ("Node rows")."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memmove, memset

from fastplan.columns._blocks cimport Block, BlockArray, Domain, Pin, payload
from fastplan.fit._kernels cimport (
    ASK_IRREGULAR, CLAIM_EXCLUSIVE, CLAIM_FLAG_BITS, CLAIM_STOPPING, KIND_CORE, KIND_DEVICE, KIND_PORT, KIND_SHIFT, KIND_VOLUME, ROW_FILTERED,
    ROW_HAS_CORES, ROW_HAS_RESERVED, ROW_PORTS_UNUSABLE, ROW_PRESENT, ROW_RESERVED_FILTERED, ROW_STALE_SHIFT, ROW_STATUS, SUPPLY_IRREGULAR,
    SUPPLY_PORTS_UNUSABLE, Ask, AskNumbers, NodeRow, Supply, filter_add, filter_has, filter_lines, is_member, is_reserved, lower_bound,
)

import numpy

from fastplan.errors import StateError

cdef enum:
    PREFETCH_BYTES_MAX = 2048       # of one block; the processor follows a longer run by itself
    ROW_WORDS = sizeof(NodeRow) // 8
    # More reserved ports than that are looked up in their ranges instead of the filter.
    FILTERED_RESERVED_MAX = 32

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

cdef extern from *:
    """
    #define FASTPLAN_PREFETCH(address) __builtin_prefetch(address)
    """
    void FASTPLAN_PREFETCH(const void* address) noexcept nogil

cdef Supply NOTHING
# One count for all tables of the process, so that tables that part ways never agree by chance.
cdef uint64_t node_versions = 0
memset(&NOTHING, 0, sizeof(Supply))


cdef class SupplyPool:
    def __cinit__(self):
        self._known = {}
        self._arrays = {}

    def __dealloc__(self):
        if self._known is not None:
            for address in self._known.values():
                free(<void*> <size_t> address)

    cdef const Supply* intern(self, object numbers) except NULL:
        """Return the one supply with the contents of *numbers*, an `encode.NodeNumbers`."""
        cdef Supply* supply
        cdef bytes cores, devices, reserved, networks
        cdef size_t pair
        content = (
            numbers.cores, numbers.devices, numbers.reserved, numbers.networks, numbers.dynamic_low, numbers.dynamic_high, numbers.core_mhz,
            numbers.ports_unusable, numbers.irregular,
        )
        known = self._known.get(content)
        if known is not None:
            return <const Supply*> <size_t> known
        cores, devices, reserved, networks = [self._arrays.setdefault(part, part) for part in content[:4]]
        # On lines of its own: the pointers and counts are then fetched at once.
        supply = <Supply*> aligned_alloc(64, 128)
        if supply == NULL:
            raise MemoryError("no memory for the supply of a node")
        memset(supply, 0, sizeof(Supply))
        # The contents of a bytes object never move and are aligned to 8 bytes.
        supply.cores = <const uint64_t*> <const char*> cores
        supply.cores_count = <uint32_t> (len(cores) // 8)
        supply.devices = <const uint64_t*> <const char*> devices
        supply.devices_count = <uint32_t> (len(devices) // 8)
        supply.reserved = <const uint64_t*> <const char*> reserved
        supply.reserved_count = <uint32_t> (len(reserved) // 16)
        supply.networks = <const uint64_t*> <const char*> networks
        supply.networks_count = <uint32_t> (len(networks) // 8)
        for pair in range(supply.reserved_count):
            supply.reserved_ports += <uint32_t> ((supply.reserved[2 * pair + 1] - supply.reserved[2 * pair]) >> CLAIM_FLAG_BITS) + 1
        supply.dynamic_low = numbers.dynamic_low
        supply.dynamic_high = numbers.dynamic_high
        supply.core_mhz = numbers.core_mhz
        supply.flags = (SUPPLY_PORTS_UNUSABLE if numbers.ports_unusable else 0) | (SUPPLY_IRREGULAR if numbers.irregular else 0)
        self._known[(cores, devices, reserved, networks, *content[4:])] = <size_t> supply
        return supply


cdef inline uint64_t* own_claims(NodeRow* node) noexcept nogil:
    return <uint64_t*> node + node.claims_offset


cdef inline uint32_t area_words(uint32_t capacity) noexcept nogil:
    """Words of filter and claims together: whole lines, so that every filter starts on one."""
    return (filter_lines(capacity) << 3) + capacity


cdef uint32_t filtered_reserved(const NodeRow* node) noexcept nogil:
    """How many reserved ports are in the filter."""
    return node.supply.reserved_ports if node.supply.reserved_ports <= FILTERED_RESERVED_MAX else 0


cdef void build_filter(NodeRow* node) noexcept nogil:
    cdef uint64_t* claims = own_claims(node)
    cdef uint32_t i
    cdef uint64_t key
    memset(claims - (filter_lines(node.claims_capacity) << 3), 0, <size_t> filter_lines(node.claims_capacity) << 6)
    # The upper half counts the removed claims whose bits are still set.
    node.flags &= 0xFFFF & ~<uint32_t> (ROW_FILTERED | ROW_RESERVED_FILTERED)
    if node.claims_capacity == 0:
        return
    node.flags |= ROW_FILTERED
    for i in range(node.claims_count):
        filter_add(claims, node.claims_capacity, claims[i] >> CLAIM_FLAG_BITS)
    if filtered_reserved(node):
        node.flags |= ROW_RESERVED_FILTERED
        for i in range(node.supply.reserved_count):
            for key in range(node.supply.reserved[2 * i] >> CLAIM_FLAG_BITS, (node.supply.reserved[2 * i + 1] >> CLAIM_FLAG_BITS) + 1):
                filter_add(claims, node.claims_capacity, key)


cdef inline void filter_drop(NodeRow* node) noexcept nogil:
    """A key is gone. Its bit stays until enough are gone to build the filter anew, which keeps a removal cheap."""
    node.flags += <uint32_t> 1 << ROW_STALE_SHIFT
    if node.claims_count == 0 or (node.flags >> ROW_STALE_SHIFT) * 4 >= node.claims_capacity or node.flags >> ROW_STALE_SHIFT == 0xFFFF:
        build_filter(node)


cdef uint32_t run_irregularity(const uint64_t* run, uint32_t length) noexcept nogil:
    """How irregular it is that these claims of one key are held at once."""
    cdef uint32_t i
    if length < 2:
        return 0
    if run[0] >> KIND_SHIFT != KIND_VOLUME:
        return length - 1
    for i in range(length):
        if run[i] & CLAIM_EXCLUSIVE:
            return 1
    return 0


cdef bint is_stray(const NodeRow* node, uint64_t claim) noexcept nogil:
    """Whether the claim lies on a reserved port or outside of the usable core set."""
    if claim >> KIND_SHIFT == KIND_PORT:
        return node.flags & ROW_HAS_RESERVED != 0 and is_reserved(node.supply, claim)
    if claim >> KIND_SHIFT == KIND_CORE:
        return not is_member(node.supply.cores, node.supply.cores_count, claim)
    return False


cdef inline bint is_unknown_device(const NodeRow* node, uint64_t claim) noexcept nogil:
    """Whether the claim is on an instance that never counts (plan-apply 2.7)."""
    return claim >> KIND_SHIFT == KIND_DEVICE and not is_member(node.supply.devices, node.supply.devices_count, claim)


cdef void enter_claim(NodeRow* node, uint64_t claim) noexcept nogil:
    """Hold a claim; there is room for it."""
    cdef uint64_t* claims = own_claims(node)
    cdef uint64_t key = claim >> CLAIM_FLAG_BITS
    cdef uint32_t start = lower_bound(claims, node.claims_count, key)
    cdef uint32_t end = start
    cdef uint32_t reserved = node.flags & (ROW_HAS_RESERVED | ROW_RESERVED_FILTERED)
    if (
        claim >> KIND_SHIFT == KIND_PORT and reserved != ROW_HAS_RESERVED
        and node.flags & ROW_FILTERED and not filter_has(claims, node.claims_capacity, key)
    ):
        # Neither held nor reserved: the usual case needs no look at the supply.
        memmove(claims + end + 1, claims + end, (node.claims_count - end) * sizeof(uint64_t))
        claims[end] = claim
        node.claims_count += 1
    else:
        while end < node.claims_count and claims[end] >> CLAIM_FLAG_BITS == key:
            end += 1
        node.irregular -= run_irregularity(claims + start, end - start)
        memmove(claims + end + 1, claims + end, (node.claims_count - end) * sizeof(uint64_t))
        claims[end] = claim
        node.claims_count += 1
        node.irregular += run_irregularity(claims + start, end - start + 1) + is_stray(node, claim)
    filter_add(claims, node.claims_capacity, key)


cdef int64_t find_claim(NodeRow* node, uint64_t claim) noexcept nogil:
    """Position of exactly this claim, flags included, or -1."""
    cdef uint64_t* claims = own_claims(node)
    cdef uint64_t key = claim >> CLAIM_FLAG_BITS
    cdef uint32_t position = lower_bound(claims, node.claims_count, key)
    while position < node.claims_count and claims[position] >> CLAIM_FLAG_BITS == key:
        if claims[position] == claim:
            return position
        position += 1
    return -1


cdef void leave_claim(NodeRow* node, uint32_t position) noexcept nogil:
    """Give up the claim at a position."""
    cdef uint64_t* claims = own_claims(node)
    cdef uint64_t claim = claims[position]
    cdef uint64_t key = claim >> CLAIM_FLAG_BITS
    cdef uint32_t start = position
    cdef uint32_t end = position + 1
    cdef bint irregular = node.irregular != 0
    while start > 0 and claims[start - 1] >> CLAIM_FLAG_BITS == key:
        start -= 1
    while end < node.claims_count and claims[end] >> CLAIM_FLAG_BITS == key:
        end += 1
    # Nothing can be irregular about the claim when nothing is about the node.
    if irregular:
        node.irregular -= run_irregularity(claims + start, end - start) + is_stray(node, claim)
    node.claims_count -= 1
    memmove(claims + position, claims + position + 1, (node.claims_count - position) * sizeof(uint64_t))
    if irregular:
        node.irregular += run_irregularity(claims + start, end - start - 1)
    if end - start == 1:
        filter_drop(node)


cdef class NodeTable:
    """Rows of nodes; see `_nodes.pxd` for what compiled users call. A view is read-only and may be read from any thread."""

    def __cinit__(self, Domain domain=None, *, NodeTable origin=None):
        if origin is None:
            self.blocks = BlockArray(Domain() if domain is None else domain)
            self.pool = SupplyPool()
        else:
            self.pool = origin.pool
            self.row_count = origin.row_count
            self.node_count = origin.node_count
            self.node_version = origin.node_version
            self._free_row = origin._free_row

    def view(self, Pin pin not None):
        """Return the table as it is now, read-only, in O(1). *pin* must be the newest of its domain, taken after the last write."""
        cdef NodeTable table = NodeTable(origin=self)
        table.blocks = self.blocks.view(pin)
        table.read_only = True
        return table

    def fork(self):
        """Return a writable table on top of this view, in O(1); it shares memory until it writes. TypeError on a writable table."""
        cdef NodeTable table = NodeTable(origin=self)
        table.blocks = self.blocks.fork()
        return table

    def allocate(self, numbers, uint32_t status):
        """Give a node a row and return (row, generation). *numbers* is its supply (`encode.NodeNumbers`), *status* of the ROW_STATUS flags."""
        cdef uint32_t row = self._take_row()
        self.set_supply(row, numbers)
        self.set_status(row, status)
        return row, self.row_at(row).generation

    cdef uint32_t _take_row(self) except? 0xFFFFFFFF:
        """Give out a row, without supply."""
        cdef uint32_t row
        cdef NodeRow* node
        cdef uint32_t i
        if self.read_only:
            raise TypeError("a view of a node table cannot be written")
        if self._free_row:
            row = self._free_row - 1
            node = <NodeRow*> payload(self.blocks.writable(row >> ROW_SHIFT, 0)) + (row & ROW_MASK)
            self._free_row = <uint32_t> node.max_allocs
            node.generation += 1
        else:
            row = self.row_count
            if row & ROW_MASK == 0:
                self.blocks.append(ROWS_PER_BLOCK * sizeof(NodeRow))
                for i in range(<uint32_t> ROWS_PER_BLOCK):
                    node = <NodeRow*> payload(self.blocks.get(row >> ROW_SHIFT)) + i
                    node.supply = &NOTHING
                    node.claims_offset = (ROWS_PER_BLOCK - i) * ROW_WORDS
            self.row_count = row + 1
            node = <NodeRow*> payload(self.blocks.writable(row >> ROW_SHIFT, 0)) + (row & ROW_MASK)
        node.flags |= ROW_PRESENT
        self._count_nodes(1)
        return row

    def free(self, uint32_t row):
        """The node is gone and so is all that was on it; the row may be given to another node, with the next generation."""
        cdef NodeRow* node = self._writable(row)
        node.cpu_mhz = node.memory_mib = node.disk_mib = 0
        empty_row(node)
        node.supply = &NOTHING
        node.irregular = 0
        node.flags = 0
        build_filter(node)
        node.max_allocs = self._free_row
        self._free_row = row + 1
        self._count_nodes(-1)

    def free_rows(self):
        """Return the rows that `allocate` gives next, the first one first; behind them it takes new ones."""
        rows = []
        cdef uint32_t row = self._free_row
        while row:
            rows.append(row - 1)
            row = <uint32_t> self.row_at(row - 1).max_allocs
        return rows

    def restore_rows(self, generations, free_rows):
        """Give out one row for each generation, without supply, and free those in *free_rows* so that they are given again in this order.

        For an empty table, to go on where another one stopped. ValueError if the table is not empty.
        """
        cdef uint32_t row
        if self.row_count:
            raise ValueError("only an empty node table can be filled")
        for generation in generations:
            row = self._take_row()
            self._writable(row).generation = generation
        for row in reversed(free_rows):
            self.free(row)

    def set_status(self, uint32_t row, uint32_t status):
        """Set status and eligibility: any of ROW_READY, ROW_DOWN, ROW_DISCONNECTED, ROW_INELIGIBLE."""
        cdef NodeRow* node = self._writable(row)
        node.flags = (node.flags & ~<uint32_t> ROW_STATUS) | ROW_PRESENT | (status & ROW_STATUS)

    def set_supply(self, uint32_t row, numbers):
        """Set what the node supplies. Returns whether the row was emptied: then its allocations must be added anew, since what they
        claim has to be judged against the new supply.
        """
        cdef const Supply* supply = self.pool.intern(numbers)
        cdef NodeRow* node = self._writable(row)
        cdef bint emptied = False
        cdef uint32_t flags
        node.free_cpu_mhz += <int64_t> numbers.cpu_mhz - node.cpu_mhz
        node.free_memory_mib += <int64_t> numbers.memory_mib - node.memory_mib
        node.free_disk_mib += <int64_t> numbers.disk_mib - node.disk_mib
        node.cpu_mhz = numbers.cpu_mhz
        node.memory_mib = numbers.memory_mib
        node.disk_mib = numbers.disk_mib
        node.max_allocs = numbers.max_allocs
        if supply != node.supply:
            emptied = node.alloc_count != 0
            node.supply = supply
            flags = node.flags & ~<uint32_t> (ROW_PORTS_UNUSABLE | ROW_HAS_CORES | ROW_HAS_RESERVED)
            if supply.flags & SUPPLY_PORTS_UNUSABLE:
                flags |= ROW_PORTS_UNUSABLE
            if supply.cores_count:
                flags |= ROW_HAS_CORES
            if supply.reserved_count:
                flags |= ROW_HAS_RESERVED
            node.flags = flags
            empty_row(node)
            if filtered_reserved(node):
                node = self._reserve(row, node, filtered_reserved(node))
            build_filter(node)
        return emptied

    def reset_node(self, uint32_t row):
        """Take all allocations off the node."""
        cdef NodeRow* node = self._writable(row)
        empty_row(node)
        build_filter(node)

    cdef void _count_nodes(self, int32_t more) noexcept:
        global node_versions
        node_versions += 1
        self.node_version = node_versions
        self.node_count += more

    def remember(self, order):
        """Keep what was derived from which node is in which row, for this table, its views and its forks, until that changes."""
        self.pool._order = (self.node_version, order)

    def remembered(self):
        """Return what was kept for exactly these nodes in these rows, or None."""
        if self.pool._order is not None and self.pool._order[0] == self.node_version:
            return self.pool._order[1]
        return None

    cdef NodeRow* _writable(self, uint32_t row) except NULL:
        cdef NodeRow* node
        if row >= self.row_count:
            raise StateError(f"node row {row} does not exist")
        node = <NodeRow*> payload(self.blocks.writable(row >> ROW_SHIFT, 0)) + (row & ROW_MASK)
        if not node.flags & ROW_PRESENT:
            raise StateError(f"node row {row} holds no node")
        return node

    cdef NodeRow* _reserve(self, uint32_t row, NodeRow* node, uint32_t claims) except NULL:
        """Make room for so many more claims and return the row, which may have moved."""
        cdef uint32_t needed = node.claims_count + claims + filtered_reserved(node)
        cdef uint32_t old_capacity = node.claims_capacity
        cdef uint32_t filter_growth
        cdef uint32_t capacity
        cdef NodeRow* rows
        cdef Block* block
        cdef uint64_t used_words = ROWS_PER_BLOCK * ROW_WORDS
        cdef uint64_t more_words
        cdef uint64_t* start
        cdef uint64_t behind
        cdef uint32_t i
        if needed <= old_capacity:
            return node
        capacity = (needed + needed // 4 + 7) & ~<uint32_t> 7
        if capacity >= 1 << 26:
            raise StateError(f"node row {row} has too many claims")
        more_words = area_words(capacity) - area_words(old_capacity)
        rows = node - (row & ROW_MASK)
        for i in range(<uint32_t> ROWS_PER_BLOCK):
            used_words += area_words(rows[i].claims_capacity)
        block = self.blocks.get(row >> ROW_SHIFT)
        if block.payload_bytes < (used_words + more_words) * 8:
            # An eighth on top, so that its neighbours can grow in place.
            block = self.blocks.writable(row >> ROW_SHIFT, (used_words + more_words) * 9)
        rows = <NodeRow*> payload(block)
        node = rows + (row & ROW_MASK)
        start = own_claims(node) + old_capacity
        behind = used_words - <uint64_t> (start - <uint64_t*> rows)
        memmove(start + more_words, start, behind * 8)
        # The claims of this row move behind their larger filter.
        filter_growth = (filter_lines(capacity) - filter_lines(old_capacity)) << 3
        memmove(own_claims(node) + filter_growth, own_claims(node), node.claims_count * 8)
        node.claims_offset += filter_growth
        node.claims_capacity = capacity
        for i in range((row & ROW_MASK) + 1, <uint32_t> ROWS_PER_BLOCK):
            rows[i].claims_offset += <uint32_t> more_words
        build_filter(node)
        return node

    cdef int add(self, uint32_t row, const Ask* alloc, bint stopping) except -1:
        cdef NodeRow* node = self._writable(row)
        cdef uint32_t i
        cdef uint64_t flag = CLAIM_STOPPING if stopping else 0
        count_alloc(node, alloc, stopping, 1)
        if alloc.claims_count and not alloc.flags & ASK_IRREGULAR:
            node = self._reserve(row, node, alloc.claims_count)
            for i in range(alloc.claims_count):
                if not is_unknown_device(node, alloc.claims[i]):
                    enter_claim(node, alloc.claims[i] | flag)
        return 0

    cdef int remove(self, uint32_t row, const Ask* alloc, bint stopping) except -1:
        cdef NodeRow* node = self._writable(row)
        cdef uint32_t i
        cdef uint32_t j
        cdef int64_t position
        cdef uint64_t flag = CLAIM_STOPPING if stopping else 0
        if not alloc.flags & ASK_IRREGULAR:
            for i in range(alloc.claims_count):
                position = find_claim(node, alloc.claims[i] | flag)
                if position >= 0:
                    leave_claim(node, <uint32_t> position)
                elif not is_unknown_device(node, alloc.claims[i]):
                    # Back to how it was: there is room, nothing has moved.
                    for j in range(i):
                        if not is_unknown_device(node, alloc.claims[j]):
                            enter_claim(node, alloc.claims[j] | flag)
                    raise StateError(f"node row {row} does not hold claim {alloc.claims[i]:#x}")
        count_alloc(node, alloc, stopping, -1)
        return 0

    cdef int stop(self, uint32_t row, const Ask* alloc) except -1:
        cdef NodeRow* node = self._writable(row)
        cdef uint32_t i
        cdef int64_t position
        if not alloc.flags & ASK_IRREGULAR:
            # Before anything changes: what is told to stop must be there.
            for i in range(alloc.claims_count):
                if find_claim(node, alloc.claims[i]) < 0 and not is_unknown_device(node, alloc.claims[i]):
                    raise StateError(f"node row {row} does not hold claim {alloc.claims[i]:#x}")
        node.stopping_count += alloc.count
        if not alloc.flags & ASK_IRREGULAR:
            node.stopping_cpu_mhz += alloc.cpu_mhz
            node.stopping_memory_mib += alloc.memory_mib
            node.stopping_disk_mib += alloc.disk_mib
            for i in range(alloc.claims_count):
                position = find_claim(node, alloc.claims[i])
                if position >= 0:
                    own_claims(node)[position] |= CLAIM_STOPPING
        return 0

    cdef void prefetch(self, uint32_t row) noexcept nogil:
        # Its neighbours too: while a snapshot holds on to the block, a write moves all of it.
        cdef const char* block = <const char*> self.blocks.get(row >> ROW_SHIFT)
        cdef size_t place
        for place in range(0, sizeof(Block) + ROWS_PER_BLOCK * sizeof(NodeRow), 64):
            FASTPLAN_PREFETCH(block + place)

    cdef void prefetch_claims(self, uint32_t row) noexcept nogil:
        cdef Block* block = self.blocks.get(row >> ROW_SHIFT)
        cdef size_t place
        FASTPLAN_PREFETCH(self.row_at(row).supply)
        for place in range(sizeof(Block) + ROWS_PER_BLOCK * sizeof(NodeRow), min(sizeof(Block) + block.payload_bytes, PREFETCH_BYTES_MAX), 64):
            FASTPLAN_PREFETCH(<const char*> block + place)

    # The rest is for Python: the same three operations, and a look at a row.

    def add_alloc(self, uint32_t row, AskNumbers alloc not None, *, bint stopping=False):
        """Add an allocation that is not client-terminal; *stopping*: it is told to stop. StateError if the row holds no node."""
        self.add(row, &alloc.ask, stopping)

    def remove_alloc(self, uint32_t row, AskNumbers alloc not None, *, bint stopping=False):
        """Undo an `add_alloc` with equal arguments. StateError, with nothing changed, if the claims are not on the node."""
        self.remove(row, &alloc.ask, stopping)

    def stop_alloc(self, uint32_t row, AskNumbers alloc not None):
        """An allocation that was added as running is told to stop: as removing it and adding it with ``stopping=True``."""
        self.stop(row, &alloc.ask)

    def row(self, uint32_t row):
        """Return the numbers of a row by name, as in `NodeRow`, with what is used in place of what is free. StateError beyond the last row."""
        if row >= self.row_count:
            raise StateError(f"node row {row} does not exist")
        cdef const NodeRow* node = self.row_at(row)
        return {
            "cpu_mhz": node.cpu_mhz, "memory_mib": node.memory_mib, "disk_mib": node.disk_mib, "max_allocs": node.max_allocs,
            "used_cpu_mhz": node.cpu_mhz - node.free_cpu_mhz, "used_memory_mib": node.memory_mib - node.free_memory_mib,
            "used_disk_mib": node.disk_mib - node.free_disk_mib,
            "stopping_cpu_mhz": node.stopping_cpu_mhz, "stopping_memory_mib": node.stopping_memory_mib, "stopping_disk_mib": node.stopping_disk_mib,
            "used_memory_max_mib": node.used_memory_max_mib, "alloc_count": node.alloc_count, "stopping_count": node.stopping_count,
            "generation": node.generation, "flags": node.flags & (ROW_STATUS | ROW_PORTS_UNUSABLE | ROW_HAS_CORES | ROW_HAS_RESERVED),
            "irregular": node.irregular,
        }

    def claims(self, uint32_t row):
        """Return the claims held on a node, ascending. StateError beyond the last row."""
        if row >= self.row_count:
            raise StateError(f"node row {row} does not exist")
        cdef const NodeRow* node = self.row_at(row)
        cdef uint32_t i
        return sorted([(<const uint64_t*> node + node.claims_offset)[i] for i in range(node.claims_count)])

    def regular_claims(self, uint32_t row, bint physical):
        """Return the claims held on a row, without flags, ascending; None for an irregular row. Without *physical* those told to stop are left out."""
        if row >= self.row_count:
            raise StateError(f"node row {row} does not exist")
        cdef const NodeRow* node = self.row_at(row)
        cdef const uint64_t* claims = <const uint64_t*> node + node.claims_offset
        cdef uint32_t i
        if node.irregular:
            return None
        return [claims[i] >> CLAIM_FLAG_BITS << CLAIM_FLAG_BITS for i in range(node.claims_count) if physical or not claims[i] & CLAIM_STOPPING]

    def generations(self, const uint32_t[::1] rows not None):
        """Return the generations of *rows* (uint32 of its shape). Raises StateError beyond the last row."""
        cdef Py_ssize_t i
        generations = numpy.empty(rows.shape[0], numpy.uint32)
        cdef uint32_t[::1] out = generations
        for i in range(rows.shape[0]):
            if rows[i] >= self.row_count:
                raise StateError(f"node row {rows[i]} does not exist")
            out[i] = self.row_at(rows[i]).generation
        return generations

    def may_hold(self, uint32_t row, uint64_t claim):
        """Whether the node's filter leaves it open that the claim is held or reserved; for tests of the filter."""
        cdef const NodeRow* node = self.row_at(row)
        return not node.flags & ROW_FILTERED or filter_has(<const uint64_t*> node + node.claims_offset, node.claims_capacity, claim >> CLAIM_FLAG_BITS)


cdef void empty_row(NodeRow* node) noexcept nogil:
    node.free_cpu_mhz = node.cpu_mhz
    node.free_memory_mib = node.memory_mib
    node.free_disk_mib = node.disk_mib
    node.used_memory_max_mib = 0
    node.stopping_cpu_mhz = node.stopping_memory_mib = node.stopping_disk_mib = 0
    node.alloc_count = node.stopping_count = 0
    node.claims_count = 0
    node.irregular = 1 if node.supply.flags & SUPPLY_IRREGULAR else 0


cdef inline void count_alloc(NodeRow* node, const Ask* alloc, bint stopping, int32_t sign) noexcept nogil:
    node.alloc_count += sign * alloc.count
    if stopping:
        node.stopping_count += sign * alloc.count
    if alloc.flags & ASK_IRREGULAR:
        node.irregular += sign
        return
    node.free_cpu_mhz -= sign * alloc.cpu_mhz
    node.free_memory_mib -= sign * alloc.memory_mib
    node.free_disk_mib -= sign * alloc.disk_mib
    node.used_memory_max_mib += sign * alloc.memory_max_mib
    if stopping:
        node.stopping_cpu_mhz += sign * alloc.cpu_mhz
        node.stopping_memory_mib += sign * alloc.memory_mib
        node.stopping_disk_mib += sign * alloc.disk_mib
