"""Nodes through a whole server: they come, fail, are drained and closed (worker-and-broker 2.3, 5.4, schedulers 3.1, 3.2)."""

import pytest

from fastplan.errors import StateError
from fastplan.testing.builders import group_api, ready_node, service_job, system_job
from tests.server.served import node_id, tell


def test_what_found_no_room_is_placed_when_a_node_registers():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=6, cpu_mhz=1000)))
        await served.settle()
        assert len(served.wanted()) == 4
        complete, blocked = served.evals()
        assert (complete.status, complete.queued_allocations, complete.blocked_eval) == ("complete", {"web": 2}, blocked.id)
        assert (blocked.status, blocked.triggered_by) == ("blocked", "queued-allocs")
        assert served.server.blocked.known_ids() == {blocked.id}
        await served.nodes(2)
        await served.settle()
        assert len(served.wanted()) == 6
        assert served.server.blocked.known_ids() == set()
        assert {each.status for each in served.evals()} == {"complete"}
        assert served.evals()[-1].queued_allocations == {"web": 0}

    tell(story)


def test_what_found_no_room_is_placed_when_something_ends():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("old", group_api(count=4, cpu_mhz=1000)))
        await served.settle()
        await served.server.register_job(service_job("web", group_api(count=1, cpu_mhz=1000)))
        await served.settle()
        assert served.wanted() == []
        await served.server.deregister_job("default", "old")
        await served.settle()
        # Their clients run them still.
        assert served.wanted() == []
        await served.client_says(*served.allocs("old"), status="complete")
        await served.settle()
        assert len(served.wanted()) == 1

    tell(story)


def test_work_of_a_node_that_is_down_is_lost_and_placed_elsewhere():
    async def story(served):
        await served.nodes(1, 2)
        await served.server.register_job(service_job("web", group_api(count=4)))
        await served.settle()
        before = served.wanted()
        gone = before[0].node_id
        lost = {each.id for each in before if each.node_id == gone}
        await served.server.update_node_status(gone, "down")
        await served.settle()
        assert {(each.desired_status, each.client_status) for each in served.allocs() if each.id in lost} == {("stop", "lost")}
        assert len(served.wanted()) == 4
        assert gone not in {each.node_id for each in served.wanted()}
        assert {each.previous_allocation for each in served.wanted()} - {""} == lost

    tell(story)


def test_a_drain_migrates_what_is_marked_and_closes_the_node():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=2)))
        await served.settle()
        await served.nodes(2)
        await served.server.update_node_drain(node_id(1), {"Deadline": 3_600_000_000_000})
        await served.settle()
        drained = served.server.snapshot().node(node_id(1))
        assert (drained.scheduling_eligibility, drained.drain_strategy.deadline) == ("ineligible", 3_600_000_000_000)
        # Who drains decides in which order; here it is whoever asks for it.
        for alloc in [each for each in served.wanted() if each.node_id == node_id(1)]:
            await served.server.stop_alloc(alloc.id)
            await served.settle()
        assert [each.node_id for each in served.wanted()] == [node_id(2)] * 2
        await served.server.update_node_drain(node_id(1), None)
        assert served.server.snapshot().node(node_id(1)).drain_strategy is None

    tell(story)


def test_an_ineligible_node_keeps_what_it_has_and_gets_nothing_new():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=1)))
        await served.settle()
        (kept,) = served.wanted()
        await served.server.update_node_eligibility(node_id(1), False)
        await served.server.scale_job("default", "web", "web", 3)
        await served.settle()
        assert [each.id for each in served.wanted()] == [kept.id]
        assert served.evals(status="blocked")
        await served.server.update_node_eligibility(node_id(1), True)
        await served.settle()
        assert len(served.wanted()) == 3
        assert kept.id in {each.id for each in served.wanted()}

    tell(story)


def test_a_node_that_is_deregistered_loses_its_work():
    async def story(served):
        await served.nodes(1, 2)
        await served.server.register_job(service_job("web", group_api(count=2)))
        await served.server.register_job(system_job("agent"))
        await served.settle()
        await served.server.deregister_node(node_id(1))
        await served.settle()
        assert served.server.snapshot().node(node_id(1)) is None
        assert {each.node_id for each in served.wanted() + served.wanted("agent")} == {node_id(2)}
        assert len(served.wanted()) == 2
        with pytest.raises(StateError, match="node not found"):
            await served.server.update_node_status(node_id(1), "ready")

    tell(story)


def test_two_nodes_with_one_id_are_one_node_that_has_changed():
    async def story(served):
        await served.nodes(1, cpu_mhz=4000)
        await served.server.register_node(ready_node(node_id(1), cpu_mhz=2000, datacenter="dc2"))
        assert [(each.id, each.datacenter) for each in served.server.snapshot().nodes()] == [(node_id(1), "dc2")]
        await served.server.register_job(service_job("web", group_api(count=4, cpu_mhz=1000)))
        await served.settle()
        assert len(served.wanted()) == 2

    tell(story)


def test_room_that_comes_while_the_broker_is_paused_is_found_when_it_goes_on():
    async def story(served):
        await served.server.register_job(service_job("web"))
        await served.settle()
        await served.server.set_scheduler_config({"PauseEvalBroker": True})
        await served.nodes(1)
        await served.settle()
        assert served.wanted() == []
        await served.server.set_scheduler_config({"PauseEvalBroker": False})
        await served.settle()
        # The blocked evaluation is older than the node.
        assert len(served.wanted()) == 1

    tell(story, restore_unblock_check=True)
