"""What a replay plays: a cluster, and tasks that arrive, ask for resources and end.

Tasks are columns, because there may be many; what they ask for is a handful of shapes that many of them share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy
from numpy.typing import NDArray

from fastplan.errors import InvalidInput
from fastplan.structs import Job, Node

NEVER: Final = 2**63 - 1
"""As the end of a task: it runs for good."""

GROUP: Final = "task"
"""Name of the one group, and of its one task, of every job."""

DRIVER: Final = "exec"
LEAST_CPU_MHZ: Final = 1
LEAST_MEMORY_MIB: Final = 10
LEAST_DISK_MIB: Final = 10
"""What a job may ask for at least."""

GPU_VENDOR: Final = "nvidia"


@dataclass(frozen=True, slots=True)
class TaskShape:
    """What one copy of a task asks of a node: MHz, MiB, and how many whole cores, GPUs and ports.

    `gpu_names`: the models that will do, empty for any. `static_ports` are (label, port number), `dynamic_ports` labels. With `cores` the CPU
    comes with the cores, and `cpu_mhz` is 0.
    """

    cpu_mhz: int
    memory_mib: int
    disk_mib: int = LEAST_DISK_MIB
    cores: int = 0
    gpus: int = 0
    gpu_names: tuple[str, ...] = ()
    static_ports: tuple[tuple[str, int], ...] = ()
    dynamic_ports: tuple[str, ...] = ()
    priority: int = 50
    is_service: bool = False
    spread_over: str = ""

    def job(self, job_id: str, namespace: str, count: int = 1) -> dict[str, Any]:
        """Return the job of a task, in the API's shape: *count* copies of one group with one task."""
        devices: list[dict[str, Any]] = []
        if self.gpus:
            device: dict[str, Any] = {"Name": "gpu", "Count": self.gpus}
            if self.gpu_names:
                device["Constraints"] = [{"LTarget": "${device.model}", "RTarget": ",".join(self.gpu_names), "Operand": "set_contains_any"}]
            devices.append(device)
        return self._job(job_id, namespace, count, devices)

    def asks(self) -> list[Job]:
        """Return the jobs whose group is what a node is asked for: one for any GPU, else one for each model that will do.

        The fit check takes a device by its name and leaves constraints to the scheduler: here that is whoever chooses among these asks.
        """
        names = [f"{GPU_VENDOR}/gpu/{name}" for name in self.gpu_names] or ["gpu"]
        devices = [[{"Name": name, "Count": self.gpus}] for name in names] if self.gpus else [[]]
        return [Job.from_api(self._job("ask", "default", 1, each)) for each in devices]

    def _job(self, job_id: str, namespace: str, count: int, devices: list[dict[str, Any]]) -> dict[str, Any]:
        resources: dict[str, Any] = {"CPU": self.cpu_mhz, "MemoryMB": self.memory_mib}
        if self.cores:
            resources["Cores"] = self.cores
        if devices:
            resources["Devices"] = devices
        # Logs have to fit the disk that is asked for.
        task = {"Name": GROUP, "Driver": DRIVER, "Resources": resources, "LogConfig": {"MaxFiles": 1, "MaxFileSizeMB": 1}}
        group: dict[str, Any] = {"Name": GROUP, "Count": count, "Tasks": [task]}
        group["EphemeralDisk"] = {"SizeMB": self.disk_mib}
        if self.static_ports or self.dynamic_ports:
            network: dict[str, Any] = {"Mode": "host"}
            network["ReservedPorts"] = [{"Label": label, "Value": port} for label, port in self.static_ports]
            network["DynamicPorts"] = [{"Label": label} for label in self.dynamic_ports]
            group["Networks"] = [network]
        if self.spread_over:
            group["Spreads"] = [{"Attribute": self.spread_over, "Weight": 100}]
        kind = "service" if self.is_service else "batch"
        return {"ID": job_id, "Namespace": namespace, "Name": job_id, "Type": kind, "Priority": self.priority, "Datacenters": ["dc1"], "TaskGroups": [group]}


@dataclass(frozen=True, slots=True)
class NodeShape:
    """What one node has: MHz, MiB, how many cores and GPUs. `cores` 0: the CPU cannot be pinned core by core."""

    cpu_mhz: int
    memory_mib: int
    disk_mib: int = 1_000_000
    cores: int = 0
    gpus: int = 0
    gpu_name: str = ""

    def node(self, node_id: str, name: str, address: str, *, rack: str = "") -> Node:
        """Return a ready node with one address, whose dynamic ports are 20000 to 32000; in a rack, which is its `${meta.rack}`, if one is named."""
        topology: dict[str, Any] = {"OverrideTotalCompute": self.cpu_mhz}
        if self.cores:
            topology["Cores"] = [{"ID": core, "BaseSpeed": self.cpu_mhz // self.cores} for core in range(self.cores)]
        resources: dict[str, Any] = {
            "Processors": {"Topology": topology},
            "Memory": {"MemoryMB": self.memory_mib},
            "Disk": {"DiskMB": self.disk_mib},
            "NodeNetworks": [{"Mode": "host", "Device": "eth0", "Addresses": [{"Family": "ipv4", "Alias": "default", "Address": address}]}],
            "MinDynamicPort": 20000,
            "MaxDynamicPort": 32000,
        }
        if self.gpus:
            instances = [{"ID": f"{name}-gpu-{number}", "Healthy": True} for number in range(self.gpus)]
            resources["Devices"] = [{"Vendor": GPU_VENDOR, "Type": "gpu", "Name": self.gpu_name, "Instances": instances}]
        return Node.from_api(
            {
                "ID": node_id,
                "Name": name,
                "Datacenter": "dc1",
                "NodePool": "default",
                "Status": "ready",
                "SchedulingEligibility": "eligible",
                "Drivers": {DRIVER: {"Detected": True, "Healthy": True}},
                "Meta": {"rack": rack} if rack else {},
                "NodeResources": resources,
            }
        )


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks as columns of one length, in order of arrival: task *i* is called `names[i]` and asks for `counts[i]` copies of shape `shapes[i]`.

    `arrivals_ns` and `ends_ns` are int64, nanoseconds since the trace began; `ends_ns` may be `NEVER`.
    """

    names: Sequence[str]
    shapes: NDArray[numpy.uint32]
    counts: NDArray[numpy.int64]
    arrivals_ns: NDArray[numpy.int64]
    ends_ns: NDArray[numpy.int64]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Workload:
    """A cluster and its tasks. `name` is also the namespace of the jobs, `unit` what is counted: pods or allocs. `window`: how many events may be played
    together.
    """

    name: str
    unit: str
    nodes: list[Node]
    shapes: list[TaskShape]
    tasks: Tasks
    window: int = 256
    _digest: list[str] = field(default_factory=list, compare=False, repr=False)

    @property
    def copies(self) -> int:
        """How many allocations all tasks together ask for."""
        return int(self.tasks.counts.sum())

    def fingerprint(self) -> str:
        """Return 32 hexadecimal digits that tell this workload from others."""
        if not self._digest:
            digest = hashlib.blake2b(digest_size=16)
            encode = msgspec.json.Encoder(order="deterministic").encode
            digest.update(encode([self.name, self.unit, [[node.id, node.to_api()] for node in self.nodes], self.shapes, list(self.tasks.names)]))
            for column in (self.tasks.shapes, self.tasks.counts, self.tasks.arrivals_ns, self.tasks.ends_ns):
                digest.update(column.tobytes())
            self._digest.append(digest.hexdigest())
        return self._digest[0]


class ShapeTable:
    """Numbers task shapes in the order in which they first come."""

    def __init__(self) -> None:
        self._numbers: dict[TaskShape, int] = {}

    def number(self, shape: TaskShape) -> int:
        """Return the number of *shape*."""
        return self._numbers.setdefault(shape, len(self._numbers))

    @property
    def shapes(self) -> list[TaskShape]:
        """All shapes by number."""
        return list(self._numbers)


class Events:
    """What happens, in order: arrivals and ends as two columns.

    At one moment tasks end first, then others arrive, then those end that arrive and end at once. `tasks` int64, `is_end` bool.
    """

    def __init__(self, tasks: Tasks) -> None:
        count = len(tasks)
        ending = numpy.flatnonzero(tasks.ends_ns != NEVER)
        number = numpy.concatenate([numpy.arange(count), ending])
        self.times_ns = numpy.concatenate([tasks.arrivals_ns, tasks.ends_ns[ending]])
        at_once = tasks.ends_ns[ending] == tasks.arrivals_ns[ending]
        rank = numpy.concatenate([numpy.ones(count, numpy.int8), numpy.where(at_once, 2, 0).astype(numpy.int8)])
        order = numpy.lexsort((number, rank, self.times_ns))
        self.times_ns = self.times_ns[order]
        self.tasks = number[order]
        self.is_end = (numpy.arange(len(order)) >= count)[order]

    def __len__(self) -> int:
        return len(self.tasks)


def id_maker(seed: int) -> Callable[..., bytes]:
    """Return a source of random bytes that depend on *seed* and on what they are for alone, not on the order in which they are drawn.

    The result takes how many bytes, then any texts and numbers that name the purpose.
    """

    def draw(count: int, *purpose: str | int) -> bytes:
        return hashlib.shake_128("\0".join(map(str, (seed, *purpose))).encode()).digest(count)

    return draw


def uuid_text(data: bytes) -> str:
    """Return 16 bytes as the text of a UUID."""
    digits = data.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def address_of(number: int) -> str:
    """Return the address of node *number*, in 10.0.0.0/8. Raises InvalidInput beyond 16 million nodes."""
    if number >= 2**24 - 1:
        raise InvalidInput("nodes", number + 1, f"at most {2**24 - 1}")
    number += 1
    return f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
