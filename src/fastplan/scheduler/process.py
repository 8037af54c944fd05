"""The way into the schedulers: one evaluation, one scheduler (schedulers 1.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fastplan.errors import FastplanError, SchedulerError
from fastplan.scheduler.generic import process_generic
from fastplan.scheduler.requests import Steps
from fastplan.scheduler.setting import Setting
from fastplan.scheduler.system import process_system
from fastplan.state.snapshot import StateReader
from fastplan.structs import Evaluation

SCHEDULER_VERSION: Final = 1
"""Workers of another version are not served (worker-and-broker 4)."""

_SCHEDULERS: Final[dict[str, Callable[[Evaluation, StateReader, Setting], Steps]]] = {
    "service": process_generic,
    "batch": process_generic,
    "system": process_system,
    "sysbatch": process_system,
}

JOB_TYPES: Final = tuple(_SCHEDULERS)
"""The job types that have a scheduler."""


def process(evaluation: Evaluation, state: StateReader, setting: Setting) -> Steps:
    """Handle one evaluation on a snapshot.

    Raises SchedulerError for an evaluation of unknown type, and for whatever goes wrong inside a scheduler; errors of performed requests leave it as they
    came in.
    """
    scheduler = _SCHEDULERS.get(evaluation.type)
    if scheduler is None:
        raise SchedulerError(f"unknown scheduler '{evaluation.type}'")
    try:
        yield from scheduler(evaluation, state, setting)
    except (FastplanError, GeneratorExit):
        raise
    except Exception as error:
        raise SchedulerError(f"failed to process eval: {error}") from error
