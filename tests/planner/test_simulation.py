"""The whole plan path from a seed: conflicting plans, stale workers, a slow, full and failing log, leadership that comes and goes.

Checked for every seed: no node holds more than it has at any index, no acknowledged placement is missing, every plan is answered once,
never more than *depth* batches are unfinished, nothing stays in flight, replaying the log gives the same state, and the same seed gives
the same log.
"""

from __future__ import annotations

import asyncio
import logging
import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from fastplan import codec
from fastplan.errors import FastplanError, OutcomeUnknown
from fastplan.fsm import StateMachine
from fastplan.planner import PlanResult, Rules
from fastplan.planner.pipeline import PipelineSettings
from fastplan.planner.tracker import TrackerSettings
from fastplan.state import StateStore
from fastplan.structs import Allocation
from tests.planner.site import JOB, Site, alloc, node, placed

NODES = tuple(f"n{number}" for number in range(5))
CPU_MHZ = 1000
LOW = JOB | {"ID": "low", "Priority": 10}


@dataclass
class Run:
    """What happened in one simulation."""

    site: Site
    source: random.Random
    depth: int
    acknowledged: list[tuple[int, list[str]]] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    answered: int = 0
    most_in_flight: int = 0

    def count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1


async def worker(run: Run, name: str, rounds: int) -> None:
    """Makes plans on a snapshot that it renews now and then."""
    source, site = run.source, run.site
    snapshot = site.store.snapshot()
    for step in range(rounds):
        await asyncio.sleep(source.expovariate(200))
        if source.random() < 0.4:
            snapshot = site.store.snapshot()
        place: dict[str, list[Any]] = {}
        stop: dict[str, list[Any]] = {}
        preempt: dict[str, list[Any]] = {}
        job = source.choice((JOB, LOW))
        for node_id in source.sample(NODES, source.randint(1, 3)):
            new = [f"{name}-{step}-{node_id}-{number}" for number in range(source.choice((0, 1, 1, 2)))]
            place[node_id] = [alloc(each, source.choice((100, 200, 500)), JobID=job["ID"]) for each in new]
            live = [each.id for each in snapshot.allocs_by_node(node_id, terminal=False)]
            source.shuffle(live)
            if live and source.random() < 0.6:
                stop[node_id] = [{"ID": live.pop(), "ClientStatus": source.choice(("lost", "lost", ""))}]
            if live and new and source.random() < 0.2:
                preempt[node_id] = [{"ID": live.pop(), "PreemptedByAllocation": new[0]}]
            if live and source.random() < 0.2:
                update = next(each for each in snapshot.allocs_by_node(node_id) if each.id == live[-1])
                place[node_id].append(alloc(update.id, source.choice((100, 300)), JobID=update.job_id))
        plan = site.plan(
            place,
            stop,
            Job=job,
            NodePreemptions=preempt,
            AllAtOnce=source.random() < 0.1,
            EvalID=source.choice(("", "e1", "e2")),
            EvalToken=f"{name}-{step}",
            Priority=source.choice((10, 50, 50, 90)),
            SnapshotIndex=snapshot.latest_index() if source.random() < 0.9 else site.store.latest_index() + source.choice((1, 2, 10_000)),
        )
        while True:
            run.sent += 1
            try:
                result = await site.applier.submit(plan)
            except FastplanError as error:
                run.answered += 1
                run.count(type(error).__name__)
                if isinstance(error, OutcomeUnknown):
                    # The same plan again: it must not be applied twice.
                    await asyncio.sleep(0.01)
                    continue
                snapshot = site.store.snapshot()
                break
            run.answered += 1
            note(run, result)
            if result.refresh_index and source.random() < 0.8:
                await site.store.index_reached(result.refresh_index, 5)
                snapshot = site.store.snapshot()
            break


def note(run: Run, result: PlanResult) -> None:
    run.count("refused" if result.rejected_nodes else "full")
    if result.alloc_index:
        run.acknowledged.append((result.alloc_index, [each for ids in placed(result).values() for each in ids]))


async def trouble(run: Run) -> None:
    """Everything that can happen beside plans."""
    source, site = run.source, run.site
    while True:
        await asyncio.sleep(source.expovariate(60))
        kind = source.randrange(12)
        try:
            if kind < 3:
                live = [each.id for each in site.store.allocs() if not each.is_client_terminal]
                updates = [codec.AllocClientUpdate(each, source.choice(("running", "complete", "failed"))) for each in live[:3]]
                await site.command(codec.UpdateAllocsFromClient(updates))
            elif kind < 5:
                await site.command(codec.UpdateNodeStatus(source.choice(NODES), source.choice(("ready", "ready", "down"))))
            elif kind == 5:
                await site.command(codec.UpdateNodeEligibility(source.choice(NODES), source.choice(("eligible", "eligible", "ineligible"))))
            elif kind == 6:
                # Plans on their way may name it: they are refused, and so is what was verified on top of them.
                await site.command(codec.DeleteEvals(["e2"]))
                await site.command(codec.UpsertEvals([{"ID": "e2"}]))
            elif kind == 7:
                await site.command(codec.UpsertJob(LOW | {"Stop": source.random() < 0.3}))
            elif kind == 8:
                site.log.set_busy(True)
                await asyncio.sleep(source.expovariate(100))
                site.log.set_busy(False)
            elif kind == 9 and site.log.pending:
                site.log.fail_next_sync(OutcomeUnknown("the disk was slow"))
            elif kind >= 10:
                site.log.lose_leadership()
                site.applier.step_down()
                await asyncio.sleep(source.choice((0, 0, 0.02)))
                site.applier.lead(site.log.term)
        except FastplanError:
            run.count("command failed")


def simulate(seed: int) -> Run:
    source = random.Random(seed)
    depth = source.choice((1, 2, 2, 4))
    site = Site(
        seed=seed,
        delay_s=lambda: source.expovariate(100),
        nodes=(),
        settings=PipelineSettings(depth=depth, batch_plans=source.choice((2, 8, 1024)), batch_bytes=source.choice((2000, 1 << 20)), wait_for_index_s=0.05),
        tracker=TrackerSettings(node_threshold=6, node_window_s=0.5),
        rules=Rules.STRICT,
    )
    site.start_commands = [codec.UpsertNodes([node(each, CPU_MHZ) for each in NODES]), codec.UpsertJob(JOB), codec.UpsertJob(LOW)]
    site.start_commands.append(codec.UpsertEvals([{"ID": "e1"}, {"ID": "e2"}]))
    run = Run(site, source, depth)
    propose = site.log.propose_batch

    def watched(entries: Any, **rest: Any) -> Any:
        pipeline = site.applier.pipeline
        if pipeline is not None:
            run.most_in_flight = max(run.most_in_flight, len(pipeline.in_flight))
        return propose(entries, **rest)

    async def main() -> None:
        site.log.propose_batch = watched  # type: ignore[method-assign]
        chaos = asyncio.create_task(trouble(run))
        await asyncio.gather(*(worker(run, f"w{number}", 8) for number in range(5)))
        chaos.cancel()
        await asyncio.gather(chaos, return_exceptions=True)
        site.log.set_busy(False)
        if site.applier.pipeline is None:
            site.applier.lead(site.log.term)
        await site.applier.drained()
        pipeline = site.applier.pipeline
        assert pipeline is not None
        assert pipeline.unfinished() == 0
        assert pipeline._view.in_flight() == 0  # type: ignore[attr-defined]

    site.run(main())
    return run


def cpu_mhz(stored: Allocation) -> int:
    assert stored.allocated_resources is not None
    return sum(task.cpu.cpu_shares for task in stored.allocated_resources.tasks.values() if task is not None)


def assert_nobody_is_over_committed(store: StateStore) -> None:
    for node_id in NODES:
        live = store.allocs_by_node(node_id, terminal=False)
        wanted = sum(cpu_mhz(each) for each in live)
        used = store.node_used(node_id, physical=False)
        assert used is not None
        assert used.cpu_mhz == wanted
        assert wanted <= CPU_MHZ, (node_id, store.latest_index())


def replay(run: Run) -> StateMachine:
    """Apply the log again, entry by entry, looking at every index."""
    machine = StateMachine()
    due: dict[int, list[list[str]]] = {}
    for index, ids in run.acknowledged:
        due.setdefault(index, []).append(ids)
    stopped = False
    for item in run.site.log.committed:
        machine.apply([item])
        assert_nobody_is_over_committed(machine.store)
        low = machine.store.job("default", "low")
        stopped = stopped or (low is not None and low.stop)
        for ids in due.pop(item[0], ()):
            for alloc_id in ids:
                stored = machine.store.alloc(alloc_id)
                # A plan of a stopped job is acknowledged without its new allocations (plan-apply 6.10 step 7).
                assert stored is not None or stopped, (item[0], alloc_id)
    assert not due
    return machine


@pytest.mark.parametrize("seed", range(60))
def test_seeded_simulation(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    run = simulate(seed)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert run.sent == run.answered
    assert run.most_in_flight < max(run.depth, 1) + 1
    machine = replay(run)
    assert machine.store.to_dump() == run.site.store.to_dump()
    assert run.outcomes.get("full", 0) > 5


def test_the_same_seed_gives_the_same_log() -> None:
    for seed in (3, 17, 40):
        first, second = simulate(seed), simulate(seed)
        assert first.site.log.committed == second.site.log.committed
        assert first.outcomes == second.outcomes


def test_the_simulation_reaches_every_kind_of_outcome() -> None:
    outcomes: dict[str, int] = {}
    again = ineligible = 0
    for seed in range(100, 110):
        run = simulate(seed)
        for outcome, number in run.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + number
        again += run.site.figure("fastplan.plan.verified_again")
        ineligible += sum(b"multiple plan rejections" in repr(each.to_api()).encode() for each in run.site.store.nodes())
    assert {"full", "refused", "OutcomeUnknown", "QueueDisabled", "SnapshotTimeout", "PlanError", "command failed"} <= set(outcomes)
    assert again > 20
    assert ineligible > 0
