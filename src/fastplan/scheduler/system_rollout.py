"""Deployments of system jobs: which one a plan belongs to, its canaries, and when it is complete (schedulers 4.13)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fastplan.scheduler.reconciler.node_rollout import NodeRollout
from fastplan.scheduler.reconciler.rollout import (
    ACTIVE,
    COMPLETE_HERE,
    NEEDS_PROMOTION,
    RUNNING,
    SUCCESSFUL,
    WAITS_FOR_PEER,
    WILL_BE_PROMOTED,
    new_deployment,
)
from fastplan.structs import Allocation, AllocDeploymentStatus, Deployment, DeploymentState, DeploymentUpdate, DesiredUpdates, Job, TaskGroup

if TYPE_CHECKING:
    from fastplan.scheduler.draft import PlanDraft
    from fastplan.scheduler.reconciler.node import Entry, SystemReconciliation
    from fastplan.scheduler.setting import Setting


class SystemRollout:
    """The deployment that a plan of a system job belongs to; jobs of type sysbatch have none.

    `nodes` is what the reconciliation fills. As recorded, the latest deployment takes part whatever its status; under strict rules one that is over, or of
    another version, is left as it is, but for its cancellation.
    """

    def __init__(self, job: Job | None, latest: Deployment | None, setting: Setting, *, sysbatch: bool = False) -> None:
        """*latest*: of the job, None without one; the rollout's own."""
        latest = None if sysbatch else latest
        self._sysbatch = sysbatch
        self._job = job
        self._setting = setting
        self._strict = setting.strict
        self.nodes = NodeRollout(job, latest, strict=setting.strict)
        self._deployment = latest
        self._before = None if latest is None else latest.copy()
        self._is_created = False
        self._placed: list[tuple[Entry, Allocation]] = []
        self._failed: list[Entry] = []
        self._plan_deployment_id = ""

    def adopt(self, priority: int) -> None:
        """Make the deployment that the reconciliation began, or add groups to the current one. *priority*: of the evaluation."""
        nodes, job = self.nodes, self._job
        if self._sysbatch:
            return
        if self._strict and nodes.current is None:
            self._deployment = None
        if self._strict and self._deployment is not None and self._deployment.status not in ACTIVE:
            self._deployment = None
            return
        if nodes.is_new:
            assert job is not None
            self._deployment = new_deployment(job, self._setting, priority)
            self._is_created = True
            if not self._strict:
                # As recorded, a deployment that begins is told to run although it says so.
                self._update("running", RUNNING)
        if self._deployment is not None:
            self._deployment.task_groups.update(nodes.begun)

    # --- what allocations carry ---------------------------------------------------------------------------------------

    @property
    def deployment_id(self) -> str:
        """What the finished evaluation says: the deployment of the last plan."""
        return self._plan_deployment_id

    @property
    def active_id(self) -> str:
        """What new allocations carry: an active deployment only."""
        return "" if self._deployment is None or self._deployment.status not in ACTIVE else self._deployment.id

    @property
    def updated_id(self) -> str:
        """What updates in place carry; as recorded, that is the latest deployment whatever its status."""
        return "" if self._deployment is None else self._deployment.id

    def undecided(self, group: TaskGroup, ignored: Iterable[Entry]) -> int:
        """Return how many allocations of a group belong to the current deployment and are neither healthy nor unhealthy yet.

        Under strict rules they hold an update back only where somebody watches deployments and goes on once they are healthy.
        """
        current = self._deployment
        if current is None or (self._strict and not self._setting.deployment_watcher):
            return 0
        return sum(
            entry.group is group
            and entry.alloc is not None
            and entry.alloc.deployment_id == current.id
            and (entry.alloc.deployment_status is None or entry.alloc.deployment_status.healthy is None)
            for entry in ignored
        )

    def is_canarying(self, group: TaskGroup) -> bool:
        """Return whether updates of a group are canaries until somebody promotes them."""
        state = self._state_of(group)
        return state is not None and not state.promoted and group.update is not None and group.update.max_parallel > 0 and group.update.canary > 0

    def _state_of(self, group: TaskGroup) -> DeploymentState | None:
        return None if self._deployment is None else self._deployment.task_groups.get(group.name)

    # --- while placing ------------------------------------------------------------------------------------------------

    def note_placement(self, entry: Entry, alloc: Allocation) -> None:
        """Note a new allocation before it enters the plan, and mark canaries."""
        group = entry.group
        assert group is not None
        if self._deployment is None or (self._strict and not self.is_canarying(group)):
            return
        if entry.canary or (self._strict and self._follows_canary(alloc)):
            alloc.deployment_status = AllocDeploymentStatus(canary=True)
        self._placed.append((entry, alloc))

    def _follows_canary(self, alloc: Allocation) -> bool:
        group = None if self._deployment is None else self._deployment.task_groups.get(alloc.task_group)
        return group is not None and alloc.previous_allocation in group.placed_canaries

    def note_failure(self, entry: Entry) -> None:
        """Note that a node cannot take a group. As recorded, that is one update less even if there was nothing to update."""
        if entry.canary or not self._strict:
            self._failed.append(entry)

    # --- the end --------------------------------------------------------------------------------------------------------

    def finish(
        self, draft: PlanDraft, found: SystemReconciliation, in_place: Sequence[Entry], destructive: Sequence[Entry], desired: Mapping[str, DesiredUpdates]
    ) -> None:
        """Take surplus canaries out of the plan again, and put the deployment into it."""
        groups = () if self._job is None or self._job.stop else self._job.task_groups
        candidates = {group.name: desired[group.name].place if group.name in desired else 0 for group in groups}
        deployment = self._deployment
        busy = {entry.task_group for entries in (found.place, destructive) for entry in entries}
        if deployment is not None:
            for group in groups:
                state = self._state_of(group)
                if state is not None and (self._strict or candidates[group.name]):
                    state.desired_total = candidates[group.name]
            self._trim(draft, groups, found, in_place, destructive, desired)
            self._describe(deployment)
            if self._belongs_to_plan(candidates):
                self._conclude(deployment, groups, candidates, desired, busy)
                self._plan_deployment_id = deployment.id
                if not self._strict or deployment != self._before:
                    draft.deployment = deployment
        draft.deployment_updates = self.nodes.updates

    def _belongs_to_plan(self, candidates: Mapping[str, int]) -> bool:
        if not self._strict:
            # As recorded, a successful one does so if a node takes one of its groups, any other one always.
            deployment = self._deployment
            return deployment is not None and (deployment.status != "successful" or any(candidates.get(name) for name in deployment.task_groups))
        deployment = self._deployment
        if deployment is None or not self._is_created:
            return deployment is not None
        # Nothing is rolled out where no node takes the group.
        for name in [name for name in deployment.task_groups if not candidates[name]]:
            del deployment.task_groups[name]
        if not deployment.task_groups:
            self._deployment = None
        return bool(deployment.task_groups)

    def _conclude(
        self, deployment: Deployment, groups: Sequence[TaskGroup], candidates: Mapping[str, int], desired: Mapping[str, DesiredUpdates], busy: set[str | None]
    ) -> None:
        """Say so if a deployment is complete, or if another region's turn is over. *busy*: groups of which something is placed in this pass."""
        if self._is_complete(deployment, groups, candidates, desired, busy):
            multiregion = self._job is not None and self._job.multiregion is not None
            if not multiregion:
                self._update("successful", SUCCESSFUL)
            elif deployment.status not in ("unblocking", "successful"):
                self._update("blocked", COMPLETE_HERE)
        if deployment.status == "initializing":
            self._update("pending", WAITS_FOR_PEER)

    def _is_complete(
        self, deployment: Deployment, groups: Sequence[TaskGroup], candidates: Mapping[str, int], desired: Mapping[str, DesiredUpdates], busy: set[str | None]
    ) -> bool:
        if _awaits_promotion(deployment) or (self._strict and (deployment.status != "running" or not groups)):
            return False
        for group in groups:
            state = self._state_of(group)
            if state is None or not candidates[group.name]:
                continue
            if state.healthy_allocs < state.desired_total or desired[group.name].canary or (self._strict and group.name in busy):
                return False
        return True

    def _update(self, status: str, description: str) -> None:
        assert self._deployment is not None
        self.nodes.updates.append(DeploymentUpdate(deployment_id=self._deployment.id, status=status, status_description=description))

    def _describe(self, deployment: Deployment) -> None:
        if _awaits_promotion(deployment):
            automatic = all(state.auto_promote for state in deployment.task_groups.values() if state.desired_canaries > 0)
            deployment.status_description = WILL_BE_PROMOTED if automatic else NEEDS_PROMOTION

    # --- canaries -------------------------------------------------------------------------------------------------------

    def _trim(
        self,
        draft: PlanDraft,
        groups: Sequence[TaskGroup],
        found: SystemReconciliation,
        in_place: Sequence[Entry],
        destructive: Sequence[Entry],
        desired: Mapping[str, DesiredUpdates],
    ) -> None:
        updates = Counter(entry.task_group for entry in destructive)
        updated = set(updates)
        updates.subtract(entry.task_group for entry in self._failed)
        staying = {entry.alloc_id: entry.alloc for entries in (found.ignore, in_place) for entry in entries if entry.alloc is not None}
        if self._strict:
            self._find_canaries(staying.values())
        for group in groups:
            state = self._state_of(group)
            if state is None or not self.is_canarying(group) or group.name not in updated:
                continue
            self._trim_group(draft, group, state, updates[group.name], staying)
            desired[group.name].canary = len(state.placed_canaries)

    def _find_canaries(self, allocs: Iterable[Allocation]) -> None:
        """List canaries that run and are not listed: a plan that was refused in part leaves only its own ones in the deployment (plan-apply 5.6)."""
        for alloc in allocs:
            group = None if self._deployment is None else self._deployment.task_groups.get(alloc.task_group)
            mark = alloc.deployment_status
            if group is None or mark is None or not mark.canary or alloc.deployment_id != self.active_id or alloc.id in group.placed_canaries:
                continue
            group.placed_canaries = [*group.placed_canaries, alloc.id]

    def _trim_group(self, draft: PlanDraft, group: TaskGroup, state: DeploymentState, updates: int, staying: Collection[str]) -> None:
        """Keep as many canaries as are asked for: those that run, then those that follow a canary that has ended, then new ones in order."""
        assert group.update is not None
        running = [alloc_id for alloc_id in state.placed_canaries if alloc_id in staying]
        asked = group.update.canary * (updates + len(running))
        state.desired_canaries = min(-(-asked // 100), group.update.max_parallel)
        placed = [(entry, alloc) for entry, alloc in self._placed if entry.group is group]
        following = [alloc for entry, alloc in placed if not entry.canary and alloc.previous_allocation in state.placed_canaries]
        room = state.desired_canaries - len(running) - len(following)
        new = [(entry, alloc) for entry, alloc in placed if entry.canary]
        surplus = new[max(room, 0) :]
        for _, alloc in surplus:
            draft.withdraw(alloc, evictions=self._strict)
        # As recorded, what a canary that finds no room was to replace is stopped nevertheless.
        spared = [entry for entry in self._failed if entry.group is group and entry.canary] if self._strict else []
        for entry in [*(entry for entry, _ in surplus), *spared]:
            assert entry.alloc is not None
            draft.keep(entry.alloc)
        kept = [*following, *(alloc for _, alloc in new[: max(room, 0)])]
        state.placed_canaries = [*running, *(alloc.id for alloc in kept if alloc.deployment_status is not None and alloc.deployment_status.canary)]


def _awaits_promotion(deployment: Deployment) -> bool:
    """Return whether a running deployment has canaries that somebody has to promote."""
    return deployment.status == "running" and any(state.desired_canaries > 0 and not state.promoted for state in deployment.task_groups.values())
