"""Reads log entries; the layout stands in `_codec.pxd`."""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

import numpy

from fastplan.errors import CodecError, VersionUnsupported

from fastplan.columns._ids cimport format_key, hash_key, parse_key
from fastplan.fit._kernels cimport KIND_CORE, KIND_DEVICE, KIND_SHIFT, ROW_PRESENT, SUBJECT_SHIFT, NodeRow
from fastplan.fit._nodes cimport NodeTable

cdef extern from *:
    """
    #include <stdlib.h>
    #define fastplan_prefetch(address) __builtin_prefetch((address), 1, 3)
    """
    void fastplan_prefetch(const void* address) noexcept nogil
    void* aligned_alloc(size_t alignment, size_t size) noexcept nogil

cdef enum:
    AHEAD = 2                   # plans between asking for memory and using it

VERSION = FORMAT_VERSION

cdef enum:
    INLINE_BYTES = 48


cdef struct Subject:
    # What this process has a number for: a slot of a table with open addressing, one line of memory. Numbers never change.
    uint64_t hash
    uint32_t number_plus_1      # 0: the slot is free
    uint32_t size
    char text[INLINE_BYTES]     # as it stands in entries; a longer one lies elsewhere, and here is where

cdef Subject* subjects = NULL
cdef uint64_t subjects_mask = 0
cdef uint64_t subjects_count = 0


cdef struct Named:
    # A subject in an entry.
    const char* start
    size_t size
    uint64_t hash


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
    if kind == ENTRY_COMMAND:
        return time_ns, entry[HEADER_BYTES:]
    if kind != ENTRY_PLAN:
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


cdef inline bint is_subject(const Subject* slot, const Named* name) noexcept nogil:
    cdef const char* text
    if slot.hash != name.hash or slot.size != name.size:
        return False
    text = &slot.text[0]
    if slot.size > INLINE_BYTES:
        text = (<const char**> text)[0]
    return memcmp(text, name.start, name.size) == 0


cdef Subject* slot_of_subject(const Named* name) noexcept nogil:
    """Return the slot of a subject, or the free one where it belongs."""
    cdef uint64_t place = name.hash & subjects_mask
    while subjects[place].number_plus_1 and not is_subject(&subjects[place], name):
        place = (place + 1) & subjects_mask
    return &subjects[place]


cdef int make_room_for_subject() except -1:
    global subjects, subjects_mask
    cdef uint64_t room = (subjects_mask + 1) * 2 if subjects != NULL else 1024, i, place
    cdef Subject* slots
    cdef void* memory
    if subjects != NULL and subjects_count * 2 <= subjects_mask:
        return 0
    memory = aligned_alloc(64, room * sizeof(Subject))
    if memory == NULL:
        raise MemoryError("no memory for the texts of entries")
    memset(memory, 0, room * sizeof(Subject))
    slots = <Subject*> memory
    if subjects != NULL:
        for i in range(subjects_mask + 1):
            if subjects[i].number_plus_1:
                place = subjects[i].hash & (room - 1)
                while slots[place].number_plus_1:
                    place = (place + 1) & (room - 1)
                slots[place] = subjects[i]
    free(subjects)
    subjects = slots
    subjects_mask = room - 1
    return 0


cdef inline void fetch_subject(const Named* name) noexcept nogil:
    """Ask for the slot of a subject."""
    if subjects != NULL:
        fastplan_prefetch(&subjects[name.hash & subjects_mask])


cdef int64_t number_of_subject(const Named* name, number_of) except -1:
    """Return the number that this process has for a subject of an entry."""
    global subjects_count
    cdef Reader source
    cdef Subject* slot
    cdef char* elsewhere
    cdef uint32_t number
    make_room_for_subject()
    slot = slot_of_subject(name)
    if slot.number_plus_1:
        return slot.number_plus_1 - 1
    source.at = name.start
    source.end = name.start + name.size
    number = number_of(take_subject(&source))
    # Meanwhile another thread may have been here.
    make_room_for_subject()
    slot = slot_of_subject(name)
    if slot.number_plus_1:
        return number
    if name.size > INLINE_BYTES:
        elsewhere = <char*> malloc(name.size)
        if elsewhere == NULL:
            raise MemoryError("no memory for a text of an entry")
        memcpy(elsewhere, name.start, name.size)
        (<char**> &slot.text[0])[0] = elsewhere
    else:
        memcpy(&slot.text[0], name.start, name.size)
    slot.hash = name.hash
    slot.size = <uint32_t> name.size
    slot.number_plus_1 = number + 1
    subjects_count += 1
    return number


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


# It holds bytes, texts and numbers, so it is never part of a cycle.
@cython.no_gc
cdef class PlanEntry:
    """A decoded plan: the accepted part, as it is written to state.

    Attributes: `time_ns`; `eval_key` (16 bytes or None), `eval_id`; `verified_at`; `namespace`, `job_id`, `job_version`; `groups` [text];
    `shapes` [int row | bytes content]; `notes` ((description, client status, follow-up evaluation), …); `answer` and `cold` (msgpack
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
    cdef readonly bytes eval_key
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
    cdef readonly tuple notes
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
        self.notes = tuple([(take_text(&source), take_text(&source), take_text(&source)) for _ in range(head.notes)]) if head.notes else ()
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
    def eval_id(self):
        """Id of the plan's evaluation, empty without one."""
        return "" if self.eval_key is None else format_key(<const uint8_t*> PyBytes_AS_STRING(self.eval_key))

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
    cdef Py_buffer view
    PyObject_GetBuffer(array, &view, PyBUF_SIMPLE)
    memcpy(view.buf, source, view.len)
    PyBuffer_Release(&view)
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
    cdef Named* spoken = NULL
    cdef uint32_t numbers_room = 0
    cdef Reader source
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
                free(spoken)
                numbers = <uint32_t*> malloc(numbers_room * sizeof(uint32_t))
                spoken = <Named*> malloc(numbers_room * sizeof(Named))
                if numbers == NULL or spoken == NULL:
                    free(numbers)
                    free(spoken)
                    raise MemoryError("no memory for the texts of an entry")
            source.at = plan.subjects_at
            source.end = plan.subjects_end
            for i in range(plan.subject_count):
                spoken[i].start = source.at
                skip_subject(&source)
                spoken[i].size = source.at - spoken[i].start
                spoken[i].hash = fold_bytes(0, spoken[i].start, spoken[i].size)
                fetch_subject(&spoken[i])
            try:
                for i in range(plan.subject_count):
                    numbers[i] = <uint32_t> number_of_subject(&spoken[i], number_of)
            except BaseException:
                free(numbers)
                free(spoken)
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
    free(spoken)
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
