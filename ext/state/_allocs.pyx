"""The table of allocations, for its one writer; the layout stands in `_alloc_view.pxd`, the idea in docs/architecture.md, "State".

Cost of a new allocation: one identity, one row, one slot of the id index, its claims, and one row and claims of the node table. The loops go over a
batch several times, so that the cache lines of a pass are on their way while the one before it still works.
"""

import numpy

from fastplan.errors import InvalidInput, StateError

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy, memset

from fastplan.columns._blocks cimport PAGE_SHIFT, PAGE_SLOTS, Block, BlockArray, Pin, payload
from fastplan.columns._ids cimport format_key, parse_key
from fastplan.fit._kernels cimport ASK_IRREGULAR, Ask
from fastplan.fit._nodes cimport ROW_SHIFT as NODE_SHIFT, NodeTable
from fastplan.state._alloc_view cimport (
    ALLOC_DEAD, ALLOC_IRREGULAR, ALLOC_UNSORTED, CLAIM_MASK, CLIENT_STATUSES, DESIRED_EVICT, DESIRED_RUN, DESIRED_STOP, GONE, GROUP_MASK, GROUP_SHIFT, KEEP,
    LIVE, NONE, REF_MASK, REF_SHIFT, ROW_MASK, ROW_SHIFT, STOPPING, AllocIdentity, AllocMemory, AllocRow, AllocView, EvalRun, GroupRow, Stamp, check_width,
    grow, state_of,
)

cdef extern from *:
    """
    #define fastplan_prefetch(address) __builtin_prefetch((address), 1, 3)
    """
    void fastplan_prefetch(const void* address) nogil

cdef enum:
    ROW_BYTES = (ROW_MASK + 1) * sizeof(AllocRow)
    GROUP_BYTES = (GROUP_MASK + 1) * sizeof(GroupRow)
    REF_BYTES = (REF_MASK + 1) * sizeof(uint32_t)
    CLAIMS_MAX = CLAIM_MASK - 1     # claims of one allocation: a list lies in one chunk

    WASTE_MIN = 1024
    AHEAD = 16                      # rows between asking for memory and using it


cdef int check_length(str name, Py_ssize_t length, Py_ssize_t count, bint may_be_one) except -1:
    if length != count and not (may_be_one and length == 1):
        raise ValueError(f"{name}: {length} entries for {count} rows")
    return 0


cdef class AllocTable(AllocView):
    """All allocations, and what they use of the nodes in a node table. The one writer keeps both equal to each other at all times."""

    def __init__(self, NodeTable nodes not None, uint32_t generation=0):
        """Start an empty table over the node table *nodes*, in whose domain its blocks live too."""
        self.nodes = nodes
        self.domain = nodes.blocks.domain
        self.generation = generation
        self.memory = AllocMemory()
        self.unused_versions = []
        self.rows = BlockArray(self.domain)
        self.groups = BlockArray(self.domain)
        self.refs = BlockArray(self.domain)

    def view(self, Pin pin not None):
        """Return the table as it is now, frozen, in O(1). *pin* must be the newest of its domain, taken after the last write."""
        cdef AllocView view = AllocView.__new__(AllocView)
        view.count = self.count
        view.dead_count = self.dead_count
        view.generation = self.generation
        view.memory = self.memory
        view.rows = self.rows.view(pin)
        view.groups = self.groups.view(pin)
        view.refs = self.refs.view(pin)
        return view

    cdef AllocRow* writable(self, uint32_t row) except NULL:
        return <AllocRow*> payload(self.rows.writable(row >> ROW_SHIFT, 0)) + (row & ROW_MASK)

    cdef GroupRow* writable_group(self, uint32_t group_row) except NULL:
        while group_row >> GROUP_SHIFT >= self.groups.length:
            self.groups.append(GROUP_BYTES)
        return <GroupRow*> payload(self.groups.writable(group_row >> GROUP_SHIFT, 0)) + (group_row & GROUP_MASK)

    # --- numbers that rows refer to -------------------------------------------------------------------------------

    def stamp(self, uint64_t index, int64_t time_ns):
        """Return the number of the pair (index of the log, Unix nanoseconds): rows refer to it instead of repeating it."""
        cdef AllocMemory memory = self.memory
        cdef uint32_t last = memory.stamp_count - 1
        if memory.stamp_count > 0 and memory.stamps[last].index == index and memory.stamps[last].time_ns == time_ns:
            return last
        if memory.stamp_count == NONE:
            raise MemoryError("no room for more stamps")
        grow(<void**> &memory.stamps, &memory.stamp_room, memory.stamp_count + 1, sizeof(Stamp), 0)
        memory.stamps[memory.stamp_count].index = index
        memory.stamps[memory.stamp_count].time_ns = time_ns
        memory.stamp_count += 1
        return memory.stamp_count - 1

    def add_stamps(self, const uint64_t[::1] indexes not None, const int64_t[::1] times_ns not None):
        """Add stamps, whether or not some of them are equal, and return their numbers: uint32 (n)."""
        cdef AllocMemory memory = self.memory
        cdef Py_ssize_t i
        check_length("times_ns", times_ns.shape[0], indexes.shape[0], False)
        if memory.stamp_count + <uint64_t> indexes.shape[0] >= NONE:
            raise MemoryError("no room for more stamps")
        grow(<void**> &memory.stamps, &memory.stamp_room, memory.stamp_count + <uint32_t> indexes.shape[0], sizeof(Stamp), 0)
        for i in range(indexes.shape[0]):
            memory.stamps[memory.stamp_count].index = indexes[i]
            memory.stamps[memory.stamp_count].time_ns = times_ns[i]
            memory.stamp_count += 1
        return numpy.arange(memory.stamp_count - indexes.shape[0], memory.stamp_count, dtype=numpy.uint32)

    def set_shape(self, uint32_t row, int64_t cpu_mhz, int64_t memory_mib, int64_t memory_max_mib, int64_t disk_mib, bint irregular=False):
        """Say what an allocation of the shape in *row* asks of its node: MHz and MiB. A shape never changes. Raises StateError if it would."""
        cdef AllocMemory memory = self.memory
        cdef Ask ask
        memset(&ask, 0, sizeof(Ask))
        ask.cpu_mhz = cpu_mhz
        ask.memory_mib = memory_mib
        ask.memory_max_mib = memory_max_mib
        ask.disk_mib = disk_mib
        ask.count = 1
        ask.flags = ASK_IRREGULAR if irregular else 0
        if row < memory.shape_count and memcmp(&memory.shapes[row], &ask, sizeof(Ask)) != 0:
            raise StateError(f"shape row {row} is taken")
        memory.grow_shared(<void**> &memory.shapes, &memory.shape_room, row + 1, sizeof(Ask))
        memory.shapes[row] = ask
        memory.shape_count = max(memory.shape_count, row + 1)

    def intern_node(self, str node_id not None):
        """Return the ref of a node id, whether such a node exists or not."""
        cdef uint8_t key[16]
        parse_key(node_id, key)
        return self.intern_node_key(key)

    cdef uint32_t intern_node_key(self, const uint8_t* key) except? 0xFFFFFFFF:
        cdef AllocMemory memory = self.memory
        cdef uint32_t ref = <uint32_t> memory.nodes.intern_key(key)
        cdef uint32_t room = memory.node_room
        if ref >= memory.node_room:
            grow(<void**> &memory.node_heads, &room, ref + 1, sizeof(uint32_t), 0xFF)
            grow(<void**> &memory.node_rows, &memory.node_room, ref + 1, sizeof(uint32_t), 0xFF)
        return ref

    def intern_eval(self, str eval_id not None):
        """Return the ref of an evaluation id; NO_ROW for an empty id."""
        cdef uint8_t key[16]
        if not eval_id:
            return <uint32_t> NONE
        parse_key(eval_id, key)
        return self.intern_eval_key(key)

    cdef uint32_t intern_eval_key(self, const uint8_t* key) except? 0xFFFFFFFF:
        cdef uint32_t ref = <uint32_t> self.memory.evals.intern_key(key)
        grow(<void**> &self.memory.eval_heads, &self.memory.eval_room, ref + 1, sizeof(uint32_t), 0xFF)
        return ref

    def refs_of_rows(self, const uint32_t[::1] node_rows not None):
        """Return the refs of the nodes in many rows of the node table, uint32 (n); NO_ROW where a row holds none."""
        refs = numpy.empty(node_rows.shape[0], numpy.uint32)
        cdef uint32_t[::1] out = refs
        cdef Py_ssize_t i
        for i in range(node_rows.shape[0]):
            out[i] = self.ref_of_node(node_rows[i])
        return refs

    def intern_node_keys(self, const uint8_t[:, ::1] keys not None):
        """Return the refs of many node ids, given as keys uint8 (n, 16): uint32 (n)."""
        cdef Py_ssize_t i
        check_width(keys)
        refs = numpy.empty(keys.shape[0], numpy.uint32)
        cdef uint32_t[::1] out = refs
        for i in range(keys.shape[0]):
            out[i] = self.intern_node_key(&keys[i, 0])
        return refs

    def intern_eval_keys(self, const uint8_t[:, ::1] keys not None):
        """Return the refs of many evaluation ids, given as keys uint8 (n, 16): uint32 (n)."""
        cdef Py_ssize_t i
        check_width(keys)
        refs = numpy.empty(keys.shape[0], numpy.uint32)
        cdef uint32_t[::1] out = refs
        for i in range(keys.shape[0]):
            out[i] = self.intern_eval_key(&keys[i, 0])
        return refs

    def bind_node(self, uint32_t ref, uint32_t node_row, bint counted=False):
        """The node of *ref* now stands in *node_row* of the node table: count what its allocations use there, unless it is counted already."""
        cdef uint32_t* block
        if ref >= self.memory.nodes.count:
            raise StateError(f"node ref {ref} does not exist")
        while node_row >> REF_SHIFT >= self.refs.length:
            self.refs.append(REF_BYTES)
        block = <uint32_t*> payload(self.refs.writable(node_row >> REF_SHIFT, 0))
        block[node_row & REF_MASK] = ref + 1
        self.memory.node_rows[ref] = node_row
        if not counted:
            self.recount_node(ref)

    def bound_nodes(self):
        """Return [(ref, node row)] of the nodes that exist, ascending by row."""
        cdef uint32_t ref
        bound = [(self.memory.node_rows[ref], ref) for ref in range(self.memory.nodes.count) if self.memory.node_rows[ref] != NONE]
        return [(found, row) for row, found in sorted(bound)]

    @property
    def is_wasteful(self):
        """Whether so much of the table is of no use any more that it should be written anew: dead rows, outdated stamps, runs and claims."""
        cdef uint64_t alive = self.count - self.dead_count
        return (
            self.dead_count > WASTE_MIN and self.dead_count > alive
            or self.memory.stamp_count > 4 * alive + 64 * WASTE_MIN
            or self.memory.run_count > 4 * alive + 64 * WASTE_MIN
            or self.wasted_claims > self.memory.claims_end // 2 + 64 * WASTE_MIN
        )

    def unbind_node(self, uint32_t ref):
        """The node of *ref* is gone from the node table; its allocations stay and count nowhere."""
        cdef uint32_t node_row
        if ref >= self.memory.nodes.count or self.memory.node_rows[ref] == NONE:
            raise StateError(f"node ref {ref} is not bound")
        node_row = self.memory.node_rows[ref]
        (<uint32_t*> payload(self.refs.writable(node_row >> REF_SHIFT, 0)))[node_row & REF_MASK] = 0
        self.memory.node_rows[ref] = NONE

    def recount_node(self, uint32_t ref):
        """Add all allocations of a node to its row, which must be empty: after `bind_node`, or when a new supply emptied it."""
        cdef AllocRow* entry
        cdef uint32_t row
        if ref >= self.memory.nodes.count or self.memory.node_rows[ref] == NONE:
            raise StateError(f"node ref {ref} is not bound")
        row = self.memory.node_heads[ref]
        while row != NONE:
            entry = self.row(row)
            if not entry.flags & ALLOC_DEAD:
                self.recount(ref, entry, GONE, state_of(entry))
            row = self.memory.identity(row).older_on_node

    cdef int recount(self, uint32_t ref, const AllocRow* row, int before, int after) except -1:
        """Move an allocation on its node from one way of counting to another."""
        cdef uint32_t node_row = self.memory.node_rows[ref]
        cdef Ask ask
        if before == after or node_row == NONE:
            return 0
        self.ask_of(row, &ask)
        if before == GONE:
            self.nodes.add(node_row, &ask, after == STOPPING)
        elif after == GONE:
            self.nodes.remove(node_row, &ask, before == STOPPING)
        elif before == LIVE:
            self.nodes.stop(node_row, &ask)
        else:
            self.nodes.remove(node_row, &ask, True)
            self.nodes.add(node_row, &ask, False)
        return 0

    cdef int use_version(self, uint32_t version, int change) except -1:
        if version != NONE:
            grow(<void**> &self.memory.version_uses, &self.memory.version_room, version + 1, sizeof(uint32_t), 0)
            self.memory.version_uses[version] += change
            if change < 0 and self.memory.version_uses[version] == 0:
                self.unused_versions.append(version)
        return 0

    def take_unused_versions(self):
        """Return the job version rows whose last allocation has gone since the last call; some may have got another one since."""
        versions = self.unused_versions
        self.unused_versions = []
        return versions

    def version_uses(self, uint32_t version):
        """Return how many allocations use a job version row."""
        return self.memory.version_uses[version] if version < self.memory.version_room else 0

    cdef int note_eval(self, uint32_t ref, uint32_t row) except -1:
        """Remember that *row* carries an evaluation: extend the newest run of the evaluation or start another one."""
        cdef AllocMemory memory = self.memory
        cdef uint32_t head
        if ref == NONE:
            return 0
        head = memory.eval_heads[ref]
        if head != NONE and memory.runs[head].first + memory.runs[head].count == row:
            memory.runs[head].count += 1
            return 0
        grow(<void**> &memory.runs, &memory.run_room, memory.run_count + 1, sizeof(EvalRun), 0)
        memory.runs[memory.run_count].first = row
        memory.runs[memory.run_count].count = 1
        memory.runs[memory.run_count].older = head
        memory.eval_heads[ref] = memory.run_count
        memory.run_count += 1
        return 0

    # --- writing many rows ----------------------------------------------------------------------------------------

    def insert_rows(
        self, const uint32_t[::1] stamps not None, const uint8_t[:, ::1] ids not None, const uint32_t[::1] node_refs not None,
        const uint32_t[::1] group_rows not None, const uint32_t[::1] job_version_rows not None, const uint32_t[::1] eval_refs not None,
        const uint32_t[::1] shape_rows not None, const int32_t[::1] name_index not None, const uint8_t[::1] client_status not None,
        const uint32_t[::1] claim_offsets not None, const uint64_t[::1] claims not None, *,
        const uint8_t[::1] desired_status=None, const uint8_t[::1] irregular=None, const uint32_t[::1] extras=None, const uint32_t[::1] notes=None,
        const uint32_t[::1] create_stamps=None, const uint32_t[::1] alloc_modify_stamps=None,
    ):
        """Insert n new allocations and return the row of the first; the others follow.

        Every array has n entries; all but `ids` (n, 16), `node_refs` and `claim_offsets` (n + 1) may have one entry for all. Claims of row i are
        `claims[claim_offsets[i]:claim_offsets[i + 1]]`, in slot order of its shape, volumes behind. `extras` and `notes`: NO_ROW for none.
        Stamps are numbers from `stamp`; the create and alloc-modify stamps are the same if left out. `irregular`: not 0 where only the ordered reference
        can judge.

        Raises ValueError for arrays that do not belong together, StateError for a number that does not exist or an id that is stored already; then
        nothing has been inserted.
        """
        cdef Py_ssize_t n = ids.shape[0]
        cdef AllocMemory memory = self.memory
        cdef Py_ssize_t i
        cdef uint32_t row, first = self.count
        cdef int64_t old
        cdef AllocIdentity* identity
        cdef AllocRow* entry
        cdef GroupRow* group
        cdef uint32_t ref
        check_width(ids)
        check_length("node_refs", node_refs.shape[0], n, False)
        check_length("claim_offsets", claim_offsets.shape[0], n + 1, False)
        check_length("stamps", stamps.shape[0], n, True)
        check_length("group_rows", group_rows.shape[0], n, True)
        check_length("job_version_rows", job_version_rows.shape[0], n, True)
        check_length("eval_refs", eval_refs.shape[0], n, True)
        check_length("shape_rows", shape_rows.shape[0], n, True)
        check_length("name_index", name_index.shape[0], n, True)
        check_length("client_status", client_status.shape[0], n, True)
        if n == 0:
            return first
        if <uint64_t> first + n >= NONE:
            raise MemoryError("no room for more allocations")
        # How far each array advances from row to row: 0 where one entry stands for all.
        cdef Py_ssize_t d_stamp = stamps.shape[0] > 1, d_group = group_rows.shape[0] > 1, d_version = job_version_rows.shape[0] > 1
        cdef Py_ssize_t d_eval = eval_refs.shape[0] > 1, d_shape = shape_rows.shape[0] > 1, d_name = name_index.shape[0] > 1
        cdef Py_ssize_t d_client = client_status.shape[0] > 1
        cdef Py_ssize_t d_desired = 0, d_irregular = 0, d_extra = 0, d_note = 0, d_create = 0, d_alloc = 0
        if desired_status is not None:
            check_length("desired_status", desired_status.shape[0], n, True)
            d_desired = desired_status.shape[0] > 1
        if irregular is not None:
            check_length("irregular", irregular.shape[0], n, True)
            d_irregular = irregular.shape[0] > 1
        if extras is not None:
            check_length("extras", extras.shape[0], n, True)
            d_extra = extras.shape[0] > 1
        if notes is not None:
            check_length("notes", notes.shape[0], n, True)
            d_note = notes.shape[0] > 1
        if create_stamps is not None:
            check_length("create_stamps", create_stamps.shape[0], n, True)
            d_create = create_stamps.shape[0] > 1
        if alloc_modify_stamps is not None:
            check_length("alloc_modify_stamps", alloc_modify_stamps.shape[0], n, True)
            d_alloc = alloc_modify_stamps.shape[0] > 1
        for i in range(n):
            if node_refs[i] >= memory.nodes.count:
                raise StateError(f"row {i}: node ref {node_refs[i]} does not exist")
            if shape_rows[i * d_shape] >= memory.shape_count:
                raise StateError(f"row {i}: shape row {shape_rows[i * d_shape]} does not exist")
            if eval_refs[i * d_eval] != NONE and eval_refs[i * d_eval] >= memory.evals.count:
                raise StateError(f"row {i}: evaluation ref {eval_refs[i * d_eval]} does not exist")
            if client_status[i * d_client] >= CLIENT_STATUSES or (desired_status is not None and desired_status[i * d_desired] > DESIRED_EVICT):
                raise StateError(f"row {i}: no such status")
            if (
                stamps[i * d_stamp] >= memory.stamp_count
                or create_stamps is not None and create_stamps[i * d_create] >= memory.stamp_count
                or alloc_modify_stamps is not None and alloc_modify_stamps[i * d_alloc] >= memory.stamp_count
            ):
                raise StateError(f"row {i}: no such stamp")
            self.check_claims(i, claim_offsets, claims)
            if group_rows[i * d_group] >= memory.group_room:
                if group_rows[i * d_group] == NONE:
                    raise StateError(f"row {i}: an allocation needs a group")
                grow(<void**> &memory.group_heads, &memory.group_room, group_rows[i * d_group] + 1, sizeof(uint32_t), 0xFF)
                self.writable_group(group_rows[i * d_group])

        memory.reserve_identities(first + <uint32_t> n)
        memory.index.reserve(n)
        while <uint64_t> self.rows.length << ROW_SHIFT < first + <uint64_t> n:
            self.rows.append(ROW_BYTES)

        # First pass: identities, sequentially; the slots of the index are random.
        for i in range(n):
            identity = memory.identity(first + <uint32_t> i)
            memcpy(identity.key, &ids[i, 0], 16)
            memory.index.prefetch(&ids[i, 0])
            identity.node_ref = node_refs[i]
            identity.group_row = group_rows[i * d_group]
            identity.name_index = name_index[i * d_name]
            identity.create_stamp = create_stamps[i * d_create] if create_stamps is not None else stamps[i * d_stamp]
            fastplan_prefetch(&memory.node_heads[node_refs[i]])
            fastplan_prefetch(&memory.node_rows[node_refs[i]])

        # Second pass: the index.
        for i in range(n):
            row = first + <uint32_t> i
            old = memory.index.insert(&ids[i, 0], row)
            if old >= first or (old >= 0 and not self.row(<uint32_t> old).flags & ALLOC_DEAD):
                memory.index.insert(&ids[i, 0], <uint32_t> old)
                self.abandon(first, <uint32_t> n)
                raise StateError(f"allocation {format_key(&ids[i, 0])} is already stored")
            if old >= 0:
                memory.replaced[row] = old

        # Third pass: everything else; the rows of the nodes are random, and their claims are found through them.
        for i in range(min(n, AHEAD)):
            self.prefetch_node(node_refs[i], False)
        for i in range(n):
            if i + 2 * AHEAD < n and memory.node_rows[node_refs[i + 2 * AHEAD]] != NONE:
                fastplan_prefetch(slot_of(self.nodes.blocks, memory.node_rows[node_refs[i + 2 * AHEAD]] >> NODE_SHIFT))
            if i + AHEAD < n:
                self.prefetch_node(node_refs[i + AHEAD], False)
            if i + AHEAD // 2 < n:
                self.prefetch_node(node_refs[i + AHEAD // 2], True)
            row = first + <uint32_t> i
            ref = node_refs[i]
            identity = memory.identity(row)
            identity.older_on_node = memory.node_heads[ref]
            memory.node_heads[ref] = row
            identity.older_in_group = memory.group_heads[identity.group_row]
            memory.group_heads[identity.group_row] = row
            entry = self.writable(row)
            entry.modify_stamp = stamps[i * d_stamp]
            entry.alloc_modify_stamp = alloc_modify_stamps[i * d_alloc] if alloc_modify_stamps is not None else stamps[i * d_stamp]
            entry.desired = desired_status[i * d_desired] if desired_status is not None else DESIRED_RUN
            entry.client = client_status[i * d_client]
            entry.flags = ALLOC_IRREGULAR if irregular is not None and irregular[i * d_irregular] else 0
            entry.job_version_row = job_version_rows[i * d_version]
            entry.eval_ref = eval_refs[i * d_eval]
            entry.shape_row = shape_rows[i * d_shape]
            entry.extra = extras[i * d_extra] if extras is not None else <uint32_t> NONE
            entry.note = notes[i * d_note] if notes is not None else <uint32_t> NONE
            memory.store_claims(entry, &claims[claim_offsets[i]] if claim_offsets[i + 1] > claim_offsets[i] else NULL, claim_offsets[i + 1] - claim_offsets[i])
            self.use_version(entry.job_version_row, 1)
            self.note_eval(entry.eval_ref, row)
            group = self.writable_group(identity.group_row)
            group.clients[entry.client] += 1
            group.live += state_of(entry) == LIVE
            self.recount(ref, entry, GONE, state_of(entry))
        self.count = first + <uint32_t> n
        return first

    cdef int check_claims(self, Py_ssize_t i, const uint32_t[::1] claim_offsets, const uint64_t[::1] claims) except -1:
        if claim_offsets[i + 1] < claim_offsets[i] or claim_offsets[i + 1] > claims.shape[0]:
            raise ValueError(f"claim_offsets: entry {i + 1} is {claim_offsets[i + 1]}, of {claims.shape[0]} claims")
        if claim_offsets[i + 1] - claim_offsets[i] > CLAIMS_MAX:
            raise InvalidInput(f"allocation {i}", claim_offsets[i + 1] - claim_offsets[i], f"at most {CLAIMS_MAX} ports, cores, devices and volumes")
        return 0

    cdef int abandon(self, uint32_t first, uint32_t n) except -1:
        """Leave *n* rows behind dead: some of their ids are in the index already."""
        cdef uint32_t row
        for row in range(first, first + n):
            self.writable(row).flags = ALLOC_DEAD
        self.count = first + n
        self.dead_count += n
        return 0

    cdef int check_rows(self, const uint32_t[::1] rows, const uint32_t[::1] stamps) except -1:
        """Before anything changes: all rows must hold allocations."""
        cdef Py_ssize_t i
        check_length("stamps", stamps.shape[0], rows.shape[0], True)
        for i in range(rows.shape[0]):
            if rows[i] < self.count:
                fastplan_prefetch(self.row(rows[i]))
                fastplan_prefetch(memory_of(self, rows[i]))
        for i in range(rows.shape[0]):
            if rows[i] >= self.count or self.row(rows[i]).flags & ALLOC_DEAD:
                raise StateError(f"allocation row {rows[i]} does not exist")
            if stamps[i if stamps.shape[0] > 1 else 0] >= self.memory.stamp_count:
                raise StateError(f"stamp {stamps[i if stamps.shape[0] > 1 else 0]} does not exist")
        return 0

    cdef void prefetch_node(self, uint32_t ref, bint claims) noexcept nogil:
        """Ask for the memory of a node's row, or, some steps later, of its claims."""
        cdef uint32_t node_row = self.memory.node_rows[ref]
        if node_row == NONE:
            return
        if claims:
            self.nodes.prefetch_claims(node_row)
        else:
            self.nodes.prefetch(node_row)

    cdef void prefetch_ahead(self, const uint32_t[::1] rows, Py_ssize_t i) noexcept nogil:
        """Before row *i* of a batch is written: ask for what the rows behind it will touch, the farther ones first."""
        cdef const char* block
        cdef size_t line
        if i + 3 * AHEAD < rows.shape[0]:
            # A snapshot makes the whole block move.
            block = <const char*> self.rows.get(rows[i + 3 * AHEAD] >> ROW_SHIFT)
            for line in range(0, sizeof(Block) + ROW_BYTES, 64):
                fastplan_prefetch(block + line)
        if i + 2 * AHEAD < rows.shape[0]:
            self.prefetch_node(self.memory.identity(rows[i + 2 * AHEAD]).node_ref, False)
        if i + AHEAD < rows.shape[0]:
            self.prefetch_node(self.memory.identity(rows[i + AHEAD]).node_ref, True)

    cdef int set_status(self, uint32_t row, uint8_t desired, uint8_t client, uint32_t modify_stamp, uint32_t alloc_modify_stamp, uint32_t note) except -1:
        """Change the statuses of one row and all that is counted by them. KEEP, NONE: as it is."""
        cdef AllocRow* entry = self.writable(row)
        cdef AllocIdentity* identity = self.memory.identity(row)
        cdef int before = state_of(entry)
        cdef uint8_t client_before = entry.client
        cdef GroupRow* group
        if desired != KEEP:
            entry.desired = desired
        if client != KEEP:
            entry.client = client
        entry.modify_stamp = modify_stamp
        if alloc_modify_stamp != NONE:
            entry.alloc_modify_stamp = alloc_modify_stamp
        if note != NONE:
            entry.note = note
        if client_before != entry.client or before != state_of(entry):
            group = self.writable_group(identity.group_row)
            group.clients[client_before] -= 1
            group.clients[entry.client] += 1
            group.live += (state_of(entry) == LIVE) - (before == LIVE)
            self.recount(identity.node_ref, entry, before, state_of(entry))
        return 0

    def update_client_status(self, const uint32_t[::1] stamps not None, const uint32_t[::1] rows not None, const uint8_t[::1] statuses not None):
        """Set client statuses: rows uint32 (n), statuses uint8 (n), stamps uint32 (1 or n). The alloc-modify index stays, as for every word of a client.

        Raises ValueError, or StateError for a row or number that does not exist; then nothing has changed.
        """
        cdef Py_ssize_t i
        check_length("statuses", statuses.shape[0], rows.shape[0], True)
        self.check_rows(rows, stamps)
        for i in range(statuses.shape[0]):
            if statuses[i] >= CLIENT_STATUSES:
                raise StateError(f"client status {statuses[i]} does not exist")
        for i in range(rows.shape[0]):
            self.prefetch_ahead(rows, i)
            self.set_status(rows[i], KEEP, statuses[i if statuses.shape[0] > 1 else 0], stamps[i if stamps.shape[0] > 1 else 0], NONE, NONE)

    def stop_rows(
        self, const uint32_t[::1] stamps not None, const uint32_t[::1] rows not None, const uint32_t[::1] notes not None,
        const uint8_t[::1] client_status not None,
    ):
        """Tell allocations to stop (plan-apply 5.4, 6.10). rows uint32 (n); the others have 1 or n entries.

        *notes*: number of the stop note. *client_status*: a number, or 255 to keep what the client said last.
        Returns [(row, its note before, its extra)] of those that had a note or have an extra, for whoever wants to merge them.
        Raises ValueError, or StateError for a row or number that does not exist; then nothing has changed.
        """
        return self.end_rows(stamps, rows, notes, client_status, DESIRED_STOP)

    def preempt_rows(self, const uint32_t[::1] stamps not None, const uint32_t[::1] rows not None, const uint32_t[::1] notes not None):
        """Evict allocations in favour of others (plan-apply 5.4, 6.10); arguments and result as of `stop_rows`."""
        return self.end_rows(stamps, rows, notes, numpy.full(1, KEEP, numpy.uint8), DESIRED_EVICT)

    cdef list end_rows(
        self, const uint32_t[::1] stamps, const uint32_t[::1] rows, const uint32_t[::1] notes, const uint8_t[::1] client_status, uint8_t desired,
    ):
        cdef Py_ssize_t i
        cdef uint32_t stamp
        cdef list noted = []
        check_length("notes", notes.shape[0], rows.shape[0], True)
        check_length("client_status", client_status.shape[0], rows.shape[0], True)
        self.check_rows(rows, stamps)
        for i in range(client_status.shape[0]):
            if client_status[i] >= CLIENT_STATUSES and client_status[i] != KEEP:
                raise StateError(f"client status {client_status[i]} does not exist")
        for i in range(rows.shape[0]):
            self.prefetch_ahead(rows, i)
            stamp = stamps[i if stamps.shape[0] > 1 else 0]
            if self.row(rows[i]).note != NONE or self.row(rows[i]).extra != NONE:
                noted.append((rows[i], self.row(rows[i]).note, self.row(rows[i]).extra))
            self.set_status(rows[i], desired, client_status[i if client_status.shape[0] > 1 else 0], stamp, stamp, notes[i if notes.shape[0] > 1 else 0])
        return noted

    def set_note(self, uint32_t row, uint32_t note):
        """Set the number of the stop note of an allocation, NO_ROW for none."""
        self.check_row(row)
        self.writable(row).note = note

    def update_row(
        self, uint32_t row, uint32_t modify_stamp, uint32_t alloc_modify_stamp, uint8_t desired, uint8_t client, uint32_t job_version_row, uint32_t eval_ref,
        uint32_t shape_row, const uint64_t[::1] claims not None, bint irregular, uint32_t extra, uint32_t note,
    ):
        """Write one allocation anew, in place: an update that a plan or a record carries. Raises StateError as `insert_rows` does."""
        cdef AllocMemory memory = self.memory
        cdef AllocIdentity* identity
        cdef AllocRow* entry
        cdef GroupRow* group
        self.check_row(row)
        if shape_row >= memory.shape_count or client >= CLIENT_STATUSES or desired > DESIRED_EVICT:
            raise StateError(f"allocation row {row}: no such shape or status")
        if modify_stamp >= memory.stamp_count or alloc_modify_stamp >= memory.stamp_count:
            raise StateError(f"allocation row {row}: no such stamp")
        if eval_ref != NONE and eval_ref >= memory.evals.count:
            raise StateError(f"allocation row {row}: evaluation ref {eval_ref} does not exist")
        if claims.shape[0] > CLAIMS_MAX:
            raise InvalidInput(f"allocation row {row}", claims.shape[0], f"at most {CLAIMS_MAX} ports, cores, devices and volumes")
        identity = memory.identity(row)
        entry = self.writable(row)
        group = self.writable_group(identity.group_row)
        group.clients[entry.client] -= 1
        group.live -= state_of(entry) == LIVE
        self.recount(identity.node_ref, entry, state_of(entry), GONE)
        entry.modify_stamp = modify_stamp
        entry.alloc_modify_stamp = alloc_modify_stamp
        entry.desired = desired
        entry.client = client
        if job_version_row != entry.job_version_row:
            self.use_version(entry.job_version_row, -1)
            self.use_version(job_version_row, 1)
            entry.job_version_row = job_version_row
        if eval_ref != entry.eval_ref:
            self.note_eval(eval_ref, row)
            entry.eval_ref = eval_ref
        if not self.holds(entry, claims):
            self.wasted_claims += claims.shape[0]
            memory.store_claims(entry, &claims[0] if claims.shape[0] else NULL, <uint32_t> claims.shape[0])
        entry.flags = (entry.flags & ALLOC_UNSORTED) | (ALLOC_IRREGULAR if irregular else 0)
        entry.shape_row = shape_row
        entry.extra = extra
        entry.note = note
        group.clients[entry.client] += 1
        group.live += state_of(entry) == LIVE
        self.recount(identity.node_ref, entry, GONE, state_of(entry))

    cdef bint holds(self, const AllocRow* entry, const uint64_t[::1] claims) noexcept:
        """Whether *entry* has exactly these claims already."""
        cdef uint32_t count
        cdef uint64_t* words = self.memory.claims_of(entry, &count)
        return count == claims.shape[0] and (count == 0 or memcmp(words, &claims[0], count * sizeof(uint64_t)) == 0)

    def set_extra(self, uint32_t row, uint32_t extra):
        """Set the number of the extra of an allocation, NO_ROW for none."""
        self.check_row(row)
        self.writable(row).extra = extra

    def delete_rows(self, const uint32_t[::1] rows not None):
        """Forget allocations; a row is not used again in this generation. Returns the numbers of their extras.

        Raises StateError for a row that does not exist; then nothing has changed. A row that is listed twice is an error too.
        """
        cdef Py_ssize_t i
        cdef AllocRow* entry
        cdef AllocIdentity* identity
        cdef GroupRow* group
        cdef list extras = []
        for i in range(rows.shape[0]):
            self.check_row(rows[i])
        if len(set(rows)) != rows.shape[0]:
            raise StateError("an allocation row is listed twice")
        for i in range(rows.shape[0]):
            entry = self.writable(rows[i])
            identity = self.memory.identity(rows[i])
            group = self.writable_group(identity.group_row)
            group.clients[entry.client] -= 1
            group.live -= state_of(entry) == LIVE
            self.recount(identity.node_ref, entry, state_of(entry), GONE)
            self.use_version(entry.job_version_row, -1)
            if entry.extra != NONE:
                extras.append(entry.extra)
            entry.flags |= ALLOC_DEAD
            self.dead_count += 1
        return extras


cdef inline const void* slot_of(BlockArray array, Py_ssize_t i) noexcept nogil:
    """Return where the directory says where block *i* is."""
    return (<Block**> payload((<Block**> payload(array.root))[i >> PAGE_SHIFT])) + (i & (PAGE_SLOTS - 1))


cdef inline const void* memory_of(AllocTable table, uint32_t row) noexcept nogil:
    return table.memory.identity(row)
