"""From what a node supplies and an allocation demands to the numbers that the compiled check works on.

The layout of claims is that of `_kernels.pxd`; a test compares the constants.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy
from numpy.typing import NDArray

from fastplan.fit.demand import AllocDemand
from fastplan.fit.interning import Internable, number_of, text_count, text_of_number
from fastplan.fit.port_ranges import PORT_COUNT
from fastplan.fit.supply import NodeSupply, supply_of

if TYPE_CHECKING:
    from fastplan.structs import Node

KIND_PORT, KIND_CORE, KIND_DEVICE, KIND_VOLUME = range(4)
CLAIM_FLAG_BITS = 4
CLAIM_IGNORES = 1
CLAIM_STOPPING = 2
CLAIM_EXCLUSIVE = 4
KIND_SHIFT = 62
SUBJECT_SHIFT = 34
AMOUNT_LIMIT = 2**47 - 1
"""Amounts beyond this are left to the reference, so that sums of a row cannot overflow."""

ROW_PRESENT = 1
ROW_READY = 2
ROW_DOWN = 4
ROW_DISCONNECTED = 8
ROW_INELIGIBLE = 16

_SUBJECT_MASK = (1 << 28) - 1
_VALUE_MASK = (1 << 30) - 1
_STATUS_FLAGS = {"ready": ROW_READY, "down": ROW_DOWN, "disconnected": ROW_DISCONNECTED}


class NodeNumbers(NamedTuple):
    """What a node supplies, for `NodeTable`. MHz and MiB after reservations; the rest native uint64 as bytes, see `Supply` in `_kernels.pxd`.

    `irregular`: something cannot be read or is beyond the limits, so only the reference decides.
    """

    cpu_mhz: int = 0
    memory_mib: int = 0
    disk_mib: int = 0
    max_allocs: int = 0
    cores: bytes = b""
    devices: bytes = b""
    reserved: bytes = b""
    networks: bytes = b""
    dynamic_low: int = 20000
    dynamic_high: int = 32000
    core_mhz: int = 0
    ports_unusable: bool = False
    irregular: bool = False


class Claim(NamedTuple):
    """A claim taken apart. `subject` is the address, the device kind or the source (empty for a core), `value` the port, core or instance id."""

    kind: int
    subject: Internable
    value: int | str
    flags: int


class AllocNumbers(NamedTuple):
    """What one allocation asks, for `_kernels.AskNumbers`: MHz, MiB and its claims (native uint64 as bytes; ports, cores, devices, volumes).

    An irregular one is judged by the reference only and has no amounts and no claims.
    """

    cpu_mhz: int = 0
    memory_mib: int = 0
    memory_max_mib: int = 0
    disk_mib: int = 0
    claims: bytes = b""
    irregular: bool = False


IRREGULAR_ASK = AllocNumbers(irregular=True)


def port_claim(address: str, port: int, *, ignores_collision: bool = False) -> int:
    """Return the claim on a port (0 to 65535) of an address."""
    return number_of(address) << SUBJECT_SHIFT | port << CLAIM_FLAG_BITS | (CLAIM_IGNORES if ignores_collision else 0)


def core_claim(core: int) -> int:
    """Return the claim on a core id (0 to 65535)."""
    return KIND_CORE << KIND_SHIFT | core << CLAIM_FLAG_BITS


def device_claim(kind: tuple[str, str, str], instance_id: str) -> int:
    """Return the claim on an instance of a device group, named by vendor, type and name."""
    return KIND_DEVICE << KIND_SHIFT | number_of(kind) << SUBJECT_SHIFT | number_of(instance_id) << CLAIM_FLAG_BITS


def volume_claim(source: str, *, exclusive: bool) -> int:
    """Return the claim on a volume source, exclusive for a single writer."""
    return KIND_VOLUME << KIND_SHIFT | number_of(source) << SUBJECT_SHIFT | (CLAIM_EXCLUSIVE if exclusive else 0)


def read_claim(claim: int) -> Claim:
    """Take a claim apart."""
    kind = claim >> KIND_SHIFT
    value: int | str = claim >> CLAIM_FLAG_BITS & _VALUE_MASK
    if kind == KIND_DEVICE:
        text = text_of_number(int(value))
        assert isinstance(text, str)
        value = text
    return Claim(kind, "" if kind == KIND_CORE else text_of_number(claim >> SUBJECT_SHIFT & _SUBJECT_MASK), value, claim & (1 << CLAIM_FLAG_BITS) - 1)


def sound_claims(claims: NDArray[numpy.uint64]) -> NDArray[numpy.bool_]:
    """Return which *claims*, uint64 (n), have numbers that exist: texts of this process, ports and cores from 0 to 65535."""
    kinds = claims >> KIND_SHIFT
    subjects = claims >> SUBJECT_SHIFT & _SUBJECT_MASK
    values = claims >> CLAIM_FLAG_BITS & _VALUE_MASK
    known = text_count()
    sound: NDArray[numpy.bool_] = (subjects < known) | (kinds == KIND_CORE)
    sound &= values < numpy.where(kinds == KIND_DEVICE, known, PORT_COUNT)
    return sound


def status_flags(status: str, eligibility: str) -> int:
    """Return the ROW_* flags of a node's status and scheduling eligibility (plan-apply 5.2 steps 4 to 6 and 9)."""
    return ROW_PRESENT | _STATUS_FLAGS.get(status, 0) | (ROW_INELIGIBLE if eligibility == "ineligible" else 0)


def core_speeds(node: Node) -> dict[int, int]:
    """Return the speed in MHz of each core id in the topology of canonical *node* (plan-apply 1.2)."""
    resources = node.node_resources
    topology = resources.processors.topology if resources is not None else None
    return {core.id: core.speed_mhz for core in (topology.cores if topology is not None else ()) or ()}


def encode_node(node: Node, supply: NodeSupply | None = None) -> NodeNumbers:
    """Return the numbers of canonical *node*, with the speed of its cores; *supply* saves taking it apart again."""
    if supply is None:
        supply = supply_of(node)
    numbers = encode_supply(supply)
    speeds = core_speeds(node)
    usable = {speeds.get(core, 0) for core in supply.cores}
    speed_mhz = usable.pop() if len(usable) == 1 else 0
    return numbers._replace(core_mhz=speed_mhz) if 0 < speed_mhz <= AMOUNT_LIMIT and not numbers.irregular else numbers


def encode_supply(supply: NodeSupply) -> NodeNumbers:
    """Return the numbers of a node, all but the speed of its cores. Nothing is raised; what cannot be decided by numbers is irregular."""
    amounts = (supply.cpu_mhz, supply.memory_mib, supply.disk_mib, supply.max_allocs)
    ports = supply.ports
    if (
        supply.invalid is not None
        or supply.devices_invalid is not None
        or ports.invalid is not None
        or any(abs(amount) > AMOUNT_LIMIT for amount in amounts)
        or any(not 0 <= core < PORT_COUNT for core in supply.cores)
    ):
        return NodeNumbers(irregular=True)
    low, high = ports.dynamic_range
    # An inverted range still offers its lower bound (schedulers.md 9.3); what lies beyond the last port cannot be offered.
    high = max(low, min(high, PORT_COUNT - 1))
    if low >= PORT_COUNT:
        low, high = 1, 0
    reserved = sorted((port_claim(address, first), port_claim(address, last)) for address, ranges in ports.reserved.items() for first, last in ranges)
    devices = sorted({device_claim(kind, instance_id) for kind, instance_ids in supply.devices.items() for instance_id in instance_ids})
    return NodeNumbers(
        *amounts,
        cores=_packed(core_claim(core) for core in sorted(supply.cores)),
        devices=_packed(devices),
        reserved=_packed(claim for pair in reserved for claim in pair),
        networks=_packed(number_of(alias) << 32 | number_of(address) for alias, addresses in ports.host_networks.items() for address in addresses),
        dynamic_low=low,
        dynamic_high=high,
        ports_unusable=bool(ports.error),
    )


def encode_demand(demand: AllocDemand) -> AllocNumbers:
    """Return the numbers of an allocation, whether it is terminal or not. Nothing is raised; what cannot be decided by numbers is irregular."""
    amounts = (demand.cpu_mhz, demand.memory_mib, demand.memory_max_mib, demand.disk_mib)
    if demand.irregular or any(abs(amount) > AMOUNT_LIMIT for amount in amounts):
        return IRREGULAR_ASK
    if not (demand.ports or demand.cores or demand.devices or demand.volumes):
        return AllocNumbers(*amounts)
    claims = array("Q", [port_claim(use.address, use.port, ignores_collision=use.ignores_collision) for use in demand.ports])
    claims.extend(core_claim(core) for core in demand.cores)
    claims.extend(device_claim(use.kind, use.instance_id) for use in demand.devices)
    sources: dict[str, bool] = {}
    for volume in demand.volumes:
        if volume.source in sources and (volume.exclusive or sources[volume.source]):
            # Two requests of one group are two claims: with a single writer among them they are at odds with themselves (plan-apply 2.8).
            return IRREGULAR_ASK
        sources[volume.source] = volume.exclusive
    claims.extend(volume_claim(source, exclusive=exclusive) for source, exclusive in sources.items())
    return AllocNumbers(*amounts, claims=claims.tobytes())


def _packed(claims: Iterable[int]) -> bytes:
    return array("Q", claims).tobytes()
