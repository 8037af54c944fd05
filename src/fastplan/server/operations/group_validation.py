"""What a task group and its tasks may not say (schedulers 2.1 to 2.4). Sentences are Nomad's."""

from __future__ import annotations

from typing import Final

from fastplan.server.operations.durations import duration_text
from fastplan.server.operations.faults import Faults
from fastplan.server.operations.job_defaults import is_zero
from fastplan.server.operations.rule_validation import check_affinities, check_constraints
from fastplan.structs import LogConfig, NetworkResource, Port, ReschedulePolicy, Resources, Task, TaskGroup, UpdateStrategy

PORT_MAX: Final = 65535
CPU_MIN_MHZ: Final = 1
MEMORY_MIN_MIB: Final = 10
DISK_MIN_MIB: Final = 10
RESCHEDULE_DELAY_MIN_NS: Final = 5 * 10**9
HEALTH_CHECKS: Final = frozenset({"checks", "task_states", "manual"})
MIGRATE_HEALTH_CHECKS: Final = frozenset({"checks", "task_states"})
RESTART_MODES: Final = frozenset({"delay", "fail"})
DELAY_FUNCTIONS: Final = ("constant", "exponential", "fibonacci")
HOOKS: Final = frozenset({"prestart", "poststart", "poststop"})
RECONCILE: Final = frozenset({"", "best_score", "keep_original", "keep_replacement", "longest_running"})
NETWORKS_MAX: Final = 1

NODE_TYPES: Final = frozenset({"system", "sysbatch"})


def check_group(faults: Faults, path: str, group: TaskGroup, job_type: str) -> None:
    """Note what is wrong with a group, defaults filled in; *path* leads to it. Affinities and spreads are looked at elsewhere."""
    if not group.name:
        faults.add(f"{path}.Name", group.name, "text that is not empty", "Missing task group name")
    elif "\0" in group.name:
        faults.add(f"{path}.Name", group.name, "text without null characters", "Task group name contains null character")
    if group.count < 0:
        faults.add(f"{path}.Count", group.count, "integer ≥ 0", "Task group count can't be negative")
    if not group.tasks:
        faults.add(f"{path}.Tasks", group.tasks, "at least one task", "Missing tasks for task group")
    check_constraints(faults, path, group.constraints)
    _check_policies(faults, path, group, job_type)
    _check_disconnect(faults, path, group)
    if group.ephemeral_disk is not None and group.ephemeral_disk.size_mb < DISK_MIN_MIB:
        sentence = f"minimum DiskMB value is {DISK_MIN_MIB}; got {group.ephemeral_disk.size_mb}"
        faults.add(f"{path}.EphemeralDisk.SizeMB", group.ephemeral_disk.size_mb, f"integer ≥ {DISK_MIN_MIB}", sentence)
    inner = Faults("Task group scaling policy validation failed: ")
    _check_scaling(inner, f"{path}.Scaling", group)
    faults.nest(inner)
    inner = Faults("Task group network validation failed: ")
    _check_networks(inner, f"{path}.Networks", group.networks)
    faults.nest(inner)
    _check_tasks(faults, path, group)


# --- policies ---------------------------------------------------------------------------------------------------------


def _check_policies(faults: Faults, path: str, group: TaskGroup, job_type: str) -> None:
    restart = group.restart_policy
    if restart is not None and restart.mode not in RESTART_MODES:
        faults.add(f"{path}.RestartPolicy.Mode", restart.mode, "delay or fail", f'Unsupported restart mode: "{restart.mode}"')
    reschedule = group.reschedule_policy
    if reschedule is not None and job_type in NODE_TYPES:
        sentence = "System or sysbatch jobs should not have a reschedule policy"
        faults.add(f"{path}.ReschedulePolicy", reschedule.to_api(), "nothing in system and sysbatch jobs", sentence)
    elif reschedule is not None:
        _check_reschedule(faults, f"{path}.ReschedulePolicy", reschedule)
    update = group.update
    if update is not None and job_type in ("batch", "sysbatch"):
        if not is_zero(update):
            sentence = f'Job type "{job_type}" does not allow update block'
            faults.add(f"{path}.Update", update.to_api(), "nothing in batch and sysbatch jobs", sentence)
    elif update is not None:
        _check_update(faults, f"{path}.Update", update)
    migrate = group.migrate
    if migrate is None:
        return
    if job_type != "service":
        sentence = f'Job type "{job_type}" does not allow migrate block'
        faults.add(f"{path}.Migrate", migrate.to_api(), "nothing, unless the type is service", sentence)
        return
    if migrate.max_parallel < 0:
        faults.add(f"{path}.Migrate.MaxParallel", migrate.max_parallel, "integer ≥ 0", f"MaxParallel must be >= 0 but found {migrate.max_parallel}")
    if migrate.health_check not in MIGRATE_HEALTH_CHECKS:
        faults.add(f"{path}.Migrate.HealthCheck", migrate.health_check, "checks or task_states", f'Invalid HealthCheck: "{migrate.health_check}"')


def _check_update(faults: Faults, path: str, update: UpdateStrategy) -> None:
    if update.max_parallel < 0:
        faults.add(f"{path}.MaxParallel", update.max_parallel, "integer ≥ 0", f"Max parallel can not be less than zero: {update.max_parallel} < 0")
    if update.max_parallel == 0:
        # An empty strategy.
        return
    if update.health_check not in HEALTH_CHECKS:
        faults.add(f"{path}.HealthCheck", update.health_check, "checks, task_states or manual", f'Invalid health check given: "{update.health_check}"')
    if update.canary < 0:
        faults.add(f"{path}.Canary", update.canary, "integer ≥ 0", f"Canary count can not be less than zero: {update.canary} < 0")
    if update.canary == 0 and update.auto_promote:
        faults.add(f"{path}.AutoPromote", True, "false without canaries", "Auto Promote requires a Canary count greater than zero")
    _check_update_times(faults, path, update)
    if update.stagger < 0:
        sentence = f"Stagger must be greater than zero: {duration_text(update.stagger)}"
        faults.add(f"{path}.Stagger", update.stagger, "duration ≥ 0", sentence)


def _check_update_times(faults: Faults, path: str, update: UpdateStrategy) -> None:
    if 0 <= update.min_healthy_time < update.healthy_deadline and (update.progress_deadline == 0 or update.healthy_deadline < update.progress_deadline):
        return
    healthy, deadline, progress = map(duration_text, (update.min_healthy_time, update.healthy_deadline, update.progress_deadline))
    if update.min_healthy_time < 0:
        sentence = f"Minimum healthy time may not be less than zero: {healthy}"
        faults.add(f"{path}.MinHealthyTime", update.min_healthy_time, "duration ≥ 0", sentence)
    if update.healthy_deadline <= 0:
        sentence = f"Healthy deadline must be greater than zero: {deadline}"
        faults.add(f"{path}.HealthyDeadline", update.healthy_deadline, "duration > 0", sentence)
    if update.progress_deadline < 0:
        sentence = f"Progress deadline must be zero or greater: {progress}"
        faults.add(f"{path}.ProgressDeadline", update.progress_deadline, "duration ≥ 0", sentence)
    if update.min_healthy_time >= update.healthy_deadline:
        sentence = f"Minimum healthy time must be less than healthy deadline: {healthy} > {deadline}"
        faults.add(f"{path}.MinHealthyTime", update.min_healthy_time, "less than HealthyDeadline", sentence)
    if update.progress_deadline and update.healthy_deadline >= update.progress_deadline:
        sentence = f"Healthy deadline must be less than progress deadline: {deadline} > {progress}"
        faults.add(f"{path}.HealthyDeadline", update.healthy_deadline, "less than ProgressDeadline", sentence)


def _check_reschedule(faults: Faults, path: str, policy: ReschedulePolicy) -> None:
    if policy.attempts > 0 and policy.unlimited:
        sentence = f"Reschedule Policy with Attempts = {policy.attempts}, Interval = {duration_text(policy.interval)}, and Unlimited = true is ambiguous"
        faults.add(f"{path}.Attempts", policy.attempts, "0 where Unlimited is true", sentence)
        return
    if policy.attempts > 0 and policy.interval <= 0:
        sentence = "Interval must be a non zero value if Attempts > 0"
        faults.add(f"{path}.Interval", policy.interval, "duration > 0 beside Attempts", sentence)
        return
    if not policy.unlimited and policy.attempts <= 0:
        # Never rescheduled: the rest says nothing.
        return
    if policy.delay_function not in DELAY_FUNCTIONS:
        names = " ".join(f'"{name}"' for name in DELAY_FUNCTIONS)
        sentence = f'Invalid delay function "{policy.delay_function}", must be one of [{names}]'
        faults.add(f"{path}.DelayFunction", policy.delay_function, f"one of {', '.join(DELAY_FUNCTIONS)}", sentence)
        return
    if policy.delay < RESCHEDULE_DELAY_MIN_NS:
        sentence = f"Delay cannot be less than {duration_text(RESCHEDULE_DELAY_MIN_NS)} (got {duration_text(policy.delay)})"
        faults.add(f"{path}.Delay", policy.delay, "at least 5 s", sentence)
        return
    if policy.delay_function != "constant" and policy.max_delay < policy.delay:
        sentence = f"Max Delay cannot be less than Delay {duration_text(policy.delay)} (got {duration_text(policy.max_delay)})"
        faults.add(f"{path}.MaxDelay", policy.max_delay, "at least Delay", sentence)
        return
    if not policy.unlimited:
        _check_attempts(faults, path, policy)


def _check_attempts(faults: Faults, path: str, policy: ReschedulePolicy) -> None:
    """Note that not all attempts of a limited policy can be made within its interval."""
    possible, needed_ns = _attempts_within(policy)
    if possible >= policy.attempts:
        return
    limit = "" if policy.delay_function == "constant" else f", and max delay {duration_text(policy.max_delay)}"
    sentence = (
        f"Nomad can only make {possible} attempts in {duration_text(policy.interval)} with initial delay {duration_text(policy.delay)}"
        f' and delay function "{policy.delay_function}"{limit}'
    )
    faults.add(f"{path}.Attempts", policy.attempts, f"at most {possible}", sentence)
    sentence = f"Set the interval to at least {duration_text(needed_ns)} to accommodate {policy.attempts} attempts"
    faults.add(f"{path}.Interval", policy.interval, f"at least {needed_ns}", sentence)


def _attempts_within(policy: ReschedulePolicy) -> tuple[int, int]:
    """Return how many of the attempts fit into the interval, and how long all of them take (ns). Delays are ≥ 5 s; once capped they no longer grow."""
    if policy.delay_function == "constant":
        return policy.interval // policy.delay, policy.delay * policy.attempts
    possible, total_ns, before_ns, delay_ns = 0, 0, 0, policy.delay
    for made in range(policy.attempts):
        if delay_ns >= policy.max_delay:
            left = policy.attempts - made
            if total_ns < policy.interval:
                possible = made + min(left, max(0, policy.interval - total_ns) // policy.max_delay)
            return possible, total_ns + left * policy.max_delay
        total_ns += delay_ns
        if total_ns <= policy.interval:
            possible = made + 1
        before_ns, delay_ns = delay_ns, (2 * delay_ns if policy.delay_function == "exponential" else before_ns + delay_ns)
    return possible, total_ns


def _check_disconnect(faults: Faults, path: str, group: TaskGroup) -> None:
    disconnect = group.disconnect
    if disconnect is None:
        return
    path += ".Disconnect"
    if disconnect.lost_after < 0:
        faults.add(f"{path}.LostAfter", disconnect.lost_after, "duration ≥ 0", "lost_after cannot be a negative duration")
    stop_after = disconnect.stop_on_client_after
    if stop_after is not None and stop_after < 0:
        faults.add(f"{path}.StopOnClientAfter", stop_after, "duration ≥ 0", "stop_after cannot be a negative duration")
    if disconnect.lost_after and stop_after:
        sentence = "Disconnect cannot be configured with both lost_after and stop_after"
        faults.add(f"{path}.StopOnClientAfter", stop_after, "nothing beside LostAfter", sentence)
    if disconnect.reconcile not in RECONCILE:
        sentence = f'reconcile option is invalid: "{disconnect.reconcile}"'
        faults.add(f"{path}.Reconcile", disconnect.reconcile, f"one of {', '.join(sorted(RECONCILE - {''}))}", sentence)


def _check_scaling(faults: Faults, path: str, group: TaskGroup) -> None:
    scaling = group.scaling
    if scaling is None:
        return
    if not isinstance(scaling, dict):
        faults.add(path, scaling, "object", "Scaling policy invalid: not an object")
        return
    low, high = (scaling.get(name) for name in ("Min", "Max"))
    for name, bound in (("Min", low), ("Max", high)):
        if bound is not None and (type(bound) is not int or bound < 0):
            faults.add(f"{path}.{name}", bound, "integer ≥ 0", f"Scaling policy invalid: {name} must be an integer that is not negative")
            return
    if low is not None and high is not None and high < low:
        sentence = "Scaling policy invalid: maximum count must not be less than minimum count"
        faults.add(f"{path}.Max", high, "at least Min", sentence)
    if low is not None and group.count < low:
        sentence = "Scaling policy invalid: task group count must not be less than minimum count in scaling policy"
        faults.add(f"{path}.Min", low, "at most the count of the group", sentence)
    elif high is not None and group.count > high:
        sentence = "Scaling policy invalid: task group count must not be greater than maximum count in scaling policy"
        faults.add(f"{path}.Max", high, "at least the count of the group", sentence)


# --- networks ---------------------------------------------------------------------------------------------------------


def _check_networks(faults: Faults, path: str, networks: list[NetworkResource | None]) -> None:
    if len(networks) > NETWORKS_MAX:
        faults.add(path, networks, "at most one network", f"only {NETWORKS_MAX} network block may be specified")
    labels: set[str] = set()
    static: dict[tuple[int, str], str] = {}
    for place, network in enumerate(networks):
        if network is None:
            continue
        for kind, ports in (("ReservedPorts", network.reserved_ports), ("DynamicPorts", network.dynamic_ports)):
            for number, port in enumerate(ports):
                where = f"{path}[{place}].{kind}[{number}]"
                if port.label in labels:
                    faults.add(f"{where}.Label", port.label, "a label that no other port has", f"Port label {port.label} already in use")
                labels.add(port.label)
                if kind == "ReservedPorts":
                    _check_static(faults, where, port, static)
                if port.to < -1 or port.to > PORT_MAX:
                    sentence = f"Port {port.label} cannot be mapped to {port.to}"
                    faults.add(f"{where}.To", port.to, f"integer from -1 to {PORT_MAX}", sentence)


def _check_static(faults: Faults, path: str, port: Port, static: dict[tuple[int, str], str]) -> None:
    holder = static.get((port.value, port.host_network))
    if port.value > PORT_MAX:
        sentence = f"Port {port.label} ({port.value}) cannot be greater than {PORT_MAX}"
        faults.add(f"{path}.Value", port.value, f"integer from 1 to {PORT_MAX}", sentence)
    elif port.value < 1:
        sentence = f"Port {port.label} ({port.value}) cannot be less than 1"
        faults.add(f"{path}.Value", port.value, f"integer from 1 to {PORT_MAX}", sentence)
    elif holder is not None and not port.ignore_collision:
        faults.add(f"{path}.Value", port.value, "a port that no other label has", f"Static port {port.value} already reserved by {holder}")
    else:
        static[port.value, port.host_network] = f"taskgroup network:{port.label}"


# --- tasks ------------------------------------------------------------------------------------------------------------


def _check_tasks(faults: Faults, path: str, group: TaskGroup) -> None:
    seen: dict[str, int] = {}
    leaders = 0
    for place, task in enumerate(group.tasks):
        where = f"{path}.Tasks[{place}].Name"
        if not task.name:
            faults.add(where, task.name, "text that is not empty", f"Task {place + 1} missing name")
        elif task.name in seen:
            faults.add(where, task.name, "a name that no other task has", f"Task {place + 1} redefines '{task.name}' from task {seen[task.name] + 1}")
        else:
            seen[task.name] = place
        leaders += task.leader
    if group.tasks and all(task.lifecycle is not None for task in group.tasks):
        sentence = f"Task group {group.name} must have at least one main task"
        faults.add(f"{path}.Tasks", group.tasks, "a task without lifecycle", sentence)
    if leaders > 1:
        faults.add(f"{path}.Tasks", leaders, "at most one leader", "Only one task may be marked as leader")
    disk_mib = None if group.ephemeral_disk is None else group.ephemeral_disk.size_mb
    for place, task in enumerate(group.tasks):
        inner = Faults(f"Task {task.name} validation failed: ")
        _check_task(inner, f"{path}.Tasks[{place}]", task, disk_mib)
        faults.nest(inner)


def _check_task(faults: Faults, path: str, task: Task, disk_mib: int | None) -> None:
    if not task.name:
        faults.add(f"{path}.Name", task.name, "text that is not empty", "Missing task name")
    elif "/" in task.name or "\0" in task.name:
        faults.add(f"{path}.Name", task.name, "text without slashes and null characters", "Task name cannot include slashes or null characters")
    if not task.driver:
        faults.add(f"{path}.Driver", task.driver, "text that is not empty", "Missing task driver")
    if task.kill_timeout < 0:
        faults.add(f"{path}.KillTimeout", task.kill_timeout, "duration ≥ 0", "KillTimeout must be a positive value")
    if task.shutdown_delay < 0:
        faults.add(f"{path}.ShutdownDelay", task.shutdown_delay, "duration ≥ 0", "ShutdownDelay must be a positive value")
    if task.resources is not None:
        inner = Faults()
        _check_resources(inner, f"{path}.Resources", task.resources)
        faults.nest(inner)
    if task.log_config is not None:
        inner = Faults()
        _check_log(inner, f"{path}.LogConfig", task.log_config, disk_mib)
        faults.nest(inner)
    check_constraints(faults, path, task.constraints)
    check_affinities(faults, path, task.affinities)
    if task.lifecycle is not None and task.lifecycle.hook not in HOOKS:
        hook = task.lifecycle.hook
        why = f"invalid hook: {hook}" if hook else "no lifecycle hook provided"
        faults.add(f"{path}.Lifecycle.Hook", hook, f"one of {', '.join(sorted(HOOKS))}", f"Lifecycle validation failed: {why}")


def _check_resources(faults: Faults, path: str, resources: Resources) -> None:
    least = Faults()
    if resources.cores:
        if resources.cpu:
            faults.add(f"{path}.Cores", resources.cores, "0 beside CPU", "Task can only ask for 'cpu' or 'cores' resource, not both.")
        if resources.cores < 0:
            least.add(f"{path}.Cores", resources.cores, "integer ≥ 0", f"minimum Cores value is 0; got {resources.cores}")
    elif resources.cpu < CPU_MIN_MHZ:
        least.add(f"{path}.CPU", resources.cpu, f"integer ≥ {CPU_MIN_MHZ}", f"minimum CPU value is {CPU_MIN_MHZ}; got {resources.cpu}")
    if resources.memory_mb < MEMORY_MIN_MIB:
        sentence = f"minimum MemoryMB value is {MEMORY_MIN_MIB}; got {resources.memory_mb}"
        least.add(f"{path}.MemoryMB", resources.memory_mb, f"integer ≥ {MEMORY_MIN_MIB}", sentence)
    faults.nest(least)
    if resources.memory_max_mb not in (0, -1) and resources.memory_max_mb < resources.memory_mb:
        sentence = f"MemoryMaxMB value ({resources.memory_max_mb}) should be larger than MemoryMB value ({resources.memory_mb})"
        faults.add(f"{path}.MemoryMaxMB", resources.memory_max_mb, "at least MemoryMB, 0 or -1", sentence)
    for place, device in enumerate(resources.devices):
        if device is None:
            continue
        where = f"{path}.Devices[{place}]"
        inner = Faults(f"device {place + 1} validation failed: ")
        if not device.name:
            inner.add(
                f"{where}.Name",
                device.name,
                "text that is not empty",
                "device name must be given as one of the following: type, vendor/type, or vendor/type/name",
            )
        if device.count < 1:
            inner.add(f"{where}.Count", device.count, "integer ≥ 1", "count must be at least one")
        check_constraints(inner, where, device.constraints)
        check_affinities(inner, where, device.affinities)
        faults.nest(inner)


def _check_log(faults: Faults, path: str, log: LogConfig, disk_mib: int | None) -> None:
    if log.disabled:
        return
    if log.max_files < 1:
        faults.add(f"{path}.MaxFiles", log.max_files, "integer ≥ 1", f"minimum number of files is 1; got {log.max_files}")
    if log.max_file_size_mb < 1:
        faults.add(f"{path}.MaxFileSizeMB", log.max_file_size_mb, "integer ≥ 1", f"minimum file size is 1MB; got {log.max_file_size_mb}")
    size_mib = log.max_files * log.max_file_size_mb
    if disk_mib is not None and disk_mib <= size_mib:
        sentence = f"log storage ({size_mib} MB) must be less than requested disk capacity ({disk_mib} MB)"
        faults.add(path, size_mib, "less than the ephemeral disk", sentence)
