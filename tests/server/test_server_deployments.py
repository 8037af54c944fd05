"""Deployments through a whole server: canaries, pauses, failures that revert, and roll-outs that nobody watches (schedulers 4.9, 7.8)."""

import asyncio

import pytest

from fastplan.errors import StateError
from fastplan.rules import Rules
from fastplan.testing.builders import group_api, service_job, system_job
from tests.server.served import tell


def version(number, count=3, **update):
    """Return a version of a job that differs from the others in what its tasks take."""
    return service_job("web", group_api(count=count, memory_mib=256 + number, Update={"MaxParallel": 1, "AutoRevert": False, **update}))


async def canaries(served, **update):
    """Have version 0 run healthily and the canary of version 1 placed."""
    await served.nodes(1, 2)
    await served.server.register_job(version(0, Canary=1, **update))
    await served.settle()
    await served.become_healthy()
    await served.server.register_job(version(1, Canary=1, **update))
    await served.settle()
    return served.deployment()


def versions(served):
    return sorted(each.job.version for each in served.wanted())


def test_canaries_wait_to_be_promoted_and_then_the_rest_follows():
    async def story(served):
        deployment = await canaries(served)
        assert (deployment.status, versions(served)) == ("running", [0, 0, 0, 1])
        with pytest.raises(StateError, match='Task group "web" has 0/1 healthy allocations'):
            await served.server.promote_deployment(deployment.id)
        await served.become_healthy()
        assert versions(served) == [0, 0, 0, 1]
        await served.server.promote_deployment(deployment.id)
        await served.settle()
        await served.become_healthy()
        assert versions(served) == [1, 1, 1]
        assert served.deployment().status == "successful"

    tell(story)


def test_a_paused_deployment_places_nothing_until_it_goes_on():
    async def story(served):
        await served.nodes(1, 2)
        await served.server.register_job(version(0))
        await served.settle()
        await served.become_healthy()
        await served.server.register_job(version(1))
        await served.settle()
        assert versions(served) == [0, 0, 1]
        deployment = served.deployment()
        await served.server.pause_deployment(deployment.id, True)
        await served.become_healthy()
        await served.settle()
        assert (served.deployment().status, versions(served)) == ("paused", [0, 0, 1])
        await served.server.pause_deployment(deployment.id, False)
        await served.settle()
        await served.become_healthy()
        assert (served.deployment().status, versions(served)) == ("successful", [1, 1, 1])

    tell(story)


def test_a_failed_deployment_returns_to_the_last_stable_version():
    async def story(served):
        deployment = await canaries(served, AutoRevert=True)
        assert served.server.snapshot().job("default", "web", 0).stable
        await served.server.fail_deployment(deployment.id)
        await served.settle()
        failed = served.server.snapshot().deployment(deployment.id)
        assert (failed.status, failed.status_description) == ("failed", "Deployment marked as failed - rolling back to job version 0")
        job = served.server.snapshot().job("default", "web")
        assert (job.version, job.group("web").tasks[0].resources.memory_mb) == (2, 256)
        await served.become_healthy()
        assert len(served.wanted()) == 3
        assert {each.job.group("web").tasks[0].resources.memory_mb for each in served.wanted()} == {256}
        with pytest.raises(StateError, match="can't fail terminal deployment"):
            await served.server.fail_deployment(deployment.id)

    tell(story)


@pytest.mark.parametrize("fail_first", [True, False])
def test_a_revert_and_a_new_version_at_the_same_time_leave_no_version_out(fail_first):
    async def story(served):
        deployment = await canaries(served, AutoRevert=True)
        calls = [served.server.fail_deployment(deployment.id), served.server.register_job(version(9, AutoRevert=True))]
        await asyncio.gather(*(calls if fail_first else reversed(calls)), return_exceptions=True)
        await served.settle()
        found = served.server.snapshot().job_versions("default", "web")
        assert [each.version for each in found] == list(reversed(range(len(found))))
        sizes = [each.group("web").tasks[0].resources.memory_mb for each in reversed(found)]
        # The later one stands on the earlier one; before, both were version 2 and one was lost.
        assert sizes == ([256, 257, 256, 265] if fail_first else [256, 257, 265, 256])

    tell(story)


@pytest.mark.parametrize(("settings", "rolls_on"), [({}, True), ({"deployment_watcher": True}, False), ({"rules": Rules.NOMAD}, False)])
def test_system_jobs_roll_on_by_themselves_unless_somebody_watches(settings, rolls_on):
    def agent(memory_mib):
        return system_job("agent", group_api(memory_mib=memory_mib, Update={"MaxParallel": 1, "Stagger": 30_000_000_000}))

    async def story(served):
        await served.nodes(1, 2, 3)
        await served.server.register_job(agent(100))
        await served.settle()
        await served.become_healthy("agent")
        await served.server.register_job(agent(101))
        await served.settle()
        for _ in range(6):
            await served.become_healthy("agent")
            await asyncio.sleep(60)
            await served.settle()
        new = [each for each in served.wanted("agent") if each.job.version == 1]
        if rolls_on:
            assert len(new) == 3
        followed = [each for each in served.evals("agent") if each.triggered_by == "rolling-update"]
        assert bool(followed) is rolls_on

    tell(story, **settings)


def test_what_is_not_there_cannot_be_deployed():
    async def story(served):
        for call in (served.server.promote_deployment, served.server.fail_deployment):
            with pytest.raises(StateError, match="deployment not found"):
                await call("nothing")
        with pytest.raises(StateError, match="deployment not found"):
            await served.server.pause_deployment("nothing", True)

    tell(story)
