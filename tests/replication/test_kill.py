"""F5: kill -9 under load, for real. Nothing acknowledged is lost, nothing unasked appears, however often."""

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

from tests.replication.machines import RememberingMachine, replicator
from tests.replication.test_directory import ENVIRONMENT

# Run with a directory, a tag and a start number: 16 proposers write consecutive numbers; each acknowledged one is printed, unbuffered.
WRITER = """
import asyncio, itertools, os, sys
from pathlib import Path
from tests.replication.machines import RememberingMachine, replicator

async def main():
    machine = RememberingMachine()
    log = replicator(Path(sys.argv[1]), machine, snapshot_entries=2_000, keep_entries=100, wal_bytes=256 << 10)
    await log.start()
    term = log.status().term
    numbers = itertools.count(int(sys.argv[2]))

    async def propose():
        while True:
            number = next(numbers)
            committed = await log.propose(b"%d" % number, term=term, key=b"key-%d" % number)
            os.write(1, b"%d %d\\n" % (number, committed.index))

    await asyncio.gather(*(propose() for _ in range(16)))

asyncio.run(main())
"""


async def recovered(directory: Path) -> RememberingMachine:
    machine = RememberingMachine()
    log = replicator(directory, machine)
    await log.start()
    assert log.status().health == ()
    await log.stop()
    return machine


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_kill_nine_under_load_loses_nothing_acknowledged(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    directory = tmp_path / "log"
    acknowledged: dict[int, int] = {}
    start = 0
    for turn in range(rounds):
        output = tmp_path / "output"
        with output.open("wb") as file, subprocess.Popen([sys.executable, "-c", WRITER, directory, str(start)], stdout=file, env=ENVIRONMENT) as writer:
            # Every third time it may be killed while it recovers, else under load.
            under_load = turn % 3 != 1
            deadline = time.monotonic() + 30
            while under_load and output.stat().st_size == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(rng.uniform(0.01, 0.4) if under_load else rng.uniform(0.2, 0.9))
            os.kill(writer.pid, signal.SIGKILL)
            assert writer.wait(10) == -signal.SIGKILL
        # The last line may be cut; it was not seen by anybody then.
        for line in output.read_text().split("\n")[:-1]:
            number, index = map(int, line.split())
            acknowledged[number] = index
        assert not under_load or max(acknowledged) >= start, "nothing was acknowledged in this round"
        machine = asyncio.run(recovered(directory))
        stored = {int(entry): index for index, _, entry, _ in machine.log}
        assert len(stored) == len(machine.log), "an entry was stored twice"
        missing = {number: index for number, index in acknowledged.items() if stored.get(number) != index}
        assert missing == {}
        # Within a run the proposals are numbered in the order of the log, so what was stored is a prefix of what was asked for.
        assert sorted(stored) == [int(entry) for _, _, entry, _ in machine.log]
        run = [number for number in sorted(stored) if number >= start]
        assert run == list(range(start, start + len(run)))
        start = max(stored, default=-1) + 1
