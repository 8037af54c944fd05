"""Checks of many nodes in one call: verdicts, masks, headroom, scores. The loops hold no interpreter lock.

Whatever a kernel cannot decide comes back as SLOW (-1); the callers in Python then ask the reference.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.math cimport floor
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from fastplan.columns._blocks cimport PAGE_SHIFT, PAGE_SLOTS, Block, BlockArray, payload
from fastplan.fit._kernels cimport (
    ASK_IRREGULAR, ASK_NEEDS_SUPPLY, CLAIM_EXCLUSIVE, CLAIM_FLAG_BITS, CLAIM_IGNORES, CLAIM_STOPPING, KIND_CORE, KIND_DEVICE, KIND_PORT, KIND_SHIFT,
    ROW_FILTERED, ROW_HAS_RESERVED, ROW_INELIGIBLE, ROW_PRESENT, ROW_READY, RULE_CHECK_DEVICES, RULE_PHYSICAL,
    SLOW, SUBJECT_SHIFT, Ask, AskNumbers, NodeRow, Supply, check_row, claims_of, filter_has, filter_line, is_member, is_reserved,
    check_possible, lower_bound, possible_claims,
)
from fastplan.fit._nodes cimport ROW_SHIFT, NodeTable

from fastplan.errors import StateError

cdef extern from "fastplan_score.h" nogil:
    void fastplan_scores(const double* cpu_free, const double* memory_free, double* scores, size_t count, int spread)

cdef extern from "Python.h":
    int PyObject_GenericSetAttr(object thing, object name, object value) except -1

cdef extern from *:
    """
    #define FASTPLAN_PREFETCH(address) __builtin_prefetch(address)
    """
    void FASTPLAN_PREFETCH(const void* address) noexcept nogil

cdef enum:
    # Numbers of errors.Reason; a test compares them.
    FITS = 0
    MAX_ALLOCS = 1
    CORES = 2
    CPU = 3
    MEMORY = 4
    DISK = 5
    NODE_PORTS = 6
    ALLOC_PORTS = 7
    DEVICES = 8
    VOLUMES = 9
    NODE_MISSING = 10

    RING = 64               # rows under way between memory and check
    SLOTS_AHEAD = 60        # how far ahead the directory is fetched,
    ROWS_AHEAD = 46         # the rows,
    FILTERS_AHEAD = 26      # their filters,
    CLAIMS_AHEAD = 6        # and what the filters do not rule out
    CLAIM_LINES = 16        # of a node that are fetched at most
    CHUNK = 256             # nodes scored at a time
    STATIC_MAX = 64         # static ports of a group that a kernel handles

cdef int64_t UNLIMITED = INT64_MAX
cdef uint64_t FIRST_CORE = <uint64_t> KIND_CORE << KIND_SHIFT

ctypedef const NodeRow* RowPointer


# One ask, many rows, or one ask a row.

cdef class AskBatch:
    """Asks and their claims in one piece of memory, for `check_rows`. Made of a list of AskNumbers."""
    cdef Ask* asks
    cdef uint64_t* claims
    cdef readonly Py_ssize_t count

    def __init__(self, list asks not None):
        cdef Py_ssize_t i
        cdef size_t claims_count = 0
        cdef AskNumbers numbers
        cdef uint64_t* claims
        self.count = len(asks)
        self.asks = <Ask*> malloc((self.count or 1) * sizeof(Ask))
        if self.asks == NULL:
            raise MemoryError("no memory for a batch of asks")
        for i in range(self.count):
            if type(asks[i]) is not AskNumbers:
                raise TypeError(f"an AskBatch is made of AskNumbers, not {type(asks[i]).__name__}")
            numbers = <AskNumbers> asks[i]
            self.asks[i] = numbers.ask
            claims_count += numbers.ask.claims_count
        self.claims = claims = <uint64_t*> malloc((claims_count or 1) * sizeof(uint64_t))
        if claims == NULL:
            raise MemoryError("no memory for a batch of asks")
        for i in range(self.count):
            memcpy(claims, self.asks[i].claims, self.asks[i].claims_count * sizeof(uint64_t))
            self.asks[i].claims = claims
            claims += self.asks[i].claims_count

    def __dealloc__(self):
        free(self.asks)
        free(self.claims)

    def __len__(self):
        return self.count


cdef inline void prefetch_filter(const NodeRow* row, const Ask* ask) noexcept nogil:
    """Fetch the lines of the filter that the ask will look at, and the supply if it will."""
    cdef const uint64_t* claims = claims_of(row)
    cdef uint32_t i
    if row.flags & ROW_FILTERED:
        for i in range(ask.claims_count if ask.claims_count < 4 else <uint32_t> 4):
            FASTPLAN_PREFETCH(claims + filter_line(ask.claims[i] >> CLAIM_FLAG_BITS, row.claims_capacity))
    if ask.flags & ASK_NEEDS_SUPPLY:
        FASTPLAN_PREFETCH(row.supply)


cdef inline void prefetch_claims(const NodeRow* row) noexcept nogil:
    """Fetch the claims, or where a search among very many begins."""
    cdef const char* claims = <const char*> claims_of(row)
    cdef uint32_t lines = (row.claims_count >> 3) + 1
    cdef uint32_t step = 1 if lines <= CLAIM_LINES else lines // CLAIM_LINES
    cdef uint32_t line = 0
    while line < lines:
        FASTPLAN_PREFETCH(claims + (<size_t> line << 6))
        line += step


cdef inline void prefetch_slot(BlockArray blocks, int64_t block) noexcept nogil:
    """Fetch the directory entry of a block."""
    FASTPLAN_PREFETCH(<Block**> payload((<Block**> payload(blocks.root))[block >> PAGE_SHIFT]) + (block & (PAGE_SLOTS - 1)))


cdef Py_ssize_t check_many(
    NodeTable table, const int64_t* rows, Py_ssize_t count, const Ask* asks, Py_ssize_t step, uint32_t rules, int8_t* codes
) noexcept nogil:
    """Write the verdicts; return the position of a row beyond the table, or -1. Rows arrive in the cache before they are needed."""
    cdef RowPointer[RING] ring
    cdef uint64_t[RING] possible
    cdef uint64_t bits
    cdef const NodeRow* row
    cdef Py_ssize_t i
    cdef uint64_t row_count = table.row_count
    for i in range(-SLOTS_AHEAD, count):
        if i + SLOTS_AHEAD < count:
            if <uint64_t> rows[i + SLOTS_AHEAD] >= row_count:
                return i + SLOTS_AHEAD
            prefetch_slot(table.blocks, rows[i + SLOTS_AHEAD] >> ROW_SHIFT)
        if 0 <= i + ROWS_AHEAD < count:
            row = table.row_at(<uint32_t> rows[i + ROWS_AHEAD])
            ring[(i + ROWS_AHEAD) & (RING - 1)] = row
            FASTPLAN_PREFETCH(row)
            if not rules & RULE_PHYSICAL:
                FASTPLAN_PREFETCH(<const char*> row + 64)
        if 0 <= i + FILTERS_AHEAD < count:
            prefetch_filter(ring[(i + FILTERS_AHEAD) & (RING - 1)], asks + (i + FILTERS_AHEAD) * step)
        if 0 <= i + CLAIMS_AHEAD < count:
            row = ring[(i + CLAIMS_AHEAD) & (RING - 1)]
            bits = possible_claims(row, asks + (i + CLAIMS_AHEAD) * step) if asks[(i + CLAIMS_AHEAD) * step].claims_count else 0
            possible[(i + CLAIMS_AHEAD) & (RING - 1)] = bits
            if bits:
                prefetch_claims(row)
        if i >= 0:
            row = ring[i & (RING - 1)]
            if row.flags & ROW_PRESENT:
                codes[i] = <int8_t> check_possible(row, asks + i * step, possible[i & (RING - 1)], NULL, NULL, rules)
            else:
                codes[i] = NODE_MISSING
    return -1


def check_rows(NodeTable table not None, const int64_t[::1] rows not None, asks not None, uint32_t rules, int8_t[::1] codes not None):
    """Write to *codes* (int8, shape of *rows*) the verdict on each row: a Reason number, or SLOW. *asks*: one AskNumbers, or an AskBatch of equal length.

    Raises StateError for a row beyond the table, ValueError for lengths that differ.
    """
    cdef Py_ssize_t count = rows.shape[0]
    cdef const Ask* first
    cdef Py_ssize_t step
    cdef Py_ssize_t beyond
    if type(asks) is AskBatch:
        first = (<AskBatch> asks).asks
        step = 1
        if (<AskBatch> asks).count != count:
            raise ValueError(f"{count} rows and {(<AskBatch> asks).count} asks")
    else:
        first = &(<AskNumbers?> asks).ask
        step = 0
    if codes.shape[0] != count:
        raise ValueError(f"{count} rows and room for {codes.shape[0]} codes")
    if count == 0:
        return
    with nogil:
        beyond = check_many(table, &rows[0], count, first, step, rules, &codes[0])
    if beyond >= 0:
        raise StateError(f"node row {rows[beyond]} does not exist")


def row_verdict(NodeTable table not None, uint32_t row, AskNumbers ask not None, AskNumbers release, AskNumbers prior, uint32_t rules):
    """`check_row` for Python hands: the verdict on one row after *release* has left it and *prior* has joined it (either may be None).

    StateError for a row beyond the table. Claims of *release* and *prior* must ascend.
    """
    if row >= table.row_count:
        raise StateError(f"node row {row} does not exist")
    return check_row(table.row_at(row), &ask.ask, NULL if release is None else &release.ask, NULL if prior is None else &prior.ask, rules)


cdef tuple cores_with(const NodeRow* row, const Ask* ask, const Ask* release, bint physical):
    """The cores that are pinned once the ask is on the node, ascending."""
    cdef const uint64_t* claims = claims_of(row)
    cdef uint32_t i
    cdef set cores = set()
    for i in range(lower_bound(claims, row.claims_count, FIRST_CORE >> CLAIM_FLAG_BITS), row.claims_count):
        if claims[i] >> KIND_SHIFT != KIND_CORE:
            break
        if physical or not claims[i] & CLAIM_STOPPING:
            cores.add((claims[i] - FIRST_CORE) >> CLAIM_FLAG_BITS)
    if release != NULL:
        for i in range(release.claims_count):
            if release.claims[i] >> KIND_SHIFT == KIND_CORE:
                cores.discard((release.claims[i] - FIRST_CORE) >> CLAIM_FLAG_BITS)
    for i in range(ask.claims_count):
        if ask.claims[i] >> KIND_SHIFT == KIND_CORE:
            cores.add((ask.claims[i] - FIRST_CORE) >> CLAIM_FLAG_BITS)
    return tuple(sorted(cores))


cdef bint has_cores(const uint64_t* claims, uint32_t count) noexcept nogil:
    cdef uint32_t position = lower_bound(claims, count, FIRST_CORE >> CLAIM_FLAG_BITS)
    return position < count and claims[position] >> KIND_SHIFT == KIND_CORE


def check_one(NodeTable table not None, uint32_t row, ask not None, AskNumbers release, uint32_t rules):
    """Return the verdict on one row after *release* (or None) has left it, and what is used then with the ask:
    (Reason number or SLOW, MHz, MiB, MiB at most, MiB of disk, cores ascending). StateError for a row beyond the table.

    Of a group the used sums are without cores that are yet to be chosen. Without RULE_PHYSICAL a node with something told to stop is SLOW, since
    its memory maximum is not kept apart.
    """
    cdef const NodeRow* node
    cdef const Ask* literal
    cdef const Ask* leaving = NULL if release is None else &release.ask
    cdef bint physical = rules & RULE_PHYSICAL != 0
    cdef int64_t cpu_mhz, memory_mib, memory_max_mib, disk_mib, copies
    cdef int32_t code
    cdef uint32_t i
    cdef bint pins = False
    if row >= table.row_count:
        raise StateError(f"node row {row} does not exist")
    node = table.row_at(row)
    if not node.flags & ROW_PRESENT:
        return NODE_MISSING, 0, 0, 0, 0, ()
    if type(ask) is AskNumbers:
        literal = &(<AskNumbers> ask).ask
        code = check_row(node, literal, leaving, NULL, rules)
    else:
        literal = &(<GroupNumbers?> ask).base.ask
        code = group_check(node, <GroupNumbers> ask, rules, 1, &copies)
    if code == SLOW or code == MAX_ALLOCS or not physical and node.stopping_count:
        return MAX_ALLOCS if code == MAX_ALLOCS else SLOW, 0, 0, 0, 0, ()
    cpu_mhz = node.cpu_mhz - node.free_cpu_mhz + literal.cpu_mhz
    memory_mib = node.memory_mib - node.free_memory_mib + literal.memory_mib
    memory_max_mib = node.used_memory_max_mib + literal.memory_max_mib
    disk_mib = node.disk_mib - node.free_disk_mib + literal.disk_mib
    if leaving != NULL:
        cpu_mhz -= leaving.cpu_mhz
        memory_mib -= leaving.memory_mib
        memory_max_mib -= leaving.memory_max_mib
        disk_mib -= leaving.disk_mib
    for i in range(literal.claims_count):
        pins = pins or literal.claims[i] >> KIND_SHIFT == KIND_CORE
    if pins or has_cores(claims_of(node), node.claims_count):
        return code, cpu_mhz, memory_mib, memory_max_mib, disk_mib, cores_with(node, literal, leaving, physical)
    return code, cpu_mhz, memory_mib, memory_max_mib, disk_mib, ()


def result_of(type result_type not None, type used_type not None, tuple verdict not None, code not None, str reason not None):
    """Return a `FitResult` for what `check_one` said. The classes are frozen dataclasses, whose own constructors take longer than the check."""
    used = used_type.__new__(used_type)
    PyObject_GenericSetAttr(used, "cpu_mhz", verdict[1])
    PyObject_GenericSetAttr(used, "memory_mib", verdict[2])
    PyObject_GenericSetAttr(used, "memory_max_mib", verdict[3])
    PyObject_GenericSetAttr(used, "disk_mib", verdict[4])
    PyObject_GenericSetAttr(used, "reserved_cores", verdict[5])
    result = result_type.__new__(result_type)
    PyObject_GenericSetAttr(result, "fit", verdict[0] == FITS)
    PyObject_GenericSetAttr(result, "reason", reason)
    PyObject_GenericSetAttr(result, "error", "")
    PyObject_GenericSetAttr(result, "used", used)
    PyObject_GenericSetAttr(result, "code", code)
    return result


# Groups: how many copies fit, before ports, cores and instances are chosen.

cdef struct StaticPort:
    uint32_t alias
    uint32_t port
    uint32_t ignores

cdef struct DynamicPorts:
    uint32_t alias
    uint32_t count

cdef struct DeviceNeed:
    const uint32_t* kinds   # numbers of the device kinds that the pattern matches, ascending
    uint32_t kinds_count
    uint32_t count          # of this pattern and of those that it contains

cdef class GroupNumbers:
    """What one copy of a group asks of any node.

    *base*: amounts (cpu without pinned cores) and volume claims. *statics*: (alias number, port, ignores collisions) in order.
    *dynamics*: (alias number, ports) in order, runs of one alias together. *cores*: how many are pinned; each brings its MHz.
    *devices*: (ascending numbers of matching kinds, instances), where an instance asked by a narrower pattern counts in the wider one too.
    """
    cdef AskNumbers base
    cdef StaticPort* statics
    cdef uint32_t statics_count
    cdef DynamicPorts* dynamics
    cdef uint32_t dynamics_count
    cdef uint32_t dynamic_ports
    cdef DeviceNeed* devices
    cdef uint32_t devices_count
    cdef int64_t cores
    cdef bint irregular
    cdef list _kinds

    def __init__(self, AskNumbers base not None, statics=(), dynamics=(), int64_t cores=0, devices=(), bint irregular=False):
        cdef Py_ssize_t i
        cdef bytes packed
        self.base = base
        self.cores = cores
        self.irregular = irregular or base.ask.flags & ASK_IRREGULAR != 0 or len(statics) > STATIC_MAX
        self._kinds = []
        self.statics = <StaticPort*> calloc(len(statics) or 1, sizeof(StaticPort))
        self.dynamics = <DynamicPorts*> calloc(len(dynamics) or 1, sizeof(DynamicPorts))
        self.devices = <DeviceNeed*> calloc(len(devices) or 1, sizeof(DeviceNeed))
        if self.statics == NULL or self.dynamics == NULL or self.devices == NULL:
            raise MemoryError("no memory for the numbers of a group")
        for i, (alias, port, ignores) in enumerate(statics):
            self.statics[i] = StaticPort(alias, port, 1 if ignores else 0)
        self.statics_count = <uint32_t> len(statics)
        for i, (alias, ports) in enumerate(dynamics):
            self.dynamics[i] = DynamicPorts(alias, ports)
            self.dynamic_ports += ports
        self.dynamics_count = <uint32_t> len(dynamics)
        for i, (kinds, count) in enumerate(devices):
            packed = kinds.tobytes()
            self._kinds.append(packed)
            self.devices[i] = DeviceNeed(<const uint32_t*> PyBytes_AS_STRING(packed), <uint32_t> (len(packed) // 4), count)
        self.devices_count = <uint32_t> len(devices)

    def __dealloc__(self):
        free(self.statics)
        free(self.dynamics)
        free(self.devices)


cdef bint holds(const NodeRow* row, uint64_t claim, bint physical) noexcept nogil:
    """Whether somebody on the node holds the claim."""
    cdef const uint64_t* claims = claims_of(row)
    cdef uint64_t key = claim >> CLAIM_FLAG_BITS
    cdef uint32_t position
    if row.flags & ROW_FILTERED and not filter_has(claims, row.claims_capacity, key):
        return False
    position = lower_bound(claims, row.claims_count, key)
    while position < row.claims_count and claims[position] >> CLAIM_FLAG_BITS == key:
        if physical or not claims[position] & CLAIM_STOPPING:
            return True
        position += 1
    return False


cdef uint32_t held_between(const NodeRow* row, uint64_t first, uint64_t last, bint physical) noexcept nogil:
    """How many claims with keys from first to last are held, on a regular row."""
    cdef const uint64_t* claims = claims_of(row)
    cdef uint32_t start = lower_bound(claims, row.claims_count, first >> CLAIM_FLAG_BITS)
    cdef uint32_t end = lower_bound(claims, row.claims_count, (last >> CLAIM_FLAG_BITS) + 1)
    cdef uint32_t held = 0
    if physical:
        return end - start
    while start < end:
        held += not claims[start] & CLAIM_STOPPING
        start += 1
    return held


cdef int64_t reserved_between(const Supply* supply, uint64_t first, uint64_t last) noexcept nogil:
    """How many ports from first to last, of one address, are reserved."""
    cdef uint32_t i
    cdef uint64_t low, high
    cdef int64_t reserved = 0
    for i in range(supply.reserved_count):
        low = supply.reserved[2 * i] if supply.reserved[2 * i] > first else first
        high = supply.reserved[2 * i + 1] if supply.reserved[2 * i + 1] < last else last
        if low <= high:
            reserved += <int64_t> ((high - low) >> CLAIM_FLAG_BITS) + 1
    return reserved


cdef inline int64_t free_dynamic(const NodeRow* row, uint64_t address, bint physical) noexcept nogil:
    """How many dynamic ports are free on an address."""
    cdef const Supply* supply = row.supply
    cdef uint64_t first = address << SUBJECT_SHIFT | <uint64_t> supply.dynamic_low << CLAIM_FLAG_BITS
    cdef uint64_t last = address << SUBJECT_SHIFT | <uint64_t> supply.dynamic_high << CLAIM_FLAG_BITS
    if supply.dynamic_high < supply.dynamic_low:
        return 0
    return <int64_t> (supply.dynamic_high - supply.dynamic_low) + 1 - held_between(row, first, last, physical) - reserved_between(supply, first, last)


cdef inline int64_t times(int64_t available, int64_t each) noexcept nogil:
    """How often *each* fits into what is available; without an ask any number of times, unless there is less than nothing."""
    if available < 0:
        return 0
    return available // each if each > 0 else UNLIMITED


cdef int64_t static_copies(const NodeRow* row, GroupNumbers group, bint physical) noexcept nogil:
    """How many copies the static ports allow, or SLOW where the choice of addresses has to be tried."""
    cdef const Supply* supply = row.supply
    cdef uint64_t[STATIC_MAX] chosen
    cdef uint64_t claim
    cdef int64_t copies = UNLIMITED
    cdef int64_t addresses
    cdef uint32_t i, j
    for i in range(group.statics_count):
        addresses = 0
        for j in range(supply.networks_count):
            if supply.networks[j] >> 32 != group.statics[i].alias:
                continue
            claim = <uint64_t> <uint32_t> supply.networks[j] << SUBJECT_SHIFT | <uint64_t> group.statics[i].port << CLAIM_FLAG_BITS
            if group.statics[i].ignores or not (holds(row, claim, physical) or (row.flags & ROW_HAS_RESERVED and is_reserved(supply, claim))):
                if addresses == 0:
                    chosen[i] = claim
                addresses += 1
        if addresses == 0:
            return 0
        for j in range(i):
            if chosen[j] == chosen[i]:
                # The offer would name one port twice: it is made, and then does not fit, unless all but the first ignore collisions.
                return SLOW
        if not group.statics[i].ignores and addresses < copies:
            copies = addresses
    # From the second copy on, one port may take the address that another one wanted.
    return SLOW if copies > 1 and group.statics_count > 1 and copies != UNLIMITED else copies


cdef int64_t dynamic_copies(const NodeRow* row, GroupNumbers group, bint physical, int64_t wanted) noexcept nogil:
    """How many copies the dynamic ports allow; *wanted* or more if they do for that many; SLOW where it is too close to call."""
    cdef const Supply* supply = row.supply
    cdef uint32_t i, j
    cdef int64_t addresses
    cdef int64_t room
    cdef int64_t most
    cdef int64_t available
    cdef int64_t needed = wanted if wanted < 65536 else 65536
    needed = needed * group.dynamic_ports + group.statics_count * (needed if group.statics_count else 0)
    for i in range(group.dynamics_count):
        addresses = most = room = 0
        for j in range(supply.networks_count):
            if supply.networks[j] >> 32 != group.dynamics[i].alias:
                continue
            available = free_dynamic(row, <uint32_t> supply.networks[j], physical)
            addresses += 1
            room += available
            most = available if available > most else most
        if room == 0:
            return 0
        if most >= needed:
            continue
        if addresses == 1 and group.dynamics_count == 1 and group.statics_count == 0:
            return most // group.dynamic_ports
        return SLOW
    return wanted


cdef int64_t device_copies(const NodeRow* row, GroupNumbers group, bint physical) noexcept nogil:
    """How many copies the devices allow. Patterns contain each other or are disjoint, so counting decides."""
    cdef const Supply* supply = row.supply
    cdef int64_t copies = UNLIMITED
    cdef int64_t available
    cdef uint32_t i, j, kind, low, high, middle
    for i in range(group.devices_count):
        if group.devices[i].count == 0:
            continue
        available = 0
        for j in range(supply.devices_count):
            kind = <uint32_t> (supply.devices[j] >> SUBJECT_SHIFT) & 0xFFFFFFF
            low = 0
            high = group.devices[i].kinds_count
            while low < high:
                middle = (low + high) >> 1
                if group.devices[i].kinds[middle] < kind:
                    low = middle + 1
                else:
                    high = middle
            if low < group.devices[i].kinds_count and group.devices[i].kinds[low] == kind and not holds(row, supply.devices[j], physical):
                available += 1
        if available // group.devices[i].count < copies:
            copies = available // group.devices[i].count
    return copies


cdef int64_t volume_copies(const NodeRow* row, const Ask* ask, uint32_t rules) noexcept nogil:
    """How many copies the claims of a literal ask, or the volume claims of a group, allow besides what is there; the first one fits."""
    cdef uint32_t i
    cdef uint64_t claim, kind
    for i in range(ask.claims_count):
        claim = ask.claims[i]
        kind = claim >> KIND_SHIFT
        if kind == KIND_PORT:
            if not claim & CLAIM_IGNORES:
                return 1
        elif kind == KIND_CORE:
            return 1
        elif kind == KIND_DEVICE:
            if rules & RULE_CHECK_DEVICES and is_member(row.supply.devices, row.supply.devices_count, claim):
                return 1
        elif rules & RULE_CHECK_DEVICES and claim & CLAIM_EXCLUSIVE:
            return 1
    return UNLIMITED


cdef int64_t amount_copies(const NodeRow* row, const Ask* ask, int64_t cpu_mhz, uint32_t rules) noexcept nogil:
    """How many copies the sums allow; the node has room for nothing at all if it is over-committed."""
    cdef int64_t free_cpu_mhz = row.free_cpu_mhz
    cdef int64_t free_memory_mib = row.free_memory_mib
    cdef int64_t free_disk_mib = row.free_disk_mib
    cdef int64_t count = row.alloc_count
    cdef int64_t copies, more
    if not rules & RULE_PHYSICAL:
        free_cpu_mhz += row.stopping_cpu_mhz
        free_memory_mib += row.stopping_memory_mib
        free_disk_mib += row.stopping_disk_mib
        count -= row.stopping_count
    copies = times(free_cpu_mhz, cpu_mhz)
    more = times(free_memory_mib, ask.memory_mib)
    copies = more if more < copies else copies
    more = times(free_disk_mib, ask.disk_mib)
    copies = more if more < copies else copies
    if row.max_allocs != 0:
        more = times(row.max_allocs - count, ask.count)
        copies = more if more < copies else copies
    return copies


cdef int64_t ask_headroom(const NodeRow* row, const Ask* ask, uint32_t rules) noexcept nogil:
    """How many copies of a literal ask fit, or SLOW."""
    cdef int32_t code = check_row(row, ask, NULL, NULL, rules)
    cdef int64_t copies, more
    if code != FITS:
        return SLOW if code == SLOW else 0
    copies = amount_copies(row, ask, ask.cpu_mhz, rules)
    more = volume_copies(row, ask, rules)
    return more if more < copies else copies


cdef int32_t group_check(const NodeRow* row, GroupNumbers group, uint32_t rules, int64_t wanted, int64_t* copies) noexcept nogil:
    """The first reason why not even one copy fits, FITS, or SLOW; with FITS *copies* says how many do, at most *wanted*."""
    cdef Ask ask = group.base.ask
    cdef const Supply* supply = row.supply
    cdef bint physical = rules & RULE_PHYSICAL != 0
    cdef int64_t found
    cdef int32_t code
    copies[0] = 0
    if row.irregular or group.irregular:
        return SLOW
    code = check_row(row, &ask, NULL, NULL, rules)
    if group.cores > 0 and code != MAX_ALLOCS:
        found = <int64_t> supply.cores_count - held_between(row, FIRST_CORE, FIRST_CORE | <uint64_t> 0xFFFF << CLAIM_FLAG_BITS, physical)
        if found < group.cores:
            return CORES
        if supply.core_mhz == 0:
            # Cores of different speeds: what they cost is known when they are chosen.
            return SLOW
        ask.cpu_mhz += group.cores * supply.core_mhz
        wanted = min(wanted, found // group.cores)
        code = check_row(row, &ask, NULL, NULL, rules)
    if code != FITS and code != VOLUMES:
        return code
    wanted = min(wanted, amount_copies(row, &ask, ask.cpu_mhz, rules))
    if group.statics_count:
        found = static_copies(row, group, physical)
        if found <= 0:
            return SLOW if found == SLOW else ALLOC_PORTS
        wanted = min(wanted, found)
    if group.dynamics_count:
        found = dynamic_copies(row, group, physical, wanted)
        if found <= 0:
            return SLOW if found == SLOW else ALLOC_PORTS
        wanted = min(wanted, found)
    if group.devices_count:
        found = device_copies(row, group, physical)
        if found == 0:
            return DEVICES
        wanted = min(wanted, found)
    if code != FITS:
        return code
    copies[0] = min(wanted, volume_copies(row, &ask, rules))
    return FITS


def group_codes(NodeTable table not None, const int64_t[::1] rows not None, GroupNumbers group not None, uint32_t rules, int8_t[::1] codes not None):
    """As `check_rows`, for a copy of a group on each of the rows."""
    cdef Py_ssize_t i
    cdef const NodeRow* row
    cdef int64_t copies
    cdef Py_ssize_t beyond = -1
    if codes.shape[0] != rows.shape[0]:
        raise ValueError(f"{rows.shape[0]} rows and room for {codes.shape[0]} codes")
    with nogil:
        for i in range(rows.shape[0]):
            if <uint64_t> rows[i] >= table.row_count:
                beyond = i
                break
            row = table.row_at(<uint32_t> rows[i])
            codes[i] = <int8_t> group_check(row, group, rules, 1, &copies) if row.flags & ROW_PRESENT else NODE_MISSING
    if beyond >= 0:
        raise StateError(f"node row {rows[beyond]} does not exist")


# Scans over all nodes.

cdef inline bint is_candidate(const NodeRow* row, bint ready_only) noexcept nogil:
    """Whether the row holds a node that may be asked at all."""
    return row.flags & ROW_PRESENT != 0 and (not ready_only or row.flags & (ROW_READY | ROW_INELIGIBLE) == ROW_READY)


def copies_of(NodeTable table not None, ask not None, uint32_t rules, bint ready_only, int64_t wanted, int64_t[::1] copies not None):
    """Write to *copies* (int64, one a row of the table) how many copies of *ask* (AskNumbers or GroupNumbers) fit, at most *wanted*; SLOW where
    the reference has to say. Rows without a node, and with *ready_only* nodes that are not ready or not eligible, get 0.
    """
    cdef uint32_t i
    cdef const NodeRow* row
    cdef GroupNumbers group = <GroupNumbers> ask if type(ask) is GroupNumbers else None
    cdef const Ask* literal = NULL
    cdef int64_t found
    if copies.shape[0] != table.row_count:
        raise ValueError(f"{table.row_count} rows and room for {copies.shape[0]} numbers")
    if group is None:
        literal = &(<AskNumbers?> ask).ask
    with nogil:
        for i in range(table.row_count):
            if i + 16 < table.row_count:
                row = table.row_at(i + 16)
                FASTPLAN_PREFETCH(row)
                FASTPLAN_PREFETCH(<const char*> row + 64)
            if literal != NULL and i + 8 < table.row_count:
                prefetch_filter(table.row_at(i + 8), literal)
            row = table.row_at(i)
            if not is_candidate(row, ready_only):
                copies[i] = 0
            elif literal != NULL:
                found = ask_headroom(row, literal, rules)
                copies[i] = found if found < wanted else wanted
            elif group_check(row, group, rules, wanted, &found) == SLOW:
                copies[i] = SLOW
            else:
                copies[i] = found


cdef inline double free_share(int64_t capacity, int64_t used) noexcept nogil:
    """What is left of a capacity, as a share; without capacity nothing is (schedulers.md 9.2)."""
    if capacity == 0:
        return 0.0 if used == 0 else (-300.0 if used > 0 else 300.0)
    return 1.0 - <double> used / <double> capacity


cdef void score_chunk(
    NodeTable table, const uint32_t* rows, Py_ssize_t count, int64_t cpu_mhz, int64_t core_count, int64_t memory_mib, uint32_t rules, int spread,
    double* scores,
) noexcept nogil:
    """Score up to CHUNK rows with the ask added to what is used."""
    cdef double[CHUNK] cpu_free
    cdef double[CHUNK] memory_free
    cdef Py_ssize_t i
    cdef const NodeRow* row
    cdef int64_t used_cpu_mhz, used_memory_mib
    for i in range(count):
        row = table.row_at(rows[i])
        used_cpu_mhz = row.cpu_mhz - row.free_cpu_mhz + cpu_mhz + core_count * row.supply.core_mhz
        used_memory_mib = row.memory_mib - row.free_memory_mib + memory_mib
        if not rules & RULE_PHYSICAL:
            used_cpu_mhz -= row.stopping_cpu_mhz
            used_memory_mib -= row.stopping_memory_mib
        cpu_free[i] = free_share(row.cpu_mhz, used_cpu_mhz)
        memory_free[i] = free_share(row.memory_mib, used_memory_mib)
    fastplan_scores(cpu_free, memory_free, scores, count, spread)


def scores_of(NodeTable table not None, ask not None, uint32_t rules, bint spread, double[::1] scores not None):
    """Write to *scores* (float64, one a row of the table) how good each node would look with one copy of *ask* on it, 0 to 18 (schedulers.md 9.2).

    Feasibility plays no part; rows without a node get the score of an empty capacity. Equal to `score_fit` within 1e-12.
    """
    cdef uint32_t[CHUNK] rows
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t count, i
    cdef GroupNumbers group = <GroupNumbers> ask if type(ask) is GroupNumbers else None
    cdef const Ask* literal = &group.base.ask if group is not None else &(<AskNumbers?> ask).ask
    cdef int64_t cores = 0 if group is None else group.cores
    if scores.shape[0] != table.row_count:
        raise ValueError(f"{table.row_count} rows and room for {scores.shape[0]} scores")
    with nogil:
        while start < table.row_count:
            count = min(<Py_ssize_t> CHUNK, <Py_ssize_t> table.row_count - start)
            for i in range(count):
                rows[i] = <uint32_t> (start + i)
            score_chunk(table, rows, count, literal.cpu_mhz, cores, literal.memory_mib, rules, spread, &scores[start])
            start += CHUNK


def score_one(NodeTable table not None, uint32_t row, ask not None, uint32_t rules, bint spread):
    """Return the score of one row, as `scores_of`; None for an irregular one, whose sums are incomplete."""
    cdef double score
    cdef GroupNumbers group = <GroupNumbers> ask if type(ask) is GroupNumbers else None
    cdef const Ask* literal = &group.base.ask if group is not None else &(<AskNumbers?> ask).ask
    if row >= table.row_count:
        raise StateError(f"node row {row} does not exist")
    if table.row_at(row).irregular or literal.flags & ASK_IRREGULAR or (group is not None and group.cores and not table.row_at(row).supply.core_mhz):
        return None
    score_chunk(table, &row, 1, literal.cpu_mhz, 0 if group is None else group.cores, literal.memory_mib, rules, spread, &score)
    return score


def best_row(
    NodeTable table not None, ask not None, uint32_t rules, bint spread, bint ready_only, const uint8_t[::1] allowed, const uint32_t[::1] order,
    double step=0.0,
):
    """Return (row with the highest score among those where one copy fits, rows that the reference must look at).

    The row is -1 if no node fits. *allowed* (uint8, one a row; or None) leaves rows out where it is 0. Of equal scores the row that comes first
    in *order* (uint32, rank by row; or None: the row itself) wins. With a *step* above 0 scores are equal whose quotients by it have one whole part.
    """
    cdef uint32_t[CHUNK] rows
    cdef double[CHUNK] scores
    cdef uint32_t i
    cdef Py_ssize_t j
    cdef Py_ssize_t count = 0
    cdef const NodeRow* row
    cdef GroupNumbers group = <GroupNumbers> ask if type(ask) is GroupNumbers else None
    cdef const Ask* literal = &group.base.ask if group is not None else &(<AskNumbers?> ask).ask
    cdef int64_t cores = 0 if group is None else group.cores
    cdef int64_t copies
    cdef int32_t code
    cdef double best_score = -1.0
    cdef int64_t best = -1
    cdef uint32_t* slow
    cdef Py_ssize_t slow_count = 0
    if (allowed is not None and allowed.shape[0] != table.row_count) or (order is not None and order.shape[0] != table.row_count):
        raise ValueError(f"`allowed` and `order` need one entry for each of the {table.row_count} rows")
    slow = <uint32_t*> malloc((table.row_count or 1) * sizeof(uint32_t))
    if slow == NULL:
        raise MemoryError("no memory for a list of rows")
    try:
        with nogil:
            for i in range(table.row_count):
                if i + 16 < table.row_count:
                    row = table.row_at(i + 16)
                    FASTPLAN_PREFETCH(row)
                    FASTPLAN_PREFETCH(<const char*> row + 64)
                row = table.row_at(i)
                if is_candidate(row, ready_only) and (allowed is None or allowed[i]):
                    code = check_row(row, literal, NULL, NULL, rules) if group is None else group_check(row, group, rules, 1, &copies)
                    if code == SLOW:
                        slow[slow_count] = i
                        slow_count += 1
                    elif code == FITS:
                        rows[count] = i
                        count += 1
                if count == CHUNK or (i + 1 == table.row_count and count):
                    score_chunk(table, rows, count, literal.cpu_mhz, cores, literal.memory_mib, rules, spread, scores)
                    for j in range(count):
                        if step > 0.0:
                            scores[j] = floor(scores[j] / step)
                        if scores[j] > best_score or (scores[j] == best_score and order is not None and order[rows[j]] < order[best]):
                            best_score = scores[j]
                            best = rows[j]
                    count = 0
        return best, [slow[j] for j in range(slow_count)]
    finally:
        free(slow)
