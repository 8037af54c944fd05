"""Generated clusters for the benchmarks: heterogeneous nodes and allocations from a seed, as columns for a state and as records for the references.

Every allocation has one task and two ports on its node's address; every eighth pins two cores, and on nodes with GPUs every eighth holds one. Amounts
come from 96 resource shapes. Half of the nodes have the size of the small C2M hosts, 30 % of the middle ones, 20 % of the large ones, which have GPUs;
every 32nd node has reached its largest number of allocations.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.benchmarks.measuring import uncollected
from fastplan.columns.ids import new_keys, text_of
from fastplan.fit.encode import core_claim, device_claim, port_claim
from fastplan.state import StateStore
from fastplan.state.alloc_records import NO_ROW, alloc_name
from fastplan.state.resource_shapes import ResourceShape, shape_of
from fastplan.state.statuses import CLIENT_RUNNING
from fastplan.structs import (
    AllocatedCpu,
    AllocatedDevice,
    AllocatedMemory,
    AllocatedPort,
    AllocatedResources,
    AllocatedSharedResources,
    AllocatedTaskResources,
    Allocation,
    Core,
    DeviceInstance,
    Job,
    Node,
    NodeDevice,
    NodeDisk,
    NodeMemory,
    NodeNetwork,
    NodeNetworkAddress,
    NodeResources,
    Processors,
    ReservedCpu,
    ReservedNetworks,
    ReservedResources,
    Task,
    TaskGroup,
    Topology,
)

FIRST_INDEX = 1_000
"""Index at which nodes and jobs are written; allocations follow."""

_CORES = 16
_GPUS = 8
_GPU_KIND = ("acme", "gpu", "x1")
_FIRST_PORT, _PORTS = 20_000, 12_001
_PORT_STEPS = numpy.array([1, 7, 101, 997, 3_001], numpy.int64)
# CPU in MHz, memory in MiB and disk in MiB of small, middle and large nodes, and their shares.
_NODE_SIZES = ((160_000, 262_144, 4_000_000), (240_000, 393_216, 4_000_000), (320_000, 524_288, 8_000_000))
_NODE_SHARES = (0.5, 0.3, 0.2)
_PLAIN_SHAPES, _PINNED_SHAPES, _GPU_SHAPES = 80, 8, 8
_FULL_EVERY = 32


class AllocColumns(NamedTuple):
    """Columns of n allocations in the order of `StateStore.insert_rows`."""

    ids: NDArray[numpy.uint8]
    node_rows: NDArray[numpy.uint32]
    group_rows: NDArray[numpy.uint32]
    job_version_rows: NDArray[numpy.uint32]
    eval_refs: NDArray[numpy.uint32]
    shape_rows: NDArray[numpy.uint32]
    name_index: NDArray[numpy.int32]
    client_status: NDArray[numpy.uint8]
    claim_offsets: NDArray[numpy.uint32]
    claims: NDArray[numpy.uint64]


class Place(NamedTuple):
    """What an allocation of a cluster asks for: a shape and what it holds alone."""

    shape: int
    ports: tuple[int, ...]
    cores: tuple[int, ...]
    gpus: tuple[int, ...]


class Cluster:
    """*node_count* nodes with room for more than the *allocs_per_node* allocations that each has; everything follows from *seed*.

    Node *i* has row *i* of the state. Slot *j* of a node is its *j*-th allocation; slots beyond `allocs_per_node` are places that are still free.
    """

    def __init__(self, node_count: int, allocs_per_node: int, *, seed: int = 1) -> None:
        self.node_count = node_count
        self.allocs_per_node = allocs_per_node
        self.random = numpy.random.default_rng(seed)
        self.size = self.random.choice(len(_NODE_SIZES), node_count, p=_NODE_SHARES)
        self.is_full = numpy.arange(node_count) % _FULL_EVERY == _FULL_EVERY - 1
        self.node_ids = [text_of(key) for key in numpy.sort(new_keys(self.random.bytes(16 * node_count)).view("S16"), axis=0).view(numpy.uint8)]
        self.job_count = min(max(node_count * allocs_per_node // 1_000, 1), 200)
        self._first_port = self.random.integers(0, _PORTS, node_count)
        self._port_step = self.random.choice(_PORT_STEPS, node_count)
        self._shape_seed = self.random.integers(0, _PLAIN_SHAPES, node_count)

    # --- what is where ----------------------------------------------------------------------------------------------

    def address(self, node: int) -> str:
        """Return the only address of a node."""
        return f"10.{node >> 16}.{node >> 8 & 255}.{node & 255}"

    def has_gpus(self, node: int) -> bool:
        """Return whether a node has GPUs."""
        return bool(self.size[node] == len(_NODE_SIZES) - 1)

    def place(self, node: int, slot: int) -> Place:
        """Return what the allocation in a slot of a node holds."""
        first, second = (_FIRST_PORT + (self._first_port[node] + (2 * slot + which) * self._port_step[node]) % _PORTS for which in (0, 1))
        turn, octave = slot % 8, slot // 8
        pick = int(self._shape_seed[node]) + 7 * slot
        shape = pick % _PLAIN_SHAPES
        cores: tuple[int, ...] = ()
        gpus: tuple[int, ...] = ()
        if turn == 3 and 2 * octave + 1 < _CORES:
            shape, cores = _PLAIN_SHAPES + pick % _PINNED_SHAPES, (2 * octave, 2 * octave + 1)
        elif turn == 5 and octave < _GPUS and self.has_gpus(node):
            shape, gpus = _PLAIN_SHAPES + _PINNED_SHAPES + pick % _GPU_SHAPES, (octave,)
        return Place(shape, (int(first), int(second)), cores, gpus)

    # --- records ----------------------------------------------------------------------------------------------------

    def node(self, node: int) -> Node:
        """Return the record of a node, in canonical form."""
        cpu_mhz, memory_mib, disk_mib = _NODE_SIZES[self.size[node]]
        return Node(
            id=self.node_ids[node],
            name=f"host-{node}",
            datacenter="dc1",
            node_pool="default",
            status="ready",
            scheduling_eligibility="eligible",
            node_max_allocs=self.allocs_per_node if self.is_full[node] else 0,
            node_resources=NodeResources(
                memory=NodeMemory(memory_mb=memory_mib),
                disk=NodeDisk(disk_mb=disk_mib),
                node_networks=[NodeNetwork(mode="host", device="eth0", addresses=[NodeNetworkAddress("ipv4", "default", self.address(node))])],
                devices=[_gpu_group()] if self.has_gpus(node) else [],
                processors=Processors(topology=Topology(cores=_cores(cpu_mhz), override_total_compute=cpu_mhz)),
                min_dynamic_port=_FIRST_PORT,
                max_dynamic_port=_FIRST_PORT + _PORTS - 1,
            ),
            reserved_resources=ReservedResources(
                cpu=ReservedCpu(cpu_shares=1_000), memory=NodeMemory(memory_mb=2_048), networks=ReservedNetworks(reserved_host_ports="22,9100-9102")
            ),
        )

    def nodes(self) -> list[Node]:
        """Return the records of all nodes, by row."""
        return [self.node(node) for node in range(self.node_count)]

    def resources(self, node: int, place: Place) -> AllocatedResources:
        """Return what an allocation holds on a node, as a record."""
        cpu_mhz, memory_mib, disk_mib = amounts(place.shape)
        devices: list[AllocatedDevice | None] = [AllocatedDevice(*_GPU_KIND, device_ids=[_gpu(gpu) for gpu in place.gpus])] if place.gpus else []
        task = AllocatedTaskResources(
            cpu=AllocatedCpu(cpu_shares=cpu_mhz, reserved_cores=list(place.cores)),
            memory=AllocatedMemory(memory_mb=memory_mib, memory_max_mb=2 * memory_mib),
            devices=devices,
        )
        address = self.address(node)
        ports = [AllocatedPort(label=label, value=value, host_ip=address) for label, value in zip(("http", "admin"), place.ports, strict=False)]
        return AllocatedResources(tasks={"server": task}, shared=AllocatedSharedResources(disk_mb=disk_mib, ports=ports))

    def alloc(self, node: int, slot: int) -> Allocation:
        """Return the record of the allocation in a slot; equal to what the state returns, apart from indexes and times."""
        number = slot * self.node_count + node
        return self.new_alloc(text_of(self._ids[number]), node, self.place(node, slot), number=number, client_status="running")

    def new_alloc(self, alloc_id: str, node: int, place: Place, *, number: int = 0, client_status: str = "pending") -> Allocation:
        """Return the record of an allocation for a node, without its job. *number* decides the job and the name."""
        job_id = f"job-{number % self.job_count}"
        group = f"group-{number // self.job_count % 4}"
        return Allocation(
            id=alloc_id,
            namespace="default",
            name=alloc_name(job_id, group, number // self.job_count),
            node_id=self.node_ids[node],
            node_name=f"host-{node}",
            job_id=job_id,
            task_group=group,
            allocated_resources=self.resources(node, place),
            desired_status="run",
            client_status=client_status,
        )

    def allocs_of(self, node: int) -> list[Allocation]:
        """Return the records of a node's allocations, ascending by id as a state returns them."""
        return sorted((self.alloc(node, slot) for slot in range(self.allocs_per_node)), key=lambda alloc: alloc.id)

    # --- columns ----------------------------------------------------------------------------------------------------

    def jobs(self) -> list[Job]:
        """Return the jobs that the allocations belong to, four groups each."""
        groups: list[TaskGroup] = [TaskGroup(name=f"group-{number}", count=250, tasks=[Task(name="server", driver="docker")]) for number in range(4)]
        return [
            Job(id=f"job-{number}", name=f"job-{number}", namespace="default", type="service", priority=50, task_groups=groups)
            for number in range(self.job_count)
        ]

    @cached_property
    def _ids(self) -> NDArray[numpy.uint8]:
        return new_keys(self.random.bytes(16 * self.node_count * self.allocs_per_node))

    @cached_property
    def shapes(self) -> list[ResourceShape]:
        """The shapes with their templates, by number."""
        return [shape_of(self.resources(0, _specimen(number)))[0] for number in range(_PLAIN_SHAPES + _PINNED_SHAPES + _GPU_SHAPES)]

    def empty_store(self, index: int = FIRST_INDEX) -> StateStore:
        """Return a state with the nodes and jobs, written at *index*, and no allocations."""
        store = StateStore()
        # So many new records that nothing points back to: looking for cycles among them would take most of the time.
        with store.batch(), uncollected():
            for job in self.jobs():
                store.upsert_job(index, job)
            for node in self.nodes():
                store.put_node(node)
            store.touch(index, "nodes")
        return store

    def store(self, index: int | None = None) -> StateStore:
        """Return a state with all allocations, written as columns in batches of 1,000, slot by slot over the nodes in random order.

        Everything is written at *index*, or else each batch at one of its own from `FIRST_INDEX` on.
        """
        store = self.empty_store(FIRST_INDEX if index is None else index)
        for number, columns in enumerate(self.batches(store, range(self.allocs_per_node)), 1):
            store.insert_rows(FIRST_INDEX + number if index is None else index, number, *columns)
        return store

    def batches(self, store: StateStore, slots: range, *, size: int = 1_000, ids: NDArray[numpy.uint8] | None = None) -> Iterator[AllocColumns]:
        """Yield the allocations of *slots* as columns over the rows of *store*, *size* at a time; *ids* for slots that are free so far."""
        shape_rows = numpy.array([store.intern_shape(shape) for shape in self.shapes], numpy.uint32)
        versions = numpy.array([store.jobs_view.row_of("default", f"job-{number}") for number in range(self.job_count)], numpy.uint32)
        groups = numpy.array(
            [[store.jobs_view.groups.intern("default", f"job-{number}", f"group-{group}") for group in range(4)] for number in range(self.job_count)],
            numpy.uint32,
        )
        row_of = numpy.array([store.node_row(node_id) for node_id in self.node_ids], numpy.uint32)
        no_eval = numpy.array([NO_ROW], numpy.uint32)
        running = numpy.array([CLIENT_RUNNING], numpy.uint8)
        for slot in slots:
            order = self.random.permutation(self.node_count)
            for start in range(0, self.node_count, size):
                nodes = order[start : start + size]
                numbers = slot * self.node_count + nodes
                jobs = numbers % self.job_count
                shape, offsets, claims = self.claims(nodes, slot)
                yield AllocColumns(
                    ids=self._ids[numbers] if ids is None else ids[numbers - slots.start * self.node_count],
                    node_rows=row_of[nodes],
                    group_rows=groups[jobs, numbers // self.job_count % 4],
                    job_version_rows=versions[jobs],
                    eval_refs=no_eval,
                    shape_rows=shape_rows[shape],
                    name_index=(numbers // self.job_count).astype(numpy.int32),
                    client_status=running,
                    claim_offsets=offsets,
                    claims=claims,
                )

    def slot_amounts(self, slot: int) -> NDArray[numpy.int64]:
        """Return what the allocations of one slot ask: int64 (3, nodes), MHz, MiB of memory and MiB of disk."""
        shape, _, _ = self.claims(numpy.arange(self.node_count), slot)
        table = numpy.array([amounts(number) for number in range(_PLAIN_SHAPES + _PINNED_SHAPES + _GPU_SHAPES)], numpy.int64)
        return numpy.ascontiguousarray(table[shape].T)

    def fresh_ids(self, slot_count: int) -> NDArray[numpy.uint8]:
        """Return new ids for *slot_count* slots of every node: uint8 (slots · nodes, 16)."""
        return new_keys(self.random.bytes(16 * self.node_count * slot_count))

    @cached_property
    def _address_claims(self) -> NDArray[numpy.uint64]:
        return numpy.array([port_claim(self.address(node), 0) for node in range(self.node_count)], numpy.uint64)

    def claims(self, nodes: NDArray[numpy.int64], slot: int) -> tuple[NDArray[numpy.int64], NDArray[numpy.uint32], NDArray[numpy.uint64]]:
        """Return shape numbers, offsets and claims of one slot on several nodes: the same as `place` says, as columns.

        *nodes*: int64 (n). Shapes: int64 (n). Offsets: uint32 (n + 1) into the claims, uint64, which are in slot order.
        """
        turn, octave = slot % 8, slot // 8
        pick = self._shape_seed[nodes] + 7 * slot
        shape = pick % _PLAIN_SHAPES
        more: NDArray[numpy.int64] = numpy.zeros(len(nodes), numpy.int64)
        alone: list[int] = []
        if turn == 3 and 2 * octave + 1 < _CORES:
            shape = _PLAIN_SHAPES + pick % _PINNED_SHAPES
            alone = [core_claim(2 * octave), core_claim(2 * octave + 1)]
            more[:] = 2
        elif turn == 5 and octave < _GPUS:
            with_gpus = self.size[nodes] == len(_NODE_SIZES) - 1
            shape = numpy.where(with_gpus, _PLAIN_SHAPES + _PINNED_SHAPES + pick % _GPU_SHAPES, shape)
            alone = [device_claim(_GPU_KIND, _gpu(octave))]
            more[with_gpus] = 1
        offsets = numpy.concatenate([[0], numpy.cumsum(2 + more)]).astype(numpy.uint32)
        claims = numpy.empty(int(offsets[-1]), numpy.uint64)
        for which in (0, 1):
            port = _FIRST_PORT + (self._first_port[nodes] + (2 * slot + which) * self._port_step[nodes]) % _PORTS
            claims[offsets[:-1] + which] = self._address_claims[nodes] | port.astype(numpy.uint64) << numpy.uint64(4)
        for which, claim in enumerate(alone):
            claims[offsets[:-1][more > 0] + 2 + which] = claim
        return shape, offsets, claims


def amounts(shape: int) -> tuple[int, int, int]:
    """Return MHz, MiB of memory and MiB of disk of a shape."""
    return 200 + 25 * (shape * 37 % 73), 128 + 32 * (shape * 53 % 61), 50 + 10 * (shape % 16)


def _specimen(shape: int) -> Place:
    cores = (0, 1) if _PLAIN_SHAPES <= shape < _PLAIN_SHAPES + _PINNED_SHAPES else ()
    return Place(shape, (_FIRST_PORT, _FIRST_PORT + 1), cores, (0,) if shape >= _PLAIN_SHAPES + _PINNED_SHAPES else ())


def _gpu(number: int) -> str:
    return f"GPU-{number}"


def _gpu_group() -> NodeDevice:
    vendor, kind, name = _GPU_KIND
    return NodeDevice(vendor=vendor, type=kind, name=name, instances=[DeviceInstance(id=_gpu(number), healthy=True) for number in range(_GPUS)])


_CORES_BY_MHZ: dict[int, list[Core]] = {}


def _cores(cpu_mhz: int) -> list[Core]:
    """Return the cores of a node of this size; nodes share the records, which nobody changes."""
    if cpu_mhz not in _CORES_BY_MHZ:
        _CORES_BY_MHZ[cpu_mhz] = [Core(id=number, base_speed=cpu_mhz // _CORES) for number in range(_CORES)]
    return copy.copy(_CORES_BY_MHZ[cpu_mhz])
