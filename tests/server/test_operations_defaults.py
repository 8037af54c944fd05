"""What a job says where it says nothing (schedulers 2.1 to 2.5)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.server.operations.job_defaults import fill_job
from fastplan.structs import Job, NetworkResource, Port, Resources, Task, TaskGroup
from tests.server.operated import job

SECOND = 10**9


def filled(given: Job | None = None, **changes: Any) -> Job:
    given = given or job(**changes)
    fill_job(given)
    return given


def group(**changes: Any) -> dict[str, Any]:
    return {"Name": "g", "Tasks": [{"Name": "t", "Driver": "exec"}], **changes}


def task(**changes: Any) -> Task:
    return filled(TaskGroups=[group(Tasks=[{"Name": "t", "Driver": "exec", **changes}])]).task_groups[0].tasks[0]


def test_of_a_job() -> None:
    full = filled()
    assert (full.region, full.namespace, full.name, full.type, full.priority) == ("global", "default", "web", "service", 50)
    assert (full.datacenters, full.node_pool) == (["*"], "default")
    said = filled(Region="eu", Namespace="dev", Name="n", Type="batch", Priority=-1, Datacenters=["dc1"], NodePool="gpu")
    assert (said.region, said.namespace, said.name, said.type, said.priority) == ("eu", "dev", "n", "batch", -1)
    assert (said.datacenters, said.node_pool) == (["dc1"], "gpu")


def test_null_says_nothing_and_empty_text_says_something() -> None:
    assert filled(Name=None, Type=None).name == "web"
    assert (filled(Name="").name, filled(Type="").type) == ("", "")


@pytest.mark.parametrize(("given", "count"), [({}, 1), ({"Count": None}, 1), ({"Count": 0}, 0), ({"Count": 3}, 3), ({"Count": -2}, -2)])
def test_of_a_count(given: dict[str, Any], count: int) -> None:
    assert filled(TaskGroups=[group(**given)]).task_groups[0].count == count


@pytest.mark.parametrize(
    ("kind", "restart", "reschedule", "updates", "migrates"),
    [
        ("service", (2, 1800, 15, "fail"), (0, 0, 30, "exponential", 3600, True), True, True),
        ("system", (2, 1800, 15, "fail"), None, True, False),
        ("batch", (3, 86_400, 15, "fail"), (1, 86_400, 5, "constant", 0, False), False, False),
        ("sysbatch", (3, 86_400, 15, "fail"), None, False, False),
    ],
)
def test_of_policies(kind: str, restart: Any, reschedule: Any, updates: bool, migrates: bool) -> None:
    full = filled(Type=kind)
    (g,) = full.task_groups
    for policy in (g.restart_policy, g.tasks[0].restart_policy):
        assert policy is not None
        assert (policy.attempts, policy.interval // SECOND, policy.delay // SECOND, policy.mode) == restart
    if reschedule is None:
        assert g.reschedule_policy is None
    else:
        r = g.reschedule_policy
        assert r is not None
        assert (r.attempts, r.interval // SECOND, r.delay // SECOND, r.delay_function, r.max_delay // SECOND, r.unlimited) == reschedule
    assert (g.update is not None, g.migrate is not None) == (updates, migrates)
    assert (full.update.max_parallel, full.update.stagger // SECOND) == ((1, 30) if updates else (0, 0))
    if g.update is not None:
        u = g.update
        assert (u.stagger // SECOND, u.max_parallel, u.health_check, u.canary) == (30, 1, "checks", 0)
        assert (u.min_healthy_time // SECOND, u.healthy_deadline // SECOND, u.progress_deadline // SECOND) == (10, 300, 600)
    if g.migrate is not None:
        m = g.migrate
        assert (m.max_parallel, m.health_check, m.min_healthy_time // SECOND, m.healthy_deadline // SECOND) == (1, "checks", 10, 300)


def test_the_update_of_the_job_goes_into_its_groups() -> None:
    full = filled(
        Update={"MaxParallel": 3, "Canary": 1, "AutoRevert": True}, TaskGroups=[group(), group(Name="h", Update={"MaxParallel": 5, "AutoRevert": False})]
    )
    first, second = (each.update for each in full.task_groups)
    assert first is not None
    assert second is not None
    assert (first.max_parallel, first.canary, first.auto_revert, first.health_check) == (3, 1, True, "checks")
    assert (second.max_parallel, second.canary, second.auto_revert) == (5, 1, False)
    assert (full.update.max_parallel, full.update.canary, full.update.stagger) == (3, 0, 30 * SECOND)


def test_no_update_at_all_can_be_asked_for() -> None:
    full = filled(Update={"MaxParallel": 0})
    assert full.task_groups[0].update is not None
    assert (full.task_groups[0].update.max_parallel, full.update.max_parallel) == (0, 0)
    # As servers show a batch job.
    assert filled(Type="batch", Update={"MaxParallel": 0, "Canary": 0, "HealthCheck": ""}).task_groups[0].update is None


def test_a_part_of_a_policy() -> None:
    full = filled(TaskGroups=[group(RestartPolicy={"Attempts": 0}, ReschedulePolicy={"Attempts": 3}, EphemeralDisk={"Sticky": True})])
    (g,) = full.task_groups
    assert g.restart_policy is not None
    assert g.reschedule_policy is not None
    assert g.ephemeral_disk is not None
    assert (g.restart_policy.attempts, g.restart_policy.mode) == (0, "fail")
    assert (g.reschedule_policy.attempts, g.reschedule_policy.unlimited, g.reschedule_policy.delay) == (3, False, 30 * SECOND)
    assert (g.ephemeral_disk.size_mb, g.ephemeral_disk.sticky) == (300, True)


def test_of_a_task() -> None:
    bare = task()
    assert bare.resources is not None
    assert bare.log_config is not None
    assert (bare.resources.cpu, bare.resources.memory_mb, bare.kill_timeout) == (100, 300, 5 * SECOND)
    assert (bare.log_config.max_files, bare.log_config.max_file_size_mb) == (10, 10)
    assert bare.identity["Name"] == "default"
    cores = task(Resources={"Cores": 2}).resources
    assert cores is not None
    assert (cores.cpu, cores.cores, cores.memory_mb) == (0, 2, 300)
    zero = task(Resources={"CPU": 0, "MemoryMB": 0}, KillTimeout=0)
    assert zero.resources is not None
    assert (zero.resources.cpu, zero.resources.memory_mb, zero.kill_timeout) == (0, 0, 0)
    # Each task has its own.
    assert bare.identity is not task().identity


def test_of_networks_and_weights() -> None:
    made = Job(
        id="made",
        task_groups=[
            TaskGroup(
                name="g",
                networks=[NetworkResource(dynamic_ports=[Port(label="http")], reserved_ports=[Port(label="ssh", value=22, host_network="lan")]), None],
                tasks=[Task(name="t", resources=Resources(networks=[NetworkResource(mode="bridge", dynamic_ports=[Port(label="x")])]))],
            )
        ],
    )
    (g,) = filled(made).task_groups
    assert g.networks[0] is not None
    assert (g.networks[0].mode, g.networks[0].dynamic_ports[0].host_network, g.networks[0].reserved_ports[0].host_network) == ("host", "default", "lan")
    assert g.tasks[0].resources is not None
    assert g.tasks[0].resources.networks[0] is not None
    assert (g.tasks[0].resources.networks[0].mode, g.tasks[0].resources.networks[0].dynamic_ports[0].host_network) == ("bridge", "default")
    full = filled(Affinities=[{"LTarget": "${node.class}", "RTarget": "x", "Operand": "="}], Spreads=[{"Attribute": "${node.datacenter}"}, {"Weight": 7}])
    assert full.affinities[0] is not None
    assert [spread.weight for spread in full.spreads if spread is not None] == [50, 7]
    assert full.affinities[0].weight == 50


def test_filling_twice_changes_nothing() -> None:
    for kind in ("service", "batch", "system", "sysbatch"):
        once = filled(Type=kind, TaskGroups=[group(Disconnect={"LostAfter": SECOND}, Volumes={"v": {"Source": "data"}})])
        twice = filled(Job.from_api(once.to_api()))
        assert twice == once
        (g,) = once.task_groups
        assert g.disconnect is not None
        assert g.volumes["v"] is not None
        assert (g.disconnect.replace, g.disconnect.reconcile, g.volumes["v"].name) == (True, "best_score", "v")
