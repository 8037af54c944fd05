"""Evaluations: the reason to look at a job."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import field

from fastplan.structs.metrics import AllocMetric
from fastplan.structs.record import Record, Time


class DesiredUpdates(Record):
    """How many allocations of a group a plan changes in which way."""

    ignore: int = 0
    place: int = 0
    migrate: int = 0
    stop: int = 0
    in_place_update: int = 0
    destructive_update: int = 0
    canary: int = 0
    preemptions: int = 0
    disconnect: int = 0
    reconnect: int = 0
    reschedule_now: int = 0
    reschedule_later: int = 0


class PlanAnnotations(Record):
    """What a plan does, for people; the applier ignores it. `preempted_allocs` are allocation stubs."""

    desired_tg_updates: dict[str, DesiredUpdates | None] = field(default_factory=dict)
    preempted_allocs: list[Any] = field(default_factory=list)


class Evaluation(Record):
    """An evaluation. `wait` in nanoseconds, `create_time` and `modify_time` in Unix nanoseconds."""

    ROOT: ClassVar[str] = "eval"

    id: str = ""
    namespace: str = ""
    priority: int = 0
    type: str = ""
    triggered_by: str = ""
    job_id: str = ""
    job_modify_index: int = 0
    node_id: str = ""
    node_modify_index: int = 0
    deployment_id: str = ""
    status: str = ""
    status_description: str = ""
    wait: int = 0
    wait_until: Time = ""
    next_eval: str = ""
    previous_eval: str = ""
    blocked_eval: str = ""
    related_evals: list[Any] = field(default_factory=list)
    failed_tg_allocs: dict[str, AllocMetric | None] = field(default_factory=dict)
    plan_annotations: PlanAnnotations | None = None
    class_eligibility: dict[str, bool] = field(default_factory=dict)
    escaped_computed_class: bool = False
    quota_limit_reached: str = ""
    missing_non_node_resources: list[str] = field(default_factory=list)
    annotate_plan: bool = False
    queued_allocations: dict[str, int] = field(default_factory=dict)
    leader_acl: str = ""
    snapshot_index: int = 0
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0
