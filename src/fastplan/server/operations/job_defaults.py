"""What a job says where it says nothing: the defaults that Nomad writes into a job as it is registered (schedulers 2.1 to 2.5)."""

from __future__ import annotations

import copy
from typing import Any, Final, TypeVar

from fastplan.structs import (
    EphemeralDisk,
    Job,
    LogConfig,
    MigrateStrategy,
    NetworkResource,
    Record,
    ReschedulePolicy,
    Resources,
    RestartPolicy,
    Task,
    TaskGroup,
    UpdateStrategy,
)
from fastplan.structs.record import copy_json

SECOND_NS: Final = 10**9
MINUTE_NS: Final = 60 * SECOND_NS
HOUR_NS: Final = 60 * MINUTE_NS

DEFAULT_PRIORITY: Final = 50
UPDATED_TYPES: Final = frozenset({"service", "system"})
"""Types whose allocations are replaced step by step, so that an update strategy says something."""

UPDATE: Final = UpdateStrategy(
    stagger=30 * SECOND_NS,
    max_parallel=1,
    health_check="checks",
    min_healthy_time=10 * SECOND_NS,
    healthy_deadline=5 * MINUTE_NS,
    progress_deadline=10 * MINUTE_NS,
)
MIGRATE: Final = MigrateStrategy(max_parallel=1, health_check="checks", min_healthy_time=10 * SECOND_NS, healthy_deadline=5 * MINUTE_NS)
LONG_RUNNING_RESTART: Final = RestartPolicy(attempts=2, interval=30 * MINUTE_NS, delay=15 * SECOND_NS, mode="fail")
BATCH_RESTART: Final = RestartPolicy(attempts=3, interval=24 * HOUR_NS, delay=15 * SECOND_NS, mode="fail")
RESCHEDULE: Final = {
    "service": ReschedulePolicy(delay=30 * SECOND_NS, delay_function="exponential", max_delay=HOUR_NS, unlimited=True),
    "batch": ReschedulePolicy(attempts=1, interval=24 * HOUR_NS, delay=5 * SECOND_NS, delay_function="constant"),
}
LOG: Final = LogConfig(max_files=10, max_file_size_mb=10)
DISK: Final = EphemeralDisk(size_mb=300)
TASK_CPU_MHZ: Final = 100
TASK_MEMORY_MIB: Final = 300
KILL_TIMEOUT_NS: Final = 5 * SECOND_NS
WEIGHT: Final = 50
IDENTITY: Final[dict[str, Any]] = {
    "Audience": ["nomadproject.io"],
    "ChangeMode": "",
    "ChangeSignal": "",
    "Env": False,
    "ExtraClaims": None,
    "File": False,
    "Filepath": "",
    "Name": "default",
    "ServiceName": "",
    "TTL": 0,
}
"""The workload identity that every task has."""


def fill_job(job: Job) -> None:
    """Fill in what *job* leaves out, in place. What it says stays, zero and empty text included: validation judges that.

    A record made in Python cannot say zero: a group of it has count 1.
    """
    _fill(job, "region", "global")
    job.namespace = job.namespace or "default"
    _fill(job, "name", job.id)
    _fill(job, "type", "service")
    job.priority = job.priority or DEFAULT_PRIORITY
    if not job.datacenters:
        job.datacenters = ["*"]
    job.node_pool = job.node_pool or "default"
    for weighed in (*job.affinities, *job.spreads):
        if weighed is not None:
            _fill(weighed, "weight", WEIGHT)
    given = None if job.is_left_out("update") or (job.type not in UPDATED_TYPES and is_zero(job.update)) else job.update
    for group in job.task_groups:
        _fill_group(group, job.type, given)
    if job.type in UPDATED_TYPES:
        # The job's own strategy has gone into its groups; the pace is what older readers look at.
        job.update = UpdateStrategy(
            stagger=UPDATE.stagger if given is None or given.is_left_out("stagger") else given.stagger,
            max_parallel=UPDATE.max_parallel if given is None or given.is_left_out("max_parallel") else given.max_parallel,
        )


def _fill_group(group: TaskGroup, job_type: str, job_update: UpdateStrategy | None) -> None:
    _fill(group, "count", 1)
    if job_update is not None or job_type in UPDATED_TYPES:
        if job_update is not None:
            group.update = _filled(group.update, job_update)
        if job_type in UPDATED_TYPES:
            group.update = _filled(group.update, UPDATE)
    if job_type == "service":
        group.migrate = _filled(group.migrate, MIGRATE)
    group.restart_policy = _filled(group.restart_policy, LONG_RUNNING_RESTART if job_type in UPDATED_TYPES else BATCH_RESTART)
    if job_type in RESCHEDULE:
        _fill_reschedule(group, RESCHEDULE[job_type])
    group.ephemeral_disk = _filled(group.ephemeral_disk, DISK)
    for weighed in (*group.affinities, *group.spreads):
        if weighed is not None:
            _fill(weighed, "weight", WEIGHT)
    _fill_networks(group.networks)
    for name, volume in group.volumes.items():
        if volume is not None:
            _fill(volume, "name", name)
    if group.disconnect is not None:
        if group.disconnect.replace is None:
            group.disconnect.replace = True
        _fill(group.disconnect, "reconcile", "best_score")
    for task in group.tasks:
        _fill_task(task, group.restart_policy)


def _fill_reschedule(group: TaskGroup, default: ReschedulePolicy) -> None:
    if group.reschedule_policy is None:
        group.reschedule_policy = copy.copy(default)
        return
    policy = group.reschedule_policy
    unlimited_is_given = not policy.is_left_out("unlimited")
    # Who limits the attempts does not want them unlimited, and the other way round.
    limited = not policy.is_left_out("attempts") and policy.attempts > 0
    for name in ("delay", "delay_function", "max_delay"):
        if policy.is_left_out(name):
            setattr(policy, name, getattr(default, name))
    if not unlimited_is_given and not limited:
        policy.unlimited = default.unlimited
    if not policy.unlimited:
        _fill(policy, "attempts", default.attempts)
        _fill(policy, "interval", default.interval)


def _fill_task(task: Task, restart: RestartPolicy) -> None:
    task.restart_policy = _filled(task.restart_policy, restart)
    task.resources = task.resources or Resources()
    if not task.resources.cores:
        _fill(task.resources, "cpu", TASK_CPU_MHZ)
    _fill(task.resources, "memory_mb", TASK_MEMORY_MIB)
    _fill_networks(task.resources.networks)
    for device in task.resources.devices:
        if device is not None:
            _fill(device, "count", 1)
            for affinity in device.affinities:
                if affinity is not None:
                    _fill(affinity, "weight", WEIGHT)
    task.log_config = _filled(task.log_config, LOG)
    _fill(task, "kill_timeout", KILL_TIMEOUT_NS)
    for affinity in task.affinities:
        if affinity is not None:
            _fill(affinity, "weight", WEIGHT)
    if task.identity is None:
        task.identity = copy_json(IDENTITY)


def _fill_networks(networks: list[NetworkResource | None]) -> None:
    for network in networks:
        if network is None:
            continue
        network.mode = network.mode or "host"
        for port in (*network.reserved_ports, *network.dynamic_ports):
            port.host_network = port.host_network or "default"


def is_zero(record: Record) -> bool:
    """Return whether no field of *record* says anything but zero."""
    return record == type(record)()


def _fill(record: Record, name: str, value: Any) -> None:
    """Set a field that *record* says nothing about."""
    if record.is_left_out(name):
        setattr(record, name, value)


R = TypeVar("R", bound=Record)


def _filled(record: R | None, default: R) -> R:
    """Return *record* with every field that it says nothing about set to what *default*, which is flat, says; a copy of *default* without a record."""
    if record is None:
        return copy.copy(default)
    for name in default.__struct_fields__:
        if not name.startswith("_") and record.is_left_out(name):
            setattr(record, name, getattr(default, name))
    return record
