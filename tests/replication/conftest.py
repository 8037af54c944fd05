"""A place in memory for tests that open a log hundreds of times: its flushes cost nothing there."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where the system has a file system of some size there, else on the disk."""
    memory = Path("/dev/shm")
    if not memory.is_dir() or shutil.disk_usage(memory).free < 1 << 30:
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="fastplan-", dir=memory))
    try:
        yield path
    finally:
        shutil.rmtree(path)
