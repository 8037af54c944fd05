"""Plans and their results (plan-apply 1.10, 1.11)."""

from __future__ import annotations

from typing import Any, ClassVar, Self

from msgspec import field

from fastplan.structs.alloc import Allocation
from fastplan.structs.deployment import Deployment, DeploymentUpdate
from fastplan.structs.evaluation import PlanAnnotations
from fastplan.structs.job import Job
from fastplan.structs.record import Record


class JobInfo(Record):
    """Names the job of a plan that travels without it."""

    namespace: str = ""
    id: str = ""


class Plan(Record):
    """What a scheduler proposes (plan-apply 1.10).

    The three maps go from node id to allocations in plan order. A list may be null, which counts as absent (plan-apply 5.5).
    """

    ROOT: ClassVar[str] = "plan"

    eval_id: str = ""
    eval_token: str = ""
    priority: int = 0
    all_at_once: bool = False
    job: Job | None = None
    job_info: JobInfo | None = None
    node_update: dict[str, list[Allocation] | None] = field(default_factory=dict)
    node_allocation: dict[str, list[Allocation] | None] = field(default_factory=dict)
    node_preemptions: dict[str, list[Allocation] | None] = field(default_factory=dict)
    deployment: Deployment | None = None
    deployment_updates: list[DeploymentUpdate] = field(default_factory=list)
    annotations: PlanAnnotations | None = None
    snapshot_index: int = 0
    # Which plan of its run this is, from 1; 0: nobody counts them. The same when it is sent again.
    number: int = 0

    # The columnar form, kept by the state package; it would be wrong on a copy that changes.
    _columns: Any = None

    def copy(self) -> Self:
        """Return a deep copy, without the cached columns."""
        twin = super().copy()
        twin._columns = None
        return twin

    def is_noop(self) -> bool:
        """Return whether the plan changes nothing: preemptions and annotations do not count (plan-apply 1.10)."""
        return not (self.node_update or self.node_allocation or self.deployment_updates) and self.deployment is None


class PlanResult(Record):
    """What was accepted of a plan, in the API's shape (plan-apply 1.11)."""

    ROOT: ClassVar[str] = "result"

    node_update: dict[str, list[Allocation] | None] = field(default_factory=dict)
    node_allocation: dict[str, list[Allocation] | None] = field(default_factory=dict)
    node_preemptions: dict[str, list[Allocation] | None] = field(default_factory=dict)
    deployment: Deployment | None = None
    deployment_updates: list[DeploymentUpdate] = field(default_factory=list)
    rejected_nodes: list[str] = field(default_factory=list)
    ineligible_nodes: list[str] = field(default_factory=list)
    refresh_index: int = 0
    alloc_index: int = 0
