"""A package that is not ours is built against our headers, in a folder of its own, and counts with our kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fastplan

PACKAGE = Path(__file__).parent
HOME = Path(fastplan.__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built in place."""
    pytest.importorskip("Cython")
    folder = tmp_path_factory.mktemp("embed")
    shutil.copytree(PACKAGE / "fleetcount", folder / "fleetcount")
    shutil.copy(PACKAGE / "setup.py", folder)
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(HOME), "CFLAGS": "-O1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


def run(folder: Path, code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(HOME)])},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_stranger_checks_rows_of_its_own(built: Path) -> None:
    code = (
        "from fleetcount import verdicts\n"
        "print(verdicts(4000, 1000, [(4000, 1000, -1), (4001, 0, -1), (0, 1001, -1), (100, 1, 1), (100, 1, 2), (100, 1, 3), (100, 1, 7)], held_cores=(1, 2)))"
    )
    # fits, cpu, memory; cores 1 and 2 are held, 3 is free, 7 does not exist
    assert run(built, code) == "[0, 3, 4, 2, 2, 0, 2]"
