"""What becomes of the allocations of service and batch jobs (schedulers 7.2 to 7.6), with the peculiarities that are recorded (7.9)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

from fastplan.scheduler.alloc_facts import (
    LOST,
    MIGRATING,
    NOT_NEEDED,
    RESCHEDULED,
    by_age,
    index_of,
    lost_after_ns,
    replaces_on_disconnect,
    with_client_status,
)
from fastplan.scheduler.draft import unknown_copy
from fastplan.scheduler.evaluations import DELAYED_RESCHEDULING, DISCONNECT_TIMEOUT, derived
from fastplan.scheduler.reconciler.names import NameIndex
from fastplan.scheduler.reconciler.reconnect import reunite
from fastplan.scheduler.reconciler.results import Placement, Reconciliation, Stop
from fastplan.scheduler.reconciler.rollout import Rollout, is_empty, state_complete
from fastplan.scheduler.reconciler.taint import by_standing
from fastplan.scheduler.reschedule import Later, Rescheduler, batches
from fastplan.scheduler.setting import Setting
from fastplan.structs import Allocation, Deployment, DeploymentState, DesiredUpdates, Evaluation, Job, Node, TaskGroup
from fastplan.structs.times import time_ns, time_text

Decision = Literal["ignore", "destructive"]
UpdateTest = Callable[[Allocation, TaskGroup], Allocation | Decision]
"""What an update of an allocation takes (schedulers 6.1): nothing, a replacement, or its new version in place."""

_KILL_LEAST_NS: Final = 5 * 10**9


class ClusterReconciler:
    """One reconciliation of one job."""

    def __init__(
        self,
        *,
        evaluation: Evaluation,
        job: Job | None,
        job_id: str,
        batch: bool,
        allocs: Iterable[Allocation],
        tainted: Mapping[str, Node | None],
        deployment: Deployment | None,
        update_test: UpdateTest,
        setting: Setting,
    ) -> None:
        """*allocs*: all of the job, each with its own job version. *deployment*: the latest one; it may be changed."""
        self._evaluation = evaluation
        self._job = job
        self._job_id = job_id
        self._batch = batch
        self._tainted = tainted
        self._update_test = update_test
        self._setting = setting
        self._strict = setting.strict
        self._now_ns = setting.now_ns()
        self._rollout = Rollout(job, deployment, setting, evaluation.priority)
        # The first of one name counts, as everywhere.
        self._wanted = {} if job is None else {group.name: group for group in reversed(job.task_groups)}
        self._groups = _by_group(job, sorted(allocs, key=by_age), strict=self._strict)
        self.result = Reconciliation()

    def reconcile(self) -> Reconciliation:
        """Return what is to be done."""
        result = self.result
        if self._job is None or self._job.stop:
            self._stop_all()
        else:
            complete = True
            for name, allocs in self._groups.items():
                complete &= self._reconcile_group(name, allocs)
            self._rollout.finish(complete)
        if self._strict:
            self._say_it_once()
        result.deployment = self._rollout.created
        result.deployment_updates = self._rollout.updates
        return result

    def _stop_all(self) -> None:
        for name, allocs in self._groups.items():
            self._stop_group([alloc for alloc in allocs if not alloc.is_terminal], self._desired(name))

    def _desired(self, group: str) -> DesiredUpdates:
        return self.result.desired.setdefault(group, DesiredUpdates())

    # --- one group (7.2) --------------------------------------------------------------------------------------------

    def _reconcile_group(self, name: str, allocs: list[Allocation]) -> bool:
        """Decide for one group; return whether its part of the deployment is complete."""
        group = self._wanted.get(name)
        desired = self._desired(name)
        if not self._batch:
            allocs = [alloc for alloc in allocs if not alloc.is_server_terminal]
        else:
            allocs = [alloc for alloc in allocs if not alloc.is_server_terminal or not alloc.desired_transition.reschedule]
        if group is None or group.count == 0:
            # As recorded, what has ended by itself is told to stop, too.
            self._stop_group([alloc for alloc in allocs if not alloc.is_terminal] if self._strict else allocs, desired)
            return True
        return _Group(self, group, desired, allocs).reconcile()

    def _say_it_once(self) -> None:
        """Leave nothing but the stop to what is stopped. As recorded, such allocations are written anew as well."""
        result = self.result
        gone = {stop.alloc.id for stop in result.stop}
        gone.update(placement.replaced.id for placement in result.destructive if placement.replaced is not None)
        for updates in (result.attribute_updates, result.disconnect_updates, result.reconnect_updates):
            for alloc_id in gone.intersection(updates):
                del updates[alloc_id]

    def _stop_group(self, allocs: list[Allocation], desired: DesiredUpdates) -> None:
        """Stop what a group still has that is not wanted any more."""
        standing = by_standing(allocs, self._tainted, self._now_ns)
        stopped = [*standing.untainted, *standing.migrate, *standing.disconnecting, *standing.reconnecting, *standing.expiring]
        self.result.stop += [Stop(alloc, NOT_NEEDED) for alloc in sorted(stopped, key=by_age)]
        self.result.stop += [Stop(alloc, LOST, "lost") for alloc in standing.lost]
        desired.stop = len(stopped) + len(standing.lost) + len(standing.ignore)

    # --- follow-ups (7.3) -------------------------------------------------------------------------------------------

    def follow_up(self, group: str, later: Sequence[Later], trigger: str) -> dict[str, str]:
        """Plan evaluations for allocations that are placed again later; return allocation id → evaluation id."""
        names: dict[str, str] = {}
        for number, batch in enumerate(batches(later)):
            first = number == 0 or trigger == "max-disconnect-timeout"
            evaluation = self._delayed(
                trigger if first else "alloc-failure",
                (DISCONNECT_TIMEOUT if trigger == "max-disconnect-timeout" else DELAYED_RESCHEDULING) if first else "",
                batch[0].time_ns,
            )
            self.result.follow_ups.setdefault(group, []).append(evaluation)
            names.update((each.alloc.id, evaluation.id) for each in batch)
        return names

    def _delayed(self, trigger: str, description: str, until_ns: int) -> Evaluation:
        assert self._job is not None
        evaluation = derived(self._evaluation, self._setting, status="pending", trigger=trigger, description=description)
        evaluation.previous_eval = ""
        evaluation.type = self._job.type
        evaluation.job_id = self._job.id
        evaluation.job_modify_index = self._job.modify_index
        evaluation.wait_until = time_text(until_ns)
        return evaluation


class _Group:
    """The reconciliation of one group that is wanted."""

    def __init__(self, owner: ClusterReconciler, group: TaskGroup, desired: DesiredUpdates, allocs: list[Allocation]) -> None:
        self._owner = owner
        self._group = group
        self._desired = desired
        self._all = allocs
        self._result = owner.result
        self._rollout = owner._rollout
        self._batch = owner._batch
        self._strict = owner._strict
        self._now_ns = owner._now_ns
        self._state, self._existing = self._rollout.state_of(group)

    def _is_canarying(self) -> bool:
        return self._state.desired_canaries != 0 and not self._state.promoted

    def reconcile(self) -> bool:
        owner, group, desired, result = self._owner, self._group, self._desired, self._result
        placed_before = len(result.place)
        self._drop_old_batch_allocs()
        canaries = self._sort_canaries()
        standing = by_standing(self._all, owner._tainted, self._now_ns)
        desired.ignore += len(standing.ignore)
        job = owner._job
        assert job is not None
        rescheduler = Rescheduler(batch=self._batch, now_ns=self._now_ns, eval_id=owner._evaluation.id, deployment=self._rollout.current)
        untainted, now, later = rescheduler.split(standing.untainted)
        migrate = standing.migrate
        self._migrating = {alloc.id for alloc in migrate}
        if self._batch:
            # Those that somebody stopped: they are placed again at once, but count as migrating.
            moved = rescheduler.split(migrate)
            now, later = [*now, *moved.now], [*later, *moved.later]
        lost = [*standing.lost, *standing.expiring]
        if standing.reconnecting:
            kept, stops = reunite(standing.reconnecting, [*untainted, *now, *(each for each in self._all if each not in standing.reconnecting)], job)
            result.stop += stops
            desired.stop += len(stops)
            stopped = {stop.alloc.id for stop in stops}
            untainted = [alloc for alloc in untainted if alloc.id not in stopped]
            if self._strict:
                # As recorded, a replacement that failed is stopped and placed again nevertheless.
                now = [alloc for alloc in now if alloc.id not in stopped]
                later = [each for each in later if each.alloc.id not in stopped]
            migrate = [alloc for alloc in migrate if alloc.id not in stopped]
            lost = [alloc for alloc in lost if alloc.id not in stopped]
            for alloc in kept:
                desired.reconnect += alloc.client_status == "running"
                if alloc.client_status == "running":
                    result.reconnect_updates[alloc.id] = with_client_status(alloc, "running", self._now_ns)
                untainted.append(alloc)
        untainted, now, later = self._disconnect(standing.disconnecting, rescheduler, untainted, now, later)
        lost_later = self._lost_later(lost)
        lost_names = owner.follow_up(group.name, lost_later, "alloc-failure") if lost_later else {}
        self._note_follow_ups(later)
        names = NameIndex(owner._job_id, group.name, group.count, {alloc.id: alloc for alloc in [*untainted, *migrate, *now, *lost]}.values())
        result.names[group.name] = names
        untainted, migrate = self._scale_down(names, untainted, migrate, lost, canaries, lost_names)
        destructive, in_place_count = self._update(untainted)
        if not self._existing:
            self._state.desired_total += len(destructive) + in_place_count
        if self._is_canarying():
            untainted = _without(untainted, canaries)
        needs_canaries = self._needs_canaries(destructive, canaries)
        if needs_canaries:
            self._add_canaries(names, canaries, destructive)
        canarying = self._is_canarying()
        limit = self._limit(untainted, destructive, migrate, canarying)
        place: list[Placement] = []
        if not lost_later:
            place = self._placements(names, untainted, migrate, now, lost, canarying)
            if not self._existing:
                self._state.desired_total += len(place)
        ready = not self._rollout.paused and not self._rollout.failed and not canarying
        limit = self._replace(ready, place, now, lost, limit, lost_later=bool(lost_later))
        replaces = len(result.place) > placed_before
        if ready:
            self._replace_destructively(destructive, limit)
        else:
            desired.ignore += len(destructive)
        self._migrate(migrate, canarying)
        if len(result.place) - placed_before > group.count:
            # Canaries and placements together are never more than the group has copies.
            del result.place[placed_before + group.count :]
            desired.place = group.count
        if not self._batch:
            updating = bool(destructive) or bool(result.in_place)
            self._rollout.create(group, self._state, self._existing, self._all, updating=updating)
        return self._is_complete(bool(destructive) or in_place_count > 0 or bool(migrate) or bool(now) or replaces or bool(later), needs_canaries)

    # --- what is old ------------------------------------------------------------------------------------------------

    def _drop_old_batch_allocs(self) -> None:
        """Leave what has ended of earlier versions of a batch job alone."""
        if not self._batch:
            return
        job = self._owner._job
        assert job is not None
        kept = []
        for alloc in self._all:
            older = alloc.job is not None and (alloc.job.version < job.version or alloc.job.create_index < job.create_index)
            if older and alloc.is_terminal:
                self._desired.ignore += 1
            else:
                kept.append(alloc)
        self._all = kept

    def _sort_canaries(self) -> list[Allocation]:
        """Stop canaries that nobody needs any more, and return those of the current deployment that are where they should be."""
        stopped = [alloc for alloc in self._all if alloc.id in self._rollout.unneeded_canaries]
        self._result.stop += [Stop(alloc, NOT_NEEDED) for alloc in stopped]
        self._desired.stop += len(stopped)
        self._all = _without(self._all, stopped)
        canaries = [alloc for alloc in self._all if alloc.id in self._rollout.canaries]
        if not canaries:
            return []
        standing = by_standing(canaries, self._owner._tainted, self._now_ns)
        self._result.stop += [Stop(alloc, MIGRATING) for alloc in standing.migrate]
        self._result.stop += [Stop(alloc, LOST, "lost") for alloc in standing.lost]
        self._all = _without(self._all, [*standing.migrate, *standing.lost])
        return standing.untainted

    # --- disconnects ------------------------------------------------------------------------------------------------

    def _disconnect(
        self, disconnecting: list[Allocation], rescheduler: Rescheduler, untainted: list[Allocation], now: list[Allocation], later: list[Later]
    ) -> tuple[list[Allocation], list[Allocation], list[Later]]:
        """Mark allocations as unknown whose node has gone, and have them replaced where their job wants that (7.6)."""
        if not disconnecting:
            return untainted, now, later
        replaced = [alloc for alloc in disconnecting if replaces_on_disconnect(alloc)]
        kept = _without(disconnecting, replaced)
        split = rescheduler.split(replaced, disconnecting=True)
        now = [*now, *split.now]
        # As recorded, this is counted only where something disconnects.
        self._desired.reschedule_now += len(now)
        timeouts = self._owner.follow_up(
            self._group.name,
            [Later(alloc, self._now_ns + lost_after_ns(alloc)) for alloc in disconnecting],
            "max-disconnect-timeout",
        )
        for alloc in disconnecting:
            twin = unknown_copy(alloc, self._now_ns)
            twin.followup_eval_id = timeouts.get(alloc.id, alloc.followup_eval_id)
            self._result.disconnect_updates[alloc.id] = twin
        self._desired.disconnect += len(disconnecting)
        return [*untainted, *kept, *split.untainted], now, [*later, *split.later]

    def _lost_later(self, lost: list[Allocation]) -> list[Later]:
        """Return the lost allocations whose clients are to stop them by themselves, and when they will have (7.2 step 9)."""
        later = []
        for alloc in lost:
            group = alloc.group
            if group is None:
                continue
            stop_after_ns = group.stop_after_client_disconnect or 0
            if group.disconnect is not None and group.disconnect.stop_on_client_after:
                stop_after_ns = group.disconnect.stop_on_client_after
            if stop_after_ns <= 0:
                continue
            since_ns = next((time_ns(state.time) for state in alloc.alloc_states if state is not None and state.value == "lost"), self._now_ns)
            stopped_ns = since_ns + stop_after_ns + max([_KILL_LEAST_NS, *(task.kill_timeout for task in group.tasks)])
            if stopped_ns > self._now_ns:
                later.append(Later(alloc, stopped_ns))
        return later

    def _note_follow_ups(self, later: list[Later]) -> None:
        evaluation = self._owner._evaluation
        if self._strict and evaluation.wait_until and time_ns(evaluation.wait_until, "eval.WaitUntil"):
            # One that was delayed itself begins no other delay for what failed: that failure has an evaluation of its own, which would look no further
            # than the note. As recorded, the note names an evaluation that nobody creates.
            later = [each for each in later if each.alloc.id in self._result.disconnect_updates]
        if not later:
            return
        names = self._owner.follow_up(self._group.name, later, "alloc-reschedule")
        self._desired.reschedule_later += len(later)
        for each in later:
            known = self._result.disconnect_updates.get(each.alloc.id)
            twin = copy.copy(each.alloc) if known is None else known
            twin.followup_eval_id = names[each.alloc.id]
            if known is None:
                self._result.attribute_updates[twin.id] = twin

    # --- fewer (7.4) ------------------------------------------------------------------------------------------------

    def _scale_down(
        self,
        names: NameIndex,
        untainted: list[Allocation],
        migrate: list[Allocation],
        lost: list[Allocation],
        canaries: list[Allocation],
        lost_names: Mapping[str, str],
    ) -> tuple[list[Allocation], list[Allocation]]:
        """Stop what is lost and what is too much; return what is left of the two lists."""
        result, desired = self._result, self._desired
        result.stop += [Stop(alloc, LOST, "lost", lost_names.get(alloc.id, "")) for alloc in lost]
        desired.stop += len(lost)
        canarying = self._is_canarying()
        counted = _without(untainted, canaries) if canarying else untainted
        remove = sum(alloc.client_status != "unknown" for alloc in counted) + len(migrate) - self._group.count
        if remove <= 0:
            return untainted, migrate
        stopped: list[Allocation] = []

        def stop(candidates: Iterable[Allocation]) -> None:
            for alloc in candidates:
                if len(stopped) < remove:
                    stopped.append(alloc)
                    result.stop.append(Stop(alloc, NOT_NEEDED))

        # Canaries are left out while they are tried; what was told to stop is no candidate.
        candidates = [alloc for alloc in counted if not alloc.is_server_terminal]
        if not canarying and canaries:
            canary_names = {alloc.name for alloc in canaries}
            stop(alloc for alloc in _without(candidates, canaries) if alloc.name in canary_names)
        if migrate and len(stopped) < remove:
            highest = NameIndex(self._owner._job_id, self._group.name, self._group.count, migrate).highest(remove - len(stopped))
            before = len(stopped)
            stop(alloc for alloc in migrate if alloc.name in highest)
            for alloc in stopped[before:]:
                names.free(index_of(alloc))
        if len(stopped) < remove:
            highest = names.highest(remove - len(stopped))
            stop([alloc for alloc in _without(candidates, stopped) if alloc.name in highest])
        stop(_without(candidates, stopped))
        desired.stop += len(stopped)
        return _without(untainted, stopped), _without(migrate, stopped)

    # --- updates ----------------------------------------------------------------------------------------------------

    def _update(self, untainted: list[Allocation]) -> tuple[list[Allocation], int]:
        """Return what has to be replaced, and how many are updated in place."""
        destructive = []
        in_place = 0
        for alloc in untainted:
            if self._strict and alloc.id in self._result.disconnect_updates:
                # Nobody could tell it anything: it is marked unknown, and that is all.
                self._desired.ignore += 1
                continue
            outcome = self._owner._update_test(self._as_noted(alloc), self._group)
            if outcome == "ignore":
                self._desired.ignore += 1
            elif outcome == "destructive":
                destructive.append(alloc)
            else:
                assert isinstance(outcome, Allocation)
                in_place += 1
                self._result.in_place.append(outcome)
                if self._strict:
                    # It says all that these would.
                    self._result.attribute_updates.pop(alloc.id, None)
                    self._result.reconnect_updates.pop(alloc.id, None)
        self._desired.in_place_update += in_place
        return destructive, in_place

    def _as_noted(self, alloc: Allocation) -> Allocation:
        """Return an allocation with what is noted of it already; as recorded, its update forgets that."""
        if not self._strict:
            return alloc
        return self._result.reconnect_updates.get(alloc.id) or self._result.attribute_updates.get(alloc.id) or alloc

    def _needs_canaries(self, destructive: list[Allocation], canaries: list[Allocation]) -> bool:
        update = self._group.update
        if self._batch or update is None or not destructive:
            return False
        return len(canaries) < update.canary and not self._state.promoted

    def _add_canaries(self, names: NameIndex, canaries: list[Allocation], destructive: list[Allocation]) -> None:
        assert self._group.update is not None
        self._state.desired_canaries = self._group.update.canary
        if self._rollout.paused or self._rollout.failed:
            return
        wanted = self._group.update.canary - len(canaries)
        self._desired.canary += wanted
        for name in names.next_canaries(wanted, canaries, destructive):
            self._result.place.append(Placement(name, self._group, canary=True))

    def _limit(self, untainted: list[Allocation], destructive: list[Allocation], migrate: list[Allocation], canarying: bool) -> int:
        """Return how many allocations may be replaced at once (7.5)."""
        update = self._group.update
        if update is None or is_empty(update) or not (destructive or migrate):
            return self._group.count
        deployment = self._rollout.current
        if deployment is None:
            return update.max_parallel
        if self._rollout.paused or self._rollout.failed or canarying:
            return 0
        limit = update.max_parallel
        for alloc in untainted:
            if alloc.deployment_id != deployment.id:
                continue
            health = None if alloc.deployment_status is None else alloc.deployment_status.healthy
            if health is False:
                return 0
            if health is None:
                limit -= 1
        return max(limit, 0)

    # --- placements (7.5) -------------------------------------------------------------------------------------------

    def _placements(
        self, names: NameIndex, untainted: list[Allocation], migrate: list[Allocation], now: list[Allocation], lost: list[Allocation], canarying: bool
    ) -> list[Placement]:
        group = self._group
        place = []
        for alloc in now:
            is_canary = alloc.deployment_status is not None and alloc.deployment_status.canary
            place.append(Placement(alloc.name, group, alloc, reschedule=True, canary=is_canary, downgrade=canarying and not is_canary))
        existing = len(untainted) + len(migrate) + len(now)
        for alloc in lost:
            if existing >= group.count:
                break
            existing += 1
            is_canary = alloc.deployment_status is not None and alloc.deployment_status.canary
            place.append(Placement(alloc.name, group, alloc, lost=True, canary=is_canary, downgrade=canarying and not is_canary))
        if existing < group.count:
            place += [Placement(name, group, downgrade=canarying) for name in names.next(group.count - existing)]
        return place

    def _replace(self, ready: bool, place: list[Placement], now: list[Allocation], lost: list[Allocation], limit: int, *, lost_later: bool) -> int:
        """Take placements into the plan as far as the deployment allows; return what is left of the limit."""
        result, desired = self._result, self._desired
        if ready:
            desired.place += len(place)
            result.place += place
            if not (self._strict and lost_later):
                # As recorded, they are stopped even where "lost later" keeps them from being replaced.
                stopped = [alloc for alloc in now if self._ends_by_reschedule(alloc)]
                result.stop += [Stop(alloc, RESCHEDULED) for alloc in stopped]
                desired.stop += len(stopped)
            return limit - min(len(place), limit)
        if lost and place:
            taken = [each for each in place if each.lost] if self._strict else place[: len(lost)]
            desired.place += len(taken)
            result.place += taken
        deployment = self._rollout.current
        for each in place if now else ():
            previous = each.previous
            if not each.reschedule or previous is None:
                continue
            if self._rollout.failed and deployment is not None and previous.deployment_id == deployment.id:
                continue
            result.place.append(each)
            desired.place += 1
            if self._ends_by_reschedule(previous):
                result.stop.append(Stop(previous, RESCHEDULED))
                desired.stop += 1
        return limit

    def _ends_by_reschedule(self, alloc: Allocation) -> bool:
        """Return whether an allocation is stopped because it is placed again: one that nobody hears of may come back, and a migrating one is stopped anyway."""
        return alloc.client_status != "unknown" and alloc.id not in self._result.disconnect_updates and alloc.id not in self._migrating

    def _replace_destructively(self, destructive: list[Allocation], limit: int) -> None:
        ordered = sorted(destructive, key=lambda alloc: (index_of(alloc), alloc.create_index, alloc.id))
        admitted, rest = ordered[:limit], ordered[limit:]
        self._desired.destructive_update += len(admitted)
        self._desired.ignore += len(rest)
        if rest:
            self._result.held_back_groups.append(self._group)
        for alloc in admitted:
            self._result.destructive.append(Placement(alloc.name, self._group, alloc, replaced=alloc))

    def _migrate(self, migrate: list[Allocation], canarying: bool) -> None:
        self._desired.migrate += len(migrate)
        for alloc in sorted(migrate, key=lambda alloc: (index_of(alloc), alloc.create_index, alloc.id)):
            self._result.stop.append(Stop(alloc, MIGRATING))
            transition = alloc.desired_transition
            if self._batch and (transition.reschedule or transition.migrate_disable_placement):
                continue
            is_canary = alloc.deployment_status is not None and alloc.deployment_status.canary
            self._result.place.append(Placement(alloc.name, self._group, alloc, canary=is_canary, downgrade=canarying and not is_canary))

    # --- the deployment ---------------------------------------------------------------------------------------------

    def _is_complete(self, anything_to_do: bool, needs_canaries: bool) -> bool:
        deployment = self._rollout.current
        if anything_to_do or needs_canaries or deployment is None:
            return False
        state: DeploymentState | None = deployment.task_groups.get(self._group.name)
        return state is None or state_complete(state)


def _by_group(job: Job | None, allocs: Sequence[Allocation], *, strict: bool) -> dict[str, list[Allocation]]:
    """Return the allocations of each group, and nothing for those that have none: in the order of the job (schedulers 3.8).

    As recorded, mostly, groups come in the order in which the store hands out their allocations, which is by id.
    """
    wanted = [] if job is None else [group.name for group in job.task_groups]
    present = [alloc.task_group for alloc in (allocs if strict else sorted(allocs, key=lambda alloc: alloc.id))]
    groups: dict[str, list[Allocation]] = {name: [] for name in ([*wanted, *present] if strict else [*present, *wanted])}
    for alloc in allocs:
        groups[alloc.task_group].append(alloc)
    return groups


def _without(allocs: Iterable[Allocation], gone: Iterable[Allocation]) -> list[Allocation]:
    ids = {alloc.id for alloc in gone}
    return [alloc for alloc in allocs if alloc.id not in ids]
