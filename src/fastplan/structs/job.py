"""Jobs, groups and tasks (plan-apply 1.8). What only clients read is kept as opaque JSON."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from msgspec import field

from fastplan.structs.record import Amount, Record
from fastplan.structs.resources import Affinity, Constraint, NetworkResource, Resources, Spread

_MANY_GROUPS: Final = 64
"""Groups of a job from which on looking through all of them takes too long."""


class TaskLifecycle(Record):
    """When a task runs: `hook` is prestart, poststart, poststop or empty (plan-apply 2.3)."""

    hook: str = ""
    sidecar: bool = False


class VolumeRequest(Record):
    """A volume that a group asks for; only `source` and `access_mode` count in the fit check (plan-apply 2.8)."""

    name: str = ""
    type: str = ""
    source: str = ""
    read_only: bool = False
    sticky: bool = False
    access_mode: str = ""
    attachment_mode: str = ""
    mount_options: Any = None
    per_alloc: bool = False


class EphemeralDisk(Record):
    """Scratch disk of a group; `size_mb` in MiB."""

    sticky: bool = False
    size_mb: Amount = 0
    migrate: bool = False


class Disconnect(Record):
    """What happens to allocations of a node that went away; durations in nanoseconds. `replace` None means true (plan-apply 1.8)."""

    lost_after: int = 0
    replace: bool | None = None
    reconcile: str = ""
    stop_on_client_after: int | None = None


class RestartPolicy(Record):
    """How often a task is restarted on its node; durations in nanoseconds."""

    attempts: int = 0
    interval: int = 0
    delay: int = 0
    mode: str = ""
    render_templates: bool = False


class ReschedulePolicy(Record):
    """When a failed allocation is placed again; durations in nanoseconds."""

    attempts: int = 0
    interval: int = 0
    delay: int = 0
    delay_function: str = ""
    max_delay: int = 0
    unlimited: bool = False


class MigrateStrategy(Record):
    """How allocations leave a draining node; durations in nanoseconds."""

    max_parallel: int = 0
    health_check: str = ""
    min_healthy_time: int = 0
    healthy_deadline: int = 0


class UpdateStrategy(Record):
    """How a job's allocations are replaced by a new version; durations in nanoseconds."""

    stagger: int = 0
    max_parallel: int = 0
    health_check: str = ""
    min_healthy_time: int = 0
    healthy_deadline: int = 0
    progress_deadline: int = 0
    auto_revert: bool = False
    auto_promote: bool = False
    canary: int = 0


class LogConfig(Record):
    """Limits of a task's logs."""

    max_files: int = 0
    max_file_size_mb: int = 0
    disabled: bool = False


class Task(Record):
    """A task of a group."""

    name: str = ""
    driver: str = ""
    user: str = ""
    kind: str = ""
    leader: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    meta: dict[str, str] = field(default_factory=dict)
    constraints: list[Constraint | None] = field(default_factory=list)
    affinities: list[Affinity | None] = field(default_factory=list)
    resources: Resources | None = None
    lifecycle: TaskLifecycle | None = None
    restart_policy: RestartPolicy | None = None
    log_config: LogConfig | None = None
    kill_timeout: int = 0
    kill_signal: str = ""
    shutdown_delay: int = 0
    services: list[Any] = field(default_factory=list)
    templates: list[Any] = field(default_factory=list)
    artifacts: list[Any] = field(default_factory=list)
    volume_mounts: list[Any] = field(default_factory=list)
    scaling_policies: list[Any] = field(default_factory=list)
    identity: Any = None
    identities: list[Any] = field(default_factory=list)
    actions: list[Any] = field(default_factory=list)
    secrets: list[Any] = field(default_factory=list)
    vault: Any = None
    consul: Any = None
    schedule: Any = None
    dispatch_payload: Any = None
    csi_plugin_config: Any = None


class TaskGroup(Record):
    """A group of tasks that are placed together, `count` times; durations in nanoseconds."""

    name: str = ""
    count: int = 0
    tasks: list[Task] = field(default_factory=list)
    constraints: list[Constraint | None] = field(default_factory=list)
    affinities: list[Affinity | None] = field(default_factory=list)
    spreads: list[Spread | None] = field(default_factory=list)
    networks: list[NetworkResource | None] = field(default_factory=list)
    volumes: dict[str, VolumeRequest | None] = field(default_factory=dict)
    ephemeral_disk: EphemeralDisk | None = None
    disconnect: Disconnect | None = None
    restart_policy: RestartPolicy | None = None
    reschedule_policy: ReschedulePolicy | None = None
    migrate: MigrateStrategy | None = None
    update: UpdateStrategy | None = None
    meta: dict[str, str] = field(default_factory=dict)
    services: list[Any] = field(default_factory=list)
    scaling: Any = None
    consul: Any = None
    shutdown_delay: int | None = None
    stop_after_client_disconnect: int | None = None
    max_client_disconnect: int | None = None
    max_run_duration: int | None = None
    prevent_reschedule_on_lost: bool = False


class Job(Record):
    """A job (plan-apply 1.8). `submit_time` in Unix nanoseconds."""

    ROOT: ClassVar[str] = "job"

    id: str = ""
    namespace: str = ""
    parent_id: str = ""
    name: str = ""
    type: str = ""
    priority: int = 0
    region: str = ""
    datacenters: list[str] = field(default_factory=list)
    node_pool: str = ""
    all_at_once: bool = False
    constraints: list[Constraint | None] = field(default_factory=list)
    affinities: list[Affinity | None] = field(default_factory=list)
    spreads: list[Spread | None] = field(default_factory=list)
    task_groups: list[TaskGroup] = field(default_factory=list)
    update: UpdateStrategy = field(default_factory=UpdateStrategy)
    multiregion: Any = None
    periodic: Any = None
    parameterized_job: Any = None
    dispatched: bool = False
    dispatch_idempotency_token: str = ""
    payload: str = ""
    meta: dict[str, str] = field(default_factory=dict)
    consul_namespace: str = ""
    vault_namespace: str = ""
    nomad_token_id: str = ""
    ui: Any = None
    status: str = ""
    status_description: str = ""
    stop: bool = False
    stable: bool = False
    version: int = 0
    version_tag: Any = None
    submit_time: int = 0
    create_index: int = 0
    modify_index: int = 0
    job_modify_index: int = 0

    # Where a group of that name was last found, for jobs with many groups: a list and the places in it.
    _places: tuple[list[TaskGroup], dict[str, int]] | None = None

    def group(self, name: str) -> TaskGroup | None:
        """Return the first group called *name*, None without one (plan-apply 1.8)."""
        groups = self.task_groups
        if len(groups) > _MANY_GROUPS:
            if self._places is None or self._places[0] is not groups:
                self._places = groups, {group.name: place for place, group in reversed(list(enumerate(groups)))}
            place = self._places[1].get(name, len(groups))
            if place < len(groups) and groups[place].name == name:
                return groups[place]
        return next((group for group in groups if group.name == name), None)
