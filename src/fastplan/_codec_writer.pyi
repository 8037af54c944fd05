from collections.abc import Callable
from typing import Any

import numpy
from numpy.typing import NDArray

def encode_command(body: bytes, time_ns: int) -> bytes: ...
def encode_plan(
    columns: Any,
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
def plan_key(columns: Any, eval_id: str, token: str, snapshot_index: int) -> bytes: ...
