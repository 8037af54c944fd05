"""Deployments: the roll-out of one job version."""

from __future__ import annotations

from typing import ClassVar

from msgspec import field

from fastplan.structs.record import Record, Time


class DeploymentState(Record):
    """How far a group's roll-out is; `progress_deadline` in nanoseconds."""

    auto_revert: bool = False
    auto_promote: bool = False
    progress_deadline: int = 0
    require_progress_by: Time = ""
    promoted: bool = False
    placed_canaries: list[str] = field(default_factory=list)
    desired_canaries: int = 0
    desired_total: int = 0
    placed_allocs: int = 0
    healthy_allocs: int = 0
    unhealthy_allocs: int = 0


class Deployment(Record):
    """A deployment; times in Unix nanoseconds."""

    ROOT: ClassVar[str] = "deployment"

    id: str = ""
    namespace: str = ""
    job_id: str = ""
    job_version: int = 0
    job_modify_index: int = 0
    job_spec_modify_index: int = 0
    job_create_index: int = 0
    is_multiregion: bool = False
    task_groups: dict[str, DeploymentState] = field(default_factory=dict)
    status: str = ""
    status_description: str = ""
    eval_priority: int = 0
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0


class DeploymentUpdate(Record):
    """A change of a deployment's status that a plan asks for (plan-apply 1.10)."""

    deployment_id: str = ""
    status: str = ""
    status_description: str = ""
    updated_at: int = 0
