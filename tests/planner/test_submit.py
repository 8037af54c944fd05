"""The submit endpoint: plan-apply 7.5, cases U1 to U7, known faults 36 and 45."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from fastplan.errors import PlanError, QueueDisabled, TokenRejected
from fastplan.metrics import Metrics
from fastplan.planner.metrics import PlanMetrics
from fastplan.planner.queue import PendingPlan, PlanQueue
from fastplan.planner.submit import HeldEvaluations, SubmitEndpoint
from fastplan.structs import Job, Plan
from fastplan.structs.plan import JobInfo
from fastplan.testing.clock import VirtualClock, run_virtual


@dataclass
class OneJob:
    job_id: str = "web"

    def job(self, namespace: str, job_id: str) -> Job | None:
        return Job(id=job_id, namespace=namespace) if (namespace, job_id) == ("default", self.job_id) else None


@dataclass
class Site:
    """An endpoint over a plan queue whose applier is the test."""

    clock: VirtualClock = field(default_factory=VirtualClock)
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.queue: PlanQueue[Plan] = PlanQueue(self.clock)
        self.queue.set_enabled(True)
        self.evaluations = HeldEvaluations(self.clock, nack_timeout_s=60)
        self.endpoint = SubmitEndpoint(OneJob(), self.evaluations, self.queue, self.clock, PlanMetrics(self.metrics))

    def plan(self, eval_id: str = "e1", **changes: Any) -> Plan:
        token = self.evaluations.deliver(eval_id)
        return Plan(**{"eval_id": eval_id, "eval_token": token, "job": Job(id="web", namespace="default"), **changes})

    async def answer(self, result: Any = "result", error: Exception | None = None) -> PendingPlan[Plan]:
        pending = await self.queue.dequeue_async(1)
        assert pending is not None
        pending.answer(result, error)
        return pending

    def run(self, main: Any) -> Any:
        return run_virtual(main, self.clock)


def test_u1_nothing_to_submit() -> None:
    site = Site()

    async def run() -> None:
        with pytest.raises(PlanError, match=r"^cannot submit nil plan$"):
            await site.endpoint.submit(None)
        for plan in (Plan(), Plan(eval_id="?")):
            with pytest.raises(PlanError, match=r"^cannot submit plan without job info$"):
                await site.endpoint.submit(plan)

    site.run(run())
    assert len(site.queue) == 0


def test_u2_the_job_is_looked_up_before_the_token() -> None:
    site = Site()
    plan = Plan(eval_id="unknown", job_info=JobInfo(namespace="default", id="gone"))
    with pytest.raises(PlanError, match=r'^job "gone" in namespace "default" not found$'):
        site.run(site.endpoint.submit(plan))


def test_u3_tokens() -> None:
    site = Site()
    good = site.plan()
    for eval_id, token, text in (
        ("e2", good.eval_token, "evaluation is not outstanding"),
        ("e1", "other", "evaluation token does not match"),
    ):
        with pytest.raises(TokenRejected, match=f"^{text}$"):
            site.run(site.endpoint.submit(Plan(eval_id=eval_id, eval_token=token, job=good.job)))
    assert len(site.queue) == 0
    assert not site.evaluations.is_paused("e1")


def test_u4_the_same_evaluation_twice_at_once() -> None:
    site = Site()
    plan = site.plan()

    async def run() -> None:
        first = asyncio.create_task(site.endpoint.submit(plan))
        await asyncio.sleep(0)
        with pytest.raises(TokenRejected, match=r"^evaluation nack timeout reached$"):
            await site.endpoint.submit(plan)
        await site.answer()
        assert await first == "result"
        second = asyncio.create_task(site.endpoint.submit(plan))
        await site.answer("again")
        assert await second == "again"

    site.run(run())


def test_a_fired_timer_rejects() -> None:
    site = Site()
    plan = site.plan()
    site.clock.advance(60)
    with pytest.raises(TokenRejected, match="nack timeout reached"):
        site.run(site.endpoint.submit(plan))


def test_u5_the_timer_runs_again_after_an_error() -> None:
    site = Site()
    plan = site.plan()

    async def run() -> None:
        waiting = asyncio.create_task(site.endpoint.submit(plan))
        await asyncio.sleep(50)
        assert site.evaluations.is_paused("e1")
        await site.answer(None, PlanError("no"))
        with pytest.raises(PlanError, match="no"):
            await waiting
        assert not site.evaluations.is_paused("e1")
        # The full time starts anew.
        await asyncio.sleep(59)
        waiting = asyncio.create_task(site.endpoint.submit(plan))
        await site.answer()
        await waiting

    site.run(run())


def test_the_timer_runs_again_when_the_queue_is_off_or_the_submitter_goes_away() -> None:
    site = Site()
    plan = site.plan()

    async def run() -> None:
        waiting = asyncio.create_task(site.endpoint.submit(plan))
        await asyncio.sleep(1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not site.evaluations.is_paused("e1")
        site.queue.set_enabled(False)
        with pytest.raises(QueueDisabled, match="plan queue is disabled"):
            await site.endpoint.submit(plan)
        assert not site.evaluations.is_paused("e1")

    site.run(run())


def test_u6_a_full_job_needs_no_job_info_and_job_info_gets_the_job() -> None:
    site = Site()

    async def run() -> None:
        for plan in (site.plan("e1"), site.plan("e2", job=None, job_info=JobInfo(namespace="default", id="web"))):
            waiting = asyncio.create_task(site.endpoint.submit(plan))
            pending = await site.answer()
            assert pending.plan.job is not None
            assert pending.plan.job.id == "web"
            await waiting

    site.run(run())


def test_u7_five_at_once() -> None:
    site = Site()

    async def run() -> list[Any]:
        waiting = [asyncio.create_task(site.endpoint.submit(site.plan(f"e{number}"))) for number in range(5)]
        for number in range(5):
            await site.answer(number)
        return await asyncio.gather(*waiting)

    assert sorted(site.run(run())) == [0, 1, 2, 3, 4]
    assert site.metrics.snapshot()["nomad.plan.submit"]["count"] == 5


def test_known_fault_45_only_the_holder_may_submit() -> None:
    site = Site()
    plan = site.plan()

    async def run() -> None:
        site.evaluations.settle("e1", plan.eval_token)
        with pytest.raises(TokenRejected, match="not outstanding"):
            await site.endpoint.submit(plan)
        site.evaluations.deliver("e1", "token of another worker")
        with pytest.raises(TokenRejected, match="does not match"):
            await site.endpoint.submit(plan)
        with pytest.raises(TokenRejected, match="does not match"):
            site.evaluations.settle("e1", plan.eval_token)

    site.run(run())
    assert len(site.queue) == 0
    assert len(site.evaluations) == 1


def test_an_evaluation_redelivered_while_its_plan_was_on_its_way() -> None:
    site = Site()
    plan = site.plan()

    async def run() -> None:
        waiting = asyncio.create_task(site.endpoint.submit(plan))
        await asyncio.sleep(1)
        site.evaluations.deliver("e1", "token of another worker")
        await site.answer()
        assert await waiting == "result"

    site.run(run())
