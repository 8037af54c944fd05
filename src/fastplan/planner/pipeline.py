"""The plan pipeline: verify on committed state and what is in flight, append one batch, answer (plan-apply 6).

`Pipeline` decides; it does no I/O and never waits. Whoever drives it calls `pump` when something may have changed: a plan
arrived, a batch has ended, the state has moved, a deadline has passed. So it runs under virtual time from a seed.

    queue ──drain──▶ verify ──▶ ahead ──propose_batch──▶ in flight ──outcome──▶ answers

*ahead* holds plans that are verified but not sent, because `depth` batches are in flight. The *view* that plans are verified on is
committed state plus the results in flight and ahead, in groups: a group leaves the view in the same step in which its batch has
ended, because by then state holds it (or never will).

Freshness (plan-apply 6.9):

* A verdict that was made on something which then failed, or on state that something else than this pipeline has changed
  since, is thrown away and made again before its plan is sent.
* A refusal, error or no-op that rests on something in flight is answered after that is decided: if it fails the plan is verified
  again, if it commits the refresh index is at least its index.
* After an outcome that is not known, nothing is verified until a barrier has told what state it left.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fastplan.clock import Clock
from fastplan.errors import Busy, FastplanError, NotLeader, PlanError, QueueDisabled, ReplicationError, SnapshotTimeout, TooLarge
from fastplan.planner.evaluate import Verified
from fastplan.planner.metrics import PlanMetrics
from fastplan.planner.queue import PendingPlan, PlanQueue
from fastplan.planner.result import NOTHING, Accepted, NodeVerdict, PlanResult
from fastplan.planner.tracker import RejectionTracker
from fastplan.state.plans import AnyPlan

logger = logging.getLogger("fastplan.planner")

Pending = PendingPlan[AnyPlan]

REFUSED_BEFORE = "refused when the plan was first committed"
"""Reason of the refused nodes of a plan that is answered a second time."""


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Limits of the pipeline. `depth` counts batches that are not finished; below 1 it acts as 1."""

    depth: int = 2
    batch_plans: int = 1024
    batch_bytes: int = 4 * 1024 * 1024
    wait_for_index_s: float = 10.0


class View(Protocol):
    """Committed state with results on top of it. A group is a set of results that leave together."""

    def latest_index(self) -> int:
        """Return the index of committed state."""
        ...

    def verify(self, plans: Sequence[AnyPlan], group: int | None) -> list[Verified]:
        """Verify plans in order, each on the accepted results of those before it, and add what is accepted to *group*.

        With None nothing is added. A plan error is returned, not raised.
        """
        ...

    def drop(self, group: int) -> None:
        """Take the results of a group out of the view."""
        ...


class Entries(Protocol):
    """Makes log entries of verdicts, and tells beforehand why one could not be made (plan-apply 6.6)."""

    def obstacle(self, plan: AnyPlan) -> PlanError | None:
        """Return the error of a plan that could not be written if there were anything to write, or None."""
        ...

    def needs_hook(self) -> bool:
        """Tell whether `run_hook` may refuse a plan after it was verified."""
        ...

    def run_hook(self, verdict: Verified) -> None:
        """Run the identity hook for a verified plan. Raises what the hook raises."""
        ...

    def encode(self, verdict: Verified, now_ns: int) -> bytes:
        """Return the log entry of a verdict that has something to write."""
        ...

    def key(self, plan: AnyPlan) -> bytes:
        """Return the key of the plan's entry, empty for a plan that may be written twice."""
        ...


class Handle(Protocol):
    """A proposed batch."""

    def done(self) -> bool:
        """Tell whether the outcome is known."""
        ...

    def outcome(self) -> Any:
        """Return the `BatchCommitted`, or raise the error. Only when done."""
        ...


class Log(Protocol):
    """Where batches go (replication.md 1.1)."""

    def propose_batch(self, entries: Sequence[bytes], *, term: int, keys: Sequence[bytes | None] | None = None) -> Any:
        """Append entries next to each other; returns a handle for all of them."""
        ...


class Repeat(Protocol):
    """What became of the first entry with a key: where it was committed, why it was refused, what of the plan was refused."""

    first_index: int
    refused: str | None
    rejected_nodes: tuple[str, ...]
    refresh_index: int


class Batch:
    """Plans that share one append: verified, not yet sent, then in flight."""

    __slots__ = ("deferred", "group", "handle", "noted", "plans", "sent_s", "verdicts")

    def __init__(self, group: int) -> None:
        self.group = group
        self.plans: list[Pending] = []
        self.verdicts: list[Verified] = []
        self.deferred: list[tuple[Pending, Verified]] = []
        # How many of the verdicts, from the first, the tracker has been told about.
        self.noted = 0
        self.handle: Any = None
        self.sent_s = 0.0


class Pipeline:
    """One leadership's worth of plan applying. A new leadership makes a new pipeline; an old one only finishes what it sent.

    It holds back because of the log after an unknown outcome (`needs_barrier`) and while the log is full (`needs_room`): the
    driver then waits for the log, notes that in `resuming`, and calls `resume`.
    """

    def __init__(
        self,
        *,
        term: int,
        queue: PlanQueue[AnyPlan],
        view: View,
        entries: Entries,
        log: Log,
        changes: Callable[[], int],
        recall: Callable[[bytes], Repeat | None],
        clock: Clock,
        tracker: RejectionTracker,
        metrics: PlanMetrics,
        settings: PipelineSettings | None = None,
    ) -> None:
        """Begin a leadership.

        *changes*: how many entries other than plans state has taken so far; a change of it makes unsent verdicts stale. *recall*: what became of an
        entry with a key.
        """
        self.term = term
        self.settings = settings or PipelineSettings()
        self.depth = max(self.settings.depth, 1)
        self.stopped = False
        self.needs_barrier = False
        self.needs_room = False
        self.resuming = False
        self.in_flight: list[Batch] = []
        self._queue = queue
        self._view = view
        self._entries = entries
        self._log = log
        self._changes = changes
        self._recall = recall
        self._clock = clock
        self._tracker = tracker
        self._metrics = metrics
        self._previous_index = 0
        self._groups = 0
        self._ahead = self._new_batch()
        self._ahead_changes = 0
        self._again: list[Pending] = []
        # Plans that were taken and of which nobody knows yet where they belong.
        self._taken: list[Pending] = []
        # Plans that need an index which committed state has not reached: (index, order, deadline, plan).
        self._parked: list[tuple[int, int, float, Pending]] = []
        self._parked_count = 0

    # --- what the driver calls --------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Do everything that can be done now."""
        self._collect()
        if self.stopped:
            return
        self._look_at_parked()
        while not (self.needs_barrier or self.needs_room):
            took = self._take()
            if not self._ahead.plans or len(self.in_flight) >= self.depth:
                if not took:
                    return
                continue
            self._send()
            if self.stopped:
                return

    def resume(self) -> None:
        """Go on after the log said that everything before is applied (`needs_barrier`) or that it has room (`needs_room`)."""
        self.needs_barrier = False
        self.needs_room = False
        self.pump()

    def stop(self) -> None:
        """End with this leadership: whatever was not sent is flushed, whatever was sent is answered when its outcome is known."""
        if not self.stopped:
            self._collect()
            self._flush()

    def abandon(self, error: Exception) -> None:
        """End after a defect: nobody may be left waiting for an answer. What was sent is answered when its outcome is known."""
        taken, self._taken = self._taken, []
        self._flush()
        for pending in taken:
            if not pending.answered:
                pending.answer(None, PlanError(f"the plan applier failed: {error}"))

    def _flush(self) -> None:
        self.stopped = True
        ahead, self._ahead = self._ahead, self._new_batch()
        flushed = [*self._again, *ahead.plans, *(pending for pending, _ in ahead.deferred), *(parked[3] for parked in self._parked)]
        self._again = []
        self._parked = []
        self._view.drop(ahead.group)
        for pending in flushed:
            pending.answer(None, QueueDisabled("plan queue flushed"))

    def next_deadline_s(self) -> float | None:
        """Return the monotonic time at which `pump` must be called even if nothing happens, or None."""
        return min((parked[2] for parked in self._parked), default=None)

    def unfinished(self) -> int:
        """Return how many plans were taken and are not answered yet."""
        batches = [*self.in_flight, self._ahead]
        return sum(len(batch.plans) + len(batch.deferred) for batch in batches) + len(self._again) + len(self._parked)

    # --- taking and verifying ---------------------------------------------------------------------------------------

    def _take(self) -> bool:
        """Verify what has to be verified again, and what waits in the queue, as far as the batch ahead has room. False if there was nothing."""
        ahead = self._ahead
        if ahead.plans and self._ahead_changes != self._changes():
            self._verify_again(ahead)
        room = self.settings.batch_plans - len(ahead.plans)
        if room <= 0:
            return False
        again = self._again[:room]
        del self._again[:room]
        try:
            fresh = self._queue.drain(room - len(again)) if len(again) < room else []
        except QueueDisabled:
            # Leadership is ending; `stop` follows. Until then finish what was taken.
            fresh = []
        if not again and not fresh:
            return False
        if fresh:
            self._metrics.outstanding_apply.record(sum(len(batch.plans) for batch in self.in_flight))
        self._ahead_changes = self._changes()
        reached = self._view.latest_index()
        ready = [pending for pending in (*again, *fresh) if pending.plan.snapshot_index <= reached or self._park(pending)]
        if ready:
            self._taken = ready
            self._verify(ready)
            self._taken = []
        return True

    def _verify(self, ready: list[Pending]) -> None:
        entries = self._entries
        start_s = self._clock.monotonic_s()
        run: list[Pending] = []
        careful = entries.needs_hook()
        for pending in ready:
            if pending.key is None:
                pending.key = entries.key(pending.plan)
            if pending.key and self._answer_repeat(pending):
                continue
            obstacle = entries.obstacle(pending.plan)
            if obstacle is None and not careful:
                run.append(pending)
                continue
            self._verify_run(run)
            run = []
            self._verify_carefully(pending, obstacle)
        self._verify_run(run)
        self._metrics.evaluate.record((self._clock.monotonic_s() - start_s) / len(ready), times=len(ready))

    def _verify_run(self, run: list[Pending]) -> None:
        if not run:
            return
        ahead = self._ahead
        found = self._view.verify([pending.plan for pending in run], ahead.group)
        plans, verdicts = ahead.plans, ahead.verdicts
        for pending, verdict in zip(run, found, strict=True):
            if is_writable(verdict):
                plans.append(pending)
                verdicts.append(verdict)
            else:
                self._refuse(pending, verdict)

    def _verify_carefully(self, pending: Pending, obstacle: PlanError | None) -> None:
        """Verify a plan that may turn out to be impossible to write: nothing of it may be in the view then."""
        verdict = self._view.verify([pending.plan], None)[0]
        if is_writable(verdict):
            if obstacle is None:
                start_s = self._clock.monotonic_s()
                try:
                    self._entries.run_hook(verdict)
                except FastplanError as error:
                    obstacle = error if isinstance(error, PlanError) else PlanError(str(error))
                self._metrics.sign_identities.record(self._clock.monotonic_s() - start_s)
            if obstacle is None:
                self._verify_run([pending])
                return
            verdict.result, verdict.error = None, obstacle
        self._refuse(pending, verdict)

    def _refuse(self, pending: Pending, verdict: Verified) -> None:
        """Answer an error or no-op, now or, if it rests on something in flight, when that is decided."""
        ahead = self._ahead
        newest = ahead if ahead.plans else (self.in_flight[-1] if self.in_flight else None)
        if newest is not None and verdict.in_flight:
            newest.deferred.append((pending, verdict))
        else:
            self._settle(pending, verdict, 0)

    def _settle(self, pending: Pending, verdict: Verified, decided_index: int) -> None:
        """Answer an error or no-op for good. *decided_index*: last index of what it rested on, 0 for nothing."""
        if pending.key and decided_index and self._answer_repeat(pending):
            # It rested on itself: the same plan was in flight.
            return
        result = verdict.result
        if result is None:
            pending.answer(None, verdict.error)
            return
        self._note_refusals(verdict)
        if result.ineligible_nodes:
            # The tracker found a bad node: now there is something to write (L15).
            obstacle = self._entries.obstacle(pending.plan)
            if obstacle is not None:
                pending.answer(None, obstacle)
                return
            ahead = self._ahead
            if not ahead.plans:
                self._ahead_changes = self._changes()
            # It has been noted; what stands behind `noted` in the batch has not.
            ahead.plans.insert(ahead.noted, pending)
            ahead.verdicts.insert(ahead.noted, verdict)
            ahead.noted += 1
            return
        if result.refresh_index and result.refresh_index < decided_index:
            result.refresh_index = decided_index
        pending.answer(result)

    def _verify_again(self, batch: Batch) -> None:
        """Throw the verdicts of an unsent batch away and have its plans verified before all others."""
        self._view.drop(batch.group)
        plans = [*batch.plans, *(pending for pending, _ in batch.deferred)]
        self._metrics.verified_again.add(len(plans))
        # The plans ahead were taken before those that wait to be verified again because something in flight failed.
        self._again = plans + self._again
        self._ahead = self._new_batch()

    def _new_batch(self) -> Batch:
        self._groups += 1
        return Batch(self._groups)

    # --- waiting for an index (plan-apply 6.4) ----------------------------------------------------------------------

    def _park(self, pending: Pending) -> bool:
        """Put a plan aside until state has reached its index. It does not hold up the others. Returns False: not to be verified now."""
        deadline_s = self._clock.monotonic_s() + self.settings.wait_for_index_s
        self._parked_count += 1
        heapq.heappush(self._parked, (pending.plan.snapshot_index, self._parked_count, deadline_s, pending))
        return False

    def _look_at_parked(self) -> None:
        if not self._parked:
            return
        reached = self._view.latest_index()
        now_s = self._clock.monotonic_s()
        while self._parked and self._parked[0][0] <= reached:
            _, _, deadline_s, pending = heapq.heappop(self._parked)
            self._metrics.wait_for_index.record(now_s - deadline_s + self.settings.wait_for_index_s)
            self._again.append(pending)
        late = [parked for parked in self._parked if parked[2] <= now_s]
        if not late:
            return
        self._parked = [parked for parked in self._parked if parked[2] > now_s]
        heapq.heapify(self._parked)
        for snapshot_index, _, _, pending in sorted(late, key=lambda parked: parked[1]):
            self._metrics.wait_for_index.record(self.settings.wait_for_index_s)
            wanted = max(self._previous_index, snapshot_index)
            pending.answer(
                None,
                SnapshotTimeout(
                    f"timed out after {self.settings.wait_for_index_s:g}s waiting for index={wanted}"
                    f" (previous plan result index={wanted}; plan snapshot index={snapshot_index})"
                ),
            )

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        """Hand the batch ahead to the log."""
        batch = self._ahead
        if self._ahead_changes != self._changes():
            self._verify_again(batch)
            return
        now_s = self._clock.monotonic_s()
        now_ns = self._clock.now_ns()
        entries: list[bytes] = []
        keys: list[bytes | None] = []
        total = 0
        for pending, verdict in zip(batch.plans, batch.verdicts, strict=True):
            if total > self.settings.batch_bytes:
                break
            if len(entries) >= batch.noted:
                self._note_refusals(verdict)
            try:
                entry = self._entries.encode(verdict, now_ns)
            except FastplanError as error:
                # Nobody could write this plan; the others are verified again, without it.
                del batch.plans[len(entries)], batch.verdicts[len(entries)]
                pending.answer(None, error if isinstance(error, PlanError) else PlanError(str(error)))
                self._verify_again(batch)
                return
            entries.append(entry)
            keys.append(pending.key or None)
            total += len(entry)
        batch.noted = max(batch.noted, len(entries))
        try:
            batch.handle = self._log.propose_batch(entries, term=self.term, keys=keys)
        except Busy:
            self.needs_room = True
            return
        except TooLarge as error:
            self._too_large(batch, entries, error)
            return
        except ReplicationError as error:
            # Nothing was written, and under this term nothing will be.
            self._fail_unsent(error)
            return
        batch.sent_s = now_s
        self._ahead = self._new_batch()
        if len(entries) < len(batch.plans):
            self._split(batch, len(entries))
        self.in_flight.append(batch)
        self._metrics.batches.add()
        self._metrics.raft_dispatch.record(self._clock.monotonic_s() - now_s)

    def _split(self, batch: Batch, sent: int) -> None:
        """Keep what did not fit into the batch as the first plans of the next one. They are verified again: the view holds groups, not plans."""
        rest = batch.plans[sent:]
        del batch.plans[sent:]
        del batch.verdicts[sent:]
        self._metrics.verified_again.add(len(rest))
        self._view.drop(batch.group)
        again = self._view.verify([pending.plan for pending in batch.plans], batch.group)
        if not all(each.result is not None for each in again):
            raise RuntimeError("a plan that was accepted on a view is an error on the same view")
        self._again = rest + self._again

    def _too_large(self, batch: Batch, entries: list[bytes], error: TooLarge) -> None:
        """An entry exceeds the limit of the log: nothing was written. Answer the largest one and verify the others again, without it."""
        largest = max(range(len(entries)), key=lambda place: len(entries[place]))
        pending = batch.plans.pop(largest)
        batch.verdicts.pop(largest)
        pending.answer(None, error)
        self._verify_again(batch)

    def _fail_unsent(self, error: ReplicationError) -> None:
        batch = self._ahead
        for pending in batch.plans:
            pending.answer(None, error)
        batch.plans = []
        batch.verdicts = []
        self.stop()

    # --- outcomes ---------------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Look at the batches in flight, oldest first, and answer those whose outcome is known."""
        while self.in_flight and self.in_flight[0].handle.done():
            batch = self.in_flight.pop(0)
            # From here on state holds the batch, or never will: it must not count twice.
            self._view.drop(batch.group)
            try:
                committed = batch.handle.outcome()
            except ReplicationError as error:
                self._failed(batch, error)
            else:
                self._committed(batch, committed.first_index, committed.results)

    def _committed(self, batch: Batch, first_index: int, results: Sequence[Any]) -> None:
        duration_s = self._clock.monotonic_s() - batch.sent_s
        count = len(batch.plans)
        last_index = first_index + count - 1
        self._previous_index = max(self._previous_index, last_index)
        self._metrics.apply.record(duration_s, times=count)
        all_applied = True
        index = first_index
        for pending, verdict, applied in zip(batch.plans, batch.verdicts, results, strict=True):
            result = verdict.outcome()
            if applied is None:
                result.alloc_index = index
                if result.refresh_index and result.refresh_index < index:
                    result.refresh_index = index
                pending.answer(result)
            else:
                # The state machine refused it, or has seen it before.
                all_applied = False
                if applied.refused is not None:
                    pending.answer(None, PlanError(applied.refused))
                else:
                    pending.answer(repeated_result(pending.plan, applied))
            index += 1
        self._metrics.committed.add(count)
        if all_applied:
            for pending, verdict in batch.deferred:
                if self.stopped:
                    pending.answer(None, QueueDisabled("plan queue flushed"))
                else:
                    self._settle(pending, verdict, last_index)
        else:
            self._rethink(batch)

    def _answer_repeat(self, pending: Pending) -> bool:
        """Answer a plan that was sent before with what became of it then. False if it was not, as far as anybody remembers."""
        repeat = self._recall(pending.key or b"")
        if repeat is None:
            return False
        if repeat.refused is not None:
            pending.answer(None, PlanError(repeat.refused))
        else:
            pending.answer(repeated_result(pending.plan, repeat))
        return True

    def _failed(self, batch: Batch, error: ReplicationError) -> None:
        self._metrics.apply.record(self._clock.monotonic_s() - batch.sent_s, times=len(batch.plans))
        for pending in batch.plans:
            pending.answer(None, error)
        if not isinstance(error, NotLeader | Busy | TooLarge):
            # It may still be written. What comes next must be verified on a state that holds it, if it is.
            self.needs_barrier = True
        self._rethink(batch)

    def _rethink(self, batch: Batch) -> None:
        """Something that the view held did not happen: whatever was verified on it and is not sent is verified again."""
        deferred = [pending for pending, _ in batch.deferred]
        for later in self.in_flight:
            deferred.extend(pending for pending, _ in later.deferred)
            later.deferred = []
        batch.deferred = []
        if self.stopped:
            for pending in deferred:
                pending.answer(None, QueueDisabled("plan queue flushed"))
            return
        self._metrics.verified_again.add(len(deferred))
        self._again = deferred + self._again
        if self._ahead.plans or self._ahead.deferred:
            self._verify_again(self._ahead)

    # --- refusals ---------------------------------------------------------------------------------------------------

    def _note_refusals(self, verdict: Verified) -> None:
        """Count and log the refused nodes of a verdict that stands, and ask the tracker about them (plan-apply 5.5, 8, 9)."""
        result = verdict.result
        if result is None or not result.partial:
            return
        bad: list[str] = []
        for node_id, refused in result.refused.items():
            self._metrics.node_rejected.add(node_id)
            if refused.reason:
                plan = verdict.plan
                logger.info("plan for node refused: node_id=%s reason=%r eval_id=%s namespace=%s", node_id, refused.reason, plan.eval_id, namespace_of(plan))
            if self._tracker.record(node_id):
                bad.append(node_id)
        if bad:
            result.ineligible_nodes = tuple(sorted({*result.ineligible_nodes, *bad}))


def repeated_result(plan: AnyPlan, repeat: Repeat) -> PlanResult:
    """Return the answer to a plan that was committed before: what it asked for, without what was refused then."""
    refused = {node_id: NodeVerdict(False, REFUSED_BEFORE) for node_id in repeat.rejected_nodes}
    kept = not (plan.all_at_once and refused)
    maps = (plan.node_update, plan.node_allocation, plan.node_preemptions)
    parts = [{node_id: list(allocs) for node_id, allocs in part.items() if allocs and node_id not in refused} for part in maps]
    refresh_index = max(repeat.refresh_index, repeat.first_index) if refused else 0
    result = PlanResult(plan, Accepted(*parts) if kept else NOTHING, refused=refused or None, kept=kept, refresh_index=refresh_index)
    result.alloc_index = repeat.first_index
    return result


def is_writable(verdict: Verified) -> bool:
    """Tell whether a verdict leaves something to write."""
    return verdict.result is not None and not verdict.result.is_noop()


def namespace_of(plan: AnyPlan) -> str:
    """Return the namespace of the plan's job, from the job or the job info, whichever is there; empty without both."""
    if plan.job is not None:
        return plan.job.namespace
    return plan.job_info.namespace if plan.job_info is not None else ""
