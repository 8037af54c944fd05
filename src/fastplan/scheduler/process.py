"""The way into the schedulers: one evaluation, one scheduler (schedulers 1.1)."""

from __future__ import annotations

from typing import Final

from fastplan.errors import FastplanError, SchedulerError
from fastplan.scheduler.requests import Steps
from fastplan.scheduler.setting import Setting
from fastplan.state.snapshot import StateReader
from fastplan.structs import Evaluation

SCHEDULER_VERSION: Final = 1
"""Workers of another version are not served (worker-and-broker 4)."""

JOB_TYPES: Final = ("service", "batch", "system", "sysbatch")
"""The job types that have a scheduler."""


def process(evaluation: Evaluation, state: StateReader, setting: Setting) -> Steps:
    """Handle one evaluation on a snapshot.

    Raises SchedulerError for an evaluation of unknown type, and for whatever goes wrong inside a scheduler; errors of performed requests leave it as they
    came in.
    """
    if evaluation.type not in JOB_TYPES:
        raise SchedulerError(f"unknown scheduler '{evaluation.type}'")
    try:
        yield from _steps(evaluation, state, setting)
    except (FastplanError, GeneratorExit):
        raise
    except Exception as error:
        raise SchedulerError(f"failed to process eval: {error}") from error


def _steps(evaluation: Evaluation, state: StateReader, setting: Setting) -> Steps:
    if evaluation.type in ("system", "sysbatch"):
        from fastplan.scheduler.system import process_system

        return process_system(evaluation, state, setting)
    from fastplan.scheduler.generic import process_generic

    return process_generic(evaluation, state, setting)
