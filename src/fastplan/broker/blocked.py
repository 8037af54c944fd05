"""The tracker of blocked evaluations: they wait until there may be room for them (worker-and-broker 5).

Requests take effect at once, in the one thread that owns broker and tracker, so nothing has to be queued between them: an unblock is on record
before any evaluation that is blocked after it is looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from fastplan.broker.evals import is_duration, start_ns
from fastplan.broker.metrics import BlockedMetrics
from fastplan.broker.stats import BlockedStats, Wanted
from fastplan.clock import Clock
from fastplan.errors import InvalidInput
from fastplan.structs import Evaluation

MAX_PLAN_ATTEMPTS: Final = "max-plan-attempts"
SYSTEM_TYPES: Final = ("system", "sysbatch")

JobKey = tuple[str, str]
"""Namespace and job id."""

K = TypeVar("K", bound=tuple[str, ...])

Enqueue = Callable[[list[tuple[Evaluation, str]]], None]


@dataclass(frozen=True, slots=True)
class BlockedSettings:
    """`prune_threshold_s`: for how long it is remembered that a class was unblocked."""

    prune_threshold_s: float = 900.0

    def __post_init__(self) -> None:
        if not is_duration(self.prune_threshold_s):
            raise InvalidInput("blocked.prune_threshold_s", self.prune_threshold_s, "seconds ≥ 0")


class _Tracked(NamedTuple):
    evaluation: Evaluation
    token: str


class BlockedEvals:
    """The tracker of a leader. All calls in one thread. A new tracker is off, and takes nothing."""

    def __init__(self, clock: Clock, settings: BlockedSettings | None, enqueue: Enqueue, metrics: BlockedMetrics | None = None) -> None:
        """*enqueue*: where released evaluations go, each with the token of the delivery in which it was given back, or an empty text.

        *metrics*: where figures go at `report`.
        """
        self._metrics = metrics
        self._clock = clock
        self._settings = settings or BlockedSettings()
        self._enqueue = enqueue
        self.enabled = False
        self._clear()

    def _clear(self) -> None:
        self._captured: dict[str, _Tracked] = {}
        self._escaped: dict[str, _Tracked] = {}
        # Job → node → id of the one evaluation that is tracked for both; what is not of a system job has the node "".
        self._jobs: dict[JobKey, dict[str, str]] = {}
        self._nodes: dict[str, set[str]] = {}
        # Class, quota or resource → (index, time) of its last unblock.
        self._unblocked: dict[str, tuple[int, float]] = {}
        self._duplicates: list[Evaluation] = []
        self._quota_count = 0
        self._by_job: dict[tuple[str, str], Counter[str]] = {}
        self._by_class: dict[tuple[str, str, str], Counter[str]] = {}

    def set_enabled(self, enabled: bool) -> None:
        """Switch the tracker on, or off: then everything is forgotten."""
        if self.enabled and not enabled:
            self._clear()
        self.enabled = enabled

    # --- taking in (5.2, 5.3) ---------------------------------------------------------------------------------------

    def block(self, evaluation: Evaluation) -> None:
        """Track an evaluation, or release it at once if what it waits for has happened since its snapshot.

        Raises InvalidInput, and changes nothing, for what the broker would refuse on its release.
        """
        self.reblock(evaluation, "")

    def reblock(self, evaluation: Evaluation, token: str) -> None:
        """The same for one that a worker gives back: released while the worker holds it, it is delivered again after the ack."""
        if not self.enabled:
            return
        start_ns(evaluation)
        if evaluation.id in self._captured or evaluation.id in self._escaped:
            # It is no duplicate of itself, wherever it was tracked.
            self._forget(evaluation.id)
        known_id = self._jobs.get(_job(evaluation), {}).get(_place(evaluation))
        if known_id is not None:
            known = (self._captured.get(known_id) or self._escaped[known_id]).evaluation
            if _age(known) > _age(evaluation):
                self._duplicates.append(evaluation)
                return
            self._duplicates.append(known)
            self._forget(known_id)
        if self._has_missed(evaluation):
            self._enqueue([(evaluation, token)])
            return
        self._jobs.setdefault(_job(evaluation), {})[_place(evaluation)] = evaluation.id
        (self._escaped if evaluation.escaped_computed_class else self._captured)[evaluation.id] = _Tracked(evaluation, token)
        if evaluation.type in SYSTEM_TYPES and evaluation.node_id:
            self._nodes.setdefault(evaluation.node_id, set()).add(evaluation.id)
        self._quota_count += bool(evaluation.quota_limit_reached)
        self._count(evaluation, 1)

    def _has_missed(self, evaluation: Evaluation) -> bool:
        """Return whether something that would have released the evaluation came between its snapshot and now; the order of events does not count."""
        seen = evaluation.snapshot_index
        if evaluation.quota_limit_reached:
            return self._index_of(evaluation.quota_limit_reached) > seen
        if any(self._index_of(name) > seen for name in evaluation.missing_non_node_resources):
            return True
        if evaluation.escaped_computed_class:
            return any(index > seen for index, _ in self._unblocked.values())
        return any(index > seen and evaluation.class_eligibility.get(key) is not False for key, (index, _) in self._unblocked.items())

    def _index_of(self, key: str) -> int:
        return self._unblocked.get(key, (0, 0.0))[0]

    # --- releasing (5.4) --------------------------------------------------------------------------------------------

    def unblock(self, node_class: str, index: int) -> None:
        """Release what nodes of a class may take, at the index at which there was room."""
        self.unblock_class_and_quota(node_class, "", index)

    def unblock_class_and_quota(self, node_class: str, quota: str, index: int) -> None:
        """The same where an allocation of a quota has ended: those that wait for another quota stay."""
        if not self.enabled:
            return
        self._note(node_class, index)
        if quota:
            self._note(quota, index)

        def is_released(evaluation: Evaluation) -> bool:
            if quota and evaluation.quota_limit_reached and evaluation.quota_limit_reached != quota:
                return False
            return evaluation.class_eligibility.get(node_class) is not False

        self._release([*self._escaped, *(eval_id for eval_id, tracked in self._captured.items() if is_released(tracked.evaluation))])

    def unblock_quota(self, quota: str, index: int) -> None:
        """Release what waits for a quota, and what waits for none, after the quota has changed."""
        if not self.enabled or not quota:
            return
        self._note(quota, index)
        self._release([eval_id for eval_id, tracked in self._captured.items() if tracked.evaluation.quota_limit_reached in ("", quota)])

    def unblock_non_node_resources(self, names: Iterable[str], index: int) -> None:
        """Release what lacks one of some things that no node has, such as volumes."""
        if not self.enabled:
            return
        wanted = set(names)
        for name in wanted:
            self._note(name, index)
        self._release([eval_id for eval_id, tracked in self._escaped.items() if not wanted.isdisjoint(tracked.evaluation.missing_non_node_resources)])

    def unblock_node(self, node_id: str) -> None:
        """Release the evaluations of system jobs that wait for a node."""
        if self.enabled:
            self._release(sorted(self._nodes.get(node_id, ())))

    def unblock_failed(self) -> None:
        """Release those that are blocked because their plans were refused too often."""
        if self.enabled:
            tracked = [*self._captured.items(), *self._escaped.items()]
            self._release([eval_id for eval_id, each in tracked if each.evaluation.triggered_by == MAX_PLAN_ATTEMPTS])

    def _note(self, key: str, index: int) -> None:
        self._unblocked[key] = max(index, self._index_of(key)), self._clock.monotonic_s()

    def _release(self, eval_ids: Iterable[str]) -> None:
        released = [self._forget(eval_id) for eval_id in eval_ids]
        if released:
            self._enqueue([(tracked.evaluation, tracked.token) for tracked in released])

    # --- forgetting (5.5, 5.7) --------------------------------------------------------------------------------------

    def untrack(self, namespace: str, job_id: str) -> None:
        """Forget all evaluations of a job: one of it was successful."""
        for eval_id in list(self._jobs.get((namespace, job_id), {}).values()):
            self._forget(eval_id)

    def _forget(self, eval_id: str) -> _Tracked:
        tracked = self._captured.pop(eval_id, None) or self._escaped.pop(eval_id)
        evaluation = tracked.evaluation
        of_job = self._jobs[_job(evaluation)]
        del of_job[_place(evaluation)]
        if not of_job:
            del self._jobs[_job(evaluation)]
        of_node = self._nodes.get(evaluation.node_id)
        if of_node is not None:
            of_node.discard(eval_id)
            if not of_node:
                del self._nodes[evaluation.node_id]
        self._quota_count -= bool(evaluation.quota_limit_reached)
        self._count(evaluation, -1)
        return tracked

    def duplicates(self) -> list[Evaluation]:
        """Take the evaluations that were superseded by others of the same job, which somebody has to cancel."""
        duplicates, self._duplicates = self._duplicates, []
        return duplicates

    def prune(self) -> None:
        """Forget unblocks that were long ago."""
        cutoff_s = self._clock.monotonic_s() - self._settings.prune_threshold_s
        self._unblocked = {key: (index, noted_s) for key, (index, noted_s) in self._unblocked.items() if noted_s >= cutoff_s}

    # --- figures ----------------------------------------------------------------------------------------------------

    def stats(self) -> BlockedStats:
        """Return the figures; whoever changes them changes nothing here."""
        return BlockedStats(
            total_blocked=len(self._captured) + len(self._escaped),
            total_escaped=len(self._escaped),
            total_quota_limit=self._quota_count,
            by_job={key: Wanted(wanted["cpu"], wanted["memory"]) for key, wanted in self._by_job.items()},
            by_class={key: Wanted(wanted["cpu"], wanted["memory"]) for key, wanted in self._by_class.items()},
        )

    def report(self) -> None:
        """Set the gauges of the metrics to the present figures."""
        if self._metrics is not None:
            self._metrics.report(self.stats())

    def known_ids(self) -> set[str]:
        """Return the ids of all tracked evaluations."""
        return {*self._captured, *self._escaped}

    def contradictions(self) -> list[str]:
        """Return what of the tracker's own figures does not fit together (worker-and-broker 5.6); empty if all is well."""
        found = []
        tracked = {**self._captured, **self._escaped}
        evaluations = [each.evaluation for each in tracked.values()]
        if len(tracked) != len(self._captured) + len(self._escaped):
            found.append("an evaluation is tracked twice")
        by_job = {(*job, node): eval_id for job, nodes in self._jobs.items() for node, eval_id in nodes.items()}
        if by_job != {(*_job(each), _place(each)): each.id for each in evaluations} or not all(self._jobs.values()):
            found.append("the index of jobs does not have what is tracked")
        by_node = {(node, eval_id) for node, ids in self._nodes.items() for eval_id in ids}
        if by_node != {(each.node_id, each.id) for each in evaluations if _place(each)} or not all(self._nodes.values()):
            found.append("the index of nodes does not have what is tracked")
        if self._quota_count != sum(bool(each.quota_limit_reached) for each in evaluations):
            found.append("the number of evaluations that wait for a quota is wrong")
        if not set(self._by_job) <= set(self._jobs):
            found.append("something is wanted for a job that has nothing tracked")
        return found

    def _count(self, evaluation: Evaluation, sign: int) -> None:
        """Add what an evaluation lacks to the figures, or take it out of them."""
        job = (evaluation.namespace, evaluation.job_id)
        for metric in evaluation.failed_tg_allocs.values():
            if metric is None:
                continue
            lacks = {"cpu": 0, "memory": 0}
            for task in metric.resources_exhausted.values():
                if task is not None:
                    lacks["cpu"] += task.cpu
                    lacks["memory"] += task.memory_mb
            _add(self._by_job, job, lacks, sign)
            for datacenter in metric.nodes_available:
                for node_class in metric.class_exhausted or ("",):
                    _add(self._by_class, (datacenter, node_class, metric.node_pool), lacks, sign)


def _add(table: dict[K, Counter[str]], key: K, lacks: dict[str, int], sign: int) -> None:
    entry = table.setdefault(key, Counter())
    entry["entries"] += sign
    for name, amount in lacks.items():
        entry[name] += sign * amount
    if not entry["entries"]:
        del table[key]


def _job(evaluation: Evaluation) -> JobKey:
    return evaluation.namespace, evaluation.job_id


def _place(evaluation: Evaluation) -> str:
    return evaluation.node_id if evaluation.type in SYSTEM_TYPES else ""


def _age(evaluation: Evaluation) -> int:
    return max(evaluation.create_index, evaluation.snapshot_index)
