"""Bad data directories: in use, foreign, read-only, not a directory (each a clear error, nothing half-written)."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from fastplan.errors import Corrupt, DirectoryInUse, InvalidInput, StorageFailed
from tests.replication.machines import RememberingMachine, replicator
from tests.shared_data import IMPORT_ROOT, PROJECT

# Run with a directory: starts a log there, says so, and waits.
HOLDER = """
import asyncio, sys
from pathlib import Path
from tests.replication.machines import RememberingMachine, replicator

async def main():
    log = replicator(Path(sys.argv[1]), RememberingMachine())
    await log.start()
    print("started", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await log.stop()

asyncio.run(main())
"""

# Run with a directory and a user id: opens a log there as that user and prints what it raised.
OPENER = """
import asyncio, concurrent.futures.thread, os, sys
from pathlib import Path
from fastplan.errors import FastplanError
from tests.replication.machines import RememberingMachine, replicator

if int(sys.argv[2]):
    os.setuid(int(sys.argv[2]))
try:
    asyncio.run(replicator(Path(sys.argv[1]), RememberingMachine()).start())
except FastplanError as problem:
    print(type(problem).__name__, problem)
"""

ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(PROJECT), str(IMPORT_ROOT)])}


async def start_and_stop(directory: Path) -> None:
    log = replicator(directory, RememberingMachine())
    try:
        await log.start()
    finally:
        await log.stop()


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLDER, tmp_path / "log"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT) as holder:
        assert holder.stdout is not None
        assert holder.stdin is not None
        assert holder.stdout.readline() == b"started\n"
        with pytest.raises(DirectoryInUse, match=f"is held by process {holder.pid}"):
            asyncio.run(start_and_stop(tmp_path / "log"))
        holder.stdin.close()
        assert holder.wait(10) == 0
    asyncio.run(start_and_stop(tmp_path / "log"))


def test_a_second_replicator_in_the_same_process_is_refused(tmp_path: Path) -> None:
    async def body() -> None:
        first = replicator(tmp_path / "log", RememberingMachine())
        await first.start()
        with pytest.raises(DirectoryInUse):
            await start_and_stop(tmp_path / "log")
        # The refused one has not taken the lock away.
        with pytest.raises(DirectoryInUse):
            await start_and_stop(tmp_path / "log")
        await first.propose(b"x", term=1)
        await first.stop()
        await start_and_stop(tmp_path / "log")

    asyncio.run(body())


def test_the_directory_is_private(tmp_path: Path) -> None:
    directory = tmp_path / "parent" / "log"
    asyncio.run(start_and_stop(directory))
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_directory_with_other_things_in_it_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "photo.jpg").write_bytes(b"holiday")
    with pytest.raises(Corrupt, match=r"is not a fastplan data directory: it holds photo\.jpg"):
        asyncio.run(start_and_stop(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InvalidInput, match="directory: expected a directory"):
            asyncio.run(start_and_stop(path))


@pytest.mark.parametrize("existing", [False, True])
def test_a_directory_that_may_not_be_written_is_refused(memory_path: Path, existing: bool) -> None:
    directory = memory_path / "log"
    directory.mkdir()
    if existing:
        asyncio.run(start_and_stop(directory))
    # Root may write anywhere, so the check is made by a user who may not.
    user = 65_534 if os.geteuid() == 0 else 0
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    memory_path.chmod(0o755)
    before = sorted(path.name for path in directory.iterdir())
    said = subprocess.run([sys.executable, "-c", OPENER, directory, str(user)], capture_output=True, env=ENVIRONMENT, check=True, timeout=30).stdout.decode()
    assert said.startswith(f"{StorageFailed.__name__} cannot use the data directory {directory}: Permission denied")
    assert sorted(path.name for path in directory.iterdir()) == before
    for path in (directory, *directory.rglob("*")):
        path.chmod(0o700)


def test_a_start_that_was_interrupted_before_anything_was_written_begins_anew(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    directory.mkdir()
    (directory / "lock").write_bytes(b"1\n")
    (directory / "snap").mkdir()
    (directory / "log.db.new").write_bytes(b"half")
    (directory / "log.db.new-journal").write_bytes(b"half")
    asyncio.run(start_and_stop(directory))
    assert not list(directory.glob("log.db.new*"))
