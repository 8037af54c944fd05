"""Benchmarks under pytest-benchmark: toy sizes unless FASTPLAN_BENCH_SIZE says `full`. The suite runs them once each, without a clock.

To measure: `FASTPLAN_BENCH_SIZE=full python -m pytest bench --benchmark-enable -s`.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastplan.benchmarks import Answer, question


@pytest.fixture(scope="session")
def sizes() -> Callable[[str], Any]:
    """Return the sizes of a question by its name."""
    size = os.environ.get("FASTPLAN_BENCH_SIZE", "toy")
    return lambda name: question(name).SIZES[size]


@pytest.fixture
def closing(sizes: Callable[[str], Any], tmp_path: Path) -> Callable[[str, set[str]], Answer]:
    """Answer a question: print its closing ratio and check that the promised figures are there and are numbers. How large they are is no test."""

    def answer(name: str, promised: set[str]) -> Answer:
        found = question(name).measure(sizes(name), tmp_path)
        print(f"\n{name}: {found.lines[-1]}")
        assert promised <= set(found.figures)
        assert all(math.isfinite(value) for value in found.figures.values())
        return found

    return answer
