"""Plays a workload against a server in the time of its trace.

Arrivals are jobs that are registered, and their evaluations go through broker, worker, scheduler and applier; ends are what clients say of allocations.

**Which tasks find a place does not hang on how quick the workers are**, as far as the trace allows:

* Events are played in *windows*, in order: first the arrivals of a window, then its ends. A window holds one kind of event only, unless all its
  arrivals are *safe*: sure to find a place whatever the others of the window do. Workers then run through it in parallel.
* Tasks are safe together if, on a fresh snapshot, each would still fit were every copy of all others to spoil a whole node for it; or if they all ask
  for the same and there is room for all of them. Nothing ends meanwhile, so a refused plan only has to be made again.
* What a window asks for is handed to the workers at once, in order of priority. So with one worker everything follows from the workload and the seed.
* A task waits when its evaluation has found no node: the server looks at it again whenever room is made. A task whose end comes while it waits is
  given up: its job is deregistered; it counts as waiting. One that fits no node of the empty cluster is given up at once.

What has become of a task stands in its job and its allocations. So a replay that was interrupted goes on from what the log says, and from nothing else.
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Final

from fastplan.errors import InvalidInput, StorageFailed
from fastplan.fit import FitChecker
from fastplan.replay.asks import ShapeAsks
from fastplan.replay.cluster import Cluster
from fastplan.replay.quality import quality_of
from fastplan.replay.report import Figures
from fastplan.replay.room import Room
from fastplan.replay.shapes import GROUP, NEVER, Events, Workload
from fastplan.state.snapshot import StateSnapshot
from fastplan.state.statuses import CLIENT_COMPLETE, CLIENT_ENDED, CLIENT_PENDING
from fastplan.structs import Allocation, Job

START_NS: Final = 1_700_000_000 * 10**9
"""The wall clock when a trace begins, in Unix nanoseconds."""

NODES_AT_ONCE: Final = 256
"""Nodes that are registered at a time."""

SETTLE_S: Final = 600.0
"""How long a window may take."""

STEPS_TO_STAMP: Final = 4
"""So many turns of the loop after it was begun an operation has its time."""

UNWELL_S: Final = 2.0
"""How long it may take once the log says that something is wrong."""

FULLER: Final = 1.02
"""The placement is looked at anew when so many times as many allocations run as at the last look."""


class Fate(enum.IntEnum):
    """What has become of a task."""

    UNSEEN = 0
    PENDING = 1
    PLACED = 2
    WAITING = 3
    GIVEN_UP = 4
    NEVER_FITS = 5
    ENDED = 6


class Driver:
    """One replay. `run` may be asked to `stop` at any time: it then ends after what is under way."""

    def __init__(
        self, workload: Workload, cluster: Cluster, figures: Figures, *, seed: int, config: dict[str, Any], on_progress: Callable[[int], None]
    ) -> None:
        """*config*: the scheduler configuration, in the shape of the API. *on_progress* is told how many events have been played."""
        self.events = Events(workload.tasks)
        self._workload = workload
        self._tasks = workload.tasks
        self._cluster = cluster
        self._server = cluster.server
        self._figures = figures
        self._seed = seed
        self._config = config
        self._on_progress = on_progress
        self._stopping = False
        empty = FitChecker(workload.nodes, [])
        self._room_asks = [ShapeAsks(shape, empty) for shape in workload.shapes]
        self._shapes: list[int] = self._tasks.shapes.tolist()
        self._asks = [self._room_asks[shape] for shape in self._shapes]
        self._counts: list[int] = self._tasks.counts.tolist()
        self._placed = [0] * len(workload.tasks)
        self._fates = [Fate.UNSEEN] * len(workload.tasks)
        # In order of arrival.
        self._waiting: dict[int, None] = {}
        self._looked_at = 0

    def stop(self) -> None:
        """End soon: nothing new is begun, what was submitted is answered."""
        self._stopping = True

    async def run(self) -> None:
        """Play all events, or those up to `stop`. Raises InvalidInput for the log of another replay, and what log and state raise."""
        self._server.gate.hold_back()
        start_s = time.monotonic()
        await self._install()
        self._figures.nodes_s = time.monotonic() - start_s
        place = await self._recover() if self._figures.resumed else 0
        while place < len(self.events) and not self._stopping:
            place = await self._play(place)
            self._on_progress(place)
        await self._settle()
        figures = self._figures
        figures.stopped = self._stopping
        figures.waiting = figures.arrived - figures.placed - figures.never_fitting

    # --- beginning, and beginning again -----------------------------------------------------------------------------

    async def _install(self) -> None:
        """Register the nodes, unless an earlier run has."""
        workload = self._workload
        mark = {"Name": workload.name, "Description": "a replay", "Meta": {"workload": workload.fingerprint(), "seed": str(self._seed)}}
        snapshot = self._cluster.snapshot()
        stored = snapshot.namespace(workload.name)
        if stored != mark and (stored is not None or snapshot.node_count()):
            raise InvalidInput("--data-dir", str(self._cluster.directory), "the log of a replay of this very workload with this seed")
        self._figures.resumed = stored is not None
        if stored is None:
            await self._server.upsert_namespace(mark)
        if snapshot.scheduler_config() != self._config:
            await self._server.set_scheduler_config(self._config)
        missing = [node for node in workload.nodes if snapshot.node_row(node.id) is None]
        for first in range(0, len(missing), NODES_AT_ONCE):
            await self._all(self._server.register_node(node) for node in missing[first : first + NODES_AT_ONCE])

    async def _recover(self) -> int:
        """Take up what the log says of each task, and return the place of the first event that has not been played."""
        await self._settle()
        open_tasks: list[int] = []
        for task, name in enumerate(self._tasks.names):
            job = self._cluster.state.jobs_view.get(self._workload.name, name)
            if job is not None and self._recover_task(task, job):
                open_tasks.append(task)
        await self._judge(open_tasks)
        self._figures.placed_before = self._figures.placed
        for place, (task, is_end) in enumerate(zip(self.events.tasks.tolist(), self.events.is_end.tolist(), strict=True)):
            fate = self._fates[task]
            if fate <= Fate.PENDING or (is_end and fate in (Fate.PLACED, Fate.WAITING)):
                return place
        return len(self.events)

    def _recover_task(self, task: int, job: Job) -> bool:
        """Take up what the log says of a task; return whether its evaluation is to be judged."""
        count = self._counts[task]
        self._figures.arrived += count
        self._note_placed(task)
        ended = self._by_status(task)[CLIENT_COMPLETE]
        self._figures.ended += ended
        if self._asks[task].never_fits:
            self._note_never_fitting(task)
            self._fates[task] = Fate.NEVER_FITS if job.stop else Fate.PENDING
        elif ended == count:
            self._fates[task] = Fate.ENDED
        elif job.stop and not self._running(task):
            self._fates[task] = Fate.GIVEN_UP
        else:
            return True
        return False

    # --- events -----------------------------------------------------------------------------------------------------

    async def _play(self, place: int) -> int:
        """Play the window of events that begins at *place*, and return where the next one begins."""
        end = min(place + self._workload.window, len(self.events))
        is_end = self.events.is_end[place:end]
        if is_end[0] and self._waiting:
            # What the first end makes room for is theirs who wait, before somebody else gives up.
            end = place + 1
        elif is_end.any() and not is_end.all():
            # Of two kinds of events: only arrivals that are safe may be played before ends that come before them.
            end = place + self._run_length(place) if self._waiting else self._safe_window(place, end)
        self._cluster.clock.trace_ns = START_NS + int(self.events.times_ns[place])
        arriving = self._arriving(place, end)
        if arriving:
            await self._arrive(arriving)
        if self._stopping:
            return place
        if self.events.is_end[place:end].any():
            await self._end(place, end)
        return end

    def _run_length(self, place: int) -> int:
        """Return how many events of one kind follow each other from *place* on, within one window."""
        is_end = self.events.is_end[place : place + self._workload.window]
        return int((is_end != is_end[0]).argmax()) or len(is_end) if len(is_end) else 0

    def _arriving(self, place: int, end: int) -> list[int]:
        """Return the tasks that arrive between two places and whose fate is open."""
        tasks = self.events.tasks[place:end][~self.events.is_end[place:end]]
        return [task for task in tasks.tolist() if self._fates[task] <= Fate.PENDING]

    async def _arrive(self, tasks: Sequence[int]) -> None:
        """Register the jobs of tasks, and wait until their evaluations have been handled."""
        fresh = [task for task in tasks if self._fates[task] is Fate.UNSEEN]
        for task in fresh:
            self._fates[task] = Fate.PENDING
            self._figures.arrived += self._counts[task]
            if self._asks[task].never_fits:
                self._note_never_fitting(task)
        jobs = [Job.from_api(self._asks[task].shape.job(self._tasks.names[task], self._workload.name, self._counts[task])) for task in fresh]
        await self._all(self._server.register_job(job) for job in jobs)
        await self._settle_all(task for task in tasks if not self._asks[task].never_fits)
        hopeless = [task for task in tasks if self._asks[task].never_fits]
        await self._give_up(hopeless, Fate.NEVER_FITS)
        await self._judge([task for task in tasks if not self._asks[task].never_fits])
        self._look_at_placement()

    async def _end(self, place: int, end: int) -> None:
        """End the tasks whose time is over, each at its time; then see who has got the room. Services are stopped first."""
        ending = self.events.is_end[place:end]
        await self._stop_services(task for task in self.events.tasks[place:end][ending].tolist() if self._fates[task] in (Fate.PLACED, Fate.WAITING))
        given_up: list[int] = []
        reports: list[asyncio.Task[Any]] = []
        for task, time_ns in zip(self.events.tasks[place:end][ending].tolist(), self.events.times_ns[place:end][ending].tolist(), strict=True):
            fate = self._fates[task]
            if fate not in (Fate.PLACED, Fate.WAITING):
                continue
            self._cluster.clock.trace_ns = START_NS + time_ns
            said = [Allocation(id=alloc_id, client_status="complete") for alloc_id in self._running(task)]
            if said:
                self._figures.ended += len(said)
                reports.append(asyncio.ensure_future(self._server.update_allocs_from_client(said)))
                # It is stamped within its first steps: the call, and the operation that goes on when its caller ends.
                for _ in range(STEPS_TO_STAMP):
                    await asyncio.sleep(0)
            if fate is Fate.WAITING:
                given_up.append(task)
            else:
                self._fates[task] = Fate.ENDED
        await self._all(reports)
        await self._give_up(given_up, Fate.GIVEN_UP)
        if self._waiting:
            await self._settle_all(self._waiting)
            await self._judge(list(self._waiting))

    async def _stop_services(self, tasks: Iterable[int]) -> None:
        stopping = [task for task in tasks if self._asks[task].shape.is_service]
        if stopping:
            await self._all(self._server.deregister_job(self._workload.name, self._tasks.names[task]) for task in stopping)
            await self._settle()

    async def _give_up(self, tasks: Sequence[int], fate: Fate) -> None:
        for task in tasks:
            self._fates[task] = fate
            self._waiting.pop(task, None)
        await self._all(self._server.deregister_job(self._workload.name, self._tasks.names[task]) for task in tasks)

    # --- what the state says ------------------------------------------------------------------------------------------

    def _by_status(self, task: int) -> list[int]:
        counts, _ = self._cluster.state.group_counts(self._workload.name, self._tasks.names[task], GROUP)
        return counts

    def _note_placed(self, task: int) -> None:
        placed = sum(self._by_status(task))
        self._figures.placed += placed - self._placed[task]
        self._placed[task] = placed

    def _running(self, task: int, client: int | None = None) -> list[str]:
        """Return the ids of the allocations of a task that run, whether they are told to stop or not; only those of one client status if it is given."""
        group_row = self._cluster.state.jobs_view.groups.find(self._workload.name, self._tasks.names[task], GROUP)
        if group_row is None:
            return []
        view = self._cluster.state.allocs_view
        rows = [(row, view.row_state(row)[2]) for row in reversed(view.rows_of_group(group_row))]
        return [view.alloc_id(row) for row, status in rows if status not in CLIENT_ENDED and client in (None, status)]

    async def _judge(self, tasks: Sequence[int]) -> None:
        """Note what has become of tasks whose evaluations have been handled, and have clients start what ends some day."""
        for task in tasks:
            self._note_placed(task)
            if self._placed[task] >= self._counts[task]:
                self._fates[task] = Fate.PLACED
                self._waiting.pop(task, None)
            else:
                self._fates[task] = Fate.WAITING
                self._waiting[task] = None
        started = [alloc_id for task in tasks if self._tasks.ends_ns[task] != NEVER for alloc_id in self._running(task, CLIENT_PENDING)]
        if started:
            await self._all([self._server.update_allocs_from_client([Allocation(id=alloc_id, client_status="running") for alloc_id in started])])

    def _note_never_fitting(self, task: int) -> None:
        count = self._counts[task]
        self._figures.never_fitting += count
        self._figures.reasons[self._asks[task].never_fits] += count

    # --- placing ----------------------------------------------------------------------------------------------------

    def _safe_window(self, place: int, end: int) -> int:
        """Return the end of the longest window from *place* on whose arrivals are safe together, else of the events of the first kind."""
        arriving = [task for task in self._arriving(place, end) if not self._asks[task].never_fits]
        safe = self._room(self._cluster.snapshot()).safe_prefix([(self._shapes[task], self._counts[task] - self._placed[task]) for task in arriving])
        if safe == 0:
            return place + self._run_length(place)
        if safe < len(arriving):
            at = (self.events.tasks[place:end] == arriving[safe]) & ~self.events.is_end[place:end]
            end = place + int(at.argmax())
        return end

    def _room(self, snapshot: StateSnapshot) -> Room:
        checker = snapshot.fit_checker()
        return Room(lambda shape: self._room_asks[shape].headroom(checker))

    def _look_at_placement(self) -> None:
        """See how well what runs is placed, when more runs than ever."""
        running = self._figures.placed - self._figures.ended
        if running > self._looked_at * FULLER:
            self._looked_at = running
            self._figures.quality = quality_of(self._cluster.snapshot())

    async def _settle_all(self, tasks: Iterable[int]) -> None:
        """Have evaluations handled, until nobody waits who only gave up because of refused plans; a real server tries them again every minute."""
        await self._settle()
        tried = list(tasks)
        while not self._stopping:
            tried = [task for task in tried if sum(self._by_status(task)) < self._counts[task]]
            room = self._room(self._cluster.snapshot())
            if not any(room.for_copies(self._shapes[task]) for task in tried):
                return
            plans = self._figures.plans
            self._server.blocked.unblock_failed()
            await self._settle()
            if self._figures.plans == plans:
                # They wait for what the room does not tell, as for devices that no node of the right kind has left.
                return

    # --- waiting ------------------------------------------------------------------------------------------------------

    async def _settle(self) -> None:
        """Have the workers handle what there is."""
        gate = self._server.gate
        gate.give_out()
        await self._patiently(self._server.settled(SETTLE_S))
        gate.hold_back()

    async def _all(self, work: Iterable[Coroutine[Any, Any, Any] | asyncio.Task[Any]]) -> None:
        """Wait for operations on the server; raises what the first one raises."""
        await self._patiently(asyncio.gather(*work))

    async def _patiently(self, work: Any) -> None:
        """Wait for *work*, but not for a log that has no room: a server waits for that as long as it takes, a replay does not."""
        waited = asyncio.ensure_future(work)
        while not waited.done():
            await asyncio.wait([waited], timeout=UNWELL_S)
            if not waited.done() and self._cluster.status().health:
                waited.cancel()
                await asyncio.wait([waited])
                raise StorageFailed("; ".join(self._cluster.status().health))
        waited.result()
