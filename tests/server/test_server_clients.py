"""What clients report, through a whole server: failures, delays, completions, health (schedulers 7.3, 7.4)."""

import asyncio

import pytest

from fastplan.structs.times import time_ns
from fastplan.testing.builders import batch_job, group_api, service_job, system_job
from tests.server.served import node_id, tell

AT_ONCE = {"Attempts": 2, "Interval": 3_600_000_000_000, "Delay": 0, "DelayFunction": "constant", "Unlimited": False}
LATER = {"Attempts": 2, "Interval": 3_600_000_000_000, "Delay": 30_000_000_000, "DelayFunction": "constant", "Unlimited": False}


def failed_at(group="web"):
    """Return the task states of an allocation that failed when virtual time began."""
    moment = "2023-11-14T22:13:20Z"
    return {group: {"State": "dead", "Failed": True, "StartedAt": moment, "FinishedAt": moment}}


def test_what_failed_is_placed_elsewhere_at_once_where_the_policy_says_so():
    async def story(served):
        await served.nodes(1, 2)
        await served.server.register_job(batch_job("crunch", group_api(ReschedulePolicy={**AT_ONCE, "Delay": 5_000_000_000})))
        await served.settle()
        (failed,) = served.wanted("crunch")
        await asyncio.sleep(60)
        await served.client_says(failed, status="failed", TaskStates=failed_at())
        await served.settle()
        # The delay counts from the failure, a minute ago.
        (other,) = served.wanted("crunch")
        assert (other.previous_allocation, other.name) == (failed.id, failed.name)
        assert len(other.reschedule_tracker.events) == 1
        assert [each.triggered_by for each in served.evals("crunch")] == ["job-register", "alloc-failure"]

    tell(story)


def test_a_follow_up_waits_for_its_time_and_settled_does_not_wait_for_it():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(ReschedulePolicy=LATER)))
        await served.settle()
        await served.become_healthy()
        (failed,) = served.wanted()
        await served.client_says(failed, status="failed", TaskStates=failed_at())
        now_s = served.clock.monotonic_s()
        await served.settle()
        assert served.clock.monotonic_s() - now_s < 1
        (follow_up,) = served.evals(status="pending")
        assert follow_up.triggered_by == "alloc-reschedule"
        assert served.server.snapshot().alloc(failed.id).followup_eval_id == follow_up.id
        assert served.server.broker.stats().total_waiting == 1
        assert served.wanted() == []
        left_s = (time_ns(follow_up.wait_until) - served.clock.now_ns()) / 1e9
        assert 20 < left_s <= 30
        await asyncio.sleep(left_s - 1)
        await served.settle()
        assert served.wanted() == []
        await asyncio.sleep(1.1)
        await served.settle()
        (other,) = served.wanted()
        assert other.previous_allocation == failed.id

    tell(story)


def test_attempts_run_out():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(ReschedulePolicy={**LATER, "Delay": 5_000_000_000, "Attempts": 1})))
        await served.settle()
        await served.become_healthy()
        for _ in range(3):
            for alloc in served.wanted():
                await served.client_says(alloc, status="failed", TaskStates=failed_at())
            await asyncio.sleep(60)
            await served.settle()
        assert [each.client_status for each in served.allocs()] == ["failed", "failed"]
        assert served.server.broker.stats().total_waiting == 0

    tell(story)


def test_a_system_allocation_that_failed_is_placed_on_its_node_again():
    async def story(served):
        await served.nodes(1, 2)
        await served.server.register_job(system_job("agent"))
        await served.settle()
        failed = served.wanted("agent")[0]
        await served.client_says(failed, status="failed", TaskStates=failed_at())
        await served.settle()
        assert sorted(each.node_id for each in served.wanted("agent")) == [node_id(1), node_id(2)]

    tell(story)


def test_reports_of_unknown_allocations_are_passed_over():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web"))
        await served.settle()
        (alloc,) = served.wanted()
        stranger = alloc.copy()
        stranger.id = "stranger"
        await served.client_says(stranger, alloc, status="running")
        await served.settle()
        assert [(each.id, each.client_status) for each in served.allocs()] == [(alloc.id, "running")]
        index = served.server.latest_index()
        await served.client_says(stranger, status="running")
        assert served.server.latest_index() == index

    tell(story)


@pytest.mark.parametrize("back", ["before", "after"])
def test_a_client_that_is_away_for_a_while_comes_back(back):
    async def story(served):
        await served.nodes(1, 2)
        disconnect = {"LostAfter": 600_000_000_000, "Replace": True, "Reconcile": "keep_original"}
        await served.server.register_job(service_job("web", group_api(Disconnect=disconnect)))
        await served.settle()
        (away,) = served.wanted()
        await served.become_healthy()
        await served.server.update_node_status(away.node_id, "disconnected")
        await served.settle()
        assert served.server.snapshot().alloc(away.id).client_status == "unknown"
        # Its replacement waits as long as one for what has failed.
        assert {each.triggered_by for each in served.evals(status="pending")} == {"alloc-reschedule", "max-disconnect-timeout"}
        await asyncio.sleep(31)
        await served.settle()
        other = [each for each in served.wanted() if each.id != away.id]
        assert [each.previous_allocation for each in other] == [away.id]
        if back == "after":
            await asyncio.sleep(601)
            await served.settle()
            assert served.server.snapshot().alloc(away.id).client_status == "lost"
            assert [each.id for each in served.wanted()] == [other[0].id]
            return
        await served.server.update_node_status(away.node_id, "ready")
        await served.client_says(away, status="running")
        await served.settle()
        assert [each.id for each in served.wanted()] == [away.id]

    tell(story)
