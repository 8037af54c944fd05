"""The end of a simulation: trouble is over, everything comes to rest, and then every job has what there is room for."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from fastplan.errors import StateError
from fastplan.fsm.deployments import ACTIVE_STATUSES, requires_promotion
from fastplan.scheduler.alloc_facts import TAINTED
from fastplan.scheduler.cluster_nodes import job_nodes
from fastplan.scheduler.evaluations import ROLLING_UPDATE
from fastplan.scheduler.process import process
from fastplan.scheduler.requests import SubmitPlan
from fastplan.scheduler.setting import Setting
from fastplan.server.operations.evaluations import is_template
from fastplan.server.server import Server
from fastplan.state import StateReader
from fastplan.structs import Allocation, Evaluation, Job
from fastplan.testing import invariants
from fastplan.testing.simulation.executor import Pace

if TYPE_CHECKING:
    from fastplan.testing.simulation.simulation import Simulation

ROUNDS: Final = 60
ROUND_S: Final = 5.0
QUIET_ROUNDS: Final = 3
"""So many rounds in which nothing has moved are rest: what was refused too often is looked at every ten seconds."""

ROLLING_QUIET_ROUNDS: Final = 8
"""The same while updates wait for their next step, which takes half a minute. They may wait for ever where there is no room."""


async def come_to_rest(simulation: Simulation) -> list[str]:
    """End all trouble, let clients, users and time do their part, and return what does not come to rest."""
    server, clients = simulation.server, simulation.clients
    simulation.log.recover()
    simulation.executor.pace = Pace(step_s=0.01)
    for node in server.snapshot().nodes():
        if simulation.source.random() < 0.85:
            await server.update_node_drain(node.id, None)
            await server.update_node_status(node.id, "ready")
    quiet, waiting, index = 0, list[Evaluation](), 0
    for _ in range(ROUNDS):
        before = _places(server)
        said = clients.reports(server.snapshot(), calm=True)
        if said:
            await server.update_allocs_from_client(said)
        await _finish_deployments(server)
        await asyncio.sleep(ROUND_S)
        await server.settled(60)
        waiting = [each for each in server.snapshot().evals() if each.status == "pending"]
        rolling = [each for each in waiting if each.triggered_by == ROLLING_UPDATE]
        quiet = 0 if _places(server) != before or len(rolling) < len(waiting) else quiet + 1
        # The next step of an update may have left something to the reapers just now.
        written, index = server.latest_index() > index, server.latest_index()
        if quiet >= (ROLLING_QUIET_ROUNDS if rolling else QUIET_ROUNDS) and not written:
            return []
    return [f"after {ROUNDS * ROUND_S:g} s something moves still, and {len(waiting)} evaluations wait"]


def _places(server: Server) -> set[tuple[str, str, str]]:
    return {(alloc.id, alloc.desired_status, alloc.client_status) for alloc in server.snapshot().allocs()}


async def _finish_deployments(server: Server) -> None:
    """Do what watchers and users would: go on with what is paused, end what is not healthy, promote what is."""
    for deployment in server.snapshot().deployments():
        if deployment.status not in ACTIVE_STATUSES:
            continue
        try:
            if any(group.unhealthy_allocs for group in deployment.task_groups.values()):
                await server.fail_deployment(deployment.id)
            elif deployment.status == "paused":
                await server.pause_deployment(deployment.id, False)
            elif requires_promotion(deployment):
                await server.promote_deployment(deployment.id)
        except StateError:
            # It has just ended, or its canaries are not healthy yet.
            continue


def at_rest(server: Server, overlooked: Collection[invariants.JobKey] = ()) -> list[str]:
    """Return what does not hold of a server at rest. *overlooked*: jobs that may lack something, because nobody was told to look at them."""
    state = server.snapshot()
    found = invariants.badly_held(server.broker, state)
    tracked = server.blocked.known_ids() | server.broker.known_ids()
    blocked: Counter[tuple[str, str]] = Counter()
    for evaluation in state.evals():
        if evaluation.status == "blocked":
            blocked[evaluation.namespace, evaluation.job_id] += 1
            if evaluation.id not in tracked:
                found.append(f"evaluation {evaluation.id} of {evaluation.job_id} is blocked and lost")
            found += _room_for(state, evaluation, server)
    for job in state.jobs():
        if not job.stop and not is_template(job) and not blocked[job.namespace, job.id] and (job.namespace, job.id) not in overlooked:
            found += _missing(state, job)
    return found


def _room_for(state: StateReader, evaluation: Evaluation, server: Server) -> list[str]:
    """Return whether there is room for an evaluation that is blocked: then it would not have to be."""
    setting = Setting(now_ns=server.config.time.now_ns, rules=server.config.rules, overlap=server.config.overlap, randomness=random.Random(0))
    for request in process(evaluation.copy(), state, setting):
        if isinstance(request, SubmitPlan):
            # What takes the place of another allocation of the job waits for the next step of an update, not for room.
            others = {node_id: allocs for node_id, allocs in request.plan.node_allocation.items() if not request.plan.node_update.get(node_id)}
            placed = [alloc.node_id for allocs in others.values() for alloc in allocs or () if state.alloc(alloc.id) is None]
            return [f"evaluation {evaluation.id} of {evaluation.job_id} is blocked, and there is room on {', '.join(placed)}"] if placed else []
    return []


def _is_live(alloc: Allocation, state: StateReader) -> bool:
    node = state.node(alloc.node_id)
    return alloc.desired_status == "run" and not alloc.is_client_terminal and node is not None and node.status == "ready"


def _missing(state: StateReader, job: Job) -> list[str]:
    """Return what a job lacks, or has too much of, for which nobody waits for room."""
    (group,) = job.task_groups
    allocs = state.allocs_by_group(job.namespace, job.id, group.name)
    live = [alloc for alloc in allocs if _is_live(alloc, state)]
    if job.type in ("system", "sysbatch"):
        if not group.count:
            return []
        # What was to migrate is stopped and not replaced in the same pass, whether or not the node takes work again by then (schedulers 5).
        left = [alloc for alloc in allocs if alloc.desired_description == TAINTED]
        had = {alloc.node_id for alloc in ([*live, *left] if job.type == "system" else allocs)}
        return [f"{job.id} has nothing on {node.id}" for node in job_nodes(state, job).ready if node.id not in had]
    if job.type == "batch":
        done = [alloc for alloc in allocs if alloc.client_status == "complete"]
        return [f"{job.id} has {len(live)} and {len(done)} done of {group.count}"] if len(live) + len(done) < group.count else []
    newest = max(state.deployments_by_job(job.namespace, job.id), key=lambda each: each.create_index, default=None)
    if newest is not None and newest.job_version == job.version and (newest.status == "failed" or requires_promotion(newest)):
        # It may not place all of its version.
        return []
    # Only a deployment watcher has what failed in a deployment replaced (schedulers 7.3).
    left = [alloc for alloc in allocs if alloc.desired_status == "run" and alloc.client_status == "failed" and alloc.deployment_id]
    if len(live) <= group.count <= len(live) + len(left):
        return []
    return [f"{job.id} has {len(live)} of {group.count}"]
