"""Preemption on one node, asked with dictionaries of the API (design: public contracts)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fastplan.fit.demand import totals_of
from fastplan.fit.group import DeviceRequest
from fastplan.fit.supply import NodeSupply, supply_of
from fastplan.scheduler.preempt_devices import victims_for_device
from fastplan.scheduler.preempt_network import victims_for_network
from fastplan.scheduler.preemption import Preemptor
from fastplan.structs import AllocatedResources, Allocation, NetworkResource, Node, RequestedDevice
from fastplan.structs.canonical import canonical_node


def preempt_for_task_group(
    node: Node, allocs: Sequence[Allocation], ask: Mapping[str, Any], job: Mapping[str, Any], already_preempted: Sequence[Mapping[str, Any]]
) -> list[str] | None:
    """Return the ids of allocations on *node* that would have to give way for CPU, memory and disk; None if that cannot be (schedulers 11).

    *allocs*: all live allocations of the node, each with its job. *ask*: allocated resources of the new allocation. *job*: `ID`, `Namespace` and `Priority`
    of the job being placed. *already_preempted*: `Namespace`, `JobID` and `TaskGroup` of each allocation that the plan preempts already. As recorded of
    Nomad, allocations of the job itself do not count as used. Raises `InvalidInput` when *ask* cannot be read.
    """
    resources = AllocatedResources.from_api(dict(ask), "ask")
    totals = totals_of(Allocation(allocated_resources=resources))
    return _ids(_preemptor(job, already_preempted).for_resources(_supply(node), allocs, totals))


def preempt_for_network(
    node: Node, allocs: Sequence[Allocation], ask: Mapping[str, Any], job: Mapping[str, Any], already_preempted: Sequence[Mapping[str, Any]]
) -> list[str] | None:
    """Return who would have to give way for bandwidth and static ports: like `preempt_for_task_group`, *ask* being a network object."""
    network = NetworkResource.from_api(dict(ask), "ask")
    return _ids(victims_for_network(_preemptor(job, already_preempted), _supply(node), allocs, network))


def preempt_for_device(
    node: Node, allocs: Sequence[Allocation], ask: Mapping[str, Any], job: Mapping[str, Any], already_preempted: Sequence[Mapping[str, Any]]
) -> list[str] | None:
    """Return who would have to give way for device instances: like `preempt_for_task_group`, *ask* being a device request (`Name`, `Count`)."""
    device = RequestedDevice.from_api(dict(ask), "ask")
    request = DeviceRequest(tuple(device.name.split("/", 2)), device.count)
    return _ids(victims_for_device(_preemptor(job, already_preempted), _supply(node), allocs, request.matches, request.count))


def _preemptor(job: Mapping[str, Any], already_preempted: Sequence[Mapping[str, Any]]) -> Preemptor:
    counts = Counter((entry["Namespace"], entry["JobID"], entry["TaskGroup"]) for entry in already_preempted)
    return Preemptor(namespace=job["Namespace"], job_id=job["ID"], priority=job["Priority"], preempted=counts)


def _supply(node: Node) -> NodeSupply:
    return supply_of(canonical_node(node))


def _ids(victims: list[Allocation] | None) -> list[str] | None:
    return None if victims is None else [alloc.id for alloc in victims]
