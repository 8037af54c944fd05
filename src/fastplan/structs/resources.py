"""Networks and ports, as jobs ask for them and as older layouts hold them (plan-apply 1.6)."""

from __future__ import annotations

from typing import Any

from msgspec import field

from fastplan.structs.record import Amount, Record


class Port(Record):
    """A port of a network object. `value` may be anything on load: the checks judge it (plan-apply 3.4)."""

    label: str = ""
    value: int = 0
    to: int = 0
    host_network: str = ""
    ignore_collision: bool = False


class DNSConfig(Record):
    """Name servers that a network asks for."""

    servers: list[str] = field(default_factory=list)
    searches: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)


class CNIConfig(Record):
    """Arguments for a CNI network."""

    args: dict[str, str] = field(default_factory=dict)


class NetworkResource(Record):
    """A network object: an ask of a group or task, an assignment, or a legacy network of a node. `mbits` in Mbit/s."""

    mode: str = ""
    device: str = ""
    cidr: str = ""
    ip: str = ""
    hostname: str = ""
    mbits: int = 0
    dns: DNSConfig | None = None
    reserved_ports: list[Port] = field(default_factory=list)
    dynamic_ports: list[Port] = field(default_factory=list)
    cni: CNIConfig | None = None


class Constraint(Record):
    """A constraint of a job, group, task or device ask (schedulers 3)."""

    ltarget: str = ""
    rtarget: str = ""
    operand: str = ""


class Affinity(Record):
    """A preference; `weight` is −100 to 100 (schedulers 6)."""

    ltarget: str = ""
    rtarget: str = ""
    operand: str = ""
    weight: int = 0


class SpreadTarget(Record):
    """A value of a spread's attribute and the percentage wanted there."""

    value: str = ""
    percent: int = 0


class Spread(Record):
    """A wish to spread a group over the values of an attribute."""

    attribute: str = ""
    weight: int = 0
    spread_target: list[SpreadTarget | None] = field(default_factory=list)


class RequestedDevice(Record):
    """A device ask of a task: `name` is `type`, `vendor/type` or `vendor/type/name`."""

    name: str = ""
    count: Amount = 0
    constraints: list[Constraint | None] = field(default_factory=list)
    affinities: list[Affinity | None] = field(default_factory=list)


class Resources(Record):
    """Resources of a task as the job asks for them; also the legacy layout of nodes and allocations (plan-apply 1.4, 1.7).

    `cpu` in MHz, `cores` a count, memory and disk in MiB.
    """

    cpu: Amount = field(default=0, name="CPU")
    cores: Amount = 0
    memory_mb: Amount = 0
    memory_max_mb: int = 0
    disk_mb: Amount = 0
    iops: Amount = 0
    networks: list[NetworkResource | None] = field(default_factory=list)
    devices: list[RequestedDevice | None] = field(default_factory=list)
    numa: Any = None
    secrets_mb: Amount = 0
