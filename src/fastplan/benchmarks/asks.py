"""Rows to check on a generated cluster: nodes drawn at random, and for each an ask of its own that fits or fails in a chosen way."""

from __future__ import annotations

import itertools
import math

import numpy
from numpy.typing import NDArray

from fastplan.benchmarks.clusters import Cluster, Place
from fastplan.columns.ids import new_keys, text_of
from fastplan.errors import Reason
from fastplan.fit.reference import check
from fastplan.fit.supply import NodeSupply, supply_of
from fastplan.structs import Allocation, Node

_TOO_MUCH = {Reason.CPU: (10**7, 0, 0), Reason.MEMORY: (0, 10**8, 0), Reason.DISK: (0, 0, 10**9)}
_WAYS_TO_FAIL = (Reason.MAX_ALLOCS, Reason.CORES, Reason.CPU, Reason.MEMORY, Reason.DISK, Reason.ALLOC_PORTS, Reason.DEVICES)


class Rows:
    """*count* rows of a cluster and their asks; the *failing* share of them fails, for all reasons that one node can give, in turn.

    With *distinct* no node comes twice. Every ask has two ports on the address of its node, unless *ports* is False; one in eight pins two cores, and on
    nodes with GPUs one in eight takes one.
    """

    def __init__(self, cluster: Cluster, count: int, *, failing: float = 0.0, ports: bool = True, distinct: bool = False, seed: int = 5) -> None:
        random = numpy.random.default_rng(seed)
        self.cluster = cluster
        open_nodes = numpy.flatnonzero(~cluster.is_full)
        full_nodes = numpy.flatnonzero(cluster.is_full)
        gpu_nodes = open_nodes[cluster.size[open_nodes] == cluster.size.max()]
        self.nodes: NDArray[numpy.int64] = random.choice(open_nodes, count, replace=not distinct).astype(numpy.int64)
        self.expected: NDArray[numpy.int8] = numpy.zeros(count, numpy.int8)
        ids = new_keys(random.bytes(16 * count))
        fails = numpy.zeros(count, bool)
        fails[random.permutation(count)[: math.ceil(count * failing)]] = True
        # Some reasons need a certain kind of node, of which there may not be enough different ones.
        left_out = ({Reason.MAX_ALLOCS, Reason.DEVICES} if distinct else set()) | (set() if ports else {Reason.ALLOC_PORTS})
        ways = itertools.cycle(way for way in _WAYS_TO_FAIL if way not in left_out)
        self.asks: list[Allocation] = []
        for n in range(count):
            way = next(ways) if fails[n] else Reason.FITS
            if way is Reason.MAX_ALLOCS:
                self.nodes[n] = random.choice(full_nodes)
            elif way is Reason.DEVICES:
                self.nodes[n] = random.choice(gpu_nodes)
            node = int(self.nodes[n])
            place = self._place(node, n, way)
            ask = cluster.new_alloc(text_of(ids[n]), node, place if ports else place._replace(ports=()), number=n)
            _ask_for_more(ask, way)
            self.asks.append(ask)
            self.expected[n] = way

    def _place(self, node: int, number: int, way: Reason) -> Place:
        """Return a free place of a node, or one that somebody holds in part."""
        cluster = self.cluster
        place = cluster.place(node, cluster.allocs_per_node + number % 4)
        if way is Reason.ALLOC_PORTS:
            return place._replace(ports=(place.ports[0], cluster.place(node, number % cluster.allocs_per_node).ports[1]))
        if way is Reason.CORES:
            # Slot 3 of every node has pinned the first two cores.
            return place._replace(cores=(1, 14))
        if way is Reason.DEVICES:
            return place._replace(gpus=(0,))
        return place._replace(cores=(14, 15) if number % 8 == 0 else (), gpus=(7,) if number % 8 == 1 and cluster.has_gpus(node) else ())


def _ask_for_more(ask: Allocation, way: Reason) -> None:
    assert ask.allocated_resources is not None
    task = ask.allocated_resources.tasks["server"]
    assert task is not None
    cpu_mhz, memory_mib, disk_mib = _TOO_MUCH.get(way, (0, 0, 0))
    task.cpu.cpu_shares += cpu_mhz
    task.memory.memory_mb += memory_mib
    ask.allocated_resources.shared.disk_mb += disk_mib


class BoundNodes(dict[int, tuple[Node, NodeSupply, list[Allocation]]]):
    """Nodes of a cluster as the reference wants them, made when they are first asked for."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def __missing__(self, node: int) -> tuple[Node, NodeSupply, list[Allocation]]:
        record = self._cluster.node(node)
        bound = self[node] = (record, supply_of(record), self._cluster.allocs_of(node))
        return bound


class ReferenceRows:
    """The same rows, bound for the reference: each with its node taken apart and the allocations that are there."""

    def __init__(self, rows: Rows, nodes: BoundNodes) -> None:
        self._rows = [(*nodes[node], ask) for node, ask in zip(rows.nodes.tolist(), rows.asks, strict=True)]

    def codes(self) -> NDArray[numpy.int8]:
        """Return the verdict on each row: int8, shape of the rows."""
        return numpy.array([check(node, [*allocs, ask], supply=supply).code for node, supply, allocs, ask in self._rows], numpy.int8)


class NumpyRows:
    """The best that arrays alone can do: what is left of each node, kept up to date; reasons for cpu, memory, disk and the number of allocations.

    Ports, cores and devices are beyond it, so a row that fails because of them fits here.
    """

    KNOWN = (Reason.FITS, Reason.MAX_ALLOCS, Reason.CPU, Reason.MEMORY, Reason.DISK)

    def __init__(self, rows: Rows) -> None:
        cluster = rows.cluster
        supplies = [supply_of(cluster.node(node)) for node in range(cluster.node_count)]
        used = numpy.zeros((3, cluster.node_count), numpy.int64)
        for slot in range(cluster.allocs_per_node):
            used += cluster.slot_amounts(slot)
        self._left = [
            numpy.array([supply.max_allocs or 2**31 for supply in supplies]) - cluster.allocs_per_node,
            numpy.array([supply.cpu_mhz for supply in supplies]) - used[0],
            numpy.array([supply.memory_mib for supply in supplies]) - used[1],
            numpy.array([supply.disk_mib for supply in supplies]) - used[2],
        ]
        self._nodes = rows.nodes
        demands = [_demand(ask) for ask in rows.asks]
        self._asks = [numpy.ones(len(demands), numpy.int64), *(numpy.array([demand[i] for demand in demands], numpy.int64) for i in range(3))]

    def codes(self) -> NDArray[numpy.int8]:
        """Return the verdict on each row: int8, shape of the rows; the first reason in the order of the checks."""
        nodes = self._nodes
        short = [left.take(nodes) < ask for left, ask in zip(self._left, self._asks, strict=True)]
        codes = numpy.zeros(len(nodes), numpy.int8)
        if (short[0] | short[1] | short[2] | short[3]).any():
            for reason, is_short in zip((Reason.DISK, Reason.MEMORY, Reason.CPU, Reason.MAX_ALLOCS), reversed(short), strict=True):
                codes[is_short] = reason
        return codes


def _demand(ask: Allocation) -> tuple[int, int, int]:
    resources = ask.allocated_resources
    assert resources is not None
    task = resources.tasks["server"]
    assert task is not None
    return task.cpu.cpu_shares, task.memory.memory_mb, resources.shared.disk_mb
