"""The shape of the usual scheduler benchmark: service jobs of 50 to 1,200 copies on 5,000 equal nodes in racks, each job alone on the cluster."""

from __future__ import annotations

from typing import Final

import numpy

from fastplan.errors import InvalidInput
from fastplan.replay.shapes import NodeShape, Tasks, TaskShape, Workload, address_of, id_maker, uuid_text

NODES: Final = 5_000
RACKS: Final = 25
COUNTS: Final = (50, 300, 600, 900, 1_200)
"""Copies of the jobs of one round."""

ROUNDS: Final = 4
_NODE: Final = NodeShape(4_000, 8_192, 100_000)
_LARGEST: Final = 100_000


def nomad_bench(nodes: int = NODES, *, racks: int = RACKS, rounds: int = ROUNDS, spread: bool, seed: int) -> Workload:
    """Return *rounds* rounds of jobs of 50 to 1,200 copies, 500 MHz and 256 MiB each, that come and go one after the other on *nodes* nodes in *racks* racks.

    *spread*: whether the copies of a job are to be spread evenly over the racks. Raises InvalidInput for fewer than 150 nodes, on which the largest job
    has no room, and for numbers of racks that make no sense.
    """
    least = -(-max(COUNTS) // 8)
    if not least <= nodes <= _LARGEST:
        raise InvalidInput("--nodes", nodes, f"integer from {least} to {_LARGEST}")
    if not 1 <= racks <= nodes:
        raise InvalidInput("--racks", racks, "integer from 1 to the number of nodes")
    draw = id_maker(seed)
    cluster = [_NODE.node(uuid_text(draw(16, "node", number)), f"node-{number:05d}", address_of(number), rack=f"r{number % racks}") for number in range(nodes)]
    shape = TaskShape(cpu_mhz=500, memory_mib=256, disk_mib=150, is_service=True, spread_over="${meta.rack}" if spread else "")
    counts = numpy.array(COUNTS * rounds, numpy.int64)
    arrivals_ns = numpy.arange(len(counts), dtype=numpy.int64) * 10**9
    names = [f"bench-{number:03d}" for number in range(len(counts))]
    tasks = Tasks(names, numpy.zeros(len(counts), numpy.uint32), counts, arrivals_ns, arrivals_ns + 5 * 10**8)
    return Workload("nomad-bench", "allocs", cluster, [shape], tasks, window=1)
