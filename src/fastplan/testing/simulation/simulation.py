"""One whole server, its cluster and all that happens to both, from a seed and under virtual time."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter, deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Any

from fastplan.errors import FastplanError, InvalidInput
from fastplan.fsm import StateMachine
from fastplan.scheduler.requests import SubmitReply
from fastplan.server.config import ServerConfig
from fastplan.server.server import Server, Written
from fastplan.testing.clock import VirtualClock, run_virtual
from fastplan.testing.simulation import checks
from fastplan.testing.simulation.actions import Actions
from fastplan.testing.simulation.clients import Clients
from fastplan.testing.simulation.executor import Pace, SeededExecutor
from fastplan.testing.simulation.log import GONE, RestartableLog, Storage
from fastplan.testing.simulation.rest import at_rest, come_to_rest
from fastplan.testing.simulation.witness import Witness

LAST_ACTIONS = 20


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """How much happens. `workers`: 1 to 16, None draws it. `step_s`: virtual seconds between two actions on average.

    `disconnects`: nodes do not only go down, their clients also lose the server for a while.
    """

    steps: int = 60
    workers: int | None = None
    nodes: int = 6
    jobs: int = 6
    step_s: float = 0.1
    disconnects: bool = False


class Violation(AssertionError):
    """Something that must hold did not. The text names seed, step and the last actions: the same seed does it again."""

    def __init__(self, seed: int, step: int, found: list[str], last: list[str]) -> None:
        self.seed = seed
        self.step = step
        self.found = found
        lines = [f"seed {seed}, step {step}:", *(f"  {sentence}" for sentence in found), "last actions:", *(f"  {action}" for action in last)]
        super().__init__("\n".join(lines))


@dataclass(slots=True)
class Report:
    """What a simulation was like: plans that were answered, those refused in part or whole, placements, schedulers at work at once, operations by outcome."""

    seed: int
    workers: int
    plans: int = 0
    refused: int = 0
    placed: int = 0
    most_running: int = 0
    restarts: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


class _LoggedErrors(logging.Handler):
    """What is logged as an error while it is entered: there is nothing that a server should not be able to live with. Less is not shown."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        # A server says so when its log ends, and that was planned.
        if GONE not in text:
            self._texts.append(f"logged as an error: {text}")

    def taken(self) -> list[str]:
        texts, self._texts = self._texts, []
        return texts

    def __enter__(self) -> None:
        for logger in _LOGGERS:
            logger.addHandler(self)
        self._propagated, _LOGGERS[0].propagate = _LOGGERS[0].propagate, False

    def __exit__(self, *_: object) -> None:
        _LOGGERS[0].propagate = self._propagated
        for logger in _LOGGERS:
            logger.removeHandler(self)


_LOGGERS = (logging.getLogger("fastplan"), logging.getLogger("asyncio"))


class Simulation:
    """A run from one seed. `run` returns its report, or raises Violation."""

    def __init__(self, seed: int, settings: SimulationSettings | None = None) -> None:
        self.settings = settings or SimulationSettings()
        self.seed = seed
        self.clock = VirtualClock()
        self.step = 0
        self._sources = random.Random(seed)
        self.witness = Witness()
        self.storage = Storage(self.witness.hear)
        self.source = self._source()
        workers = self.source.choice((1, 2, 4, 8, 16)) if self.settings.workers is None else self.settings.workers
        self.report = Report(seed, workers)
        slow = self.source.choice((0.0, 0.02, 0.05))
        self.executor = SeededExecutor(self._source(), Pace(step_s=self.source.choice((0.005, 0.05, 0.2)), slow_share=slow, slow_s=7.0), self._hear)
        self.clients = Clients(self._source())
        self.log: RestartableLog
        self.server: Server
        self.last: deque[str] = deque(maxlen=LAST_ACTIONS)
        self._found: list[str] = []
        self._errors = _LoggedErrors()
        self._operations: set[asyncio.Task[None]] = set()

    def _source(self) -> random.Random:
        return random.Random(self._sources.getrandbits(64))

    def run(self) -> Report:
        """Run from beginning to end."""
        with self._errors:
            try:
                run_virtual(self._main(), self.clock)
            except Violation:
                raise
            except Exception as error:
                raise Violation(self.seed, self.step, [f"{type(error).__name__}: {error}"], list(self.last)) from error
        return self.report

    async def _main(self) -> None:
        await self.begin()
        actions = Actions(self)
        await actions.build()
        for step in range(1, self.settings.steps + 1):
            self.step = step
            await actions.act()
            await asyncio.sleep(self.source.expovariate(1 / self.settings.step_s))
            self.look()
        await asyncio.gather(*self._operations)
        self._found += await come_to_rest(self)
        self._found += at_rest(self.server, self.witness.overlooked)
        self.look()
        await self.end()

    # --- the server -------------------------------------------------------------------------------------------------

    async def begin(self) -> None:
        """Start a server on what is stored, and compare its state with that of the witness."""
        log_source = self._source()
        sync_s = self.source.choice((0.001, 0.01, 0.1))

        def new_log(machine: StateMachine) -> RestartableLog:
            self.log = RestartableLog(machine, self.storage, delay_s=lambda: log_source.expovariate(1 / sync_s), randomness=log_source)
            return self.log

        config = ServerConfig(
            workers=self.report.workers,
            clock=self.clock,
            seed=self._sources.getrandbits(64),
            executor="inline",
            nack_timeout_s=5.0,
            failed_follow_up_baseline_s=5.0,
            failed_follow_up_range_s=5.0,
            unblock_failed_interval_s=10.0,
        )
        self.server = Server(config, new_log=new_log, executor=self.executor)
        await self.server.__aenter__()
        if self.storage.items:
            self.compare("after a restart")

    async def restart(self) -> None:
        """Have the log crash, and start another server on what was stored."""
        self.log.crash()
        await self.server.__aexit__(None, None, None)
        await asyncio.gather(*self._operations)
        self.report.restarts += 1
        await self.begin()

    async def end(self) -> None:
        """End the server, and compare its state with that of the witness."""
        await self.server.__aexit__(None, None, None)
        self.compare("at the end")
        self.report.most_running = self.executor.most_running

    def compare(self, when: str) -> None:
        """Compare the server's state with that of the witness, which has seen the log entry by entry."""
        found = checks.differences(self.server.machine.store, self.witness.machine.store)
        if found:
            self.fail([f"{when} the server's state is not that of the log: {', '.join(found)}"])

    def note(self, action: str) -> None:
        """Note what happens, for those who read of a violation."""
        self.last.append(f"step {self.step}, {self.clock.monotonic_s():.3f} s: {action}")

    # --- operations -------------------------------------------------------------------------------------------------

    def start(self, name: str, work: Awaitable[Any]) -> None:
        """Have an operation begin; it may take a while."""
        self.note(name)
        task = asyncio.ensure_future(self._operate(name.partition(" ")[0], work))
        self._operations.add(task)
        task.add_done_callback(self._operations.discard)

    async def _operate(self, kind: str, work: Awaitable[Any]) -> None:
        try:
            written = await work
        except InvalidInput as error:
            self._found.append(f"{kind} was refused as bad input: {error}")
            return
        except FastplanError as error:
            self.report.outcomes[f"{kind}: {type(error).__name__}"] += 1
            return
        self.report.outcomes[kind] += 1
        if isinstance(written, Written) and written.index > self.witness.machine.applied:
            self._found.append(f"{kind} was acknowledged at index {written.index}, which is not stored")

    def _hear(self, reply: SubmitReply) -> None:
        """Note the answer to a plan, and see whether it is true."""
        result: Any = reply.result
        self.report.plans += 1
        self.report.refused += bool(result.rejected_nodes)
        self.report.placed += result.accepted_counts[1]
        if result.alloc_index:
            self._found += self.witness.missing(alloc for allocs in result.node_allocation.values() for alloc in allocs)

    # --- looking ----------------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Check what must hold at any time. Raises Violation."""
        found, self._found = self._found, []
        found += self.witness.violations
        found += self._errors.taken()
        found += checks.of_server(self.server)
        if found:
            self.fail(found)

    def fail(self, found: list[str]) -> None:
        """Raise Violation."""
        raise Violation(self.seed, self.step, found, list(self.last))


def simulate(seed: int, settings: SimulationSettings | None = None) -> Report:
    """Run one seed and return its report. Raises Violation."""
    return Simulation(seed, settings).run()
