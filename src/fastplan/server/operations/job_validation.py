"""What a job may not say (schedulers 2.1 to 2.5). Sentences and their order are Nomad's, because clients read them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from fastplan.server.operations.faults import Faults
from fastplan.server.operations.group_validation import check_group
from fastplan.server.operations.rule_validation import check_affinities, check_constraints, check_spreads
from fastplan.structs import Job

TYPES: Final = ("service", "batch", "system", "sysbatch")
NODE_TYPES: Final = frozenset({"system", "sysbatch"})
"""Types that run on every node they may."""
TEMPLATE_TYPES: Final = frozenset({"batch", "sysbatch"})
"""Types whose jobs may be periodic or parameterized."""
PRIORITY_MAX: Final = 100
PAYLOADS: Final = frozenset({"", "optional", "required", "forbidden"})


def check_job(job: Job) -> None:
    """Raise InvalidInput for a job, defaults filled in, that may not be registered; `path` and `value` are of the first fault, `wording` has all."""
    job_faults(job).check()


def job_faults(job: Job) -> Faults:
    """Return what is wrong with a job whose defaults are filled in; time grows with its size and no faster."""
    faults = Faults()
    if not job.id:
        faults.add("job.ID", job.id, "text that is not empty", "Missing job ID")
    if " " in job.id:
        faults.add("job.ID", job.id, "text without spaces", "Job ID contains a space")
    if "\0" in job.id:
        faults.add("job.ID", job.id, "text without null characters", "Job ID contains a null character")
    if not job.name:
        faults.add("job.Name", job.name, "text that is not empty", "Missing job name")
    if "\0" in job.name:
        faults.add("job.Name", job.name, "text without null characters", "Job Name contains a null character")
    if job.type not in TYPES:
        faults.add("job.Type", job.type, f"one of {', '.join(TYPES)}", f'Invalid job type: "{job.type}"')
    if any(not datacenter for datacenter in job.datacenters):
        faults.add("job.Datacenters", job.datacenters, "names that are not empty", "Job datacenter must be non-empty string")
    if not job.task_groups:
        faults.add("job.TaskGroups", job.task_groups, "at least one group", "Missing job task groups")
    check_constraints(faults, "job", job.constraints)
    if job.type in NODE_TYPES:
        _refuse_preferences(faults, "job", job.affinities, job.spreads)
    else:
        check_affinities(faults, "job", job.affinities)
        check_spreads(faults, "job", job.spreads)
    _check_groups(faults, job)
    _check_template(faults, job)
    if not 1 <= job.priority <= PRIORITY_MAX:
        faults.add("job.Priority", job.priority, f"integer from 1 to {PRIORITY_MAX}", f"job priority must be between [1, {PRIORITY_MAX}]")
    return faults


def _check_groups(faults: Faults, job: Job) -> None:
    seen: dict[str, int] = {}
    for place, group in enumerate(job.task_groups):
        path = f"job.TaskGroups[{place}]"
        if not group.name:
            faults.add(f"{path}.Name", group.name, "text that is not empty", f"Job task group {place + 1} missing name")
        elif group.name in seen:
            sentence = f"Job task group {place + 1} redefines '{group.name}' from group {seen[group.name] + 1}"
            faults.add(f"{path}.Name", group.name, "a name that no other group has", sentence)
        else:
            seen[group.name] = place
        if job.type == "system" and group.count > 1:
            sentence = f"Job task group {group.name} has count {group.count}. Count cannot exceed 1 with system scheduler"
            faults.add(f"{path}.Count", group.count, "0 or 1 in a system job", sentence)
    for place, group in enumerate(job.task_groups):
        path = f"job.TaskGroups[{place}]"
        inner = Faults(f"Task group {group.name} validation failed: ")
        check_group(inner, path, group, job.type)
        if job.type in NODE_TYPES:
            _refuse_preferences(inner, path, group.affinities, group.spreads)
            for number, task in enumerate(group.tasks):
                _refuse_preferences(inner, f"{path}.Tasks[{number}]", task.affinities, ())
        else:
            check_affinities(inner, path, group.affinities)
            check_spreads(inner, path, group.spreads)
        faults.nest(inner)


def _refuse_preferences(faults: Faults, path: str, affinities: Iterable[object], spreads: Iterable[object]) -> None:
    """Note affinities and spreads of a job that runs on every node."""
    for name, word, given in (("Affinities", "an affinity", affinities), ("Spreads", "a spread", spreads)):
        if given:
            faults.add(f"{path}.{name}", given, "nothing in system and sysbatch jobs", f"System jobs may not have {word} block")


def _check_template(faults: Faults, job: Job) -> None:
    for path, value, name in (("Periodic", job.periodic, "Periodic"), ("ParameterizedJob", job.parameterized_job, "Parameterized job")):
        if value is not None and job.type not in TEMPLATE_TYPES:
            sentence = f'{name} can only be used with "batch" or "sysbatch" scheduler'
            faults.add(f"job.{path}", value, "nothing, unless the type is batch or sysbatch", sentence)
    if job.parameterized_job is not None and job.type in TEMPLATE_TYPES:
        inner = Faults()
        _check_parameters(inner, job)
        faults.nest(inner)


def _check_parameters(faults: Faults, job: Job) -> None:
    path = "job.ParameterizedJob"
    parameters = job.parameterized_job
    if not isinstance(parameters, dict):
        faults.add(path, parameters, "object", "Invalid parameterized job")
        return
    payload = parameters.get("Payload") or ""
    if payload not in PAYLOADS:
        faults.add(f"{path}.Payload", payload, "optional, required or forbidden", f'Unknown payload requirement: "{payload}"')
    required, optional = parameters.get("MetaRequired") or [], parameters.get("MetaOptional") or []
    for key, names in (("MetaRequired", required), ("MetaOptional", optional)):
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            faults.add(f"{path}.{key}", names, "list of texts", f"Invalid {key}")
            return
    both = sorted(set(required) & set(optional))
    if both:
        sentence = f"Required and optional meta keys should be disjoint. Following keys exist in both: [{' '.join(both)}]"
        faults.add(f"{path}.MetaOptional", optional, "other keys than MetaRequired", sentence)
