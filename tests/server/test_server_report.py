"""The figures of a server (worker-and-broker 10)."""

import asyncio

from fastplan.testing.builders import group_api, service_job
from tests.server.served import tell


def test_a_report_is_up_to_date():
    async def story(served):
        await served.nodes(1)
        for number in range(3):
            await served.server.register_job(service_job(f"job-{number}", group_api(count=5, cpu_mhz=1000)))
        figures = served.server.report()
        assert figures["nomad.broker.total_ready"]["value"] == 3
        held = await served.server.gate.dequeue(("service",), 1)
        # The object itself lags behind, a report does not.
        assert served.server.metrics["nomad.broker.total_ready"].read() == {"value": 3}
        figures = served.server.report()
        assert figures["nomad.broker.total_ready"]["value"] == 2
        assert figures["nomad.broker.total_unacked"]["value"] == 1
        served.server.broker.nack(held.evaluation.id, held.token)
        assert served.server.report()["nomad.broker.total_waiting"]["value"] == 1

    tell(story, workers=0)


def test_a_report_tells_what_was_done_and_what_is_blocked():
    async def story(served):
        await served.nodes(1)
        await served.server.register_job(service_job("web", group_api(count=5, cpu_mhz=1000)))
        await served.settle()
        await asyncio.sleep(0.1)
        figures = served.server.report()
        assert figures["nomad.blocked_evals.total_blocked"]["value"] == 1
        assert figures["nomad.worker.submit_plan"]["count"] == 1
        assert figures["nomad.plan.queue_depth"]["value"] == 0
        assert all(figure["description"] for figure in figures.values())
        await served.nodes(2)
        await served.settle()
        assert served.server.report()["nomad.blocked_evals.total_blocked"]["value"] == 0

    tell(story)
