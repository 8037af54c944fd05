"""What happens to a cluster and its server: drawn from the seed, one action a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fastplan.testing.simulation.clients import reports
from fastplan.testing.simulation.cluster import SimulatedJob, simulated_node

if TYPE_CHECKING:
    from fastplan.testing.simulation.simulation import Simulation


class Actions:
    """Everything that users, operators, clients and the machine room do."""

    def __init__(self, simulation: Simulation) -> None:
        self._run = simulation
        self._source = simulation.source
        settings = simulation.settings
        self._jobs = [SimulatedJob(number, self._source, settings.nodes) for number in range(settings.jobs)]
        self._nodes = [simulated_node(number, self._source) for number in range(settings.nodes)]
        self._choices: list[tuple[int, Callable[[], None]]] = [
            (8, self._clients),
            (4, self._register_job),
        ]

    async def build(self) -> None:
        """Register the nodes."""
        for node in self._nodes:
            await self._run.server.register_node(node)

    async def act(self) -> None:
        """Do one thing."""
        (work,) = self._source.choices([work for _, work in self._choices], [weight for weight, _ in self._choices])
        work()

    async def settle(self) -> None:
        """Let everything come to rest."""
        await self._run.server.settled(600)

    def _clients(self) -> None:
        said = reports(self._run.server.snapshot(), self._source)
        if said:
            self._run.start(f"clients report {len(said)} allocations", self._run.server.update_allocs_from_client(said))

    def _register_job(self) -> None:
        job = self._source.choice(self._jobs)
        self._run.start(f"register_job {job.id}", self._run.server.register_job(job.next()))
