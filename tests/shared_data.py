"""Where recorded answers and traces lie: `../shared` beside the project, or the folder that FASTPLAN_SHARED names."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import fastplan

PROJECT = Path(__file__).resolve().parent.parent

IMPORT_ROOT = Path(fastplan.__file__).resolve().parent.parent
"""What a child process needs on PYTHONPATH to import the fastplan under test: `src`, or where the wheel is installed."""


def shared_root() -> Path:
    """Return the folder with shared data, whether it exists or not."""
    override = os.environ.get("FASTPLAN_SHARED")
    return Path(override) if override else PROJECT.parent / "shared"


def shared_path(*parts: str) -> Path:
    """Return the path of a shared file or folder, e.g. `shared_path("oracles", "fit.jsonl.gz")`; skip the test where it is missing.

    May be called at the top of a test module, which is then skipped as a whole.
    """
    path = shared_root().joinpath(*parts)
    if not path.exists():
        pytest.skip(f"no shared data {'/'.join(parts)}: it lies in ../shared beside the project, or where FASTPLAN_SHARED says", allow_module_level=True)
    return path
