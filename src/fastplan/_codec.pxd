"""The bytes of a log entry, for the two modules that write and read them; `fastplan.codec` explains the format.

All numbers are little-endian. An entry is

    magic "fP" | version u8 | kind u8 | flags u8 | 3 bytes 0 | checksum u64 | length u32 | 4 bytes 0 | time i64 ns | body

The checksum covers everything else. The body of a plan is, in this order: the fixed part (`PlanHead`), the columns, the texts.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef enum:
    FORMAT_VERSION = 1
    HEADER_BYTES = 32
    CHECKSUM_AT = 8
    FLAG_COLD = 1               # the entry needs more than columns
    SUBJECT_MASK = 0xFFFFFFF
    VALUE_MASK = 0x3FFFFFFF
    VALUE_SHIFT = 4

# Kinds of entries.
cdef enum:
    ENTRY_PLAN = 1
    ENTRY_COMMAND = 2


cdef packed struct PlanHead:
    uint8_t eval_key[16]
    uint64_t verified_at        # committed index of the view that the plan was verified on
    uint64_t job_version
    uint32_t nodes              # with placements
    uint32_t placements
    uint32_t claims
    uint32_t stops
    uint32_t preemptions
    uint32_t groups
    uint32_t shapes
    uint32_t texts              # of claims
    uint32_t notes
    uint32_t odd_ids
    uint32_t answer_bytes
    uint32_t cold_bytes
    uint8_t has_eval
    uint8_t spare[3]


cdef inline uint64_t fold(uint64_t hash, uint64_t word) noexcept nogil:
    hash = (hash ^ word) * <uint64_t> 0x9E3779B97F4A7C15
    return hash ^ (hash >> 29)


cdef inline uint64_t fold_bytes(uint64_t hash, const char* data, size_t size) noexcept nogil:
    """Fold bytes, and how many there are, into a hash."""
    cdef uint64_t word
    cdef size_t at = 0
    hash = fold(hash, size)
    while at + 8 <= size:
        memcpy(&word, data + at, 8)
        hash = fold(hash, word)
        at += 8
    if at < size:
        word = 0
        memcpy(&word, data + at, size - at)
        hash = fold(hash, word)
    return hash


cdef inline uint64_t checksum(const char* entry, size_t size) noexcept nogil:
    """Sum over an entry, its own checksum left out. Every changed bit changes it; it is no protection against malice."""
    cdef uint64_t hash = <uint64_t> 0x2545F4914F6CDD1D ^ size
    cdef uint64_t word
    cdef size_t at = 0
    while at + 8 <= size:
        if at != CHECKSUM_AT:
            memcpy(&word, entry + at, 8)
            hash = fold(hash, word)
        at += 8
    if at < size:
        word = 0
        memcpy(&word, entry + at, size - at)
        hash = fold(hash, word)
    return hash
