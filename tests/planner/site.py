"""A small cluster whose plans go the whole way under virtual time: queue, verification, log, state machine, answer."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from typing import Any

from fastplan import codec
from fastplan.fsm import StateMachine
from fastplan.metrics import Metrics
from fastplan.planner import PlanResult, Rules
from fastplan.planner.applier import Applier
from fastplan.planner.entry import EntryMaker, IdentityHook
from fastplan.planner.pipeline import PipelineSettings
from fastplan.planner.queue import PendingPlan
from fastplan.planner.tracker import TrackerSettings
from fastplan.planner.view import OptimisticView
from fastplan.state import StateStore
from fastplan.structs import Plan
from fastplan.testing.clock import VirtualClock, run_virtual
from fastplan.testing.log import SimulatedLog

JOB = {"ID": "web", "Namespace": "default", "Type": "service", "Priority": 50, "Version": 0, "TaskGroups": [{"Name": "g"}]}


def node(node_id: str, cpu: int = 1000, **changes: Any) -> dict[str, Any]:
    return {
        "ID": node_id,
        "Status": "ready",
        "SchedulingEligibility": "eligible",
        "NodeResources": {
            "Processors": {"Topology": {"OverrideTotalCompute": cpu, "Cores": []}},
            "Memory": {"MemoryMB": 1_000_000},
            "Disk": {"DiskMB": 1_000_000},
            "NodeNetworks": [],
        },
        **changes,
    }


def alloc(alloc_id: str, cpu: int = 1000, **changes: Any) -> dict[str, Any]:
    return {
        "ID": alloc_id,
        "Namespace": "default",
        "JobID": "web",
        "TaskGroup": "g",
        "Name": f"web.g[{len(alloc_id)}]",
        "DesiredStatus": "run",
        "ClientStatus": "pending",
        "AllocatedResources": {"Tasks": {"t": {"Cpu": {"CpuShares": cpu}, "Memory": {"MemoryMB": 1}}}, "Shared": {}},
        **changes,
    }


class Site:
    """Two nodes F and G of 1,000 MHz each, one registered job; nodes written at index 1."""

    def __init__(
        self,
        *,
        depth: int = 2,
        delay_s: Callable[[], float] = lambda: 0.01,
        rules: Rules = Rules.STRICT,
        tracker: TrackerSettings | None = None,
        identity_hook: IdentityHook | None = None,
        settings: PipelineSettings | None = None,
        nodes: tuple[str, ...] = ("F", "G"),
        seed: int = 0,
        entry_limit_bytes: int = 8 << 20,
    ) -> None:
        self.clock = VirtualClock()
        self.metrics = Metrics()
        self.machine = StateMachine()
        self.log = SimulatedLog(self.machine, delay_s=delay_s, seed=seed, entry_limit_bytes=entry_limit_bytes)
        self.numbers = itertools.count(1)
        self.applier = Applier(
            log=self.log,
            state=self.machine,
            new_view=lambda: OptimisticView(lambda: self.machine.store, rules),
            entries=EntryMaker(
                lambda: self.machine.store, lambda: self.machine.applied, new_id=lambda: f"eval-{next(self.numbers)}", identity_hook=identity_hook
            ),
            clock=self.clock,
            metrics=self.metrics,
            settings=settings or PipelineSettings(depth=depth),
            tracker=tracker,
        )
        self.start_commands: list[codec.Command] = [codec.UpsertNodes([node(each) for each in nodes]), codec.UpsertJob(JOB)]

    @property
    def store(self) -> StateStore:
        return self.machine.store

    def run(self, main: Coroutine[Any, Any, Any]) -> Any:
        async def whole() -> Any:
            for command in self.start_commands:
                await self.command(command)
            self.applier.lead(self.log.term)
            try:
                return await main
            finally:
                self.applier.step_down()

        return run_virtual(whole(), self.clock)

    async def command(self, command: codec.Command) -> Any:
        """Commit a command and return its result."""
        committed = await self.log.propose(codec.encode_command(command, self.clock.now_ns()), term=self.log.term)
        return committed.result

    def plan(self, place: dict[str, list[dict[str, Any]]] | None = None, stop: dict[str, list[dict[str, Any]]] | None = None, **changes: Any) -> Plan:
        return Plan.from_api({"Job": JOB, "Priority": 50, "NodeAllocation": place or {}, "NodeUpdate": stop or {}, **changes})

    def send(
        self, place: dict[str, list[dict[str, Any]]] | None = None, stop: dict[str, list[dict[str, Any]]] | None = None, **changes: Any
    ) -> PendingPlan[Any]:
        return self.applier.enqueue(self.plan(place, stop, **changes))

    def figure(self, name: str, figure: str = "value") -> Any:
        return self.metrics.snapshot()[name][figure]


async def answers(*waiting: PendingPlan[Any]) -> list[Any]:
    """Return each plan's result or error."""

    async def one(pending: PendingPlan[Any]) -> Any:
        return await pending

    return await asyncio.gather(*(one(each) for each in waiting), return_exceptions=True)


def placed(result: Any) -> dict[str, list[str]]:
    """Return the accepted placements: node → ids."""
    assert isinstance(result, PlanResult), result
    return {node_id: [each.id for each in allocs] for node_id, allocs in result.node_allocation.items()}
