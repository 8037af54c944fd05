"""The evaluation broker (worker-and-broker 3): hands evaluations out, at least once each, one of each job at a time."""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy

from fastplan.broker.metrics import BrokerMetrics
from fastplan.broker.ready import FairQueue, PriorityQueue, ReadyQueue
from fastplan.broker.stats import FAILED_QUEUE, BrokerStats, QueueStats
from fastplan.clock import Clock
from fastplan.errors import BrokerDisabled, BrokerError, InvalidInput, TokenRejected
from fastplan.structs import Evaluation
from fastplan.structs.times import time_ns

DISABLED: Final = "eval broker disabled"
NOT_OUTSTANDING: Final = "evaluation is not outstanding"
TOKEN_MISMATCH: Final = "evaluation token does not match"
TIMEOUT_REACHED: Final = "evaluation nack timeout reached"
ID_NOT_FOUND: Final = "Evaluation ID not found"
TOKEN_OF_ID: Final = "Token does not match for Evaluation ID"
ACK_TOO_LATE: Final = "Evaluation ID Ack'd after Nack timer expiration"

MAX_SECONDS: Final = 1e12
"""Durations are at most this; adding one to a clock is exact enough."""

_TOKENS_AT_ONCE: Final = 256
_DIGIT_PLACES: Final = [place for place in range(36) if place not in (8, 13, 18, 23)]

_VOID_AT_LEAST: Final = 64
"""So many void entries in a heap are no reason to clear it up."""

JobKey = tuple[str, str]


def is_duration(value: object) -> bool:
    """Return whether a value is a finite number of seconds, 0 or more."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_SECONDS


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Limits of the broker, in seconds (worker-and-broker 9). Raises InvalidInput for what makes no sense."""

    nack_timeout_s: float = 60.0
    delivery_limit: int = 3
    initial_nack_delay_s: float = 1.0
    subsequent_nack_delay_s: float = 20.0
    fair_share: bool = False

    def __post_init__(self) -> None:
        if not (is_duration(self.nack_timeout_s) and self.nack_timeout_s > 0):
            raise InvalidInput("broker.nack_timeout_s", self.nack_timeout_s, "seconds > 0")
        if type(self.delivery_limit) is not int or self.delivery_limit < 1:
            raise InvalidInput("broker.delivery_limit", self.delivery_limit, "integer ≥ 1")
        for name in ("initial_nack_delay_s", "subsequent_nack_delay_s"):
            if not is_duration(getattr(self, name)):
                raise InvalidInput(f"broker.{name}", getattr(self, name), "seconds ≥ 0")

    def nack_delay_s(self, deliveries: int) -> float:
        """Return how long an evaluation waits after it was given back so often (worker-and-broker 3.7)."""
        if deliveries <= 0:
            return 0.0
        return self.initial_nack_delay_s if deliveries == 1 else (deliveries - 1) * self.subsequent_nack_delay_s


class Delivery(NamedTuple):
    """An evaluation as it is handed out, at a monotonic time: shared, not to be changed. *token* goes back with it."""

    evaluation: Evaluation
    token: str
    queue: str
    delivered_s: float


def _new_tokens(randomness: random.Random) -> list[str]:
    """Return random tokens in the form of UUIDs."""
    form = numpy.full((_TOKENS_AT_ONCE, 36), ord("-"), numpy.uint8)
    digits = randomness.randbytes(16 * _TOKENS_AT_ONCE).hex().encode()
    form[:, _DIGIT_PLACES] = numpy.frombuffer(digits, numpy.uint8).reshape(_TOKENS_AT_ONCE, 32)
    text = form.tobytes().decode()
    return [text[place : place + 36] for place in range(0, len(text), 36)]


class _Wait(NamedTuple):
    evaluation: Evaluation
    number: int


def start_ns(evaluation: Evaluation) -> int:
    """Return the time in Unix nanoseconds until which an evaluation has to wait, 0 for none. Raises InvalidInput for what no broker can take."""
    if not evaluation.id:
        raise InvalidInput("eval.ID", evaluation.id, "text that is not empty")
    return time_ns(evaluation.wait_until, "eval.WaitUntil") if evaluation.wait_until else 0


class EvalBroker:
    """The broker of a leader. All calls in one thread. A new broker is off.

    Records that are given to it are shared with the state and never changed.
    """

    def __init__(
        self,
        clock: Clock,
        settings: BrokerSettings | None = None,
        randomness: random.Random | None = None,
        metrics: BrokerMetrics | None = None,
    ) -> None:
        """*randomness*: tokens, and which of equal queues is served. *metrics*: where times and, at `report`, figures go."""
        self._clock = clock
        self._settings = settings or BrokerSettings()
        self._random = randomness or random.Random()
        self._metrics = metrics
        self._listener: Callable[[], None] | None = None
        self._numbers = 0
        self._tokens: list[str] = []
        self.enabled = False
        self._clear()

    def _clear(self) -> None:
        # How often each evaluation that is known was delivered.
        self._deliveries: dict[str, int] = {}
        self._owners: dict[JobKey, str] = {}
        self._pending: dict[JobKey, list[tuple[int, int, int, Evaluation]]] = {}
        self._pending_count = 0
        self._ready: dict[str, ReadyQueue] = {}
        self._unacked: dict[str, Delivery] = {}
        # Running nack timers: id → deadline. All run for the same time, so they fire in the order in which they were started.
        self._timers: OrderedDict[str, float] = OrderedDict()
        self._requeue: dict[str, Evaluation] = {}
        # What waits, and heaps of (time, number of the wait, id): an entry whose number is not the newest of its id is void.
        self._waits: dict[str, _Wait] = {}
        self._wait_heap: list[tuple[float, int, str]] = []
        self._delayed: dict[str, _Wait] = {}
        self._delay_heap: list[tuple[int, int, str]] = []
        self._cancelable: deque[Evaluation] = deque()
        if self._metrics is not None:
            self._metrics.clear()

    # --- switching --------------------------------------------------------------------------------------------------

    def set_enabled(self, enabled: bool) -> None:
        """Switch the broker on, or off: then everything is forgotten, delivery counts and tokens too."""
        if self.enabled and not enabled:
            self._clear()
        changed = self.enabled is not enabled
        self.enabled = enabled
        if changed:
            self._notify()

    def set_listener(self, listener: Callable[[], None] | None) -> None:
        """Have *listener* called when something has become ready, when the next deadline may be sooner, and when the broker was switched.

        It may call the broker. After a `dequeue` the caller itself looks at the next deadline.
        """
        self._listener = listener

    def _notify(self) -> None:
        if self._listener is not None:
            self._listener()

    # --- taking in (3.3) --------------------------------------------------------------------------------------------

    def enqueue(self, evaluation: Evaluation, token: str = "") -> None:
        """Take an evaluation in. With the token of its present delivery it is taken in again once that is acked.

        Raises InvalidInput, and changes nothing, for an evaluation without an id and for a `wait_until` that is no time.
        """
        if self._take(evaluation, token, start_ns(evaluation)):
            self._notify()

    def restore(self, evaluation: Evaluation) -> None:
        """Take in an evaluation that the state holds, after a leadership was gained. When it first came is not known. Raises InvalidInput like `enqueue`."""
        if self._take(evaluation, "", start_ns(evaluation), timed=False):
            self._notify()

    def enqueue_all(self, evaluations: Iterable[tuple[Evaluation, str]]) -> None:
        """Take evaluations in, each with a token or an empty text. Whoever waits sees all of them at once. Raises InvalidInput like `enqueue`."""
        changed = False
        for evaluation, token, until_ns in [(evaluation, token, start_ns(evaluation)) for evaluation, token in evaluations]:
            changed |= self._take(evaluation, token, until_ns)
        if changed:
            self._notify()

    def _take(self, evaluation: Evaluation, token: str, until_ns: int, *, timed: bool = True) -> bool:
        """Take one in that is not to be delivered before *until_ns*; return whether that matters to the listener: it is ready, or a deadline may be sooner."""
        if not self.enabled:
            return False
        eval_id = evaluation.id
        if eval_id in self._deliveries:
            delivery = self._unacked.get(eval_id)
            if token and delivery is not None and delivery.token == token:
                self._requeue[token] = evaluation
            return False
        self._deliveries[eval_id] = 0
        if timed and self._metrics is not None:
            self._metrics.arrived(eval_id, self._clock.monotonic_s())
        if evaluation.wait > 0:
            self._wait(evaluation, evaluation.wait / 1e9)
            return True
        if until_ns and until_ns > self._clock.now_ns():
            self._numbers += 1
            self._delayed[eval_id] = _Wait(evaluation, self._numbers)
            heapq.heappush(self._delay_heap, (until_ns, self._numbers, eval_id))
            return True
        return self._make_ready(evaluation, evaluation.type)

    def _wait(self, evaluation: Evaluation, delay_s: float) -> None:
        self._numbers += 1
        self._waits[evaluation.id] = _Wait(evaluation, self._numbers)
        heapq.heappush(self._wait_heap, (self._clock.monotonic_s() + delay_s, self._numbers, evaluation.id))

    def _make_ready(self, evaluation: Evaluation, queue: str) -> bool:
        """Queue an evaluation, behind others of its job where there are; return whether it is ready."""
        key = (evaluation.namespace, evaluation.job_id)
        owner = self._owners.setdefault(key, evaluation.id)
        if owner != evaluation.id:
            self._numbers += 1
            heapq.heappush(self._pending.setdefault(key, []), (-evaluation.priority, -evaluation.modify_index, self._numbers, evaluation))
            self._pending_count += 1
            return False
        ready = self._ready.get(queue)
        if ready is None:
            ready = self._ready[queue] = FairQueue() if self._settings.fair_share else PriorityQueue()
        ready.push(evaluation)
        return True

    # --- handing out (3.4, 3.5) -------------------------------------------------------------------------------------

    def has_ready(self, queues: Sequence[str]) -> bool:
        """Return whether one of the queues has something."""
        return any(len(self._ready.get(queue, ())) for queue in queues)

    def dequeue(self, queues: Sequence[str]) -> Delivery | None:
        """Hand out the best evaluation of some queues, None if there is none. Raises BrokerDisabled.

        Of several queues with equal priorities one is drawn.
        """
        if not self.enabled:
            raise BrokerDisabled(DISABLED)
        names = []
        for name in queues:
            # Not a comprehension: that is a call of its own before CPython 3.12.
            if self._ready.get(name):
                names.append(name)
        if not names:
            return None
        name = names[0] if len(names) == 1 else self._most_urgent(names)
        evaluation = self._ready[name].pop()
        eval_id = evaluation.id
        now_s = self._clock.monotonic_s()
        delivery = Delivery(evaluation, self._new_token(), name, now_s)
        self._unacked[eval_id] = delivery
        self._timers[eval_id] = now_s + self._settings.nack_timeout_s
        self._deliveries[eval_id] += 1
        return delivery

    def _most_urgent(self, names: list[str]) -> str:
        """Return which of some queues that have something is to be served."""
        priorities = {name: self._ready[name].priority() for name in names}
        highest = max(priorities.values())
        best = [name for name, priority in priorities.items() if priority == highest]
        return best[0] if len(best) == 1 else self._random.choice(best)

    def _new_token(self) -> str:
        if not self._tokens:
            self._tokens = _new_tokens(self._random)
        return self._tokens.pop()

    def _release(self, delivery: Delivery, now_s: float, *, handled: bool) -> None:
        """End a delivery."""
        eval_id = delivery.evaluation.id
        if self._metrics is not None:
            self._metrics.came_back(eval_id, delivery.delivered_s, now_s, first=self._deliveries[eval_id] == 1, handled=handled)
        del self._unacked[eval_id]
        self._timers.pop(eval_id, None)

    def _held(self, eval_id: str, token: str) -> Delivery:
        delivery = self._unacked.get(eval_id)
        if delivery is None:
            raise BrokerError(ID_NOT_FOUND)
        if delivery.token != token:
            raise BrokerError(TOKEN_OF_ID)
        return delivery

    # --- ack and nack (3.6, 3.7) ------------------------------------------------------------------------------------

    def ack(self, eval_id: str, token: str) -> None:
        """Take an evaluation as handled. Of others of its job the most urgent and newest becomes ready, the rest is superseded.

        Raises BrokerError for one that is not outstanding, another token, and an ack after the nack timer has fired.
        """
        requeued = self._requeue.pop(token, None)
        delivery = self._held(eval_id, token)
        deadline_s = self._timers.get(eval_id)
        now_s = self._clock.monotonic_s()
        if deadline_s is not None and deadline_s <= now_s:
            raise BrokerError(ACK_TOO_LATE)
        self._release(delivery, now_s, handled=True)
        del self._deliveries[eval_id]
        evaluation = delivery.evaluation
        key = (evaluation.namespace, evaluation.job_id)
        del self._owners[key]
        changed = False
        pending = self._pending.pop(key, None)
        if pending is not None:
            kept = heapq.heappop(pending)[3]
            self._pending_count -= 1 + len(pending)
            for _, _, _, superseded in sorted(pending):
                del self._deliveries[superseded.id]
                self._cancelable.append(superseded)
                if self._metrics is not None:
                    self._metrics.gone(superseded.id)
            changed = self._make_ready(kept, kept.type)
        if requeued is not None:
            changed |= self._take(requeued, "", start_ns(requeued))
        if changed:
            self._notify()

    def nack(self, eval_id: str, token: str) -> None:
        """Take an evaluation back: it is delivered again after a while, or goes to the failed queue. Raises BrokerError like `ack`."""
        self._requeue.pop(token, None)
        self._give_back(self._held(eval_id, token))
        self._notify()

    def _give_back(self, delivery: Delivery) -> None:
        """End a delivery without success: the evaluation is ready now or later, here or in the failed queue."""
        evaluation = delivery.evaluation
        self._release(delivery, self._clock.monotonic_s(), handled=False)
        deliveries = self._deliveries[evaluation.id]
        if deliveries >= self._settings.delivery_limit:
            self._make_ready(evaluation, FAILED_QUEUE)
            return
        delay_s = self._settings.nack_delay_s(deliveries)
        if delay_s > 0:
            # The job stays its: others wait until it was handled.
            self._wait(evaluation, delay_s)
        else:
            self._make_ready(evaluation, evaluation.type)

    # --- outstanding (3.8) ------------------------------------------------------------------------------------------

    def outstanding(self, eval_id: str) -> str | None:
        """Return the token of an evaluation that is held by a worker, None if it is not."""
        delivery = self._unacked.get(eval_id)
        return None if delivery is None else delivery.token

    def _check_outstanding(self, eval_id: str, token: str) -> None:
        delivery = self._unacked.get(eval_id)
        if delivery is None:
            raise TokenRejected(NOT_OUTSTANDING)
        if delivery.token != token:
            raise TokenRejected(TOKEN_MISMATCH)

    def _check_running(self, eval_id: str) -> None:
        deadline_s = self._timers.get(eval_id)
        if deadline_s is None or deadline_s <= self._clock.monotonic_s():
            raise TokenRejected(TIMEOUT_REACHED)

    def outstanding_reset(self, eval_id: str, token: str) -> None:
        """Start the nack timer again, with its full time. Raises TokenRejected."""
        self._check_outstanding(eval_id, token)
        self._check_running(eval_id)
        self._start_timer(eval_id)

    def pause_nack(self, eval_id: str, token: str) -> None:
        """Stop the nack timer: a plan of the evaluation is on its way. Raises TokenRejected, also if it stands still already."""
        self._check_outstanding(eval_id, token)
        self._check_running(eval_id)
        del self._timers[eval_id]

    def resume_nack(self, eval_id: str, token: str) -> None:
        """Start the nack timer again, with its full time. Raises TokenRejected."""
        self._check_outstanding(eval_id, token)
        self._start_timer(eval_id)
        if len(self._timers) == 1:
            # Nobody may be looking at the time: without a timer there was nothing to look for.
            self._notify()

    def _start_timer(self, eval_id: str) -> None:
        self._timers[eval_id] = self._clock.monotonic_s() + self._settings.nack_timeout_s
        self._timers.move_to_end(eval_id)

    # --- waiting (3.9) ----------------------------------------------------------------------------------------------

    def drop_waiting(self, evaluation: Evaluation) -> None:
        """Forget an evaluation that waits for a point in time: what it waited for is void. Others are left alone."""
        if self._delayed.pop(evaluation.id, None) is not None:
            del self._deliveries[evaluation.id]
            if self._metrics is not None:
                self._metrics.gone(evaluation.id)
            if len(self._delay_heap) > 2 * len(self._delayed) + _VOID_AT_LEAST:
                # Void entries for times far away would stay for as long.
                self._delay_heap = [entry for entry in self._delay_heap if self._is_current(self._delayed, entry)]
                heapq.heapify(self._delay_heap)

    # --- time -------------------------------------------------------------------------------------------------------

    def advance(self) -> None:
        """Do what is due: nack what was held too long, and make ready what has waited long enough."""
        now_s, now_ns = self._clock.monotonic_s(), self._clock.now_ns()
        changed = False
        while self._timers:
            eval_id, deadline_s = next(iter(self._timers.items()))
            if deadline_s > now_s:
                break
            delivery = self._unacked[eval_id]
            self._requeue.pop(delivery.token, None)
            self._give_back(delivery)
            changed = True
        while self._wait_heap and self._wait_heap[0][0] <= now_s:
            _, number, eval_id = heapq.heappop(self._wait_heap)
            changed |= self._due(self._waits, number, eval_id)
        while self._delay_heap and self._delay_heap[0][0] <= now_ns:
            _, number, eval_id = heapq.heappop(self._delay_heap)
            changed |= self._due(self._delayed, number, eval_id)
        if changed:
            self._notify()

    def _due(self, waits: dict[str, _Wait], number: int, eval_id: str) -> bool:
        wait = waits.get(eval_id)
        if wait is None or wait.number != number:
            return False
        del waits[eval_id]
        return self._make_ready(wait.evaluation, wait.evaluation.type)

    def next_deadline_s(self) -> float | None:
        """Return the monotonic time at which `advance` has something to do, None for never; waits for a wall-clock time as the clocks stand now."""
        deadlines = []
        if self._timers:
            deadlines.append(next(iter(self._timers.values())))
        while self._wait_heap and not self._is_current(self._waits, self._wait_heap[0]):
            heapq.heappop(self._wait_heap)
        if self._wait_heap:
            deadlines.append(self._wait_heap[0][0])
        while self._delay_heap and not self._is_current(self._delayed, self._delay_heap[0]):
            heapq.heappop(self._delay_heap)
        if self._delay_heap:
            deadlines.append(self._clock.monotonic_s() + (self._delay_heap[0][0] - self._clock.now_ns()) / 1e9)
        return min(deadlines, default=None)

    def _is_current(self, waits: dict[str, _Wait], entry: tuple[float, int, str]) -> bool:
        wait = waits.get(entry[2])
        return wait is not None and wait.number == entry[1]

    # --- reaping and figures (3.11, 3.12) ---------------------------------------------------------------------------

    def cancelable(self, count: int) -> list[Evaluation]:
        """Take up to *count* superseded evaluations, which somebody has to cancel."""
        return [self._cancelable.popleft() for _ in range(min(count, len(self._cancelable)))]

    def stats(self) -> BrokerStats:
        """Return the figures; whoever changes them changes nothing here."""
        stats = self._figures()
        stats.delayed_evals = {eval_id: wait.evaluation.copy() for eval_id, wait in self._delayed.items()}
        return stats

    def _figures(self) -> BrokerStats:
        """Return the figures without the delayed evaluations, of which there may be many."""
        by_scheduler = {name: QueueStats(ready=len(queue)) for name, queue in self._ready.items() if len(queue)}
        for delivery in self._unacked.values():
            by_scheduler.setdefault(delivery.queue, QueueStats()).unacked += 1
        return BrokerStats(
            total_ready=sum(len(queue) for queue in self._ready.values()),
            total_unacked=len(self._unacked),
            total_pending=self._pending_count,
            total_waiting=len(self._waits) + len(self._delayed),
            total_cancelable=len(self._cancelable),
            by_scheduler=by_scheduler,
        )

    def report(self) -> None:
        """Set the gauges of the metrics to the present figures."""
        if self._metrics is not None:
            self._metrics.report(self._figures(), (wait.evaluation for wait in self._delayed.values()), self._clock.now_ns())

    def is_idle(self) -> bool:
        """Return whether nothing is ready, held, or waiting for another evaluation of its job."""
        return not (self._unacked or self._pending_count or any(len(queue) for queue in self._ready.values()))

    def known_ids(self) -> set[str]:
        """Return the ids of all evaluations that the broker has, superseded ones included."""
        return {*self._deliveries, *(evaluation.id for evaluation in self._cancelable)}

    def contradictions(self) -> list[str]:
        """Return what of the broker's own figures does not fit together (worker-and-broker 3.11); empty if all is well."""
        found = []
        if self._pending_count != sum(len(pending) for pending in self._pending.values()):
            found.append("the number of pending evaluations is wrong")
        ready = [evaluation for queue in self._ready.values() for evaluation in queue]
        for evaluation in [*ready, *(delivery.evaluation for delivery in self._unacked.values())]:
            if self._owners.get((evaluation.namespace, evaluation.job_id)) != evaluation.id:
                found.append(f"evaluation {evaluation.id} does not own its job")
        at_work = {evaluation.id for evaluation in ready} | set(self._unacked) | set(self._waits)
        if not set(self._owners.values()) <= at_work:
            found.append("a job belongs to an evaluation that is not at work")
        if not set(self._pending) <= set(self._owners):
            found.append("evaluations wait for another one of their job, and there is none")
        if not set(self._timers) <= set(self._unacked) or not set(self._requeue) <= {delivery.token for delivery in self._unacked.values()}:
            found.append("a timer runs for, or an evaluation waits for the end of, a delivery that is over")
        pending = [entry[3] for heap in self._pending.values() for entry in heap]
        waiting = [wait.evaluation for waits in (self._waits, self._delayed) for wait in waits.values()]
        places = [evaluation.id for evaluation in [*ready, *pending, *waiting]] + list(self._unacked)
        if len(places) != len(set(places)):
            found.append("an evaluation is in two places")
        if set(places) != set(self._deliveries):
            found.append("an evaluation that is known is nowhere, or one that is somewhere is not known")
        return found
