"""What a stranger would write: rows and asks of its own, checked by fastplan's kernel."""

from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from fastplan.fit._kernels cimport (
    CLAIM_FLAG_BITS, KIND_CORE, KIND_SHIFT, ROW_HAS_CORES, ROW_PRESENT, RULE_CHECK_DEVICES, RULE_PHYSICAL, RULE_STRICT_CORES, Ask, NodeRow, Supply,
    check_row,
)

cdef struct Machine:
    # Row and claims in one piece of memory, since a row says where its claims are relative to itself.
    NodeRow row
    uint64_t held[2]


def verdicts(int64_t cpu_mhz, int64_t memory_mib, asks, held_cores=(), bint strict=True):
    """Return the verdicts on (MHz, MiB, core or -1) asks, each alone on a machine with cores 0 to 3 of which up to two are held."""
    cdef uint64_t[4] cores
    cdef uint64_t claim
    cdef Supply supply
    cdef Machine machine
    cdef Ask ask
    cdef int32_t code
    cdef int i
    memset(&supply, 0, sizeof(supply))
    memset(&machine, 0, sizeof(machine))
    memset(&ask, 0, sizeof(ask))
    for i in range(4):
        cores[i] = <uint64_t> KIND_CORE << KIND_SHIFT | <uint64_t> i << CLAIM_FLAG_BITS
    supply.cores = cores
    supply.cores_count = 4
    machine.row.supply = &supply
    machine.row.flags = ROW_PRESENT | ROW_HAS_CORES
    machine.row.cpu_mhz = machine.row.free_cpu_mhz = cpu_mhz
    machine.row.memory_mib = machine.row.free_memory_mib = memory_mib
    machine.row.claims_offset = sizeof(NodeRow) // sizeof(uint64_t)
    for i, core in enumerate(sorted(held_cores)):
        machine.held[i] = cores[<int> core]
        machine.row.claims_count += 1
    found = []
    for ask_mhz, ask_mib, core in asks:
        ask.count = 1
        ask.cpu_mhz = ask_mhz
        ask.memory_mib = ask_mib
        ask.claims_count = 0 if core < 0 else 1
        claim = <uint64_t> KIND_CORE << KIND_SHIFT | <uint64_t> (0 if core < 0 else core) << CLAIM_FLAG_BITS
        ask.claims = &claim
        with nogil:
            code = check_row(&machine.row, &ask, NULL, NULL, RULE_PHYSICAL | RULE_CHECK_DEVICES | (RULE_STRICT_CORES if strict else 0))
        found.append(code)
    return found
