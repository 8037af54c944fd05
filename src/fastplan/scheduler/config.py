"""The scheduler configuration that is in force for one job (schedulers 1.4)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from fastplan.state.snapshot import StateReader
from fastplan.structs import Job

NODE_LIMIT_DEFAULT = 100


@dataclass(frozen=True, slots=True)
class SchedulerConfig:
    """How a job is scheduled. A stored configuration that says nothing of a preemption flag has it off, except for system jobs' default (schedulers 1.4)."""

    algorithm: Literal["binpack", "spread"] = "binpack"
    memory_oversubscription: bool = False
    node_limit: int = NODE_LIMIT_DEFAULT
    preemption: Mapping[str, bool] = field(default_factory=dict)
    """Job type → whether it may preempt; empty: every type may, as where no configuration is stored."""

    def preemption_enabled(self, job_type: str) -> bool:
        """Return whether jobs of this type may evict others."""
        return self.preemption.get(job_type, False) if self.preemption else True


def default_scheduler_config() -> dict[str, Any]:
    """Return the configuration that a new cluster gets, in the shape of the API."""
    return {
        "SchedulerAlgorithm": "binpack",
        "PreemptionConfig": {
            "SystemSchedulerEnabled": True,
            "SysBatchSchedulerEnabled": False,
            "ServiceSchedulerEnabled": False,
            "BatchSchedulerEnabled": False,
        },
        "MemoryOversubscriptionEnabled": False,
        "RejectJobRegistration": False,
        "PauseEvalBroker": False,
    }


def config_of(state: StateReader, job: Job | None) -> SchedulerConfig:
    """Return the stored configuration, with what the node pool of *job* overrides."""
    stored = state.scheduler_config()
    pool = None if job is None else state.node_pool(job.node_pool or "default")
    override = _mapping((pool or {}).get("SchedulerConfiguration"))
    if stored is None:
        preemption: dict[str, bool] = {}
        stored = {}
    else:
        flags = _mapping(stored.get("PreemptionConfig"))
        preemption = {
            job_type: bool(flags.get(f"{name}SchedulerEnabled", False))
            for job_type, name in (("system", "System"), ("sysbatch", "SysBatch"), ("service", "Service"), ("batch", "Batch"))
        }
    algorithm = override.get("SchedulerAlgorithm") or stored.get("SchedulerAlgorithm")
    oversubscription = override.get("MemoryOversubscriptionEnabled")
    if oversubscription is None:
        oversubscription = stored.get("MemoryOversubscriptionEnabled", False)
    limit = stored.get("NodeLimitForFeasibilityChecks")
    return SchedulerConfig(
        algorithm="spread" if algorithm == "spread" else "binpack",
        memory_oversubscription=bool(oversubscription),
        node_limit=limit if isinstance(limit, int) and limit > 0 else NODE_LIMIT_DEFAULT,
        preemption=preemption,
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
