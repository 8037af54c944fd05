"""The nodes of a state as columns: what schedulers ask of all nodes again and again, worked out once for all snapshots that share a node.

Nodes that no check of feasibility can tell apart are of one *kind*, so a check is made once a kind and not once a node. Ids, names, resources and
attributes that start with `unique.` are not part of a kind.
"""

from __future__ import annotations

import hashlib
import threading
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy
from numpy.typing import NDArray

from fastplan.scheduler.node_facts import FactsOfNodes
from fastplan.state.records import CHUNK_ROWS
from fastplan.state.snapshot import StateReader
from fastplan.structs import Node

Bools = NDArray[numpy.bool_]
Numbers = NDArray[numpy.int32]
Rows = NDArray[numpy.uint32]

_UNIQUE: Final = "unique."
_NO_NODE: Final = (False, 0, 0, 0)

_encoder = msgspec.json.Encoder(order="deterministic")


@dataclass(frozen=True, slots=True)
class NodeColumns:
    """All nodes, ascending by id: n entries each.

    `rows` uint32, rows of the node table. `records`: shared, not to be changed. `ready` bool. `datacenters`, `pools`, `kinds` int32: numbers, equal for
    equal ones. `datacenter_names`, `pool_names`: text by number. `derived`: what others have worked out of these columns, kept as long as they are.
    """

    rows: Rows
    records: list[Node]
    ready: Bools
    datacenters: Numbers
    pools: Numbers
    kinds: Numbers
    datacenter_names: list[str]
    pool_names: list[str]
    derived: dict[Hashable, Any] = field(default_factory=dict, compare=False)


def node_columns(state: StateReader) -> NodeColumns:
    """Return the columns of a state's nodes. What did not change since another snapshot of the same store costs nothing."""
    return _cache_of(state).columns(state)


def facts_of_nodes(state: StateReader) -> FactsOfNodes:
    """Return the facts of the nodes of a state, shared by all snapshots of its store."""
    return _cache_of(state).facts


def is_ready(node: Node) -> bool:
    """Return whether a node takes placements: ready, not draining, eligible (schedulers 2.6)."""
    return node.status == "ready" and node.drain_strategy is None and not node.drain and node.scheduling_eligibility == "eligible"


class _Numbering:
    """Numbers things in the order in which they come."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._numbers: dict[Hashable, int] = {}

    def of(self, name: str) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
        return number

    def of_digest(self, digest: bytes) -> int:
        return self._numbers.setdefault(digest, len(self._numbers))


@dataclass(slots=True)
class _Part:
    """One chunk of records, and what is said of each: bool, int32 (CHUNK_ROWS) each."""

    chunk: list[Node | None]
    records: list[Node | None]
    facts: list[tuple[bool, int, int, int]]
    columns: NDArray[numpy.int32]


class _Cache:
    """The columns of the newest snapshot that somebody asked about, by chunks of records that snapshots share."""

    def __init__(self) -> None:
        self.facts = FactsOfNodes()
        self._lock = threading.Lock()
        self._datacenters = _Numbering()
        self._pools = _Numbering()
        self._kinds = _Numbering()
        self._parts: list[_Part] = []
        self._directory: list[list[Node | None]] | None = None
        self._length = -1
        self._columns: NodeColumns | None = None
        self._order: tuple[int, Rows] | None = None

    def columns(self, state: StateReader) -> NodeColumns:
        directory, length = state.node_chunks()
        with self._lock:
            if self._columns is None or self._directory is not directory or self._length != length:
                self._columns = self._assembled(state, directory, length)
                self._directory, self._length = directory, length
            return self._columns

    def _assembled(self, state: StateReader, directory: list[list[Node | None]], length: int) -> NodeColumns:
        del self._parts[len(directory) :]
        for number, chunk in enumerate(directory):
            if number == len(self._parts):
                self._parts.append(self._part(chunk, None))
            elif self._parts[number].chunk is not chunk:
                self._parts[number] = self._part(chunk, self._parts[number])
        order = self._order_of(state)
        by_row = numpy.concatenate([part.columns for part in self._parts]) if self._parts else numpy.empty((0, 4), numpy.int32)
        columns = by_row[order]
        records = [record for row in order.tolist() if (record := directory[row // CHUNK_ROWS][row % CHUNK_ROWS]) is not None]
        return NodeColumns(
            rows=order,
            records=records,
            ready=columns[:, 0] != 0,
            datacenters=numpy.ascontiguousarray(columns[:, 1]),
            pools=numpy.ascontiguousarray(columns[:, 2]),
            kinds=numpy.ascontiguousarray(columns[:, 3]),
            datacenter_names=list(self._datacenters.names),
            pool_names=list(self._pools.names),
        )

    def _order_of(self, state: StateReader) -> Rows:
        """Return the rows of all nodes, ascending by id; they stay while no node comes or goes."""
        version = state.nodes_view.node_version
        if self._order is None or self._order[0] != version:
            rows = [state.node_row(node_id) for node_id in state.node_ids()]
            self._order = (version, numpy.array(rows, numpy.uint32))
        return self._order[1]

    def _part(self, chunk: list[Node | None], before: _Part | None) -> _Part:
        """Return a chunk's columns. A record that was there before is not looked at again."""
        known = [None] * len(chunk) if before is None else before.records
        records = list(chunk)
        facts = [
            _NO_NODE if record is None else (before.facts[place] if before is not None and known[place] is record else self._facts(record))
            for place, record in enumerate(records)
        ]
        return _Part(chunk, records, facts, numpy.array(facts, numpy.int32).reshape(len(facts), 4))

    def _facts(self, node: Node) -> tuple[bool, int, int, int]:
        kind = hashlib.blake2b(_encoder.encode(_kind(node)), digest_size=16).digest()
        return is_ready(node), self._datacenters.of(node.datacenter), self._pools.of(node.node_pool), self._kinds.of_digest(kind)


_LOCK = threading.Lock()
_CACHES: weakref.WeakKeyDictionary[object, _Cache] = weakref.WeakKeyDictionary()


def _cache_of(state: StateReader) -> _Cache:
    with _LOCK:
        cache = _CACHES.get(state.shapes)
        if cache is None:
            cache = _CACHES[state.shapes] = _Cache()
        return cache


def _kind(node: Node) -> list[Any]:
    """Return all that checks of feasibility read of a node, unless it is unique."""
    resources = node.node_resources
    networks: list[Any] = []
    devices: list[Any] = []
    if resources is not None:
        networks = [
            [[network.mode for network in group or () if network is not None] for group in (resources.networks, resources.node_networks)],
            [address.alias for network in resources.node_networks or () if network is not None for address in network.addresses],
        ]
        devices = [
            [device.vendor, device.type, device.name, device.attributes, sum(instance is not None and instance.healthy for instance in device.instances)]
            for device in resources.devices or ()
            if device is not None
        ]
    return [
        node.computed_class,
        node.datacenter,
        node.node_class,
        node.node_pool,
        _common(node.attributes),
        _common(node.meta),
        {name: None if info is None else [info.detected, info.healthy] for name, info in node.drivers.items()},
        {name: None if volume is None else volume.read_only for name, volume in node.host_volumes.items()},
        networks,
        devices,
    ]


def _common(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.startswith(_UNIQUE)}
