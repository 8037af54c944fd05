"""Jobs through a whole server: registered, scaled, dispatched, stopped (worker-and-broker 2.3, schedulers 3, 4, 7)."""

import base64

import pytest

from fastplan.structs import Job
from fastplan.testing.builders import batch_job, group_api, service_job, system_job
from tests.server.served import node_id, tell, tell_embedded

DISPATCHED = {"Payload": "required", "MetaRequired": ["who"], "MetaOptional": ["why"]}


@pytest.fixture(params=["simulated", "embedded"])
def on(request, tmp_path):
    """Tell a story on a log in memory and on the log of this machine."""
    return tell if request.param == "simulated" else lambda story, **settings: tell_embedded(story, tmp_path, **settings)


def test_a_job_is_placed_on_nodes_that_have_room(on):
    async def story(served):
        await served.nodes(1, 2)
        written = await served.server.register_job(service_job("web", group_api(count=5, cpu_mhz=1000)))
        await served.settle()
        assert len(served.wanted()) == 5
        assert {each.node_id for each in served.wanted()} <= {node_id(1), node_id(2)}
        assert {each.name for each in served.wanted()} == {f"web.web[{number}]" for number in range(5)}
        (evaluation,) = served.evals()
        assert (evaluation.id,) == written.evaluation_ids
        assert (evaluation.status, evaluation.triggered_by, evaluation.create_index) == ("complete", "job-register", written.index)
        assert all(each.eval_id == evaluation.id for each in served.wanted())

    on(story)


def test_a_new_version_replaces_what_differs_and_an_equal_one_changes_nothing(on):
    async def story(served):
        await served.nodes(1, 2)
        job = service_job("web", group_api(count=3, Update={"MaxParallel": 3}))
        await served.server.register_job(job)
        await served.settle()
        first = {each.id for each in served.wanted()}
        await served.server.register_job(job)
        await served.settle()
        assert {each.id for each in served.wanted()} == first
        assert served.server.snapshot().job("default", "web").version == 0
        await served.server.register_job(service_job("web", group_api(count=3, memory_mib=300, Update={"MaxParallel": 3})))
        await served.settle()
        assert served.server.snapshot().job("default", "web").version == 1
        assert len(served.wanted()) == 3
        assert not first & {each.id for each in served.wanted()}
        assert {each.desired_status for each in served.allocs() if each.id in first} == {"stop"}

    on(story)


def test_scaling_adds_and_takes_away(on):
    async def story(served):
        await served.nodes(1, 2)
        await served.server.register_job(service_job("web", group_api(count=2)))
        await served.settle()
        first = {each.id for each in served.wanted()}
        await served.server.scale_job("default", "web", "web", 5)
        await served.settle()
        assert first < {each.id for each in served.wanted()}
        assert len(served.wanted()) == 5
        await served.server.scale_job("default", "web", "web", 1)
        await served.settle()
        # The lowest numbers stay.
        assert [each.name for each in served.wanted()] == ["web.web[0]"]

    on(story)


def test_an_allocation_that_is_stopped_is_placed_again(on):
    async def story(served):
        await served.nodes(1, 2)
        await served.server.register_job(service_job("web", group_api(count=2)))
        await served.settle()
        stopped, kept = served.wanted()
        written = await served.server.stop_alloc(stopped.id)
        await served.settle()
        assert served.server.snapshot().eval(written.evaluation_ids[0]).triggered_by == "alloc-stop"
        assert served.server.snapshot().alloc(stopped.id).desired_status == "stop"
        (other,) = [each for each in served.wanted() if each.id != kept.id]
        assert (other.name, other.previous_allocation) == (stopped.name, stopped.id)

    on(story)


@pytest.mark.parametrize("purge", [False, True])
def test_a_job_that_is_deregistered_runs_no_more(on, purge):
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=3)))
        await served.settle()
        await served.server.deregister_job("default", "web", purge)
        await served.settle()
        assert [each.desired_status for each in served.allocs()] == ["stop"] * 3
        job = served.server.snapshot().job("default", "web")
        if purge:
            assert job is None
        else:
            assert job.stop
            assert job.version == 1
        assert {each.status for each in served.evals()} == {"complete"}
        # A job of that name can be had again.
        await served.server.register_job(service_job("web", group_api(count=1)))
        await served.settle()
        assert len(served.wanted()) == 1

    on(story)


def test_what_does_not_exist_is_deregistered_without_a_trace():
    async def story(served):
        index = served.server.latest_index()
        written = await served.server.deregister_job("default", "web", True)
        assert (written.index, written.evaluation_ids) == (0, ())
        assert served.server.latest_index() == index

    tell(story)


def test_a_child_is_dispatched_with_its_payload_and_meta(on):
    async def story(served):
        await served.nodes(1)
        parent = batch_job("crunch", group_api(), ParameterizedJob=DISPATCHED, Meta={"colour": "red"})
        assert (await served.server.register_job(parent)).evaluation_ids == ()
        await served.settle()
        assert served.allocs("crunch") == []
        written = await served.server.dispatch_job("default", "crunch", b"\x00bytes", {"who": "me"})
        (evaluation_id,) = written.evaluation_ids
        await served.settle()
        child = served.server.snapshot().job("default", served.server.snapshot().eval(evaluation_id).job_id)
        assert child.id.startswith("crunch/dispatch-")
        assert child.parent_id == "crunch"
        assert base64.b64decode(child.payload) == b"\x00bytes"
        assert child.meta == {"colour": "red", "who": "me"}
        (alloc,) = served.wanted(child.id)
        assert alloc.job.dispatched
        # The parent takes more of them, and its children outlive it.
        await served.server.dispatch_job("default", "crunch", b"more", {"who": "you", "why": "so"})
        await served.server.deregister_job("default", "crunch")
        await served.settle()
        assert len([each for each in served.server.snapshot().allocs() if each.desired_status == "run"]) == 2

    on(story)


def test_a_system_job_follows_the_nodes(on):
    async def story(served):
        await served.nodes(1, 2)
        await served.server.register_job(system_job("agent"))
        await served.settle()
        assert sorted(each.node_id for each in served.wanted("agent")) == [node_id(1), node_id(2)]
        await served.nodes(3)
        await served.settle()
        assert sorted(each.node_id for each in served.wanted("agent")) == [node_id(1), node_id(2), node_id(3)]
        await served.server.update_node_status(node_id(2), "down")
        await served.settle()
        assert sorted(each.node_id for each in served.wanted("agent")) == [node_id(1), node_id(3)]
        await served.server.update_node_status(node_id(2), "ready")
        await served.settle()
        assert sorted(each.node_id for each in served.wanted("agent")) == [node_id(1), node_id(2), node_id(3)]

    on(story)


def test_a_finished_batch_job_is_left_alone(on):
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(batch_job("crunch", group_api("crunch", count=2)))
        await served.settle()
        await served.client_says(*served.wanted("crunch"), status="complete", TaskStates={"crunch": {"State": "dead", "Failed": False}})
        await served.settle()
        await served.server.register_job(batch_job("crunch", group_api("crunch", count=2)))
        await served.settle()
        assert [each.client_status for each in served.allocs("crunch")] == ["complete"] * 2
        assert served.server.snapshot().job("default", "crunch").status == "dead"

    on(story)


def test_priority_decides_who_gets_the_last_room():
    async def story(served):
        # Nobody works until both are there.
        await served.server.set_scheduler_config({"PauseEvalBroker": True})
        await served.nodes(1)
        for name, priority in (("low", 20), ("high", 70)):
            await served.server.register_job(Job.from_api({**service_job(name, group_api(cpu_mhz=3000)).to_api(), "Priority": priority}))
        await served.server.set_scheduler_config({"PauseEvalBroker": False})
        await served.settle()
        assert (len(served.wanted("high")), len(served.wanted("low"))) == (1, 0)
        assert [each.status for each in served.evals("low")] == ["complete", "blocked"]

    tell(story, workers=1)
