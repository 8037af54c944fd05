"""Nodes and what they supply (plan-apply 1.1 to 1.4)."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field

from fastplan.structs.record import Amount, CoreCount, CoreId, Megahertz, Record, Time
from fastplan.structs.resources import NetworkResource, Resources


class Core(Record):
    """A CPU core of the topology; speeds in MHz, `grade` true for a performance core."""

    socket_id: int = 0
    node_id: int = 0
    id: CoreId = 0
    grade: bool = False
    disable: bool = False
    base_speed: Megahertz = 0
    max_speed: Megahertz = 0
    guess_speed: Megahertz = 0

    @property
    def speed_mhz(self) -> int:
        """Base speed, else maximum, else guess (plan-apply 1.2)."""
        if self.base_speed > 0:
            return self.base_speed
        return self.max_speed if self.max_speed > 0 else self.guess_speed


class Topology(Record):
    """The processors of a node; overrides in MHz (plan-apply 1.2)."""

    nodes: Any = None
    distances: Any = None
    cores: list[Core] = field(default_factory=list)
    override_total_compute: Megahertz = 0
    override_withold_compute: Megahertz = 0

    @property
    def total_compute_mhz(self) -> int:
        """The override if set, else the sum over all cores, disabled ones included (plan-apply 1.2)."""
        return self.override_total_compute or sum(core.speed_mhz for core in self.cores)

    @property
    def usable_cores(self) -> list[int]:
        """Ids of the cores that are not disabled, in node order (plan-apply 1.2)."""
        return [core.id for core in self.cores if not core.disable]


class Processors(Record):
    """Holds the topology; None on nodes older than it."""

    topology: Topology | None = None


class NodeCpu(Record):
    """The older CPU block: MHz and core ids, used to make up a topology (plan-apply 1.3)."""

    cpu_shares: Amount = 0
    total_cpu_cores: CoreCount = 0
    reservable_cpu_cores: list[CoreId] = field(default_factory=list)


class NodeMemory(Record):
    """Memory in MiB."""

    memory_mb: Amount = 0


class NodeDisk(Record):
    """Disk in MiB."""

    disk_mb: Amount = 0


class NodeNetworkAddress(Record):
    """An address of a host network; `reserved_ports` is port-range text (plan-apply 3.2)."""

    family: str = ""
    alias: str = ""
    address: str = ""
    reserved_ports: str = ""
    gateway: str = ""


class NodeNetwork(Record):
    """A host network; `speed` in Mbit/s."""

    mode: str = ""
    device: str = ""
    mac_address: str = ""
    speed: int = 0
    addresses: list[NodeNetworkAddress] = field(default_factory=list)


class DeviceLocality(Record):
    """Where a device instance sits."""

    pci_bus_id: str = ""


class DeviceInstance(Record):
    """One device; only healthy ones count (plan-apply 2.7)."""

    id: str = ""
    healthy: bool = False
    health_description: str = ""
    locality: DeviceLocality | None = None


class NodeDevice(Record):
    """A group of equal devices. `attributes` maps names to typed values in the API's form."""

    vendor: str = ""
    type: str = ""
    name: str = ""
    instances: list[DeviceInstance | None] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)


class NodeResources(Record):
    """What a node has. `networks` and `node_networks` are None when null or absent, which differs from an empty list (plan-apply 1.3)."""

    cpu: NodeCpu = field(default_factory=NodeCpu)
    memory: NodeMemory = field(default_factory=NodeMemory)
    disk: NodeDisk = field(default_factory=NodeDisk)
    networks: list[NetworkResource | None] | None = None
    node_networks: list[NodeNetwork | None] | None = None
    devices: list[NodeDevice | None] = field(default_factory=list)
    processors: Processors = field(default_factory=Processors)
    min_dynamic_port: int = 0
    max_dynamic_port: int = 0


class ReservedCpu(Record):
    """CPU that allocations may not use: MHz, and core ids taken out of the core set."""

    cpu_shares: Amount = 0
    reserved_cpu_cores: list[CoreId] = field(default_factory=list)


class ReservedNetworks(Record):
    """Ports that allocations may not use, as port-range text (plan-apply 3.2)."""

    reserved_host_ports: str = ""


class ReservedResources(Record):
    """What a node keeps for itself."""

    cpu: ReservedCpu = field(default_factory=ReservedCpu)
    memory: NodeMemory = field(default_factory=NodeMemory)
    disk: NodeDisk = field(default_factory=NodeDisk)
    networks: ReservedNetworks = field(default_factory=ReservedNetworks)


class DrainStrategy(Record):
    """How a node is being drained; `deadline` in nanoseconds."""

    deadline: int = 0
    ignore_system_jobs: bool = False
    force_deadline: Time = ""
    started_at: Time = ""


class DriverInfo(Record):
    """The state of a task driver on a node."""

    attributes: dict[str, str] = field(default_factory=dict)
    detected: bool = False
    healthy: bool = False
    health_description: str = ""
    update_time: Time = ""


class HostVolume(Record):
    """A volume that the node's configuration offers."""

    name: str = ""
    path: str = ""
    read_only: bool = False
    id: str = ""


class Node(Record):
    """A node of the cluster (plan-apply 1.1); `resources` and `reserved` are the layout before the split (plan-apply 1.4)."""

    ROOT: ClassVar[str] = "node"

    id: str = ""
    secret_id: str = ""
    name: str = ""
    datacenter: str = ""
    node_class: str = ""
    computed_class: str = ""
    node_pool: str = ""
    http_addr: str = ""
    tls_enabled: bool = False
    address: str = ""
    version: str = ""
    attributes: dict[str, str] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    drivers: dict[str, DriverInfo | None] = field(default_factory=dict)
    host_volumes: dict[str, HostVolume | None] = field(default_factory=dict)
    host_networks: dict[str, Any] = field(default_factory=dict)
    node_resources: NodeResources | None = None
    reserved_resources: ReservedResources | None = None
    resources: Resources | None = None
    reserved: Resources | None = None
    node_max_allocs: int = 0
    drain: bool = False
    drain_strategy: DrainStrategy | None = None
    last_drain: Any = None
    scheduling_eligibility: str = ""
    status: str = ""
    status_description: str = ""
    status_updated_at: int = 0
    events: list[Any] = field(default_factory=list)
    last_missed_heartbeat_index: int = 0
    last_alloc_update_index: int = 0
    create_index: int = 0
    modify_index: int = 0

    # Set by canonical_node: node_resources was made from the older layout, so reserved ports are still those of `reserved`.
    _is_split: bool = False

    @property
    def legacy_reserved_networks(self) -> list[NetworkResource | None]:
        """Networks of `Reserved` whose ports the node keeps (plan-apply 1.4); empty for nodes of today's layout."""
        if self.reserved is None or (self.node_resources is not None and not self._is_split):
            return []
        return self.reserved.networks
