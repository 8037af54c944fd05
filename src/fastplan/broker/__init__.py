"""The evaluation broker and the tracker of blocked evaluations (worker-and-broker 3, 5).

Plain data under one owner: calls return at once, nothing waits, and time is told by `advance`.
"""

from fastplan.broker.blocked import BlockedEvals, BlockedSettings, BlockedStats
from fastplan.broker.evals import FAILED_QUEUE, BrokerSettings, BrokerStats, Delivery, EvalBroker, QueueStats
from fastplan.broker.gate import BrokerGate
from fastplan.broker.reaping import canceled_copies, duplicate_copies, failed_and_follow_up
from fastplan.errors import BrokerDisabled, BrokerError

__all__ = [
    "FAILED_QUEUE",
    "BlockedEvals",
    "BlockedSettings",
    "BlockedStats",
    "BrokerDisabled",
    "BrokerError",
    "BrokerGate",
    "BrokerSettings",
    "BrokerStats",
    "Delivery",
    "EvalBroker",
    "QueueStats",
    "canceled_copies",
    "duplicate_copies",
    "failed_and_follow_up",
]
