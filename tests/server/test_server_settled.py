"""What it means that a server is settled: ready, held and waiting evaluations, plans and commands on their way; not delayed and blocked ones."""

import asyncio

import pytest

from fastplan.structs import Evaluation
from fastplan.testing.builders import group_api, service_job
from tests.server.served import tell


def pending(eval_id, job_id="web", **fields):
    return Evaluation(id=eval_id, namespace="default", job_id=job_id, type="service", status="pending", priority=50, triggered_by="job-register", **fields)


def test_ready_held_and_waiting_evaluations_are_named():
    async def story(served):
        for _ in range(3):
            await served.server.register_job(service_job("web"))
        await served.server.register_job(service_job("other"))
        with pytest.raises(TimeoutError, match=r"^after 1 s there are still 2 ready evaluations, 2 evaluations that wait for another one of their job$"):
            await served.server.settled(1)
        await served.server.gate.dequeue(("service",), 1)
        with pytest.raises(TimeoutError, match="1 ready evaluations, 1 evaluations held by workers, 2 evaluations that wait"):
            await served.server.settled(0.5)

    tell(story, workers=0)


def test_plans_and_commands_on_their_way_are_named():
    async def story(served):
        await served.nodes(1)
        served.log.set_busy(True)
        call = asyncio.ensure_future(served.server.register_job(service_job("web")))
        with pytest.raises(TimeoutError, match="1 commands on their way"):
            await served.server.settled(1)
        served.log.set_busy(False)
        await call
        while not served.server._applier.pipeline.unfinished():
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError, match="1 evaluations held by workers, 1 plans in flight"):
            await served.server.settled(0)
        await served.settle()

    tell(story)


def test_delayed_and_blocked_evaluations_do_not_count():
    async def story(served):
        await served.server.register_job(service_job("web"))
        await served.write(pending("later", wait_until="2023-11-15T00:00:00Z"), pending("waits", "third", wait=10**12))
        await served.settle()
        assert served.server.broker.stats().total_waiting == 2
        assert served.server.blocked.stats().total_blocked == 1

    tell(story)


def test_what_was_given_back_is_delayed_too():
    async def story(served):
        await served.server.register_job(service_job("web"))
        held = await served.server.gate.dequeue(("service",), 1)
        served.server.broker.nack(held.evaluation.id, held.token)
        await served.server.settled(0)
        assert served.server.broker.stats().total_waiting == 1
        await asyncio.sleep(1.1)
        with pytest.raises(TimeoutError, match="1 ready evaluations"):
            await served.server.settled(0)

    tell(story, workers=0)


def test_a_settled_server_does_not_move_the_clock():
    async def story(served):
        await served.nodes(1)
        await served.write(pending("soon", wait=10**9))
        before_s = served.clock.monotonic_s()
        await served.server.settled(100)
        assert served.clock.monotonic_s() == before_s

    tell(story)


def test_what_is_due_by_now_is_done():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=0)))
        await served.settle()
        await served.write(pending("soon", wait=10**9))
        await served.settle()
        assert served.server.snapshot().eval("soon").status == "pending"
        # Nobody looked at the clock yet.
        served.clock.advance(2)
        await served.settle()
        assert served.server.snapshot().eval("soon").status == "complete"

    tell(story)


def test_many_at_once_are_all_done_when_it_says_so():
    async def story(served):
        await served.nodes(1, 2, 3)
        calls = [asyncio.ensure_future(served.server.register_job(service_job(f"job-{number}", group_api(cpu_mhz=100)))) for number in range(50)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        await served.settle()
        assert all(call.done() for call in calls)
        assert len(served.server.snapshot().allocs()) == 50
        assert {each.status for each in served.server.snapshot().evals()} == {"complete"}

    tell(story)
