"""Allocations and what they hold (plan-apply 1.5 to 1.7, 1.9)."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field

from fastplan.structs.job import Job, TaskGroup, TaskLifecycle
from fastplan.structs.metrics import AllocMetric
from fastplan.structs.record import Amount, CoreId, Record, Time
from fastplan.structs.resources import NetworkResource, Resources

CLIENT_TERMINAL_STATUSES = frozenset({"complete", "failed", "lost"})
SERVER_TERMINAL_STATUSES = frozenset({"stop", "evict"})


class AllocatedPort(Record):
    """A port that an allocation holds on one address of its node."""

    label: str = ""
    value: int = 0
    to: int = 0
    host_ip: str = ""
    ignore_collision: bool = False


class AllocatedCpu(Record):
    """CPU of a task: MHz, and the ids of the cores pinned for it."""

    cpu_shares: Amount = 0
    reserved_cores: list[CoreId] = field(default_factory=list)


class AllocatedMemory(Record):
    """Memory of a task in MiB: the reservation, and the burst limit (0 = the same, −1 = unlimited)."""

    memory_mb: Amount = 0
    memory_max_mb: int = 0


class AllocatedDevice(Record):
    """Device instances of one group that a task holds."""

    vendor: str = ""
    type: str = ""
    name: str = ""
    device_ids: list[str] = field(default_factory=list)


class AllocatedTaskResources(Record):
    """What one task holds."""

    cpu: AllocatedCpu = field(default_factory=AllocatedCpu)
    memory: AllocatedMemory = field(default_factory=AllocatedMemory)
    networks: list[NetworkResource | None] = field(default_factory=list)
    devices: list[AllocatedDevice | None] = field(default_factory=list)


class AllocatedSharedResources(Record):
    """What the tasks of an allocation hold together; disk in MiB."""

    disk_mb: Amount = 0
    networks: list[NetworkResource | None] = field(default_factory=list)
    ports: list[AllocatedPort] = field(default_factory=list)


class AllocatedResources(Record):
    """What an allocation holds on its node (plan-apply 1.6)."""

    tasks: dict[str, AllocatedTaskResources | None] = field(default_factory=dict)
    task_lifecycles: dict[str, TaskLifecycle | None] = field(default_factory=dict)
    shared: AllocatedSharedResources = field(default_factory=AllocatedSharedResources)


class DesiredTransition(Record):
    """What operators and the drainer want of an allocation; None where nobody said anything."""

    migrate: bool | None = None
    reschedule: bool | None = None
    force_reschedule: bool | None = None
    no_shutdown_delay: bool | None = None
    migrate_disable_placement: bool | None = None


class AllocDeploymentStatus(Record):
    """The health of an allocation in its deployment; `healthy` None while unknown."""

    healthy: bool | None = None
    timestamp: Time = ""
    canary: bool = False
    modify_index: int = 0


class AllocState(Record):
    """A recorded change of an allocation; field 0 is the client status."""

    field: int = 0
    value: str = ""
    time: Time = ""


class RescheduleEvent(Record):
    """One earlier placement of a rescheduled allocation; times in nanoseconds."""

    reschedule_time: int = 0
    prev_alloc_id: str = ""
    prev_node_id: str = ""
    delay: int = 0


class RescheduleTracker(Record):
    """The history of a rescheduled allocation."""

    events: list[RescheduleEvent | None] = field(default_factory=list)
    last_reschedule: str = ""


class TaskState(Record):
    """The state of a task as its client reported it."""

    state: str = ""
    failed: bool = False
    restarts: int = 0
    last_restart: Time = ""
    started_at: Time = ""
    finished_at: Time = ""
    events: list[Any] = field(default_factory=list)
    task_handle: Any = None


class Allocation(Record):
    """An instance of a group on a node (plan-apply 1.5). Times in Unix nanoseconds.

    `resources`, `task_resources` and `shared_resources` are the layout before `allocated_resources` (plan-apply 1.7).
    `job` is None in plans and list stubs; `job_type` and `job_version` occur only in list stubs.
    """

    ROOT: ClassVar[str] = "alloc"

    id: str = ""
    namespace: str = ""
    eval_id: str = ""
    name: str = ""
    node_id: str = ""
    node_name: str = ""
    job_id: str = ""
    job_type: str = ""
    job_version: int = 0
    task_group: str = ""
    job: Job | None = None
    allocated_resources: AllocatedResources | None = None
    resources: Resources | None = None
    task_resources: dict[str, Resources | None] | None = None
    shared_resources: Resources | None = None
    metrics: AllocMetric | None = None
    desired_status: str = ""
    desired_description: str = ""
    desired_transition: DesiredTransition = field(default_factory=DesiredTransition)
    client_status: str = ""
    client_description: str = ""
    task_states: dict[str, TaskState | None] = field(default_factory=dict)
    alloc_states: list[AllocState | None] = field(default_factory=list)
    previous_allocation: str = ""
    next_allocation: str = ""
    deployment_id: str = ""
    deployment_status: AllocDeploymentStatus | None = None
    reschedule_tracker: RescheduleTracker | None = None
    followup_eval_id: str = ""
    preempted_allocations: list[str] = field(default_factory=list)
    preempted_by_allocation: str = ""
    create_index: int = 0
    modify_index: int = 0
    alloc_modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0

    @property
    def is_client_terminal(self) -> bool:
        """Whether the client has ended it: complete, failed or lost (plan-apply 1.9)."""
        return self.client_status in CLIENT_TERMINAL_STATUSES

    @property
    def is_server_terminal(self) -> bool:
        """Whether it was told to end: stop or evict (plan-apply 1.9)."""
        return self.desired_status in SERVER_TERMINAL_STATUSES

    @property
    def is_terminal(self) -> bool:
        """Whether it is terminal on either side (plan-apply 1.9)."""
        return self.is_client_terminal or self.is_server_terminal

    @property
    def group(self) -> TaskGroup | None:
        """The group of the attached job, None without job or group (plan-apply 1.8)."""
        return None if self.job is None else self.job.group(self.task_group)

    @property
    def replaceable_on_disconnect(self) -> bool:
        """Whether it may be replaced while its node is disconnected (plan-apply 1.9)."""
        group = self.group
        return group is None or group.disconnect is None or group.disconnect.replace is not False
