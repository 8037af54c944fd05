"""C structs and functions of the compiled fit check, for every Cython module that wants to call them.

    from fastplan.fit._kernels cimport Ask, NodeRow, Supply, check_row

Everything here works on plain memory without the interpreter lock, never raises and never allocates. The rules are those of
plan-apply.md 2.2; `fastplan.fit.reference` says the same in plain Python and decides whatever is *irregular*.

**Amounts** of a regular row or ask lie in [-LIMIT, LIMIT] (sums of 65,536 of them cannot overflow).

**Claims** are things that can be held only once. One claim is one uint64:

    bits 63-62  kind: 0 port, 1 core, 2 device instance, 3 host volume
    bits 61-34  subject: number of the interned text (address; 0 for cores; vendor/type/name; source)
    bits 33-4   value: port, core id, number of the interned instance id, 0 for volumes
    bits 3-0    flags: CLAIM_IGNORES (port: ignores collisions), CLAIM_STOPPING (its holder is told to stop), CLAIM_EXCLUSIVE (volume: single writer)

Lists of claims ascend by key, which is the claim without its flags (`claim >> CLAIM_FLAG_BITS`). The order among claims of one key is free.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef enum:
    CLAIM_FLAG_BITS = 4
    CLAIM_IGNORES = 1
    CLAIM_STOPPING = 2
    CLAIM_EXCLUSIVE = 4

    KIND_PORT = 0
    KIND_CORE = 1
    KIND_DEVICE = 2
    KIND_VOLUME = 3

    KIND_SHIFT = 62
    SUBJECT_SHIFT = 34
    SUBJECT_BITS = 28
    VALUE_BITS = 30

# Flags of NodeRow.flags.
cdef enum:
    ROW_PRESENT = 1             # the row holds a node
    ROW_READY = 2               # status is ready
    ROW_DOWN = 4
    ROW_DISCONNECTED = 8
    ROW_INELIGIBLE = 16         # scheduling eligibility is exactly "ineligible"
    ROW_PORTS_UNUSABLE = 32     # reserved-port text cannot be used: every check ends at step 7 at the latest
    ROW_HAS_CORES = 64          # the usable core set is not empty
    ROW_HAS_RESERVED = 128      # the supply has reserved port ranges
    ROW_FILTERED = 256          # the claims are preceded by a filter, see claims_filter below
    ROW_RESERVED_FILTERED = 512  # every reserved port is in the filter too
    ROW_STALE_SHIFT = 16        # the upper half counts removed claims whose bits linger in the filter
    ROW_STATUS = 1 | 2 | 4 | 8 | 16

# Flags of Supply.flags.
cdef enum:
    SUPPLY_PORTS_UNUSABLE = 1
    SUPPLY_IRREGULAR = 2        # the node cannot be read completely: only the reference can decide

# Flags of Ask.flags.
cdef enum:
    ASK_IRREGULAR = 1           # only the reference can decide
    ASK_IGNORES = 2             # some claim has CLAIM_IGNORES: once accepted, the node may be irregular, so a `prior` that contains it must be ASK_IRREGULAR

    ASK_NEEDS_SUPPLY = 4        # a hint, that some claim is not on a port: whoever fetches memory ahead fetches the supply too

# The rules of one check.
cdef enum:
    RULE_PHYSICAL = 1           # count what is told to stop until its client is terminal; without it: the desired sums, stopping claims ignored
    RULE_STRICT_CORES = 2       # cores asked where the core set is empty are refused (CORES)
    RULE_STRICT_DEVICES = 4     # a device instance that is unknown or unhealthy is refused (DEVICE_UNAVAILABLE)
    RULE_CHECK_DEVICES = 8      # steps 9 and 10: devices and host volumes

cdef enum:
    SLOW = -1                   # verdict: irregular, ask the reference

ctypedef struct Supply:
    # What single claims are checked against. Immutable, at a stable address, shared by all nodes that have equal ones.
    const uint64_t* cores       # usable core set as claims, ascending
    const uint64_t* devices     # healthy known instances as claims, ascending
    const uint64_t* reserved    # reserved ports: pairs (first claim, last claim), flags 0, ascending, disjoint
    const uint64_t* networks    # addresses by alias, in node order: alias number << 32 | address number
    uint32_t cores_count
    uint32_t devices_count
    uint32_t reserved_count     # pairs
    uint32_t networks_count
    uint32_t reserved_ports     # ports in all pairs together
    uint32_t dynamic_low        # range of dynamic ports, both ends included
    uint32_t dynamic_high
    int64_t core_mhz            # speed of each usable core; 0 if they differ
    uint32_t flags              # SUPPLY_*

ctypedef struct NodeRow:
    # Exactly 128 bytes. The first cache line is all that a check of the physical sums reads, unless a claim needs the supply.
    # What is left: supply after reservations (plan-apply 2.5) minus the sum of all allocations whose client is not terminal. MHz and MiB.
    int64_t free_cpu_mhz
    int64_t free_memory_mib
    int64_t free_disk_mib
    int64_t max_allocs          # 0: no limit
    const Supply* supply        # never NULL
    int32_t alloc_count         # including those that are told to stop
    uint32_t flags              # ROW_*
    uint32_t irregular          # 0: regular. Otherwise how many facts make it irregular
    uint32_t claims_offset      # from the start of the row itself, in uint64
    uint32_t claims_count
    uint32_t claims_capacity
    # Second line. Supply; used = supply - free.
    int64_t cpu_mhz
    int64_t memory_mib
    int64_t disk_mib
    # The part of what is used that is told to stop: desired = used - stopping.
    int64_t stopping_cpu_mhz
    int64_t stopping_memory_mib
    int64_t stopping_disk_mib
    int64_t used_memory_max_mib  # reported, never checked
    int32_t stopping_count
    uint32_t generation         # of the row: grows when the row is given to another node

ctypedef struct Ask:
    # The sum of one or more allocations. 64 bytes.
    int64_t cpu_mhz
    int64_t memory_mib
    int64_t memory_max_mib
    int64_t disk_mib
    const uint64_t* claims      # no key twice (else irregular), volumes held several times in a release apart
    int32_t count               # entries of the list, client-terminal ones included (plan-apply 2.2 step 1)
    uint32_t flags              # ASK_*
    uint32_t claims_count
    uint32_t spare
    uint64_t spare2

cdef int64_t LIMIT              # 2**47 - 1


cdef class AskNumbers:
    """An Ask for Python hands, with the memory of its claims. Immutable."""
    cdef Ask ask
    cdef bytes _claims


# The verdict on one node: 0 (fits), an `errors.Reason` number, or SLOW. It looks at resources only; the ROW_STATUS flags are the caller's business.
#
# `release`: what leaves the node first (stops, preemptions, allocations replaced in place); it may name only allocations that the chosen view
# counts. `prior`: what joins it first (accepted or in flight), which fits there. Either may be NULL. Their claims must ascend;
# those of `ask` may have any order.
# With ROW_FILTERED the claims of the row must lie behind their filter as described below; a row built by hand leaves the flag out.
cdef int32_t check_row(const NodeRow* row, const Ask* ask, const Ask* release, const Ask* prior, uint32_t rules) noexcept nogil

# The second of two steps, for whoever checks many rows and wants its memory to be there: *possible* comes from `possible_claims` below.
cdef int32_t check_possible(
    const NodeRow* row, const Ask* ask, uint64_t possible, const Ask* release, const Ask* prior, uint32_t rules
) noexcept nogil

# First position whose key is not below `key` (a claim without flags, shifted right by CLAIM_FLAG_BITS).
cdef uint32_t lower_bound(const uint64_t* claims, uint32_t count, uint64_t key) noexcept nogil

# Whether a port claim lies in a reserved range of the node.
cdef bint is_reserved(const Supply* supply, uint64_t claim) noexcept nogil

# Whether an ascending list without flags holds the claim.
cdef bint is_member(const uint64_t* claims, uint32_t count, uint64_t claim) noexcept nogil


cdef inline const uint64_t* claims_of(const NodeRow* row) noexcept nogil:
    """Where the claims of a row are."""
    return <const uint64_t*> row + row.claims_offset


# The filter answers "surely not held" without touching the claims. It lies directly before the claims: a line of 64 bytes for every 32 claims of
# capacity, or part of 32. A claim sets up to four bits of one line. Fewer than one answer in 500 is "perhaps" in vain, at any number of claims.
cdef inline uint64_t filter_hash(uint64_t key) noexcept nogil:
    """Mix a key into the numbers of four bits of a line."""
    cdef uint64_t mixed = key * <uint64_t> 0x9E3779B97F4A7C15
    return mixed ^ (mixed >> 29)


cdef inline uint32_t filter_lines(uint32_t capacity) noexcept nogil:
    """Length of the filter in lines of 8 words."""
    return (capacity + 31) >> 5


cdef inline int64_t filter_line(uint64_t key, uint32_t capacity) noexcept nogil:
    """First word of a key's line, relative to the claims (negative). Eight neighbouring values share one. The capacity is not 0."""
    cdef uint64_t lines = filter_lines(capacity)
    return (<int64_t> (((((key >> 3) * <uint64_t> 0xD6E8FEB86659FD93) >> 32) * lines) >> 32) - <int64_t> lines) << 3


cdef inline bint filter_has(const uint64_t* claims, uint32_t capacity, uint64_t key) noexcept nogil:
    """Whether the filter before *claims* has the bits of *key*."""
    cdef uint64_t mixed = filter_hash(key)
    cdef const uint64_t* line = claims + filter_line(key, capacity)
    return (
        (line[(mixed >> 6) & 7] >> (mixed & 63))
        & (line[(mixed >> 15) & 7] >> ((mixed >> 9) & 63))
        & (line[(mixed >> 24) & 7] >> ((mixed >> 18) & 63))
        & (line[(mixed >> 33) & 7] >> ((mixed >> 27) & 63))
        & 1
    )


cdef inline void filter_add(uint64_t* claims, uint32_t capacity, uint64_t key) noexcept nogil:
    """Set the bits of *key* in the filter before *claims*."""
    cdef uint64_t mixed = filter_hash(key)
    cdef uint64_t* line = claims + filter_line(key, capacity)
    line[(mixed >> 6) & 7] |= <uint64_t> 1 << (mixed & 63)
    line[(mixed >> 15) & 7] |= <uint64_t> 1 << ((mixed >> 9) & 63)
    line[(mixed >> 24) & 7] |= <uint64_t> 1 << ((mixed >> 18) & 63)
    line[(mixed >> 33) & 7] |= <uint64_t> 1 << ((mixed >> 27) & 63)


cdef inline uint64_t possible_claims(const NodeRow* row, const Ask* ask) noexcept nogil:
    """Bits of the claims of the ask that the row's filter does not rule out; the last bit stands for all from the 64th on."""
    cdef uint64_t possible = 0
    cdef uint32_t i
    if not row.flags & ROW_FILTERED:
        return ~possible
    for i in range(ask.claims_count):
        possible |= <uint64_t> filter_has(claims_of(row), row.claims_capacity, ask.claims[i] >> CLAIM_FLAG_BITS) << (i if i < 63 else 63)
    return possible
