"""Ids as 16-byte keys, and the index from key to row.

The index does not own keys: it reads them where the table keeps them, in chunks that never move (`KeyColumn`).
It is shared by all snapshots of a table: whoever looks up filters the row by what the snapshot may see.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef struct KeyColumn:
    char** chunks       # may be moved when the table grows; the chunks themselves never move
    uint32_t shift      # rows per chunk, as a power of two
    size_t stride       # bytes from one row to the next
    size_t offset       # of the key inside the row


cdef inline const uint8_t* key_at(const KeyColumn* keys, uint32_t row) noexcept nogil:
    """Return the 16 bytes of the key of *row*."""
    return <const uint8_t*> keys.chunks[row >> keys.shift] + (row & ((<uint32_t> 1 << keys.shift) - 1)) * keys.stride + keys.offset


cdef struct Slot:
    uint32_t mark       # upper half of the key's hash
    uint32_t row_plus_1  # 0: empty


cdef uint64_t hash_key(const uint8_t* key) noexcept nogil

cdef class IdIndex:
    cdef KeyColumn* keys            # borrowed from the table
    cdef object owner
    cdef Slot* slots
    cdef uint64_t mask
    cdef readonly Py_ssize_t count
    cdef int bind(self, object owner, KeyColumn* keys) except -1
    cdef void prefetch(self, const uint8_t* key) noexcept nogil
    cdef int64_t find(self, const uint8_t* key) noexcept nogil
    cdef int64_t insert(self, const uint8_t* key, uint32_t row) except -2
    cdef int reserve(self, Py_ssize_t more) except -1

cdef str format_key(const uint8_t* key)
cdef int parse_key(str text, uint8_t* key) except -1

# The text of an id that is no canonical UUID, None for every other key: what has to travel beside a key that leaves the process.
cdef object odd_text(const uint8_t* key)
