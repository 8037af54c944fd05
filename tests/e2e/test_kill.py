"""kill -9 of the whole path under load, for real: queue, verification, log, state machine. Acknowledged plans survive, and no node is over-committed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastplan.errors import Reason
from fastplan.fit.reference import check
from fastplan.fsm import StateMachine
from fastplan.structs import canonical_alloc, canonical_node
from tests.planner.test_durable import Server
from tests.planner.test_simulation import cpu_mhz
from tests.replication.test_directory import ENVIRONMENT

# Run with a directory and the name of the run. Eight submitters place, on stale snapshots, what does not fit for long, and stop a little of it.
# "+" comes before a plan is queued; what was answered is printed, unbuffered, only after the answer, so a plan is in flight wherever "+" leads.
SUBMITTERS = 8
LEADER = """
import asyncio, os, random, sys
from pathlib import Path
from fastplan import codec
from fastplan.structs import Plan
from tests.planner.site import JOB, alloc, node, placed
from tests.planner.test_durable import Server

async def main():
    run = sys.argv[2]
    async with Server(Path(sys.argv[1])) as server:
        if not server.machine.applied:
            await server.command(codec.UpsertNodes([node(f"n{number}", 20_000) for number in range(12)]))
            await server.command(codec.UpsertJob(JOB))

        async def submit(name):
            source = random.Random(f"{run}-{name}")
            snapshot = server.machine.store.snapshot()
            for step in range(10_000_000):
                if step % 4 == 0:
                    snapshot = server.machine.store.snapshot()
                place, stop = {}, {}
                for node_id in source.sample(snapshot.node_ids(), 3):
                    place[node_id] = [alloc(f"{run}-{name}-{step}-{node_id}", source.choice((300, 700)))]
                    live = snapshot.allocs_by_node(node_id, terminal=False)
                    if live and source.random() < 0.6:
                        stop[node_id] = [{"ID": source.choice(live).id, "ClientStatus": "lost"}]
                plan = Plan.from_api({"Job": JOB, "Priority": 50, "NodeAllocation": place, "NodeUpdate": stop})
                os.write(1, b"+\\n")
                result = await server.applier.submit(plan)
                ids = " ".join(each for ids in placed(result).values() for each in ids)
                os.write(1, f"- {result.alloc_index} {ids}\\n".encode())

        await asyncio.gather(*(submit(number) for number in range(8)))

asyncio.run(main())
"""


async def reopened(directory: Path) -> StateMachine:
    """Return the state that the directory gives back."""
    async with Server(directory) as server:
        assert server.log.status().health == ()
        return server.machine


def assert_nobody_is_over_committed(machine: StateMachine) -> None:
    for node in machine.store.nodes():
        live = [canonical_alloc(each) for each in machine.store.allocs_by_node(node.id, terminal=False)]
        assert check(canonical_node(node), live, strict=True).code is Reason.FITS, node.id
        used = machine.store.node_used(node.id, physical=False)
        assert used is not None
        assert used.cpu_mhz == sum(cpu_mhz(each) for each in live)


@pytest.mark.parametrize("rounds", [5, pytest.param(int(os.environ.get("FASTPLAN_KILL_ROUNDS", "20")), marks=pytest.mark.slow, id="many")])
def test_kill_nine_of_the_whole_path(tmp_path: Path, rounds: int) -> None:
    source = random.Random(rounds)
    directory = tmp_path / "log"
    acknowledged: dict[str, int] = {}
    refused = last_index = 0
    for turn in range(rounds):
        output = tmp_path / "output"
        with output.open("wb") as file, subprocess.Popen([sys.executable, "-c", LEADER, directory, f"r{turn}"], stdout=file, env=ENVIRONMENT) as leader:
            deadline = time.monotonic() + 60
            while b"- " not in output.read_bytes() and time.monotonic() < deadline:
                assert leader.poll() is None, "the leader ended by itself"
                time.sleep(0.01)
            time.sleep(source.uniform(0.0, 0.3))
            os.kill(leader.pid, signal.SIGKILL)
            assert leader.wait(30) == -signal.SIGKILL
        # The last line may be cut; nobody saw it then.
        lines = output.read_text().split("\n")[:-1]
        answers = [line.split() for line in lines if line.startswith("-")]
        sent = lines.count("+")
        assert answers, "nothing was acknowledged in this round"
        assert 1 <= sent - len(answers) <= SUBMITTERS, "no plan was in flight"
        for _, index, *alloc_ids in answers:
            acknowledged.update(dict.fromkeys(alloc_ids, int(index)))
            refused += len(alloc_ids) < 3
        machine = asyncio.run(reopened(directory))
        stored = {each.id: each.create_index for each in machine.store.allocs()}
        missing = {alloc_id: index for alloc_id, index in acknowledged.items() if stored.get(alloc_id) != index}
        assert missing == {}
        # What was stored and not acknowledged was in flight when the process died.
        assert sum(alloc_id.startswith(f"r{turn}-") and alloc_id not in acknowledged for alloc_id in stored) <= 3 * SUBMITTERS
        assert machine.applied > last_index
        last_index = machine.applied
        assert_nobody_is_over_committed(machine)
    assert refused > 0, "no plan ever conflicted"
