"""The form in which today's servers hold nodes and allocations (plan-apply 1.3, 1.4, 1.7)."""

from __future__ import annotations

from fastplan.structs.alloc import AllocatedCpu, AllocatedMemory, AllocatedResources, AllocatedSharedResources, AllocatedTaskResources, Allocation
from fastplan.structs.node import (
    Core,
    Node,
    NodeDisk,
    NodeMemory,
    NodeNetwork,
    NodeNetworkAddress,
    NodeResources,
    Processors,
    ReservedCpu,
    ReservedResources,
    Topology,
)
from fastplan.structs.resources import NetworkResource, Resources


def canonical_node(node: Node) -> Node:
    """Return *node* as today's servers hold it (plan-apply 1.3, 1.4): the same object if nothing has to change, else a changed copy.

    Eligibility follows the drain, a missing topology is made from the CPU block, missing host networks from the legacy ones. A node of the layout
    before the split gets `node_resources` and `reserved_resources`; its reserved ports stay in `legacy_reserved_networks`.
    """
    eligibility = _eligibility(node)
    resources = _resources(node)
    is_split = resources is None and node.resources is not None
    if eligibility == node.scheduling_eligibility and resources is node.node_resources and not is_split:
        return node
    result = node.copy()
    result.scheduling_eligibility = eligibility
    if is_split and node.resources is not None:
        result.node_resources = _split(node.resources)
        result.reserved_resources = None if node.reserved is None else _split_reserved(node.reserved)
        result._is_split = True
    elif resources is not node.node_resources:
        result.node_resources = resources
    return result


def _eligibility(node: Node) -> str:
    if node.drain_strategy is not None:
        return "ineligible"
    # Sources without a strategy still say that the node drains.
    if node.drain and not node.is_given("drain_strategy"):
        return "ineligible"
    return node.scheduling_eligibility or "eligible"


def _resources(node: Node) -> NodeResources | None:
    """Return the node's resources with topology and host networks, the same object if they have both."""
    before = node.node_resources
    if before is None:
        return None
    topology = before.processors.topology
    if topology is None and before.cpu.cpu_shares != 0 and before.cpu.total_cpu_cores != 0:
        topology = _topology(before.cpu.cpu_shares, before.cpu.reservable_cpu_cores or list(range(before.cpu.total_cpu_cores)))
    networks = before.node_networks
    if networks is None:
        if before.networks is not None:
            networks = [None if network is None else _node_network(network) for network in before.networks]
        if topology is None or (not topology.cores and topology.override_total_compute != 0):
            topology = Topology()
    if topology is before.processors.topology and networks is before.node_networks:
        return before
    result = before.copy()
    result.processors.topology = topology
    result.node_networks = networks
    return result


def _topology(cpu_mhz: int, core_ids: list[int]) -> Topology:
    speed_mhz = cpu_mhz // len(core_ids) if core_ids else 0
    return Topology(override_total_compute=cpu_mhz, cores=[Core(id=core_id, guess_speed=speed_mhz) for core_id in core_ids])


def _node_network(network: NetworkResource) -> NodeNetwork:
    addresses = [NodeNetworkAddress(alias="default", address=network.ip)] if network.ip else []
    return NodeNetwork(mode=network.mode, device=network.device, speed=network.mbits, addresses=addresses)


def _split(legacy: Resources) -> NodeResources:
    own = legacy.copy()
    return NodeResources(
        memory=NodeMemory(memory_mb=own.memory_mb),
        disk=NodeDisk(disk_mb=own.disk_mb),
        networks=own.networks,
        node_networks=[],
        processors=Processors(topology=Topology(override_total_compute=own.cpu)),
    )


def _split_reserved(legacy: Resources) -> ReservedResources:
    return ReservedResources(cpu=ReservedCpu(cpu_shares=legacy.cpu), memory=NodeMemory(memory_mb=legacy.memory_mb), disk=NodeDisk(disk_mb=legacy.disk_mb))


def canonical_alloc(alloc: Allocation) -> Allocation:
    """Return *alloc* with `allocated_resources` made from the older layouts if it has none (plan-apply 1.7).

    The same object if nothing has to change or nothing can be made, else a changed copy.
    """
    if alloc.allocated_resources is not None:
        return alloc
    if alloc.task_resources is not None:
        made = AllocatedResources(
            tasks={name: None if task is None else _task(task) for name, task in alloc.task_resources.items()}, shared=_shared(alloc.shared_resources)
        )
    elif alloc.resources is not None:
        task = _task(alloc.resources)
        task.memory.memory_max_mb = alloc.resources.memory_max_mb
        task.networks = []
        made = AllocatedResources(tasks={"main": task}, shared=AllocatedSharedResources(disk_mb=alloc.resources.disk_mb))
    else:
        return alloc
    result = alloc.copy()
    result.allocated_resources = made
    return result


def _task(legacy: Resources) -> AllocatedTaskResources:
    return AllocatedTaskResources(cpu=AllocatedCpu(cpu_shares=legacy.cpu), memory=AllocatedMemory(memory_mb=legacy.memory_mb), networks=legacy.copy().networks)


def _shared(legacy: Resources | None) -> AllocatedSharedResources:
    if legacy is None:
        return AllocatedSharedResources()
    return AllocatedSharedResources(disk_mb=legacy.disk_mb, networks=legacy.copy().networks)
