"""Compiled verification of plans; the rules stand in plan-apply.md 5.2, the columns in `state/_plan_view.pxd`.

Everything here runs under the interpreter lock, so the scratch memory is shared by all calls.
"""

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memset

from fastplan.columns._ids cimport hash_key
from fastplan.fit._kernels cimport (
    ASK_IRREGULAR, CLAIM_EXCLUSIVE, CLAIM_FLAG_BITS, CLAIM_IGNORES, CLAIM_STOPPING, KIND_CORE, KIND_PORT, KIND_SHIFT, KIND_VOLUME, ROW_DISCONNECTED,
    ROW_DOWN, ROW_FILTERED, ROW_HAS_RESERVED, ROW_INELIGIBLE, ROW_PRESENT, ROW_READY, RULE_CHECK_DEVICES, RULE_PHYSICAL, RULE_STRICT_CORES,
    RULE_STRICT_DEVICES, SLOW, Ask, NodeRow, check_row, claims_of, filter_has, filter_line, is_member, is_reserved, lower_bound,
)
from fastplan.fit._nodes cimport NodeTable
from fastplan.planner._overlay cimport KIND_PLACE, KIND_STOP, Change, Overlay, reserve
from fastplan.state._alloc_view cimport (
    CLIENT_COMPLETE, CLIENT_LOST, DESIRED_EVICT, DESIRED_RUN, DESIRED_STOP, KEEP, NONE, AllocRow, AllocView, sort_claims,
)
from fastplan.state._plan_view cimport PLACE_IRREGULAR, PLACE_NOT_REPLACEABLE, PLACE_OTHER_NODE, PLACE_OWN_JOB, PlanView

cdef extern from *:
    """
    #define fastplan_prefetch(address) __builtin_prefetch((address), 0, 3)
    """
    void fastplan_prefetch(const void* address) nogil

cdef enum:
    CLIENT_UNKNOWN = 3

    # Numbers of errors.Reason.
    MAX_ALLOCS = 1
    NODE_MISSING = 10
    NODE_DISCONNECTED = 11
    NODE_DOWN = 12
    NODE_NOT_READY = 13
    NODE_INELIGIBLE = 14
    OTHER_NODE = 15

    # Flag of a verdict: it rests on something in flight.
    VERDICT_IN_FLIGHT = 1

    # Plan nodes between asking for memory and using it.
    AHEAD = 40

    # So many bytes of a plan's columns are asked for beforehand.
    PLAN_FETCHED = 2048

NOMAD_RULES = RULE_CHECK_DEVICES
STRICT_RULES = RULE_PHYSICAL | RULE_STRICT_CORES | RULE_STRICT_DEVICES | RULE_CHECK_DEVICES


cdef struct Touched:
    # An allocation that something in flight concerns: committed, and as it will be.
    const uint8_t* key
    int64_t row                 # committed row on this node, -1 without
    void* plan                  # PlanView with its new contents, NULL: as committed
    uint32_t item
    uint8_t desired
    uint8_t client
    bint exists
    bint leaves                 # the plan at hand removes it


cdef struct Claims:
    uint64_t* items
    uint32_t count
    uint32_t room

cdef Claims asked, released, joining
cdef Touched* touched = NULL
cdef uint32_t touched_count = 0
cdef uint32_t touched_room = 0
cdef uint32_t* leaving = NULL
cdef uint32_t leaving_count = 0
cdef uint32_t leaving_room = 0


cdef int append_claims(Claims* claims, const uint64_t* items, uint32_t count) except -1:
    cdef uint32_t i
    reserve(<void**> &claims.items, &claims.room, <uint64_t> claims.count + count, sizeof(uint64_t))
    for i in range(count):
        claims.items[claims.count + i] = items[i]
    claims.count += count
    return 0


cdef bint sort_and_join(Claims* claims) noexcept nogil:
    """Sort claims and merge requests of one shared volume. Returns whether some other key comes twice."""
    cdef uint32_t i, kept = 0
    cdef uint64_t claim
    if claims.count < 2:
        return False
    sort_claims(claims.items, claims.count)
    for i in range(1, claims.count):
        claim = claims.items[i]
        if claim >> CLAIM_FLAG_BITS == claims.items[kept] >> CLAIM_FLAG_BITS:
            if claim >> KIND_SHIFT != KIND_VOLUME or (claim | claims.items[kept]) & CLAIM_EXCLUSIVE:
                return True
        else:
            kept += 1
            claims.items[kept] = claim
    claims.count = kept + 1
    return False


cdef inline uint32_t counted_claims(PlanView plan, uint32_t item, bint own_jobs_only) noexcept nogil:
    """How many of a placement's claims count: volumes stand at the end, and Nomad sees them only where the placement carries a job."""
    cdef uint32_t first = plan.claim_offsets[item]
    cdef uint32_t last = plan.claim_offsets[item + 1]
    if own_jobs_only and not plan.place_flags[item] & PLACE_OWN_JOB:
        while last > first and plan.claims[last - 1] >> KIND_SHIFT == KIND_VOLUME:
            last -= 1
    return last - first


cdef int add_placement(Ask* ask, Claims* claims, PlanView plan, uint32_t item, bint own_jobs_only) except -1:
    """Add what a placement asks."""
    cdef const int64_t* amounts = plan.shape_amounts + 4 * plan.shape_index[item]
    ask.cpu_mhz += amounts[0]
    ask.memory_mib += amounts[1]
    ask.memory_max_mib += amounts[2]
    ask.disk_mib += amounts[3]
    if plan.place_flags[item] & PLACE_IRREGULAR:
        ask.flags |= ASK_IRREGULAR
    return append_claims(claims, plan.claims + plan.claim_offsets[item], counted_claims(plan, item, own_jobs_only))


cdef int add_committed(Ask* ask, Claims* claims, AllocView allocs, const AllocRow* entry) except -1:
    """Add what a stored allocation holds."""
    cdef Ask own
    allocs.ask_of(entry, &own)
    ask.cpu_mhz += own.cpu_mhz
    ask.memory_mib += own.memory_mib
    ask.memory_max_mib += own.memory_max_mib
    ask.disk_mib += own.disk_mib
    ask.count += 1
    ask.flags |= own.flags & ASK_IRREGULAR
    return append_claims(claims, own.claims, own.claims_count)


cdef int grows(PlanView plan, uint32_t item, AllocView allocs, const AllocRow* entry, PlanView older, uint32_t older_item) except -2:
    """Whether a placement needs more than its older version: a stored one, or one in flight (*older*). SLOW: only the reference knows."""
    cdef const int64_t* amounts = plan.shape_amounts + 4 * plan.shape_index[item]
    cdef const uint64_t* claims = plan.claims + plan.claim_offsets[item]
    cdef uint32_t count = plan.claim_offsets[item + 1] - plan.claim_offsets[item]
    cdef Ask held
    cdef const int64_t* held_amounts
    cdef uint32_t i, j
    if older is not None:
        held_amounts = older.shape_amounts + 4 * older.shape_index[older_item]
        held.cpu_mhz = held_amounts[0]
        held.memory_mib = held_amounts[1]
        held.disk_mib = held_amounts[3]
        held.claims = older.claims + older.claim_offsets[older_item]
        held.claims_count = older.claim_offsets[older_item + 1] - older.claim_offsets[older_item]
        held.flags = ASK_IRREGULAR if older.place_flags[older_item] & PLACE_IRREGULAR else 0
    else:
        allocs.ask_of(entry, &held)
    if held.flags & ASK_IRREGULAR or plan.place_flags[item] & PLACE_IRREGULAR:
        return SLOW
    if amounts[0] > held.cpu_mhz or amounts[1] > held.memory_mib or amounts[3] > held.disk_mib:
        return True
    for i in range(count):
        j = 0
        while j < held.claims_count and held.claims[j] != claims[i]:
            j += 1
        if j == held.claims_count:
            return True
    return False


cdef inline bint counts(uint8_t desired, uint8_t client, bint physical) noexcept nogil:
    """Whether an allocation counts on its node: physically until its client is terminal, else while it is terminal on neither side."""
    return client < CLIENT_COMPLETE and (physical or desired < DESIRED_STOP)


cdef Touched* find_touched(const uint8_t* key) noexcept nogil:
    cdef uint32_t i
    for i in range(touched_count):
        if memcmp(touched[i].key, key, 16) == 0:
            return &touched[i]
    return NULL


cdef int gather(Overlay overlay, AllocView allocs, uint32_t node_row, uint32_t generation, uint32_t ref) except -2:
    """Work out what is in flight on a node. Returns SLOW if it is beyond the compiled check."""
    global touched_count
    cdef uint32_t number = overlay.heads[node_row] if node_row < overlay.node_room else 0
    cdef Change* change
    cdef Touched* it
    cdef PlanView plan
    cdef uint8_t client
    touched_count = 0
    while number:
        change = &overlay.changes[number - 1]
        number = change.next
        if change.generation != generation:
            continue
        plan = <PlanView> change.plan
        it = find_touched(change.key)
        if it == NULL:
            reserve(<void**> &touched, &touched_room, touched_count + 1, sizeof(Touched))
            it = &touched[touched_count]
            touched_count += 1
            memset(it, 0, sizeof(Touched))
            it.key = change.key
            it.row = allocs.find_key(change.key)
            if it.row >= 0:
                if allocs.memory.identity(<uint32_t> it.row).node_ref != ref:
                    return SLOW
                it.exists = True
                it.desired = allocs.row(<uint32_t> it.row).desired
                it.client = allocs.row(<uint32_t> it.row).client
        if change.kind == KIND_PLACE:
            client = plan.client_status[change.item]
            # What the client said stays, unless the plan says that it is lost or unknown (plan-apply 6.10).
            if not it.exists or client == CLIENT_LOST or client == CLIENT_UNKNOWN:
                it.client = client
            it.desired = DESIRED_RUN
            it.plan = change.plan
            it.item = change.item
            it.exists = True
        elif it.exists:
            it.desired = DESIRED_STOP if change.kind == KIND_STOP else DESIRED_EVICT
            if change.kind == KIND_STOP and plan.stop_client[change.item] != KEEP:
                it.client = plan.stop_client[change.item]
    return 0


cdef int leave(AllocView allocs, const uint8_t* key, uint32_t ref) except -1:
    """The plan at hand removes an allocation from the node, if it is there."""
    global leaving_count
    cdef Touched* it = find_touched(key) if touched_count else NULL
    cdef int64_t row
    cdef uint32_t i
    if it != NULL:
        it.leaves = True
        return 0
    row = allocs.find_key(key)
    if row < 0 or allocs.memory.identity(<uint32_t> row).node_ref != ref:
        return 0
    for i in range(leaving_count):
        if leaving[i] == row:
            return 0
    reserve(<void**> &leaving, &leaving_room, leaving_count + 1, sizeof(uint32_t))
    leaving[leaving_count] = <uint32_t> row
    leaving_count += 1
    return 0


cdef int32_t judge(NodeTable nodes, AllocView allocs, PlanView plan, Overlay overlay, Py_ssize_t i, uint32_t rules, uint8_t* flags) except -100:
    """The verdict on one node of the plan: 0, a reason or SLOW."""
    global touched_count, leaving_count
    cdef uint32_t first = plan.place_offsets[i], last = plan.place_offsets[i + 1], j, count
    cdef uint32_t node_row = plan.node_rows[i]
    cdef uint32_t ref
    cdef const NodeRow* node
    cdef bint physical = rules & RULE_PHYSICAL != 0
    cdef bint ready, accepted, subset = True, more = False
    cdef int larger
    cdef int64_t row
    cdef const uint8_t* key
    cdef uint8_t client
    cdef AllocRow* entry
    cdef Touched* it
    cdef Change* change
    cdef Ask ask, release, prior
    if first == last:
        return 0
    if node_row >= nodes.row_count:
        return NODE_MISSING
    node = nodes.row_at(node_row)
    if not node.flags & ROW_PRESENT or node.generation != plan.node_generations[i]:
        return NODE_MISSING
    # The number of the node among those of the allocations; looked up only where something that is stored matters.
    ref = NONE
    if plan.stop_offsets[i] != plan.stop_offsets[i + 1] or plan.preempt_offsets[i] != plan.preempt_offsets[i + 1]:
        ref = allocs.ref_of_node(node_row)
    touched_count = 0
    leaving_count = 0
    if overlay is not None:
        if overlay.odd_count:
            flags[0] |= VERDICT_IN_FLIGHT
            return SLOW
        if node_row < overlay.node_room and overlay.heads[node_row]:
            flags[0] |= VERDICT_IN_FLIGHT
            ref = allocs.ref_of_node(node_row)
            if gather(overlay, allocs, node_row, node.generation, ref) == SLOW:
                return SLOW
    ready = node.flags & ROW_READY != 0

    # Rows 3 to 6 and 8 of the table in plan-apply 5.2, in one pass over the placements.
    accepted = ready or node.flags & (ROW_DISCONNECTED | ROW_DOWN)
    larger = False
    for j in range(first, last):
        key = plan.alloc_ids + <size_t> 16 * j
        client = plan.client_status[j]
        it = find_touched(key) if touched_count else NULL
        row = -1
        if it == NULL:
            row = allocs.find_key(key)
            if row >= 0 and ref == NONE:
                ref = allocs.ref_of_node(node_row)
            if overlay is not None:
                change = overlay.find_place(key)
                if change != NULL:
                    # In flight on another node.
                    flags[0] |= VERDICT_IN_FLIGHT
                    return SLOW
        if physical and (plan.place_flags[j] & PLACE_OTHER_NODE or (row >= 0 and allocs.memory.identity(<uint32_t> row).node_ref != ref)):
            return OTHER_NODE
        if not ready:
            if node.flags & ROW_DISCONNECTED:
                accepted = accepted and client == CLIENT_UNKNOWN
            elif node.flags & ROW_DOWN:
                accepted = accepted and (client == CLIENT_LOST or (client == CLIENT_UNKNOWN and plan.place_flags[j] & PLACE_NOT_REPLACEABLE))
        if physical and client >= CLIENT_COMPLETE and client != CLIENT_LOST and (
            last - first > 1 or (row >= 0 and allocs.row(<uint32_t> row).client < CLIENT_COMPLETE) or (it != NULL and it.exists and it.client < CLIENT_COMPLETE)
        ):
            # An update does not end what its client has not ended: that one counts on (plan-apply 6.10).
            return SLOW
        if row >= 0 and allocs.memory.identity(<uint32_t> row).node_ref == ref:
            entry = allocs.row(<uint32_t> row)
            if counts(entry.desired, entry.client, False):
                # The second of two equal ids adds to the node; that is rare enough for the reference.
                for count in range(leaving_count):
                    if leaving[count] == row:
                        return SLOW
                if physical and client < CLIENT_COMPLETE and larger == 0:
                    larger = grows(plan, j, allocs, entry, None, 0)
            else:
                subset = False
                if client < CLIENT_COMPLETE:
                    more = True
        elif it != NULL and it.exists and counts(it.desired, it.client, False):
            if it.leaves:
                return SLOW
            if physical and client < CLIENT_COMPLETE and larger == 0:
                if it.plan != NULL:
                    larger = grows(plan, j, allocs, NULL, <PlanView> it.plan, it.item)
                else:
                    larger = grows(plan, j, allocs, allocs.row(<uint32_t> it.row), None, 0)
        else:
            subset = False
            if client < CLIENT_COMPLETE:
                more = True
        if row >= 0 or it != NULL:
            leave(allocs, key, ref)
    if not accepted:
        return NODE_DISCONNECTED if node.flags & ROW_DISCONNECTED else NODE_DOWN if node.flags & ROW_DOWN else NODE_NOT_READY
    if physical:
        if larger == SLOW:
            return SLOW
        if not larger and not more and (subset or not ready):
            return 0
    elif subset or not ready:
        return 0
    if ready and node.flags & ROW_INELIGIBLE:
        return NODE_INELIGIBLE

    # Row 10: the fit check on what stays, what is in flight, and the placements.
    for j in range(plan.stop_offsets[i], plan.stop_offsets[i + 1]):
        leave(allocs, plan.stop_ids + <size_t> 16 * j, ref)
    for j in range(plan.preempt_offsets[i], plan.preempt_offsets[i + 1]):
        leave(allocs, plan.preempt_ids + <size_t> 16 * j, ref)
    memset(&ask, 0, sizeof(Ask))
    ask.count = <int32_t> (last - first)
    if last - first == 1 and plan.client_status[first] < CLIENT_COMPLETE:
        # One placement has every claim once, so its claims are used where they lie.
        ask.cpu_mhz = plan.shape_amounts[4 * plan.shape_index[first] + 0]
        ask.memory_mib = plan.shape_amounts[4 * plan.shape_index[first] + 1]
        ask.disk_mib = plan.shape_amounts[4 * plan.shape_index[first] + 3]
        ask.claims = plan.claims + plan.claim_offsets[first]
        ask.claims_count = counted_claims(plan, first, not physical)
        if plan.place_flags[first] & PLACE_IRREGULAR:
            return SLOW
    else:
        asked.count = 0
        for j in range(first, last):
            if plan.client_status[j] < CLIENT_COMPLETE:
                add_placement(&ask, &asked, plan, j, not physical)
        if ask.flags & ASK_IRREGULAR or sort_and_join(&asked):
            return SLOW
        ask.claims = asked.items
        ask.claims_count = asked.count
    if leaving_count == 0 and touched_count == 0:
        return check_row(node, &ask, NULL, NULL, rules)

    memset(&release, 0, sizeof(Ask))
    memset(&prior, 0, sizeof(Ask))
    released.count = 0
    joining.count = 0
    for j in range(leaving_count):
        entry = allocs.row(leaving[j])
        if counts(entry.desired, entry.client, physical):
            add_committed(&release, &released, allocs, entry)
    for j in range(touched_count):
        if add_touched(&touched[j], allocs, physical, &release, &prior):
            return SLOW
    sort_claims(released.items, released.count)
    release.claims = released.items
    release.claims_count = released.count
    if touched_count == 0:
        return check_row(node, &ask, &release, NULL, rules)
    sort_claims(joining.items, joining.count)
    prior.claims = joining.items
    prior.claims_count = joining.count
    if are_at_odds(node, &prior, &release, physical):
        return SLOW
    return check_row(node, &ask, &release, &prior, rules)


cdef bint are_at_odds(const NodeRow* node, const Ask* prior, const Ask* release, bint physical) noexcept nogil:
    """Whether what is in flight makes the node irregular: claims that it holds twice, or on what is reserved.

    A plan may place something where it stops the holder, whose client still runs; and Nomad does not look at everything that it accepts.
    """
    cdef uint32_t i, position
    cdef uint64_t claim, key
    cdef uint64_t exclusive
    cdef int64_t held
    cdef const uint64_t* claims = claims_of(node)
    for i in range(prior.claims_count):
        claim = prior.claims[i]
        key = claim >> CLAIM_FLAG_BITS
        if i > 0 and prior.claims[i - 1] >> CLAIM_FLAG_BITS == key and (claim >> KIND_SHIFT != KIND_VOLUME or (claim | prior.claims[i - 1]) & CLAIM_EXCLUSIVE):
            return True
        if claim >> KIND_SHIFT == KIND_PORT and node.flags & ROW_HAS_RESERVED and is_reserved(node.supply, claim):
            return True
        if claim >> KIND_SHIFT == KIND_CORE and not is_member(node.supply.cores, node.supply.cores_count, claim):
            return True
        if node.flags & ROW_FILTERED and not filter_has(claims, node.claims_capacity, key):
            continue
        held = 0
        exclusive = claim & CLAIM_EXCLUSIVE
        position = lower_bound(claims, node.claims_count, key)
        while position < node.claims_count and claims[position] >> CLAIM_FLAG_BITS == key:
            if physical or not claims[position] & CLAIM_STOPPING:
                held += 1
                exclusive |= claims[position] & CLAIM_EXCLUSIVE
            position += 1
        if held:
            position = lower_bound(release.claims, release.claims_count, key)
            while position < release.claims_count and release.claims[position] >> CLAIM_FLAG_BITS == key:
                held -= 1
                position += 1
        if held > 0 and (claim >> KIND_SHIFT != KIND_VOLUME or exclusive):
            return True
    return False


cdef bint add_touched(Touched* it, AllocView allocs, bint physical, Ask* release, Ask* prior) except -1:
    """Add the effect of what is in flight on one allocation. Returns whether it is beyond the compiled check."""
    cdef AllocRow* entry = NULL
    cdef bint counted = False
    cdef bint will_count
    cdef PlanView plan
    cdef uint32_t j, first
    if it.row >= 0:
        entry = allocs.row(<uint32_t> it.row)
        counted = counts(entry.desired, entry.client, physical)
    will_count = it.exists and not it.leaves and counts(it.desired, it.client, physical)
    if counted and not (will_count and it.plan == NULL):
        add_committed(release, &released, allocs, entry)
    if will_count and not (counted and it.plan == NULL):
        if it.plan == NULL:
            add_committed(prior, &joining, allocs, entry)
        else:
            plan = <PlanView> it.plan
            first = joining.count
            # Once committed it has its job, and with it its volumes.
            add_placement(prior, &joining, plan, it.item, False)
            prior.count += 1
            for j in range(first, joining.count):
                if joining.items[j] & CLAIM_IGNORES and joining.items[j] >> KIND_SHIFT == KIND_PORT:
                    return True
    return prior.flags & ASK_IRREGULAR != 0


cdef inline void fetch_row(NodeTable nodes, PlanView plan, Py_ssize_t i) noexcept nogil:
    """Ask for the memory of a plan node's row."""
    cdef const NodeRow* node
    if plan.node_rows[i] < nodes.row_count:
        node = nodes.row_at(plan.node_rows[i])
        fastplan_prefetch(node)
        fastplan_prefetch(<const char*> node + 64)


cdef inline void fetch_filter(NodeTable nodes, PlanView plan, Py_ssize_t i) noexcept nogil:
    """Ask for the lines of the filter that the placements on a plan node will look at; the row itself is there by now."""
    cdef const NodeRow* node
    cdef const uint64_t* claims
    cdef uint32_t j
    if plan.node_rows[i] >= nodes.row_count:
        return
    node = nodes.row_at(plan.node_rows[i])
    if node.flags & ROW_FILTERED:
        claims = claims_of(node)
        for j in range(plan.claim_offsets[plan.place_offsets[i]], plan.claim_offsets[plan.place_offsets[i + 1]]):
            fastplan_prefetch(claims + filter_line(plan.claims[j] >> CLAIM_FLAG_BITS, node.claims_capacity))


cdef struct Outcome:
    Py_ssize_t not_fit          # nodes that are refused or undecided
    Py_ssize_t undecided        # of these, those that only the reference can decide
    Py_ssize_t missing          # of these, those that do not exist
    int64_t unknown             # number of the first unknown id, -1 if all are known
    bint in_flight              # whether anything rests on a plan in flight


cdef int look_at(
    NodeTable nodes, AllocView allocs, PlanView plan, uint32_t rules, Overlay overlay, int8_t* codes, uint8_t* flags, Outcome* found,
) except -1:
    """Write the verdict on each node of a plan to *codes* and *flags*, and the sum of them to *found*."""
    cdef Py_ssize_t i, k = plan.node_count, ahead
    cdef uint32_t j, prefetched = 0
    cdef uint32_t place_count = <uint32_t> plan.place_count
    cdef uint32_t stop_count = <uint32_t> plan.stop_count
    cdef uint32_t change_count = stop_count + <uint32_t> plan.preempt_count
    cdef const uint8_t* key
    cdef int32_t code
    memset(found, 0, sizeof(Outcome))
    found.unknown = -1
    for i in range(min(k, <Py_ssize_t> AHEAD)):
        fetch_row(nodes, plan, i)
    for j in range(change_count):
        allocs.memory.index.prefetch(plan.stop_ids + <size_t> 16 * j if j < stop_count else plan.preempt_ids + <size_t> 16 * (j - stop_count))
    for j in range(change_count):
        key = plan.stop_ids + <size_t> 16 * j if j < stop_count else plan.preempt_ids + <size_t> 16 * (j - stop_count)
        if allocs.find_key(key) < 0:
            if overlay is None or overlay.find_place(key) == NULL:
                found.unknown = j
                break
            found.in_flight = True
    for i in range(k):
        if i + AHEAD < k:
            fetch_row(nodes, plan, i + AHEAD)
        ahead = i + AHEAD // 2
        if ahead < k:
            fetch_filter(nodes, plan, ahead)
        # Ids of the nodes up to half the distance ahead.
        while prefetched < place_count and prefetched < plan.place_offsets[min(ahead, k)]:
            allocs.memory.index.prefetch(plan.alloc_ids + <size_t> 16 * prefetched)
            prefetched += 1
        flags[i] = 0
        code = judge(nodes, allocs, plan, overlay, i, rules, &flags[i])
        if code == MAX_ALLOCS and not rules & RULE_PHYSICAL:
            code = SLOW
        codes[i] = <int8_t> code
        found.in_flight = found.in_flight or flags[i] != 0
        found.not_fit += code != 0
        found.undecided += code == SLOW
        found.missing += code == NODE_MISSING
    return 0


def verify(
    NodeTable nodes not None, AllocView allocs not None, PlanView plan not None, uint32_t rules, int8_t[::1] codes not None,
    uint8_t[::1] flags not None, Overlay overlay=None,
):
    """Write the verdict on each node of *plan* to *codes* (int8, k; 0, a reason number, or −1 where only the reference can decide)
    and *flags* (uint8, k; 1 where it rests on something in flight).

    *rules*: NOMAD_RULES or STRICT_RULES; under the former too many allocations are an error, which is the reference's to tell.

    Returns (nodes that are refused or undecided, of these undecided, of these missing, first unknown id, whether anything rests on a plan in flight).
    The first unknown id is the number of a stop, or of a preemption counted on from the stops; −1 if all are known.
    """
    cdef Outcome found
    if codes.shape[0] != plan.node_count or flags.shape[0] != plan.node_count:
        raise ValueError(f"codes and flags need {plan.node_count} entries")
    look_at(nodes, allocs, plan, rules, overlay, &codes[0] if plan.node_count else NULL, &flags[0] if plan.node_count else NULL, &found)
    return found.not_fit, found.undecided, found.missing, found.unknown, found.in_flight


cdef int8_t* run_codes = NULL
cdef uint8_t* run_flags = NULL
cdef uint32_t run_codes_room = 0
cdef uint32_t run_flags_room = 0


def verify_whole(
    NodeTable nodes not None, AllocView allocs not None, list plans not None, list owners not None, Py_ssize_t first, uint32_t rules,
    Overlay overlay not None, uint8_t[::1] rests not None,
):
    """Verify plans in order, from *first* on, each on those before it, and put them in flight while they are acceptable whole.

    *plans*: views; None for a plan that is to be looked at on its own. *owners*: as of `Overlay.add`. *rests* (uint8, plans): set to 1 where something
    rests on a plan in flight. Returns the number of the first plan that was not put in flight: refused in part or undecided, in flight already, with
    nothing to write, or with preemptions.
    """
    cdef Py_ssize_t number, count = len(plans)
    cdef PlanView plan
    cdef Outcome found
    if len(owners) != count or rests.shape[0] != count or first < 0:
        raise ValueError(f"owners and rests need {count} entries")
    for number in range(first, min(first + 3, count)):
        fetch_plan(plans[number])
    for number in range(first, min(first + 2, count)):
        fetch_rows(nodes, allocs, plans[number], overlay)
    for number in range(first, count):
        # Columns first, then the rows that they name, then what the rows point to: each is there when the next step needs it.
        if number + 3 < count:
            fetch_plan(plans[number + 3])
        if number + 2 < count:
            fetch_rows(nodes, allocs, plans[number + 2], overlay)
        if number + 1 < count:
            fetch_claims(nodes, plans[number + 1])
        plan = plans[number]
        if plan is None or plan.preempt_count or not (plan.place_count or plan.stop_count) or plan in overlay.entries:
            return number
        reserve(<void**> &run_codes, &run_codes_room, plan.node_count, sizeof(int8_t))
        reserve(<void**> &run_flags, &run_flags_room, plan.node_count, sizeof(uint8_t))
        look_at(nodes, allocs, plan, rules, overlay, run_codes, run_flags, &found)
        if found.not_fit or found.unknown >= 0:
            return number
        overlay.add_accepted(plan, owners[number], run_codes, NULL, nodes, allocs)
        rests[number] = found.in_flight
    return count


cdef inline void fetch_plan(PlanView plan) noexcept:
    """Ask for the columns of a plan."""
    cdef size_t line
    if plan is not None:
        for line in range(0, min(plan.memory_bytes, <size_t> PLAN_FETCHED), 64):
            fastplan_prefetch(plan.memory + line)


cdef inline void fetch_rows(NodeTable nodes, AllocView allocs, PlanView plan, Overlay overlay) noexcept:
    """Ask for what the verification of a plan looks up first."""
    cdef Py_ssize_t i
    cdef const uint8_t* key
    if plan is None:
        return
    for i in range(min(plan.node_count, <Py_ssize_t> AHEAD)):
        fetch_row(nodes, plan, i)
    for i in range(min(plan.place_count, <Py_ssize_t> AHEAD)):
        key = plan.alloc_ids + <size_t> 16 * i
        allocs.memory.index.prefetch(key)
        fastplan_prefetch(&overlay.slots[hash_key(key) & overlay.slot_mask])


cdef inline void fetch_claims(NodeTable nodes, PlanView plan) noexcept:
    """Ask for what the rows of a plan's nodes point to."""
    cdef Py_ssize_t i
    if plan is None:
        return
    for i in range(min(plan.node_count, <Py_ssize_t> AHEAD // 2)):
        fetch_filter(nodes, plan, i)
        if plan.node_rows[i] < nodes.row_count:
            fastplan_prefetch(nodes.row_at(plan.node_rows[i]).supply)


def live_preemptions(NodeTable nodes not None, AllocView allocs not None, PlanView plan not None, uint8_t[::1] kept not None, Overlay overlay=None):
    """Write to *kept* (uint8, p) which preempted allocations have not ended, on either side (plan-apply 5.5). Returns False where only records can tell."""
    global touched_count
    cdef Py_ssize_t i
    cdef uint32_t j, ref
    cdef int64_t row
    cdef const uint8_t* key
    cdef const NodeRow* node
    cdef Touched* it
    cdef AllocRow* entry
    if kept.shape[0] != plan.preempt_count:
        raise ValueError(f"kept needs {plan.preempt_count} entries")
    if overlay is not None and overlay.odd_count:
        return False
    for i in range(plan.node_count):
        if plan.preempt_offsets[i] == plan.preempt_offsets[i + 1]:
            continue
        touched_count = 0
        ref = NONE
        if plan.node_rows[i] < nodes.row_count:
            node = nodes.row_at(plan.node_rows[i])
            if node.generation == plan.node_generations[i]:
                ref = allocs.ref_of_node(plan.node_rows[i])
                if overlay is not None:
                    gather(overlay, allocs, plan.node_rows[i], node.generation, ref)
        for j in range(plan.preempt_offsets[i], plan.preempt_offsets[i + 1]):
            key = plan.preempt_ids + <size_t> 16 * j
            it = find_touched(key)
            if it != NULL:
                kept[j] = it.exists and counts(it.desired, it.client, False)
                continue
            row = allocs.find_key(key)
            if overlay is not None and (row < 0 or allocs.memory.identity(<uint32_t> row).node_ref != ref):
                return False
            entry = allocs.row(<uint32_t> row) if row >= 0 else NULL
            kept[j] = entry != NULL and counts(entry.desired, entry.client, False)
    return True
