"""The evaluation broker and the tracker of blocked evaluations (worker-and-broker 3, 5).

Plain data under one owner: calls return at once, nothing waits, and time is told by `advance`.
"""

from fastplan.broker.blocked import BlockedEvals, BlockedSettings
from fastplan.broker.evals import BrokerSettings, Delivery, EvalBroker
from fastplan.broker.gate import BrokerGate
from fastplan.broker.metrics import BlockedMetrics, BrokerMetrics
from fastplan.broker.reaping import canceled_copies, duplicate_copies, failed_and_follow_up, failed_copies
from fastplan.broker.stats import FAILED_QUEUE, BlockedStats, BrokerStats, QueueStats, Wanted
from fastplan.errors import BrokerDisabled, BrokerError

__all__ = [
    "FAILED_QUEUE",
    "BlockedEvals",
    "BlockedMetrics",
    "BlockedSettings",
    "BlockedStats",
    "BrokerDisabled",
    "BrokerError",
    "BrokerGate",
    "BrokerMetrics",
    "BrokerSettings",
    "BrokerStats",
    "Delivery",
    "EvalBroker",
    "QueueStats",
    "Wanted",
    "canceled_copies",
    "duplicate_copies",
    "failed_and_follow_up",
    "failed_copies",
]
