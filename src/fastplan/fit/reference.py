"""The fit check in the plainest Python (plan-apply 2, 3): oracle of the property tests, baseline of the benchmarks, judge of irregular nodes.

The first check that fails decides. The numbers in the comments are those of the table in plan-apply 2.2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

from fastplan.errors import InvalidInput, Reason
from fastplan.fit.demand import DeviceUse, device_uses, negative_amount, totals_of, volume_claims
from fastplan.fit.ports import PortIndex
from fastplan.fit.results import MAX_ALLOCS_ERROR, Check, FitResult, UsedResources
from fastplan.fit.supply import NodeSupply, supply_of
from fastplan.structs.canonical import canonical_alloc, canonical_node

if TYPE_CHECKING:
    from fastplan.structs import Allocation, Job, Node


def allocs_fit(node: Node, allocs: Sequence[Allocation], *, check_devices: bool = True, port_index: PortIndex | None = None) -> FitResult:
    """Return whether *allocs* fit *node* together, and what they use, exactly as Nomad answers (plan-apply 2).

    Order matters: it decides which port collision is reported, and which holder of a port must ignore collisions. Client-terminal
    entries hold nothing, but count for the node's maximum. With a *port_index* passed in ports are not checked; without
    *check_devices* neither devices nor host volumes are. Node and allocations may be in an older form (plan-apply 1.3, 1.4, 1.7) and
    stay as they are.

    Raises `InvalidInput` where Nomad crashes, if the check gets that far (plan-apply 2.10).
    """
    canonical = [canonical_alloc(alloc) for alloc in allocs]
    return FitResult.of(check(canonical_node(node), canonical, check_devices=check_devices, check_ports=port_index is None))


def check(
    node: Node,
    proposed: Sequence[Allocation],
    *,
    check_devices: bool = True,
    check_ports: bool = True,
    strict: bool = False,
    new_ids: Container[str] | None = None,
    plan_job: Job | None = None,
    supply: NodeSupply | None = None,
) -> Check:
    """Return the verdict on canonical records: do the *proposed* allocations, in order, fit *node* together?

    *supply* saves taking apart a node again that was taken apart before. With *strict* the rules are those of `Rules.STRICT`, as far
    as one node decides them, and nothing is raised:

    * too many allocations are a refusal without an error;
    * a new allocation that pins cores needs a node that has some: `cores`;
    * a new allocation must name healthy device instances of the node: `device unavailable`, looked at after `device oversubscribed`;
    * a new allocation without a job claims the volumes of its group in *plan_job*;
    * a negative amount of a new allocation is refused, one of an older allocation makes no room for others;
    * input on which Nomad crashes is refused: `invalid input`, with the field.

    *new_ids* are the IDs of the new allocations; None: all are new.

    Raises `InvalidInput` where Nomad crashes (plan-apply 2.10), unless *strict*.
    """
    if supply is None:
        supply = supply_of(node)
    if not strict:
        return _check(supply, proposed, check_devices, check_ports)
    new = {alloc.id for alloc in proposed if new_ids is None or alloc.id in new_ids}
    try:
        return _check(supply, proposed, check_devices, check_ports, new, plan_job)
    except InvalidInput as problem:
        return Check(Reason.INVALID, str(problem))


def _check(
    supply: NodeSupply, proposed: Sequence[Allocation], check_devices: bool, check_ports: bool, new: set[str] | None = None, plan_job: Job | None = None
) -> Check:
    """Run the checks in order. *new* is None under Nomad's rules; under strict ones it holds the IDs of the new allocations."""
    strict = new is not None
    # 1: the whole list counts, terminal entries included.
    if supply.max_allocs != 0 and supply.max_allocs < len(proposed):
        return Check(Reason.MAX_ALLOCS, error="" if strict else MAX_ALLOCS_ERROR)

    # 2: all are summed before anything else is looked at; two allocations must not share a core, whatever the node has.
    cpu_mhz = memory_mib = memory_max_mib = disk_mib = 0
    cores: set[int] = set()
    cores_overlap = new_pins_cores = False
    volumes = _VolumeClaims()
    for alloc in proposed:
        if alloc.is_client_terminal:
            continue
        is_new = new is not None and alloc.id in new
        if is_new and (negative := negative_amount(alloc)) is not None:
            raise negative
        totals = totals_of(alloc, never_negative=strict)
        cpu_mhz += totals.cpu_mhz
        memory_mib += totals.memory_mib
        memory_max_mib += totals.memory_max_mib
        disk_mib += totals.disk_mib
        if totals.cores:
            cores_overlap = cores_overlap or not cores.isdisjoint(totals.cores)
            cores |= totals.cores
            new_pins_cores = new_pins_cores or is_new
        if check_devices:
            volumes.add(alloc, plan_job if is_new and alloc.job is None else alloc.job)
    used = UsedResources(cpu_mhz, memory_mib, memory_max_mib, disk_mib, cores)
    if cores_overlap:
        return Check(Reason.CORES, used=used)

    # 3 to 6: a supply below zero fails even an empty list. Memory maxima may exceed the node.
    if supply.invalid is not None:
        raise supply.invalid.error()
    if supply.cpu_mhz < cpu_mhz:
        return Check(Reason.CPU, used=used)
    if (supply.cores and not supply.cores.issuperset(cores)) or (new_pins_cores and not supply.cores):
        return Check(Reason.CORES, used=used)
    if supply.memory_mib < memory_mib:
        return Check(Reason.MEMORY, used=used)
    if supply.disk_mib < disk_mib:
        return Check(Reason.DISK, used=used)

    # 7 and 8
    if check_ports:
        index = PortIndex.of(supply.ports)
        if index.error:
            return Check(Reason.NODE_PORTS, index.error, used=used)
        if collision := index.add_canonical_allocs(proposed):
            return Check(Reason.ALLOC_PORTS, collision, used=used)

    # 9 and 10
    if check_devices:
        if supply.devices_invalid is not None:
            raise supply.devices_invalid.error()
        devices = Counter(device for alloc in proposed if not alloc.is_client_terminal for device in device_uses(alloc))
        known = {DeviceUse(kind, instance_id) for kind, instance_ids in supply.devices.items() for instance_id in instance_ids}
        if any(count > 1 and device in known for device, count in devices.items()):
            return Check(Reason.DEVICES, used=used)
        if new and any(device not in known for alloc in proposed if alloc.id in new and not alloc.is_client_terminal for device in device_uses(alloc)):
            return Check(Reason.DEVICE_UNAVAILABLE, used=used)
        if volumes.conflict():
            return Check(Reason.VOLUMES, used=used)
    return Check(Reason.FITS, used=used)


class _VolumeClaims:
    """How often each volume source is claimed, and which of them tolerate one claim only (plan-apply 2.8)."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._exclusive: set[str] = set()

    def add(self, alloc: Allocation, job: Job | None) -> None:
        for source, exclusive in volume_claims(alloc, job):
            self._counts[source] += 1
            if exclusive:
                self._exclusive.add(source)

    def conflict(self) -> bool:
        return any(self._counts[source] > 1 for source in self._exclusive)
