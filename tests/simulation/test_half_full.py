"""Sixteen workers at once on a cluster that is half full: they make progress, and few of their plans are refused."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass

import pytest

from fastplan.rules import Rules
from fastplan.server.config import ServerConfig
from fastplan.server.server import Server
from fastplan.testing import SimulatedLog, VirtualClock, run_virtual
from fastplan.testing.builders import group_api, ready_node, service_job
from fastplan.testing.invariants import over_committed
from fastplan.testing.simulation import SimulationSettings, simulate
from fastplan.testing.simulation.executor import Pace, SeededExecutor

NODES = 64
NODE_CPU_MHZ = 4000
CPU_MHZ = 250
JOBS = 48
COPIES = 8
STEP_S = 0.05


@dataclass(slots=True)
class Outcome:
    """How a load was handled: plans, those refused in part or whole, schedulers at work at once, virtual seconds."""

    plans: int
    refused: int
    most_running: int
    seconds: float


def handled(rules: Rules, gap_s: float) -> Outcome:
    """Fill half of a cluster, then have 16 workers place jobs that come every *gap_s* on average, 0 for all at once."""
    clock, source = VirtualClock(), random.Random(1)
    refused: list[bool] = []
    executor = SeededExecutor(random.Random(2), Pace(step_s=STEP_S), lambda reply: refused.append(bool(reply.result.rejected_nodes)))
    config = ServerConfig(workers=16, clock=clock, seed=3, executor="inline", rules=rules)

    async def main() -> tuple[int, list[str], float]:
        async with Server(config, new_log=SimulatedLog, executor=executor) as server:
            for number in range(NODES):
                await server.register_node(ready_node(f"n{number:02}", cpu_mhz=NODE_CPU_MHZ, memory_mib=65536))
            for number in range(NODES * NODE_CPU_MHZ // CPU_MHZ // 2 // 16):
                await server.register_job(service_job(f"base-{number}", group_api(count=16, cpu_mhz=CPU_MHZ)))
                await server.settled(60)
            refused.clear()
            executor.most_running = 0
            start_s = clock.monotonic_s()
            written = []
            for number in range(JOBS):
                job = service_job(f"job-{number}", group_api(count=COPIES, cpu_mhz=CPU_MHZ))
                written.append(asyncio.ensure_future(server.register_job(job)))
                if gap_s:
                    await asyncio.sleep(source.expovariate(1 / gap_s))
            await asyncio.gather(*written)
            await server.settled(60)
            state = server.snapshot()
            placed = sum(not alloc.is_terminal and alloc.job_id.startswith("job-") for alloc in state.allocs())
            return placed, over_committed(state), clock.monotonic_s() - start_s

    placed, found, seconds = run_virtual(main(), clock)
    assert found == []
    assert placed == JOBS * COPIES
    return Outcome(len(refused), sum(refused), executor.most_running, seconds)


def test_few_plans_are_refused_while_most_workers_are_busy() -> None:
    outcome = handled(Rules.STRICT, STEP_S / 2)
    assert outcome.most_running >= 8
    assert outcome.refused < 0.2 * outcome.plans, outcome


@pytest.mark.slow
def test_when_all_come_at_once_fewer_are_refused_than_under_nomads_rules() -> None:
    strict, nomad = handled(Rules.STRICT, 0), handled(Rules.NOMAD, 0)
    assert strict.most_running == nomad.most_running == 16
    assert strict.refused / strict.plans < nomad.refused / nomad.plans, (strict, nomad)
    # One after the other they would need two steps each.
    assert strict.seconds < JOBS * 2 * STEP_S / 3


@pytest.mark.slow
def test_few_plans_are_refused_in_the_simulation_with_sixteen_workers() -> None:
    reports = [simulate(seed, SimulationSettings(workers=16)) for seed in range(30)]
    assert sum(report.refused for report in reports) < 0.2 * sum(report.plans for report in reports)
    assert all(report.placed for report in reports)
