"""What is known of classes of nodes: the class cache (schedulers 8.2)."""

from __future__ import annotations

import enum

from fastplan.scheduler.targets import is_unique
from fastplan.structs import Job, TaskGroup


class Known(enum.Enum):
    """What is known of a class."""

    UNKNOWN = "unknown"
    ELIGIBLE = "eligible"
    INELIGIBLE = "ineligible"
    ESCAPED = "escaped"


class ClassEligibility:
    """Which classes of nodes a job, and each of its groups, may use; kept for one evaluation context.

    *Escaped* means that a constraint tells nodes of one class apart, so that nothing can be said of classes.
    """

    def __init__(self) -> None:
        self._job: dict[str, bool] = {}
        self._job_escaped = False
        self._groups: dict[str, dict[str, bool]] = {}
        self._escaped_groups: set[str] = set()

    def set_job(self, job: Job) -> None:
        """Look at the constraints of a job."""
        self._job_escaped = any(_tells_nodes_apart(each) for each in job.constraints)
        for group in job.task_groups:
            constraints = [*group.constraints, *(each for task in group.tasks for each in task.constraints)]
            has_csi_volume = any(request is not None and request.type == "csi" for request in group.volumes.values())
            if has_csi_volume or any(_tells_nodes_apart(each) for each in constraints):
                self._escaped_groups.add(group.name)
            else:
                self._escaped_groups.discard(group.name)

    def reset(self) -> None:
        """Forget what is known of classes and of groups that escaped; a job that escaped stays so (schedulers 4.10)."""
        self._job = {}
        self._groups = {}
        self._escaped_groups = set()

    def of_job(self, node_class: str) -> Known:
        """Return what is known of a class for the job."""
        return Known.ESCAPED if self._job_escaped else _known(self._job, node_class)

    def of_group(self, group: TaskGroup, node_class: str) -> Known:
        """Return what is known of a class for a group."""
        return Known.ESCAPED if group.name in self._escaped_groups else _known(self._groups.get(group.name, {}), node_class)

    def note_job(self, node_class: str, eligible: bool) -> None:
        """Note what the checks of the job found."""
        self._job[node_class] = eligible

    def note_group(self, group: TaskGroup, node_class: str, eligible: bool) -> None:
        """Note what the checks of a group found."""
        self._groups.setdefault(group.name, {})[node_class] = eligible

    def escaped(self) -> bool:
        """Return whether the job or one of its groups escaped."""
        return self._job_escaped or bool(self._escaped_groups)

    def classes(self) -> dict[str, bool]:
        """Return class → whether it may be used, for a blocked evaluation."""
        found: dict[str, bool] = {}
        for classes in self._groups.values():
            for node_class, eligible in classes.items():
                found[node_class] = eligible or found.get(node_class, False)
        for node_class, eligible in self._job.items():
            if not eligible:
                found[node_class] = False
            else:
                found.setdefault(node_class, True)
        return found


def _known(classes: dict[str, bool], node_class: str) -> Known:
    eligible = classes.get(node_class)
    if eligible is None:
        return Known.UNKNOWN
    return Known.ELIGIBLE if eligible else Known.INELIGIBLE


def _tells_nodes_apart(constraint: object) -> bool:
    return any(is_unique(getattr(constraint, side, "")) for side in ("ltarget", "rtarget"))
