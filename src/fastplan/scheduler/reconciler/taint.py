"""Where an allocation stands: on a healthy node, on its way, or lost (schedulers 7.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fastplan.scheduler.alloc_facts import is_expired, lost_after_ns, needs_reconnect, replaces_on_disconnect, wants_migration
from fastplan.structs import Allocation, Node


@dataclass(slots=True)
class Standing:
    """Allocations by where they stand."""

    untainted: list[Allocation] = field(default_factory=list)
    migrate: list[Allocation] = field(default_factory=list)
    lost: list[Allocation] = field(default_factory=list)
    disconnecting: list[Allocation] = field(default_factory=list)
    reconnecting: list[Allocation] = field(default_factory=list)
    ignore: list[Allocation] = field(default_factory=list)
    expiring: list[Allocation] = field(default_factory=list)


def by_standing(allocs: Iterable[Allocation], tainted: Mapping[str, Node | None], now_ns: int) -> Standing:
    """Sort allocations: the first rule that applies."""
    found = Standing()
    for alloc in allocs:
        _part(found, alloc, tainted, now_ns).append(alloc)
    return found


def _part(found: Standing, alloc: Allocation, tainted: Mapping[str, Node | None], now_ns: int) -> list[Allocation]:
    client = alloc.client_status
    reconnect = client in ("unknown", "running", "failed") and needs_reconnect(alloc)
    if reconnect and client == "failed" and alloc.desired_status == "run":
        return found.reconnecting
    if not reconnect:
        if alloc.is_server_terminal:
            return found.untainted if alloc.desired_transition.migrate_disable_placement else found.ignore
        if alloc.is_client_terminal:
            is_canary = alloc.deployment_status is not None and alloc.deployment_status.canary
            return found.migrate if is_canary and wants_migration(alloc) else found.untainted
    if is_expired(alloc, now_ns):
        return found.expiring
    if reconnect and client == "failed" and alloc.desired_status == "stop":
        return found.ignore
    return _part_by_node(found, alloc, tainted, reconnect)


def _part_by_node(found: Standing, alloc: Allocation, tainted: Mapping[str, Node | None], reconnect: bool) -> list[Allocation]:
    client = alloc.client_status
    is_tainted = alloc.node_id in tainted
    node = tainted.get(alloc.node_id)
    if node is not None and node.status == "disconnected":
        if client == "unknown":
            return found.untainted
        if client == "pending" or lost_after_ns(alloc) == 0:
            return found.lost
        return found.disconnecting
    if wants_migration(alloc):
        return found.migrate
    if not is_tainted or (node is not None and node.status == "ready"):
        return found.reconnecting if reconnect else found.untainted
    if node is None:
        return found.lost
    if node.status != "down":
        return found.untainted
    if not replaces_on_disconnect(alloc):
        if client == "unknown":
            return found.untainted
        if client == "running":
            return found.disconnecting
    return found.lost
