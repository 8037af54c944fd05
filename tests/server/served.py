"""A server with everything that belongs to it, and what a story about it needs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from fastplan import codec
from fastplan.server import Server, ServerConfig
from fastplan.structs import Allocation, Deployment, Evaluation, Node
from fastplan.testing import SimulatedLog, VirtualClock, run_virtual
from fastplan.testing.builders import ready_node

SETTLE_S = 20.0


def node_id(number: int) -> str:
    """Return the id of a node."""
    return f"{number:08x}-0000-4000-8000-000000000000"


class Served:
    """A running server. `log` and `clock` are None on the log of this machine."""

    def __init__(self, server: Server, clock: VirtualClock | None, log: SimulatedLog | None) -> None:
        self.server = server
        self.clock = clock
        self.log = log

    async def nodes(self, *numbers: int, **changes: Any) -> list[Node]:
        """Register nodes of 4000 MHz."""
        made = [ready_node(node_id(number), **changes) for number in numbers]
        for node in made:
            await self.server.register_node(node)
        return made

    async def settle(self) -> None:
        """Wait until there is nothing to do, and look at the books."""
        await self.server.settled(SETTLE_S)
        assert self.server.broker.contradictions() == []
        assert self.server.blocked.contradictions() == []

    def allocs(self, job_id: str = "web") -> list[Allocation]:
        """Return the allocations of a job, oldest first."""
        return sorted((each for each in self.server.snapshot().allocs() if each.job_id == job_id), key=lambda each: (each.create_index, each.name, each.id))

    def wanted(self, job_id: str = "web") -> list[Allocation]:
        """Return the allocations of a job that are to run and that no client has ended."""
        return [each for each in self.allocs(job_id) if each.desired_status == "run" and not each.is_client_terminal]

    def evals(self, job_id: str = "web", **values: str) -> list[Evaluation]:
        """Return the evaluations of a job with such values, oldest first."""
        found = [each for each in self.server.snapshot().evals() if each.job_id == job_id]
        found = [each for each in found if all(getattr(each, name) == value for name, value in values.items())]
        return sorted(found, key=lambda each: (each.create_index, each.id))

    async def client_says(self, *allocs: Allocation, status: str, **fields: Any) -> None:
        """Have clients report allocations."""
        said = [Allocation.from_api({"ID": each.id, "ClientStatus": status, **fields}) for each in allocs]
        await self.server.update_allocs_from_client(said)

    async def become_healthy(self, job_id: str = "web") -> None:
        """Have clients run everything of a job that they are to run, and find it healthy, until its deployment moves no more."""
        while True:
            waiting = [each for each in self.wanted(job_id) if each.deployment_status is None or each.deployment_status.healthy is None]
            if not waiting:
                return
            await self.client_says(*waiting, status="running", DeploymentStatus={"Healthy": True})
            await self.settle()

    def deployment(self, job_id: str = "web") -> Deployment:
        """Return the newest deployment of a job."""
        return max((each for each in self.server.snapshot().deployments() if each.job_id == job_id), key=lambda each: each.create_index)

    async def write(self, *evaluations: Evaluation) -> None:
        """Write evaluations as a scheduler or a tool would."""
        await self.server._writer.write(codec.UpsertEvals([each.to_api() for each in evaluations]))


Story = Callable[[Served], Awaitable[None]]


def tell(story: Story, *, seen: list[Served] | None = None, **settings: Any) -> None:
    """Tell a story to a server under virtual time, on a log in memory."""
    clock = VirtualClock()
    logs: list[SimulatedLog] = []

    def new_log(machine: Any) -> SimulatedLog:
        logs.append(SimulatedLog(machine))
        return logs[-1]

    async def told() -> None:
        config = ServerConfig(**{"workers": 2, "clock": clock, "seed": 1, "executor": "inline"} | settings)
        async with Server(config, new_log=new_log) as server:
            served = Served(server, clock, logs[-1])
            if seen is not None:
                seen.append(served)
            await story(served)

    run_virtual(told(), clock)


def tell_embedded(story: Story, data_dir: Any = None, **settings: Any) -> None:
    """Tell a story to a server as users have it: threads, the time of the machine, and a log on its disk."""

    async def told() -> None:
        async with Server(ServerConfig(**{"data_dir": data_dir, "low_water_bytes": 0, "reserve_bytes": 0} | settings)) as server:
            await story(Served(server, None, None))

    asyncio.run(told())
