"""The bytes of a plan in the log; `fastplan.codec` explains the format and is the way in.

All numbers are little-endian. An entry is

    magic "fP" | version u8 | kind u8 | flags u8 | 3 bytes 0 | checksum u64 | length u32 | 4 bytes 0 | time i64 ns | body

The checksum covers everything else. The body of a plan is, in this order: the fixed part (`PlanHead`), the columns, the texts.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

import numpy

from fastplan.columns._ids cimport hash_key, odd_text, parse_key
from fastplan.errors import CodecError, VersionUnsupported
from fastplan.fit._kernels cimport KIND_CORE, KIND_DEVICE, KIND_SHIFT, ROW_PRESENT, SUBJECT_SHIFT, NodeRow
from fastplan.fit._nodes cimport NodeTable

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    FORMAT_VERSION = 1
    HEADER_BYTES = 32
    CHECKSUM_AT = 8
    FLAG_COLD = 1               # the entry needs more than columns
    SUBJECT_MASK = 0xFFFFFFF
    VALUE_MASK = 0x3FFFFFFF
    VALUE_SHIFT = 4
    LINEAR_TEXTS = 24           # up to here a search from end to end beats a hash table
    AHEAD = 2                   # plans between asking for memory and using it

KIND_PLAN = 1
KIND_COMMAND = 2
VERSION = FORMAT_VERSION

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


# ----- writing --------------------------------------------------------------------------------------------------

cdef struct Writer:
    char* start
    size_t used
    size_t room


cdef int reserve(Writer* out, size_t more) except -1:
    cdef char* grown
    if out.used + more <= out.room:
        return 0
    grown = <char*> realloc(out.start, (out.used + more) * 2)
    if grown == NULL:
        raise MemoryError("no memory for a log entry")
    out.start = grown
    out.room = (out.used + more) * 2
    return 0


cdef inline int put(Writer* out, const void* source, size_t size) except -1:
    reserve(out, size)
    memcpy(out.start + out.used, source, size)
    out.used += size
    return 0


cdef inline int put_u32(Writer* out, uint32_t value) except -1:
    return put(out, &value, 4)


cdef int put_text(Writer* out, str text) except -1:
    cdef Py_ssize_t size
    cdef const char* utf8 = PyUnicode_AsUTF8AndSize(text, &size)
    put_u32(out, <uint32_t> size)
    return put(out, utf8, size)


cdef inline uint64_t fold(uint64_t hash, uint64_t word) noexcept nogil:
    hash = (hash ^ word) * <uint64_t> 0x9E3779B97F4A7C15
    return hash ^ (hash >> 29)


cdef uint64_t checksum(const char* entry, size_t size) noexcept nogil:
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


cdef int put_header(Writer* out, int kind, int flags, int64_t time_ns) except -1:
    cdef uint8_t head[HEADER_BYTES]
    memset(head, 0, HEADER_BYTES)
    head[0] = c"f"
    head[1] = c"P"
    head[2] = FORMAT_VERSION
    head[3] = <uint8_t> kind
    head[4] = <uint8_t> flags
    memcpy(head + 24, &time_ns, 8)
    return put(out, head, HEADER_BYTES)


cdef bytes sealed(Writer* out):
    """Return the entry with length and checksum filled in."""
    cdef uint32_t length = <uint32_t> out.used
    cdef uint64_t total
    if out.used > <size_t> 0xFFFFFFFF:
        raise CodecError(f"an entry of {out.used} bytes is too long")
    memcpy(out.start + 16, &length, 4)
    total = checksum(out.start, out.used)
    memcpy(out.start + CHECKSUM_AT, &total, 8)
    return PyBytes_FromStringAndSize(out.start, out.used)


def encode_command(bytes body not None, int64_t time_ns):
    """Return the entry of a command whose *body* is msgpack."""
    cdef Writer out = Writer(NULL, 0, 0)
    try:
        reserve(&out, HEADER_BYTES + PyBytes_GET_SIZE(body))
        put_header(&out, KIND_COMMAND, 0, time_ns)
        put(&out, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body))
        return sealed(&out)
    finally:
        free(out.start)


cdef class _Texts:
    """Numbers the interned texts of the claims of one entry from 0 on: what stands in the log for process-wide numbers."""
    cdef uint32_t* numbers
    cdef uint32_t count
    cdef uint32_t room
    cdef uint32_t* slots        # local number + 1
    cdef uint32_t mask

    def __dealloc__(self):
        free(self.numbers)
        free(self.slots)

    cdef int64_t local(self, uint32_t number) except -1:
        cdef uint32_t i, place
        if self.mask == 0:
            for i in range(self.count):
                if self.numbers[i] == number:
                    return i
            if self.count == LINEAR_TEXTS:
                self.rehash(256)
        if self.mask:
            place = (number * <uint32_t> 0x9E3779B1) & self.mask
            while self.slots[place]:
                if self.numbers[self.slots[place] - 1] == number:
                    return self.slots[place] - 1
                place = (place + 1) & self.mask
            self.slots[place] = self.count + 1
        if self.count == self.room:
            self.room = self.room * 2 + 16
            self.numbers = <uint32_t*> realloc(self.numbers, self.room * sizeof(uint32_t))
            if self.numbers == NULL:
                raise MemoryError("no memory for the texts of an entry")
        self.numbers[self.count] = number
        self.count += 1
        if self.mask and self.count * 2 > self.mask:
            self.rehash((self.mask + 1) * 2)
        return self.count - 1

    cdef int rehash(self, uint32_t size) except -1:
        cdef uint32_t i, place
        free(self.slots)
        self.slots = <uint32_t*> calloc(size, sizeof(uint32_t))
        if self.slots == NULL:
            raise MemoryError("no memory for the texts of an entry")
        self.mask = size - 1
        for i in range(self.count):
            place = (self.numbers[i] * <uint32_t> 0x9E3779B1) & self.mask
            while self.slots[place]:
                place = (place + 1) & self.mask
            self.slots[place] = i + 1
        return 0


cdef enum:
    COLUMNS_MAX = 20


cdef struct Columns:
    # Borrowed arrays; `give_back` ends the loan.
    Py_buffer views[COLUMNS_MAX]
    int count


cdef const char* borrow(Columns* columns, object array, size_t bytes_wanted, str name) except? NULL:
    cdef Py_buffer* view = &columns.views[columns.count]
    PyObject_GetBuffer(array, view, PyBUF_SIMPLE)
    columns.count += 1
    if <size_t> view.len != bytes_wanted:
        raise CodecError(f"plan.{name}: {view.len} bytes where {bytes_wanted} belong")
    return <const char*> view.buf


cdef void give_back(Columns* columns) noexcept:
    while columns.count:
        columns.count -= 1
        PyBuffer_Release(&columns.views[columns.count])


def encode_plan(columns, accepted, kept_preemptions, bytes eval_key, str namespace not None, str job_id not None, uint64_t job_version, int64_t time_ns,
                uint64_t verified_at, list shapes not None, bytes answer, bytes cold, text_of):
    """Return the entry of the accepted part of a plan.

    *columns*: the plan (docs/architecture.md, "Plan columns"). *accepted*: uint8 (k), 1 where the node was accepted; `None`: all of them.
    *kept_preemptions*: uint8 (p), or `None`: all of them. *eval_key*: 16 bytes or `None`. *shapes*: per shape of the plan the row that
    it has in committed state (int), or its content (bytes). *answer*: msgpack of the refused part of the answer, or `None`. *cold*: msgpack of
    whatever the columns do not hold, or `None`.
    *text_of*: text of an interned number. Raises `CodecError` for columns that contradict each other.
    """
    cdef Writer out = Writer(NULL, 0, 0)
    cdef PlanHead head
    cdef _Texts texts = _Texts()
    cdef Columns arrays
    cdef object array = columns.node_rows
    cdef uint32_t k = <uint32_t> len(array)
    cdef uint32_t n, m, s, p, i, j, last, kept, count
    cdef const uint32_t* node_rows
    cdef const uint32_t* generations
    cdef const uint32_t* offsets
    cdef const uint8_t* mask = NULL
    cdef const uint8_t* kept_mask = NULL
    cdef const uint8_t* ids
    cdef const uint16_t* shape_index
    cdef const uint16_t* group_index
    cdef const int32_t* name_index
    cdef const uint8_t* client_status
    cdef const uint32_t* claim_offsets = NULL
    cdef const uint64_t* claims = NULL
    cdef const uint32_t* stop_offsets
    cdef const uint8_t* stop_ids = NULL
    cdef const uint16_t* stop_notes = NULL
    cdef const uint32_t* preempt_offsets
    cdef const uint8_t* preempt_ids = NULL
    cdef const uint8_t* preempt_by = NULL
    cdef size_t head_at
    cdef uint64_t claim
    cdef list odd = []
    cdef list notes
    cdef bytes subject
    memset(&head, 0, sizeof(PlanHead))
    arrays.count = 0
    try:
        node_rows = <const uint32_t*> borrow(&arrays, array, k * 4, "node_rows")
        generations = <const uint32_t*> borrow(&arrays, columns.node_generations, k * 4, "node_generations")
        offsets = <const uint32_t*> borrow(&arrays, columns.place_offsets, (k + 1) * 4, "place_offsets")
        if accepted is not None:
            mask = <const uint8_t*> borrow(&arrays, accepted, k, "accepted")
        n = offsets[k]
        ids = <const uint8_t*> borrow(&arrays, columns.alloc_ids, <size_t> n * 16, "alloc_ids")
        shape_index = <const uint16_t*> borrow(&arrays, columns.shape_index, <size_t> n * 2, "shape_index")
        group_index = <const uint16_t*> borrow(&arrays, columns.group_index, <size_t> n * 2, "group_index")
        name_index = <const int32_t*> borrow(&arrays, columns.name_index, <size_t> n * 4, "name_index")
        client_status = <const uint8_t*> borrow(&arrays, columns.client_status, n, "client_status")
        claim_offsets = <const uint32_t*> borrow(&arrays, columns.claim_offsets, <size_t> (n + 1) * 4, "claim_offsets")
        m = claim_offsets[n]
        claims = <const uint64_t*> borrow(&arrays, columns.claims, <size_t> m * 8, "claims")
        stop_offsets = <const uint32_t*> borrow(&arrays, columns.stop_offsets, (k + 1) * 4, "stop_offsets")
        s = stop_offsets[k]
        if s:
            stop_ids = <const uint8_t*> borrow(&arrays, columns.stop_ids, <size_t> s * 16, "stop_ids")
            stop_notes = <const uint16_t*> borrow(&arrays, columns.stop_note_index, <size_t> s * 2, "stop_note_index")
        preempt_offsets = <const uint32_t*> borrow(&arrays, columns.preempt_offsets, (k + 1) * 4, "preempt_offsets")
        p = preempt_offsets[k]
        if p:
            preempt_ids = <const uint8_t*> borrow(&arrays, columns.preempt_ids, <size_t> p * 16, "preempt_ids")
            preempt_by = <const uint8_t*> borrow(&arrays, columns.preempted_by, <size_t> p * 16, "preempted_by")
            if kept_preemptions is not None:
                kept_mask = <const uint8_t*> borrow(&arrays, kept_preemptions, p, "kept_preemptions")
        for i in range(k):
            if offsets[i] > offsets[i + 1] or stop_offsets[i] > stop_offsets[i + 1] or preempt_offsets[i] > preempt_offsets[i + 1]:
                raise CodecError(f"plan: the offsets of node {i} fall")
        for i in range(n):
            if claim_offsets[i] > claim_offsets[i + 1]:
                raise CodecError(f"plan.claim_offsets: they fall at placement {i}")
            if shape_index[i] >= <size_t> len(shapes) or group_index[i] >= <size_t> len(columns.groups):
                raise CodecError(f"plan: placement {i} names a shape or group that the plan does not have")
        reserve(&out, HEADER_BYTES + sizeof(PlanHead) + <size_t> k * 12 + <size_t> n * 32 + <size_t> m * 8 + <size_t> s * 18 + <size_t> p * 32 + 256)
        put_header(&out, KIND_PLAN, 0 if cold is None else FLAG_COLD, time_ns)
        head_at = out.used
        out.used += sizeof(PlanHead)
        if eval_key is not None:
            if len(eval_key) != 16:
                raise CodecError("plan.eval_key: it has 16 bytes")
            memcpy(head.eval_key, PyBytes_AS_STRING(eval_key), 16)
            head.has_eval = 1
            note_odd(odd, head.eval_key)
        head.verified_at = verified_at
        head.job_version = job_version

        # Nodes: row, generation, end of its placements. Nodes without accepted placements need no place in the log.
        kept = 0
        for i in range(k):
            if offsets[i + 1] > offsets[i] and (mask == NULL or mask[i]):
                put_u32(&out, node_rows[i])
                head.nodes += 1
        for i in range(k):
            if offsets[i + 1] > offsets[i] and (mask == NULL or mask[i]):
                put_u32(&out, generations[i])
        for i in range(k):
            if offsets[i + 1] > offsets[i] and (mask == NULL or mask[i]):
                kept += offsets[i + 1] - offsets[i]
                put_u32(&out, kept)
        head.placements = kept

        # Placements: runs of accepted nodes are copied at once.
        i = 0
        while i < k:
            if mask != NULL and not mask[i]:
                i += 1
                continue
            last = i
            while last < k and (mask == NULL or mask[last]):
                last += 1
            put(&out, ids + <size_t> offsets[i] * 16, <size_t> (offsets[last] - offsets[i]) * 16)
            for j in range(offsets[i], offsets[last]):
                note_odd(odd, ids + <size_t> j * 16)
            i = last
        put_runs(&out, mask, offsets, k, <const char*> shape_index, 2)
        put_runs(&out, mask, offsets, k, <const char*> group_index, 2)
        put_runs(&out, mask, offsets, k, <const char*> name_index, 4)
        put_runs(&out, mask, offsets, k, <const char*> client_status, 1)
        count = 0
        for i in range(k):
            if mask == NULL or mask[i]:
                for j in range(offsets[i], offsets[i + 1]):
                    count += claim_offsets[j + 1] - claim_offsets[j]
                    put_u32(&out, count)
        head.claims = count
        reserve(&out, <size_t> count * 8)
        for i in range(k):
            if mask == NULL or mask[i]:
                for j in range(claim_offsets[offsets[i]], claim_offsets[offsets[i + 1]]):
                    claim = local_claim(texts, claims[j])
                    put(&out, &claim, 8)

        # Stops and preemptions are resolved by id, so they need no node.
        count = 0
        for i in range(k):
            if (mask == NULL or mask[i]) and stop_offsets[i + 1] > stop_offsets[i]:
                put(&out, stop_ids + <size_t> stop_offsets[i] * 16, <size_t> (stop_offsets[i + 1] - stop_offsets[i]) * 16)
                for j in range(stop_offsets[i], stop_offsets[i + 1]):
                    note_odd(odd, stop_ids + <size_t> j * 16)
                count += stop_offsets[i + 1] - stop_offsets[i]
        head.stops = count
        notes = columns.stop_notes if s else []
        for i in range(k):
            if (mask == NULL or mask[i]) and stop_offsets[i + 1] > stop_offsets[i]:
                for j in range(stop_offsets[i], stop_offsets[i + 1]):
                    if stop_notes[j] >= <size_t> len(notes):
                        raise CodecError(f"plan: stop {j} names a note that the plan does not have")
                put(&out, stop_notes + stop_offsets[i], <size_t> (stop_offsets[i + 1] - stop_offsets[i]) * 2)
        count = 0
        for i in range(k):
            if mask == NULL or mask[i]:
                for j in range(preempt_offsets[i], preempt_offsets[i + 1]):
                    if kept_mask == NULL or kept_mask[j]:
                        put(&out, preempt_ids + <size_t> j * 16, 16)
                        note_odd(odd, preempt_ids + <size_t> j * 16)
                        count += 1
        head.preemptions = count
        for i in range(k):
            if mask == NULL or mask[i]:
                for j in range(preempt_offsets[i], preempt_offsets[i + 1]):
                    if kept_mask == NULL or kept_mask[j]:
                        put(&out, preempt_by + <size_t> j * 16, 16)
                        note_odd(odd, preempt_by + <size_t> j * 16)

        # Texts.
        put_text(&out, namespace)
        put_text(&out, job_id)
        for text in columns.groups:
            put_text(&out, text)
            head.groups += 1
        for shape in shapes:
            put_shape(&out, shape)
            head.shapes += 1
        for i in range(texts.count):
            subject = subject_of(texts.numbers[i], text_of)
            put(&out, PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject))
        head.texts = texts.count
        if head.stops:
            for description, client, follow_up in notes:
                put_text(&out, description)
                put_text(&out, client)
                put_text(&out, follow_up)
                head.notes += 1
        for text in odd:
            put_text(&out, text)
        head.odd_ids = <uint32_t> len(odd)
        if answer is not None:
            put(&out, PyBytes_AS_STRING(answer), PyBytes_GET_SIZE(answer))
            head.answer_bytes = <uint32_t> PyBytes_GET_SIZE(answer)
        if cold is not None:
            put(&out, PyBytes_AS_STRING(cold), PyBytes_GET_SIZE(cold))
            head.cold_bytes = <uint32_t> PyBytes_GET_SIZE(cold)
        memcpy(out.start + head_at, &head, sizeof(PlanHead))
        return sealed(&out)
    finally:
        give_back(&arrays)
        free(out.start)


cdef int put_runs(Writer* out, const uint8_t* mask, const uint32_t* offsets, uint32_t k, const char* items, size_t item_bytes) except -1:
    cdef uint32_t i = 0, last
    if mask == NULL:
        return put(out, items, offsets[k] * item_bytes)
    while i < k:
        if not mask[i]:
            i += 1
            continue
        last = i
        while last < k and mask[last]:
            last += 1
        put(out, items + offsets[i] * item_bytes, <size_t> (offsets[last] - offsets[i]) * item_bytes)
        i = last
    return 0


cdef int put_shape(Writer* out, object shape) except -1:
    """A shape is a tag byte and either the row it has in committed state, or its content."""
    cdef uint8_t tag = 0
    cdef bytes content
    if isinstance(shape, int):
        put(out, &tag, 1)
        return put_u32(out, shape)
    content = shape
    tag = 1
    put(out, &tag, 1)
    put_u32(out, <uint32_t> PyBytes_GET_SIZE(content))
    return put(out, PyBytes_AS_STRING(content), PyBytes_GET_SIZE(content))


# What numbers of this process stand for, as it stands in entries, both ways. Numbers never change, so neither do these.
cdef list subjects_known = []       # by number
cdef dict numbers_known = {}


cdef bytes subject_of(uint32_t number, text_of):
    """Return what a number in a claim stands for, as it stands in an entry: a tag byte tells how many texts follow.

    1: a text. 3: vendor, type and name of a device group.
    """
    cdef bytes known = subjects_known[number] if number < <size_t> len(subjects_known) else None
    cdef Writer out = Writer(NULL, 0, 0)
    cdef uint8_t parts = 1
    if known is not None:
        return known
    found = text_of(number)
    while <size_t> len(subjects_known) <= number:
        subjects_known.append(None)
    try:
        if isinstance(found, str):
            put(&out, &parts, 1)
            put_text(&out, found)
        else:
            parts = 3
            put(&out, &parts, 1)
            for text in found:
                put_text(&out, text)
        known = PyBytes_FromStringAndSize(out.start, out.used)
    finally:
        free(out.start)
    subjects_known[number] = known
    return known


cdef int64_t number_of_subject(const char* start, size_t size, number_of) except -1:
    """Return the number that this process has for a subject of an entry."""
    cdef bytes subject = start[:size]
    cdef object known = numbers_known.get(subject)
    cdef Reader source
    if known is None:
        source.at = start
        source.end = start + size
        known = number_of(take_subject(&source))
        numbers_known[subject] = known
    return known


cdef inline int note_odd(list odd, const uint8_t* key) except -1:
    """Remember the text of an id that is no UUID: its key alone does not say it."""
    cdef object text = odd_text(key)
    if text is not None and text not in odd:
        odd.append(text)
    return 0


cdef inline uint64_t local_claim(_Texts texts, uint64_t claim) except? 0xFFFFFFFFFFFFFFFF:
    cdef uint64_t kind = claim >> KIND_SHIFT
    cdef uint64_t subject, value
    if kind == KIND_CORE:
        return claim
    subject = <uint64_t> texts.local(<uint32_t> ((claim >> SUBJECT_SHIFT) & SUBJECT_MASK))
    value = (claim >> VALUE_SHIFT) & VALUE_MASK
    if kind == KIND_DEVICE:
        value = <uint64_t> texts.local(<uint32_t> value)
    return kind << KIND_SHIFT | subject << SUBJECT_SHIFT | value << VALUE_SHIFT | (claim & 15)


# ----- reading --------------------------------------------------------------------------------------------------

cdef object header_of(bytes entry, int* kind, int* flags, int64_t* time_ns):
    """Check length, version and checksum of an entry."""
    cdef const uint8_t* start = <const uint8_t*> PyBytes_AS_STRING(entry)
    cdef size_t size = <size_t> PyBytes_GET_SIZE(entry)
    cdef uint32_t length
    cdef uint64_t total
    if size < HEADER_BYTES:
        raise CodecError(f"log entry: {size} bytes are too few for a header")
    if start[0] != c"f" or start[1] != c"P":
        raise CodecError("log entry: it does not start like one")
    if start[2] != FORMAT_VERSION:
        raise VersionUnsupported("log entry", start[2], FORMAT_VERSION)
    memcpy(&length, start + 16, 4)
    if length != size:
        raise CodecError(f"log entry: {size} bytes where its header says {length}")
    memcpy(&total, start + CHECKSUM_AT, 8)
    if total != checksum(<const char*> start, size):
        raise CodecError("log entry: its checksum does not match")
    kind[0] = start[3]
    flags[0] = start[4]
    memcpy(time_ns, start + 24, 8)


def decode(bytes entry not None):
    """Return `(time_ns, body)` of a command, or a `PlanEntry`. Raises `CodecError`, `VersionUnsupported`."""
    cdef int kind, flags
    cdef int64_t time_ns
    cdef PlanEntry plan
    header_of(entry, &kind, &flags, &time_ns)
    if kind == KIND_COMMAND:
        return time_ns, entry[HEADER_BYTES:]
    if kind != KIND_PLAN:
        raise CodecError(f"log entry: kind {kind} is unknown")
    plan = PlanEntry.__new__(PlanEntry)
    plan.time_ns = time_ns
    plan.parse(entry, flags)
    return plan


cdef struct Reader:
    const char* at
    const char* end


cdef inline const char* take(Reader* source, size_t size) except NULL:
    cdef const char* at = source.at
    if <size_t> (source.end - at) < size:
        raise CodecError("log entry: it ends in the middle of a plan")
    source.at = at + size
    return at


cdef inline uint32_t take_u32(Reader* source) except? 0xFFFFFFFF:
    cdef uint32_t value
    memcpy(&value, take(source, 4), 4)
    return value


cdef str take_text(Reader* source):
    cdef uint32_t size = take_u32(source)
    cdef const char* text = take(source, size)
    try:
        return PyUnicode_DecodeUTF8(text, size, NULL)
    except UnicodeDecodeError as error:
        raise CodecError("log entry: a text in it is not UTF-8") from error


cdef object take_subject(Reader* source):
    cdef uint8_t parts = (<const uint8_t*> take(source, 1))[0]
    if parts == 1:
        return take_text(source)
    if parts != 3:
        raise CodecError("log entry: a claim names neither a text nor a device group")
    return take_text(source), take_text(source), take_text(source)


cdef int skip_subject(Reader* source) except -1:
    """Walk over a subject without reading its texts."""
    cdef uint8_t parts = (<const uint8_t*> take(source, 1))[0]
    if parts != 1 and parts != 3:
        raise CodecError("log entry: a claim names neither a text nor a device group")
    while parts:
        take(source, take_u32(source))
        parts -= 1
    return 0


cdef int check_ends(const char* ends, uint32_t count, uint32_t total) except -1:
    cdef uint32_t i, end = 0, before = 0
    for i in range(count):
        memcpy(&end, ends + <size_t> i * 4, 4)
        if end < before:
            raise CodecError("log entry: offsets in a plan fall")
        before = end
    if before != total:
        raise CodecError("log entry: offsets in a plan do not add up")
    return 0


cdef class PlanEntry:
    """A decoded plan: the accepted part, as it is written to state.

    Attributes: `time_ns`; `eval_key` (16 bytes or None); `verified_at`; `namespace`, `job_id`, `job_version`; `groups` [text];
    `shapes` [int row | bytes content]; `notes` [(description, client status, follow-up evaluation)]; `answer` and `cold` (msgpack
    or None); and the counts `node_count`, `placement_count`, `claim_count`, `stop_count`, `preemption_count`.
    """

    cdef bytes entry                    # owns what the pointers point to
    cdef const char* node_rows
    cdef const char* generations
    cdef const char* place_ends
    cdef const char* ids
    cdef const char* shape_index
    cdef const char* group_index
    cdef const char* name_index
    cdef const char* client_status
    cdef const char* claim_ends
    cdef const char* claim_words
    cdef const char* stop_keys
    cdef const char* stop_note_index
    cdef const char* preempt_keys
    cdef const char* preempt_by
    cdef readonly int64_t time_ns
    cdef readonly object eval_key
    cdef readonly uint64_t verified_at
    cdef readonly uint64_t job_version
    cdef const char* job_part_at
    cdef const char* job_part_end
    cdef uint32_t group_count
    cdef uint32_t shape_count
    cdef tuple texts_read               # namespace, job id, groups, shapes
    cdef const char* subjects_at
    cdef const char* subjects_end
    cdef uint32_t subject_count
    cdef readonly list notes
    cdef readonly bytes answer
    cdef readonly bytes cold
    cdef readonly uint32_t node_count
    cdef readonly uint32_t placement_count
    cdef readonly uint32_t claim_count
    cdef readonly uint32_t stop_count
    cdef readonly uint32_t preemption_count

    cdef int parse(self, bytes entry, int flags) except -1:
        cdef Reader source
        cdef PlanHead head
        cdef size_t n, k
        cdef uint32_t i
        cdef uint8_t tag
        cdef uint8_t key[16]
        cdef uint64_t claim
        cdef uint32_t size
        cdef uint16_t index
        self.entry = entry
        source.at = PyBytes_AS_STRING(entry) + HEADER_BYTES
        source.end = PyBytes_AS_STRING(entry) + PyBytes_GET_SIZE(entry)
        memcpy(&head, take(&source, sizeof(PlanHead)), sizeof(PlanHead))
        if (head.cold_bytes != 0) != (flags & FLAG_COLD != 0) or head.has_eval > 1:
            raise CodecError("log entry: the flags of a plan contradict its contents")
        self.eval_key = (<const char*> head.eval_key)[:16] if head.has_eval else None
        self.verified_at = head.verified_at
        self.job_version = head.job_version
        n = head.placements
        k = head.nodes
        self.node_count = head.nodes
        self.placement_count = head.placements
        self.claim_count = head.claims
        self.stop_count = head.stops
        self.preemption_count = head.preemptions
        self.node_rows = take(&source, k * 4)
        self.generations = take(&source, k * 4)
        self.place_ends = take(&source, k * 4)
        self.ids = take(&source, n * 16)
        self.shape_index = take(&source, n * 2)
        self.group_index = take(&source, n * 2)
        self.name_index = take(&source, n * 4)
        self.client_status = take(&source, n)
        self.claim_ends = take(&source, n * 4)
        self.claim_words = take(&source, <size_t> head.claims * 8)
        self.stop_keys = take(&source, <size_t> head.stops * 16)
        self.stop_note_index = take(&source, <size_t> head.stops * 2)
        self.preempt_keys = take(&source, <size_t> head.preemptions * 16)
        self.preempt_by = take(&source, <size_t> head.preemptions * 16)
        check_ends(self.place_ends, head.nodes, head.placements)
        check_ends(self.claim_ends, head.placements, head.claims)
        for i in range(head.placements):
            memcpy(&index, self.shape_index + <size_t> i * 2, 2)
            if index >= head.shapes:
                raise CodecError("log entry: a placement names a shape that is not there")
            memcpy(&index, self.group_index + <size_t> i * 2, 2)
            if index >= head.groups:
                raise CodecError("log entry: a placement names a group that is not there")
        for i in range(head.stops):
            memcpy(&index, self.stop_note_index + <size_t> i * 2, 2)
            if index >= head.notes:
                raise CodecError("log entry: a stop names a note that is not there")
        for i in range(head.claims):
            memcpy(&claim, self.claim_words + <size_t> i * 8, 8)
            if claim >> KIND_SHIFT != KIND_CORE and (
                (claim >> SUBJECT_SHIFT & SUBJECT_MASK) >= head.texts
                or (claim >> KIND_SHIFT == KIND_DEVICE and (claim >> VALUE_SHIFT & VALUE_MASK) >= head.texts)
            ):
                raise CodecError("log entry: a claim names a text that is not there")
        # Texts are walked over and read when somebody asks: most plans look like one before.
        self.job_part_at = source.at
        for _ in range(head.groups + 2):
            take(&source, take_u32(&source))
        self.group_count = head.groups
        self.shape_count = head.shapes
        for _ in range(head.shapes):
            tag = (<const uint8_t*> take(&source, 1))[0]
            if tag > 1:
                raise CodecError("log entry: a shape is neither a row nor a content")
            size = take_u32(&source)
            if tag:
                take(&source, size)
        self.job_part_end = source.at
        self.subject_count = head.texts
        self.subjects_at = source.at
        for _ in range(head.texts):
            skip_subject(&source)
        self.subjects_end = source.at
        self.notes = [(take_text(&source), take_text(&source), take_text(&source)) for _ in range(head.notes)]
        for _ in range(head.odd_ids):
            parse_key(take_text(&source), key)
        self.answer = take(&source, head.answer_bytes)[:head.answer_bytes] if head.answer_bytes else None
        self.cold = take(&source, head.cold_bytes)[:head.cold_bytes] if head.cold_bytes else None
        if source.at != source.end:
            raise CodecError(f"log entry: {source.end - source.at} bytes follow behind a plan")
        return 0

    cdef tuple read_texts(self):
        """Return namespace, job id, groups and shapes."""
        cdef Reader source
        cdef uint8_t tag
        cdef uint32_t size
        if self.texts_read is None:
            source.at = self.job_part_at
            source.end = self.job_part_end
            namespace = take_text(&source)
            job_id = take_text(&source)
            groups = [take_text(&source) for _ in range(self.group_count)]
            shapes = []
            for _ in range(self.shape_count):
                tag = (<const uint8_t*> take(&source, 1))[0]
                size = take_u32(&source)
                shapes.append(take(&source, size)[:size] if tag else size)
            self.texts_read = namespace, job_id, groups, shapes
        return self.texts_read

    @property
    def job_part(self):
        """Namespace, job id, groups and shapes as bytes: equal ones mean the same."""
        return self.job_part_at[:self.job_part_end - self.job_part_at]

    @property
    def namespace(self):
        """Namespace of the plan's job."""
        return self.read_texts()[0]

    @property
    def job_id(self):
        """Id of the plan's job."""
        return self.read_texts()[1]

    @property
    def groups(self):
        """Names of the task groups that placements refer to."""
        return self.read_texts()[2]

    @property
    def shapes(self):
        """Shapes that placements refer to: the row in committed state (int), or the content (bytes)."""
        return self.read_texts()[3]

    @property
    def subjects(self):
        """What the numbers in the claims of this entry stand for: texts, and (vendor, type, name) of device groups."""
        cdef Reader source
        source.at = self.subjects_at
        source.end = self.subjects_end
        return [take_subject(&source) for _ in range(self.subject_count)]

    def nodes(self):
        """Return `(node rows, generations, ends of their placements)`, uint32 (k) each."""
        return (
            array_of(self.node_rows, self.node_count, numpy.uint32),
            array_of(self.generations, self.node_count, numpy.uint32),
            array_of(self.place_ends, self.node_count, numpy.uint32),
        )

    def stops(self):
        """Return `(keys uint8 (s, 16), note index uint16 (s))` of what is stopped."""
        return keys_array(self.stop_keys, self.stop_count), array_of(self.stop_note_index, self.stop_count, numpy.uint16)

    def preemptions(self):
        """Return `(keys uint8 (p, 16), keys of the allocations that they make room for, uint8 (p, 16))`."""
        return keys_array(self.preempt_keys, self.preemption_count), keys_array(self.preempt_by, self.preemption_count)


cdef object array_of(const char* source, size_t count, kind):
    array = numpy.empty(count, kind)
    cdef Columns arrays
    arrays.count = 0
    memcpy(<char*> borrow(&arrays, array, array.nbytes, "array"), source, array.nbytes)
    give_back(&arrays)
    return array


cdef object keys_array(const char* source, size_t count):
    return array_of(source, count * 16, numpy.uint8).reshape(count, 16)


cdef void prefetch_nodes(PlanEntry plan, NodeTable nodes) noexcept:
    """Bring the rows of a plan's nodes closer: they lie anywhere."""
    cdef uint32_t i, row
    for i in range(plan.node_count):
        memcpy(&row, plan.node_rows + <size_t> i * 4, 4)
        if row < nodes.row_count:
            nodes.prefetch(row)


def gather(list plans not None, list shape_rows not None, list group_rows not None, NodeTable nodes not None, number_of):
    """Put the placements of many plans behind each other, as the allocation table takes them.

    *plans*: `PlanEntry` each. *shape_rows*, *group_rows*: per plan the rows of its shapes and groups (uint32 arrays). *number_of*: number of a
    text in this process. Returns arrays over all n placements: plan number uint32 (n), ids uint8 (n, 16), node rows uint32 (n), group rows,
    shape rows uint32 (n), name index int32 (n), client status uint8 (n), claim offsets uint32 (n + 1), claims uint64 (m); and the numbers of
    the plans that name a node which is not there any more, ascending; and whether an id comes twice.
    """
    cdef PlanEntry plan
    cdef size_t n = 0, m = 0, at = 0, claims_at = 0
    cdef uint32_t i, j, start, end, node_row, generation
    cdef uint16_t index
    cdef uint64_t claim, kind, subject, value
    cdef uint32_t* numbers = NULL
    cdef uint32_t numbers_room = 0
    cdef Reader source
    cdef const char* subject_start
    cdef const NodeRow* node
    cdef list gone = []
    cdef bint is_gone
    cdef const uint32_t[::1] shapes, groups
    for plan in plans:
        n += plan.placement_count
        m += plan.claim_count
    if n >= <size_t> 0xFFFFFFFF or m >= <size_t> 0xFFFFFFFF:
        raise CodecError("too many placements for one batch")
    plan_numbers = numpy.empty(n, numpy.uint32)
    ids = numpy.empty((n, 16), numpy.uint8)
    node_rows = numpy.empty(n, numpy.uint32)
    out_groups = numpy.empty(n, numpy.uint32)
    out_shapes = numpy.empty(n, numpy.uint32)
    names = numpy.empty(n, numpy.int32)
    clients = numpy.empty(n, numpy.uint8)
    offsets = numpy.empty(n + 1, numpy.uint32)
    claims = numpy.empty(m, numpy.uint64)
    cdef uint32_t[::1] v_plan = plan_numbers, v_node = node_rows, v_group = out_groups, v_shape = out_shapes, v_offset = offsets
    cdef int32_t[::1] v_name = names
    cdef uint8_t[::1] v_client = clients
    cdef uint8_t[:, ::1] v_id = ids
    cdef uint64_t[::1] v_claim = claims
    cdef Py_ssize_t which = 0
    v_offset[0] = 0
    for plan in plans[:AHEAD]:
        prefetch_nodes(plan, nodes)
    for plan in plans:
        if which + AHEAD < len(plans):
            prefetch_nodes(<PlanEntry> plans[which + AHEAD], nodes)
        is_gone = False
        shapes = shape_rows[which]
        groups = group_rows[which]
        if plan.placement_count:
            if shapes.shape[0] != plan.shape_count or groups.shape[0] != plan.group_count:
                raise CodecError("a plan needs one row for each of its shapes and groups")
            memcpy(&v_id[at, 0], plan.ids, <size_t> plan.placement_count * 16)
            memcpy(&v_name[at], plan.name_index, <size_t> plan.placement_count * 4)
            memcpy(&v_client[at], plan.client_status, plan.placement_count)
            start = 0
            for i in range(plan.node_count):
                memcpy(&end, plan.place_ends + <size_t> i * 4, 4)
                memcpy(&node_row, plan.node_rows + <size_t> i * 4, 4)
                memcpy(&generation, plan.generations + <size_t> i * 4, 4)
                if not is_gone:
                    node = nodes.row_at(node_row) if node_row < nodes.row_count else NULL
                    if node == NULL or node.generation != generation or not node.flags & ROW_PRESENT:
                        is_gone = True
                        gone.append(which)
                for j in range(start, end):
                    v_node[at + j] = node_row
                start = end
            for i in range(plan.placement_count):
                v_plan[at + i] = <uint32_t> which
                memcpy(&index, plan.shape_index + <size_t> i * 2, 2)
                v_shape[at + i] = shapes[index]
                memcpy(&index, plan.group_index + <size_t> i * 2, 2)
                v_group[at + i] = groups[index]
                memcpy(&end, plan.claim_ends + <size_t> i * 4, 4)
                v_offset[at + i + 1] = <uint32_t> claims_at + end
        if plan.claim_count:
            if plan.subject_count > numbers_room:
                numbers_room = plan.subject_count * 2
                free(numbers)
                numbers = <uint32_t*> malloc(numbers_room * sizeof(uint32_t))
                if numbers == NULL:
                    raise MemoryError("no memory for the texts of an entry")
            source.at = plan.subjects_at
            source.end = plan.subjects_end
            for i in range(plan.subject_count):
                subject_start = source.at
                skip_subject(&source)
                try:
                    numbers[i] = <uint32_t> number_of_subject(subject_start, source.at - subject_start, number_of)
                except BaseException:
                    free(numbers)
                    raise
            for i in range(plan.claim_count):
                memcpy(&claim, plan.claim_words + <size_t> i * 8, 8)
                kind = claim >> KIND_SHIFT
                if kind != KIND_CORE:
                    subject = (claim >> SUBJECT_SHIFT) & SUBJECT_MASK
                    value = (claim >> VALUE_SHIFT) & VALUE_MASK
                    if kind == KIND_DEVICE:
                        value = numbers[value]
                    claim &= <uint64_t> 15
                    claim |= kind << KIND_SHIFT | <uint64_t> numbers[subject] << SUBJECT_SHIFT | value << VALUE_SHIFT
                v_claim[claims_at + i] = claim
        at += plan.placement_count
        claims_at += plan.claim_count
        which += 1
    free(numbers)
    return plan_numbers, ids, node_rows, out_groups, out_shapes, names, clients, offsets, claims, gone, has_twins(v_id)


cdef bint has_twins(const uint8_t[:, ::1] ids) except -1:
    """Tell whether an id comes twice."""
    cdef Py_ssize_t i, n = ids.shape[0]
    cdef uint32_t mask = 15, place
    cdef uint32_t* slots
    cdef bint found = False
    if n < 2:
        return False
    while <Py_ssize_t> mask < n * 2:
        mask = mask * 2 + 1
    slots = <uint32_t*> calloc(<size_t> mask + 1, sizeof(uint32_t))
    if slots == NULL:
        raise MemoryError("no memory to compare ids")
    for i in range(n):
        place = <uint32_t> hash_key(&ids[i, 0]) & mask
        while slots[place]:
            if memcmp(&ids[slots[place] - 1, 0], &ids[i, 0], 16) == 0:
                found = True
                break
            place = (place + 1) & mask
        if found:
            break
        slots[place] = <uint32_t> i + 1
    free(slots)
    return found
