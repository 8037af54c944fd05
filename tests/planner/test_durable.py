"""Plans through the real local log: what was acknowledged is there after a restart, from the log and from a snapshot."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import pytest

from fastplan import codec
from fastplan.clock import SystemClock
from fastplan.fsm import StateMachine
from fastplan.planner.applier import Applier
from fastplan.planner.entry import EntryMaker
from fastplan.planner.view import OptimisticView
from fastplan.replication import LocalReplicator, LocalSettings
from fastplan.state.plan_builder import ColumnarPlan, PlanBuilder
from fastplan.state.resource_shapes import ResourceShape, shape_of
from fastplan.structs import AllocatedResources, Plan
from tests.planner.site import JOB, alloc, node, placed

NODES = 8


def shape() -> ResourceShape:
    return shape_of(AllocatedResources.from_api({"Tasks": {"t": {"Cpu": {"CpuShares": 10}, "Memory": {"MemoryMB": 1}}}, "Shared": {}}))[0]


class Server:
    """A state machine on a local log, leading."""

    def __init__(self, directory: Path) -> None:
        self.machine = StateMachine()
        self.log = LocalReplicator(LocalSettings(directory=directory, reserve_bytes=0), self.machine)
        numbers = itertools.count()
        self.applier = Applier(
            log=self.log,
            state=self.machine,
            new_view=lambda: OptimisticView(lambda: self.machine.store),
            entries=EntryMaker(lambda: self.machine.store, lambda: self.machine.applied, new_id=lambda: f"eval-{next(numbers)}"),
            clock=SystemClock(),
        )

    async def __aenter__(self) -> Server:
        await self.log.start()
        self.applier.lead(self.log.status().term)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.applier.step_down()
        await self.log.stop()

    async def command(self, command: codec.Command) -> Any:
        committed = await self.log.propose(codec.encode_command(command, 1), term=self.log.status().term)
        assert committed.result is None

    def plan(self, name: str, kind: ResourceShape) -> ColumnarPlan:
        """A plan in columns: one allocation on every node."""
        store = self.machine.store
        builder = PlanBuilder(store, store.job("default", "web"), eval_id="e1", eval_token=name, priority=50)
        for number in range(NODES):
            row = store.node_row(f"n{number}")
            assert row is not None
            builder.place(row, kind, "g", number, alloc_id=f"{name}-{number}")
        return builder.build()


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_acknowledged_plans_survive(tmp_path: Path, with_snapshot: bool) -> None:
    kind = shape()

    async def first() -> tuple[Any, int]:
        async with Server(tmp_path / "log") as server:
            await server.command(codec.UpsertNodes([node(f"n{number}") for number in range(NODES)]))
            await server.command(codec.UpsertJob(JOB))
            await server.command(codec.UpsertEvals([{"ID": "e1"}]))
            for turn in range(3):
                results = await asyncio.gather(*(server.applier.submit(server.plan(f"p{turn}-{number}", kind)) for number in range(20)))
                assert all(result.full_commit(result.plan)[0] for result in results)
                if turn == 1 and with_snapshot:
                    await server.log.snapshot()
            # The first plan brought the shape; the later ones name its row.
            assert server.machine.store.shapes.find(kind) == 0
            late = await server.applier.submit(Plan.from_api({"Job": JOB, "NodeAllocation": {"n0": [alloc("late", 10**6)], "n1": [alloc("fits", 10)]}}))
            assert placed(late) == {"n1": ["fits"]}
            assert server.log.status().syncs < 40
            return server.machine.store.to_dump(), server.machine.applied

    async def second(dump: Any, applied: int) -> None:
        async with Server(tmp_path / "log") as server:
            assert server.machine.store.to_dump() == dump
            assert server.machine.applied == applied
            # A plan that is sent again is known after the restart.
            again = await server.applier.submit(server.plan("p2-3", kind))
            assert again.alloc_index
            assert again.alloc_index < applied
            assert server.machine.store.alloc_count() == 3 * 20 * NODES + 1
            fresh = await server.applier.submit(server.plan("new", kind))
            assert fresh.alloc_index > applied

    asyncio.run(second(*asyncio.run(first())))
