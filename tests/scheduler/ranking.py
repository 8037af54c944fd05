"""A small state, one job and a stack on it: what the tests of ranking start from."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from fastplan.rules import Rules
from fastplan.scheduler.cluster_nodes import job_nodes
from fastplan.scheduler.context import Context
from fastplan.scheduler.every_node import EveryNodeStack
from fastplan.scheduler.rank import RankedNode
from fastplan.scheduler.setting import Setting
from fastplan.scheduler.stack import GenericStack, SelectOptions, SystemStack
from fastplan.state import StateStore
from fastplan.structs import Allocation, AllocMetric, Evaluation, Job, Node, NodeScore

EVAL_ID = "5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e11"


class Site:
    """A state with a job that is about to be placed, the context of the first attempt, and a stack with the ready nodes set."""

    def __init__(
        self,
        job: Job,
        nodes: Sequence[Node],
        allocs: Sequence[Allocation] = (),
        *,
        rules: Rules = Rules.NOMAD,
        config: dict[str, Any] | None = None,
        pools: Sequence[dict[str, Any]] = (),
        eval_id: str = EVAL_ID,
        index: int = 1000,
        attempt: int = 0,
        plain: bool = False,
    ) -> None:
        """*plain*: under strict rules, too, look at one node after the other."""
        dump = {
            "nodes": [node.to_api() for node in nodes],
            "node_pools": list(pools),
            "jobs": [job.to_api()],
            "allocs": [alloc.to_api() for alloc in allocs],
            "scheduler_config": config if config is not None else {"SchedulerAlgorithm": "binpack"},
            "indexes": {"nodes": index, "jobs": index, "allocs": index},
        }
        self.state = StateStore.from_dump(dump).snapshot()
        stored = self.state.job(job.namespace, job.id)
        assert stored is not None
        self.job = stored
        evaluation = Evaluation(id=eval_id, namespace=job.namespace, job_id=job.id, type=job.type, priority=job.priority)
        self.setting = Setting(now_ns=lambda: 0, rules=rules, randomness=random.Random(7))
        self.context = Context(evaluation, self.job, self.state, self.setting, attempt=attempt)
        self.nodes = job_nodes(self.state, self.job).ready
        self.stack = self._stack(plain)
        self.stack.set_job(self.job)
        self.stack.set_nodes(self.nodes)

    def _stack(self, plain: bool) -> GenericStack | SystemStack:
        if self.job.type in ("system", "sysbatch"):
            return SystemStack(self.context)
        kind = GenericStack if plain or not self.setting.strict else EveryNodeStack
        return kind(self.context, batch=self.job.type == "batch")

    def select(self, group: str = "", **options: Any) -> RankedNode | None:
        """Select once for a group, the first one unless named."""
        chosen = self.job.task_groups[0] if not group else self.job.group(group)
        assert chosen is not None
        return self.stack.select(chosen, SelectOptions(**options))

    def place(self, group: str = "", **options: Any) -> str | None:
        """Select and add the allocation to the draft; return the id of its node."""
        ranked = self.select(group, **options)
        if ranked is None:
            return None
        alloc = Allocation(
            id=self.setting.new_id(),
            namespace=self.job.namespace,
            job_id=self.job.id,
            task_group=group or self.job.task_groups[0].name,
            node_id=ranked.node.id,
            allocated_resources=ranked.resources,
            desired_status="run",
            client_status="pending",
        )
        for victim in ranked.preempted:
            self.context.draft.preempt(victim, alloc.id)
        self.context.draft.place(alloc)
        return ranked.node.id

    @property
    def metric(self) -> AllocMetric:
        """The counters of the last selection."""
        return self.context.metrics.finish()

    def scores(self) -> dict[str, dict[str, float]]:
        """The scores of the last selection by node id and name."""
        entries = [entry for entry in self.metric.score_meta_data if isinstance(entry, NodeScore)]
        return {entry.node_id: {**entry.scores, "normalized-score": entry.norm_score} for entry in entries}
