"""Versioned memory blocks: what lets a snapshot cost O(1) and a write cost only what it touches.

A `Domain` counts epochs. A `Pin` is a live snapshot of everything in its domain: it fixes an epoch. A `Block` is a piece of memory that remembers the
epoch it was born in. `BlockArray` is a growing array of blocks behind a two-level directory whose pages are blocks too.

Rules for whoever uses it:

* All calls but `get` need the interpreter lock. `get` may run without it on a view, or on a writable array while nobody writes.
* A pointer from `writable` or `append` is good until the next call of `writable`, `append` or `pin`: fetch, write, forget.
* Blocks are aligned to 64 bytes and so are their payloads; fresh memory is zero.
"""

from libc.stdint cimport uint64_t


cdef struct Block:
    uint64_t domain         # number of the domain that owns it
    uint64_t birth          # epoch of its first write
    uint64_t payload_bytes  # room behind the header
    uint64_t padding[5]     # the payload starts on a cache line of its own


cdef inline char* payload(Block* block) noexcept nogil:
    """Return where the contents of *block* start."""
    return <char*> block + sizeof(Block)


cdef class Pin:
    cdef readonly uint64_t epoch
    cdef readonly Domain domain
    cdef void* older    # borrowed: live pins are a list, each unlinks itself
    cdef void* newer
    cdef Block** held   # retired blocks that this pin can see, and no newer one
    cdef size_t held_count
    cdef size_t held_room
    cdef int hold(self, Block* block) except -1


cdef class Domain:
    cdef readonly uint64_t number
    cdef readonly uint64_t epoch
    cdef uint64_t newest_pin    # epoch of the newest live pin, 0 without one
    cdef void* newest           # that pin, borrowed
    cdef Block* allocate(self, size_t payload_bytes) except NULL
    cdef Block* writable(self, Block* block, size_t payload_bytes) except NULL
    cdef int retire(self, Block* block) except -1
    cpdef Pin pin(self)


cdef enum:
    PAGE_SHIFT = 7
    PAGE_SLOTS = 128


cdef class BlockArray:
    cdef readonly Domain domain
    cdef readonly Py_ssize_t length     # number of blocks
    cdef bint read_only
    cdef object base                    # what keeps shared blocks alive: the pin of a view, the view below a fork
    cdef Block* root

    cdef inline Block* get(self, Py_ssize_t i) noexcept nogil:
        """Return block *i* for reading; *i* must be below `length`."""
        cdef Block* page = (<Block**> payload(self.root))[i >> PAGE_SHIFT]
        return (<Block**> payload(page))[i & (PAGE_SLOTS - 1)]

    cdef Block* writable(self, Py_ssize_t i, size_t payload_bytes) except NULL
    cdef Py_ssize_t append(self, size_t payload_bytes) except -1
    cpdef BlockArray view(self, Pin pin)
    cpdef BlockArray fork(self)
