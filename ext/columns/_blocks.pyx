"""Versioned memory blocks; the contract stands in `_blocks.pxd`, the idea in docs/architecture.md."""

cimport cython
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

cdef extern from "<stdlib.h>" nogil:
    void* aligned_alloc(size_t alignment, size_t size)

cdef extern from "fastplan_pages.h" nogil:
    void fastplan_large_page_at(const void* address)

cdef extern from *:
    """
    #define FASTPLAN_PREFETCH(address) __builtin_prefetch((address), 1, 3)
    """
    void FASTPLAN_PREFETCH(const void* address) noexcept nogil

cdef enum:
    LINE = 64               # cache line and alignment
    CLASS_COUNT = 512       # freed blocks below 32 KiB are kept by size in lines
    LINES_AHEAD = 12        # of the block that will be handed out after the next one
    KEPT_BYTES_MAX = 8 << 20

# Freed blocks, one pile per size: a write per snapshot frees and wants the same few sizes over and over.
# A pile is an array, not a chain through the blocks: taking one must not wait for its memory.
# When they hold too much, the ones go that nobody has taken from lately: sizes that a growing table has left behind.
cdef struct Pile:
    void** blocks
    size_t count
    size_t room
    bint wanted             # taken from since the hand came by

cdef Pile kept[CLASS_COUNT]
cdef size_t kept_bytes = 0
cdef size_t hand = 0
cdef uint64_t used_bytes = 0
cdef uint64_t used_blocks = 0
cdef uint64_t domain_count = 0


def memory_used():
    """Return (blocks, bytes) that are in use in this process, without freed blocks kept for reuse."""
    return used_blocks, used_bytes


cdef inline size_t lines_of(size_t payload_bytes) noexcept nogil:
    """Return how many lines a block takes: sizes go up in steps of an eighth, so that what is freed fits what is asked for next."""
    cdef size_t lines = (sizeof(Block) + payload_bytes + LINE - 1) // LINE
    cdef size_t step = 1
    while lines > 8 * step:
        step *= 2
    return (lines + step - 1) & ~(step - 1)


cdef void drop_piles() noexcept:
    """Free piles that are not wanted until what is left is little enough."""
    global kept_bytes, hand
    cdef Pile* pile
    while kept_bytes > KEPT_BYTES_MAX:
        hand = (hand + 1) % CLASS_COUNT
        pile = &kept[hand]
        if pile.wanted:
            pile.wanted = False
            continue
        while pile.count:
            pile.count -= 1
            free(pile.blocks[pile.count])
            kept_bytes -= hand * LINE


cdef void release_block(Block* block) noexcept:
    global kept_bytes, used_bytes, used_blocks
    cdef size_t lines = lines_of(block.payload_bytes)
    cdef Pile* pile
    cdef void** grown
    used_blocks -= 1
    used_bytes -= lines * LINE
    if lines >= CLASS_COUNT:
        free(block)
        return
    pile = &kept[lines]
    if pile.count == pile.room:
        grown = <void**> realloc(pile.blocks, (pile.room * 2 + 16) * sizeof(void*))
        if grown == NULL:
            free(block)
            return
        pile.blocks = grown
        pile.room = pile.room * 2 + 16
    pile.blocks[pile.count] = block
    pile.count += 1
    kept_bytes += lines * LINE
    if kept_bytes > KEPT_BYTES_MAX:
        drop_piles()


cdef Block* acquire_block(size_t payload_bytes) except NULL:
    """Return a block whose header is not set; its contents are whatever was there."""
    global kept_bytes, used_bytes, used_blocks
    cdef size_t lines = lines_of(payload_bytes)
    cdef Block* block
    cdef Pile* pile
    cdef const char* next_block
    cdef size_t i
    if lines < CLASS_COUNT and kept[lines].count:
        pile = &kept[lines]
        pile.wanted = True
        pile.count -= 1
        block = <Block*> pile.blocks[pile.count]
        kept_bytes -= lines * LINE
        if pile.count >= 2:
            next_block = <const char*> pile.blocks[pile.count - 2]
            for i in range(min(lines, LINES_AHEAD)):
                FASTPLAN_PREFETCH(next_block + i * LINE)
    else:
        block = <Block*> aligned_alloc(LINE, lines * LINE)
        if block == NULL:
            raise MemoryError(f"no memory for a block of {lines * LINE} bytes")
        fastplan_large_page_at(block)
    block.payload_bytes = lines * LINE - sizeof(Block)
    used_blocks += 1
    used_bytes += lines * LINE
    return block


@cython.no_gc_clear
cdef class Pin:
    """A live snapshot of a domain: blocks that it can see stay until it is gone. Made by `Domain.pin`."""

    def __dealloc__(self):
        cdef Pin older
        cdef Pin newer
        cdef size_t i
        if self.domain is None:
            return
        if self.newer != NULL:
            newer = <Pin> self.newer
            newer.older = self.older
        else:
            self.domain.newest = self.older
            self.domain.newest_pin = (<Pin> self.older).epoch if self.older != NULL else 0
        if self.older != NULL:
            older = <Pin> self.older
            older.newer = self.newer
        for i in range(self.held_count):
            # What this pin held, the next older one needs exactly if it was there already.
            if self.older != NULL and (<Pin> self.older).epoch >= self.held[i].birth:
                older.hold(self.held[i])
            else:
                release_block(self.held[i])
        free(self.held)

    cdef int hold(self, Block* block) except -1:
        cdef Block** grown
        if self.held_count == self.held_room:
            grown = <Block**> realloc(self.held, (self.held_room * 2 + 16) * sizeof(Block*))
            if grown == NULL:
                raise MemoryError("no memory for the list of a snapshot's blocks")
            self.held = grown
            self.held_room = self.held_room * 2 + 16
        self.held[self.held_count] = block
        self.held_count += 1
        return 0


cdef class Domain:
    """Counts epochs for a set of blocks that are pinned together."""

    def __cinit__(self):
        global domain_count
        domain_count += 1
        self.number = domain_count
        self.epoch = 1

    cdef Block* allocate(self, size_t payload_bytes) except NULL:
        """Return a new block of this domain, zeroed."""
        cdef Block* block = acquire_block(payload_bytes)
        block.domain = self.number
        block.birth = self.epoch
        memset(payload(block), 0, block.payload_bytes)
        return block

    cdef Block* writable(self, Block* block, size_t payload_bytes) except NULL:
        """Return *block* if only the present can see it and it has room, else a copy; the old one is retired."""
        cdef Block* copy
        cdef size_t kept_payload
        if block.domain == self.number and block.birth > self.newest_pin and block.payload_bytes >= payload_bytes:
            return block
        copy = acquire_block(payload_bytes if payload_bytes > block.payload_bytes else block.payload_bytes)
        copy.domain = self.number
        copy.birth = self.epoch
        kept_payload = block.payload_bytes
        memcpy(payload(copy), payload(block), kept_payload)
        if copy.payload_bytes > kept_payload:
            memset(payload(copy) + kept_payload, 0, copy.payload_bytes - kept_payload)
        self.retire(block)
        return copy

    cdef int retire(self, Block* block) except -1:
        """Let go of *block*: it goes with the last pin that can see it. Blocks of other domains are left alone."""
        if block.domain != self.number:
            return 0
        if self.newest != NULL and self.newest_pin >= block.birth:
            return (<Pin> self.newest).hold(block)
        release_block(block)
        return 0

    cpdef Pin pin(self):
        """Fix the present: what is written from now on, the pin does not see."""
        cdef Pin pin = Pin.__new__(Pin)
        pin.domain = self
        pin.epoch = self.epoch
        pin.older = self.newest
        if self.newest != NULL:
            (<Pin> self.newest).newer = <void*> pin
        self.newest = <void*> pin
        self.newest_pin = pin.epoch
        self.epoch += 1
        return pin


@cython.no_gc_clear
cdef class BlockArray:
    """A growing array of blocks: writable at first; `view` gives a frozen one, `fork` a writable one on top of a view."""

    def __cinit__(self, Domain domain not None):
        self.domain = domain

    def __init__(self, Domain domain not None):
        if self.root == NULL:
            self.root = domain.allocate(16 * sizeof(Block*))

    def __dealloc__(self):
        cdef Py_ssize_t i, page_number
        cdef Block* page
        if self.read_only or self.root == NULL:
            return
        for page_number in range((self.length + PAGE_SLOTS - 1) >> PAGE_SHIFT):
            page = (<Block**> payload(self.root))[page_number]
            if page.domain != self.domain.number:
                continue
            for i in range(PAGE_SLOTS):
                if (<Block**> payload(page))[i] != NULL:
                    self.domain.retire((<Block**> payload(page))[i])
            self.domain.retire(page)
        self.domain.retire(self.root)

    cdef Block* writable(self, Py_ssize_t i, size_t payload_bytes) except NULL:
        """Return block *i* for writing, with room for at least *payload_bytes* (0: as it is)."""
        cdef Block* page
        cdef Block* block = self.get(i)
        if block.domain == self.domain.number and block.birth > self.domain.newest_pin and block.payload_bytes >= payload_bytes:
            return block
        if self.read_only:
            raise TypeError("a view of a block array cannot be written")
        self.root = self.domain.writable(self.root, 0)
        page = self.domain.writable((<Block**> payload(self.root))[i >> PAGE_SHIFT], 0)
        (<Block**> payload(self.root))[i >> PAGE_SHIFT] = page
        block = self.domain.writable(block, payload_bytes)
        (<Block**> payload(page))[i & (PAGE_SLOTS - 1)] = block
        return block

    cdef Py_ssize_t append(self, size_t payload_bytes) except -1:
        """Add a zeroed block and return its number."""
        cdef Py_ssize_t number = self.length
        cdef Py_ssize_t page_number = number >> PAGE_SHIFT
        cdef size_t root_bytes = (page_number + 1) * sizeof(Block*)
        cdef Block* page
        if self.read_only:
            raise TypeError("a view of a block array cannot be written")
        # A root that is full doubles, so that growing stays cheap.
        self.root = self.domain.writable(self.root, root_bytes * 2 if self.root.payload_bytes < root_bytes else 0)
        if number & (PAGE_SLOTS - 1) == 0:
            page = self.domain.allocate(PAGE_SLOTS * sizeof(Block*))
        else:
            page = self.domain.writable((<Block**> payload(self.root))[page_number], 0)
        (<Block**> payload(self.root))[page_number] = page
        (<Block**> payload(page))[number & (PAGE_SLOTS - 1)] = self.domain.allocate(payload_bytes)
        self.length = number + 1
        return number

    cpdef BlockArray view(self, Pin pin):
        """Return the array as it is now, frozen. *pin* must just have been taken from its domain."""
        cdef bint written_since = self.root.domain == self.domain.number and self.root.birth > pin.epoch
        if pin.domain is not self.domain or pin.epoch != self.domain.newest_pin or written_since:
            raise ValueError("a view needs the newest pin of the array's own domain, taken after the last write")
        cdef BlockArray view = BlockArray.__new__(BlockArray, self.domain)
        view.root = self.root
        view.length = self.length
        view.read_only = True
        view.base = (pin, self.base)
        return view

    cpdef BlockArray fork(self):
        """Return a writable array that starts with the contents of this view and shares its blocks until it writes them."""
        if not self.read_only:
            raise TypeError("only a view can be forked: take a pin and a view first")
        cdef BlockArray fork = BlockArray.__new__(BlockArray, Domain())
        fork.root = self.root
        fork.length = self.length
        fork.base = self
        return fork

    # The four below let Python tests drive the array; compiled users call the C methods above.

    def __len__(self):
        return self.length

    def append_bytes(self, bytes content not None):
        """Append a block that starts with *content* and return its number."""
        cdef Py_ssize_t number = self.append(len(content))
        memcpy(payload(self.get(number)), <char*> content, len(content))
        return number

    def write_bytes(self, Py_ssize_t i, Py_ssize_t offset, bytes content not None):
        """Overwrite part of block *i*, growing it if needed. Raises IndexError beyond the end."""
        if not 0 <= i < self.length or offset < 0:
            raise IndexError(f"block {i}, offset {offset}: outside of the array")
        memcpy(payload(self.writable(i, offset + len(content))) + offset, <char*> content, len(content))

    def read_bytes(self, Py_ssize_t i, Py_ssize_t size):
        """Return the first *size* bytes of block *i*. Raises IndexError beyond the end."""
        if not 0 <= i < self.length or not 0 <= size <= <Py_ssize_t> self.get(i).payload_bytes:
            raise IndexError(f"block {i}, {size} bytes: outside of the array")
        return payload(self.get(i))[:size]
