"""The broker as a story is told to it, behind its gate, on an event loop under virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from fastplan.broker import BrokerGate, BrokerSettings, Delivery, EvalBroker
from fastplan.errors import FastplanError
from fastplan.structs import Evaluation
from fastplan.testing import VirtualClock, VirtualLoop
from tests.scenarios.runner import Arguments, duration, numbers, seconds

T = TypeVar("T")


class BrokerSubject:
    """Commands (durations as `5ms`; an evaluation is described once, then named):

    broker [off] [fair] nack=5s initial=5ms subsequent=50ms limit=3   start with a new broker
    enable, disable
    enqueue ID [namespace job priority type create modify wait until token], restore ID   `until` counts from now
    many ID FROM..TO options     the same for many, `{}` stands for the number
    enqueue_all ID ID:TOKEN …
    dequeue [QUEUE,…]            `ID TOKEN`; tokens are called t1, t2 … as they appear
    drain [QUEUE,…]              dequeue until nothing is left; runs of ids are shortened
    longest_run QUEUE,…          dequeue until nothing is left; the longest run of one type
    ack, nack, reset, pause, resume ID TOKEN; outstanding ID
    late_ack TIME ID TOKEN       let time pass and ack before anybody tells the broker
    waiter NAME [QUEUE,…] [for=TIME]   wait for an evaluation at the gate
    wait TIME                    let time pass; says what waiters got
    jump TIME                    set the wall clock forward or back
    drop ID, cancelable N, stats, queues, spoil_stats, wait_of ID, timers
    """

    def __init__(self) -> None:
        self._clock = VirtualClock()
        self._loop = VirtualLoop(self._clock)
        self._evals: dict[str, Evaluation] = {}
        self._tokens: dict[str, str] = {}
        self._waiters: list[asyncio.Task[None]] = []
        self._heard: list[str] = []
        self._begin(BrokerSettings(nack_timeout_s=5.0, initial_nack_delay_s=0.005, subsequent_nack_delay_s=0.05), on=True)

    def _begin(self, settings: BrokerSettings, *, on: bool) -> None:
        self._evals.clear()
        self._tokens.clear()
        self._broker = EvalBroker(self._clock, settings, random.Random(1))
        self._gate = BrokerGate(self._broker, self._clock)
        self._settings = settings
        self._broker.set_enabled(on)
        # From its first call on the gate tells the broker the time.
        self._sleep(self._gate.dequeue(("none",), 0.0) if on else asyncio.sleep(0))

    def close(self) -> None:
        for waiter in self._waiters:
            waiter.cancel()
        self._sleep(asyncio.sleep(0))
        self._gate.close()
        self._loop.close()

    def run(self, command: str, arguments: Arguments) -> Iterable[str]:
        answer = list(getattr(self, f"_do_{command}")(arguments) or ())
        # Whoever waits may have been woken.
        for _ in range(4):
            self._sleep(asyncio.sleep(0))
        assert self._broker.contradictions() == []
        heard, self._heard = self._heard, []
        return [*answer, *heard]

    def _sleep(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self._loop.run_until_complete(awaited())

    # --- switching ----------------------------------------------------------------------------------------------------

    def _do_broker(self, arguments: Arguments) -> None:
        settings = BrokerSettings(
            nack_timeout_s=arguments.seconds("nack", 5.0),
            delivery_limit=arguments.number("limit", 3),
            initial_nack_delay_s=arguments.seconds("initial", 0.005),
            subsequent_nack_delay_s=arguments.seconds("subsequent", 0.05),
            fair_share=arguments.flag("fair"),
        )
        self._begin(settings, on=not arguments.flag("off"))

    def _do_enable(self, arguments: Arguments) -> None:
        self._broker.set_enabled(True)

    def _do_disable(self, arguments: Arguments) -> None:
        self._broker.set_enabled(False)

    # --- taking in ----------------------------------------------------------------------------------------------------

    def _evaluation(self, eval_id: str, arguments: Arguments) -> Evaluation:
        if eval_id in self._evals and not arguments.options:
            return self._evals[eval_id]
        until = arguments.text("until")
        evaluation = Evaluation(
            id=eval_id,
            namespace=arguments.text("namespace", "default"),
            job_id=arguments.text("job", f"job-of-{eval_id}"),
            priority=arguments.number("priority", 50),
            type=arguments.text("type", "service"),
            create_index=arguments.number("create"),
            modify_index=arguments.number("modify"),
            wait=round(arguments.seconds("wait") * 1e9),
            wait_until=self._clock.now_ns() + round(seconds(until) * 1e9) if until[:1] in ("+", "-") else until,
            status="pending",
        )
        self._evals[eval_id] = evaluation
        return evaluation

    def _do_define(self, arguments: Arguments) -> None:
        self._evaluation(arguments.word(), arguments)

    def _do_enqueue(self, arguments: Arguments) -> None:
        token = self._tokens.get(text, text) if (text := arguments.text("token")) else ""
        self._broker.enqueue(self._evaluation(arguments.word(), arguments), token)

    def _do_restore(self, arguments: Arguments) -> None:
        self._broker.restore(self._evaluation(arguments.word(), arguments))

    def _do_many(self, arguments: Arguments) -> None:
        prefix, span = arguments.word(), arguments.word()
        options, arguments.options = arguments.options, {}
        for number in numbers(span):
            described = Arguments(f"{key}={value.replace('{}', str(number))}" for key, value in options.items())
            self._broker.enqueue(self._evaluation(f"{prefix}{number}", described))
            described.check_used()

    def _do_enqueue_all(self, arguments: Arguments) -> None:
        batch = []
        for word in arguments.rest():
            eval_id, _, token = word.partition(":")
            batch.append((self._evals[eval_id], self._tokens.get(token, token)))
        self._broker.enqueue_all(batch)

    # --- handing out --------------------------------------------------------------------------------------------------

    def _told(self, delivery: Delivery | None) -> str:
        if delivery is None:
            return "nothing"
        assert delivery.token not in self._tokens.values(), "a token was used twice"
        name = f"t{len(self._tokens) + 1}"
        self._tokens[name] = delivery.token
        return f"{delivery.evaluation.id} {name}"

    def _do_dequeue(self, arguments: Arguments) -> Iterator[str]:
        queues = _queues(arguments)
        yield self._told(self._sleep(self._gate.dequeue(queues, 0.0)) if self._broker.enabled else self._broker.dequeue(queues))

    def _drained(self, arguments: Arguments) -> Iterator[Evaluation]:
        queues = _queues(arguments)
        while (delivery := self._broker.dequeue(queues)) is not None:
            yield delivery.evaluation

    def _do_drain(self, arguments: Arguments) -> Iterator[str]:
        yield " ".join(_shortened([each.id for each in self._drained(arguments)])) or "nothing"

    def _do_longest_run(self, arguments: Arguments) -> Iterator[str]:
        longest = count = 0
        last = ""
        for evaluation in self._drained(arguments):
            count = count + 1 if evaluation.type == last else 1
            last = evaluation.type
            longest = max(longest, count)
        yield str(longest)

    def _held(self, arguments: Arguments) -> tuple[str, str]:
        eval_id, token = arguments.word(), arguments.word()
        return eval_id, self._tokens.get(token, token)

    def _do_ack(self, arguments: Arguments) -> None:
        self._broker.ack(*self._held(arguments))

    def _do_late_ack(self, arguments: Arguments) -> None:
        self._clock.advance(seconds(arguments.word()))
        self._broker.ack(*self._held(arguments))

    def _do_nack(self, arguments: Arguments) -> None:
        self._broker.nack(*self._held(arguments))

    def _do_reset(self, arguments: Arguments) -> None:
        self._broker.outstanding_reset(*self._held(arguments))

    def _do_pause(self, arguments: Arguments) -> None:
        self._broker.pause_nack(*self._held(arguments))

    def _do_resume(self, arguments: Arguments) -> None:
        self._broker.resume_nack(*self._held(arguments))

    def _do_outstanding(self, arguments: Arguments) -> Iterator[str]:
        token = self._broker.outstanding(arguments.word())
        yield next((name for name, each in self._tokens.items() if each == token), "nobody")

    # --- time ---------------------------------------------------------------------------------------------------------

    def _do_waiter(self, arguments: Arguments) -> None:
        timeout_s = arguments.seconds("for") if "for" in arguments.options else None
        name, queues = arguments.word(), _queues(arguments)
        self._waiters.append(self._loop.create_task(self._waiting(name, lambda: self._gate.dequeue(queues, timeout_s))))

    async def _waiting(self, name: str, dequeue: Callable[[], Awaitable[Delivery | None]]) -> None:
        start_s = self._clock.monotonic_s()
        try:
            found = self._told(await dequeue())
        except FastplanError as error:
            found = f"error: {error}"
        self._heard.append(f"{name} after {duration(self._clock.monotonic_s() - start_s)}: {found}")

    def _do_wait(self, arguments: Arguments) -> None:
        # A little more, so that what is due at the end is done.
        self._sleep(asyncio.sleep(seconds(arguments.word()) + 2e-6))

    def _do_jump(self, arguments: Arguments) -> None:
        self._clock.jump_wall(seconds(arguments.word()))

    def _do_timers(self, arguments: Arguments) -> Iterator[str]:
        deadline_s = self._broker.next_deadline_s()
        yield "none" if deadline_s is None else f"next in {duration(deadline_s - self._clock.monotonic_s())}"

    # --- the rest -----------------------------------------------------------------------------------------------------

    def _do_drop(self, arguments: Arguments) -> None:
        self._broker.drop_waiting(self._evals[arguments.word()])

    def _do_cancelable(self, arguments: Arguments) -> Iterator[str]:
        found = self._broker.cancelable(int(arguments.word()))
        yield " ".join(_shortened([each.id for each in found])) or "nothing"

    def _do_stats(self, arguments: Arguments) -> Iterator[str]:
        stats = self._broker.stats()
        counts = {
            "ready": stats.total_ready,
            "unacked": stats.total_unacked,
            "pending": stats.total_pending,
            "waiting": stats.total_waiting,
            "cancelable": stats.total_cancelable,
        }
        yield ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "all zero"

    def _do_queues(self, arguments: Arguments) -> Iterator[str]:
        stats = self._broker.stats()
        for name, queue in sorted(stats.by_scheduler.items()):
            yield f"{name}: ready {queue.ready}, unacked {queue.unacked}"
        if stats.delayed_evals:
            yield f"delayed: {' '.join(stats.delayed_evals)}"
        if not (stats.by_scheduler or stats.delayed_evals):
            yield "none"

    def _do_spoil_stats(self, arguments: Arguments) -> None:
        stats = self._broker.stats()
        stats.total_ready = 1000
        for evaluation in stats.delayed_evals.values():
            evaluation.priority = -1
        stats.delayed_evals.clear()
        stats.by_scheduler.clear()

    def _do_wait_of(self, arguments: Arguments) -> Iterator[str]:
        yield duration(self._evals[arguments.word()].wait / 1e9)

    def _do_delays(self, arguments: Arguments) -> Iterator[str]:
        yield " ".join(duration(self._settings.nack_delay_s(int(deliveries))) for deliveries in arguments.rest())


def _queues(arguments: Arguments) -> list[str]:
    return arguments.word("service").split(",")


def _shortened(ids: list[str]) -> Iterator[str]:
    """Yield ids, of runs such as e1 e2 e3 or e3 e2 e1 only both ends."""
    place = 0
    while place < len(ids):
        end = place
        step = 0
        while end + 1 < len(ids):
            here, there = ids[end], ids[end + 1]
            prefix = here.rstrip("0123456789")
            if prefix != there.rstrip("0123456789") or here == prefix or there == prefix:
                break
            move = int(there[len(prefix) :]) - int(here[len(prefix) :])
            if abs(move) != 1 or (step and move != step):
                break
            step = move
            end += 1
        yield ids[place] if end < place + 2 else f"{ids[place]}..{ids[end]}"
        place = place + 1 if end < place + 2 else end + 1
