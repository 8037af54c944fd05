"""How well allocations are placed: how many nodes they take, how full those are, and what is left for large ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy

from fastplan.fit._kernels import AskNumbers
from fastplan.fit._scan import scores_of
from fastplan.fit.engine_compiled import RULE_PHYSICAL
from fastplan.fit.score import BEST_SCORE
from fastplan.state.snapshot import StateReader


@dataclass(frozen=True, slots=True)
class Quality:
    """`nodes_used`: nodes with anything on them. `mean_score`: how full these are, 0 to 1, by the bin-pack score. `largest_free_mhz`, `largest_free_mib`:
    the most that one node has left. `fragmentation`: the share of what is left of the CPU that lies on nodes which have something on them already.
    """

    nodes_used: int
    mean_score: float
    largest_free_mhz: int
    largest_free_mib: int
    fragmentation: float

    def to_json(self) -> dict[str, Any]:
        """Return the figures, rounded."""
        return {
            "nodes_used": self.nodes_used,
            "mean_score": round(self.mean_score, 4),
            "largest_free_mhz": self.largest_free_mhz,
            "largest_free_mib": self.largest_free_mib,
            "fragmentation": round(self.fragmentation, 4),
        }


def quality_of(state: StateReader) -> Quality:
    """Return how well the allocations of a state are placed."""
    table = state.nodes_view
    rows = [table.row(row) for row in range(table.row_count) if state.node_id(row) is not None]
    places = numpy.array([row for row in range(table.row_count) if state.node_id(row) is not None], numpy.int64)
    scores = numpy.empty(table.row_count)
    scores_of(table, AskNumbers(0, 0, 0, 0), RULE_PHYSICAL, False, scores)
    used = numpy.array([row["alloc_count"] > 0 for row in rows], numpy.bool_)
    free_mhz = numpy.array([row["cpu_mhz"] - row["used_cpu_mhz"] for row in rows], numpy.int64)
    free_mib = numpy.array([row["memory_mib"] - row["used_memory_mib"] for row in rows], numpy.int64)
    total_mhz = int(free_mhz.sum())
    return Quality(
        nodes_used=int(used.sum()),
        mean_score=float(scores[places[used]].mean()) / BEST_SCORE if used.any() else 0.0,
        largest_free_mhz=int(free_mhz.max(initial=0)),
        largest_free_mib=int(free_mib.max(initial=0)),
        fragmentation=int(free_mhz[used].sum()) / total_mhz if total_mhz > 0 else 0.0,
    )
