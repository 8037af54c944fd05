"""A worker as a story is told to it: in front of a leader who deals what he is told, with a scheduler that does as it is told, under virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator
from typing import Any, TypeVar, cast

from fastplan.errors import FastplanError, PlanError, QueueDisabled, StateError
from fastplan.metrics import Metrics
from fastplan.scheduler.process import process
from fastplan.scheduler.requests import CreateEval, ReblockEval, SubmitPlan, UpdateEval
from fastplan.scheduler.setting import Setting
from fastplan.state.snapshot import StateReader
from fastplan.structs import Evaluation, Plan
from fastplan.testing import VirtualClock, VirtualLoop
from fastplan.worker import Dequeued, InlineExecutor, Worker, WorkerMetrics, WorkerSettings
from tests.scenarios.runner import Arguments, duration, seconds

T = TypeVar("T")
_ERRORS: dict[str, type[FastplanError]] = {"plan": PlanError, "queue": QueueDisabled, "state": StateError}


class _Snapshot:
    def __init__(self, index: int) -> None:
        self._index = index

    def latest_index(self) -> int:
        return self._index


class _State:
    """A state of which only the index counts."""

    def __init__(self) -> None:
        self.index = 10
        self.queued: dict[str, int] = {}
        self._changed = asyncio.Event()

    def latest_index(self) -> int:
        return self.index

    def snapshot(self) -> StateReader:
        return cast(StateReader, _Snapshot(self.index))

    def advance(self, index: int) -> None:
        self.index = index
        self._changed.set()
        self._changed = asyncio.Event()

    async def index_reached(self, index: int, timeout_s: float) -> None:
        async with asyncio.timeout(timeout_s):
            while self.index < index:
                await self._changed.wait()

    def queued_counts(self, namespace: str, job_id: str) -> dict[str, int]:
        return self.queued


class _Result:
    def __init__(self, refresh_index: int) -> None:
        self.refresh_index = refresh_index


class _Leader:
    """Deals what it has; of plans it says what it is told to say, else that they are committed whole."""

    def __init__(self, clock: VirtualClock, say: Callable[[str], None]) -> None:
        self.deal: deque[Dequeued | FastplanError | None] = deque()
        self.answers: deque[_Result | FastplanError] = deque()
        self.asked_s: list[float] = []
        self._clock = clock
        self._say = say

    async def dequeue(self, queues: Any, timeout_s: float, version: int) -> Dequeued | None:
        self.asked_s.append(self._clock.monotonic_s())
        if not self.deal:
            await asyncio.sleep(timeout_s)
            return None
        card = self.deal.popleft()
        if isinstance(card, FastplanError):
            raise card
        return card

    async def ack(self, eval_id: str, token: str) -> None:
        self._say(f"ack {eval_id} {token}")

    async def nack(self, eval_id: str, token: str) -> None:
        self._say(f"nack {eval_id} {token}")

    async def submit_plan(self, plan: Any) -> Any:
        self._say(f"plan {plan.number} of {plan.eval_token} made on {plan.snapshot_index}")
        answer = self.answers.popleft() if self.answers else _Result(0)
        if isinstance(answer, FastplanError):
            raise answer
        return answer

    async def update_eval(self, evaluation: Evaluation, token: str) -> None:
        self._say(f"update {evaluation.id} {token} {_written(evaluation)}")

    async def create_eval(self, evaluation: Evaluation, token: str) -> None:
        self._say(f"create {evaluation.id} {token} {_written(evaluation)}")

    async def reblock_eval(self, evaluation: Evaluation, token: str) -> None:
        self._say(f"reblock {evaluation.id} {token} made on {evaluation.snapshot_index}")


def _written(evaluation: Evaluation) -> str:
    passed_ns = evaluation.modify_time - evaluation.create_time
    times = "new" if passed_ns == 0 else "changed later" if passed_ns > 1 else "changed 1 ns after its creation"
    return f"made on {evaluation.snapshot_index}, {times}"


class WorkerSubject:
    """Commands (times as `5ms`; evaluations have the token of their name: e1, t1):

    new [index_limit=5s catch_up=50s]     start anew with a worker, on a state of index 10
    deal ID [needs=INDEX modify=INDEX type status] [does=STEP,…]
        The leader has an evaluation. Its scheduler does these steps: `plan`, `update`, `update_late` (it was created in the future), `create`,
        `reblock`, `raise` (an error), `defect`, `end` (the server ends); `real` asks the schedulers of the package.
    deal_nothing; deal_error TEXT         the leader has nothing in time; asking him fails
    answer refresh=INDEX | answer TEXT kind=plan|queue    what the next plan is answered with
    queued GROUP COUNT                    what the state says of what is queued
    index INDEX                           the state has reached that index
    wait TIME                             let time pass; says when what happened, from the start
    asked                                 when the leader was asked for evaluations since the last time
    pause, resume, stop, status, shut_down
    """

    def __init__(self) -> None:
        self._handler = _Lines()
        self._logger = logging.getLogger("fastplan.worker")
        self._logger.addHandler(self._handler)
        self._clock = VirtualClock()
        self._loop = VirtualLoop(self._clock)
        self._begin(Arguments([]))

    def _begin(self, arguments: Arguments) -> None:
        self._said: list[tuple[float, str]] = []
        self._handler.say = self._say
        self._steps: dict[str, list[str]] = {}
        self._shutting_down = False
        self._start_s = self._clock.monotonic_s()
        settings = WorkerSettings(index_limit_s=arguments.seconds("index_limit", 5.0), catch_up_limit_s=arguments.seconds("catch_up", 50.0))

        async def begin() -> None:
            self._state = _State()
            self._leader = _Leader(self._clock, self._say)
            self._worker = Worker(
                "w",
                endpoints=self._leader,
                state=self._state,
                clock=self._clock,
                executor=InlineExecutor(),
                new_setting=lambda: Setting(self._clock.now_ns),
                metrics=WorkerMetrics(Metrics()),
                is_shutting_down=lambda: self._shutting_down,
                settings=settings,
                scheduler=self._scheduler,
            )

        self._await(begin())
        self._running: asyncio.Task[None] | None = None

    def close(self) -> None:
        self._end()
        self._logger.removeHandler(self._handler)
        self._loop.close()

    def _end(self) -> None:
        self._worker.stop()
        if self._running is not None:
            self._await(self._running)

    def _await(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self._loop.run_until_complete(awaited())

    def _say(self, text: str) -> None:
        self._said.append((self._clock.monotonic_s() - self._start_s, text))

    def run(self, command: str, arguments: Arguments) -> Iterable[str]:
        answer = list(getattr(self, f"_do_{command}")(arguments) or ())
        self._await(asyncio.sleep(0))
        said, self._said = self._said, []
        return [*answer, *(f"at {duration(time_s)}: {text}" for time_s, text in said)]

    # --- the scheduler ----------------------------------------------------------------------------------------------

    def _scheduler(self, evaluation: Evaluation, state: StateReader, setting: Setting) -> Generator[Any, Any, None]:
        self._say(f"schedule {evaluation.id} on {state.latest_index()}")
        for step in self._steps.get(evaluation.id, ()):
            match step:
                case "plan":
                    try:
                        reply = yield SubmitPlan(Plan(eval_id=evaluation.id))
                    except PlanError as error:
                        self._say(f"the plan failed: {error}")
                        raise
                    self._say("committed" if reply.state is None else f"go on with {reply.state.latest_index()}")
                case "update":
                    yield UpdateEval(evaluation)
                case "update_late":
                    # Its creator's clock is ahead.
                    evaluation.create_time = 2 * self._clock.now_ns()
                    yield UpdateEval(evaluation)
                case "create":
                    yield CreateEval(Evaluation(id="next", previous_eval=evaluation.id))
                case "reblock":
                    evaluation.queued_allocations = {"web": 3}
                    yield ReblockEval(evaluation)
                case "raise":
                    raise StateError("something is missing")
                case "defect":
                    raise ValueError("a defect")
                case "end":
                    self._shutting_down = True
                case "real":
                    yield from process(evaluation, state, setting)
                case _:
                    raise AssertionError(f"no step of a scheduler: {step}")

    # --- commands ---------------------------------------------------------------------------------------------------

    def _do_new(self, arguments: Arguments) -> None:
        self._end()
        self._begin(arguments)

    def _do_deal(self, arguments: Arguments) -> None:
        eval_id = arguments.word()
        self._steps[eval_id] = [step for step in arguments.text("does").split(",") if step]
        evaluation = Evaluation(
            id=eval_id,
            type=arguments.text("type", "service"),
            job_id="web",
            status=arguments.text("status", "pending"),
            modify_index=arguments.number("modify", 5),
        )
        self._leader.deal.append(Dequeued(evaluation, f"t{eval_id.lstrip('e')}", arguments.number("needs")))

    def _do_deal_nothing(self, arguments: Arguments) -> None:
        self._leader.deal.append(None)

    def _do_deal_error(self, arguments: Arguments) -> None:
        self._leader.deal.append(StateError(arguments.word()))

    def _do_answer(self, arguments: Arguments) -> None:
        refresh = arguments.number("refresh")
        self._leader.answers.append(_Result(refresh) if refresh else _ERRORS[arguments.text("kind", "plan")](arguments.word()))

    def _do_queued(self, arguments: Arguments) -> None:
        group = arguments.word()
        self._state.queued[group] = int(arguments.word())

    def _do_index(self, arguments: Arguments) -> None:
        self._state.advance(int(arguments.word()))

    def _do_wait(self, arguments: Arguments) -> None:
        if self._running is None:
            self._running = self._loop.create_task(self._worker.run())
        self._await(asyncio.sleep(seconds(arguments.word())))

    def _do_asked(self, arguments: Arguments) -> Iterator[str]:
        asked_s, self._leader.asked_s = self._leader.asked_s, []
        yield " ".join(duration(time_s - self._start_s) for time_s in asked_s) or "never"

    def _do_pause(self, arguments: Arguments) -> None:
        self._worker.pause()

    def _do_resume(self, arguments: Arguments) -> None:
        self._worker.resume()

    def _do_stop(self, arguments: Arguments) -> None:
        self._worker.stop()

    def _do_shut_down(self, arguments: Arguments) -> None:
        self._shutting_down = True

    def _do_status(self, arguments: Arguments) -> Iterator[str]:
        info = self._worker.info()
        yield f"{info.status.value}, {info.workload.value}"


class _Lines(logging.Handler):
    """Tells what is logged."""

    say: Callable[[str], None]

    def emit(self, record: logging.LogRecord) -> None:
        self.say(f"logged: {record.getMessage()}")
