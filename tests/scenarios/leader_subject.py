"""A whole server as a story is told to it, under virtual time: the story is its workers, unless it is given some."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, TypeVar

from fastplan import codec
from fastplan.fsm import StateMachine
from fastplan.replication.contract import Lost
from fastplan.scheduler.process import SCHEDULER_VERSION
from fastplan.server.config import ServerConfig
from fastplan.server.server import Server
from fastplan.structs import Evaluation, Plan
from fastplan.testing import SimulatedLog, VirtualClock, VirtualLoop
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job, system_job
from tests.scenarios.runner import Arguments, duration, seconds

T = TypeVar("T")
_MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f-]{21}")
QUEUES = "service,batch,system,sysbatch"


class LeaderSubject:
    """Commands (times as `5s`). What the server makes is called by its turn: evaluations e1, e2 …, tokens t1, t2 …

    new [workers=0 nack=60s sync=1ms limit=3] [spared]   start anew; `spared`: while it leads most of its workers pause
    job ID [count cpu priority] [system]; scale ID COUNT; stop_job ID [purge]
    node ID [cpu]; node_status ID STATUS; node_eligible ID yes|no; node_gone ID
    client ALLOCATION STATUS                           what a client says of an allocation: `web.web[0]`, the one that is to run or to stop
    eval ID job=ID [status type priority]              an evaluation, written as it is
    dequeue [QUEUE,…] [version] [for=TIME]             `EVALUATION TOKEN, needs INDEX`
    ack, nack EVALUATION TOKEN
    update EVALUATION TOKEN STATUS; create NEW EVALUATION TOKEN; reblock EVALUATION TOKEN
    plan NAME EVALUATION TOKEN JOB [NODE:ID,… …] [stop=NODE:ID,…] [update=NODE:ID,…] [unknown=NODE:ID,…] [all_at_once] [snapshot]
        Submit a plan and do not wait: its answer comes when it comes. Allocations take 500 MHz.
    wait TIME; settle                                  let time pass; let workers finish
    lose                                               another leadership of this server begins at once; abdicate: none does
    evals, allocs, broker, blocked, workers, index
    """

    def __init__(self) -> None:
        self._clock = VirtualClock()
        self._loop = VirtualLoop(self._clock)
        self._begin(Arguments([]))

    def _begin(self, arguments: Arguments) -> None:
        sync_s = arguments.seconds("sync", 0.001)
        config = ServerConfig(
            workers=arguments.number("workers"),
            clock=self._clock,
            seed=1,
            executor="inline",
            nack_timeout_s=arguments.seconds("nack", 60.0),
            delivery_limit=arguments.number("limit", 3),
            pause_when_leading=arguments.flag("spared") or None,
        )

        def new_log(machine: StateMachine) -> SimulatedLog:
            self._log = SimulatedLog(machine, delay_s=lambda: sync_s)
            return self._log

        self._server = Server(config, new_log=new_log)
        self._evals: dict[str, str] = {}
        self._tokens: dict[str, str] = {}
        self._plans: dict[str, asyncio.Task[Any]] = {}
        self._await(self._server.__aenter__())

    def close(self) -> None:
        self._end()
        self._loop.close()

    def _end(self) -> None:
        for task in self._plans.values():
            task.cancel()
        self._await(self._server.__aexit__(None, None, None))

    def _await(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self._loop.run_until_complete(awaited())

    def run(self, command: str, arguments: Arguments) -> Iterable[str]:
        answer = list(getattr(self, f"_do_{command}")(arguments) or ())
        self._await(asyncio.sleep(0))
        assert self._server.broker.contradictions() == []
        assert self._server.blocked.contradictions() == []
        return [*answer, *self._answered()]

    def _answered(self) -> Iterator[str]:
        for name, task in [*self._plans.items()]:
            if task.done():
                del self._plans[name]
                yield f"{name}: {self._answer(task)}"

    def _answer(self, task: asyncio.Task[Any]) -> str:
        error = task.exception()
        if error is not None:
            return f"error: {error}"
        result = task.result()
        parts = []
        for what, entries in (("placed", result.node_allocation), ("stopped", result.node_update)):
            found = [f"{node} {','.join(each.id for each in allocs)}" for node, allocs in sorted(entries.items()) if allocs]
            parts += [f"{what} {' '.join(found)}"] if found else []
        parts += [f"refused {node} ({reason})" for node, reason in result.reasons.items()]
        parts += [f"committed at {result.alloc_index}"] if result.alloc_index else []
        parts += [f"refresh {result.refresh_index}"] if result.refresh_index else []
        return "; ".join(parts) or "nothing"

    # --- names ------------------------------------------------------------------------------------------------------

    def _called(self, eval_id: str) -> str:
        """Return what the story calls an evaluation."""
        if not _MADE.fullmatch(eval_id):
            return eval_id
        for name, known in self._evals.items():
            if known == eval_id:
                return name
        name = f"e{len(self._evals) + 1}"
        self._evals[name] = eval_id
        return name

    def _eval_id(self, name: str) -> str:
        return self._evals.get(name, name)

    def _token(self, name: str) -> str:
        return self._tokens.get(name, name)

    def _created(self, written: Any) -> Iterator[str]:
        if written.evaluation_ids:
            yield f"created {' '.join(self._called(each) for each in written.evaluation_ids)}"

    # --- jobs and nodes -----------------------------------------------------------------------------------------------

    def _do_new(self, arguments: Arguments) -> None:
        self._end()
        self._begin(arguments)

    def _do_job(self, arguments: Arguments) -> Iterator[str]:
        make = system_job if arguments.flag("system") else service_job
        group = group_api(count=arguments.number("count", 1), cpu_mhz=arguments.number("cpu", 500))
        job = make(arguments.word(), group, Priority=arguments.number("priority", 50))
        yield from self._created(self._await(self._server.register_job(job)))

    def _do_scale(self, arguments: Arguments) -> Iterator[str]:
        yield from self._created(self._await(self._server.scale_job("default", arguments.word(), "web", int(arguments.word()))))

    def _do_stop_job(self, arguments: Arguments) -> Iterator[str]:
        purge = arguments.flag("purge")
        yield from self._created(self._await(self._server.deregister_job("default", arguments.word(), purge=purge)))

    def _do_node(self, arguments: Arguments) -> Iterator[str]:
        node = ready_node(arguments.word(), cpu_mhz=arguments.number("cpu", 4000))
        yield from self._created(self._await(self._server.register_node(node)))

    def _do_node_status(self, arguments: Arguments) -> Iterator[str]:
        yield from self._created(self._await(self._server.update_node_status(arguments.word(), arguments.word())))

    def _do_node_eligible(self, arguments: Arguments) -> Iterator[str]:
        yield from self._created(self._await(self._server.update_node_eligibility(arguments.word(), arguments.word() == "yes")))

    def _do_node_gone(self, arguments: Arguments) -> Iterator[str]:
        yield from self._created(self._await(self._server.deregister_node(arguments.word())))

    def _write(self, command: codec.Command) -> None:
        self._await(self._server._writer.write(command))

    def _do_client(self, arguments: Arguments) -> Iterator[str]:
        name = arguments.word()
        (alloc,) = (each for each in self._server.snapshot().allocs() if each.name == name and not each.is_client_terminal)
        said = alloc.copy()
        said.client_status = arguments.word()
        yield from self._created(self._await(self._server.update_allocs_from_client([said])))

    def _do_eval(self, arguments: Arguments) -> None:
        evaluation = Evaluation(
            id=arguments.word(),
            namespace="default",
            job_id=arguments.text("job"),
            status=arguments.text("status", "pending"),
            type=arguments.text("type", "service"),
            priority=arguments.number("priority", 50),
            triggered_by="job-register",
        )
        self._write(codec.UpsertEvals([evaluation.to_api()]))

    # --- what a worker does -------------------------------------------------------------------------------------------

    def _do_dequeue(self, arguments: Arguments) -> Iterator[str]:
        queues = [queue for queue in arguments.word(QUEUES).split(",") if queue]
        version = arguments.number("version", SCHEDULER_VERSION)
        start_s = self._clock.monotonic_s()
        held = self._await(self._server._endpoints.dequeue(queues, arguments.seconds("for", 0.001), version))
        if held is None:
            yield f"nothing after {duration(self._clock.monotonic_s() - start_s)}"
            return
        token = f"t{len(self._tokens) + 1}"
        self._tokens[token] = held.token
        yield f"{self._called(held.evaluation.id)} {token}, needs {held.wait_index}"

    def _do_ack(self, arguments: Arguments) -> None:
        self._await(self._server._endpoints.ack(self._eval_id(arguments.word()), self._token(arguments.word())))

    def _do_nack(self, arguments: Arguments) -> None:
        self._await(self._server._endpoints.nack(self._eval_id(arguments.word()), self._token(arguments.word())))

    def _stored(self, name: str) -> Evaluation:
        found = self._server.snapshot().eval(self._eval_id(name))
        return (
            Evaluation(id=name, namespace="default", job_id="web", type="service", priority=50, triggered_by="rolling-update")
            if found is None
            else found.copy()
        )

    def _do_update(self, arguments: Arguments) -> None:
        evaluation, token = self._stored(arguments.word()), self._token(arguments.word())
        evaluation.status = arguments.word()
        self._await(self._server._endpoints.update_eval(evaluation, token))

    def _do_create(self, arguments: Arguments) -> None:
        evaluation = self._stored(arguments.word())
        evaluation.status, evaluation.previous_eval = arguments.text("status", "pending"), self._eval_id(arguments.word())
        self._await(self._server._endpoints.create_eval(evaluation, self._token(arguments.word())))

    def _do_reblock(self, arguments: Arguments) -> None:
        self._await(self._server._endpoints.reblock_eval(self._stored(arguments.word()), self._token(arguments.word())))

    def _do_plan(self, arguments: Arguments) -> None:
        name, evaluation, token, job_id = (arguments.word() for _ in range(4))
        job = self._server.snapshot().job("default", job_id) or service_job(job_id)
        more = {"AllAtOnce": arguments.flag("all_at_once"), "Priority": arguments.number("priority", 50), "SnapshotIndex": arguments.number("snapshot")}
        place: dict[str, list[Any]] = {}
        for word in arguments.rest():
            _add(place, word, lambda alloc_id, node: running_alloc(alloc_id, job, node, ClientStatus="pending").to_api())
        state = self._server.snapshot()
        for key, changes in (("update", {}), ("unknown", {"ClientStatus": "unknown"})):
            _add(place, arguments.text(key), lambda alloc_id, node, changes=changes: {**state.alloc(alloc_id).to_api(), **changes})  # type: ignore[misc, union-attr]
        stop: dict[str, list[Any]] = {}
        _add(stop, arguments.text("stop"), lambda alloc_id, node: {"ID": alloc_id})
        plan = Plan.from_api(
            {
                "EvalID": self._eval_id(evaluation),
                "EvalToken": self._token(token),
                "JobInfo": {"Namespace": "default", "ID": job_id},
                "NodeAllocation": place,
                "NodeUpdate": stop,
                **more,
            }
        )
        self._plans[name] = self._loop.create_task(self._server._endpoints.submit_plan(plan))

    # --- time, leadership -----------------------------------------------------------------------------------------------

    def _do_wait(self, arguments: Arguments) -> Iterator[str]:
        start_s = self._clock.monotonic_s()
        end_s = start_s + seconds(arguments.word())
        while (left_s := end_s - self._clock.monotonic_s()) > 1e-9:
            self._await(asyncio.sleep(min(left_s, 0.1)))
            after = duration(round(self._clock.monotonic_s() - start_s, 1))
            yield from (f"after {after}, {line}" for line in self._answered())

    def _do_settle(self, arguments: Arguments) -> None:
        self._await(self._server.settled(60))

    def _do_lose(self, arguments: Arguments) -> None:
        self._log.lose_leadership()
        self._await(asyncio.sleep(0.01))

    def _do_abdicate(self, arguments: Arguments) -> None:
        self._log._events.announce(Lost(self._log.term, "the story says so"))
        self._await(asyncio.sleep(0.01))

    # --- looking --------------------------------------------------------------------------------------------------------

    def _do_evals(self, arguments: Arguments) -> Iterator[str]:
        found = sorted(self._server.snapshot().evals(), key=lambda each: (each.create_index, each.id))
        for each in found:
            text = f"{self._called(each.id)}: {each.status}, {each.triggered_by} of {each.job_id}"
            if each.status_description:
                text += f" ({each.status_description})"
            if each.wait:
                text += f", later by {duration(each.wait / 1e9)}"
            for what, other in (("blocked", each.blocked_eval), ("next", each.next_eval), ("previous", each.previous_eval)):
                text += f"; {what} {self._called(other)}" if other else ""
            yield text
        if not found:
            yield "none"

    def _do_allocs(self, arguments: Arguments) -> Iterator[str]:
        found = sorted(self._server.snapshot().allocs(), key=lambda each: (each.job_id, each.name, each.node_id))
        for each in found:
            yield f"{each.name} on {each.node_id}: {each.desired_status}/{each.client_status}"
        if not found:
            yield "none"

    def _do_broker(self, arguments: Arguments) -> Iterator[str]:
        stats = self._server.broker.stats()
        counts = {"ready": stats.total_ready, "unacked": stats.total_unacked, "pending": stats.total_pending, "waiting": stats.total_waiting}
        yield ", ".join(f"{name} {count}" for name, count in counts.items() if count) or "nothing"

    def _do_blocked(self, arguments: Arguments) -> Iterator[str]:
        yield " ".join(sorted(map(self._called, self._server.blocked.known_ids()))) or "none"

    def _do_workers(self, arguments: Arguments) -> Iterator[str]:
        counts = Counter(worker.info().status.value for worker in self._server.workers)
        yield ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))

    def _do_index(self, arguments: Arguments) -> Iterator[str]:
        yield str(self._server.latest_index())


def _add(entries: dict[str, list[Any]], text: str, make: Callable[[str, str], dict[str, Any]]) -> None:
    """Add allocations for `NODE:ID,…`."""
    if text:
        node, _, ids = text.partition(":")
        entries.setdefault(node, []).extend(make(alloc_id, node) for alloc_id in ids.split(",") if alloc_id)
