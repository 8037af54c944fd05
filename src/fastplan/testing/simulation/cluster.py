"""The nodes and jobs of a simulated cluster, drawn from a seed."""

from __future__ import annotations

import random
from typing import Any, Final

from fastplan.structs import Job, Node
from fastplan.testing.builders import batch_job, group_api, ready_node, service_job, sysbatch_job, system_job

_BUILD: Final = {"service": service_job, "batch": batch_job, "system": system_job, "sysbatch": sysbatch_job}
_TYPES: Final = ("service", "service", "service", "batch", "system", "service", "sysbatch", "batch")
SECOND_NS: Final = 10**9

_AGAIN_AND_AGAIN: Final = {"Delay": 5 * SECOND_NS, "DelayFunction": "constant", "MaxDelay": 10 * SECOND_NS, "Unlimited": True}

PARAMETERIZED: Final = "calls"
"""Id of the job that is dispatched."""


def simulated_node(number: int, source: random.Random) -> Node:
    """Return a node, as it registers: its id says nothing of its size."""
    return ready_node(
        f"node-{number:03}",
        cpu_mhz=source.choice((2000, 2000, 4000)),
        memory_mib=source.choice((4096, 8192)),
        datacenter=f"dc{1 + number % 2}",
        address=f"10.0.0.{1 + number % 250}",
    )


class SimulatedJob:
    """A job of which newer versions come up; `next` returns one as somebody would register it."""

    def __init__(self, number: int, source: random.Random, nodes: int) -> None:
        self._random = source
        self._nodes = nodes
        self.type = _TYPES[number % len(_TYPES)]
        self.id = f"{self.type}-{number}"
        self._cpu_mhz = source.choice((100, 200, 300, 500))
        self._build = 0
        self._count = source.randint(1, max(nodes // 2, 1))
        self._datacenters = source.choice((["*"], ["*"], ["dc1"]))
        self._priority = source.choice((20, 50, 50, 80))
        self._port = 8000 + number if source.random() < 0.3 else 0
        self._dynamic = source.random() < 0.3
        self._canaries = source.choice((0, 0, 1, 2))
        self._distinct = source.random() < 0.2
        self._updates = source.random() < 0.7

    def next(self) -> Job:
        """Return the next version: another build, another size, another count, or nothing new."""
        change = self._random.randrange(5)
        if change < 2:
            self._build += 1
        elif change == 2:
            self._cpu_mhz = self._random.choice((100, 200, 300, 500))
        elif change == 3:
            self._count = self._random.randint(0, self._nodes)
        return self.job()

    def job(self) -> Job:
        """Return the job as it is."""
        group = group_api("main", count=self._count_of_group(), cpu_mhz=self._cpu_mhz, memory_mib=128)
        task = group["Tasks"][0]
        task["Env"] = {"BUILD": str(self._build)}
        network = self._network()
        if network is not None:
            group["Networks"] = [network]
        if self._distinct and self.type in ("service", "batch"):
            group["Constraints"] = [{"Operand": "distinct_hosts", "RTarget": "true"}]
        if self.type in ("service", "batch"):
            group["ReschedulePolicy"] = _AGAIN_AND_AGAIN
        if self.type == "service" and self._updates:
            group["Update"] = {
                "MaxParallel": 1 + self._build % 2,
                "Canary": min(self._canaries, self._count),
                "HealthCheck": "task_states",
                "MinHealthyTime": SECOND_NS,
                "HealthyDeadline": 60 * SECOND_NS,
                "ProgressDeadline": 600 * SECOND_NS,
                "Stagger": 2 * SECOND_NS,
            }
        more: dict[str, Any] = {"Priority": self._priority, "Datacenters": self._datacenters}
        if self.type == "system" and self._updates:
            more["Update"] = {"MaxParallel": 2, "Stagger": 2 * SECOND_NS}
        return _BUILD[self.type](self.id, group, **more)

    def _count_of_group(self) -> int:
        return self._count if self.type in ("service", "batch") else 1

    def _network(self) -> dict[str, Any] | None:
        ports: dict[str, Any] = {}
        if self._port:
            ports["ReservedPorts"] = [{"Label": "fixed", "Value": self._port}]
        if self._dynamic:
            ports["DynamicPorts"] = [{"Label": "any"}]
        return {"Mode": "host", **ports} if ports else None


def parameterized_job() -> Job:
    """Return the job that is dispatched."""
    return batch_job(PARAMETERIZED, group_api("main", cpu_mhz=200, memory_mib=64, ReschedulePolicy=_AGAIN_AND_AGAIN), ParameterizedJob={"Payload": "optional"})
