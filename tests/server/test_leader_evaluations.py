"""What a leader does with evaluations beside its workers (worker-and-broker 3.12, 3.13, 5.7, 7; 11.1 row 26, 11.3 rows 67 and 87, 11.4 rows 109 and 111)."""

import asyncio
from collections import Counter

import pytest

from fastplan import codec
from fastplan.server.config import ServerConfig
from fastplan.server.server import Server
from fastplan.structs import Evaluation
from fastplan.testing import SimulatedLog, VirtualClock, run_virtual
from fastplan.testing.builders import ready_node, service_job


def run(story, **settings):
    """Run a story with a server under virtual time; nobody schedules unless it has workers."""
    clock = VirtualClock()

    async def with_server():
        config = ServerConfig(**{"workers": 0, "clock": clock, "seed": 1, "executor": "inline"} | settings)
        async with Server(config, new_log=SimulatedLog) as server:
            await story(server)
            assert server.broker.contradictions() == []
            assert server.blocked.contradictions() == []

    run_virtual(with_server(), clock)


def evals(server):
    return list(server.snapshot().evals())


async def take(server, queue="service"):
    delivery = await server.gate.dequeue((queue,), 1.0)
    assert delivery is not None
    return delivery.evaluation, delivery.token


async def written(server, *evaluations):
    """Write evaluations as a scheduler or an operator would."""
    await server._writer.write(codec.UpsertEvals([each.to_api() for each in evaluations]))


@pytest.mark.parametrize("job_stays", [True, False])
def test_what_was_delivered_too_often_fails_and_is_tried_again_while_its_job_is_there(job_stays):
    async def story(server):
        await server.register_job(service_job("web"))
        evaluation, token = await take(server)
        if not job_stays:
            await server.deregister_job("default", "web", purge=True)
        server.broker.nack(evaluation.id, token)
        await asyncio.sleep(0.1)
        by_id = {each.id: each for each in evals(server)}
        failed = by_id.pop(evaluation.id)
        assert (failed.status, failed.status_description) == ("failed", "evaluation reached delivery limit (1)")
        follow_ups = [each for each in by_id.values() if each.triggered_by == "failed-follow-up"]
        if not job_stays:
            assert follow_ups == []
            assert failed.next_eval == ""
            return
        (follow_up,) = follow_ups
        assert failed.next_eval == follow_up.id
        assert 60 <= follow_up.wait / 1e9 < 360
        assert server.broker.stats().total_waiting == 1
        await asyncio.sleep(follow_up.wait / 1e9)
        assert (await take(server))[0].id == follow_up.id

    run(story, delivery_limit=1)


def test_core_evaluations_that_failed_are_acked_and_nothing_is_written():
    async def story(server):
        index = server.latest_index()
        server.broker.enqueue(Evaluation(id="core", namespace="-", type="_core", job_id="eval-gc", priority=200, status="pending"))
        evaluation, token = await take(server, "_core")
        server.broker.nack(evaluation.id, token)
        await asyncio.sleep(0.1)
        assert server.broker.known_ids() == set()
        assert server.latest_index() == index
        assert evals(server) == []

    run(story, delivery_limit=1)


def test_superseded_evaluations_are_canceled():
    async def story(server):
        for _ in range(4):
            await server.register_job(service_job("web"))
        evaluation, token = await take(server)
        server.broker.ack(evaluation.id, token)
        assert server.broker.stats().total_cancelable == 2
        # Nobody told the leader of the ack: it looks by itself.
        await asyncio.sleep(5.1)
        assert server.broker.stats().total_cancelable == 0
        canceled = [each for each in evals(server) if each.status == "canceled"]
        assert [each.status_description for each in canceled] == ["canceled after more recent eval was processed"] * 2
        # The newest one is kept.
        kept, _ = await take(server)
        assert kept.modify_index == max(each.create_index for each in evals(server))

    run(story)


def test_duplicates_of_blocked_evaluations_are_canceled():
    async def story(server):
        await server.register_job(service_job("web"))
        old, new = (Evaluation(id=name, namespace="default", job_id="web", type="service", status="blocked", priority=50) for name in ("old", "new"))
        await written(server, old)
        await written(server, new)
        assert server.blocked.known_ids() == {"new"}
        await asyncio.sleep(1.1)
        canceled = server.snapshot().eval("old")
        assert (canceled.status, canceled.status_description) == ("canceled", 'existing blocked evaluation exists for job "web"')
        assert server.snapshot().eval("new").status == "blocked"

    run(story)


def test_an_evaluation_that_is_complete_with_failed_groups_untracks_nothing_and_one_without_does():
    async def story(server):
        await server.register_job(service_job("web"))
        await server.settled(10)
        first, second = sorted(evals(server), key=lambda each: each.create_index)
        assert (first.status, bool(first.failed_tg_allocs), second.status) == ("complete", True, "blocked")
        assert server.blocked.known_ids() == {second.id}
        await server.register_node(ready_node("11111111-1111-4111-8111-111111111111"))
        await server.settled(10)
        assert server.blocked.known_ids() == set()
        assert Counter(each.status for each in evals(server)) == {"complete": 2}
        assert len(list(server.snapshot().allocs())) == 1

    run(story, workers=1)


def test_a_leader_takes_up_what_the_state_holds():
    async def story(server):
        for _ in range(2):
            await server.register_job(service_job("web"))
        await written(
            server,
            Evaluation(id="blocked", namespace="default", job_id="db", type="service", status="blocked", priority=50),
            Evaluation(id="complete", namespace="default", job_id="other", type="service", status="complete", priority=50),
        )
        held, token = await take(server)
        await server.set_scheduler_config({"PauseEvalBroker": True})
        assert server.broker.known_ids() == server.blocked.known_ids() == set()
        await server.set_scheduler_config({"PauseEvalBroker": False})
        stats = server.broker.stats()
        assert (stats.total_ready, stats.total_pending, stats.total_unacked) == (1, 1, 0)
        assert server.blocked.known_ids() == {"blocked"}
        again, other = await take(server)
        # Which one of the job comes first is open.
        assert again.id in {each.id for each in evals(server) if each.job_id == held.job_id}
        assert other != token

    run(story)
