"""Writes log entries; the layout stands in `_codec.pxd`."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from fastplan.errors import CodecError

from fastplan._codec cimport (
    CHECKSUM_AT, ENTRY_COMMAND, ENTRY_PLAN, FLAG_COLD, FORMAT_VERSION, HEADER_BYTES, SUBJECT_MASK, VALUE_MASK, VALUE_SHIFT, PlanHead, checksum,
    fold, fold_bytes,
)
from fastplan.columns._ids cimport odd_text
from fastplan.fit._kernels cimport KIND_CORE, KIND_DEVICE, KIND_SHIFT, SUBJECT_SHIFT
from fastplan.state._plan_view cimport PlanView

cdef extern from *:
    """
    #define fastplan_prefetch(address) __builtin_prefetch((address), 0, 3)
    """
    void fastplan_prefetch(const void* address) noexcept nogil

cdef extern from "Python.h":
    void* PyList_GET_ITEM(object items, Py_ssize_t place)
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL

cdef enum:
    LINEAR_TEXTS = 24           # up to here a search from end to end beats a hash table


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
        put_header(&out, ENTRY_COMMAND, 0, time_ns)
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


cdef const uint8_t* borrow(object mask, Py_buffer* loan, Py_ssize_t size, str name) except NULL:
    """Return the bytes of *mask*; to be released by whoever asks."""
    PyObject_GetBuffer(mask, loan, PyBUF_SIMPLE)
    if loan.len != size:
        found = loan.len
        PyBuffer_Release(loan)
        raise CodecError(f"{name}: {found} bytes where {size} belong")
    return <const uint8_t*> loan.buf


def encode_plan(PlanView plan not None, list groups not None, list stop_notes not None, accepted, kept_preemptions, bytes eval_key, str namespace not None,
                str job_id not None, uint64_t job_version, int64_t time_ns, uint64_t verified_at, list shapes not None, bytes answer, bytes cold, text_of):
    """Return the entry of the accepted part of a plan.

    *plan*: its columns. *groups*, *stop_notes*: what they refer to (docs/architecture.md, "Plan columns"). *accepted*: uint8 (k), 1 where the node was
    accepted; `None`: all of them. *kept_preemptions*: uint8 (p), or `None`: all of them. *eval_key*: 16 bytes or `None`. *shapes*: per shape of the plan
    the row that it has in committed state (int), or its content (bytes). *answer*: msgpack of the refused part of the answer, or `None`. *cold*: msgpack
    of whatever the columns do not hold, or `None`.
    *text_of*: text of an interned number. Raises `CodecError` for columns that contradict each other.
    """
    cdef Writer out = Writer(NULL, 0, 0)
    cdef PlanHead head
    cdef _Texts texts = _Texts()
    cdef Py_buffer accepted_loan, kept_loan
    cdef uint32_t k = <uint32_t> plan.node_count, n = <uint32_t> plan.place_count, m = <uint32_t> plan.claim_count
    cdef uint32_t s = <uint32_t> plan.stop_count, p = <uint32_t> plan.preempt_count
    cdef uint32_t i, j, last, kept, count
    cdef const uint32_t* offsets = plan.place_offsets
    cdef const uint32_t* stop_offsets = plan.stop_offsets
    cdef const uint32_t* preempt_offsets = plan.preempt_offsets
    cdef const uint32_t* claim_offsets = plan.claim_offsets
    cdef const uint8_t* mask = NULL
    cdef const uint8_t* kept_mask = NULL
    cdef size_t head_at
    cdef uint64_t claim
    cdef list odd = []
    cdef list notes
    cdef bytes subject
    memset(&head, 0, sizeof(PlanHead))
    try:
        if accepted is not None:
            mask = borrow(accepted, &accepted_loan, k, "accepted")
        if p and kept_preemptions is not None:
            kept_mask = borrow(kept_preemptions, &kept_loan, p, "kept_preemptions")
        for i in range(n):
            if plan.shape_index[i] >= <size_t> len(shapes) or plan.group_index[i] >= <size_t> len(groups):
                raise CodecError(f"plan: placement {i} names a shape or group that the plan does not have")
        reserve(&out, HEADER_BYTES + sizeof(PlanHead) + <size_t> k * 12 + <size_t> n * 32 + <size_t> m * 8 + <size_t> s * 18 + <size_t> p * 32 + 256)
        put_header(&out, ENTRY_PLAN, 0 if cold is None else FLAG_COLD, time_ns)
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
                put_u32(&out, plan.node_rows[i])
                head.nodes += 1
        for i in range(k):
            if offsets[i + 1] > offsets[i] and (mask == NULL or mask[i]):
                put_u32(&out, plan.node_generations[i])
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
            put(&out, plan.alloc_ids + <size_t> offsets[i] * 16, <size_t> (offsets[last] - offsets[i]) * 16)
            for j in range(offsets[i], offsets[last]):
                note_odd(odd, plan.alloc_ids + <size_t> j * 16)
            i = last
        put_runs(&out, mask, offsets, k, <const char*> plan.shape_index, 2)
        put_runs(&out, mask, offsets, k, <const char*> plan.group_index, 2)
        put_runs(&out, mask, offsets, k, <const char*> plan.name_index, 4)
        put_runs(&out, mask, offsets, k, <const char*> plan.client_status, 1)
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
                    claim = local_claim(texts, plan.claims[j])
                    put(&out, &claim, 8)

        # Stops and preemptions are resolved by id, so they need no node.
        count = 0
        for i in range(k):
            if (mask == NULL or mask[i]) and stop_offsets[i + 1] > stop_offsets[i]:
                put(&out, plan.stop_ids + <size_t> stop_offsets[i] * 16, <size_t> (stop_offsets[i + 1] - stop_offsets[i]) * 16)
                for j in range(stop_offsets[i], stop_offsets[i + 1]):
                    note_odd(odd, plan.stop_ids + <size_t> j * 16)
                count += stop_offsets[i + 1] - stop_offsets[i]
        head.stops = count
        notes = stop_notes if s else []
        for i in range(k):
            if (mask == NULL or mask[i]) and stop_offsets[i + 1] > stop_offsets[i]:
                for j in range(stop_offsets[i], stop_offsets[i + 1]):
                    if plan.stop_note_index[j] >= <size_t> len(notes):
                        raise CodecError(f"plan: stop {j} names a note that the plan does not have")
                put(&out, plan.stop_note_index + stop_offsets[i], <size_t> (stop_offsets[i + 1] - stop_offsets[i]) * 2)
        count = 0
        for i in range(k):
            if mask == NULL or mask[i]:
                for j in range(preempt_offsets[i], preempt_offsets[i + 1]):
                    if kept_mask == NULL or kept_mask[j]:
                        put(&out, plan.preempt_ids + <size_t> j * 16, 16)
                        note_odd(odd, plan.preempt_ids + <size_t> j * 16)
                        count += 1
        head.preemptions = count
        for i in range(k):
            if mask == NULL or mask[i]:
                for j in range(preempt_offsets[i], preempt_offsets[i + 1]):
                    if kept_mask == NULL or kept_mask[j]:
                        put(&out, plan.preempted_by + <size_t> j * 16, 16)
                        note_odd(odd, plan.preempted_by + <size_t> j * 16)

        # Texts.
        put_text(&out, namespace)
        put_text(&out, job_id)
        for text in groups:
            put_text(&out, text)
            head.groups += 1
        for shape in shapes:
            put_shape(&out, shape)
            head.shapes += 1
        for i in range(texts.count):
            fetch_subject(texts.numbers[i])
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
        if mask != NULL:
            PyBuffer_Release(&accepted_loan)
        if kept_mask != NULL:
            PyBuffer_Release(&kept_loan)
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


# What numbers of this process stand for, as it stands in entries, by number. Numbers never change, so neither do these.
cdef list subjects_known = []


cdef inline void fetch_subject(uint32_t number) noexcept:
    """Ask for the memory of what `subject_of` will return."""
    if number < <size_t> len(subjects_known):
        fastplan_prefetch(<const char*> PyList_GET_ITEM(subjects_known, number))


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


cdef int run_words(uint64_t* words, str eval_id, str token) except -1:
    """Write the two words that stand for an evaluation and the token of one of its runs."""
    cdef Py_ssize_t size, token_size
    cdef const char* text = PyUnicode_AsUTF8AndSize(eval_id, &size)
    cdef const char* token_text = PyUnicode_AsUTF8AndSize(token, &token_size)
    words[0] = fold_bytes(fold_bytes(1, text, size), token_text, token_size)
    words[1] = fold_bytes(fold_bytes(2, token_text, token_size), text, size)
    return 0


def numbered_key(str eval_id not None, str token not None, int64_t number):
    """Return the key of a plan, 24 bytes: 16 that stand for evaluation and token, 8 for the plan's *number* in this run."""
    cdef uint64_t words[3]
    run_words(words, eval_id, token)
    words[2] = fold(4, <uint64_t> number)
    return PyBytes_FromStringAndSize(<const char*> words, sizeof(words))


def plan_key(PlanView plan not None, str eval_id not None, str token not None, uint64_t snapshot_index):
    """Return the key of a plan without number, 24 bytes: 16 that stand for evaluation and token, 8 for the plan among those of this run.

    The latter come from the index that the plan was made at and the ids that it concerns.
    """
    cdef uint64_t words[3]
    run_words(words, eval_id, token)
    words[2] = fold(3, snapshot_index)
    words[2] = fold_bytes(words[2], <const char*> plan.alloc_ids, <size_t> plan.place_count * 16)
    words[2] = fold_bytes(words[2], <const char*> plan.stop_ids, <size_t> plan.stop_count * 16)
    words[2] = fold_bytes(words[2], <const char*> plan.preempt_ids, <size_t> plan.preempt_count * 16)
    return PyBytes_FromStringAndSize(<const char*> words, sizeof(words))
