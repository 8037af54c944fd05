"""The compiled fit check of one node. The contract is in `_kernels.pxd`."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from *:
    """
    #define FASTPLAN_FIRST_BIT(bits) __builtin_ctz(bits)
    """
    int FASTPLAN_FIRST_BIT(uint32_t bits) noexcept nogil

LIMIT = (<int64_t>1 << 47) - 1

# One bit per failing step in the order of plan-apply.md 2.2: the lowest one decides.
cdef enum:
    FAIL_MAX_ALLOCS = 1
    FAIL_CORE_OVERLAP = 2
    FAIL_CPU = 4
    FAIL_CORE_SET = 8
    FAIL_MEMORY = 16
    FAIL_DISK = 32
    FAIL_NODE_PORTS = 64
    FAIL_PORTS = 128
    FAIL_DEVICES = 256
    FAIL_DEVICE_UNAVAILABLE = 512
    FAIL_VOLUMES = 1024

# Reason numbers of `errors.Reason` by position of the bit; a test compares them.
cdef int32_t[11] REASONS
REASONS[:] = [1, 2, 3, 2, 4, 5, 6, 7, 8, 16, 9]


cdef uint32_t lower_bound(const uint64_t* claims, uint32_t count, uint64_t key) noexcept nogil:
    cdef uint32_t base = 0
    cdef uint32_t half
    while count > 0:
        half = count >> 1
        # Without a branch: the outcome of a comparison in a random list cannot be predicted.
        base += (count - half) * <uint32_t>((claims[base + half] >> CLAIM_FLAG_BITS) < key)
        count = half
    return base


cdef bint is_member(const uint64_t* claims, uint32_t count, uint64_t claim) noexcept nogil:
    cdef uint64_t key = claim >> CLAIM_FLAG_BITS
    cdef uint32_t position = lower_bound(claims, count, key)
    return position < count and claims[position] >> CLAIM_FLAG_BITS == key


cdef bint is_reserved(const Supply* supply, uint64_t claim) noexcept nogil:
    cdef uint64_t plain = claim & ~<uint64_t>15
    cdef uint32_t low = 0
    cdef uint32_t high = supply.reserved_count
    cdef uint32_t middle
    while low < high:
        middle = (low + high) >> 1
        if supply.reserved[2 * middle + 1] < plain:
            low = middle + 1
        else:
            high = middle
    return low < supply.reserved_count and supply.reserved[2 * low] <= plain


cdef bint is_held(const uint64_t* claims, uint32_t count, uint64_t claim, const Ask* release, bint physical) noexcept nogil:
    """Whether a list holds something that the claim collides with, apart from what is released."""
    cdef uint64_t key = claim >> CLAIM_FLAG_BITS
    cdef bint volume = claim >> KIND_SHIFT == KIND_VOLUME
    cdef uint32_t position = lower_bound(claims, count, key)
    cdef uint32_t released
    cdef uint64_t other
    cdef uint32_t held = 0
    cdef uint32_t held_exclusively = 0
    while position < count and claims[position] >> CLAIM_FLAG_BITS == key:
        other = claims[position]
        position += 1
        if not physical and other & CLAIM_STOPPING:
            continue
        held += 1
        if other & CLAIM_EXCLUSIVE:
            held_exclusively += 1
    if held and release != NULL and release.claims_count:
        # A volume may be released by several of its holders at once.
        released = lower_bound(release.claims, release.claims_count, key)
        while released < release.claims_count and release.claims[released] >> CLAIM_FLAG_BITS == key:
            held -= 1
            if release.claims[released] & CLAIM_EXCLUSIVE:
                held_exclusively -= 1
            released += 1
    if not held:
        return False
    return not volume or claim & CLAIM_EXCLUSIVE != 0 or held_exclusively != 0


cdef uint32_t check_claims(const NodeRow* row, const Ask* ask, uint64_t possible_bits, const Ask* release, const Ask* prior, uint32_t rules) noexcept nogil:
    """Bits of the steps that single claims fail."""
    cdef const uint64_t* node_claims = claims_of(row)
    cdef const Supply* supply = row.supply
    cdef uint32_t failed = 0
    cdef uint32_t index
    cdef uint64_t claim
    cdef uint64_t kind
    cdef bint physical = rules & RULE_PHYSICAL != 0
    cdef bint reserved = row.flags & ROW_HAS_RESERVED != 0
    cdef bint reserved_filtered = row.flags & (ROW_FILTERED | ROW_RESERVED_FILTERED) == ROW_FILTERED | ROW_RESERVED_FILTERED
    cdef bint possible
    for index in range(ask.claims_count):
        claim = ask.claims[index]
        kind = claim >> KIND_SHIFT
        possible = (possible_bits >> (index if index < 63 else 63)) & 1
        if kind == KIND_PORT:
            if claim & CLAIM_IGNORES:
                continue
            if possible and is_held(node_claims, row.claims_count, claim, release, physical):
                failed |= FAIL_PORTS
            elif reserved and (possible or not reserved_filtered) and is_reserved(supply, claim):
                failed |= FAIL_PORTS
            elif prior != NULL and prior.claims_count and is_held(prior.claims, prior.claims_count, claim, NULL, True):
                failed |= FAIL_PORTS
            continue
        if possible and is_held(node_claims, row.claims_count, claim, release, physical):
            failed |= FAIL_CORE_OVERLAP if kind == KIND_CORE else FAIL_DEVICES if kind == KIND_DEVICE else FAIL_VOLUMES
        elif prior != NULL and prior.claims_count and is_held(prior.claims, prior.claims_count, claim, NULL, True):
            # An unknown instance is never counted (plan-apply 2.7), so two allocations may name it.
            if kind != KIND_DEVICE or is_member(supply.devices, supply.devices_count, claim):
                failed |= FAIL_CORE_OVERLAP if kind == KIND_CORE else FAIL_DEVICES if kind == KIND_DEVICE else FAIL_VOLUMES
        if kind == KIND_CORE:
            if row.flags & ROW_HAS_CORES:
                if not is_member(supply.cores, supply.cores_count, claim):
                    failed |= FAIL_CORE_SET
            elif rules & RULE_STRICT_CORES:
                failed |= FAIL_CORE_SET
        elif kind == KIND_DEVICE and rules & RULE_STRICT_DEVICES and not is_member(supply.devices, supply.devices_count, claim):
            failed |= FAIL_DEVICE_UNAVAILABLE
    if not rules & RULE_CHECK_DEVICES:
        failed &= ~<uint32_t>(FAIL_DEVICES | FAIL_DEVICE_UNAVAILABLE | FAIL_VOLUMES)
    return failed


cdef int32_t check_row(const NodeRow* row, const Ask* ask, const Ask* release, const Ask* prior, uint32_t rules) noexcept nogil:
    return check_possible(row, ask, possible_claims(row, ask) if ask.claims_count else 0, release, prior, rules)


cdef int32_t check_possible(
    const NodeRow* row, const Ask* ask, uint64_t possible, const Ask* release, const Ask* prior, uint32_t rules
) noexcept nogil:
    cdef int64_t cpu_mhz = row.free_cpu_mhz - ask.cpu_mhz
    cdef int64_t memory_mib = row.free_memory_mib - ask.memory_mib
    cdef int64_t disk_mib = row.free_disk_mib - ask.disk_mib
    cdef int64_t count = <int64_t>row.alloc_count + ask.count
    cdef uint32_t irregular = row.irregular | (ask.flags & ASK_IRREGULAR)
    cdef uint32_t failed
    if not rules & RULE_PHYSICAL:
        cpu_mhz += row.stopping_cpu_mhz
        memory_mib += row.stopping_memory_mib
        disk_mib += row.stopping_disk_mib
        count -= row.stopping_count
    if release != NULL:
        cpu_mhz += release.cpu_mhz
        memory_mib += release.memory_mib
        disk_mib += release.disk_mib
        count -= release.count
        irregular |= release.flags & ASK_IRREGULAR
    if prior != NULL:
        cpu_mhz -= prior.cpu_mhz
        memory_mib -= prior.memory_mib
        disk_mib -= prior.disk_mib
        count += prior.count
        irregular |= prior.flags & ASK_IRREGULAR
    if irregular:
        return SLOW
    # Without branches: where half of the rows fail, nothing about them can be predicted.
    failed = (
        FAIL_MAX_ALLOCS * <uint32_t>((row.max_allocs != 0) & (row.max_allocs < count))
        | FAIL_CPU * <uint32_t>(cpu_mhz < 0)
        | FAIL_MEMORY * <uint32_t>(memory_mib < 0)
        | FAIL_DISK * <uint32_t>(disk_mib < 0)
        | FAIL_NODE_PORTS * <uint32_t>((row.flags & ROW_PORTS_UNUSABLE) != 0)
    )
    if ask.claims_count:
        failed |= check_claims(row, ask, possible, release, prior, rules)
    return REASONS[FASTPLAN_FIRST_BIT(failed)] if failed else 0


cdef class AskNumbers:
    """What one or more allocations ask of a node: MHz, MiB and *claims*, native uint64 as bytes, no key twice.

    *count* is the number of list entries that they are (plan-apply 2.2 step 1). An *irregular* one has no amounts; only the reference decides on it.
    Raises ValueError for an amount beyond 2**47 - 1 or claims that are not whole.
    """

    def __init__(
        self, int64_t cpu_mhz=0, int64_t memory_mib=0, int64_t memory_max_mib=0, int64_t disk_mib=0, bytes claims=b"", bint irregular=False, *, int32_t count=1
    ):
        cdef uint32_t i
        for amount in (cpu_mhz, memory_mib, memory_max_mib, disk_mib):
            if not -LIMIT <= amount <= LIMIT:
                raise ValueError(f"an amount of {amount} is beyond 2**47 - 1")
        if len(claims) % 8:
            raise ValueError(f"{len(claims)} bytes are no whole number of claims")
        self._claims = claims
        self.ask.cpu_mhz = cpu_mhz
        self.ask.memory_mib = memory_mib
        self.ask.memory_max_mib = memory_max_mib
        self.ask.disk_mib = disk_mib
        # The contents of a bytes object never move and are aligned to 8 bytes.
        self.ask.claims = <const uint64_t*> <const char*> claims
        self.ask.claims_count = <uint32_t> (len(claims) // 8)
        self.ask.count = count
        self.ask.flags = ASK_IRREGULAR if irregular else 0
        for i in range(self.ask.claims_count):
            if self.ask.claims[i] & CLAIM_IGNORES and self.ask.claims[i] >> KIND_SHIFT == KIND_PORT:
                self.ask.flags |= ASK_IGNORES
            if self.ask.claims[i] >> KIND_SHIFT != KIND_PORT:
                self.ask.flags |= ASK_NEEDS_SUPPLY

    @property
    def irregular(self):
        """Whether only the reference can decide on it."""
        return self.ask.flags & ASK_IRREGULAR != 0


def layout() -> dict[str, int]:
    """Sizes of the C structs in bytes, for embedders and tests."""
    return {"NodeRow": sizeof(NodeRow), "Supply": sizeof(Supply), "Ask": sizeof(Ask)}


def constants() -> dict[str, int]:
    """The numbers of the header that Python modules repeat, so that a test can compare them."""
    return {
        "KIND_PORT": KIND_PORT, "KIND_CORE": KIND_CORE, "KIND_DEVICE": KIND_DEVICE, "KIND_VOLUME": KIND_VOLUME, "KIND_SHIFT": KIND_SHIFT,
        "SUBJECT_SHIFT": SUBJECT_SHIFT, "CLAIM_FLAG_BITS": CLAIM_FLAG_BITS, "CLAIM_IGNORES": CLAIM_IGNORES, "CLAIM_STOPPING": CLAIM_STOPPING,
        "CLAIM_EXCLUSIVE": CLAIM_EXCLUSIVE, "ROW_PRESENT": ROW_PRESENT, "ROW_READY": ROW_READY, "ROW_DOWN": ROW_DOWN,
        "ROW_DISCONNECTED": ROW_DISCONNECTED, "ROW_INELIGIBLE": ROW_INELIGIBLE, "RULE_PHYSICAL": RULE_PHYSICAL, "RULE_CHECK_DEVICES": RULE_CHECK_DEVICES,
        "SLOW": SLOW, "AMOUNT_LIMIT": LIMIT,
    }
