"""What becomes of the allocations of system and sysbatch jobs, node by node (schedulers 4.4 to 4.6)."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from fastplan.scheduler.alloc_facts import alloc_name, by_age, is_expired, needs_reconnect, ran_successfully, wants_migration, with_client_status
from fastplan.scheduler.draft import unknown_copy
from fastplan.scheduler.reconciler.node_rollout import NodeRollout
from fastplan.scheduler.reconciler.overlap import enforce, limit_by_count
from fastplan.scheduler.setting import Overlap
from fastplan.structs import Allocation, Deployment, Job, Node, TaskGroup

TerminalAllocs = Mapping[str, Mapping[str, Allocation]]
"""Node id → name → the newest terminal allocation of that name."""


@dataclass(frozen=True, slots=True)
class Entry:
    """An allocation that is wanted or found in a slot, which is a node and a name.

    `alloc`: the one that was found; of a placement the terminal one that it follows, None without. `group`: None for a name that no group has.
    """

    node_id: str
    name: str
    group: TaskGroup | None
    alloc: Allocation | None
    canary: bool = False

    @property
    def task_group(self) -> str | None:
        """The name of the group."""
        return None if self.group is None else self.group.name

    @property
    def group_name(self) -> str:
        """The name of the group, empty for none."""
        return "" if self.group is None else self.group.name

    @property
    def alloc_id(self) -> str:
        """The id of the allocation, empty without one."""
        return "" if self.alloc is None else self.alloc.id

    @property
    def slot(self) -> tuple[str, str]:
        """Node and name."""
        return self.node_id, self.name


@dataclass(slots=True)
class SystemReconciliation:
    """The allocations by what becomes of them, each list in order of node, then age or name.

    `charged`: slots in which an extra was stopped that would have needed a destructive update (schedulers 5.4).
    """

    place: list[Entry] = field(default_factory=list)
    update: list[Entry] = field(default_factory=list)
    migrate: list[Entry] = field(default_factory=list)
    stop: list[Entry] = field(default_factory=list)
    ignore: list[Entry] = field(default_factory=list)
    lost: list[Entry] = field(default_factory=list)
    disconnecting: list[Entry] = field(default_factory=list)
    reconnecting: list[Entry] = field(default_factory=list)
    charged: list[tuple[str, str]] = field(default_factory=list)

    def add(self, other: SystemReconciliation) -> None:
        """Append the lists of another one."""
        for name in self.__dataclass_fields__:
            getattr(self, name).extend(getattr(other, name))


def reconcile_system(
    *,
    job: Job | None,
    ready_nodes: Iterable[Node],
    not_ready_node_ids: Collection[str],
    tainted: Mapping[str, Node | None],
    live_allocs: Iterable[Allocation],
    terminal_allocs: TerminalAllocs,
    deployment: Deployment | None = None,
    now_ns: int,
    overlap: Overlap = "enforce",
) -> SystemReconciliation:
    """Sort the allocations of a system or sysbatch job into what becomes of them (schedulers 4.5, 4.6, 5).

    *job*: None if it was purged. *ready_nodes*: those the job may use. *tainted*: nodes that are gone (None), down, disconnected or draining.
    *live_allocs*: with their jobs. *deployment*: the current one of this version, if any. *overlap*: what happens to several live allocations in one
    slot.
    """
    return reconcile_nodes(
        job=job,
        ready_nodes=list(ready_nodes),
        not_ready_node_ids=not_ready_node_ids,
        tainted=tainted,
        live_allocs=live_allocs,
        terminal_allocs=terminal_allocs,
        rollout=NodeRollout(job, deployment, strict=False),
        now_ns=now_ns,
        overlap=overlap,
    )


def reconcile_nodes(
    *,
    job: Job | None,
    ready_nodes: Sequence[Node],
    not_ready_node_ids: Collection[str],
    tainted: Mapping[str, Node | None],
    live_allocs: Iterable[Allocation],
    terminal_allocs: TerminalAllocs,
    rollout: NodeRollout,
    now_ns: int,
    overlap: Overlap,
) -> SystemReconciliation:
    """Do what `reconcile_system` does, and bring *rollout*, which knows the latest deployment, up to date with it."""
    wanted = _Wanted(job)
    ready_ids = {node.id for node in ready_nodes}
    on_node: dict[str, list[Allocation]] = {}
    for alloc in live_allocs:
        on_node.setdefault(alloc.node_id, []).append(alloc)
    result = SystemReconciliation()
    runs_on = False
    for node_id in sorted({*on_node, *ready_ids}):
        rollout.look_at_node()
        live, terminal = sorted(on_node.get(node_id, ()), key=by_age), terminal_allocs.get(node_id, {})
        sorter = _NodeSorter(job, wanted, node_id, node_id in ready_ids, node_id in not_ready_node_ids, tainted, rollout, now_ns)
        for alloc in live:
            sorter.sort(alloc)
        found = sorter.found
        if overlap == "enforce" and job is not None:
            enforce(found, job)
        elif overlap == "pr16097":
            limit_by_count(found)
        runs_on = runs_on or (not sorter.is_dead and any(map(rollout.has_begun_without, live)))
        runs_on = runs_on or any(entry.alloc is not None and entry.alloc.client_status != "unknown" for entry in found.ignore)
        sorter.go_through_names(live, terminal)
        result.add(found)
    rollout.settle(ready_nodes, runs_on=runs_on)
    return result


class _Wanted:
    """The names that every node is to have (schedulers 4.4)."""

    def __init__(self, job: Job | None) -> None:
        groups: Sequence[TaskGroup] = () if job is None or job.stop else job.task_groups
        self.groups = {alloc_name(job.name, group.name, index): group for group in groups for index in range(group.count) if job is not None}


class _NodeSorter:
    """Sorts the allocations of one node."""

    def __init__(
        self,
        job: Job | None,
        wanted: _Wanted,
        node_id: str,
        is_ready: bool,
        is_not_ready: bool,
        tainted: Mapping[str, Node | None],
        rollout: NodeRollout,
        now_ns: int,
    ) -> None:
        self._job = job
        self._wanted = wanted
        self._node_id = node_id
        self._is_ready = is_ready
        self._is_not_ready = is_not_ready
        self._is_tainted = node_id in tainted
        self._node = tainted.get(node_id)
        self._rollout = rollout
        self._now_ns = now_ns
        self._names: set[str] = set()
        self.found = SystemReconciliation()

    @property
    def is_dead(self) -> bool:
        """Whether the node is down or gone."""
        return self._is_tainted and (self._node is None or self._node.status == "down")

    def sort(self, alloc: Allocation) -> None:
        """Put a live allocation where it belongs: the first rule that applies (schedulers 4.5)."""
        self._names.add(alloc.name)
        group = self._wanted.groups.get(alloc.name)
        if group is None:
            self.found.stop.append(Entry(self._node_id, alloc.name, None, alloc))
            return
        assert self._job is not None
        entry = Entry(self._node_id, alloc.name, group, alloc)
        found = self.found
        if wants_migration(alloc):
            found.migrate.append(entry)
        elif needs_reconnect(alloc) and is_expired(alloc, self._now_ns):
            found.lost.append(entry)
        elif alloc.client_status == "unknown" and alloc.desired_status == "run":
            found.ignore.append(entry)
        elif not self._is_tainted and alloc.client_status in ("running", "unknown") and needs_reconnect(alloc):
            found.reconnecting.append(Entry(self._node_id, alloc.name, group, with_client_status(alloc, alloc.client_status, self._now_ns)))
        elif self._is_tainted:
            self._sort_tainted(entry, alloc)
        elif self._is_not_ready:
            (found.stop if self._differs(alloc) else found.ignore).append(entry)
        elif not self._is_ready:
            found.stop.append(entry)
        elif self._differs(alloc):
            found.update.append(Entry(self._node_id, alloc.name, group, alloc, self._rollout.is_canary(group)))
        else:
            found.ignore.append(entry)

    def _sort_tainted(self, entry: Entry, alloc: Allocation) -> None:
        found = self.found
        if alloc.job is not None and alloc.job.type == "sysbatch" and ran_successfully(alloc):
            found.ignore.append(entry)
        elif self._node is not None and self._node.status == "disconnected" and alloc.client_status == "running":
            found.disconnecting.append(Entry(entry.node_id, entry.name, entry.group, unknown_copy(alloc, self._now_ns)))
        elif self.is_dead:
            found.lost.append(entry)
        else:
            found.ignore.append(entry)

    def _differs(self, alloc: Allocation) -> bool:
        """Return whether an allocation has another specification than the job."""
        return self._job is not None and (alloc.job is None or alloc.job.job_modify_index != self._job.job_modify_index)

    def go_through_names(self, live: Sequence[Allocation], terminal: Mapping[str, Allocation]) -> None:
        """Add what the node lacks, names without a live allocation in this pass (schedulers 4.6), and begin the roll-out of groups."""
        for name, group in self._wanted.groups.items():
            if name in self._names or self._is_added(name, group, terminal.get(name)):
                self._rollout.begin(group, itertools.chain(live, terminal.values()), updating=bool(self.found.update))

    def _is_added(self, name: str, group: TaskGroup, old: Allocation | None) -> bool:
        """Look at a name without a live allocation; return whether it is to be placed. *old*: the terminal allocation of that name."""
        job = self._job
        if job is not None and job.type == "sysbatch" and old is not None:
            differs = self._differs(old)
            entry = Entry(self._node_id, name, group, old, differs and self._rollout.is_canary(group))
            (self.found.update if differs else self.found.ignore).append(entry)
            return False
        if not self._is_ready or self._is_tainted:
            return False
        self.found.place.append(Entry(self._node_id, name, group, old))
        return True
