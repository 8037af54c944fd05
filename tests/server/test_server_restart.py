"""Servers that end, start again, lose their leadership and their log (worker-and-broker 7)."""

import asyncio
from typing import Any

import pytest

from fastplan.errors import BrokerError, Closed, NotLeader, OutcomeUnknown, StorageFailed, TokenRejected
from fastplan.replication.contract import Gained, Lost
from fastplan.server import Server, ServerConfig
from fastplan.server.leadership import Leadership
from fastplan.testing import SimulatedLog, VirtualClock, run_virtual
from fastplan.testing.builders import group_api, service_job
from fastplan.worker import WorkerStatus
from tests.server.served import Served, tell, tell_embedded


def test_after_a_restart_the_state_is_the_same_and_work_goes_on(tmp_path):
    dumps = []

    async def work(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=6, cpu_mhz=1000)))
        await served.settle()
        assert len(served.wanted()) == 4

    async def only_register(served):
        await served.server.register_job(service_job("late", group_api(cpu_mhz=1)))
        dumps.append(served.server.machine.store.to_dump())

    async def only_look(served):
        assert served.server.machine.store.to_dump() == dumps[0]
        (pending,) = served.evals("late")
        (blocked,) = served.evals(status="blocked")
        assert served.server.broker.known_ids() == {pending.id}
        assert served.server.blocked.known_ids() == {blocked.id}

    async def go_on(served):
        await served.settle()
        assert (len(served.wanted()), len(served.wanted("late"))) == (4, 0)
        await served.nodes(2)
        await served.settle()
        assert (len(served.wanted()), len(served.wanted("late"))) == (6, 1)
        assert {each.status for each in served.server.snapshot().evals()} == {"complete"}

    tell_embedded(work, tmp_path)
    for story in (only_register, only_look):
        tell_embedded(story, tmp_path, workers=0)
    tell_embedded(go_on, tmp_path)


def test_a_seed_does_not_give_the_same_ids_again_after_a_restart(tmp_path):
    seen: set[Any] = set()

    async def story(served):
        written = await served.server.register_job(service_job("web"))
        assert not seen & set(written.evaluation_ids)
        seen.update(written.evaluation_ids)

    for _ in range(3):
        tell_embedded(story, tmp_path, seed=7)
    assert len(seen) == 3


def test_a_server_begins_once_and_says_so():
    async def main():
        server = Server(ServerConfig(low_water_bytes=0, reserve_bytes=0))
        with pytest.raises(Closed, match="the server has not begun"):
            await server.register_job(service_job("web"))
        async with server:
            pass
        for call in (server.register_job(service_job("web")), server.settled(1), server.plan_job(service_job("web"))):
            with pytest.raises(Closed, match="the server has ended"):
                await call
        with pytest.raises(Closed, match="the server has ended"):
            server.report()
        with pytest.raises(Closed, match="a server begins once"):
            await server.__aenter__()

    asyncio.run(main())


def test_the_order_in_which_a_leadership_is_lost_and_gained(monkeypatch):
    async def story(served):
        server = served.server
        steps = []

        def note(owner, name, label):
            real = getattr(owner, name)

            def noted(*arguments):
                steps.append(label.format(*arguments))
                return real(*arguments)

            monkeypatch.setattr(owner, name, noted)

        for worker in server.workers:
            note(worker, "pause", "pause worker")
            note(worker, "resume", "resume worker")
        note(server._applier, "lead", "plans on")
        note(server._applier, "step_down", "plans off")
        note(server.broker, "set_enabled", "broker {0}")
        note(server.blocked, "set_enabled", "tracker {0}")
        note(Leadership, "_restore", "restore")
        await served.server.register_job(service_job("web"))
        served.log.lose_leadership()
        await asyncio.sleep(0.01)
        # Lost, then gained. The applier makes sure that it does not lead before it does.
        assert steps == [
            *["plans off", "broker False", "tracker False", "resume worker", "resume worker", "resume worker", "resume worker"],
            *["pause worker", "pause worker", "pause worker", "plans on", "plans off", "broker True", "tracker True", "restore"],
        ]
        assert [each.info().status for each in server.workers].count(WorkerStatus.PAUSED) == 3

    tell(story, workers=4, pause_when_leading=True)


def test_leadership_is_lost_in_the_middle_of_everything():
    async def story(served):
        await served.nodes(*range(1, 9))
        calls = []
        for number in range(40):
            calls.append(asyncio.ensure_future(served.server.register_job(service_job(f"job-{number}", group_api(count=3, cpu_mhz=300)))))
            await asyncio.sleep(0.0007)
            if number % 4 == 3:
                served.log.lose_leadership()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        unknown = [each for each in answers if isinstance(each, Exception)]
        assert all(isinstance(each, NotLeader | OutcomeUnknown) for each in unknown)
        assert unknown
        await served.settle()
        assert served.log.term == 11
        registered = {each.id for each in served.server.snapshot().jobs()}
        assert {f"job-{number}" for number, answer in enumerate(answers) if not isinstance(answer, Exception)} <= registered
        for job_id in registered:
            assert len(served.wanted(job_id)) == 3
        assert {each.status for each in served.server.snapshot().evals()} <= {"complete", "canceled"}

    tell(story, workers=4)


def test_without_a_leadership_nothing_is_done_and_old_tokens_are_worth_nothing():
    async def story(served):
        server = served.server
        await served.nodes(1)
        await server.register_job(service_job("web"))
        held = await server.gate.dequeue(("service",), 1.0)
        # Another server leads from now on.
        served.log.term += 1
        server._log._events.announce(Lost(1, "another one leads"))
        await asyncio.sleep(0)
        for call in (server.register_job(service_job("other")), server.deregister_job("default", "web"), server.set_scheduler_config({})):
            with pytest.raises(NotLeader):
                await call
        assert not server.broker.enabled
        assert not server.blocked.enabled
        # Reading goes on, and dry runs.
        assert server.snapshot().job("default", "web") is not None
        assert (await server.plan_job(service_job("other"))).plan.node_allocation
        server._log._events.announce(Gained(2, server.machine.applied))
        await asyncio.sleep(0)
        with pytest.raises(BrokerError, match="Evaluation ID not found"):
            await server._endpoints.ack(held.evaluation.id, held.token)
        again = await server.gate.dequeue(("service",), 1.0)
        assert again.evaluation.id == held.evaluation.id
        assert again.token != held.token
        with pytest.raises(TokenRejected, match="evaluation token does not match"):
            await server._endpoints.update_eval(again.evaluation, held.token)
        await server._endpoints.ack(again.evaluation.id, again.token)

    tell(story, workers=0)


def test_an_operation_goes_on_without_its_caller():
    async def story(served):
        await served.server.register_job(service_job("web", group_api(count=1)))
        await served.settle()
        assert served.wanted() == []
        call = asyncio.ensure_future(served.nodes(1))
        for _ in range(3):
            await asyncio.sleep(0)
        assert served.log.pending
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await asyncio.sleep(0.1)
        await served.settle()
        # What waited for room has heard of it.
        assert len(served.wanted()) == 1

    tell(story)


def test_versions_are_counted_on_although_a_caller_is_gone():
    async def story(served):
        calls = [asyncio.ensure_future(served.server.register_job(service_job("web", group_api(memory_mib=100 + number)))) for number in range(6)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for call in calls[:3]:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        found = served.server.snapshot().job_versions("default", "web")
        assert [each.version for each in found] == [5, 4, 3, 2, 1, 0]

    tell(story)


def test_an_operation_that_waited_for_room_is_not_written_under_another_leadership():
    async def story(served):
        served.log.set_busy(True)
        call = asyncio.ensure_future(served.server.register_job(service_job("web")))
        await asyncio.sleep(0.01)
        served.log.lose_leadership()
        await asyncio.sleep(0.01)
        served.log.set_busy(False)
        with pytest.raises(NotLeader):
            await call
        assert served.server.snapshot().job("default", "web") is None

    tell(story)


def test_when_the_log_fails_everybody_hears_it(tmp_path):
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web"))
        await served.settle()
        error = StorageFailed("the disk is gone")
        served.server._log._end(error, error)
        await asyncio.sleep(0.01)
        for call in (served.server.register_job(service_job("other")), served.server.settled(1)):
            with pytest.raises(StorageFailed, match="the disk is gone"):
                await call
        assert not served.server.broker.enabled

    tell_embedded(story, tmp_path)

    async def again(served):
        await served.settle()
        assert len(served.wanted()) == 1

    tell_embedded(again, tmp_path)


def test_a_server_that_cannot_restore_says_so_and_does_not_hang(monkeypatch, caplog):
    def broken(self):
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(Leadership, "_restore", broken)
    clock = VirtualClock()

    async def main():
        with pytest.raises(ZeroDivisionError, match="a defect"):
            async with Server(ServerConfig(workers=1, clock=clock, executor="inline"), new_log=SimulatedLog):
                pass

    run_virtual(main(), clock)
    assert "the server cannot lead" in caplog.text


def test_a_leadership_that_ends_while_a_server_begins_is_waited_out():
    clock = VirtualClock()
    logs = []

    def new_log(machine):
        logs.append(SimulatedLog(machine, delay_s=lambda: 1.0))
        return logs[-1]

    async def main():
        asyncio.get_running_loop().call_later(0.5, lambda: logs[0].lose_leadership())
        async with Server(ServerConfig(workers=1, clock=clock, executor="inline"), new_log=new_log) as server:
            served = Served(server, clock, logs[0])
            await served.nodes(1)
            await server.register_job(service_job("web"))
            await served.settle()
            assert len(served.wanted()) == 1
            assert server.snapshot().scheduler_config() is not None

    run_virtual(main(), clock)
