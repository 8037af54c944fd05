"""What the reconciler of service and batch jobs decides (schedulers 7.2 to 7.6)."""

from __future__ import annotations

from dataclasses import dataclass, field

from fastplan.scheduler.reconciler.names import NameIndex
from fastplan.structs import Allocation, Deployment, DeploymentUpdate, DesiredUpdates, Evaluation, TaskGroup


@dataclass(slots=True)
class Placement:
    """A new allocation. `previous`: the one that it follows; `reschedule`: because that failed; `lost`: because its node did."""

    name: str
    group: TaskGroup
    previous: Allocation | None = None
    reschedule: bool = False
    lost: bool = False
    canary: bool = False
    downgrade: bool = False
    """Not a canary while there are some: it keeps the version that was promoted last."""
    replaced: Allocation | None = None
    """Of a destructive update: the allocation that is stopped if a place is found."""


@dataclass(frozen=True, slots=True)
class Stop:
    """An allocation that is stopped."""

    alloc: Allocation
    description: str
    client_status: str = ""
    followup_eval_id: str = ""


@dataclass(slots=True)
class Reconciliation:
    """Everything that is to be done for a job.

    `attribute_updates`, `disconnect_updates`, `reconnect_updates`: id → the new version of an allocation. `follow_ups`: group → evaluations to create.
    """

    place: list[Placement] = field(default_factory=list)
    destructive: list[Placement] = field(default_factory=list)
    stop: list[Stop] = field(default_factory=list)
    in_place: list[Allocation] = field(default_factory=list)
    attribute_updates: dict[str, Allocation] = field(default_factory=dict)
    disconnect_updates: dict[str, Allocation] = field(default_factory=dict)
    reconnect_updates: dict[str, Allocation] = field(default_factory=dict)
    follow_ups: dict[str, list[Evaluation]] = field(default_factory=dict)
    desired: dict[str, DesiredUpdates] = field(default_factory=dict)
    deployment: Deployment | None = None
    deployment_updates: list[DeploymentUpdate] = field(default_factory=list)
    names: dict[str, NameIndex] = field(default_factory=dict)
    """Group → the names that its allocations use, and those given to new ones."""
    held_back_groups: list[TaskGroup] = field(default_factory=list)
    """Groups of which destructive updates wait for others."""
