"""The fuzz targets on a few random bytes each, and under atheris, which looks for bytes that reach new lines, where it is installed."""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys

import pytest

from tests.fuzz.targets import TARGETS
from tests.replication.test_directory import ENVIRONMENT

RUNS = int(os.environ.get("FASTPLAN_FUZZ_RUNS", "3000"))

# Run with the name of a target; what follows are arguments of libFuzzer. atheris ends the process by itself.
FUZZER = """
import sys
import atheris
with atheris.instrument_imports(include=["fastplan"]):
    from tests.fuzz.targets import TARGETS
atheris.Setup([sys.argv[0], *sys.argv[2:]], TARGETS[sys.argv[1]])
atheris.Fuzz()
"""


@pytest.mark.parametrize("target", TARGETS)
def test_random_bytes(target: str) -> None:
    source = random.Random(target)
    for _ in range(400):
        TARGETS[target](source.randbytes(source.randrange(2, 60)))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed; it has wheels for Linux on x86-64 only")
@pytest.mark.parametrize("target", TARGETS)
def test_bytes_that_atheris_finds(target: str) -> None:
    arguments = [f"-atheris_runs={RUNS}", "-max_len=64", "-len_control=0", "-seed=1", "-timeout=60"]
    found = subprocess.run([sys.executable, "-c", FUZZER, target, *arguments], env=ENVIRONMENT, capture_output=True, text=True, check=False, timeout=900)
    assert found.returncode == 0, found.stderr[-4000:]
    assert "Done" in found.stderr, found.stderr[-4000:]
