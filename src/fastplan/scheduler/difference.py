"""Which changes of a job need new allocations (schedulers 6).

`tasks_updated` compares one group in two versions of a job and names the first difference; without one, allocations can be updated where they are.
Null and empty are one value. Changes of life cycles are not compared, although they change what counts as used: that is as in the original.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from fastplan.structs import Job, NetworkResource, Task, TaskGroup
from fastplan.structs.record import Record


def tasks_updated(job_a: Job, job_b: Job, group: str) -> str:
    """Return the name of the first difference of a group that needs new allocations, empty if there is none.

    *job_a* is the new version. A group or task that one side lacks is a difference.
    """
    a, b = job_a.group(group), job_b.group(group)
    if a is None or b is None:
        return "" if a is b else "task group"
    return next(_differences(job_a, a, job_b, b), "")


def _differences(job_a: Job, a: TaskGroup, job_b: Job, b: TaskGroup) -> Iterator[str]:
    if len(a.tasks) != len(b.tasks):
        yield "number of tasks"
    disk_a, disk_b = a.ephemeral_disk, b.ephemeral_disk
    for name in ("sticky", "size_mb", "migrate"):
        if getattr(disk_a, name, None) != getattr(disk_b, name, None):
            yield "ephemeral disk"
            break
    if _networks_differ(a.networks, b.networks):
        yield "network"
    if _consul_differs(a.consul, b.consul):
        yield "group consul"
    if _connects_differ(a.services, b.services):
        yield "connect service"
    if _volumes(a) != _volumes(b):
        yield "volume request"
    if _renders_templates(a) != _renders_templates(b):
        yield "group restart render_templates"
    tasks_b = {task.name: task for task in b.tasks}
    for task in a.tasks:
        other = tasks_b.get(task.name)
        if other is None:
            yield "missing task"
            return
        yield from _task_differences(job_a, a, task, job_b, b, other)


# Compared as a whole, in the order in which the original looks at them.
_PARTS: tuple[tuple[str, Callable[[Task], Any]], ...] = (
    ("task driver", lambda task: task.driver),
    ("task user", lambda task: task.user),
    ("task config", lambda task: _plain(task.config, is_open=True)),
    ("task env", lambda task: _plain(task.env, is_open=True)),
    ("task artifacts", lambda task: _plain(task.artifacts)),
    ("task vault", lambda task: _plain(task.vault)),
    ("task secrets", lambda task: _plain(task.secrets)),
)
_LATER_PARTS: tuple[tuple[str, Callable[[Task], Any]], ...] = (
    ("task templates", lambda task: _plain(task.templates)),
    ("task csi config", lambda task: _plain(task.csi_plugin_config)),
    ("task volume mounts", lambda task: _plain(task.volume_mounts)),
)


def _task_differences(job_a: Job, group_a: TaskGroup, a: Task, job_b: Job, group_b: TaskGroup, b: Task) -> Iterator[str]:
    yield from (name for name, part in _PARTS if part(a) != part(b))
    if _consul_differs(a.consul, b.consul):
        yield "task consul"
    yield from (name for name, part in _LATER_PARTS if part(a) != part(b))
    if {**job_a.meta, **group_a.meta, **a.meta} != {**job_b.meta, **group_b.meta, **b.meta}:
        yield "task meta"
    mine, theirs = a.resources, b.resources
    if _networks_differ([] if mine is None else mine.networks, [] if theirs is None else theirs.networks):
        yield "task networks"
    for name, field in (("task cpu", "cpu"), ("task cores", "cores"), ("task memory", "memory_mb"), ("task memory max", "memory_max_mb")):
        if getattr(mine, field, 0) != getattr(theirs, field, 0):
            yield name
    if not _same_members([] if mine is None else _plain(mine.devices), [] if theirs is None else _plain(theirs.devices)):
        yield "task devices"
    if not _equal(None if mine is None else mine.numa, None if theirs is None else theirs.numa):
        yield "numa"
    if getattr(mine, "secrets_mb", 0) != getattr(theirs, "secrets_mb", 0):
        yield "task secrets memory"
    if not _equal(a.identity, b.identity) or not _equal(a.identities, b.identities):
        yield "task identity"
    if getattr(a.log_config, "disabled", False) != getattr(b.log_config, "disabled", False):
        yield "task log disabled"
    if _renders_templates(a) != _renders_templates(b):
        yield "task restart render_templates"


def _volumes(group: TaskGroup) -> dict[str, Any]:
    return {name: _plain(request) for name, request in group.volumes.items()}


def _renders_templates(of: Task | TaskGroup) -> bool:
    return of.restart_policy is not None and of.restart_policy.render_templates


def _equal(a: Any, b: Any) -> bool:
    return bool(_plain(a) == _plain(b))


# Maps whose keys are the user's: there an entry that stands for nothing differs from none.
_OPEN_MAPS: Final = frozenset({"Args", "Config", "EnvoyGatewayBindAddresses", "Env", "GetterHeaders", "GetterOptions", "Meta"})


def _plain(value: Any, *, is_open: bool = False, keep_objects: bool = False) -> Any:
    """Return a value in which null and empty are one.

    Of an object the parts that stand for nothing are left out: null, zero, false, and empty text, list or object. *is_open*: its keys are the user's, and
    so are those within; all stay. *keep_objects*: an empty object is something.
    """
    if isinstance(value, Record):
        value = value.to_api()
    if isinstance(value, Mapping):
        parts = {key: _plain(part, is_open=is_open or key in _OPEN_MAPS, keep_objects=keep_objects) for key, part in value.items()}
        if is_open:
            return {key: None if part in ([], {}) else part for key, part in parts.items()}
        return {key: part for key, part in parts.items() if not _is_nothing(part) or (keep_objects and part == {})}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(part, is_open=is_open, keep_objects=keep_objects) for part in value]
    # True is 1 in Python, and something else in a configuration.
    return (value,) if is_open and isinstance(value, bool) else value


def _same_members(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Return whether two lists are as long as each other and everything in the first is in the second, in any order."""
    return len(a) == len(b) and all(member in b for member in a)


def _is_nothing(value: Any) -> bool:
    return value is None or value is False or (value == 0 and not isinstance(value, bool)) or value == "" or value == [] or value == {}


def _networks_differ(a: Sequence[NetworkResource | None], b: Sequence[NetworkResource | None]) -> bool:
    return [_network(network) for network in a] != [_network(network) for network in b]


def _network(network: NetworkResource | None) -> Any:
    """Return what of a network needs a new allocation when it changes; the number of a dynamic port does not."""
    if network is None:
        return None
    ports = [(port.label, port.value, port.to, port.host_network) for port in network.reserved_ports]
    # A dynamic port stands in the same list, as one with the number −1.
    ports += [(port.label, -1, port.to, port.host_network) for port in network.dynamic_ports]
    return network.mode, network.mbits, network.hostname, _plain(network.dns), _plain(network.cni), ports


def _consul_differs(a: Any, b: Any) -> bool:
    """Return whether namespace, cluster or partition of two Consul blocks differ; the latter two only where both are there."""
    if not isinstance(a, Mapping) or not isinstance(b, Mapping):
        return False
    return any((a.get(key) or "") != (b.get(key) or "") for key in ("Cluster", "Partition"))


def _connects_differ(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Return whether a service that was connected, on the side of *a*, is connected otherwise on the other."""
    others: dict[str, Mapping[str, Any]] = {}
    for service in b:
        if isinstance(service, Mapping):
            # Of several with one name the first counts.
            others.setdefault(service.get("Name") or "", service)
    for service in a:
        if not isinstance(service, Mapping) or not isinstance(service.get("Connect"), Mapping):
            continue
        other = others.get(service.get("Name") or "")
        if other is None:
            continue
        if (service.get("PortLabel") or "") != (other.get("PortLabel") or "") or (service.get("Cluster") or "") != (other.get("Cluster") or ""):
            return True
        if _connect(service["Connect"]) != _connect(other.get("Connect")):
            return True
    return False


def _connect(connect: Any) -> Any:
    if not isinstance(connect, Mapping):
        return None
    sidecar = connect.get("SidecarService")
    port = None if not isinstance(sidecar, Mapping) else sidecar.get("Port") or ""
    return bool(connect.get("Native")), _plain(connect.get("Gateway"), keep_objects=True), _sidecar_task(connect.get("SidecarTask")), port


def _sidecar_task(task: Any) -> Any:
    """Return what counts of the task of a sidecar; of its resources NUMA, name servers and the host networks of ports do not."""
    if not isinstance(task, Mapping):
        return None
    resources = task.get("Resources")
    if not isinstance(resources, Mapping):
        return _plain(task)
    networks = [_sidecar_network(network) for network in resources.get("Networks") or ()]
    devices = _plain(resources.get("Devices") or [])
    counted = {key: value for key, value in resources.items() if key not in ("Networks", "Devices", "NUMA")}
    return _plain({**task, "Resources": None}), _plain(counted), sorted(map(repr, networks)), sorted(map(repr, devices))


def _sidecar_network(network: Any) -> Any:
    if not isinstance(network, Mapping):
        return None
    ports = [
        [[port.get("Label") or "", port.get("Value") or 0, port.get("To") or 0] for port in network.get(kind) or () if isinstance(port, Mapping)]
        for kind in ("ReservedPorts", "DynamicPorts")
    ]
    return [network.get(key) or "" for key in ("Mode", "Device", "CIDR", "IP", "Hostname", "MBits")], ports
