"""What happens to a cluster and its server: drawn from the seed, one action a step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from fastplan.errors import OutcomeUnknown
from fastplan.scheduler.config import default_scheduler_config
from fastplan.testing.simulation.cluster import PARAMETERIZED, SimulatedJob, parameterized_job, simulated_node

if TYPE_CHECKING:
    from fastplan.server.server import Server
    from fastplan.testing.simulation.simulation import Simulation

NAMESPACE = "default"
_OPEN_DEPLOYMENTS = ("running", "paused", "blocked", "unblocking", "initializing", "pending")


class Actions:
    """Everything that users, operators, clients and the machine room do."""

    def __init__(self, simulation: Simulation) -> None:
        self._run = simulation
        self._source = simulation.source
        settings = simulation.settings
        self._jobs = [SimulatedJob(number, self._source, settings.nodes) for number in range(settings.jobs)]
        self._nodes = settings.nodes
        self._statuses = ("ready", "ready", "down", "disconnected") if settings.disconnects else ("ready", "ready", "down")
        users = ((10, self._register_job), (4, self._scale), (2, self._deregister), (2, self._dispatch), (3, self._stop_alloc), (3, self._deployment))
        operators = ((2, self._eligibility), (2, self._drain), (1, self._deregister_node))
        machines = ((14, self._clients), (4, self._node_status), (3, self._register_node))
        trouble = ((2, self._lose_leadership), (1, self._crash), (1, self._fail_sync), (1, self._busy), (1, self._snapshot), (1, self._jump))
        choices: tuple[tuple[int, Callable[[], Awaitable[None] | None]], ...] = (*users, *operators, *machines, *trouble)
        self._works = [work for _, work in choices]
        self._weights = [weight for weight, _ in choices]

    @property
    def _server(self) -> Server:
        return self._run.server

    def _start(self, name: str, work: Awaitable[Any]) -> None:
        self._run.start(name, work)

    async def build(self) -> None:
        """Register the nodes and the parameterized job, and say who may evict others."""
        kinds = self._source.choice(((), ("System",), ("System",), ("System", "SysBatch", "Service", "Batch")))
        config = default_scheduler_config()
        config["PreemptionConfig"] = {f"{kind}SchedulerEnabled": True for kind in kinds}
        await self._server.set_scheduler_config(config)
        for number in range(self._nodes):
            await self._server.register_node(simulated_node(number, self._source))
        await self._server.register_job(parameterized_job())

    async def act(self) -> None:
        """Do one thing."""
        (work,) = self._source.choices(self._works, self._weights)
        waits = work()
        if waits is not None:
            await waits

    # --- users ------------------------------------------------------------------------------------------------------

    def _register_job(self) -> None:
        job = self._source.choice(self._jobs)
        self._start(f"register_job {job.id}", self._server.register_job(job.next()))

    def _scale(self) -> None:
        job = self._source.choice(self._jobs)
        count = self._source.randint(0, self._nodes if job.type in ("service", "batch") else 1)
        self._start(f"scale {job.id} to {count}", self._server.scale_job(NAMESPACE, job.id, "main", count))

    def _deregister(self) -> None:
        job = self._source.choice(self._jobs)
        purge = self._source.random() < 0.3
        self._start(f"deregister {job.id}{' and purge it' if purge else ''}", self._server.deregister_job(NAMESPACE, job.id, purge))

    def _dispatch(self) -> None:
        self._start("dispatch", self._server.dispatch_job(NAMESPACE, PARAMETERIZED))

    def _stop_alloc(self) -> None:
        live = [alloc.id for alloc in self._server.snapshot().allocs() if not alloc.is_terminal]
        if live:
            alloc_id = self._source.choice(live)
            self._start(f"stop_alloc {alloc_id}", self._server.stop_alloc(alloc_id))

    def _deployment(self) -> None:
        open_ids = [each.id for each in self._server.snapshot().deployments() if each.status in _OPEN_DEPLOYMENTS]
        if not open_ids:
            return
        deployment_id = self._source.choice(open_ids)
        kind = self._source.randrange(5)
        if kind < 3:
            self._start(f"promote {deployment_id}", self._server.promote_deployment(deployment_id))
        elif kind == 3:
            self._start(f"fail_deployment {deployment_id}", self._server.fail_deployment(deployment_id))
        else:
            paused = self._source.random() < 0.5
            self._start(f"pause_deployment {deployment_id} {paused}", self._server.pause_deployment(deployment_id, paused))

    # --- operators --------------------------------------------------------------------------------------------------

    def _node_id(self) -> str:
        return simulated_node(self._source.randrange(self._nodes), self._source).id

    def _eligibility(self) -> None:
        node_id, eligible = self._node_id(), self._source.random() < 0.6
        self._start(f"eligibility {node_id} {eligible}", self._server.update_node_eligibility(node_id, eligible))

    def _drain(self) -> None:
        node_id = self._node_id()
        drain = self._source.choice((None, None, {"Deadline": 0}, {"Deadline": -1}, {"Deadline": 0, "IgnoreSystemJobs": True}))
        self._start(f"drain {node_id} {drain}", self._server.update_node_drain(node_id, drain))

    def _deregister_node(self) -> None:
        node_id = self._node_id()
        self._start(f"deregister_node {node_id}", self._server.deregister_node(node_id))

    # --- nodes and their clients ------------------------------------------------------------------------------------

    def _clients(self) -> None:
        said = self._run.clients.reports(self._server.snapshot())
        if said:
            texts = ", ".join(f"{each.id[:8]} {each.client_status}" for each in said)
            self._start(f"clients report {texts}", self._server.update_allocs_from_client(said))

    def _node_status(self) -> None:
        node_id, status = self._node_id(), self._source.choice(self._statuses)
        self._start(f"node_status {node_id} {status}", self._server.update_node_status(node_id, status))

    def _register_node(self) -> None:
        node = simulated_node(self._source.randrange(self._nodes), self._source)
        self._start(f"register_node {node.id}", self._server.register_node(node))

    # --- the machine room -------------------------------------------------------------------------------------------

    def _lose_leadership(self) -> None:
        self._run.note("leadership is lost and regained")
        self._run.log.lose_leadership()

    async def _crash(self) -> None:
        self._run.note("the log crashes, and the server starts again")
        await self._run.restart()

    def _fail_sync(self) -> None:
        self._run.note("the next sync fails")
        self._run.log.fail_next_sync(OutcomeUnknown("the disk was slow"))

    async def _busy(self) -> None:
        self._run.note("the log is full for a while")
        log = self._run.log
        log.set_busy(True)
        await asyncio.sleep(self._source.expovariate(2))
        log.set_busy(False)

    def _snapshot(self) -> None:
        self._run.note("a snapshot is taken")
        self._run.storage.take_snapshot(self._server.machine)

    def _jump(self) -> None:
        seconds = self._source.choice((-20, -2, 2, 600))
        self._run.note(f"the wall clock jumps by {seconds} s")
        self._run.clock.jump_wall(seconds)
