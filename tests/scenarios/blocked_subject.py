"""The tracker of blocked evaluations as a story is told to it, in front of a broker, under virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from fastplan.broker import BlockedEvals, EvalBroker
from fastplan.structs import Evaluation
from fastplan.testing import VirtualClock
from tests.scenarios.runner import Arguments, numbers, seconds


class BlockedSubject:
    """Commands (an evaluation is described once, then named):

    new [off]                    start with a new tracker and a new broker
    enable, disable
    block ID [namespace job type node trigger create snapshot quota eligible=A,B ineligible=C missing=V,W until]
             [escaped]
    define ID …                  describe without blocking
    many ID FROM..TO options     the same for many, `{}` stands for the number
    reblock ID TOKEN
    unblock CLASS at=INDEX [quota=NAME]; unblock_quota NAME at=INDEX; unblock_resources NAME,… at=INDEX; unblock_node NODE; unblock_failed
    untrack JOB [namespace]
    duplicates, tracked, stats, prune, wait TIME
    ready                        how many evaluations the broker has ready
    enqueue, dequeue, ack, nack  at the broker; tokens are called t1, t2 …
    """

    def __init__(self) -> None:
        self._clock = VirtualClock()
        self._begin(on=True)

    def _begin(self, *, on: bool) -> None:
        self._evals: dict[str, Evaluation] = {}
        self._tokens: dict[str, str] = {}
        self._released: list[tuple[Evaluation, str]] = []
        self._broker = EvalBroker(self._clock, None, random.Random(1))
        self._broker.set_enabled(True)
        self._tracker = BlockedEvals(self._clock, None, self._take)
        self._tracker.set_enabled(on)

    def _take(self, evaluations: list[tuple[Evaluation, str]]) -> None:
        self._released += evaluations
        self._broker.enqueue_all(evaluations)

    def close(self) -> None:
        self._tracker.set_enabled(False)

    def run(self, command: str, arguments: Arguments) -> Iterable[str]:
        answer = list(getattr(self, f"_do_{command}")(arguments) or ())
        assert self._tracker.contradictions() == []
        if self._released:
            ids = [evaluation.id for evaluation, _ in self._released]
            answer.append(f"released {' '.join(ids)}" if len(ids) < 20 else f"released {len(ids)}, {len(set(ids))} different")
            self._released = []
        return answer

    def _do_new(self, arguments: Arguments) -> None:
        self._begin(on=not arguments.flag("off"))

    def _do_enable(self, arguments: Arguments) -> None:
        self._tracker.set_enabled(True)

    def _do_disable(self, arguments: Arguments) -> None:
        self._tracker.set_enabled(False)

    def _evaluation(self, eval_id: str, arguments: Arguments) -> Evaluation:
        escaped = arguments.flag("escaped")
        if eval_id in self._evals and not arguments.options:
            return self._evals[eval_id]
        eligibility = dict.fromkeys(filter(None, arguments.text("eligible").split(",")), True)
        eligibility |= dict.fromkeys(filter(None, arguments.text("ineligible").split(",")), False)
        evaluation = Evaluation(
            id=eval_id,
            namespace=arguments.text("namespace", "default"),
            job_id=arguments.text("job", f"job-of-{eval_id}"),
            priority=50,
            type=arguments.text("type", "service"),
            node_id=arguments.text("node"),
            triggered_by=arguments.text("trigger", "queued-allocs"),
            status="blocked",
            create_index=arguments.number("create"),
            snapshot_index=arguments.number("snapshot"),
            class_eligibility=eligibility,
            escaped_computed_class=escaped,
            wait_until=arguments.text("until"),
            quota_limit_reached=arguments.text("quota"),
            missing_non_node_resources=list(filter(None, arguments.text("missing").split(","))),
        )
        self._evals[eval_id] = evaluation
        return evaluation

    def _do_define(self, arguments: Arguments) -> None:
        self._evaluation(arguments.word(), arguments)

    def _do_block(self, arguments: Arguments) -> None:
        self._tracker.block(self._evaluation(arguments.word(), arguments))

    def _do_many(self, arguments: Arguments) -> None:
        prefix, span = arguments.word(), arguments.word()
        options, arguments.options = arguments.options, {}
        words = arguments.rest()
        for number in numbers(span):
            described = Arguments([*words, *(f"{key}={value.replace('{}', str(number))}" for key, value in options.items())])
            self._tracker.block(self._evaluation(f"{prefix}{number}", described))
            described.check_used()

    def _do_reblock(self, arguments: Arguments) -> None:
        evaluation = self._evaluation(arguments.word(), Arguments([]))
        self._tracker.reblock(evaluation, self._tokens[arguments.word()])

    def _do_unblock(self, arguments: Arguments) -> None:
        self._tracker.unblock_class_and_quota(arguments.word(), arguments.text("quota"), arguments.number("at"))

    def _do_unblock_quota(self, arguments: Arguments) -> None:
        self._tracker.unblock_quota(arguments.word(), arguments.number("at"))

    def _do_unblock_resources(self, arguments: Arguments) -> None:
        self._tracker.unblock_non_node_resources(arguments.word().split(","), arguments.number("at"))

    def _do_unblock_node(self, arguments: Arguments) -> None:
        self._tracker.unblock_node(arguments.word())

    def _do_unblock_failed(self, arguments: Arguments) -> None:
        self._tracker.unblock_failed()

    def _do_untrack(self, arguments: Arguments) -> None:
        self._tracker.untrack(arguments.text("namespace", "default"), arguments.word())

    def _do_duplicates(self, arguments: Arguments) -> Iterator[str]:
        yield " ".join(each.id for each in self._tracker.duplicates()) or "none"

    def _do_tracked(self, arguments: Arguments) -> Iterator[str]:
        yield " ".join(sorted(self._tracker.known_ids())) or "none"

    def _do_stats(self, arguments: Arguments) -> Iterator[str]:
        stats = self._tracker.stats()
        yield f"blocked {stats.total_blocked}, escaped {stats.total_escaped}, quota {stats.total_quota_limit}"

    def _do_prune(self, arguments: Arguments) -> None:
        self._tracker.prune()

    def _do_wait(self, arguments: Arguments) -> None:
        self._clock.advance(seconds(arguments.word()))
        self._broker.advance()

    def _do_enqueue(self, arguments: Arguments) -> None:
        self._broker.enqueue(self._evaluation(arguments.word(), arguments))

    def _do_dequeue(self, arguments: Arguments) -> Iterator[str]:
        delivery = self._broker.dequeue(["service", "batch", "system", "sysbatch"])
        if delivery is None:
            yield "nothing"
            return
        name = f"t{len(self._tokens) + 1}"
        self._tokens[name] = delivery.token
        yield f"{delivery.evaluation.id} {name}"

    def _do_ack(self, arguments: Arguments) -> None:
        self._broker.ack(arguments.word(), self._tokens[arguments.word()])

    def _do_nack(self, arguments: Arguments) -> None:
        self._broker.nack(arguments.word(), self._tokens[arguments.word()])

    def _do_ready(self, arguments: Arguments) -> Iterator[str]:
        yield str(self._broker.stats().total_ready)
