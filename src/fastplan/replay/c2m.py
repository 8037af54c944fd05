"""The shape of the two-million-container challenge: many small allocations on large nodes, in jobs of a thousand (figures only, any size)."""

from __future__ import annotations

from typing import Final

import numpy

from fastplan.errors import InvalidInput
from fastplan.replay.shapes import NEVER, NodeShape, Tasks, TaskShape, Workload, address_of, id_maker, uuid_text

JOB_ALLOCS: Final = 1_000
"""Allocations of a job; the last one may have fewer."""

ALLOC: Final = TaskShape(cpu_mhz=300, memory_mib=256, disk_mib=100)
_DISK_MIB: Final = 1_000_000
# Of ten nodes.
_NODE_MIX: Final = (
    (5, NodeShape(160_000, 262_144, _DISK_MIB)),
    (3, NodeShape(240_000, 393_216, _DISK_MIB)),
    (2, NodeShape(320_000, 524_288, _DISK_MIB)),
)
_LARGEST_ALLOCS: Final = 50_000_000


def c2m(nodes: int, allocs: int, *, seed: int) -> Workload:
    """Return *allocs* allocations of 300 MHz, 256 MiB and 100 MiB disk, in jobs of 1,000 that arrive one after the other and stay, on *nodes* nodes.

    Half of the nodes have 160,000 MHz and 262,144 MiB, 30 % one and a half times that, 20 % twice that; the kinds alternate.
    Raises InvalidInput for fewer than one of either.
    """
    if not 1 <= nodes <= 2**24:
        raise InvalidInput("--nodes", nodes, f"integer from 1 to {2**24}")
    if not 1 <= allocs <= _LARGEST_ALLOCS:
        raise InvalidInput("--allocs", allocs, f"integer from 1 to {_LARGEST_ALLOCS}")
    draw = id_maker(seed)
    kinds = [shape for share, shape in _NODE_MIX for _ in range(share)]
    # 7 is prime to 10, so ten nodes in a row are the ten of the mix.
    cluster = [kinds[number * 7 % 10].node(uuid_text(draw(16, "node", number)), f"node-{number:05d}", address_of(number)) for number in range(nodes)]
    jobs = -(-allocs // JOB_ALLOCS)
    counts = numpy.full(jobs, JOB_ALLOCS, numpy.int64)
    counts[-1] = allocs - JOB_ALLOCS * (jobs - 1)
    arrivals_ns = numpy.arange(jobs, dtype=numpy.int64) * 10**9
    ends_ns = numpy.full(jobs, NEVER, numpy.int64)
    tasks = Tasks([f"c2m-{number:05d}" for number in range(jobs)], numpy.zeros(jobs, numpy.uint32), counts, arrivals_ns, ends_ns)
    return Workload("c2m", "allocs", cluster, [ALLOC], tasks)
