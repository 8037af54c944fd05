"""What a node offers to allocations (plan-apply 1.1, 1.2, 2.5, 2.7, 3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastplan.fit.faults import Fault
from fastplan.fit.node_ports import NodePorts, node_ports

if TYPE_CHECKING:
    from fastplan.structs import Node, NodeResources

DeviceKind = tuple[str, str, str]
"""Vendor, type and name of a device group; the key by which instances are found."""


@dataclass(frozen=True, slots=True)
class NodeSupply:
    """What one node offers, reservations taken off once and nothing clamped at zero.

    `cpu_mhz` is total compute less the reserved MHz, disabled cores included. `cores` are the usable ids less the reserved ones;
    while empty, Nomad skips the test whether pinned cores exist (plan-apply 2.5). `max_allocs` 0 means no limit.
    `devices` has the ids of the healthy instances in node order; of two groups of one kind the later counts (plan-apply 2.7).
    `invalid` says why CPU, memory and disk cannot be read (step 3), `devices_invalid` why the devices cannot (step 9).
    """

    node_id: str
    cpu_mhz: int
    cores: frozenset[int]
    memory_mib: int
    disk_mib: int
    max_allocs: int
    ports: NodePorts
    devices: Mapping[DeviceKind, tuple[str, ...]]
    invalid: Fault | None
    devices_invalid: Fault | None


def supply_of(node: Node) -> NodeSupply:
    """Return what canonical *node* offers; nothing is raised, what cannot be read stands in the fields for faults."""
    resources, reserved = node.node_resources, node.reserved_resources
    topology = resources.processors.topology if resources is not None else None
    cpu_mhz = memory_mib = disk_mib = 0
    cores: frozenset[int] = frozenset()
    invalid = None
    if resources is None:
        invalid = Fault("node.NodeResources", None, "an object")
    elif topology is None:
        invalid = Fault("node.NodeResources.Processors.Topology", None, "an object")
    else:
        cpu_mhz = topology.total_compute_mhz
        cores = frozenset(topology.usable_cores)
        memory_mib = resources.memory.memory_mb
        disk_mib = resources.disk.disk_mb
    if reserved is not None and invalid is None:
        cpu_mhz -= reserved.cpu.cpu_shares
        cores -= frozenset(reserved.cpu.reserved_cpu_cores)
        memory_mib -= reserved.memory.memory_mb
        disk_mib -= reserved.disk.disk_mb
    devices, devices_invalid = _healthy_devices(resources)
    return NodeSupply(
        node_id=node.id,
        cpu_mhz=cpu_mhz,
        cores=cores,
        memory_mib=memory_mib,
        disk_mib=disk_mib,
        max_allocs=node.node_max_allocs,
        ports=node_ports(node),
        devices=devices,
        invalid=invalid,
        devices_invalid=devices_invalid,
    )


def _healthy_devices(resources: NodeResources | None) -> tuple[dict[DeviceKind, tuple[str, ...]], Fault | None]:
    devices: dict[DeviceKind, tuple[str, ...]] = {}
    for index, group in enumerate(resources.devices if resources is not None else ()):
        if group is None:
            return devices, Fault(f"node.NodeResources.Devices[{index}]", None, "an object")
        devices[group.vendor, group.type, group.name] = tuple(instance.id for instance in group.instances if instance is not None and instance.healthy)
    return devices, None
