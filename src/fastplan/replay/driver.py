"""Plays a workload against a cluster in the time of its trace.

**Which tasks find a place does not hang on how quick the workers are**, as far as the trace allows:

* Events are played in *windows*, in order: first the arrivals of a window, then its ends. A window holds one kind of event only, unless all its
  arrivals are *safe*: sure to find a place whatever the others of the window do. Workers then run through it in parallel.
* Tasks are safe together if, on a fresh snapshot, each would still fit were every copy of all others to spoil a whole node for it; or if they all ask
  for the same and there is room for all of them. Nothing ends meanwhile, so a refused plan only has to be made again.
* A task waits when a fresh snapshot, with everything before it decided, has no node for it. Tasks that wait are tried again, oldest first, after
  every end. A task whose end comes while it waits is given up; it counts as waiting.

What is decided about a task stands in the status of its evaluation: pending, complete, blocked (waiting), canceled (given up), failed (never fits).
So a replay that was interrupted goes on from what the log says, and from nothing else.
"""

from __future__ import annotations

import asyncio
import enum
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy

from fastplan import codec
from fastplan.errors import InvalidInput
from fastplan.fit import FitChecker
from fastplan.planner.result import PlanResult
from fastplan.replay.asks import ShapeAsks
from fastplan.replay.cluster import Cluster
from fastplan.replay.report import Figures
from fastplan.replay.room import Room
from fastplan.replay.shapes import GROUP, Events, Workload, id_maker, uuid_text
from fastplan.replay.workers import Ticket, Worker
from fastplan.state.alloc_records import name_index_of
from fastplan.state.plan_builder import ColumnarPlan
from fastplan.state.snapshot import StateSnapshot
from fastplan.state.statuses import CLIENT_COMPLETE

START_NS: Final = 1_700_000_000 * 10**9
"""The wall clock when a trace begins, in Unix nanoseconds."""

WINDOW_EVENTS: Final = 256
TURN_COPIES: Final = 16
"""Copies that a worker plans in one go, if they are of several tasks; it then waits for the answers."""
NODES_AT_ONCE: Final = 256
"""Nodes that one entry of the log writes."""


class Fate(enum.IntEnum):
    """What has become of a task."""

    UNSEEN = 0
    PENDING = 1
    PLACED = 2
    WAITING = 3
    GIVEN_UP = 4
    NEVER_FITS = 5
    ENDED = 6


STATUSES: Final = {
    Fate.PENDING: "pending",
    Fate.PLACED: "complete",
    Fate.WAITING: "blocked",
    Fate.GIVEN_UP: "canceled",
    Fate.NEVER_FITS: "failed",
}
"""Status of the evaluation of a task by its fate; one that has ended keeps `complete`."""


class Driver:
    """One replay. `run` may be asked to `stop` at any time: it then ends after what is under way."""

    def __init__(
        self, workload: Workload, cluster: Cluster, figures: Figures, *, workers: int, stale: int, seed: int, on_progress: Callable[[int], None]
    ) -> None:
        """*stale*: for how many plans a worker keeps a snapshot. *on_progress* is told how many events have been played."""
        self.events = Events(workload.tasks)
        self._workload = workload
        self._tasks = workload.tasks
        self._cluster = cluster
        self._figures = figures
        self._draw = id_maker(seed)
        self._seed = seed
        self._on_progress = on_progress
        self._stopping = False
        empty = FitChecker(workload.nodes, [])
        asks = [ShapeAsks(shape, empty) for shape in workload.shapes]
        self._shapes: list[int] = self._tasks.shapes.tolist()
        self._asks = [asks[shape] for shape in self._shapes]
        self._counts: list[int] = self._tasks.counts.tolist()
        self._room_asks = asks
        self._workers = [Worker(cluster.snapshot, stale) for _ in range(workers)]
        self._turn = 0
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="replay-worker")
        self._eval_ids = [""] * len(workload.tasks)
        self._fates = [Fate.UNSEEN] * len(workload.tasks)
        # Numbers of the copies that are not placed yet, of pending and waiting tasks.
        self._open: dict[int, list[int]] = {}
        # In order of arrival.
        self._waiting: dict[int, None] = {}
        self._undecided_evals: dict[int, Fate] = {}

    def stop(self) -> None:
        """End soon: nothing new is begun, what was submitted is answered."""
        self._stopping = True

    async def run(self) -> None:
        """Play all events, or those up to `stop`. Raises InvalidInput for the log of another replay, and what log and state raise."""
        try:
            await self._install()
            place = self._recover() if self._figures.resumed else 0
            while place < len(self.events) and not self._stopping:
                place = await self._play(place)
                self._on_progress(place)
            await self._write_fates([])
        finally:
            self._pool.shutdown()
        figures = self._figures
        figures.stopped = self._stopping
        figures.waiting = figures.arrived - figures.placed - figures.never_fitting

    # --- beginning, and beginning again -----------------------------------------------------------------------------

    async def _install(self) -> None:
        """Write the nodes, unless an earlier run has."""
        workload = self._workload
        mark = {"Name": workload.name, "Description": "a replay", "Meta": {"workload": workload.fingerprint(), "seed": str(self._seed)}}
        snapshot = self._cluster.snapshot()
        stored = snapshot.namespace(workload.name)
        if snapshot.latest_index() and stored != mark:
            raise InvalidInput("--data-dir", str(self._cluster.directory), "the log of a replay of this very workload with this seed")
        self._figures.resumed = stored is not None
        missing = [node for node in workload.nodes if snapshot.node_row(node.id) is None]
        commands: list[codec.Command] = [] if stored else [codec.UpsertNamespaces([mark])]
        for first in range(0, len(missing), NODES_AT_ONCE):
            commands.append(codec.UpsertNodes([node.to_api() for node in missing[first : first + NODES_AT_ONCE]]))
        for command in commands:
            await self._cluster.write([(command, START_NS)])

    def _recover(self) -> int:
        """Take up what the log says of each task, and return the place of the first event that has not been played."""
        snapshot = self._cluster.snapshot()
        fates = {status: fate for fate, status in STATUSES.items()}
        for task in range(len(self._tasks)):
            evaluation = snapshot.eval(self._eval_id(task))
            if evaluation is not None:
                self._recover_task(snapshot, task, fates[evaluation.status])
        for place, (task, is_end) in enumerate(zip(self.events.tasks.tolist(), self.events.is_end.tolist(), strict=True)):
            fate = self._fates[task]
            if fate <= Fate.PENDING or (is_end and fate in (Fate.PLACED, Fate.WAITING)):
                return place
        return len(self.events)

    def _recover_task(self, snapshot: StateSnapshot, task: int, fate: Fate) -> None:
        figures = self._figures
        name, count = self._tasks.names[task], self._counts[task]
        by_status, _ = snapshot.group_counts(self._workload.name, name, GROUP)
        placed, ended = sum(by_status), by_status[CLIENT_COMPLETE]
        figures.arrived += count
        figures.placed += placed
        figures.placed_before += placed
        figures.ended += ended
        if fate is Fate.PLACED and ended:
            fate = Fate.ENDED
        elif fate is Fate.NEVER_FITS:
            self._note_never_fitting(task)
        elif fate in (Fate.PENDING, Fate.WAITING):
            taken = [name_index_of(alloc.name, name, GROUP) for alloc in snapshot.allocs_by_job(self._workload.name, name)] if placed else []
            self._open[task] = sorted(set(range(count)).difference(taken))
            self._fates[task] = fate
            if not self._open[task]:
                # It was placed, and the run ended before that was written.
                self._decide(task, Fate.PLACED)
                return
            if fate is Fate.WAITING:
                self._waiting[task] = None
        self._fates[task] = fate

    # --- events -----------------------------------------------------------------------------------------------------

    async def _play(self, place: int) -> int:
        """Play the window of events that begins at *place*, and return where the next one begins."""
        end = min(place + WINDOW_EVENTS, len(self.events))
        is_end = self.events.is_end[place:end]
        floor: int | None = None
        if is_end[0] and self._waiting:
            # What the first end makes room for is theirs who wait, before somebody else gives up.
            end = place + 1
        elif is_end.any() and not is_end.all():
            # Of two kinds of events: only arrivals that are safe may be played before ends that come before them.
            end, floor = (place + self._run_length(place), None) if self._waiting else self._safe_window(place, end)
        self._cluster.clock.trace_ns = START_NS + int(self.events.times_ns[place])
        await self._cluster.write(self._register(self._arriving(place, end)))
        pending = [task for task in self._arriving(place, end) if self._fates[task] is Fate.PENDING]
        if floor is None:
            await self._place(pending)
        else:
            await self._serve_all(pending, floor)
            self._judge(pending)
        if self._stopping:
            return place
        if await self._end(place, end):
            await self._place(list(self._waiting))
        return end

    def _run_length(self, place: int) -> int:
        """Return how many events of one kind follow each other from *place* on, within one window."""
        is_end = self.events.is_end[place : place + WINDOW_EVENTS]
        return int((is_end != is_end[0]).argmax()) or len(is_end) if len(is_end) else 0

    def _arriving(self, place: int, end: int) -> list[int]:
        """Return the tasks that arrive between two places and whose fate is open."""
        tasks = self.events.tasks[place:end][~self.events.is_end[place:end]]
        return [task for task in tasks.tolist() if self._fates[task] <= Fate.PENDING]

    def _register(self, tasks: Iterable[int]) -> list[tuple[codec.Command, int]]:
        """Let tasks arrive that have not yet. Returns what is to be written of them: jobs and evaluations in one entry, with the time of the first."""
        jobs: list[codec.Single] = []
        evals: list[dict[str, Any]] = []
        time_ns = 0
        for task in tasks:
            if self._fates[task] is not Fate.UNSEEN:
                continue
            asks = self._asks[task]
            count = self._counts[task]
            self._figures.arrived += count
            self._fates[task] = Fate.NEVER_FITS if asks.never_fits else Fate.PENDING
            if asks.never_fits:
                self._note_never_fitting(task)
            else:
                self._open[task] = list(range(count))
            time_ns = time_ns or START_NS + int(self._tasks.arrivals_ns[task])
            job = asks.shape.job(self._tasks.names[task], self._workload.name, count)
            jobs.append(codec.UpsertJob(job))
            evals.append(self._evaluation(task))
        if not evals:
            return []
        return [(codec.Batch([*jobs, codec.UpsertEvals(evals)]), time_ns)]

    def _note_never_fitting(self, task: int) -> None:
        count = self._counts[task]
        self._figures.never_fitting += count
        self._figures.reasons[self._asks[task].never_fits] += count

    async def _end(self, place: int, end: int) -> bool:
        """Let tasks end, each stamped with its own time, and write what was decided meanwhile. Returns whether anything ended.

        The tasks that arrive next are registered by the same flush.
        """
        ending = self.events.is_end[place:end]
        entries: list[tuple[codec.Command, int]] = []
        for task, time_ns in zip(self.events.tasks[place:end][ending].tolist(), self.events.times_ns[place:end][ending].tolist(), strict=True):
            fate = self._fates[task]
            if fate is Fate.PLACED:
                updates = [codec.AllocClientUpdate(alloc_id, "complete") for alloc_id in self._running(task)]
                entries.append((codec.UpdateAllocsFromClient(updates), START_NS + time_ns))
                self._figures.ended += len(updates)
                self._fates[task] = Fate.ENDED
            elif fate is Fate.WAITING:
                self._decide(task, Fate.GIVEN_UP)
        ended = bool(entries)
        if ended:
            entries += self._register(self._arriving(end, end + self._run_length(end)))
        await self._write_fates(entries)
        return ended

    def _running(self, task: int) -> list[str]:
        """Return the ids of the allocations of a task that run."""
        state = self._cluster.state
        group_row = state.jobs_view.groups.find(self._workload.name, self._tasks.names[task], GROUP)
        return [] if group_row is None else [state.allocs_view.alloc_id(row) for row in sorted(state.allocs_view.rows_of_group(group_row, 0))]

    # --- placing ----------------------------------------------------------------------------------------------------

    def _room(self, snapshot: StateSnapshot) -> Room:
        checker = snapshot.fit_checker()
        return Room(lambda shape: self._room_asks[shape].headroom(checker))

    def _needs(self, tasks: Iterable[int]) -> list[tuple[int, int]]:
        """Return shape and open copies of tasks."""
        return [(self._shapes[task], len(self._open[task]) if task in self._open else self._counts[task]) for task in tasks]

    def _safe_window(self, place: int, end: int) -> tuple[int, int | None]:
        """Return the end of the longest window from *place* on whose arrivals are safe together, and the index of the snapshot that says so.

        Without a single safe arrival it is the end of the events of the first kind, and None.
        """
        arriving = [task for task in self._arriving(place, end) if not self._asks[task].never_fits]
        snapshot = self._cluster.snapshot()
        safe = self._room(snapshot).safe_prefix(self._needs(arriving))
        if safe == 0:
            return place + self._run_length(place), None
        if safe < len(arriving):
            at = (self.events.tasks[place:end] == arriving[safe]) & ~self.events.is_end[place:end]
            end = place + int(at.argmax())
        return end, snapshot.latest_index()

    async def _place(self, tasks: Sequence[int]) -> None:
        """Place tasks, in order: as many at once as are safe together. For the others there is no room: they wait."""
        queue = list(tasks)
        while queue and not self._stopping:
            snapshot = self._cluster.snapshot()
            room = self._room(snapshot)
            # What has no room now has none later either: until something ends, room only shrinks.
            fitting = [task for task in queue if not len(self._open[task]) or room.for_copies(self._shapes[task])]
            stuck = set(queue).difference(fitting)
            self._judge([task for task in queue if task in stuck])
            safe = fitting[: max(room.safe_prefix(self._needs(fitting)), 1)]
            await self._serve_all(safe, snapshot.latest_index())
            self._judge(safe)
            queue = fitting[len(safe) :]

    def _judge(self, tasks: Iterable[int]) -> None:
        """Decide about tasks that were tried: placed, or waiting."""
        if self._stopping:
            tasks = [task for task in tasks if not len(self._open[task])]
        for task in tasks:
            self._decide(task, Fate.WAITING if len(self._open[task]) else Fate.PLACED)

    def _decide(self, task: int, fate: Fate) -> None:
        if fate is Fate.WAITING:
            self._waiting[task] = None
        else:
            self._waiting.pop(task, None)
            del self._open[task]
        if self._fates[task] is not fate:
            self._fates[task] = fate
            self._undecided_evals[task] = fate

    async def _write_fates(self, entries: list[tuple[codec.Command, int]]) -> None:
        """Write what was decided since the last time, before *entries*."""
        evals = [self._evaluation(task) for task in self._undecided_evals]
        self._undecided_evals = {}
        decided: list[tuple[codec.Command, int]] = [(codec.UpsertEvals(evals), self._cluster.clock.trace_ns)] if evals else []
        await self._cluster.write(decided + entries)

    async def _serve_all(self, tasks: Sequence[int], floor: int) -> None:
        """Have the workers place tasks, in parallel. *floor*: index of a snapshot on which they are known to fit."""
        queue = deque(self._turns(tasks))
        # Whoever had no turn last time begins.
        workers = self._workers[self._turn :] + self._workers[: self._turn]
        busy = workers[: len(queue)]
        self._turn = (self._turn + len(busy)) % len(workers)

        async def work(worker: Worker) -> None:
            while queue and not self._stopping:
                await self._serve(worker, queue.popleft(), floor)

        for outcome in await asyncio.gather(*map(work, busy), return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    def _turns(self, tasks: Sequence[int]) -> list[list[int]]:
        """Cut tasks into what a worker plans in one go: a few of them, or one of many copies."""
        turns: list[list[int]] = []
        left = 0
        for task in tasks:
            copies = len(self._open[task])
            if copies > left:
                turns.append([])
                left = TURN_COPIES
            turns[-1].append(task)
            left -= copies
        return turns

    async def _serve(self, worker: Worker, tasks: Sequence[int], floor: int) -> None:
        """Have a worker place tasks: each until all its copies are committed, or a snapshot that is fresh enough has no room."""
        loop = asyncio.get_running_loop()
        tickets = {task: self._ticket(task) for task in tasks}
        held = [(ticket.eval_id, ticket.eval_token) for ticket in tickets.values()]
        try:
            while (tickets := {task: ticket for task, ticket in tickets.items() if ticket.copies}) and not self._stopping:
                attempts = await loop.run_in_executor(self._pool, worker.plan, list(tickets.values()))
                plans = {task: attempt.plan for task, attempt in zip(tickets, attempts, strict=True) if attempt.plan is not None}
                stuck = [(task, attempt.snapshot_index) for task, attempt in zip(tickets, attempts, strict=True) if attempt.plan is None]
                refused = await self._submit(plans) if plans else {}
                if stuck or refused:
                    worker.forget()
                for task, index in stuck:
                    if index >= floor:
                        del tickets[task]
                for task in plans:
                    ticket = tickets[task]
                    tickets[task] = ticket._replace(copies=self._open[task], attempt=ticket.attempt + 1, refused=refused.get(task, ()))
        finally:
            for eval_id, token in held:
                self._cluster.evaluations.settle(eval_id, token)

    def _ticket(self, task: int) -> Ticket:
        """Deliver the evaluation of a task to a worker."""
        name = self._tasks.names[task]
        job = self._cluster.state.jobs_view.get(self._workload.name, name)
        assert job is not None
        eval_id = self._eval_id(task)
        token = self._cluster.evaluations.deliver(eval_id, self._draw(16, "token", eval_id).hex())
        return Ticket(self._asks[task], job, eval_id, token, self._open[task], self._draw(16 * self._counts[task], "alloc", name), 0, ())

    async def _submit(self, plans: Mapping[int, ColumnarPlan]) -> dict[int, list[int]]:
        """Submit plans by task. Returns the rows of the refused nodes of those that were not committed as a whole."""
        results = await self._cluster.submit(list(plans.values()))
        figures = self._figures
        refused: dict[int, list[int]] = {}
        refresh_index = 0
        for (task, plan), (result, took_s) in zip(plans.items(), results, strict=True):
            figures.commit_s.append(took_s)
            figures.plans += 1
            placed, refused_rows = _outcome(plan, result)
            figures.placed += len(placed)
            self._open[task] = [copy for copy in self._open[task] if copy not in placed] if len(placed) < len(self._open[task]) else []
            if result.partial:
                figures.refused_plans += 1
                refused[task] = refused_rows
                refresh_index = max(refresh_index, result.refresh_index)
        if refused:
            await self._cluster.state.index_reached(refresh_index, timeout_s=60.0)
        return refused

    # --- names ------------------------------------------------------------------------------------------------------

    def _eval_id(self, task: int) -> str:
        eval_id = self._eval_ids[task]
        if not eval_id:
            eval_id = self._eval_ids[task] = uuid_text(self._draw(16, "eval", self._tasks.names[task]))
        return eval_id

    def _evaluation(self, task: int) -> dict[str, Any]:
        """Return the evaluation of a task, in the API's shape, with the status that says what became of it."""
        asks = self._asks[task]
        fate = self._fates[task]
        evaluation = {
            "ID": self._eval_id(task),
            "Namespace": self._workload.name,
            "Priority": asks.shape.priority,
            "Type": "batch",
            "TriggeredBy": "job-register",
            "JobID": self._tasks.names[task],
            "Status": STATUSES[Fate.PLACED if fate is Fate.ENDED else fate],
        }
        if fate is Fate.WAITING:
            evaluation["QueuedAllocations"] = {GROUP: len(self._open[task])}
        elif fate is Fate.NEVER_FITS:
            evaluation["StatusDescription"] = f"fits no node of the empty cluster, most for lack of {asks.never_fits}"
        return evaluation


def _outcome(plan: ColumnarPlan, result: PlanResult) -> tuple[set[int], list[int]]:
    """Return the numbers of the copies that were committed, and the rows of the nodes that were refused."""
    columns = plan.columns
    if not result.partial:
        return set(columns.name_index.tolist()), []
    is_refused = numpy.array([node_id in result.refused for node_id in columns.node_ids], numpy.bool_)
    kept = numpy.repeat(~is_refused, numpy.diff(columns.place_offsets))
    return set(columns.name_index[kept].tolist()), columns.node_rows[is_refused].tolist()
