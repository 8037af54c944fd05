"""The builders: what they name is what one gets, it runs as it is, and further fields in the shape of the API win."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fastplan.errors import InvalidInput
from fastplan.fit import allocs_fit
from fastplan.fit.demand import totals_of
from fastplan.structs import Evaluation, Job, Node
from fastplan.testing import SchedulerHarness
from fastplan.testing.builders import batch_job, group_api, ready_node, running_alloc, service_job, sysbatch_job, system_job

NOW_NS = 1_800_000_000 * 10**9
JOBS = [(service_job, "service"), (batch_job, "batch"), (system_job, "system"), (sysbatch_job, "sysbatch")]

of_every_type = pytest.mark.parametrize(("build", "job_type"), JOBS)


def test_a_node_is_ready_and_supplies_what_was_named() -> None:
    node = ready_node("n1", cpu_mhz=2000, memory_mib=1024, disk_mib=5000)
    job = service_job()
    assert (node.id, node.status, node.scheduling_eligibility, node.datacenter, node.node_pool) == ("n1", "ready", "eligible", "dc1", "default")
    assert allocs_fit(node, [running_alloc("a1", job, "n1", cpu_mhz=2000, memory_mib=1024)]).fit
    assert allocs_fit(node, [running_alloc("a1", job, "n1", cpu_mhz=2001)]).reason == "cpu"
    assert allocs_fit(node, [running_alloc("a1", job, "n1", memory_mib=1025)]).reason == "memory"


@of_every_type
def test_a_job_of_every_type_is_placed_on_a_ready_node(build: Callable[..., Job], job_type: str) -> None:
    """With nothing but names given, job and node go together."""
    job = build("a-job")
    assert (job.id, job.type, [(group.name, group.count) for group in job.task_groups]) == ("a-job", job_type, [("web", 1)])
    harness = SchedulerHarness.from_dump({"nodes": [ready_node("n1").to_api()], "jobs": [job.to_api()]}, now_ns=NOW_NS)
    harness.process(Evaluation(id="e1", namespace="default", type=job_type, job_id="a-job", triggered_by="job-register", status="pending"))
    (alloc,) = harness.store.snapshot().allocs_by_node("n1")
    assert (alloc.job_id, alloc.task_group, alloc.client_status) == ("a-job", "web", "pending")


@of_every_type
def test_an_allocation_is_called_as_the_scheduler_calls_it(build: Callable[..., Job], job_type: str) -> None:
    """Known to the scheduler as its own: a job that has what it asks for is left alone."""
    job = build("a-job", CreateIndex=5, ModifyIndex=5, JobModifyIndex=5)
    runs = running_alloc("a1", job, "n1", CreateIndex=6, ModifyIndex=6)
    assert runs.name == "a-job.web[0]"
    dump = {"nodes": [ready_node("n1").to_api()], "jobs": [job.to_api()], "allocs": [{**runs.to_api(), "Job": job.to_api()}]}
    harness = SchedulerHarness.from_dump(dump, now_ns=NOW_NS)
    harness.process(Evaluation(id="e1", namespace="default", type=job_type, job_id="a-job", triggered_by="job-register", status="pending"))
    assert harness.plans == []
    assert [update.status for update in harness.evals] == ["complete"]


def test_an_allocation_holds_what_was_named() -> None:
    job = service_job("web", group_api("api"), group_api("db"))
    alloc = running_alloc("a1", job, "n7", group="db", index=3, cpu_mhz=700, memory_mib=80)
    totals = totals_of(alloc)
    assert (totals.cpu_mhz, totals.memory_mib, totals.disk_mib) == (700, 80, 300)
    assert (alloc.node_id, alloc.task_group, alloc.name, alloc.desired_status, alloc.client_status) == ("n7", "db", "web.db[3]", "run", "running")
    assert alloc.job is job
    assert running_alloc("a2", job, "n7").task_group == "api"


def test_a_group_asks_for_what_was_named() -> None:
    (group,) = service_job("web", group_api("db", count=3, cpu_mhz=700, memory_mib=80, disk_mib=90)).task_groups
    (task,) = group.tasks
    assert (group.name, group.count, group.ephemeral_disk.size_mb) == ("db", 3, 90)
    assert (task.name, task.driver, task.resources.cpu, task.resources.memory_mb) == ("db", "exec", 700, 80)


def test_further_fields_win() -> None:
    job = service_job("web", group_api(Count=4), Priority=70, Datacenters=["dc2"])
    assert (job.priority, job.datacenters, job.task_groups[0].count) == (70, ["dc2"], 4)
    assert ready_node("n1", Status="down", Name="one").status == "down"
    assert running_alloc("a1", job, "n1", ClientStatus="failed").client_status == "failed"


@pytest.mark.parametrize(
    ("build", "path"),
    [(lambda: ready_node("n1", Status=3), "node.Status"), (lambda: service_job("web", group_api(Count="two")), "job.TaskGroups[0].Count")],
)
def test_wrong_further_fields_are_named(build: Callable[[], Node | Job], path: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        build()
    assert caught.value.path == path


def test_builders_share_nothing() -> None:
    """A record may be changed without another one changing."""
    first, second = ready_node("n1"), ready_node("n1")
    first.attributes["kernel.name"] = "plan9"
    assert second.attributes["kernel.name"] == "linux"
    first_job, second_job = service_job(), service_job()
    first_job.task_groups[0].count = 9
    assert second_job.task_groups[0].count == 1
