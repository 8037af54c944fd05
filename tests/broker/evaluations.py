"""Evaluations and brokers for tests."""

from __future__ import annotations

import random
from typing import Any

from fastplan.broker import BrokerMetrics, BrokerSettings, EvalBroker
from fastplan.structs import Evaluation
from fastplan.testing import VirtualClock

NACK_TIMEOUT_S = 5.0


def evaluation(eval_id: str, **fields: Any) -> Evaluation:
    """Return a pending service evaluation of a job of its own."""
    return Evaluation(**{"id": eval_id, "namespace": "default", "job_id": f"job-of-{eval_id}", "priority": 50, "type": "service", "status": "pending"} | fields)


def new_broker(clock: VirtualClock, metrics: BrokerMetrics | None = None, **settings: Any) -> EvalBroker:
    """Return a broker that is on."""
    limits = BrokerSettings(**{"nack_timeout_s": NACK_TIMEOUT_S, "initial_nack_delay_s": 0.005, "subsequent_nack_delay_s": 0.05} | settings)
    broker = EvalBroker(clock, limits, random.Random(1), metrics)
    broker.set_enabled(True)
    return broker
