"""The loop of a worker (worker-and-broker 6, 11.4 rows 91 to 107), under virtual time."""

import asyncio
from collections import deque
from itertools import pairwise
from typing import Any

import pytest

from fastplan.errors import PlanError, QueueDisabled, StateError
from fastplan.metrics import Metrics
from fastplan.scheduler.requests import CreateEval, ReblockEval, SubmitPlan, UpdateEval
from fastplan.scheduler.setting import Setting
from fastplan.structs import Evaluation, Plan
from fastplan.testing import VirtualClock, run_virtual
from fastplan.worker import Dequeued, InlineExecutor, Worker, WorkerMetrics, WorkerSettings, WorkerStatus, WorkloadStatus


class Snapshot:
    def __init__(self, index):
        self.index = index

    def latest_index(self):
        return self.index


class State:
    def __init__(self, index=10):
        self.index = index
        self.changed = asyncio.Event()
        self.queued = {}

    def latest_index(self):
        return self.index

    def snapshot(self):
        return Snapshot(self.index)

    def advance(self, index):
        self.index = index
        self.changed.set()
        self.changed = asyncio.Event()

    async def index_reached(self, index, timeout_s):
        async with asyncio.timeout(timeout_s):
            while self.index < index:
                await self.changed.wait()

    def queued_counts(self, namespace, job_id):
        return self.queued


class Result:
    def __init__(self, refresh_index=0):
        self.refresh_index = refresh_index


class Leader:
    """Deals out what it is given; an exception in the deal is raised."""

    def __init__(self, clock, deal):
        self.clock = clock
        self.deal = deque(deal)
        self.log = []
        self.answers: deque[Any] = deque()
        self.asked_s = []

    async def dequeue(self, queues, timeout_s, version):
        self.asked_s.append(round(self.clock.monotonic_s(), 3))
        if not self.deal:
            await asyncio.sleep(timeout_s)
            return None
        card = self.deal.popleft()
        if isinstance(card, Exception):
            raise card
        return card

    async def ack(self, eval_id, token):
        self.log.append(("ack", eval_id, token))

    async def nack(self, eval_id, token):
        self.log.append(("nack", eval_id, token))

    async def submit_plan(self, plan):
        self.log.append(("plan", plan.eval_token, plan.snapshot_index, round(self.clock.monotonic_s(), 3)))
        answer = self.answers.popleft() if self.answers else Result()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def update_eval(self, evaluation, token):
        self.log.append(("update", evaluation.status, evaluation.snapshot_index, token))

    async def create_eval(self, evaluation, token):
        self.log.append(("create", evaluation.id, evaluation.snapshot_index, evaluation.create_time == evaluation.modify_time > 0))

    async def reblock_eval(self, evaluation, token):
        self.log.append(("reblock", evaluation.id, evaluation.snapshot_index))


def held(eval_id="e1", wait_index=0, modify_index=5, **fields):
    return Dequeued(Evaluation(id=eval_id, type="service", job_id="web", modify_index=modify_index, **fields), f"token-{eval_id}", wait_index)


class Site:
    def __init__(self, deal, scheduler=None, **settings):
        self.clock = VirtualClock()
        self.deal = deal
        self.scheduler = scheduler or (lambda evaluation, state, setting: iter_nothing())
        self.settings = settings
        self.shutting_down = False

    def run(self, story):
        async def main():
            self.leader = Leader(self.clock, self.deal)
            self.state = State()
            self.worker = Worker(
                "w",
                endpoints=self.leader,
                state=self.state,
                clock=self.clock,
                executor=InlineExecutor(),
                new_setting=lambda: Setting(self.clock.now_ns),
                metrics=WorkerMetrics(Metrics()),
                is_shutting_down=lambda: self.shutting_down,
                settings=WorkerSettings(**self.settings),
                scheduler=self.scheduler,
            )
            self.running = asyncio.get_running_loop().create_task(self.worker.run())
            await story(self)
            self.worker.stop()
            await self.running

        run_virtual(main(), self.clock)


def iter_nothing():
    yield from ()


def asks(*requests, answers=None):
    def scheduler(evaluation, state, setting):
        for request in requests:
            answer = yield request(evaluation) if callable(request) else request
            if answers is not None:
                answers.append(answer)

    return scheduler


async def a_second(site):
    await asyncio.sleep(1.0)


def test_an_evaluation_is_handled_and_acked():
    site = Site([held()])
    site.run(a_second)
    assert site.leader.log == [("ack", "e1", "token-e1")]
    assert site.worker.info().status is WorkerStatus.STOPPED
    assert site.worker.info().workload is WorkloadStatus.STOPPED


def test_row_91_another_version_waits_half_a_minute():
    site = Site([StateError("dequeue disallowed: calling scheduler version is 1; leader version is 2"), held()])

    async def story(site):
        await asyncio.sleep(29.0)
        assert site.leader.log == []
        await asyncio.sleep(2.0)

    site.run(story)
    assert site.leader.log[0][0] == "ack"


def test_row_91_the_wait_ends_with_the_worker():
    site = Site([StateError("calling scheduler version")])
    site.run(a_second)
    assert site.clock.monotonic_s() < 2.0


def test_row_92_any_answer_resets_the_back_off():
    site = Site([PlanError("down"), PlanError("down"), None, PlanError("down"), held()])
    site.run(a_second)
    starts = site.leader.asked_s
    assert [round(later - sooner, 3) for sooner, later in pairwise(starts[:5])] == [0.02, 0.04, 0.0, 0.02]


def test_row_93_the_state_is_waited_for():
    seen = []

    def scheduler(evaluation, state, setting):
        seen.append(state.latest_index())
        yield from ()

    site = Site([held(wait_index=30)], scheduler)

    async def story(site):
        await asyncio.sleep(0.010)
        assert seen == []
        site.state.advance(31)
        await asyncio.sleep(0.001)
        assert seen == [31]

    site.run(story)


def test_the_index_of_the_evaluation_counts_where_none_is_named():
    site = Site([held(modify_index=20)])

    async def story(site):
        await asyncio.sleep(0.1)
        assert site.worker.info().workload is WorkloadStatus.WAITING_FOR_INDEX
        site.state.advance(20)
        await asyncio.sleep(0.1)

    site.run(story)
    assert site.leader.log == [("ack", "e1", "token-e1")]


def test_rows_94_and_95_given_back_then_catching_up(caplog):
    site = Site([held(wait_index=100), held("e2")], index_limit_s=0.010, catch_up_limit_s=0.100)

    async def story(site):
        await asyncio.sleep(0.050)
        assert site.leader.log == [("nack", "e1", "token-e1")], "free for others at once"
        assert len(site.leader.asked_s) == 1, "and nothing more is taken"
        await asyncio.sleep(0.100)

    site.run(story)
    assert site.leader.log[1] == ("ack", "e2", "token-e2")
    assert "timed out after 10ms waiting for index=100" in caplog.text


@pytest.mark.parametrize("trouble", [ValueError("a defect"), StateError("failed to process eval: x")])
def test_rows_96_and_97_a_scheduler_that_fails(trouble, caplog):
    def scheduler(evaluation, state, setting):
        if evaluation.id == "e1":
            raise trouble
        yield from ()

    site = Site([held(), held("e2")], scheduler)
    site.run(a_second)
    assert site.leader.log == [("nack", "e1", "token-e1"), ("ack", "e2", "token-e2")]


def test_row_97_unknown_type_is_given_back():
    from fastplan.scheduler.process import process

    site = Site([Dequeued(Evaluation(id="e", type="mystery"), "t", 0)], process)
    site.run(a_second)
    assert site.leader.log == [("nack", "e", "t")]


def test_row_98_a_plan_carries_token_and_index():
    site = Site([held()], asks(SubmitPlan(Plan(eval_id="e1"))))
    site.run(a_second)
    assert site.leader.log[0][:3] == ("plan", "token-e1", 10)


def test_row_99_no_leader_is_waited_out():
    answers: list[Any] = []
    site = Site([held()], asks(SubmitPlan(Plan(eval_id="e1")), answers=answers))

    async def story(site):
        site.leader.answers.extend([PlanError("No cluster leader"), QueueDisabled("plan queue is disabled")])
        await asyncio.sleep(3.0)

    site.run(story)
    times = [entry[3] for entry in site.leader.log if entry[0] == "plan"]
    assert [round(later - sooner, 3) for sooner, later in pairwise(times)] == [0.5, 1.0]
    assert len(answers) == 1
    assert answers[0].state is None


def test_row_100_other_errors_reach_the_scheduler():
    caught = []

    def scheduler(evaluation, state, setting):
        try:
            yield SubmitPlan(Plan(eval_id="e1"))
        except PlanError as error:
            caught.append(str(error))
            raise

    site = Site([held()], scheduler)

    async def story(site):
        site.leader.answers.append(PlanError("evaluation token does not match"))
        await asyncio.sleep(1.0)

    site.run(story)
    assert caught == ["evaluation token does not match"]
    assert [entry[0] for entry in site.leader.log] == ["plan", "nack"]


def test_row_101_a_refresh_that_never_comes():
    site = Site([held()], asks(SubmitPlan(Plan(eval_id="e1"))))

    async def story(site):
        site.leader.answers.append(Result(refresh_index=99))
        await asyncio.sleep(4.9)
        assert [entry[0] for entry in site.leader.log] == ["plan"]
        await asyncio.sleep(0.2)

    site.run(story)
    assert [entry[0] for entry in site.leader.log] == ["plan", "nack"]


def test_row_102_the_first_index_stays_that_of_the_run():
    answers: list[Any] = []
    site = Site([held()], asks(SubmitPlan(Plan(eval_id="e1")), SubmitPlan(Plan(eval_id="e1")), answers=answers))

    async def story(site):
        site.leader.answers.append(Result(refresh_index=15))
        await asyncio.sleep(0.1)
        site.state.advance(17)
        await asyncio.sleep(0.1)

    site.run(story)
    assert [entry[2] for entry in site.leader.log if entry[0] == "plan"] == [10, 10]
    assert answers[0].state.latest_index() == 17


@pytest.mark.parametrize(("known", "written"), [({"web": 3}, ["reblock"]), ({"web": 4}, ["update", "reblock"]), ({}, ["reblock"])])
def test_row_103_reblocking_updates_what_is_queued(known, written):
    def blocked(evaluation):
        evaluation.queued_allocations = {"web": 3}
        return ReblockEval(evaluation)

    site = Site([held(status="blocked")], asks(blocked))

    async def story(site):
        site.state.queued = known
        await asyncio.sleep(0.1)

    site.run(story)
    assert [entry[0] for entry in site.leader.log] == [*written, "ack"]


def test_updates_and_creations_carry_index_and_times():
    site = Site([held()], asks(lambda evaluation: UpdateEval(evaluation), CreateEval(Evaluation(id="next", previous_eval="e1"))))
    site.run(a_second)
    assert site.leader.log[0] == ("update", "", 10, "token-e1")
    assert site.leader.log[1] == ("create", "next", 10, True)


def test_modify_time_never_precedes_creation():
    seen = []

    def late(evaluation):
        evaluation.create_time = 10**19
        seen.append(evaluation)
        return UpdateEval(evaluation)

    Site([held()], asks(late)).run(a_second)
    assert seen[0].modify_time == 10**19 + 1


def test_row_104_a_pause_takes_effect_at_the_next_fetch():
    site = Site([])

    async def story(site):
        await asyncio.sleep(0.1)
        site.worker.pause()
        assert site.worker.info().status is WorkerStatus.PAUSING
        await asyncio.sleep(0.5)
        assert site.worker.info().status is WorkerStatus.PAUSED
        assert site.worker.info().workload is WorkloadStatus.PAUSED
        site.leader.deal.append(held())
        await asyncio.sleep(5.0)
        assert site.leader.log == []
        site.worker.resume()
        await asyncio.sleep(0.1)
        assert site.leader.log == [("ack", "e1", "token-e1")]
        assert site.worker.info().status is WorkerStatus.STARTED

    site.run(story)


def test_row_105_resumed_before_it_paused():
    site = Site([])

    async def story(site):
        await asyncio.sleep(0.1)
        site.worker.pause()
        site.worker.resume()
        site.leader.deal.append(held())
        await asyncio.sleep(1.0)
        assert site.leader.log == [("ack", "e1", "token-e1")]

    site.run(story)


def test_row_106_stopped_while_paused_and_for_good():
    site = Site([])

    async def story(site):
        site.worker.pause()
        await asyncio.sleep(1.0)
        site.worker.stop()
        await asyncio.sleep(0.001)
        assert site.worker.info().status is WorkerStatus.STOPPED
        site.worker.pause()
        site.worker.resume()
        assert site.worker.info().status is WorkerStatus.STOPPED

    site.run(story)


def test_row_107_the_server_ends_between_fetch_and_wait():
    site = Site([held()])
    site.shutting_down = True
    site.run(a_second)
    assert site.leader.log == [("nack", "e1", "token-e1")]


def test_a_worker_that_waits_for_an_index_gives_back_when_stopped():
    site = Site([held(wait_index=99)])

    async def story(site):
        await asyncio.sleep(0.1)
        site.worker.stop()
        await asyncio.sleep(0.001)

    site.run(story)
    assert site.leader.log == [("nack", "e1", "token-e1")]


def test_no_plan_is_sent_while_the_server_ends():
    def scheduler(evaluation, state, setting):
        site.shutting_down = True
        yield SubmitPlan(Plan(eval_id="e1"))

    site = Site([held()], scheduler)
    site.run(a_second)
    assert site.leader.log == [("nack", "e1", "token-e1")]
