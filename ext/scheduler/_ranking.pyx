"""Every feasible node scored, and many equal allocations placed in one call (docs/architecture.md, "Scheduling").

A candidate is a node with what is free on it. Its key is the sum of its scores on the grid of `ties`, times 420 divided by how many they are: a whole
number, so that candidates compare the same way wherever it is computed. Candidates with equally many scores and the same values of the attributes that
the group is spread over stand in one heap: what the spread adds is the same for all of them, so the best one of a heap stays the best whatever that is.
"""

from libc.math cimport llrint
from libc.stdint cimport INT64_MAX, int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc

from fastplan.fit._kernels cimport ROW_PORTS_UNUSABLE, ROW_PRESENT, NodeRow
from fastplan.fit._nodes cimport NodeTable

cdef extern from "fastplan_score.h" nogil:
    void fastplan_scores(const double* cpu_free, const double* memory_free, double* scores, size_t count, int spread)

cdef enum:
    # Numbers of errors.Reason; a test compares them.
    FITS = 0
    MAX_ALLOCS = 1
    CPU = 3
    MEMORY = 4
    DISK = 5
    OUT = 127               # left out by the caller

    CHUNK = 256             # candidates scored at a time
    TOP_MAX = 16
    TERMS_MAX = 4           # fit, job anti-affinity, reschedule penalty, affinity
    PARTS = 420             # a common multiple of 1 to 7

cdef double GRID = 1073741824.0     # 2**30
cdef double BEST_SCORE = 18.0
cdef double WORST = -1.0

ctypedef struct Candidate:
    int64_t free_cpu_mhz
    int64_t free_memory_mib
    int64_t free_disk_mib
    int64_t free_slots      # how many more allocations the node takes
    int64_t cpu_mhz         # supply
    int64_t memory_mib
    int64_t ask_cpu_mhz     # cores differ in speed from node to node
    int64_t affinity        # on the grid
    uint64_t tie
    int64_t total           # the scores without the spread, on the grid
    int32_t copies          # of the group on the node
    int32_t place           # number of its values of the spread attributes
    uint32_t version        # heap entries of older versions are void
    int8_t code
    uint8_t terms
    uint8_t penalised
    uint8_t out

ctypedef struct Entry:
    int64_t total
    uint64_t tie
    uint32_t index
    uint32_t version

ctypedef struct Heap:
    Entry* entries
    Py_ssize_t size
    Py_ssize_t room

ctypedef struct Block:
    # One spread block: values by number, those that nodes or wishes name.
    int64_t* counts
    uint8_t* occurs         # whether the count is one of those that are compared
    double* desired         # negative: not listed
    Py_ssize_t values
    bint targeted
    double rest             # what all values share that are not listed; negative: nothing
    double share            # of the weight
    int64_t unlisted        # sum of the counts of values that are not listed


cdef inline bint before(const Entry* one, const Entry* other) noexcept nogil:
    return one.total > other.total or (one.total == other.total and one.tie < other.tie)


cdef void sift_down(Heap* heap, Py_ssize_t hole) noexcept nogil:
    cdef Entry moved = heap.entries[hole]
    cdef Py_ssize_t child = 2 * hole + 1
    while child < heap.size:
        if child + 1 < heap.size and before(&heap.entries[child + 1], &heap.entries[child]):
            child += 1
        if not before(&heap.entries[child], &moved):
            break
        heap.entries[hole] = heap.entries[child]
        hole = child
        child = 2 * hole + 1
    heap.entries[hole] = moved


cdef void pop(Heap* heap) noexcept nogil:
    heap.size -= 1
    if heap.size:
        heap.entries[0] = heap.entries[heap.size]
        sift_down(heap, 0)


cdef int append(Heap* heap, Entry entry) noexcept nogil:
    """Put an entry behind the others, without order. Returns -1 without memory."""
    cdef Py_ssize_t room
    cdef Entry* entries
    if heap.size == heap.room:
        room = 2 * heap.room if heap.room else 8
        entries = <Entry*> realloc(heap.entries, room * sizeof(Entry))
        if entries == NULL:
            return -1
        heap.entries = entries
        heap.room = room
    heap.entries[heap.size] = entry
    heap.size += 1
    return 0


cdef int push(Heap* heap, Entry entry) noexcept nogil:
    cdef Py_ssize_t hole = heap.size
    cdef Py_ssize_t parent
    if append(heap, entry) < 0:
        return -1
    while hole:
        parent = (hole - 1) >> 1
        if not before(&entry, &heap.entries[parent]):
            break
        heap.entries[hole] = heap.entries[parent]
        hole = parent
    heap.entries[hole] = entry
    return 0


cdef inline double free_share(int64_t capacity, int64_t used) noexcept nogil:
    """What is left of a capacity, as a share; without capacity nothing is (schedulers 9.2)."""
    if capacity == 0:
        return 0.0 if used == 0 else (-300.0 if used > 0 else 300.0)
    return 1.0 - <double> used / <double> capacity


cdef class SpreadCounts:
    """The spread blocks of a group: how many allocations each value has, and what the next one would score (schedulers 9.7, strict rules)."""
    cdef Block* blocks
    cdef Py_ssize_t block_count
    cdef int32_t* places        # place × block → number of the value, -1 where the nodes lack the attribute
    cdef Py_ssize_t place_count

    def __cinit__(self, list blocks not None, const int32_t[:, ::1] places not None):
        """*blocks*: (counts, desired, rest, share) each; counts a list with None where a value does not occur yet, desired a list with None where it is
        not listed, or None without targets; rest a number or None. *places*: int32 (places, blocks), the values of each place.
        """
        cdef Py_ssize_t i, j
        cdef Block* block
        self.block_count = len(blocks)
        self.place_count = places.shape[0]
        if places.shape[1] != self.block_count:
            raise ValueError(f"{self.block_count} blocks and places with {places.shape[1]}")
        self.blocks = <Block*> calloc(self.block_count or 1, sizeof(Block))
        self.places = <int32_t*> malloc((self.place_count * self.block_count or 1) * sizeof(int32_t))
        if self.blocks == NULL or self.places == NULL:
            raise MemoryError("no memory for spread counts")
        for i, (counts, desired, rest, share) in enumerate(blocks):
            block = &self.blocks[i]
            block.values = len(counts)
            block.counts = <int64_t*> calloc(block.values or 1, sizeof(int64_t))
            block.occurs = <uint8_t*> calloc(block.values or 1, 1)
            block.desired = <double*> calloc(block.values or 1, sizeof(double))
            if block.counts == NULL or block.occurs == NULL or block.desired == NULL:
                raise MemoryError("no memory for spread counts")
            block.targeted = desired is not None
            block.rest = -1.0 if rest is None else rest
            block.share = share
            for j in range(block.values):
                block.desired[j] = -1.0 if desired is None or desired[j] is None else desired[j]
            self._set(block, counts)
        for i in range(self.place_count):
            for j in range(self.block_count):
                if not -1 <= places[i, j] < self.blocks[j].values:
                    raise ValueError(f"value {places[i, j]} of block {j} does not exist")
                self.places[i * self.block_count + j] = places[i, j]

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.block_count if self.blocks != NULL else 0):
            free(self.blocks[i].counts)
            free(self.blocks[i].occurs)
            free(self.blocks[i].desired)
        free(self.blocks)
        free(self.places)

    cdef int _set(self, Block* block, list counts) except -1:
        cdef Py_ssize_t j
        if len(counts) != block.values:
            raise ValueError(f"{block.values} values and {len(counts)} counts")
        block.unlisted = 0
        for j in range(block.values):
            block.occurs[j] = counts[j] is not None
            block.counts[j] = counts[j] or 0
            if block.desired[j] < 0:
                block.unlisted += block.counts[j]
        return 0

    def set_counts(self, list counts not None):
        """Count anew: a list a block, None where a value does not occur."""
        cdef Py_ssize_t i
        for i in range(self.block_count):
            self._set(&self.blocks[i], counts[i])

    def count(self, int32_t place):
        """Count one more allocation on a node of a place."""
        if not 0 <= place < self.place_count:
            raise IndexError(place)
        self.add(place)

    cdef void add(self, int32_t place) noexcept nogil:
        cdef Py_ssize_t i
        cdef int32_t value
        for i in range(self.block_count):
            value = self.places[place * self.block_count + i]
            if value >= 0:
                self.blocks[i].counts[value] += 1
                self.blocks[i].occurs[value] = 1
                if self.blocks[i].desired[value] < 0:
                    self.blocks[i].unlisted += 1

    cdef double lowest(self) noexcept nogil:
        """The lowest score of any listed value: that of a value of which nothing is wanted."""
        cdef double lowest = WORST
        cdef double boost
        cdef Py_ssize_t i, j
        cdef Block* block
        for i in range(self.block_count):
            block = &self.blocks[i]
            for j in range(block.values if block.targeted else 0):
                if block.desired[j] > 0:
                    boost = (block.desired[j] - <double> (block.counts[j] + 1)) / block.desired[j] * block.share
                    if boost < lowest:
                        lowest = boost
        return lowest

    cdef void score_all(self, double* scores) noexcept nogil:
        """Write the score of each place."""
        cdef Py_ssize_t i, j, place
        cdef Block* block
        cdef double lowest = self.lowest()
        cdef double score, desired
        cdef int64_t least, most, used
        cdef bint any_occurs
        cdef int32_t value
        for place in range(self.place_count):
            scores[place] = 0.0
        for i in range(self.block_count):
            block = &self.blocks[i]
            any_occurs = False
            least = most = 0
            if not block.targeted:
                for j in range(block.values):
                    if block.occurs[j]:
                        if not any_occurs or block.counts[j] < least:
                            least = block.counts[j]
                        if not any_occurs or block.counts[j] > most:
                            most = block.counts[j]
                        any_occurs = True
            for place in range(self.place_count):
                value = self.places[place * self.block_count + i]
                if value < 0:
                    score = WORST
                elif block.targeted:
                    desired, used = block.desired[value], block.counts[value]
                    if desired < 0:
                        desired, used = block.rest, block.unlisted
                    if desired < 0:
                        score = WORST
                    elif desired == 0:
                        score = lowest
                    else:
                        score = (desired - <double> (used + 1)) / desired * block.share
                elif not any_occurs:
                    score = 0.0
                elif block.counts[value] != least:
                    score = WORST if least == 0 else <double> (least - block.counts[value]) / <double> least
                elif least == most:
                    score = WORST
                else:
                    score = 1.0 if least == 0 else <double> (most - least) / <double> least
                scores[place] += score


cdef class Ranking:
    """Candidates for one group in the order of their scores."""
    cdef Candidate* candidates
    cdef readonly Py_ssize_t count
    cdef Heap* heaps
    cdef Py_ssize_t heap_count
    cdef double* place_scores
    cdef NodeTable table
    cdef uint32_t* rows
    cdef SpreadCounts spreads
    cdef int64_t memory_mib
    cdef int64_t disk_mib
    cdef int32_t group_count
    cdef int64_t fit_steps
    cdef bint spread
    cdef bint has_affinity
    cdef bint distinct

    def __cinit__(
        self,
        NodeTable table not None,
        const uint32_t[::1] rows not None,
        const uint64_t[::1] ties not None,
        const int64_t[::1] ask_cpu_mhz not None,
        int64_t memory_mib,
        int64_t disk_mib,
        *,
        int32_t group_count,
        int64_t fit_steps,
        bint spread,
        bint distinct,
        const int32_t[::1] copies not None,
        const int64_t[::1] affinities=None,
        SpreadCounts spreads=None,
        const int32_t[::1] places=None,
    ):
        """Candidates are the nodes in *rows* of *table*, which must all be regular; all arrays have one entry for each.

        *ties*: what tells equal ones apart, all different. *fit_steps*: how finely the fit counts. *distinct*: no node takes two of the group.
        *copies*: of the group on each node. *affinities*: scores on the grid, or None. *places*: which place of *spreads* each node is.
        """
        cdef Py_ssize_t i
        cdef const NodeRow* row
        cdef Candidate* candidate
        self.count = rows.shape[0]
        for each in (ties.shape[0], ask_cpu_mhz.shape[0], copies.shape[0]):
            if each != self.count:
                raise ValueError(f"{self.count} rows and {each} entries")
        if (affinities is not None and affinities.shape[0] != self.count) or (spreads is not None and (places is None or places.shape[0] != self.count)):
            raise ValueError("affinities and places need one entry for each row")
        self.table = table
        self.spreads = spreads
        self.memory_mib = memory_mib
        self.disk_mib = disk_mib
        self.group_count = group_count if group_count > 1 else 1
        if fit_steps < 1:
            raise ValueError(f"{fit_steps} steps")
        self.fit_steps = fit_steps
        self.spread = spread
        self.has_affinity = affinities is not None
        self.distinct = distinct
        self.heap_count = TERMS_MAX * (1 if spreads is None else spreads.place_count)
        self.candidates = <Candidate*> calloc(self.count or 1, sizeof(Candidate))
        self.rows = <uint32_t*> malloc((self.count or 1) * sizeof(uint32_t))
        self.heaps = <Heap*> calloc(self.heap_count or 1, sizeof(Heap))
        self.place_scores = <double*> calloc(self.heap_count or 1, sizeof(double))
        if self.candidates == NULL or self.rows == NULL or self.heaps == NULL or self.place_scores == NULL:
            raise MemoryError("no memory for candidates")
        for i in range(self.count):
            if rows[i] >= table.row_count:
                raise ValueError(f"node row {rows[i]} does not exist")
            if spreads is not None and not 0 <= places[i] < spreads.place_count:
                raise ValueError(f"place {places[i]} does not exist")
            row = table.row_at(rows[i])
            if row.irregular or row.flags & ROW_PORTS_UNUSABLE or not row.flags & ROW_PRESENT:
                raise ValueError(f"node row {rows[i]} is not regular")
            candidate = &self.candidates[i]
            self.rows[i] = rows[i]
            candidate.cpu_mhz = row.cpu_mhz
            candidate.memory_mib = row.memory_mib
            candidate.ask_cpu_mhz = ask_cpu_mhz[i]
            candidate.tie = ties[i]
            candidate.copies = copies[i]
            candidate.affinity = affinities[i] if affinities is not None else 0
            candidate.place = places[i] if spreads is not None else 0
            self._read_row(i)
        if self._rank_all() < 0:
            raise MemoryError("no memory for candidates")

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.heaps != NULL:
            for i in range(self.heap_count):
                free(self.heaps[i].entries)
        free(self.heaps)
        free(self.candidates)
        free(self.rows)
        free(self.place_scores)

    cdef void _read_row(self, Py_ssize_t index) noexcept nogil:
        cdef const NodeRow* row = self.table.row_at(self.rows[index])
        cdef Candidate* candidate = &self.candidates[index]
        candidate.free_cpu_mhz = row.free_cpu_mhz
        candidate.free_memory_mib = row.free_memory_mib
        candidate.free_disk_mib = row.free_disk_mib
        candidate.free_slots = row.max_allocs - row.alloc_count if row.max_allocs else INT64_MAX

    cdef int8_t _code(self, const Candidate* candidate) noexcept nogil:
        """Why one more does not fit, in the order of plan-apply 2.2."""
        if candidate.out or (self.distinct and candidate.copies):
            return OUT
        if candidate.free_slots < 1:
            return MAX_ALLOCS
        if candidate.free_cpu_mhz < candidate.ask_cpu_mhz:
            return CPU
        if candidate.free_memory_mib < self.memory_mib:
            return MEMORY
        if candidate.free_disk_mib < self.disk_mib:
            return DISK
        return FITS

    cdef double _anti_affinity(self, const Candidate* candidate) noexcept nogil:
        return <double> (-(candidate.copies + 1)) / <double> self.group_count

    cdef void _total(self, Candidate* candidate, double fit) noexcept nogil:
        candidate.total = llrint(fit / BEST_SCORE * self.fit_steps) * (<int64_t> GRID // self.fit_steps)
        candidate.terms = 1
        if candidate.copies:
            candidate.total += llrint(self._anti_affinity(candidate) * GRID)
            candidate.terms += 1
        if candidate.penalised:
            candidate.total += llrint(-1.0 * GRID)
            candidate.terms += 1
        if self.has_affinity:
            candidate.total += candidate.affinity
            candidate.terms += 1

    cdef Entry _entry(self, Py_ssize_t index) noexcept nogil:
        cdef Entry entry
        entry.total = self.candidates[index].total
        entry.tie = self.candidates[index].tie
        entry.index = <uint32_t> index
        entry.version = self.candidates[index].version
        return entry

    cdef inline Heap* _heap(self, const Candidate* candidate) noexcept nogil:
        return &self.heaps[candidate.place * TERMS_MAX + candidate.terms - 1]

    cdef double _fit(self, const Candidate* candidate) noexcept nogil:
        cdef double cpu_free = free_share(candidate.cpu_mhz, candidate.cpu_mhz - candidate.free_cpu_mhz + candidate.ask_cpu_mhz)
        cdef double memory_free = free_share(candidate.memory_mib, candidate.memory_mib - candidate.free_memory_mib + self.memory_mib)
        cdef double score
        fastplan_scores(&cpu_free, &memory_free, &score, 1, self.spread)
        return score

    cdef int _rank_all(self) noexcept nogil:
        cdef double[CHUNK] cpu_free
        cdef double[CHUNK] memory_free
        cdef double[CHUNK] scores
        cdef Candidate* candidate
        cdef Py_ssize_t start = 0
        cdef Py_ssize_t size, i
        while start < self.count:
            size = min(<Py_ssize_t> CHUNK, self.count - start)
            for i in range(size):
                candidate = &self.candidates[start + i]
                cpu_free[i] = free_share(candidate.cpu_mhz, candidate.cpu_mhz - candidate.free_cpu_mhz + candidate.ask_cpu_mhz)
                memory_free[i] = free_share(candidate.memory_mib, candidate.memory_mib - candidate.free_memory_mib + self.memory_mib)
            fastplan_scores(cpu_free, memory_free, scores, size, self.spread)
            for i in range(size):
                candidate = &self.candidates[start + i]
                candidate.code = self._code(candidate)
                if candidate.code == FITS:
                    self._total(candidate, scores[i])
                    if append(self._heap(candidate), self._entry(start + i)) < 0:
                        return -1
            start += size
        for i in range(self.heap_count):
            for start in range((self.heaps[i].size >> 1) - 1, -1, -1):
                sift_down(&self.heaps[i], start)
        return 0

    cdef int _rank(self, Py_ssize_t index) noexcept nogil:
        """Work out a candidate anew."""
        cdef Candidate* candidate = &self.candidates[index]
        candidate.version += 1
        candidate.code = self._code(candidate)
        if candidate.code != FITS:
            return 0
        self._total(candidate, self._fit(candidate))
        return push(self._heap(candidate), self._entry(index))

    cdef Py_ssize_t _best(self, int64_t* best_key) noexcept nogil:
        """The candidate with the greatest key, -1 without any."""
        cdef Py_ssize_t best = -1
        cdef Py_ssize_t i
        cdef Heap* heap
        cdef Entry* top
        cdef int64_t key
        cdef uint64_t best_tie = 0
        if self.spreads is not None:
            self.spreads.score_all(self.place_scores)
        for i in range(self.heap_count):
            heap = &self.heaps[i]
            while heap.size and heap.entries[0].version != self.candidates[heap.entries[0].index].version:
                pop(heap)
            if not heap.size:
                continue
            top = &heap.entries[0]
            key = self._key(&self.candidates[top.index])
            if best < 0 or key > best_key[0] or (key == best_key[0] and top.tie < best_tie):
                best = top.index
                best_key[0] = key
                best_tie = top.tie
        return best

    cdef int64_t _key(self, const Candidate* candidate) noexcept nogil:
        """The key of a candidate that fits; the spread scores are those of the last look."""
        cdef double score = 0.0 if self.spreads is None else self.place_scores[candidate.place]
        if score != 0.0:
            return (candidate.total + llrint(score * GRID)) * (PARTS // (candidate.terms + 1))
        return candidate.total * (PARTS // candidate.terms)

    cdef int _take(self, Py_ssize_t index) noexcept nogil:
        cdef Candidate* candidate = &self.candidates[index]
        candidate.free_cpu_mhz -= candidate.ask_cpu_mhz
        candidate.free_memory_mib -= self.memory_mib
        candidate.free_disk_mib -= self.disk_mib
        if candidate.free_slots != INT64_MAX:
            candidate.free_slots -= 1
        candidate.copies += 1
        if self.spreads is not None:
            self.spreads.add(candidate.place)
        return self._rank(index)

    cdef Candidate* _at(self, Py_ssize_t index) except NULL:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return &self.candidates[index]

    def best(self):
        """Return (index, key, tie) of the best candidate, None if nothing fits anywhere."""
        cdef int64_t key = 0
        cdef Py_ssize_t index = self._best(&key)
        return None if index < 0 else (index, key, self.candidates[index].tie)

    def top(self, Py_ssize_t count):
        """Return up to *count* candidates that fit, at most 16, the best ones first."""
        cdef Entry[TOP_MAX] best        # `total` holds the key
        cdef Entry entry
        cdef Py_ssize_t found = 0
        cdef Py_ssize_t i, place
        if not 0 <= count <= TOP_MAX:
            raise ValueError(f"{count} candidates, at most {TOP_MAX} are told")
        if self.spreads is not None:
            self.spreads.score_all(self.place_scores)
        for i in range(self.count if count else 0):
            if self.candidates[i].code != FITS:
                continue
            entry = self._entry(i)
            entry.total = self._key(&self.candidates[i])
            if found == count and not before(&entry, &best[count - 1]):
                continue
            place = found if found < count else count - 1
            found = place + 1 if found < count else found
            while place and before(&entry, &best[place - 1]):
                best[place] = best[place - 1]
                place -= 1
            best[place] = entry
        return [best[i].index for i in range(found)]

    def place(self, uint32_t[::1] chosen not None):
        """Place as many as *chosen* (uint32) has room for, each on the best candidate of its turn; write their indexes and return how many there are."""
        cdef Py_ssize_t placed = 0
        cdef Py_ssize_t index
        cdef int64_t key = 0
        cdef int failed = 0
        with nogil:
            while placed < chosen.shape[0]:
                index = self._best(&key)
                if index < 0:
                    break
                chosen[placed] = <uint32_t> index
                placed += 1
                failed = self._take(index)
                if failed:
                    break
        if failed:
            raise MemoryError("no memory for candidates")
        return placed

    def update(self, Py_ssize_t index, int64_t cpu_mhz, int64_t memory_mib, int64_t disk_mib, int64_t slots, int32_t copies):
        """Say what else than the row says is free on a candidate, as differences, and how many of the group are there."""
        cdef Candidate* candidate = self._at(index)
        self._read_row(index)
        candidate.free_cpu_mhz += cpu_mhz
        candidate.free_memory_mib += memory_mib
        candidate.free_disk_mib += disk_mib
        if candidate.free_slots != INT64_MAX:
            candidate.free_slots += slots
        candidate.copies = copies
        if self._rank(index) < 0:
            raise MemoryError("no memory for candidates")

    def set_penalised(self, Py_ssize_t index, bint penalised):
        """Say whether an earlier version of the allocation failed on a candidate."""
        self._at(index).penalised = penalised
        if self._rank(index) < 0:
            raise MemoryError("no memory for candidates")

    def set_left_out(self, Py_ssize_t index, bint left_out):
        """Take a candidate out, or back in."""
        self._at(index).out = left_out
        if self._rank(index) < 0:
            raise MemoryError("no memory for candidates")

    def scores(self, Py_ssize_t index):
        """Return the scores of a candidate as it stands: fit, job anti-affinity, penalty, spread; 0 where one does not count."""
        cdef Candidate* candidate = self._at(index)
        if self.spreads is not None:
            self.spreads.score_all(self.place_scores)
        return (
            self._fit(candidate) / BEST_SCORE,
            self._anti_affinity(candidate) if candidate.copies else 0.0,
            -1.0 if candidate.penalised else 0.0,
            0.0 if self.spreads is None else self.place_scores[candidate.place],
        )

    def codes(self, int8_t[::1] codes not None):
        """Write why one more does not fit each candidate (int8): a Reason number, or 127 for one that is left out."""
        cdef Py_ssize_t i
        if codes.shape[0] != self.count:
            raise ValueError(f"{self.count} candidates and room for {codes.shape[0]}")
        for i in range(self.count):
            codes[i] = self.candidates[i].code


def regular_rows(NodeTable table not None, const uint32_t[::1] rows not None, uint8_t[::1] regular not None, int64_t[::1] core_mhz not None):
    """Write for each row whether kernels can judge it (uint8) and the speed of its cores (int64), 0 where they differ; 2 marks rows that nothing fits."""
    cdef Py_ssize_t i
    cdef const NodeRow* row
    if regular.shape[0] != rows.shape[0] or core_mhz.shape[0] != rows.shape[0]:
        raise ValueError("one entry for each row")
    for i in range(rows.shape[0]):
        if rows[i] >= table.row_count:
            raise ValueError(f"node row {rows[i]} does not exist")
        row = table.row_at(rows[i])
        regular[i] = 2 if row.flags & ROW_PORTS_UNUSABLE else not row.irregular
        core_mhz[i] = row.supply.core_mhz


def fitting_rows(
    NodeTable table not None, const uint32_t[::1] rows not None, int64_t cpu_mhz, int64_t memory_mib, int64_t disk_mib, int64_t[:, ::1] taken not None,
    uint8_t[::1] fits not None,
):
    """Write whether an ask fits each row beside what is *taken* there already: 1 or 0, and 2 where no kernel can tell (uint8).

    *taken*: int64 (4, n): MHz, MiB, MiB of disk, allocations; where the ask fits, it is added.
    """
    cdef Py_ssize_t i
    cdef const NodeRow* row
    if fits.shape[0] != rows.shape[0] or taken.shape[0] != 4 or taken.shape[1] != rows.shape[0]:
        raise ValueError("one entry for each row")
    for i in range(rows.shape[0]):
        if rows[i] >= table.row_count:
            raise ValueError(f"node row {rows[i]} does not exist")
    with nogil:
        for i in range(rows.shape[0]):
            row = table.row_at(rows[i])
            if row.irregular or row.flags & ROW_PORTS_UNUSABLE or not row.flags & ROW_PRESENT:
                fits[i] = 2
                continue
            fits[i] = (
                (not row.max_allocs or row.alloc_count + taken[3, i] < row.max_allocs)
                and row.free_cpu_mhz - taken[0, i] >= cpu_mhz
                and row.free_memory_mib - taken[1, i] >= memory_mib
                and row.free_disk_mib - taken[2, i] >= disk_mib
            )
            if fits[i]:
                taken[0, i] += cpu_mhz
                taken[1, i] += memory_mib
                taken[2, i] += disk_mib
                taken[3, i] += 1


def tie_keys(uint64_t seed, const uint32_t[::1] rows not None, uint64_t[::1] keys not None):
    """Write `ties.tie_key` of each row."""
    cdef Py_ssize_t i
    cdef uint64_t mixed
    if keys.shape[0] != rows.shape[0]:
        raise ValueError("one entry for each row")
    with nogil:
        for i in range(rows.shape[0]):
            mixed = seed ^ ((<uint64_t> rows[i] + 1) * <uint64_t> 0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> 30)) * <uint64_t> 0xBF58476D1CE4E5B9
            mixed = (mixed ^ (mixed >> 27)) * <uint64_t> 0x94D049BB133111EB
            keys[i] = mixed ^ (mixed >> 31)
