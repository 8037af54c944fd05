"""Without the compiled kernels: the reference works on request, and otherwise the error says what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import fastplan

# A finder that fails for every compiled module of ours, as if none had been built.
SCRIPT = """
import importlib.abc, sys

class NotBuilt(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.startswith("fastplan.") and name.rpartition(".")[2].startswith("_"):
            raise ImportError(f"{name} is not built")

sys.meta_path.insert(0, NotBuilt())
from fastplan.fit import FitChecker
from fastplan.structs import Allocation, Node

node = Node.from_api({"ID": "n", "Status": "ready", "NodeResources": {
    "Cpu": {"CpuShares": 1000, "TotalCpuCores": 2}, "Memory": {"MemoryMB": 100}, "Disk": {"DiskMB": 100}}})
ask = Allocation.from_api({"ID": "a", "AllocatedResources": {"Tasks": {"t": {"Cpu": {"CpuShares": 400}, "Memory": {"MemoryMB": 10}}}}})
print(FitChecker([node]).headroom(ask).tolist())
"""


def run(kernels: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FASTPLAN_KERNELS": kernels, "PYTHONPATH": str(Path(fastplan.__file__).resolve().parent.parent)}
    return subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_reference_needs_no_extension() -> None:
    done = run("reference")
    assert done.stdout == "[2]\n", done.stderr


def test_a_missing_extension_is_one_clear_error() -> None:
    done = run("compiled")
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: the compiled kernels of fastplan.fit are not usable")
    assert "make setup" in last
    assert "FASTPLAN_KERNELS=reference" in last
