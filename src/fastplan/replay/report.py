"""What a replay reports: figures while it runs, one table or one JSON object at the end."""

from __future__ import annotations

import resource
import sys
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.progress import Task as ProgressTask
from rich.text import Text

from fastplan.planner.result import PlanResult
from fastplan.replay.quality import Quality
from fastplan.state.plans import AnyPlan

_KIB: Final = 1024

TIMED_FIGURES: Final = frozenset(
    {
        "wall_s",
        "nodes_s",
        "check_s",
        "plans_per_s",
        "placements_per_s",
        "commit_p50_ms",
        "commit_p99_ms",
        "peak_rss_bytes",
        "syncs",
        "log_bytes",
    }
)
"""Keys of the JSON object that depend on the machine; with one worker all others depend on the workload and the seed alone."""


@dataclass(slots=True)
class Figures:
    """Figures of one replay. Counts are allocations unless said otherwise; times in seconds, sizes in bytes."""

    unit: str
    nodes: int
    total: int
    """How many the whole workload asks for."""
    arrived: int = 0
    placed: int = 0
    placed_before: int = 0
    """Those of `placed` that a resumed replay found in the state."""
    ended: int = 0
    waiting: int = 0
    never_fitting: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    """What those that never fit lack on most nodes: dimension → how many."""
    plans: int = 0
    refused_plans: int = 0
    over_committed_nodes: int = 0
    restart_differences: list[str] | None = None
    """In what the state after a restart differs; None before anybody looked."""
    commit_s: array[float] = field(default_factory=lambda: array("d"))
    """From the submission of each plan to its answer."""
    entries: int = 0
    syncs: int = 0
    log_bytes: int = 0
    wall_s: float = 0.0
    nodes_s: float = 0.0
    """Of `wall_s`: until the nodes were registered."""
    check_s: float = 0.0
    column_bytes: int = 0
    """What the columns and indexes of allocations take at the end."""
    record_bytes: int = 0
    """What the records of jobs and evaluations take at the end."""
    allocs: int = 0
    """Allocations in the state at the end, ended ones included."""
    peak_rss_bytes: int = 0
    resumed: bool = False
    stopped: bool = False
    quality: Quality | None = None
    """How what ran was placed when more ran than ever."""

    def note_plan(self, plan: AnyPlan, result: PlanResult, took_s: float) -> None:
        """Count a plan that was answered, and how many seconds that took."""
        self.commit_s.append(took_s)
        self.plans += 1
        self.refused_plans += bool(result.partial)

    @property
    def restart_equal(self) -> bool:
        """Whether the state after a restart was found equal to the state before."""
        return self.restart_differences == []

    def per_s(self, count: int) -> float:
        """Return a count per second of the run, from when the nodes were there."""
        took_s = self.wall_s - self.nodes_s
        return count / took_s if took_s > 0 else 0.0

    def commit_ms(self, percent: float) -> float:
        """Return a percentile of the times from submission to answer, in milliseconds."""
        return float(numpy.percentile(numpy.frombuffer(self.commit_s), percent)) * 1e3 if self.commit_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the figures as one JSON object; its keys are explained in docs/guide/replay.md."""
        return {
            "nodes": self.nodes,
            self.unit: self.total,
            "arrived": self.arrived,
            "placed": self.placed,
            "ended": self.ended,
            "waiting": self.waiting,
            "never_fitting": self.never_fitting,
            "reasons": dict(sorted(self.reasons.items())),
            "plans": self.plans,
            "refused_plans": self.refused_plans,
            "over_committed_nodes": self.over_committed_nodes,
            "restart_equal": self.restart_equal,
            "restart_differences": self.restart_differences or [],
            "entries": self.entries,
            "syncs": self.syncs,
            "log_bytes": self.log_bytes,
            "resumed": self.resumed,
            "stopped": self.stopped,
            "wall_s": round(self.wall_s, 3),
            "nodes_s": round(self.nodes_s, 3),
            "check_s": round(self.check_s, 3),
            "plans_per_s": round(self.per_s(self.plans), 1),
            "placements_per_s": round(self.per_s(self.placed - self.placed_before), 1),
            "commit_p50_ms": round(self.commit_ms(50), 3),
            "commit_p99_ms": round(self.commit_ms(99), 3),
            "bytes_per_alloc": self.column_bytes // self.allocs if self.allocs else 0,
            "record_bytes_per_alloc": self.record_bytes // self.allocs if self.allocs else 0,
            "peak_rss_bytes": self.peak_rss_bytes,
            "quality": None if self.quality is None else self.quality.to_json(),
        }

    def rows(self) -> list[tuple[str, str]]:
        """Return the lines of the closing table: what, how much."""
        figures = self.to_json()
        lines = [
            ("nodes", f"{self.nodes:,}"),
            (f"{self.unit} arrived", f"{self.arrived:,} of {self.total:,}"),
            ("placed", f"{self.placed:,}" + (f" ({self.placed_before:,} before this run)" if self.resumed else "")),
            ("ended", f"{self.ended:,}"),
            ("waiting", f"{self.waiting:,}"),
            ("never fitting", f"{self.never_fitting:,}"),
        ]
        lines += [(f"  for lack of {reason}", f"{count:,}") for reason, count in self.reasons.most_common()]
        lines += [
            ("plans", f"{self.plans:,}"),
            ("refused plans", f"{self.refused_plans:,}" + (f" ({self.refused_plans / self.plans:.1%})" if self.plans else "")),
            ("plans per second", f"{figures['plans_per_s']:,.0f}"),
            ("placements per second", f"{figures['placements_per_s']:,.0f}"),
            ("commit, median and p99", f"{figures['commit_p50_ms']:.2f} and {figures['commit_p99_ms']:.2f} ms"),
            ("log entries", f"{self.entries:,}"),
            ("syncs", f"{self.syncs:,}"),
            ("log on disk", _size(self.log_bytes)),
            ("columns per allocation", f"{figures['bytes_per_alloc']:,} B" if self.allocs else "–"),
            ("jobs and evaluations per allocation", f"{figures['record_bytes_per_alloc']:,} B" if self.allocs else "–"),
            ("peak memory", _size(self.peak_rss_bytes)),
            ("time for the nodes, the rest, the checks", f"{self.nodes_s:.1f} s, {self.wall_s - self.nodes_s:.1f} s, {self.check_s:.1f} s"),
            *self._quality_rows(),
            ("over-committed nodes", f"{self.over_committed_nodes:,}"),
            ("state after restart equals state before", "yes" if self.restart_equal else "no: " + ", ".join(self.restart_differences or ["not checked"])),
        ]
        return lines

    def _quality_rows(self) -> list[tuple[str, str]]:
        if self.quality is None:
            return []
        quality = self.quality
        return [
            ("nodes used, when most ran", f"{quality.nodes_used:,}"),
            ("mean score of those, 0 to 1", f"{quality.mean_score:.3f}"),
            ("largest free slot", f"{quality.largest_free_mhz:,} MHz, {quality.largest_free_mib:,} MiB"),
            ("fragmentation", f"{quality.fragmentation:.1%}"),
        ]


def _size(count: int) -> str:
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < _KIB:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= _KIB
    return f"{size:.1f} GiB"


def peak_resident_bytes() -> int:
    """Return the most memory that the process has held so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB


class _RateColumn(ProgressColumn):
    """How many per second."""

    def render(self, task: ProgressTask) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:,.0f}/s", style="progress.data.speed")


class ProgressBar:
    """A bar with rate and remaining time on a terminal; silent where output goes into a pipe or a file."""

    def __init__(self, label: str, total: int) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _RateColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
            disable=not (sys.stdout.isatty() and sys.stderr.isatty()),
        )
        self._bar = self._progress.add_task(label, total=total)

    def __enter__(self) -> ProgressBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, done: int) -> None:
        """Show how far the replay is."""
        self._progress.update(self._bar, completed=done)
