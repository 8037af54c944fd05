"""The questions of `fastplan bench`: how fast is each part, beside a baseline of the same run?

A question is a module with `SIZES` (what to measure at `toy` and at `full` size) and `measure`. It first asserts that subject and baseline agree, then
measures both in the same process, in turn, and returns its figures and a few lines of which the last is the closing ratio (docs/guide/bench.md).
"""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from fastplan.benchmarks.measuring import Answer
from fastplan.errors import InvalidInput

__all__ = ["QUESTIONS", "Answer", "Question", "ask", "question"]

QUESTIONS = {
    "fit-batch": "fastplan.benchmarks.fit_batch",
    "fit-one": "fastplan.benchmarks.fit_one",
    "evaluate-plan": "fastplan.benchmarks.evaluate_plan",
    "applier": "fastplan.benchmarks.applier",
    "log": "fastplan.benchmarks.log",
    "state": "fastplan.benchmarks.state",
    "broker": "fastplan.benchmarks.broker",
    "placement": "fastplan.benchmarks.placement",
    "system": "fastplan.benchmarks.system",
    "simulation": "fastplan.benchmarks.simulation",
    "scaling": "fastplan.benchmarks.scaling",
}
"""Name → module, in the order in which they are asked."""


class Question(Protocol):
    """A module that answers a question."""

    SIZES: Mapping[str, Any]

    def measure(self, sizes: Any, directory: Path) -> Answer:
        """Return the answer at some sizes. Files are written to *directory*, on the file system that is measured."""
        ...


def question(name: str) -> Question:
    """Return the module of a question. Raises `InvalidInput` for a name that is none."""
    if name not in QUESTIONS:
        raise InvalidInput("question", name, f"one of {', '.join(QUESTIONS)}")
    return cast(Question, importlib.import_module(QUESTIONS[name]))


def ask(name: str, size: str = "full", directory: Path | None = None) -> Answer:
    """Measure and return the answer to one question.

    *size* is `full` or `toy`, whose figures mean nothing. Files go to a new folder in *directory*, by default where the system puts temporary files.
    Raises `InvalidInput` for an unknown name or size, and AssertionError when subject and baseline disagree.
    """
    module = question(name)
    if size not in module.SIZES:
        raise InvalidInput("size", size, f"one of {', '.join(module.SIZES)}")
    with tempfile.TemporaryDirectory(prefix="fastplan-bench-", dir=directory) as folder:
        return module.measure(module.SIZES[size], Path(folder))
