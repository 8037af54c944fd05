"""One replay from its beginning to its closing checks: data directory, signals, the run, the audit, the restart."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from fastplan.errors import InvalidInput
from fastplan.replay.audit import over_committed_nodes, restart_differences
from fastplan.replay.cluster import Cluster, TraceClock
from fastplan.replay.driver import START_NS, Driver
from fastplan.replay.memory import column_bytes, record_bytes
from fastplan.replay.report import Figures, ProgressBar, peak_resident_bytes
from fastplan.replay.shapes import Workload
from fastplan.rules import Rules
from fastplan.scheduler.config import default_scheduler_config

_NEW_OBJECTS: Final = 20_000
"""How many objects more there are than at the last collection when the next one is due."""


Policy = Literal["binpack", "spread", "sample"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySettings:
    """How a workload is replayed. Raises InvalidInput for numbers that make no sense.

    `stale`: for how many evaluations a worker keeps its snapshot. `policy`: `binpack` and `spread` score every node and prefer full or empty ones;
    `sample` scores a few nodes for each placement, as Nomad's rules want it, which then hold whatever `rules` says. `data_dir`: where the log goes, None for
    a directory that is removed at the end; one that holds something is refused unless `resume`, which goes on where its log ends.
    """

    workers: int = 2
    stale: int = 1
    policy: Policy = "binpack"
    rules: Rules = Rules.STRICT
    seed: int = 0
    data_dir: Path | None = None
    resume: bool = False

    @property
    def rules_in_force(self) -> Rules:
        """The rules of scheduler and applier."""
        return Rules.NOMAD if self.policy == "sample" else self.rules

    def __post_init__(self) -> None:
        if self.policy not in get_args(Policy):
            raise InvalidInput("--policy", self.policy, f"one of {', '.join(get_args(Policy))}")
        for name, largest in (("workers", 256), ("stale", 1_000_000)):
            value = getattr(self, name)
            if not 1 <= value <= largest:
                raise InvalidInput(f"--{name}", value, f"integer from 1 to {largest}")
        if self.resume and self.data_dir is None:
            raise InvalidInput("--resume", True, "--data-dir with the log to go on with")


def replay(workload: Workload, settings: ReplaySettings) -> Figures:
    """Replay *workload* and return the figures, those of the closing checks included.

    SIGINT and SIGTERM end the run early: what was submitted is answered, the checks are made, and `Figures.stopped` is true.
    Raises InvalidInput for a data directory that is not to be used, and the errors of the log.
    """
    with _directory(settings) as directory, _quick_turns(), _rare_collections():
        return asyncio.run(_replay(workload, settings, directory))


@contextlib.contextmanager
def _quick_turns() -> Iterator[None]:
    """Have threads take turns often: else the loop, which answers everybody, waits up to 5 ms whenever a worker computes in Python."""
    usual_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    try:
        yield
    finally:
        sys.setswitchinterval(usual_s)


@contextlib.contextmanager
def _rare_collections() -> Iterator[None]:
    """Have the collector of cycles look at new objects only: else it walks, again and again, over all records of the state, none of which is garbage."""
    usual = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, 50, 1_000)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


@contextlib.contextmanager
def _directory(settings: ReplaySettings) -> Iterator[Path]:
    path = settings.data_dir
    if path is None:
        with tempfile.TemporaryDirectory(prefix="fastplan-replay-") as name:
            yield Path(name)
        return
    if path.exists() and not path.is_dir():
        raise InvalidInput("--data-dir", str(path), "a directory")
    if path.is_dir() and not settings.resume and any(path.iterdir()):
        raise InvalidInput("--data-dir", str(path), "a new or an empty directory, or --resume to go on with what is there")
    yield path


async def _replay(workload: Workload, settings: ReplaySettings, directory: Path) -> Figures:
    figures = Figures(workload.unit, len(workload.nodes), workload.copies)
    cluster = Cluster(
        directory,
        rules=settings.rules_in_force,
        clock=TraceClock(START_NS),
        seed=settings.seed,
        workers=settings.workers,
        stale=settings.stale,
        on_plan=figures.note_plan,
    )
    await cluster.open()
    try:
        start_s = time.monotonic()
        with ProgressBar(f"replaying {workload.name}", 2 * len(workload.tasks)) as bar:
            config = {**default_scheduler_config(), "SchedulerAlgorithm": "spread" if settings.policy == "spread" else "binpack"}
            driver = Driver(workload, cluster, figures, seed=settings.seed, config=config, on_progress=bar.show)
            with _stopping_on_signals(driver.stop):
                await driver.run()
        figures.wall_s = time.monotonic() - start_s
        figures.peak_rss_bytes = peak_resident_bytes()
        figures.allocs = cluster.state.alloc_count()
        figures.column_bytes, figures.record_bytes = column_bytes(cluster.state), record_bytes(cluster.state)
        status = cluster.status()
        figures.entries, figures.syncs = status.last_index, status.syncs
    finally:
        await cluster.close()
    figures.log_bytes = _log_bytes(directory)
    await _check(figures, cluster, settings)
    return figures


async def _check(figures: Figures, cluster: Cluster, settings: ReplaySettings) -> None:
    """Open the log again, compare the states, and add up every node from the records that came back."""
    start_s = time.monotonic()
    again = Cluster(cluster.directory, rules=settings.rules_in_force, clock=TraceClock(START_NS), seed=settings.seed)
    await again.open()
    try:
        figures.restart_differences = restart_differences(cluster.machine, again.machine)
        figures.over_committed_nodes = len(over_committed_nodes(again.snapshot()))
    finally:
        await again.close()
    figures.check_s = time.monotonic() - start_s


def _log_bytes(directory: Path) -> int:
    """Return the size of the closed log and its snapshots."""
    return sum(path.stat().st_size for path in (*directory.glob("log.db*"), *directory.glob("snap/*")))


@contextlib.contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """Call *stop* at the first SIGINT or SIGTERM; from then on they do what they do elsewhere."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def heard() -> None:
        for number in signals:
            loop.remove_signal_handler(number)
        stop()

    for number in signals:
        loop.add_signal_handler(number, heard)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
