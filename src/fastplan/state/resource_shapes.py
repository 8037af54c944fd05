"""Resource shapes with a template: what many allocations hold alike, apart from the ports, cores and device instances that each has for itself.

A shape and the claims of one allocation give back its whole `AllocatedResources` (docs/architecture.md, "Shapes and demands"). Claims stand in *slot
order*: ports as they are booked (plan-apply 3.4), cores ascending, device instances by task; volumes, which belong to the job, stand behind all slots.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import msgspec
import numpy
from numpy.typing import NDArray

from fastplan.errors import InvalidInput, StateError
from fastplan.fit.demand import demand_of, totals_of
from fastplan.fit.encode import KIND_CORE, KIND_DEVICE, KIND_PORT, Claim, encode_demand, read_claim
from fastplan.structs import AllocatedPort, AllocatedResources, Allocation, NetworkResource, Port

_encoder = msgspec.json.Encoder(order="deterministic")


class ResourceShape(msgspec.Struct, frozen=True):
    """What allocations of one kind ask: MHz and MiB, and the template of their resources as JSON.

    An *irregular* one has no amounts: only the ordered reference can judge it. Without a template the resources stand in the allocation's own record.
    """

    cpu_mhz: int = 0
    memory_mib: int = 0
    memory_max_mib: int = 0
    disk_mib: int = 0
    irregular: bool = False
    template: bytes = b""

    @property
    def amounts(self) -> tuple[int, int, int, int]:
        """The amounts in the order of columns: cpu, memory, memory maximum, disk."""
        return self.cpu_mhz, self.memory_mib, self.memory_max_mib, self.disk_mib

    def resources(self, claims: Sequence[int]) -> AllocatedResources | None:
        """Return what an allocation of this shape with these claims holds, None without a template. Raises StateError for too few claims."""
        if not self.template:
            return None
        resources = _template(self.template).copy()
        taken = [read_claim(int(claim)) for claim in claims]
        try:
            _fill(resources, taken)
        except IndexError as error:
            raise StateError(f"{len(taken)} claims are too few for the slots of their resource shape") from error
        return resources

    def slot_kinds(self) -> bytes:
        """Return the kind of each slot, one byte each, in slot order.

        Raises InvalidInput for a shape whose template is missing or cannot be read, or asks for other amounts than the shape.
        """
        return _slot_kinds(self)


def shape_of(resources: AllocatedResources) -> tuple[ResourceShape, NDArray[numpy.uint64]]:
    """Return the shape of *resources* and the claims that go with it, uint64, in slot order.

    Raises InvalidInput where only a whole record can say what is held: amounts or numbers out of range, something held twice.
    """
    demand = demand_of(Allocation(allocated_resources=resources))
    numbers = encode_demand(demand)
    if numbers.irregular:
        raise InvalidInput("AllocatedResources", None, f"regular resources: {demand.irregular or 'an amount is out of range'}")
    claims = numpy.frombuffer(numbers.claims, numpy.uint64)
    template = resources.copy()
    cores = {claim.value: slot for slot, claim in enumerate(claim for claim in map(read_claim, claims.tolist()) if claim.kind == KIND_CORE)}
    for port, network in _port_slots(template):
        port.value = 0
        if network is not None:
            network.ip = ""
        else:
            assert isinstance(port, AllocatedPort)
            port.host_ip, port.ignore_collision = "", False
    for _, task in sorted(template.tasks.items()):
        if task is not None:
            task.cpu.reserved_cores = [cores[core] for core in task.cpu.reserved_cores]
            for device in task.devices:
                if device is not None:
                    device.device_ids = [""] * len(device.device_ids)
    shape = ResourceShape(numbers.cpu_mhz, numbers.memory_mib, numbers.memory_max_mib, numbers.disk_mib, template=_encoder.encode(template.to_api()))
    return shape, claims


@functools.lru_cache(maxsize=1024)
def _template(template: bytes) -> AllocatedResources:
    try:
        api = msgspec.json.decode(template)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput("shape.template", template, "the JSON of AllocatedResources") from error
    return AllocatedResources.from_api(api)


@functools.lru_cache(maxsize=1024)
def _slot_kinds(shape: ResourceShape) -> bytes:
    if not shape.template:
        raise InvalidInput("plan: shape", None, "a shape with a template")
    resources = _template(shape.template)
    totals = totals_of(Allocation(allocated_resources=resources))
    amounts = (totals.cpu_mhz, totals.memory_mib, totals.memory_max_mib, totals.disk_mib)
    if shape.irregular or shape.amounts != amounts:
        raise InvalidInput("plan: shape", shape.amounts, f"the amounts of its template: {amounts}")
    ports = sum(1 for _ in _port_slots(resources))
    tasks = [task for task in resources.tasks.values() if task is not None]
    cores = sorted(slot for task in tasks for slot in task.cpu.reserved_cores)
    if cores != list(range(len(cores))):
        raise InvalidInput("plan: shape", cores, "core slots from 0, each once")
    devices = sum(len(device.device_ids) for task in tasks for device in task.devices if device is not None)
    return bytes([KIND_PORT] * ports + [KIND_CORE] * len(cores) + [KIND_DEVICE] * devices)


def _port_slots(resources: AllocatedResources) -> Iterator[tuple[AllocatedPort | Port, NetworkResource | None]]:
    """Yield the ports that are booked, in order, with the network that they are in (plan-apply 3.4)."""
    if resources.shared.ports:
        for shared_port in resources.shared.ports:
            yield shared_port, None
        return
    networks = [network for network in resources.shared.networks if network is not None]
    for _, task in sorted(resources.tasks.items()):
        if task is not None and task.networks and task.networks[0] is not None:
            networks.append(task.networks[0])
    for network in networks:
        for port in (*network.reserved_ports, *network.dynamic_ports):
            yield port, network


def _fill(resources: AllocatedResources, claims: Sequence[Claim]) -> None:
    """Put claims, in slot order, into the slots of a template."""
    ports = [claim for claim in claims if claim.kind == KIND_PORT]
    cores = [claim for claim in claims if claim.kind == KIND_CORE]
    devices = [claim for claim in claims if claim.kind == KIND_DEVICE]
    for slot, (port, network) in enumerate(_port_slots(resources)):
        claim = ports[slot]
        port.value = int(claim.value)
        if network is not None:
            network.ip = str(claim.subject)
        else:
            assert isinstance(port, AllocatedPort)
            port.host_ip, port.ignore_collision = str(claim.subject), bool(claim.flags & 1)
    taken = 0
    for _, task in sorted(resources.tasks.items()):
        if task is not None:
            task.cpu.reserved_cores = [int(cores[slot].value) for slot in task.cpu.reserved_cores]
            for device in task.devices:
                if device is not None:
                    first, taken = taken, taken + len(device.device_ids)
                    device.device_ids = [str(devices[place].value) for place in range(first, taken)]
