from collections.abc import Callable
from typing import Any, Final

import numpy
from numpy.typing import NDArray

from fastplan.fit._nodes import NodeTable

KIND_PLAN: Final[int]
KIND_COMMAND: Final[int]
VERSION: Final[int]

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
def decode(entry: bytes) -> tuple[int, bytes] | PlanEntry: ...

class PlanEntry:
    @property
    def time_ns(self) -> int: ...
    @property
    def eval_key(self) -> bytes | None: ...
    @property
    def verified_at(self) -> int: ...
    @property
    def job_part(self) -> bytes: ...
    @property
    def namespace(self) -> str: ...
    @property
    def job_id(self) -> str: ...
    @property
    def job_version(self) -> int: ...
    @property
    def groups(self) -> list[str]: ...
    @property
    def shapes(self) -> list[int | bytes]: ...
    @property
    def subjects(self) -> list[str | tuple[str, str, str]]: ...
    @property
    def notes(self) -> list[tuple[str, str, str]]: ...
    @property
    def answer(self) -> bytes | None: ...
    @property
    def cold(self) -> bytes | None: ...
    @property
    def node_count(self) -> int: ...
    @property
    def placement_count(self) -> int: ...
    @property
    def claim_count(self) -> int: ...
    @property
    def stop_count(self) -> int: ...
    @property
    def preemption_count(self) -> int: ...
    def nodes(self) -> tuple[NDArray[numpy.uint32], NDArray[numpy.uint32], NDArray[numpy.uint32]]: ...
    def stops(self) -> tuple[NDArray[numpy.uint8], NDArray[numpy.uint16]]: ...
    def preemptions(self) -> tuple[NDArray[numpy.uint8], NDArray[numpy.uint8]]: ...

def gather(
    plans: list[PlanEntry],
    shape_rows: list[NDArray[numpy.uint32]],
    group_rows: list[NDArray[numpy.uint32]],
    nodes: NodeTable,
    number_of: Callable[[Any], int],
) -> tuple[
    NDArray[numpy.uint32],
    NDArray[numpy.uint8],
    NDArray[numpy.uint32],
    NDArray[numpy.uint32],
    NDArray[numpy.uint32],
    NDArray[numpy.int32],
    NDArray[numpy.uint8],
    NDArray[numpy.uint32],
    NDArray[numpy.uint64],
    list[int],
    bool,
]: ...
