"""What goes wrong inside a server and how it goes on: schedulers that raise, clocks that jump, evaluations that are tried too often."""

import asyncio
import logging
from typing import Any

import pytest

from fastplan.errors import BrokerError
from fastplan.scheduler import generic
from fastplan.structs import Evaluation
from fastplan.structs.times import time_text
from fastplan.testing.builders import group_api, service_job, system_job
from fastplan.worker import WorkerStatus
from tests.server.served import tell


@pytest.fixture
def broken(monkeypatch):
    """Break the generic scheduler for jobs whose name begins with `bad`, while the list says so."""
    real = generic.process_generic
    times: list[Any] = []

    def process(evaluation, state, setting):
        if evaluation.job_id.startswith("bad") and times:
            times.pop()
            raise ZeroDivisionError("a defect in a scheduler")
        return real(evaluation, state, setting)

    monkeypatch.setattr(generic, "process_generic", process)
    return times


def test_a_scheduler_that_raises_once_is_tried_again(broken, caplog):
    async def story(served):
        broken.append(1)
        await served.nodes(1)
        await served.server.register_job(service_job("bad"))
        await served.server.register_job(service_job("good"))
        await served.settle()
        assert (len(served.wanted("good")), len(served.wanted("bad"))) == (1, 0)
        assert served.server.broker.stats().total_waiting == 1
        await asyncio.sleep(1.1)
        await served.settle()
        assert len(served.wanted("bad")) == 1
        assert served.server.report()["fastplan.worker.nacks"]["value"] == 1
        assert {each.info().status for each in served.server.workers} == {WorkerStatus.STARTED}

    tell(story)
    assert "a defect in a scheduler" in caplog.text


def test_a_scheduler_that_always_raises_fails_the_evaluation_and_a_follow_up_tries_much_later(broken, caplog):
    caplog.set_level(logging.CRITICAL, "fastplan.worker")

    async def story(served):
        broken.extend([1] * 3)
        await served.nodes(1)
        await served.server.register_job(service_job("bad"))
        await served.settle()
        await asyncio.sleep(1.5 + 20.5)
        await served.settle()
        assert broken == []
        (failed,) = served.evals("bad", status="failed")
        assert failed.status_description == "evaluation reached delivery limit (3)"
        (follow_up,) = served.evals("bad", status="pending")
        assert (follow_up.triggered_by, follow_up.previous_eval, failed.next_eval) == ("failed-follow-up", failed.id, follow_up.id)
        assert served.wanted("bad") == []
        # Others of the job are not held up by it.
        await asyncio.sleep(360)
        await served.settle()
        assert len(served.wanted("bad")) == 1
        assert served.server.snapshot().eval(follow_up.id).status == "complete"

    tell(story)


def test_a_job_may_be_evaluated_while_its_follow_up_waits(broken, caplog):
    caplog.set_level(logging.CRITICAL, "fastplan.worker")

    async def story(served):
        broken.append(1)
        await served.nodes(1)
        await served.server.register_job(service_job("bad"))
        await asyncio.sleep(0.1)
        await served.settle()
        assert served.server.broker.stats().total_waiting == 1
        await served.server.register_job(service_job("bad", group_api(count=2)))
        await served.settle()
        assert len(served.wanted("bad")) == 2

    tell(story, delivery_limit=1)


def test_evaluations_that_ran_out_of_attempts_are_tried_again_every_minute():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=0)))
        await served.settle()
        fields = {"namespace": "default", "job_id": "web", "type": "service", "priority": 50}
        await served.write(
            Evaluation(
                id="tired",
                status="blocked",
                triggered_by="max-plan-attempts",
                escaped_computed_class=True,
                snapshot_index=served.server.latest_index(),
                **fields,
            )
        )
        await served.settle()
        assert served.server.blocked.known_ids() == {"tired"}
        await asyncio.sleep(61)
        await served.settle()
        assert served.server.snapshot().eval("tired").status == "complete"

    tell(story)


def test_superseded_evaluations_are_canceled_soon():
    async def story(served):
        await served.nodes(1)
        # Workers pause, so that evaluations pile up.
        await served.server.set_scheduler_config({"PauseEvalBroker": True})
        for number in range(5):
            await served.server.register_job(service_job("web", group_api(memory_mib=100 + number)))
        await served.server.set_scheduler_config({"PauseEvalBroker": False})
        await served.settle()
        await asyncio.sleep(0.1)
        assert sorted(each.status for each in served.evals()) == ["canceled"] * 3 + ["complete"] * 2
        assert [each.job.version for each in served.wanted()] == [4]

    tell(story)


@pytest.mark.parametrize("jump_s", [-3_600, 3_600, 86_400])
def test_the_wall_clock_may_jump(jump_s):
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=1)))
        await served.settle()
        fields = {"namespace": "default", "job_id": "web", "type": "service", "status": "pending", "priority": 50, "triggered_by": "job-register"}
        due_ns = served.clock.now_ns() + 1_800 * 10**9
        await served.write(Evaluation(id="by-wall", wait_until=time_text(due_ns), **fields), Evaluation(id="by-wait", wait=600 * 10**9, **fields))
        await served.settle()
        served.clock.jump_wall(jump_s)
        before_ns = served.clock.now_ns()
        # Work goes on, whatever it is o'clock.
        await served.server.scale_job("default", "web", "web", 3)
        await served.settle()
        assert len(served.wanted()) == 3
        # A worker that waits longer than it may still gets its nack timer by the other clock.
        await asyncio.sleep(20)
        await served.settle()
        found = {name: served.server.snapshot().eval(name).status for name in ("by-wall", "by-wait")}
        assert found == {"by-wall": "complete" if jump_s > 0 else "pending", "by-wait": "pending"}
        await asyncio.sleep(600)
        await served.settle()
        assert served.server.snapshot().eval("by-wait").status in ("complete", "canceled")
        await asyncio.sleep(max(due_ns - served.clock.now_ns(), 0) / 1e9 + 1)
        await served.settle()
        assert served.server.snapshot().eval("by-wall").status == "complete"
        assert all(each.modify_time >= each.create_time for each in served.evals())
        assert served.clock.now_ns() >= before_ns

    tell(story)


def test_a_worker_that_takes_too_long_loses_its_evaluation():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web"))
        slow = await served.server.gate.dequeue(("service",), 1)
        await asyncio.sleep(5.1 + 1.1)
        again = await served.server.gate.dequeue(("service",), 1)
        assert again.evaluation.id == slow.evaluation.id
        with pytest.raises(BrokerError, match="Token does not match for Evaluation ID"):
            await served.server._endpoints.ack(slow.evaluation.id, slow.token)
        await served.server._endpoints.ack(again.evaluation.id, again.token)

    tell(story, workers=0, nack_timeout_s=5)


def test_a_system_job_that_found_no_room_on_a_node_is_placed_when_there_is_some():
    async def story(served):
        await served.nodes(1, 2)
        await served.server.register_job(service_job("web", group_api(count=1, cpu_mhz=3500)))
        await served.settle()
        await served.server.register_job(system_job("agent", group_api(cpu_mhz=1000)))
        await served.settle()
        (full,) = served.wanted()
        assert [each.node_id for each in served.wanted("agent")] != [full.node_id]
        assert len(served.wanted("agent")) == 1
        await served.server.deregister_job("default", "web")
        await served.settle()
        await served.client_says(full, status="complete")
        await served.settle()
        assert len(served.wanted("agent")) == 2

    tell(story)
