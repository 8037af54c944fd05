"""Ids as 16-byte keys (docs/architecture.md, "Ids") and the index from key to row."""

from hashlib import blake2b

import numpy

cimport cython
from libc.stdint cimport int8_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

cdef extern from "Python.h":
    object PyUnicode_New(Py_ssize_t length, Py_UCS4 largest)
    void* PyUnicode_DATA(object text)
    int PyUnicode_KIND(object text)
    Py_ssize_t PyUnicode_GET_LENGTH(object text)
    int PyUnicode_1BYTE_KIND

cdef extern from "fastplan_pages.h" nogil:
    void fastplan_large_pages(void* array, size_t bytes)

cdef extern from *:
    """
    #define fastplan_prefetch(address) __builtin_prefetch((address), 0, 3)
    """
    void fastplan_prefetch(const void* address) nogil

# Ids that are not canonical UUIDs, by key. Append-only; key and text never disagree.
cdef dict odd_texts = {}

cdef char* HEX = b"0123456789abcdef"
cdef int8_t DIGIT[256]
cdef int8_t PLACE[16]       # where the two digits of each byte stand in the text


cdef void fill_tables() noexcept:
    cdef int i, place = 0
    for i in range(256):
        DIGIT[i] = -1
    for i in range(16):
        DIGIT[<unsigned char> HEX[i]] = i
        if i == 4 or i == 6 or i == 8 or i == 10:
            place += 1
        PLACE[i] = place
        place += 2


fill_tables()


cdef bint is_canonical(const uint8_t* text, uint8_t* key) noexcept nogil:
    """Fill *key* from 36 characters if they are a lower-case canonical UUID."""
    cdef int i
    cdef int8_t high, low
    if text[8] != c"-" or text[13] != c"-" or text[18] != c"-" or text[23] != c"-":
        return False
    for i in range(16):
        high = DIGIT[text[PLACE[i]]]
        low = DIGIT[text[PLACE[i] + 1]]
        if (high | low) < 0:
            return False
        key[i] = <uint8_t> (high << 4 | low)
    return True


cdef int parse_key(str text, uint8_t* key) except -1:
    """Write the key of an id text to *key*. An id that is no canonical UUID is remembered, so that `format_key` finds its text."""
    cdef bytes digest
    if PyUnicode_GET_LENGTH(text) == 36 and PyUnicode_KIND(text) == PyUnicode_1BYTE_KIND and is_canonical(<const uint8_t*> PyUnicode_DATA(text), key):
        return 0
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    odd_texts[digest] = text
    memcpy(key, <char*> digest, 16)
    return 0


cdef str format_key(const uint8_t* key):
    """Return the id text of a key."""
    cdef bytes raw
    cdef str text
    cdef char* place
    cdef int i
    if odd_texts:
        raw = key[:16]
        text = odd_texts.get(raw)
        if text is not None:
            return text
    text = PyUnicode_New(36, 127)
    place = <char*> PyUnicode_DATA(text)
    place[8] = place[13] = place[18] = place[23] = c"-"
    for i in range(16):
        place[PLACE[i]] = HEX[key[i] >> 4]
        place[PLACE[i] + 1] = HEX[key[i] & 15]
    return text


cdef object odd_text(const uint8_t* key):
    """Return the text of an id that is no canonical UUID, None for every other key."""
    return odd_texts.get(key[:16]) if odd_texts else None


def key_of(str text not None):
    """Return the 16-byte key of an id text."""
    cdef uint8_t key[16]
    parse_key(text, key)
    return (<const char*> key)[:16]


def text_of(key):
    """Return the id text of a 16-byte key (any buffer of bytes). Raises ValueError for another length."""
    cdef const uint8_t[::1] view = key
    if view.shape[0] != 16:
        raise ValueError(f"a key has 16 bytes, not {view.shape[0]}")
    return format_key(&view[0])


def keys_of(texts):
    """Return the keys of a sequence of id texts as uint8 array (n, 16)."""
    cdef Py_ssize_t i = 0
    keys = numpy.empty((len(texts), 16), numpy.uint8)
    cdef uint8_t[:, ::1] view = keys
    for text in texts:
        parse_key(text, &view[i, 0])
        i += 1
    return keys


def texts_of(const uint8_t[:, ::1] keys not None):
    """Return the id texts of a uint8 array (n, 16). Raises ValueError for another width."""
    if keys.shape[1] != 16:
        raise ValueError(f"a key has 16 bytes, not {keys.shape[1]}")
    return [format_key(&keys[i, 0]) for i in range(keys.shape[0])]


def odd_texts_of(const uint8_t[:, ::1] keys not None):
    """Return the texts of those ids in a uint8 array (n, 16) that are no canonical UUIDs: their keys do not tell them."""
    cdef list texts = []
    cdef Py_ssize_t i
    if odd_texts:
        for i in range(keys.shape[0]):
            text = odd_texts.get((<const char*> &keys[i, 0])[:16])
            if text is not None:
                texts.append(text)
    return texts


def new_keys(bytes randomness not None):
    """Return version 4 UUID keys, uint8 (n, 16), from 16 random bytes each (`os.urandom(16 * n)`). Raises ValueError for a ragged length."""
    if len(randomness) % 16:
        raise ValueError(f"a key takes 16 random bytes, {len(randomness)} is no multiple of that")
    keys = numpy.frombuffer(bytearray(randomness), numpy.uint8).reshape(-1, 16)
    keys[:, 6] = keys[:, 6] & 0x0F | 0x40
    keys[:, 8] = keys[:, 8] & 0x3F | 0x80
    return keys


cdef inline uint64_t mix(uint64_t x) noexcept nogil:
    x ^= x >> 32
    x *= <uint64_t> 0xD6E8FEB86659FD93
    x ^= x >> 32
    return x


cdef uint64_t hash_key(const uint8_t* key) noexcept nogil:
    """Return a 64-bit hash of 16 bytes; ids are often random already, but need not be."""
    cdef uint64_t words[2]
    memcpy(words, key, 16)
    return mix(words[0] * <uint64_t> 0x9E3779B97F4A7C15 ^ mix(words[1]))


@cython.no_gc_clear
cdef class IdIndex:
    """Open-addressing table from key to row: 8 bytes a slot, between 3/8 and 3/4 full.

    A slot holds half of the hash and the row; growing needs no look at the keys. Rows are never taken out: a row that died is filtered by whoever asks,
    and `insert` of a key that is there replaces the row and returns the old one.
    """

    def __dealloc__(self):
        free(self.slots)

    cdef int bind(self, object owner, KeyColumn* keys) except -1:
        """Say where the keys stand; *owner* is kept alive."""
        self.owner = owner
        self.keys = keys
        self.slots = <Slot*> calloc(64, sizeof(Slot))
        if self.slots == NULL:
            raise MemoryError("no memory for an id index")
        self.mask = 63
        return 0

    @property
    def bytes_used(self):
        """Bytes of the table."""
        return (self.mask + 1) * sizeof(Slot)

    cdef void prefetch(self, const uint8_t* key) noexcept nogil:
        """Bring the slot of *key* closer."""
        fastplan_prefetch(&self.slots[(hash_key(key) >> 32) & self.mask])

    cdef int64_t find(self, const uint8_t* key) noexcept nogil:
        """Return the newest row of *key*, or -1."""
        cdef uint32_t mark = <uint32_t> (hash_key(key) >> 32)
        cdef uint64_t place = mark & self.mask
        cdef uint32_t row
        while self.slots[place].row_plus_1 != 0:
            if self.slots[place].mark == mark:
                row = self.slots[place].row_plus_1 - 1
                if memcmp(key_at(self.keys, row), key, 16) == 0:
                    return row
            place = (place + 1) & self.mask
        return -1

    cdef int64_t insert(self, const uint8_t* key, uint32_t row) except -2:
        """Map *key* to *row*; return the row that it replaces, or -1. The key must already stand in its column."""
        cdef uint32_t mark = <uint32_t> (hash_key(key) >> 32)
        cdef uint64_t place
        cdef uint32_t old
        if <uint64_t> self.count * 4 >= (self.mask + 1) * 3:
            self.reserve(1)
        place = mark & self.mask
        while self.slots[place].row_plus_1 != 0:
            if self.slots[place].mark == mark:
                old = self.slots[place].row_plus_1 - 1
                if memcmp(key_at(self.keys, old), key, 16) == 0:
                    self.slots[place].row_plus_1 = row + 1
                    return old
            place = (place + 1) & self.mask
        self.slots[place].mark = mark
        self.slots[place].row_plus_1 = row + 1
        self.count += 1
        return -1

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Make room for *more* keys, so that the inserts that follow do not grow the table."""
        cdef uint64_t size = self.mask + 1
        cdef uint64_t place, i
        cdef Slot* grown
        while <uint64_t> (self.count + more) * 4 >= size * 3:
            size *= 2
        if size == self.mask + 1:
            return 0
        if size > <uint64_t> 1 << 32:
            raise MemoryError("an id index holds at most 3 * 2**30 keys")
        grown = <Slot*> calloc(size, sizeof(Slot))
        if grown == NULL:
            raise MemoryError(f"no memory for an id index of {size} slots")
        fastplan_large_pages(grown, size * sizeof(Slot))
        for i in range(self.mask + 1):
            if self.slots[i].row_plus_1 != 0:
                place = self.slots[i].mark & (size - 1)
                while grown[place].row_plus_1 != 0:
                    place = (place + 1) & (size - 1)
                grown[place] = self.slots[i]
        free(self.slots)
        self.slots = grown
        self.mask = size - 1
        return 0
