from collections.abc import Callable, Sequence

import numpy
from numpy.typing import NDArray

from fastplan.state._plan_view import PlanView

def encode_command(body: bytes, time_ns: int) -> bytes: ...
def encode_plan(
    plan: PlanView,
    groups: list[str],
    stop_notes: Sequence[tuple[str, str, str]],
    accepted: NDArray[numpy.uint8] | None,
    kept_preemptions: NDArray[numpy.uint8] | None,
    eval_key: bytes | None,
    namespace: str,
    job_id: str,
    job_version: int,
    time_ns: int,
    verified_at: int,
    shapes: list[int | bytes],
    answer: bytes | None,
    cold: bytes | None,
    text_of: Callable[[int], str | tuple[str, str, str]],
) -> bytes: ...
def numbered_key(eval_id: str, token: str, number: int) -> bytes: ...
def plan_key(plan: PlanView, eval_id: str, token: str, snapshot_index: int) -> bytes: ...
