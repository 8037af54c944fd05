"""The slow path of a checker: verdicts by the ordered reference, where the kernels do not decide or only a text is missing."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fastplan.errors import InvalidInput, Reason
from fastplan.fit import reference
from fastplan.fit.asks import PreparedAsk
from fastplan.fit.demand import demand_of
from fastplan.fit.encode import (
    CLAIM_EXCLUSIVE,
    CLAIM_IGNORES,
    KIND_CORE,
    KIND_DEVICE,
    KIND_PORT,
    KIND_VOLUME,
    AllocNumbers,
    Claim,
    core_speeds,
    port_claim,
    read_claim,
)
from fastplan.fit.placement import Held, Refusal, place
from fastplan.fit.port_ranges import PORT_COUNT
from fastplan.fit.ports import PortIndex
from fastplan.fit.results import Check
from fastplan.fit.score import score_fit
from fastplan.fit.supply import NodeSupply, supply_of
from fastplan.structs import AllocatedCpu, AllocatedMemory, AllocatedPort, AllocatedResources, AllocatedSharedResources, AllocatedTaskResources, Allocation

if TYPE_CHECKING:
    from fastplan.structs import Node

UNLIMITED = 2**63 - 1
"""How many copies fit where nothing limits them."""

_SUPPLIES_KEPT = 4096


class Judge:
    """Knows nodes and the allocations on them, and asks the reference. *claims_of* gives the claims held on a row, or None if it does not know."""

    def __init__(self, node_of: Callable[[int], Node], allocs_on: Callable[[int], list[Allocation]], claims_of: Callable[[int], Sequence[int] | None]) -> None:
        self._node_of = node_of
        self._allocs_on = allocs_on
        self._claims_of = claims_of
        self._supplies: dict[int, NodeSupply] = {}

    def supply(self, row: int) -> NodeSupply:
        """Return what a node supplies, kept for some nodes."""
        supply = self._supplies.get(row)
        if supply is None:
            if len(self._supplies) >= _SUPPLIES_KEPT:
                self._supplies.clear()
            supply = self._supplies[row] = supply_of(self._node_of(row))
        return supply

    def others(self, row: int, ask: PreparedAsk) -> list[Allocation]:
        """Return the allocations on a row that the ask does not replace, ascending by id."""
        return [alloc for alloc in self._allocs_on(row) if alloc.id not in ask.alloc_ids]

    def check(self, row: int, ask: PreparedAsk, extra: Sequence[Allocation] = ()) -> Check:
        """Return the verdict on a row, with *extra* allocations on it. Raises `InvalidInput` where Nomad crashes (plan-apply 2.10)."""
        allocs = ask.allocs
        if ask.need is not None:
            placed = self.place(row, ask, extra)
            if isinstance(placed, Refusal):
                return self._refused(row, ask, placed, extra)
            allocs = (placed[1],)
        return reference.check(self._node_of(row), [*self.others(row, ask), *extra, *allocs], supply=self.supply(row))

    def port_detail(self, row: int, ask: PreparedAsk, released: AllocNumbers | None) -> str:
        """Return the detail of a port reason on a row where nothing else is at odds, once *released* has left: the ask alone decides it (plan-apply 3.6)."""
        supply = self.supply(row)
        if supply.ports.error:
            return supply.ports.error
        held = set(self._claims_of(row) or ())
        if released is not None:
            held.difference_update(claim & ~CLAIM_IGNORES for claim in array("Q", released.claims))
        asked = {(use.address, use.port) for alloc in ask.allocs if not alloc.is_client_terminal for use in demand_of(alloc).ports}
        taken = [AllocatedPort(value=port, host_ip=address) for address, port in asked if port_claim(address, port) in held]
        holder = Allocation(allocated_resources=AllocatedResources(shared=AllocatedSharedResources(ports=taken)))
        return PortIndex.of(supply.ports).add_canonical_allocs([holder, *ask.allocs])

    def code(self, row: int, ask: PreparedAsk) -> int:
        """Return the verdict on a row as a Reason number, `INVALID` where the reference raises."""
        try:
            return int(self.check(row, ask).code)
        except InvalidInput:
            return int(Reason.INVALID)

    def place(self, row: int, ask: PreparedAsk, extra: Sequence[Allocation] = ()) -> tuple[dict[str, Any], Allocation] | Refusal:
        """Choose ports, cores and instances for a copy of a group: its resources, and the allocation that it would be."""
        need = ask.need
        assert need is not None
        held = self.held(row, extra)
        placed = place(need, self._node_of(row), self.supply(row), held, lambda: [*self._allocs_on(row), *extra])
        if isinstance(placed, Refusal):
            return placed
        resources = AllocatedResources.from_api(placed)
        return placed, Allocation(id="", job=need.job, job_id=need.job.id, task_group=need.group.name, allocated_resources=resources)

    def held(self, row: int, extra: Sequence[Allocation] = ()) -> Held:
        """Return which ports, cores and instances are held on a row."""
        known = None if extra else self._claims_of(row)
        if known is not None:
            return Held.of(map(read_claim, known))
        return Held.of(claim for alloc in [*self._allocs_on(row), *extra] for claim in held_by(alloc))

    def _refused(self, row: int, ask: PreparedAsk, refusal: Refusal, extra: Sequence[Allocation]) -> Check:
        """Nothing could be chosen: whatever fails before that in the order of checks decides (plan-apply 2.2)."""
        need = ask.need
        assert need is not None
        node, supply = self._node_of(row), self.supply(row)
        free_cores = sorted(supply.cores - self.held(row, extra).cores) if need.cores else []
        speeds = core_speeds(node) if need.cores else {}
        tasks: dict[str, AllocatedTaskResources | None] = {}
        for task in need.tasks:
            cores, free_cores = free_cores[: task.cores], free_cores[task.cores :]
            cpu = AllocatedCpu(cpu_shares=task.cpu_mhz + sum(speeds.get(core, 0) for core in cores), reserved_cores=cores)
            tasks[task.name] = AllocatedTaskResources(cpu=cpu, memory=AllocatedMemory(memory_mb=task.memory_mib, memory_max_mb=task.memory_max_mib))
        bare = AllocatedResources(
            tasks=tasks,
            task_lifecycles={task.name: task.lifecycle for task in need.group.tasks or ()},
            shared=AllocatedSharedResources(disk_mb=need.disk_mib),
        )
        alloc = Allocation(id="", task_group=need.group.name, allocated_resources=bare)
        check = reference.check(node, [*self._allocs_on(row), *extra, alloc], supply=supply)
        if check.code is not Reason.FITS and (check.code <= refusal.code or check.code is Reason.NODE_PORTS):
            return check
        return Check(refusal.code, refusal.detail, used=check.used)

    def copies(self, row: int, ask: PreparedAsk, wanted: int) -> int:
        """Return how many copies fit on a row, at most *wanted*."""
        if wanted <= 0 or self.code(row, ask) != Reason.FITS:
            return 0
        if wanted == 1:
            return 1
        allocs = ask.allocs
        if ask.need is not None:
            if ask.need.cores or ask.need.device_requests or ask.need.static_ports or ask.need.dynamic_ports or ask.need.has_task_networks:
                return self._placed_copies(row, ask, wanted)
            placed = self.place(row, ask)
            assert not isinstance(placed, Refusal)
            allocs = (placed[1],)
        return self._equal_copies(row, ask, allocs, wanted)

    def _placed_copies(self, row: int, ask: PreparedAsk, wanted: int) -> int:
        """Place copy after copy: each takes ports, cores or instances away."""
        extra: list[Allocation] = []
        while len(extra) < wanted:
            placed = self.place(row, ask, extra)
            if isinstance(placed, Refusal):
                break
            check = reference.check(self._node_of(row), [*self._allocs_on(row), *extra, placed[1]], supply=self.supply(row))
            if check.code is not Reason.FITS:
                break
            extra.append(placed[1])
        return len(extra)

    def _equal_copies(self, row: int, ask: PreparedAsk, allocs: Sequence[Allocation], wanted: int) -> int:
        """Return how many equal copies fit; one does.

        What can be held only once, two copies collide on or no number does: equal copies hold the same. So if two fit, only sums limit them.
        """
        others = self.others(row, ask)
        supply = self.supply(row)
        most = wanted
        used = reference.check(self._node_of(row), [*others, *allocs], supply=supply).used
        # Not the encoded numbers: those of an irregular ask say nothing.
        demands = [demand_of(alloc) for alloc in allocs if not alloc.is_client_terminal]
        for asked, free in (
            (sum(demand.cpu_mhz for demand in demands), supply.cpu_mhz - used.cpu_mhz),
            (sum(demand.memory_mib for demand in demands), supply.memory_mib - used.memory_mib),
            (sum(demand.disk_mib for demand in demands), supply.disk_mib - used.disk_mib),
            (len(allocs), supply.max_allocs - len(others) - len(allocs) if supply.max_allocs else UNLIMITED),
        ):
            if asked > 0 and free < UNLIMITED:
                most = min(most, 1 + free // asked)
        if most < 2 or reference.check(self._node_of(row), [*others, *allocs, *allocs], supply=supply).code is not Reason.FITS:
            return 1
        return most

    def score(self, row: int, ask: PreparedAsk, spread: bool) -> float:
        """Return how good a row would look with the ask on it, 0 to 18 (schedulers.md 9.2); the ask fits there."""
        return score_fit(self._node_of(row), self.check(row, ask).used, algorithm="spread" if spread else "binpack")


def held_by(alloc: Allocation) -> list[Claim]:
    """Return what a canonical allocation holds, apart; of an irregular one whatever can be read."""
    if alloc.is_client_terminal:
        return []
    demand = demand_of(alloc)
    claims = [Claim(KIND_PORT, use.address, use.port, CLAIM_IGNORES if use.ignores_collision else 0) for use in demand.ports if 0 <= use.port < PORT_COUNT]
    claims.extend(Claim(KIND_CORE, "", core, 0) for core in demand.cores)
    claims.extend(Claim(KIND_DEVICE, use.kind, use.instance_id, 0) for use in demand.devices)
    claims.extend(Claim(KIND_VOLUME, volume.source, 0, CLAIM_EXCLUSIVE if volume.exclusive else 0) for volume in demand.volumes)
    return claims
