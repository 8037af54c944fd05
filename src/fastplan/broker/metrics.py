"""The metrics of broker and tracker, by Nomad's names (worker-and-broker 10)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import numpy

from fastplan.broker.stats import FAILED_QUEUE, BlockedStats, BrokerStats, QueueStats
from fastplan.metrics import Metrics
from fastplan.structs import Evaluation
from fastplan.structs.times import time_ns

QUEUES: Final = ("service", "batch", "system", "sysbatch", "_core", FAILED_QUEUE)
"""The queues that have gauges."""

TRACKED_LIMIT: Final = 10_000
"""The arrival of so many evaluations is known at once; what comes beyond that has no wait and no response."""

BATCH: Final = 1024
"""Acks and nacks whose times are handed to the timers at once."""


class BrokerMetrics:
    """The instruments of a broker, registered in *metrics*, and the times of what it has.

    Times reach their timers in batches after an ack or a nack, at the latest with `report`. A wait ends with the first delivery. The response to an
    evaluation is counted at each ack and nack, from its arrival on.
    """

    def __init__(self, metrics: Metrics) -> None:
        self.wait_time = metrics.timer("nomad.broker.wait_time", "Time from the arrival of an evaluation to its first delivery.")
        self.process_time = metrics.timer("nomad.broker.process_time", "Time from the delivery of an evaluation to its ack or nack.")
        self.response_time = metrics.timer("nomad.broker.response_time", "Time from the arrival of an evaluation to its ack or nack.")
        self.total_ready = metrics.gauge("nomad.broker.total_ready", "Evaluations that are ready to be delivered.")
        self.total_unacked = metrics.gauge("nomad.broker.total_unacked", "Evaluations that workers hold.")
        self.total_pending = metrics.gauge("nomad.broker.total_pending", "Evaluations that wait for another one of their job.")
        self.total_waiting = metrics.gauge("nomad.broker.total_waiting", "Evaluations that wait for a time.")
        self.total_cancelable = metrics.gauge("nomad.broker.total_cancelable", "Evaluations that a newer one has superseded and that are not canceled yet.")
        self.ready = {queue: metrics.gauge(f"nomad.broker.{queue}.ready", f"Evaluations that are ready in the queue {queue}.") for queue in QUEUES}
        self.unacked = {queue: metrics.gauge(f"nomad.broker.{queue}.unacked", f"Evaluations that workers hold from the queue {queue}.") for queue in QUEUES}
        self.eval_waiting = metrics.labelled_gauge(
            "nomad.broker.eval_waiting", "Seconds until the next delayed evaluation of this job (namespace/id) is due.", "job"
        )
        self._arrived_s: dict[str, float] = {}
        # Of each ack and nack: wait, process and response in seconds; NaN for what is not known.
        self._times_s: list[tuple[float, float, float]] = []

    def arrived(self, eval_id: str, now_s: float) -> None:
        """Note that an evaluation has come."""
        if len(self._arrived_s) < TRACKED_LIMIT:
            self._arrived_s[eval_id] = now_s

    def came_back(self, eval_id: str, delivered_s: float, now_s: float, *, first: bool, handled: bool) -> None:
        """Note an ack (*handled*) or a nack of the first or another delivery."""
        arrived_s = self._arrived_s.pop(eval_id, math.nan) if handled else self._arrived_s.get(eval_id, math.nan)
        self._times_s.append((delivered_s - arrived_s if first else math.nan, now_s - delivered_s, now_s - arrived_s))
        if len(self._times_s) >= BATCH:
            self._flush()

    def _flush(self) -> None:
        times_s = numpy.array(self._times_s, numpy.float64).reshape(-1, 3)
        self._times_s.clear()
        for timer, durations_s in zip((self.wait_time, self.process_time, self.response_time), times_s.T, strict=True):
            timer.record_all(durations_s[~numpy.isnan(durations_s)])

    def gone(self, eval_id: str) -> None:
        """Note that an evaluation will not be delivered."""
        self._arrived_s.pop(eval_id, None)

    def clear(self) -> None:
        """Forget when evaluations arrived: the broker forgets them all."""
        self._arrived_s.clear()

    def report(self, stats: BrokerStats, delayed: Iterable[Evaluation], now_ns: int) -> None:
        """Set the gauges and bring the timers up to date. *delayed*: what waits for a time of the wall clock."""
        self._flush()
        self.total_ready.set(stats.total_ready)
        self.total_unacked.set(stats.total_unacked)
        self.total_pending.set(stats.total_pending)
        self.total_waiting.set(stats.total_waiting)
        self.total_cancelable.set(stats.total_cancelable)
        for queue in QUEUES:
            figures = stats.by_scheduler.get(queue, QueueStats())
            self.ready[queue].set(figures.ready)
            self.unacked[queue].set(figures.unacked)
        waiting: dict[str, float] = {}
        for evaluation in delayed:
            job = f"{evaluation.namespace}/{evaluation.job_id}"
            left_s = max((time_ns(evaluation.wait_until, "eval.WaitUntil") - now_ns) / 1e9, 0.0)
            waiting[job] = min(left_s, waiting.get(job, left_s))
        self.eval_waiting.replace(waiting)


class BlockedMetrics:
    """The instruments of a tracker of blocked evaluations, registered in *metrics*."""

    def __init__(self, metrics: Metrics) -> None:
        self.total_blocked = metrics.gauge("nomad.blocked_evals.total_blocked", "Evaluations that wait for room.")
        self.total_escaped = metrics.gauge("nomad.blocked_evals.total_escaped", "Blocked evaluations that room on any node may help.")
        self.total_quota_limit = metrics.gauge("nomad.blocked_evals.total_quota_limit", "Blocked evaluations that wait for a quota.")
        self.job_cpu = metrics.labelled_gauge("nomad.blocked_evals.job.cpu", "MHz that this job (namespace/id) lacks.", "job")
        self.job_memory = metrics.labelled_gauge("nomad.blocked_evals.job.memory", "MiB that this job (namespace/id) lacks.", "job")
        self.cpu = metrics.labelled_gauge("nomad.blocked_evals.cpu", "MHz that is lacking on these nodes (datacenter/class/pool).", "nodes")
        self.memory = metrics.labelled_gauge("nomad.blocked_evals.memory", "MiB that is lacking on these nodes (datacenter/class/pool).", "nodes")

    def report(self, stats: BlockedStats) -> None:
        """Set the gauges."""
        self.total_blocked.set(stats.total_blocked)
        self.total_escaped.set(stats.total_escaped)
        self.total_quota_limit.set(stats.total_quota_limit)
        self.job_cpu.replace({"/".join(job): wanted.cpu_mhz for job, wanted in stats.by_job.items()})
        self.job_memory.replace({"/".join(job): wanted.memory_mib for job, wanted in stats.by_job.items()})
        self.cpu.replace({"/".join(nodes): wanted.cpu_mhz for nodes, wanted in stats.by_class.items()})
        self.memory.replace({"/".join(nodes): wanted.memory_mib for nodes, wanted in stats.by_class.items()})
