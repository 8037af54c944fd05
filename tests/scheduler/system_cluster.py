"""Small clusters with one system or sysbatch job, and what its scheduler makes of them: what the tests of that scheduler start from."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

from fastplan.rules import Rules
from fastplan.scheduler.setting import Overlap
from fastplan.state import StateStore
from fastplan.structs import Allocation, Deployment, Evaluation, Job, Node
from fastplan.structs.times import time_text
from fastplan.testing import SchedulerHarness
from fastplan.testing.builders import group_api, ready_node, running_alloc, sysbatch_job, system_job

SECOND_NS = 10**9
MINUTE_NS = 60 * SECOND_NS
NOW_NS = 1_800_000_000 * SECOND_NS
BOTH_RULES = (Rules.NOMAD, Rules.STRICT)

NOT_NEEDED = "alloc not needed due to job update"
UPDATING = "alloc is being updated due to job update"
LOST = "alloc is lost since its node is down"
TAINTED = "alloc not needed as node is tainted"

CURRENT, OLDER = 200, 100
"""Job modify indexes of the registered specification and of the one before."""


def nodes(count: int, **more: Any) -> list[Node]:
    """Return ready nodes n0, n1 and so on."""
    return [ready_node(f"n{number}", **more) for number in range(count)]


def changed(node: Node, **fields: Any) -> Node:
    """Return a node with other fields."""
    for name, value in fields.items():
        setattr(node, name, value)
    return node


def down(node: Node) -> Node:
    """Return a node that went away."""
    return changed(node, status="down")


def draining(node: Node) -> Node:
    """Return a node that is being emptied."""
    return Node.from_api({**node.to_api(), "DrainStrategy": {"Deadline": MINUTE_NS}, "SchedulingEligibility": "ineligible"})


def ineligible(node: Node) -> Node:
    """Return a node that takes nothing new."""
    return changed(node, scheduling_eligibility="ineligible")


def job_of(kind: str, *groups: dict[str, Any], index: int = CURRENT, version: int = 1000, **more: Any) -> Job:
    """Return a job; one group `web` unless *groups* are given."""
    builder = {"system": system_job, "sysbatch": sysbatch_job}[kind]
    return builder("agent", *groups, **{"CreateIndex": 50, "ModifyIndex": index, "JobModifyIndex": index, "Version": version, **more})


def older(job: Job, *, destructive: bool, index: int = OLDER) -> Job:
    """Return an earlier version of a job, from which it differs so that allocations have to be replaced, or so that they can stay."""
    api = job.to_api()
    for group in api["TaskGroups"]:
        for task in group["Tasks"]:
            task |= {"User": "somebody-else"} if destructive else {"KillTimeout": 99 * SECOND_NS}
    return Job.from_api({**api, "JobModifyIndex": index, "ModifyIndex": index, "Version": 2 * index + destructive})


class Allocs:
    """Makes allocations of a job: `cur` with its specification, `old_d` and `old_i` with an older one that differs destructively or in place."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._older = {False: older(job, destructive=False), True: older(job, destructive=True)}

    @property
    def versions(self) -> list[Job]:
        """The older versions."""
        return list(self._older.values())

    def cur(self, alloc_id: str, node_id: str = "n0", *, ci: int = 10, index: int = 0, group: str = "", **more: Any) -> Allocation:
        return running_alloc(alloc_id, self.job, node_id, index=index, group=group, **{"CreateIndex": ci, "ModifyIndex": ci, **more})

    def old_d(self, alloc_id: str, node_id: str = "n0", *, ci: int = 10, index: int = 0, group: str = "", **more: Any) -> Allocation:
        return running_alloc(alloc_id, self._older[True], node_id, index=index, group=group, **{"CreateIndex": ci, "ModifyIndex": ci, **more})

    def old_i(self, alloc_id: str, node_id: str = "n0", *, ci: int = 10, index: int = 0, group: str = "", **more: Any) -> Allocation:
        return running_alloc(alloc_id, self._older[False], node_id, index=index, group=group, **{"CreateIndex": ci, "ModifyIndex": ci, **more})


def unknown_since(ago_ns: int, **more: Any) -> dict[str, Any]:
    """Return the fields of an allocation that became unknown so long ago."""
    return {"ClientStatus": "unknown", "AllocStates": [{"Field": 0, "Value": "unknown", "Time": time_text(NOW_NS - ago_ns)}], **more}


def reconnecting(**more: Any) -> dict[str, Any]:
    """Return the fields of an allocation that was unknown and runs again."""
    return {**unknown_since(MINUTE_NS), "ClientStatus": "running", **more}


def successful(**more: Any) -> dict[str, Any]:
    """Return the fields of an allocation whose tasks ended well."""
    return {"TaskStates": {"web": {"State": "dead", "Failed": False}}, **more}


class Outcome:
    """What became of one evaluation."""

    def __init__(self, harness: SchedulerHarness, known: set[str]) -> None:
        self.plans = harness.plans
        self.created = harness.created_evals
        self.reblocked = harness.reblocked_evals
        self.final = harness.evals[-1]
        self._known = known

    def _entries(self, name: str) -> list[Allocation]:
        return [alloc for entries in getattr(self.plans[-1], name).values() for alloc in entries] if self.plans else []

    @property
    def placed(self) -> dict[tuple[str, str], Allocation]:
        """New allocations of the last plan by node and name."""
        return {(alloc.node_id, alloc.name): alloc for alloc in self._entries("node_allocation") if alloc.id not in self._known}

    @property
    def placed_nodes(self) -> list[str]:
        """Nodes of new allocations of the last plan."""
        return sorted(alloc.node_id for alloc in self._entries("node_allocation") if alloc.id not in self._known)

    @property
    def links(self) -> dict[tuple[str, str], str]:
        """Node and name of new allocations → what they follow."""
        return {slot: alloc.previous_allocation for slot, alloc in self.placed.items()}

    @property
    def updated(self) -> dict[str, Allocation]:
        """Known allocations that the last plan writes anew."""
        return {alloc.id: alloc for alloc in self._entries("node_allocation") if alloc.id in self._known}

    @property
    def stops(self) -> dict[str, str]:
        """Id → description of what the last plan stops. Each is stopped once."""
        entries = self._entries("node_update")
        assert len({alloc.id for alloc in entries}) == len(entries)
        return {alloc.id: alloc.desired_description for alloc in entries}

    @property
    def client_statuses(self) -> dict[str, str]:
        """Id → what the stops of the last plan say of the client."""
        return {alloc.id: alloc.client_status for alloc in self._entries("node_update")}

    @property
    def preempted(self) -> list[str]:
        """Ids of what the last plan evicts."""
        return sorted(alloc.id for alloc in self._entries("node_preemptions"))

    @property
    def is_idle(self) -> bool:
        """Whether nothing was planned and nothing created."""
        return not self.plans and not self.created

    @property
    def follow_ups(self) -> list[Evaluation]:
        """Evaluations that go on with a rolling update."""
        return [each for each in self.created if each.triggered_by == "rolling-update"]

    @property
    def blocked(self) -> list[Evaluation]:
        """Evaluations that wait for room."""
        return [each for each in self.created if each.status == "blocked"]

    @property
    def desired(self) -> dict[str, dict[str, int]]:
        """Group → counters that are not zero."""
        annotations = self.final.to_api().get("PlanAnnotations") or {}
        return {group: {key: count for key, count in counts.items() if count} for group, counts in (annotations.get("DesiredTGUpdates") or {}).items()}


class Cluster:
    """A state with one job, on which evaluations are processed one after the other."""

    def __init__(
        self,
        job: Job | None,
        cluster: Sequence[Node],
        allocs: Iterable[Allocation] = (),
        *,
        others: Iterable[Job] = (),
        rules: Rules = Rules.STRICT,
        overlap: Overlap = "enforce",
        deployments: Iterable[Deployment] = (),
        config: dict[str, Any] | None = None,
        deployment_watcher: bool = False,
        kind: str = "system",
    ) -> None:
        """*job* None: purged. *others*: further jobs that are registered. *kind*: type of evaluations without a job."""
        allocs = list(allocs)
        jobs = [each for each in [job, *others] if each is not None]
        versions = {(each.id, each.version, each.job_modify_index): each for each in [*jobs, *(alloc.job for alloc in allocs if alloc.job is not None)]}
        self.kind = kind if job is None else job.type
        self._rules = rules
        self._overlap = overlap
        self._watcher = deployment_watcher
        self._runs = 0
        self.store = StateStore.from_dump(
            {
                "nodes": [node.to_api() for node in cluster],
                "jobs": [each.to_api() for each in jobs],
                "job_versions": [each.to_api() for each in versions.values()],
                "allocs": [{**alloc.to_api(), "Job": None if alloc.job is None else alloc.job.to_api()} for alloc in allocs],
                "deployments": [deployment.to_api() for deployment in deployments],
                "scheduler_config": config,
                "indexes": {"nodes": 1000, "jobs": 1000, "allocs": 1000},
            }
        )

    def run(self, *, planner: Any = "commit", triggered_by: str = "job-register", now_ns: int = NOW_NS, **more: Any) -> Outcome:
        """Process one evaluation of the job."""
        self._runs += 1
        harness = SchedulerHarness(
            self.store, now_ns=now_ns, planner=planner, rules=self._rules, overlap=self._overlap, seed=self._runs, deployment_watcher=self._watcher
        )
        known = {alloc.id for alloc in self.allocs}
        fields = {"id": f"eval-{self._runs}", "namespace": "default", "priority": 50, "type": self.kind, "job_id": "agent", "status": "pending"}
        harness.process(Evaluation(**{**fields, "triggered_by": triggered_by, **more}))
        return Outcome(harness, known)

    @property
    def allocs(self) -> list[Allocation]:
        """All allocations of the job in the state."""
        return list(self.store.allocs_by_job("default", "agent"))

    @property
    def live_slots(self) -> list[tuple[str, str]]:
        """Node and name of every allocation that is to run and has not ended."""
        return sorted((alloc.node_id, alloc.name) for alloc in self.allocs if alloc.desired_status == "run" and not alloc.is_client_terminal)

    def report(self, alloc_id: str, **fields: Any) -> None:
        """Change what is stored of an allocation, as its client reports it."""
        alloc = self.store.alloc(alloc_id)
        assert alloc is not None
        for name, value in fields.items():
            setattr(alloc, name, value)
        self.store.update_allocs_from_client(self.store.latest_index() + 1, [alloc])


def reordered(rng: random.Random, items: Iterable[Any]) -> list[Any]:
    """Return the items in another order."""
    shuffled = list(items)
    rng.shuffle(shuffled)
    return shuffled


WEB = group_api()
