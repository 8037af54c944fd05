"""The plan applier as a story is told to it: queue, verification, log and state machine under virtual time, on two nodes of 1,000 MHz."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from fastplan import codec
from fastplan.errors import OutcomeUnknown
from fastplan.planner.pipeline import PipelineSettings
from fastplan.planner.queue import PendingPlan
from fastplan.planner.tracker import TrackerSettings
from fastplan.rules import Rules
from fastplan.testing import VirtualLoop
from tests.planner.site import Site, alloc
from tests.scenarios.runner import Arguments, duration, numbers, seconds

T = TypeVar("T")
_RUN_S = 0.001


class ApplierSubject:
    """Commands (times as `5s`). Nodes are F and G unless `nodes` says otherwise; an allocation takes 1,000 MHz unless `mhz` does.

    new [nomad] [depth=2] [sync=10ms] [nodes=F,G] [tracker] [batch=PLANS]   start anew, leading; `sync`: how long the log takes
    send NAME [F:a,b G:c] [stop=F:x] [preempt=F:y] [mhz priority snapshot] [all_at_once]   send a plan, and do not wait
    many PREFIX FROM..TO NODE [mhz priority]                   send so many plans, each with one allocation of its name
    wait TIME                    let time pass; says what is answered, and when
    fail_sync                    the sync that goes on fails: what is pending is not written
    node NODE STATUS; client ALLOC STATUS; entries N           commit something else
    lose, regain, step_down      leadership
    stored                       the allocations of each node as they are wanted and run
    eligible NODE, in_flight (plans of each batch), queued
    """

    def __init__(self) -> None:
        self._begin(Arguments([]))

    def _begin(self, arguments: Arguments) -> None:
        sync_s = arguments.seconds("sync", 0.01)
        tracker = TrackerSettings(node_threshold=100, node_window_s=300) if arguments.flag("tracker") else None
        rules = Rules.NOMAD if arguments.flag("nomad") else Rules.STRICT
        depth, batch = arguments.number("depth", 2), arguments.number("batch")
        settings = PipelineSettings(depth=depth, batch_plans=batch) if batch else PipelineSettings(depth=depth)
        nodes = tuple(arguments.text("nodes", "F,G").split(","))
        self._site = Site(delay_s=lambda: sync_s, rules=rules, tracker=tracker, settings=settings, nodes=nodes)
        self._loop = VirtualLoop(self._site.clock)
        self._sent: dict[str, PendingPlan[Any]] = {}
        for command in self._site.start_commands:
            self._await(self._site.command(command))
        self._on_loop(lambda: self._site.applier.lead(self._site.log.term))

    def close(self) -> None:
        self._on_loop(self._site.applier.step_down)
        # What is on its way has to end: tasks that are pending are an error.
        self._await(asyncio.sleep(60))
        self._loop.close()

    def _await(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self._loop.run_until_complete(awaited())

    def _on_loop(self, work: Callable[[], T]) -> T:
        async def called() -> T:
            return work()

        return self._loop.run_until_complete(called())

    def run(self, command: str, arguments: Arguments) -> Iterable[str]:
        answer = list(getattr(self, f"_do_{command}")(arguments) or ())
        self._await(asyncio.sleep(_RUN_S))
        return [*answer, *self._heard()]

    def _heard(self) -> Iterator[str]:
        texts = {name: _answer(pending) for name, pending in self._sent.items() if pending.answered}
        for name in texts:
            del self._sent[name]
        if len(texts) > 8:
            # Of many: how often each answer came, in the order in which it first did.
            for text, names in _alike(texts):
                yield f"{names[0]} … {names[-1]} ({len(names)}): {text}" if len(names) > 1 else f"{names[0]}: {text}"
            return
        for name, text in texts.items():
            yield f"{name}: {text}"

    # --- commands ---------------------------------------------------------------------------------------------------

    def _do_new(self, arguments: Arguments) -> None:
        self.close()
        self._begin(arguments)

    def _do_send(self, arguments: Arguments) -> None:
        name = arguments.word()
        mhz = arguments.number("mhz", 1000)
        more: dict[str, Any] = {"Priority": arguments.number("priority", 50), "SnapshotIndex": arguments.number("snapshot")}
        more["AllAtOnce"] = arguments.flag("all_at_once")
        preempted = {node: [{"ID": each, "PreemptedByAllocation": "p"} for each in ids] for node, ids in _places(arguments.text("preempt"))}
        place = {node: [alloc(each, mhz) for each in ids] for word in arguments.rest() for node, ids in _places(word)}
        stop = {node: [{"ID": each} for each in ids] for node, ids in _places(arguments.text("stop"))}
        self._send(name, place, stop, NodePreemptions=preempted, **more)

    def _send(self, name: str, place: Any, stop: Any, **more: Any) -> None:
        self._sent[name] = self._on_loop(lambda: self._site.send(place, stop, **more))

    def _do_many(self, arguments: Arguments) -> None:
        prefix, span, node = arguments.word(), arguments.word(), arguments.word()
        mhz, priority = arguments.number("mhz", 1000), arguments.number("priority", 50)
        for number in numbers(span):
            name = f"{prefix}{number}"
            self._send(name, {node.replace("{}", str(number)): [alloc(name, mhz)]}, None, Priority=priority)

    def _do_wait(self, arguments: Arguments) -> Iterator[str]:
        began_s = self._site.clock.monotonic_s()
        end_s = began_s + seconds(arguments.word()) - _RUN_S
        while (left_s := end_s - self._site.clock.monotonic_s()) > 0:
            self._await(asyncio.sleep(min(left_s, 0.1)))
            after = duration(round(self._site.clock.monotonic_s() - began_s, 1))
            yield from (f"after {after}, {line}" for line in self._heard())

    def _do_fail_sync(self, arguments: Arguments) -> None:
        self._site.log.fail_next_sync(OutcomeUnknown("the disk was slow"))

    def _do_node(self, arguments: Arguments) -> None:
        self._await(self._site.command(codec.UpdateNodeStatus(arguments.word(), arguments.word())))

    def _do_client(self, arguments: Arguments) -> None:
        self._await(self._site.command(codec.UpdateAllocsFromClient([codec.AllocClientUpdate(arguments.word(), arguments.word())])))

    def _do_entries(self, arguments: Arguments) -> None:
        for number in range(int(arguments.word())):
            self._await(self._site.command(codec.UpsertEvals([{"ID": f"e{self._site.machine.applied}-{number}"}])))

    def _do_lose(self, arguments: Arguments) -> None:
        def lose() -> None:
            self._site.log.lose_leadership()
            self._site.applier.step_down()

        self._on_loop(lose)

    def _do_regain(self, arguments: Arguments) -> None:
        def regain() -> None:
            self._site.log.lose_leadership()
            self._site.applier.lead(self._site.log.term)

        self._on_loop(regain)

    def _do_stored(self, arguments: Arguments) -> Iterator[str]:
        for node_id, found in itertools.groupby(sorted(self._site.store.allocs(), key=lambda each: (each.node_id, each.id)), key=lambda each: each.node_id):
            yield f"{node_id}: {', '.join(f'{each.id} {each.desired_status}/{each.client_status}' for each in found)}"

    def _do_in_flight(self, arguments: Arguments) -> Iterator[str]:
        pipeline = self._site.applier.pipeline
        yield "nobody leads" if pipeline is None else " ".join(str(len(batch.plans)) for batch in pipeline.in_flight) or "nothing"

    def _do_queued(self, arguments: Arguments) -> Iterator[str]:
        yield str(len(self._site.applier.queue))

    def _do_eligible(self, arguments: Arguments) -> Iterator[str]:
        node = self._site.store.node(arguments.word())
        yield "gone" if node is None else node.scheduling_eligibility


def _places(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield node and ids of `F:a,b`."""
    if text:
        node, _, ids = text.partition(":")
        yield node, [each for each in ids.split(",") if each]


def _answer(pending: PendingPlan[Any]) -> str:
    try:
        result = pending.result()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    parts = []
    for what, entries in (("placed", result.node_allocation), ("stopped", result.node_update), ("preempted", result.node_preemptions)):
        found = [f"{node} {','.join(each.id for each in allocs)}" for node, allocs in sorted(entries.items()) if allocs]
        parts += [f"{what} {' '.join(found)}"] if found else []
    parts += [f"refused {node} ({reason})" for node, reason in result.reasons.items()]
    parts += [f"closed {' '.join(result.ineligible_nodes)}"] if result.ineligible_nodes else []
    parts += [f"committed at {result.alloc_index}"] if result.alloc_index else []
    parts += [f"refresh {result.refresh_index}"] if result.refresh_index else []
    return "; ".join(parts) or "nothing"


def _alike(texts: dict[str, str]) -> Iterator[tuple[str, list[str]]]:
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        groups.setdefault(text, []).append(name)
    yield from groups.items()
