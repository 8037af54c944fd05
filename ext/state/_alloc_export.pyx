"""Allocations of a view as plain arrays: what goes into a snapshot of the log, and into a table without dead rows.

Rows come in order, dead ones left out. Refs, stamps, notes and text numbers are numbered anew by first use, so two tables that hold the same
allocations in the same order give the same bytes, whatever has been deleted in between.
"""

import numpy

from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from fastplan.fit._kernels cimport KIND_CORE, KIND_DEVICE, KIND_SHIFT, SUBJECT_BITS, SUBJECT_SHIFT, VALUE_BITS
from fastplan.state._alloc_view cimport ALLOC_DEAD, ALLOC_IRREGULAR, NONE, AllocIdentity, AllocMemory, AllocRow, AllocView, grow

cdef enum:
    FLAG_BITS = 4

cdef uint64_t SUBJECT_MASK = ((<uint64_t> 1 << SUBJECT_BITS) - 1) << SUBJECT_SHIFT
cdef uint64_t VALUE_MASK = ((<uint64_t> 1 << VALUE_BITS) - 1) << FLAG_BITS


cdef class Renumbering:
    """Numbers by first use."""
    cdef uint32_t* new_of_old
    cdef uint32_t room
    cdef uint32_t count
    cdef list fresh         # old numbers that came since `take`, in order

    def __cinit__(self):
        self.fresh = []

    def __dealloc__(self):
        free(self.new_of_old)

    cdef uint32_t of(self, uint32_t old) except? 0xFFFFFFFF:
        if old == NONE:
            return NONE
        grow(<void**> &self.new_of_old, &self.room, old + 1, sizeof(uint32_t), 0xFF)
        if self.new_of_old[old] == NONE:
            self.new_of_old[old] = self.count
            self.count += 1
            self.fresh.append(old)
        return self.new_of_old[old]

    cdef list take(self):
        """Return the old numbers that are new since the last call."""
        fresh = self.fresh
        self.fresh = []
        return fresh


cdef class AllocExport:
    """Reads a view, some rows at a time. With *portable* claims name texts by numbers of this export instead of those of the process."""
    cdef AllocView view
    cdef uint32_t next_row
    cdef bint portable
    cdef Renumbering nodes
    cdef Renumbering evals
    cdef Renumbering stamps
    cdef Renumbering notes
    cdef Renumbering texts

    def __init__(self, AllocView view not None, *, bint portable):
        self.view = view
        self.portable = portable
        self.nodes = Renumbering()
        self.evals = Renumbering()
        self.stamps = Renumbering()
        self.notes = Renumbering()
        self.texts = Renumbering()

    cdef uint64_t translate(self, uint64_t claim) except? 0:
        """Return the claim with text numbers of this export."""
        cdef uint64_t kind = claim >> KIND_SHIFT
        if kind == KIND_CORE:
            return claim
        claim = (claim & ~SUBJECT_MASK) | (<uint64_t> self.texts.of(<uint32_t> ((claim & SUBJECT_MASK) >> SUBJECT_SHIFT)) << SUBJECT_SHIFT)
        if kind == KIND_DEVICE:
            claim = (claim & ~VALUE_MASK) | (<uint64_t> self.texts.of(<uint32_t> ((claim & VALUE_MASK) >> FLAG_BITS)) << FLAG_BITS)
        return claim

    def take(self, uint32_t rows_max):
        """Return the next allocations as a dict of arrays named as the arguments of `AllocTable.insert_rows`, or None after the last.

        Beside them, what these rows are the first to refer to, in the order of the new numbers: `new_nodes` and `new_evals` (keys, uint8 (k, 16)),
        `new_stamp_indexes` uint64 and `new_stamp_times` int64, `new_notes` and `new_texts` (lists of the old numbers). `extras` are those of the view.
        """
        cdef AllocMemory memory = self.view.memory
        cdef AllocIdentity* identity
        cdef AllocRow* entry
        cdef uint64_t* words
        cdef uint32_t row, count, place, end = self.next_row
        cdef Py_ssize_t i = 0, k = 0, n = 0, m = 0
        while end < self.view.count and n < rows_max:
            entry = self.view.row(end)
            if not entry.flags & ALLOC_DEAD:
                memory.claims_of(entry, &count)
                n += 1
                m += count
            end += 1
        if n == 0:
            self.next_row = end
            return None
        columns = {
            "ids": numpy.empty((n, 16), numpy.uint8), "name_index": numpy.empty(n, numpy.int32), "client_status": numpy.empty(n, numpy.uint8),
            "desired_status": numpy.empty(n, numpy.uint8), "irregular": numpy.empty(n, numpy.uint8), "claim_offsets": numpy.zeros(n + 1, numpy.uint32),
            "claims": numpy.empty(m, numpy.uint64),
        }
        for name in _NUMBERS:
            columns[name] = numpy.empty(n, numpy.uint32)
        cdef uint8_t[:, ::1] ids = columns["ids"]
        cdef int32_t[::1] name_index = columns["name_index"]
        cdef uint8_t[::1] client = columns["client_status"], desired = columns["desired_status"], irregular = columns["irregular"]
        cdef uint32_t[::1] offsets = columns["claim_offsets"], stamps = columns["stamps"], created = columns["create_stamps"]
        cdef uint32_t[::1] by_server = columns["alloc_modify_stamps"], nodes = columns["node_refs"], groups = columns["group_rows"]
        cdef uint32_t[::1] versions = columns["job_version_rows"], evals = columns["eval_refs"], shapes = columns["shape_rows"]
        cdef uint32_t[::1] extras = columns["extras"], notes = columns["notes"]
        cdef uint64_t[::1] claims = columns["claims"]
        for row in range(self.next_row, end):
            # Only what the memory keeps in place is held across `of`, which may hand the interpreter lock over.
            entry = self.view.row(row)
            if entry.flags & ALLOC_DEAD:
                continue
            identity = memory.identity(row)
            memcpy(&ids[i, 0], identity.key, 16)
            name_index[i] = identity.name_index
            client[i] = entry.client
            desired[i] = entry.desired
            irregular[i] = entry.flags & ALLOC_IRREGULAR
            groups[i] = identity.group_row
            versions[i] = entry.job_version_row
            shapes[i] = entry.shape_row
            extras[i] = entry.extra
            nodes[i] = self.nodes.of(identity.node_ref)
            evals[i] = self.evals.of(entry.eval_ref)
            stamps[i] = self.stamps.of(entry.modify_stamp)
            created[i] = self.stamps.of(identity.create_stamp)
            by_server[i] = self.stamps.of(entry.alloc_modify_stamp)
            notes[i] = self.notes.of(entry.note)
            words = memory.claims_of(entry, &count)
            for place in range(count):
                claims[k] = self.translate(words[place]) if self.portable else words[place]
                k += 1
            i += 1
            offsets[i] = <uint32_t> k
        self.next_row = end
        columns["new_nodes"] = self.keys_of_refs(self.nodes.take(), True)
        columns["new_evals"] = self.keys_of_refs(self.evals.take(), False)
        fresh = self.stamps.take()
        columns["new_stamp_indexes"] = numpy.array([memory.stamps[<uint32_t> number].index for number in fresh], numpy.uint64)
        columns["new_stamp_times"] = numpy.array([memory.stamps[<uint32_t> number].time_ns for number in fresh], numpy.int64)
        columns["new_notes"] = self.notes.take()
        columns["new_texts"] = self.texts.take()
        return columns

    cdef object keys_of_refs(self, list refs, bint of_nodes):
        cdef Py_ssize_t i
        cdef uint8_t* key
        keys = numpy.empty((len(refs), 16), numpy.uint8)
        cdef uint8_t[:, ::1] out = keys
        for i in range(len(refs)):
            key = self.view.memory.nodes.key(refs[i]) if of_nodes else self.view.memory.evals.key(refs[i])
            memcpy(&out[i, 0], key, 16)
        return keys


_NUMBERS = (
    "stamps", "node_refs", "group_rows", "job_version_rows", "eval_refs", "shape_rows", "extras", "notes", "create_stamps", "alloc_modify_stamps",
)


def translate_claims(uint64_t[::1] claims not None, const uint32_t[::1] numbers not None):
    """Replace, in place, the text numbers of an export by those of the process: numbers[new] → old. Raises ValueError for a number beyond *numbers*."""
    cdef Py_ssize_t i
    cdef uint64_t kind, subject, value
    cdef uint64_t known = numbers.shape[0]
    for i in range(claims.shape[0]):
        kind = claims[i] >> KIND_SHIFT
        if kind == KIND_CORE:
            continue
        subject = (claims[i] & SUBJECT_MASK) >> SUBJECT_SHIFT
        if subject >= known:
            raise ValueError(f"claim {i} names text {subject} of {known}")
        claims[i] = (claims[i] & ~SUBJECT_MASK) | (<uint64_t> numbers[subject] << SUBJECT_SHIFT)
        if kind == KIND_DEVICE:
            value = (claims[i] & VALUE_MASK) >> FLAG_BITS
            if value >= known:
                raise ValueError(f"claim {i} names text {value} of {known}")
            claims[i] = (claims[i] & ~VALUE_MASK) | (<uint64_t> numbers[value] << FLAG_BITS)
