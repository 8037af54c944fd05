"""What a scheduler reports about one placement (schedulers 10)."""

from __future__ import annotations

from msgspec import field

from fastplan.structs.record import Record
from fastplan.structs.resources import Resources


class NodeScore(Record):
    """The scores of one node, by name, and the normalised one."""

    node_id: str = ""
    scores: dict[str, float] = field(default_factory=dict)
    norm_score: float = 0.0


class AllocMetric(Record):
    """How many nodes were looked at and why they were refused; `allocation_time` in nanoseconds."""

    nodes_evaluated: int = 0
    nodes_filtered: int = 0
    nodes_in_pool: int = 0
    node_pool: str = ""
    nodes_available: dict[str, int] = field(default_factory=dict)
    class_filtered: dict[str, int] = field(default_factory=dict)
    constraint_filtered: dict[str, int] = field(default_factory=dict)
    nodes_exhausted: int = 0
    class_exhausted: dict[str, int] = field(default_factory=dict)
    dimension_exhausted: dict[str, int] = field(default_factory=dict)
    quota_exhausted: list[str] = field(default_factory=list)
    resources_exhausted: dict[str, Resources | None] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    score_meta_data: list[NodeScore | None] = field(default_factory=list)
    allocation_time: int = 0
    coalesced_failures: int = 0
