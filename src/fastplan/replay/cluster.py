"""The cluster of a replay: a server with its log in a directory, whose wall clock is the time of the trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from fastplan.fsm import StateMachine
from fastplan.planner.result import PlanResult
from fastplan.replay.shapes import id_maker
from fastplan.replication.contract import Status
from fastplan.replication.local import LocalReplicator, LocalSettings
from fastplan.rules import Rules
from fastplan.server import Server, ServerConfig
from fastplan.state import StateReader, StateSnapshot, StateStore
from fastplan.state.plans import AnyPlan
from fastplan.worker import StateAccess

_MIB: Final = 1 << 20
_NEVER_S: Final = 1e9


class TraceClock:
    """Stamps with the time of the trace; waits and durations are those of the machine."""

    def __init__(self, start_ns: int) -> None:
        self.trace_ns = start_ns

    def now_ns(self) -> int:
        """Return the time of the trace in Unix nanoseconds."""
        return self.trace_ns

    def monotonic_s(self) -> float:
        """Return seconds that never go back."""
        return time.monotonic()


class OldSnapshots:
    """The state as a worker sees it that keeps a snapshot for so many evaluations, as long as it holds what an evaluation needs."""

    def __init__(self, state: StateAccess, stale: int) -> None:
        self._state = state
        self._stale = stale
        self._left = 0
        self._kept: StateReader | None = None

    def latest_index(self) -> int:
        """Return the index of what `snapshot` would return now."""
        kept = self._kept
        return self._state.latest_index() if kept is None or self._left <= 0 else kept.latest_index()

    async def index_reached(self, index: int, timeout_s: float) -> None:
        """Wait until the state has *index*; the next snapshot is a new one then."""
        await self._state.index_reached(index, timeout_s)
        self._left = 0

    def snapshot(self) -> StateReader:
        """Return the snapshot that was kept, or a new one."""
        if self._kept is None or self._left <= 0:
            self._kept = self._state.snapshot()
            self._left = self._stale
        self._left -= 1
        return self._kept

    def queued_counts(self, namespace: str, job_id: str) -> Mapping[str, int]:
        """Return how many allocations of each group of a job wait for room."""
        return self._state.queued_counts(namespace, job_id)


def log_settings(directory: Path, seed: int) -> LocalSettings:
    """Return the settings of the log of a replay. It is no server's log: the reserves for a disk that fills up are small."""
    cluster_id = id_maker(seed)(16, "cluster")
    return LocalSettings(directory=directory, node_id="replay", cluster_id=cluster_id, low_water_bytes=8 * _MIB, reserve_bytes=0, wal_bytes=8 * _MIB)


class Cluster:
    """A server whose log lies in `directory`. Without *workers* it only shows what the log holds. All calls on one event loop, but `snapshot`."""

    def __init__(
        self,
        directory: Path,
        *,
        rules: Rules,
        clock: TraceClock,
        seed: int,
        workers: int = 0,
        stale: int = 1,
        on_plan: Callable[[AnyPlan, PlanResult, float], None] | None = None,
    ) -> None:
        """*stale*: for how many evaluations a worker keeps a snapshot. *on_plan*: as of `Server`."""
        self.directory = directory
        self.clock = clock
        # Workers with old snapshots are refused on purpose: the nodes are not to blame. Whoever gave up because of that is tried again by the driver:
        # timers of the machine mean nothing in the time of a trace.
        config = ServerConfig(
            workers=workers,
            rules=rules,
            seed=seed,
            clock=clock,
            pause_when_leading=False,
            rejection_tracker=False,
            unblock_failed_interval_s=_NEVER_S,
            reap_interval_s=_NEVER_S,
        )
        self._log: LocalReplicator

        def new_log(machine: StateMachine) -> LocalReplicator:
            self._log = LocalReplicator(log_settings(directory, seed), machine)
            return self._log

        seen = (lambda state: OldSnapshots(state, stale)) if stale > 1 else None
        self.server = Server(config, new_log=new_log, seen_by_worker=seen, on_plan=on_plan)

    @property
    def machine(self) -> StateMachine:
        """The state machine of the log."""
        return self.server.machine

    @property
    def state(self) -> StateStore:
        """The state: to be read on the event loop, or through snapshots."""
        return self.machine.store

    async def open(self) -> None:
        """Recover what the log holds and lead. Raises what the log says."""
        await self.server.__aenter__()

    async def close(self) -> None:
        """Answer what was submitted, flush and close."""
        await self.server.__aexit__(None, None, None)

    def snapshot(self) -> StateSnapshot:
        """Return the state as it is now; from any thread."""
        return self.machine.store.snapshot()

    def status(self) -> Status:
        """Return how the log is."""
        return self._log.status()
