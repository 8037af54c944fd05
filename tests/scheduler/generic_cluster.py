"""A small cluster with one service or batch job, and what its scheduler makes of it: what the tests of that scheduler start from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastplan.rules import Rules
from fastplan.structs import Allocation, Deployment, Evaluation, Job, Node
from fastplan.structs.times import time_text
from fastplan.testing import SchedulerHarness
from fastplan.testing.builders import ready_node

SECOND_NS = 10**9
MINUTE_NS = 60 * SECOND_NS
NOW_NS = 1_800_000_000 * SECOND_NS
EVAL_ID = "5e2f7d63-0c4f-4c43-9a5d-1f3f3d2b9e11"
BOTH_RULES = (Rules.NOMAD, Rules.STRICT)


def ago(nanoseconds: int) -> str:
    """Return the text of an instant that is so long ago."""
    return time_text(NOW_NS - nanoseconds)


def nodes(count: int, **more: Any) -> list[Node]:
    """Return ready nodes n0, n1 and so on."""
    return [ready_node(f"n{number}", **more) for number in range(count)]


def down(node: Node, status: str = "down") -> Node:
    """Return the node as it is after it went away."""
    node.status = status
    return node


def failed_fields(ago_ns: int) -> dict[str, Any]:
    """Return the fields of an allocation whose task failed so long ago."""
    return {
        "ClientStatus": "failed",
        "ModifyTime": NOW_NS - ago_ns,
        "TaskStates": {"web": {"State": "dead", "Failed": True, "StartedAt": ago(ago_ns + MINUTE_NS), "FinishedAt": ago(ago_ns)}},
    }


def complete_fields() -> dict[str, Any]:
    """Return the fields of an allocation whose task ended well."""
    return {"ClientStatus": "complete", "TaskStates": {"web": {"State": "dead", "Failed": False, "FinishedAt": ago(MINUTE_NS)}}}


def unknown_record(ago_ns: int) -> dict[str, Any]:
    """Return the record of an allocation that became unknown so long ago."""
    return {"AllocStates": [{"Field": 0, "Value": "unknown", "Time": ago(ago_ns)}]}


def newer(job: Job, **changes: Any) -> Job:
    """Return the next version of a job. *changes*: fields in the API's shape."""
    return Job.from_api(
        {**job.to_api(), "Version": job.version + 1, "JobModifyIndex": job.job_modify_index + 100, "ModifyIndex": job.modify_index + 100, **changes}
    )


def with_task(group: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a group, in the API's shape, whose task has other fields."""
    return {**group, "Tasks": [{**group["Tasks"][0], **changes}]}


class Outcome:
    """What became of one evaluation."""

    def __init__(
        self,
        job: Job | None,
        cluster: Sequence[Node],
        allocs: Iterable[Allocation] = (),
        *,
        rules: Rules = Rules.STRICT,
        deployments: Iterable[Deployment] = (),
        versions: Iterable[Job] = (),
        config: dict[str, Any] | None = None,
        planner: Any = "accept",
        deployment_watcher: bool = False,
        job_type: str = "service",
        job_id: str = "web",
        **evaluation: Any,
    ) -> None:
        known = {alloc.id: alloc for alloc in allocs}
        jobs = [] if job is None else [job]
        dump = {
            "nodes": [node.to_api() for node in cluster],
            "jobs": [each.to_api() for each in jobs],
            "job_versions": [each.to_api() for each in [*jobs, *versions]],
            "allocs": [
                {"CreateIndex": 300 + number, "ModifyIndex": 500, "ModifyTime": NOW_NS - MINUTE_NS, **alloc.to_api(), "Job": _job_of(alloc)}
                for number, alloc in enumerate(known.values())
            ],
            "deployments": [deployment.to_api() for deployment in deployments],
            "scheduler_config": config or {"SchedulerAlgorithm": "binpack", "PreemptionConfig": {}},
            "indexes": {"nodes": 1000, "jobs": 1000, "allocs": 1000},
        }
        harness = SchedulerHarness.from_dump(dump, now_ns=NOW_NS, rules=rules, planner=planner, deployment_watcher=deployment_watcher)
        given = {
            "id": EVAL_ID,
            "namespace": "default",
            "priority": 50,
            "type": job_type if job is None else job.type,
            "job_id": job_id if job is None else job.id,
            "triggered_by": "job-register",
            "status": "pending",
        }
        self.harness = harness
        self._known = known
        harness.process(Evaluation(**{**given, **evaluation}))
        self.plans = harness.plans
        self.created = harness.created_evals
        self.reblocked = harness.reblocked_evals
        self.final = harness.evals[-1] if harness.evals else None

    @property
    def placed(self) -> list[Allocation]:
        """New allocations of the last plan, by name."""
        found = [alloc for entries in self._entries("node_allocation") for alloc in entries if alloc.id not in self._known]
        return sorted(found, key=lambda alloc: alloc.name)

    @property
    def updated(self) -> dict[str, Allocation]:
        """Known allocations that the last plan writes anew."""
        return {alloc.id: alloc for entries in self._entries("node_allocation") for alloc in entries if alloc.id in self._known}

    @property
    def stopped(self) -> dict[str, str]:
        """Id → description of what the last plan stops; of several entries the last."""
        return {alloc.id: alloc.desired_description for entries in self._entries("node_update") for alloc in entries}

    @property
    def stops(self) -> list[Allocation]:
        """The entries of the stop lists of the last plan."""
        return [alloc for entries in self._entries("node_update") for alloc in entries]

    @property
    def names(self) -> list[str]:
        """Names of what is placed."""
        return [alloc.name for alloc in self.placed]

    @property
    def links(self) -> dict[str, str]:
        """Name → the predecessor of what is placed."""
        return {alloc.name: alloc.previous_allocation for alloc in self.placed}

    @property
    def desired(self) -> dict[str, dict[str, int]]:
        """Group → counters that are not zero."""
        assert self.final is not None
        annotations = self.final.to_api().get("PlanAnnotations") or {}
        return {group: {key: count for key, count in counts.items() if count} for group, counts in annotations["DesiredTGUpdates"].items()}

    def _entries(self, name: str) -> list[list[Allocation]]:
        return [list(entries) for entries in getattr(self.plans[-1], name).values()] if self.plans else []


def _job_of(alloc: Allocation) -> dict[str, Any] | None:
    return None if alloc.job is None else alloc.job.to_api()
