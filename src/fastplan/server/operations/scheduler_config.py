"""The scheduler configuration of a new cluster (schedulers 1.4)."""

from __future__ import annotations

from typing import Any


def default_scheduler_config() -> dict[str, Any]:
    """Return the configuration that a cluster starts with, in the shape of the API. No limit of nodes means the default one."""
    return {
        "SchedulerAlgorithm": "binpack",
        "PreemptionConfig": {
            "SystemSchedulerEnabled": True,
            "SysBatchSchedulerEnabled": False,
            "BatchSchedulerEnabled": False,
            "ServiceSchedulerEnabled": False,
        },
        "MemoryOversubscriptionEnabled": False,
        "NodeLimitForFeasibilityChecks": 0,
        "RejectJobRegistration": False,
        "PauseEvalBroker": False,
    }
