"""What would happen: dry runs tell it and leave no trace (schedulers 3.4)."""

from typing import Any

import pytest

from fastplan.errors import InvalidInput
from fastplan.testing.builders import group_api, service_job, system_job
from tests.server.served import node_id, tell, tell_embedded


def test_a_dry_run_tells_where_and_what_is_missing(tmp_path):
    async def story(served):
        await served.nodes(1, 2)
        run = await served.server.plan_job(service_job("web", group_api(count=10, cpu_mhz=1000)))
        placed = {node: len(allocs) for node, allocs in run.plan.node_allocation.items()}
        assert placed == {node_id(1): 4, node_id(2): 4}
        assert (run.queued, run.refused, run.job_modify_index) == ({"web": 2}, {}, 0)
        assert run.failed["web"].dimension_exhausted == {"cpu": 2}
        assert run.desired["web"].place == 10
        assert [each.status for each in run.created] == ["blocked"]

    tell(story)
    tell_embedded(story, tmp_path)


def test_a_dry_run_leaves_no_trace():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=2)))
        await served.settle()
        before, index, stats = served.server.machine.store.to_dump(), served.server.latest_index(), served.server.broker.stats()
        job = service_job("web", group_api(count=7, cpu_mhz=900))
        asked = job.to_api()
        run = await served.server.plan_job(job)
        assert run.job_modify_index == served.server.snapshot().job("default", "web").job_modify_index
        assert (run.job.version, run.desired["web"].place) == (1, 5)
        await served.server.plan_job(service_job("other"))
        await served.server.plan_job(system_job("agent"))
        assert job.to_api() == asked
        await served.settle()
        assert served.server.machine.store.to_dump() == before
        assert served.server.latest_index() == index
        assert served.server.broker.stats() == stats

    tell(story)


def test_what_comes_later_does_not_depend_on_dry_runs():
    def ids(dry_runs):
        found: list[Any] = []

        async def story(served):
            await served.nodes(1, 2)
            for _ in range(dry_runs):
                await served.server.plan_job(service_job("web", group_api(count=3)))
            await served.server.register_job(service_job("web", group_api(count=3)))
            await served.settle()
            found.extend((each.id, each.node_id) for each in served.allocs())
            found.extend(each.id for each in served.evals())

        tell(story)
        return found

    assert ids(0) == ids(3)


def test_a_dry_run_refuses_what_a_registration_refuses():
    async def story(served):
        with pytest.raises(InvalidInput, match=r"Count"):
            await served.server.plan_job(service_job("web", group_api(count=-1)))
        assert served.allocs() == []

    tell(story)


def test_a_dry_run_of_a_job_that_is_registered_tells_that_nothing_changes():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=2)))
        await served.settle()
        run = await served.server.plan_job(service_job("web", group_api(count=2)))
        assert run.plan is None or not run.plan.node_allocation
        assert (run.desired["web"].ignore, run.desired["web"].place, run.queued) == (2, 0, {"web": 0})

    tell(story)
