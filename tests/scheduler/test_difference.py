"""Which changes of a job need new allocations (schedulers 6), and the recorded answers."""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from fastplan.scheduler import tasks_updated
from fastplan.structs import Job
from tests.shared_data import shared_path

JOB: dict[str, Any] = {
    "ID": "web",
    "Name": "web",
    "Namespace": "default",
    "Type": "service",
    "Priority": 50,
    "Datacenters": ["dc1"],
    "NodePool": "default",
    "Meta": {"owner": "a"},
    "TaskGroups": [
        {
            "Name": "web",
            "Count": 3,
            "EphemeralDisk": {"SizeMB": 300},
            "RestartPolicy": {"Attempts": 2, "RenderTemplates": False},
            "Networks": [
                {
                    "Mode": "bridge",
                    "DNS": {"Servers": ["10.0.0.2"]},
                    "ReservedPorts": [{"Label": "admin", "Value": 9000, "HostNetwork": "default"}],
                    "DynamicPorts": [{"Label": "http", "To": 8080, "HostNetwork": "default"}],
                }
            ],
            "Volumes": {"data": {"Name": "data", "Type": "host", "Source": "disk", "ReadOnly": True}},
            "Services": [
                {"Name": "api", "PortLabel": "http", "Tags": ["a"]},
                {"Name": "mesh", "PortLabel": "9001", "Connect": {"SidecarService": {"Port": "s"}}},
            ],
            "Tasks": [
                {
                    "Name": "server",
                    "Driver": "docker",
                    "Config": {"image": "web:1", "args": ["-v"], "privileged": False},
                    "Env": {"A": "1"},
                    "KillTimeout": 5,
                    "Lifecycle": {"Hook": "prestart"},
                    "Resources": {"CPU": 500, "MemoryMB": 256, "Devices": [{"Name": "gpu", "Count": 1}, {"Name": "fpga", "Count": 1}]},
                    "Templates": [{"DestPath": "a"}, {"DestPath": "b"}],
                    "Artifacts": [{"GetterSource": "x", "GetterOptions": {"depth": "1"}}],
                    "LogConfig": {"MaxFiles": 10},
                },
                {"Name": "helper", "Driver": "exec", "Resources": {"CPU": 100, "MemoryMB": 64}},
            ],
        }
    ],
}


def changed(change: Callable[[dict[str, Any]], Any]) -> Job:
    """Return the job after a change of its record."""
    record = copy.deepcopy(JOB)
    change(record)
    return Job.from_api(record)


def group_of(job: dict[str, Any]) -> dict[str, Any]:
    group: dict[str, Any] = job["TaskGroups"][0]
    return group


def task_of(job: dict[str, Any]) -> dict[str, Any]:
    task: dict[str, Any] = job["TaskGroups"][0]["Tasks"][0]
    return task


OLD = changed(lambda job: None)

IN_PLACE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda job: None,
    "count": lambda job: group_of(job).update(Count=7),
    "priority": lambda job: job.update(Priority=70),
    "constraints": lambda job: task_of(job).update(Constraints=[{"LTarget": "${attr.arch}", "Operand": "=", "RTarget": "amd64"}]),
    "spreads": lambda job: group_of(job).update(Spreads=[{"Attribute": "${meta.rack}", "Weight": 50}]),
    "datacenters": lambda job: job.update(Datacenters=["*"]),
    "node pool": lambda job: job.update(NodePool="all"),
    "update": lambda job: group_of(job).update(Update={"MaxParallel": 5}),
    "restart attempts": lambda job: group_of(job)["RestartPolicy"].update(Attempts=9),
    "kill timeout": lambda job: task_of(job).update(KillTimeout=50),
    "leader": lambda job: task_of(job).update(Leader=True),
    "lifecycle": lambda job: task_of(job).update(Lifecycle=None),
    "tags of a service": lambda job: group_of(job)["Services"][0].update(Tags=["b"]),
    "a service without connect": lambda job: group_of(job)["Services"].pop(0),
    "log rotation": lambda job: task_of(job)["LogConfig"].update(MaxFiles=3),
    "all at once": lambda job: job.update(AllAtOnce=True),
    "value of a dynamic port": lambda job: group_of(job)["Networks"][0]["DynamicPorts"][0].update(Value=23456),
    "metadata that a task already has": lambda job: task_of(job).update(Meta={"owner": "a"}),
    "order of devices": lambda job: task_of(job)["Resources"]["Devices"].reverse(),
    "order of tasks": lambda job: group_of(job)["Tasks"].reverse(),
    "null for nothing": lambda job: task_of(job).update(Vault=None, Artifacts=[{"GetterSource": "x", "GetterOptions": {"depth": "1"}, "GetterMode": ""}]),
}

DESTRUCTIVE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "number of tasks": lambda job: group_of(job)["Tasks"].pop(),
    "ephemeral disk": lambda job: group_of(job)["EphemeralDisk"].update(Sticky=True),
    "network": lambda job: group_of(job)["Networks"][0].update(Mode="host"),
    "connect service": lambda job: group_of(job)["Services"][1]["Connect"]["SidecarService"].update(Port="t"),
    "volume request": lambda job: group_of(job)["Volumes"]["data"].update(ReadOnly=False),
    "group restart render_templates": lambda job: group_of(job)["RestartPolicy"].update(RenderTemplates=True),
    "missing task": lambda job: task_of(job).update(Name="other"),
    "task driver": lambda job: task_of(job).update(Driver="podman"),
    "task user": lambda job: task_of(job).update(User="nobody"),
    "task config": lambda job: task_of(job)["Config"].update(args=["-q"]),
    "task env": lambda job: task_of(job)["Env"].update(A="2"),
    "task artifacts": lambda job: task_of(job)["Artifacts"].append({"GetterSource": "y"}),
    "task vault": lambda job: task_of(job).update(Vault={"Policies": ["p"]}),
    "task secrets": lambda job: task_of(job).update(Secrets=[{"Name": "s", "Provider": "p"}]),
    "task templates": lambda job: task_of(job)["Templates"].reverse(),
    "task csi config": lambda job: task_of(job).update(CSIPluginConfig={"ID": "p"}),
    "task volume mounts": lambda job: task_of(job).update(VolumeMounts=[{"Volume": "data"}]),
    "task meta": lambda job: job["Meta"].update(owner="b"),
    "task networks": lambda job: task_of(job)["Resources"].update(Networks=[{"MBits": 10}]),
    "task cpu": lambda job: task_of(job)["Resources"].update(CPU=501),
    "task cores": lambda job: task_of(job)["Resources"].update(Cores=1),
    "task memory": lambda job: task_of(job)["Resources"].update(MemoryMB=257),
    "task memory max": lambda job: task_of(job)["Resources"].update(MemoryMaxMB=512),
    "task devices": lambda job: task_of(job)["Resources"]["Devices"].pop(),
    "numa": lambda job: task_of(job)["Resources"].update(NUMA={"Affinity": "require"}),
    "task secrets memory": lambda job: task_of(job)["Resources"].update(SecretsMB=8),
    "task identity": lambda job: task_of(job).update(Identities=[{"Name": "aws"}]),
    "task log disabled": lambda job: task_of(job)["LogConfig"].update(Disabled=True),
    "task restart render_templates": lambda job: task_of(job).update(RestartPolicy={"RenderTemplates": True}),
}

MORE_DESTRUCTIVE: list[tuple[str, Callable[[dict[str, Any]], Any]]] = [
    ("network", lambda job: group_of(job)["Networks"][0]["ReservedPorts"][0].update(Value=9001)),
    ("network", lambda job: group_of(job)["Networks"][0]["DynamicPorts"][0].update(To=8081)),
    ("network", lambda job: group_of(job)["Networks"][0]["DNS"].update(Servers=[])),
    ("network", lambda job: group_of(job)["Networks"].append({"Mode": "host"})),
    ("network", lambda job: group_of(job)["Networks"][0].update(CNI={"Args": {"a": ""}})),
    ("connect service", lambda job: group_of(job)["Services"][1].update(PortLabel="9002")),
    ("connect service", lambda job: group_of(job)["Services"][0].update(Connect={"Native": True})),
    ("volume request", lambda job: group_of(job)["Volumes"].update(more={})),
    # Where keys are the user's, nothing differs from an entry that is nothing.
    ("task env", lambda job: task_of(job)["Env"].update(B="")),
    ("task config", lambda job: task_of(job)["Config"].update(force=False)),
    ("task config", lambda job: task_of(job)["Config"].update(privileged=0)),
    ("task config", lambda job: task_of(job)["Config"].update(auth={"user": ""})),
    ("task artifacts", lambda job: task_of(job)["Artifacts"][0]["GetterOptions"].update(sshkey="")),
    ("task meta", lambda job: task_of(job).update(Meta={"new": ""})),
    ("task meta", lambda job: group_of(job).update(Meta={"owner": "c"})),
]


def test_recorded_answers():
    differing = []
    with gzip.open(shared_path("oracles", "tasks_updated.jsonl.gz"), "rt", encoding="utf-8") as lines:
        for case in map(json.loads, lines):
            given = case["input"]
            found = tasks_updated(Job.from_api(given["new_job"]), Job.from_api(given["alloc_job"]), given["group"])
            if bool(found) != case["answer"]["destructive"]:
                differing.append(case["id"])
    assert differing == []


@pytest.mark.parametrize("name", sorted(IN_PLACE))
def test_what_can_be_done_in_place(name):
    new = changed(IN_PLACE[name])
    assert (tasks_updated(new, OLD, "web"), tasks_updated(OLD, new, "web")) == ("", "")


@pytest.mark.parametrize("name", sorted(DESTRUCTIVE))
def test_what_needs_new_allocations(name):
    assert tasks_updated(changed(DESTRUCTIVE[name]), OLD, "web") == name


@pytest.mark.parametrize(("name", "change"), MORE_DESTRUCTIVE)
def test_small_changes_that_need_new_allocations(name, change):
    # A service counts if it is connected on the side of the first job.
    assert tasks_updated(changed(change), OLD, "web") == name


def test_the_first_of_several_differences_is_named():
    def change(job: dict[str, Any]) -> None:
        DESTRUCTIVE["task cpu"](job)
        DESTRUCTIVE["network"](job)

    assert tasks_updated(changed(change), OLD, "web") == "network"


def test_connect_is_looked_at_from_the_first_job():
    def without_connect(job: dict[str, Any]) -> None:
        group_of(job)["Services"][1].pop("Connect")

    assert tasks_updated(OLD, changed(without_connect), "web") == "connect service"
    assert tasks_updated(changed(without_connect), OLD, "web") == ""


def test_null_and_empty_are_one_in_a_configuration():
    null = changed(lambda job: task_of(job)["Config"].update(args=None))
    empty = changed(lambda job: task_of(job)["Config"].update(args=[]))
    assert tasks_updated(null, empty, "web") == tasks_updated(empty, null, "web") == ""


def test_a_group_that_one_side_lacks():
    other = changed(lambda job: group_of(job).update(Name="other"))
    assert tasks_updated(other, OLD, "web") == tasks_updated(OLD, other, "web") == "task group"
    assert tasks_updated(OLD, OLD, "nowhere") == ""


@pytest.mark.parametrize("odd", [None, [], "text", 7, [None], {"Name": 3}])
@pytest.mark.parametrize("field", ["Vault", "Identity", "Consul", "CSIPluginConfig"])
def test_blocks_of_the_wrong_kind_do_not_raise(field, odd):
    new = changed(lambda job: task_of(job).update({field: odd}))
    assert isinstance(tasks_updated(new, OLD, "web"), str)
    assert tasks_updated(new, new, "web") == ""


def test_services_of_the_wrong_kind_do_not_raise():
    new = changed(
        lambda job: group_of(job).update(
            Services=[None, "x", {"Name": "a", "Connect": []}, {"Name": "b", "Connect": {"SidecarTask": {"Resources": {"Networks": [None]}}}}]
        )
    )
    assert tasks_updated(new, new, "web") == ""
    assert isinstance(tasks_updated(new, OLD, "web"), str)
