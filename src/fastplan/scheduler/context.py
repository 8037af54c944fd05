"""What one attempt of a scheduler works with."""

from __future__ import annotations

from fastplan.scheduler.config import SchedulerConfig, config_of
from fastplan.scheduler.draft import PlanDraft
from fastplan.scheduler.feasible.eligibility import ClassEligibility
from fastplan.scheduler.metrics import SelectionMetrics
from fastplan.scheduler.setting import Setting
from fastplan.state.snapshot import StateReader
from fastplan.structs import Allocation, Evaluation, Job, Node


class Context:
    """State, draft, configuration, counters and what is known of node classes: one for each attempt.

    `attempt` counts from 0. `refused_node_ids`: nodes on which an earlier plan of this evaluation was refused.
    """

    __slots__ = ("_job_allocs", "attempt", "config", "draft", "eligibility", "evaluation", "job", "metrics", "refused_node_ids", "setting", "state")

    def __init__(
        self,
        evaluation: Evaluation,
        job: Job | None,
        state: StateReader,
        setting: Setting,
        *,
        attempt: int = 0,
        refused_node_ids: frozenset[str] = frozenset(),
    ) -> None:
        self.evaluation = evaluation
        self.job = job
        self.state = state
        self.setting = setting
        self.attempt = attempt
        self.refused_node_ids = refused_node_ids
        self.config: SchedulerConfig = config_of(state, job)
        self.draft = PlanDraft(evaluation, job, state, setting.now_ns)
        self.metrics = SelectionMetrics()
        self._job_allocs: list[Allocation] | None = None
        self.eligibility = ClassEligibility()
        if job is not None:
            self.eligibility.set_job(job)

    def job_allocs(self) -> list[Allocation]:
        """Return all allocations of the evaluated job in the state; shared, not to be changed."""
        if self._job_allocs is None:
            self._job_allocs = self.state.allocs_by_job(self.evaluation.namespace, self.evaluation.job_id)
        return self._job_allocs

    def node(self, node_id: str) -> Node | None:
        """Return the record of a node, None if it does not exist; shared, not to be changed."""
        row = self.state.node_row(node_id)
        return None if row is None else self.state.node_record(row)

    def proposed_allocs(self, node_id: str) -> list[Allocation]:
        """Return what would count on a node if the draft were committed (schedulers 3.7)."""
        return self.draft.proposed_allocs(node_id)
