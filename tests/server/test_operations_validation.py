"""What a job may not say, with the path of each fault (schedulers 2.1 to 2.5)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.errors import InvalidInput
from fastplan.server.operations.durations import duration_text
from fastplan.server.operations.faults import Faults
from fastplan.server.operations.job_defaults import fill_job
from fastplan.server.operations.job_validation import check_job, job_faults
from fastplan.structs import Job

SECOND = 10**9
SPREAD = {"Attribute": "${node.datacenter}", "Weight": 50}
AFFINITY = {"LTarget": "${node.class}", "RTarget": "x", "Operand": "=", "Weight": 10}


def group(**changes: Any) -> dict[str, Any]:
    return {"Name": "g", "Tasks": [task()], **changes}


def task(**changes: Any) -> dict[str, Any]:
    return {"Name": "t", "Driver": "exec", **changes}


def whole(**changes: Any) -> Job:
    job = Job.from_api({"ID": "web", "TaskGroups": [group()], **changes})
    fill_job(job)
    return job


IN_JOB = [
    ({"ID": ""}, "job.ID", ""),
    ({"ID": "a b"}, "job.ID", "a b"),
    ({"ID": "a\0b"}, "job.ID", "a\0b"),
    ({"Name": ""}, "job.Name", ""),
    ({"Name": "a\0"}, "job.Name", "a\0"),
    ({"Type": "cron"}, "job.Type", "cron"),
    ({"Type": "_core"}, "job.Type", "_core"),
    ({"Priority": 101}, "job.Priority", 101),
    ({"Priority": -1}, "job.Priority", -1),
    ({"Datacenters": ["dc1", ""]}, "job.Datacenters", ["dc1", ""]),
    ({"TaskGroups": []}, "job.TaskGroups", []),
    ({"TaskGroups": [group(), group()]}, "job.TaskGroups[1].Name", "g"),
    ({"TaskGroups": [group(Name="")]}, "job.TaskGroups[0].Name", ""),
    ({"Type": "system", "TaskGroups": [group(Count=2)]}, "job.TaskGroups[0].Count", 2),
    ({"Constraints": [{"LTarget": "a", "Operand": "~~"}]}, "job.Constraints[0].Operand", "~~"),
    ({"Constraints": [None, {"LTarget": "a"}]}, "job.Constraints[1].Operand", ""),
    ({"Constraints": [{"Operand": "distinct_property"}]}, "job.Constraints[0].LTarget", ""),
    ({"Affinities": [AFFINITY | {"Weight": 0}]}, "job.Affinities[0].Weight", 0),
    ({"Affinities": [AFFINITY | {"Weight": -101}]}, "job.Affinities[0].Weight", -101),
    ({"Affinities": [AFFINITY | {"Operand": "distinct_hosts"}]}, "job.Affinities[0].Operand", "distinct_hosts"),
    ({"Spreads": [{"Weight": 50}]}, "job.Spreads[0].Attribute", ""),
    ({"Spreads": [SPREAD | {"Weight": 101}]}, "job.Spreads[0].Weight", 101),
    ({"Spreads": [SPREAD | {"Weight": 0}]}, "job.Spreads[0].Weight", 0),
    ({"Spreads": [SPREAD | {"SpreadTarget": [{"Value": "a", "Percent": 101}]}]}, "job.Spreads[0].SpreadTarget[0].Percent", 101),
    ({"Spreads": [SPREAD | {"SpreadTarget": [{"Value": "a", "Percent": 60}, {"Value": "b", "Percent": 60}]}]}, "job.Spreads[0].SpreadTarget", 120),
    ({"Spreads": [SPREAD | {"SpreadTarget": [{"Value": "a"}, {"Value": "a"}]}]}, "job.Spreads[0].SpreadTarget[1].Value", "a"),
    ({"Periodic": {"Enabled": True}}, "job.Periodic", {"Enabled": True}),
    ({"ParameterizedJob": {"Payload": "optional"}}, "job.ParameterizedJob", {"Payload": "optional"}),
    ({"Type": "batch", "ParameterizedJob": {"Payload": "maybe"}}, "job.ParameterizedJob.Payload", "maybe"),
    ({"Type": "batch", "ParameterizedJob": {"MetaRequired": ["a"], "MetaOptional": ["a"]}}, "job.ParameterizedJob.MetaOptional", ["a"]),
    ({"Type": "batch", "ParameterizedJob": {"MetaRequired": [3]}}, "job.ParameterizedJob.MetaRequired", [3]),
    ({"Type": "batch", "ParameterizedJob": []}, "job.ParameterizedJob", []),
]

PORTS = [{"Label": "a", "Value": 80}, {"Label": "b", "Value": 80}]

IN_GROUP = [
    ({"Count": -1}, "Count", -1),
    ({"Name": "a\0"}, "Name", "a\0"),
    ({"Tasks": []}, "Tasks", []),
    ({"Tasks": [task(), task()]}, "Tasks[1].Name", "t"),
    ({"Tasks": [task(Name="")]}, "Tasks[0].Name", ""),
    ({"Tasks": [task(Name="a/b")]}, "Tasks[0].Name", "a/b"),
    ({"Tasks": [task(Driver="")]}, "Tasks[0].Driver", ""),
    ({"Tasks": [task(Leader=True), task(Name="u", Leader=True)]}, "Tasks", 2),
    ({"Tasks": [task(), task(Name="u", Lifecycle={"Hook": "whenever"})]}, "Tasks[1].Lifecycle.Hook", "whenever"),
    ({"Tasks": [task(), task(Name="u", Lifecycle={})]}, "Tasks[1].Lifecycle.Hook", ""),
    ({"Tasks": [task(KillTimeout=-1)]}, "Tasks[0].KillTimeout", -1),
    ({"Tasks": [task(ShutdownDelay=-1)]}, "Tasks[0].ShutdownDelay", -1),
    ({"Tasks": [task(Resources={"CPU": 0})]}, "Tasks[0].Resources.CPU", 0),
    ({"Tasks": [task(Resources={"MemoryMB": 9})]}, "Tasks[0].Resources.MemoryMB", 9),
    ({"Tasks": [task(Resources={"MemoryMaxMB": 299})]}, "Tasks[0].Resources.MemoryMaxMB", 299),
    ({"Tasks": [task(Resources={"Cores": 1, "CPU": 1})]}, "Tasks[0].Resources.Cores", 1),
    ({"Tasks": [task(Resources={"Cores": -1})]}, "Tasks[0].Resources.Cores", -1),
    ({"Tasks": [task(Resources={"Devices": [{"Name": "", "Count": 1}]})]}, "Tasks[0].Resources.Devices[0].Name", ""),
    ({"Tasks": [task(Resources={"Devices": [{"Name": "gpu", "Count": 0}]})]}, "Tasks[0].Resources.Devices[0].Count", 0),
    ({"Tasks": [task(LogConfig={"MaxFiles": 0})]}, "Tasks[0].LogConfig.MaxFiles", 0),
    ({"Tasks": [task(LogConfig={"MaxFileSizeMB": 0})]}, "Tasks[0].LogConfig.MaxFileSizeMB", 0),
    ({"EphemeralDisk": {"SizeMB": 100}}, "Tasks[0].LogConfig", 100),
    ({"EphemeralDisk": {"SizeMB": 9}}, "EphemeralDisk.SizeMB", 9),
    ({"Constraints": [{"Operand": "odd"}]}, "Constraints[0].Operand", "odd"),
    ({"Affinities": [AFFINITY | {"Weight": 0}]}, "Affinities[0].Weight", 0),
    ({"Spreads": [{}]}, "Spreads[0].Attribute", ""),
    ({"RestartPolicy": {"Mode": "never"}}, "RestartPolicy.Mode", "never"),
    ({"ReschedulePolicy": {"DelayFunction": "cubic"}}, "ReschedulePolicy.DelayFunction", "cubic"),
    ({"ReschedulePolicy": {"Delay": SECOND}}, "ReschedulePolicy.Delay", SECOND),
    ({"ReschedulePolicy": {"MaxDelay": 29 * SECOND}}, "ReschedulePolicy.MaxDelay", 29 * SECOND),
    ({"ReschedulePolicy": {"Attempts": 3, "Interval": 60 * SECOND}}, "ReschedulePolicy.Attempts", 3),
    ({"ReschedulePolicy": {"Attempts": 3, "Interval": 3600 * SECOND, "Unlimited": True}}, "ReschedulePolicy.Attempts", 3),
    ({"ReschedulePolicy": {"Attempts": 3}}, "ReschedulePolicy.Interval", 0),
    ({"Update": {"MaxParallel": -1}}, "Update.MaxParallel", -1),
    ({"Update": {"HealthCheck": "odd"}}, "Update.HealthCheck", "odd"),
    ({"Update": {"Canary": -1}}, "Update.Canary", -1),
    ({"Update": {"AutoPromote": True}}, "Update.AutoPromote", True),
    ({"Update": {"MinHealthyTime": -1}}, "Update.MinHealthyTime", -1),
    ({"Update": {"HealthyDeadline": 0}}, "Update.HealthyDeadline", 0),
    ({"Update": {"HealthyDeadline": 10 * SECOND}}, "Update.MinHealthyTime", 10 * SECOND),
    ({"Update": {"ProgressDeadline": 300 * SECOND}}, "Update.HealthyDeadline", 300 * SECOND),
    ({"Update": {"ProgressDeadline": -1}}, "Update.ProgressDeadline", -1),
    ({"Update": {"Stagger": -1}}, "Update.Stagger", -1),
    ({"Migrate": {"MaxParallel": -1}}, "Migrate.MaxParallel", -1),
    ({"Migrate": {"HealthCheck": "manual"}}, "Migrate.HealthCheck", "manual"),
    ({"Disconnect": {"LostAfter": -1}}, "Disconnect.LostAfter", -1),
    ({"Disconnect": {"StopOnClientAfter": -1}}, "Disconnect.StopOnClientAfter", -1),
    ({"Disconnect": {"LostAfter": 1, "StopOnClientAfter": 1}}, "Disconnect.StopOnClientAfter", 1),
    ({"Disconnect": {"Reconcile": "odd"}}, "Disconnect.Reconcile", "odd"),
    ({"Scaling": {"Min": 5, "Max": 9}}, "Scaling.Min", 5),
    ({"Scaling": {"Max": 0}}, "Scaling.Max", 0),
    ({"Scaling": {"Min": "1"}}, "Scaling.Min", "1"),
    ({"Scaling": []}, "Scaling", []),
    ({"Networks": [{}, {}]}, "Networks", None),
    ({"Networks": [{"ReservedPorts": PORTS}]}, "Networks[0].ReservedPorts[1].Value", 80),
    ({"Networks": [{"ReservedPorts": [{"Label": "a", "Value": 70_000}]}]}, "Networks[0].ReservedPorts[0].Value", 70_000),
    ({"Networks": [{"ReservedPorts": [{"Label": "a"}]}]}, "Networks[0].ReservedPorts[0].Value", 0),
    ({"Networks": [{"DynamicPorts": [{"Label": "a"}, {"Label": "a"}]}]}, "Networks[0].DynamicPorts[1].Label", "a"),
    ({"Networks": [{"DynamicPorts": [{"Label": "a", "To": -2}]}]}, "Networks[0].DynamicPorts[0].To", -2),
]

OF_TYPES = [
    ("system", {"Affinities": [AFFINITY]}, "job.Affinities"),
    ("sysbatch", {"Spreads": [SPREAD]}, "job.Spreads"),
    ("system", {"TaskGroups": [group(Affinities=[AFFINITY])]}, "job.TaskGroups[0].Affinities"),
    ("system", {"TaskGroups": [group(Spreads=[SPREAD])]}, "job.TaskGroups[0].Spreads"),
    ("sysbatch", {"TaskGroups": [group(Tasks=[task(Affinities=[AFFINITY])])]}, "job.TaskGroups[0].Tasks[0].Affinities"),
    ("system", {"TaskGroups": [group(ReschedulePolicy={"Attempts": 1})]}, "job.TaskGroups[0].ReschedulePolicy"),
    ("batch", {"Update": {"MaxParallel": 1}}, "job.TaskGroups[0].Update"),
    ("sysbatch", {"TaskGroups": [group(Update={"MaxParallel": 1})]}, "job.TaskGroups[0].Update"),
    ("batch", {"TaskGroups": [group(Migrate={"MaxParallel": 1})]}, "job.TaskGroups[0].Migrate"),
]


def check_fault(job: Job, path: str, value: Any = None) -> None:
    with pytest.raises(InvalidInput) as caught:
        check_job(job)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"{path}: expected ")
    assert caught.value.wording.endswith("\n\n")
    if value is not None:
        assert caught.value.value == value


@pytest.mark.parametrize(("changes", "path", "value"), IN_JOB)
def test_faults_of_a_job(changes: dict[str, Any], path: str, value: Any) -> None:
    check_fault(whole(**changes), path, value)


@pytest.mark.parametrize(("changes", "path", "value"), IN_GROUP)
def test_faults_of_a_group(changes: dict[str, Any], path: str, value: Any) -> None:
    sound = group(Name="sound")
    check_fault(whole(TaskGroups=[sound, group(**changes)]), f"job.TaskGroups[1].{path}", value)


@pytest.mark.parametrize(("kind", "changes", "path"), OF_TYPES)
def test_faults_of_a_type(kind: str, changes: dict[str, Any], path: str) -> None:
    check_fault(whole(Type=kind, **changes), path)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"Type": "batch", "Periodic": {"Enabled": True}},
        {"Type": "sysbatch", "ParameterizedJob": {"MetaRequired": ["a"], "MetaOptional": ["b"], "Payload": "required"}},
        {"Type": "system", "TaskGroups": [group(Count=0)]},
        {"Type": "sysbatch", "TaskGroups": [group(Count=4)]},
        {"TaskGroups": [group(Count=0)]},
        {"Constraints": [{"LTarget": "x", "Operand": "regexp", "RTarget": "(("}, {"Operand": "distinct_hosts"}, {"LTarget": "a", "Operand": "is_set"}]},
        {"Constraints": [{"LTarget": "${meta.rack}", "Operand": "distinct_property", "RTarget": "x"}, {"Operand": "=", "RTarget": "y"}]},
        {"TaskGroups": [group(Update={"MaxParallel": 0, "HealthyDeadline": 0})]},
        {"TaskGroups": [group(ReschedulePolicy={"Attempts": 0, "Unlimited": False, "Delay": 1})]},
        {"TaskGroups": [group(ReschedulePolicy={"Attempts": 3, "Interval": 3600 * SECOND, "DelayFunction": "fibonacci"})]},
        {"TaskGroups": [group(Networks=[{"ReservedPorts": [PORTS[0], PORTS[1] | {"HostNetwork": "lan"}]}])]},
        {"TaskGroups": [group(Networks=[{"ReservedPorts": [PORTS[0], PORTS[1] | {"IgnoreCollision": True}]}])]},
        {"TaskGroups": [group(EphemeralDisk={"SizeMB": 10}, Tasks=[task(LogConfig={"Disabled": True})])]},
        {"TaskGroups": [group(Tasks=[task(Resources={"MemoryMaxMB": -1})])]},
        {"TaskGroups": [group(Tasks=[task(), task(Name="u", Lifecycle={"Hook": "prestart"})], Scaling={"Min": 1, "Max": 1})]},
        {"Meta": {"a b": "x"}, "Dispatched": True, "ParentID": "x", "TaskGroups": [group(Tasks=[task(Driver="warp")])]},
    ],
)
def test_sound_jobs(changes: dict[str, Any]) -> None:
    check_job(whole(**changes))


def test_all_faults_are_told() -> None:
    faults = job_faults(
        Job.from_api({"ID": "", "Type": "foo", "Priority": 999, "TaskGroups": [{"Name": "", "Count": -4, "Tasks": [{"Name": "", "Driver": ""}]}]})
    )
    sentences = ("Missing job ID", "Missing job name", 'Invalid job type: "foo"', "Job task group 1 missing name", "Task group  validation failed: 4 errors")
    text = faults.text()
    assert text.startswith("6 errors occurred:\n")
    assert [text.index(sentence) for sentence in sentences] == sorted(text.index(sentence) for sentence in sentences)
    assert text.endswith("\t* job priority must be between [1, 100]\n\n")


@pytest.mark.parametrize(
    ("function", "delay_s", "max_s", "attempts", "interval_s", "possible", "needed"),
    [
        ("constant", 60, 0, 10, 60, 1, "10m0s"),
        ("exponential", 10, 1000, 4, 60, 2, "2m30s"),
        ("exponential", 10, 30, 5, 100, 4, "2m0s"),
        ("fibonacci", 10, 1000, 5, 60, 3, "2m0s"),
        ("exponential", 60, 60, 1_000_000_000, 600, 10, "16666666h40m0s"),
    ],
)
def test_attempts_that_do_not_fit(function: str, delay_s: int, max_s: int, attempts: int, interval_s: int, possible: int, needed: str) -> None:
    policy = {"DelayFunction": function, "Delay": delay_s * SECOND, "MaxDelay": max_s * SECOND, "Attempts": attempts, "Interval": interval_s * SECOND}
    text = job_faults(whole(TaskGroups=[group(ReschedulePolicy=policy)])).text()
    assert f"Nomad can only make {possible} attempts in " in text
    assert f"Set the interval to at least {needed} to accommodate {attempts} attempts" in text


def test_lists_in_lists() -> None:
    outer, inner, empty = Faults(), Faults("Group x failed: "), Faults("nothing: ")
    assert not outer
    inner.add("a.b", 3, "four", "b is 3")
    outer.nest(inner)
    outer.nest(empty)
    assert outer.text() == "1 error occurred:\n\t* Group x failed: 1 error occurred:\n\t* b is 3\n\n\n\n"
    outer.add("c", None, "d", "c is missing")
    assert outer.text().startswith("2 errors occurred:\n")
    assert outer.first().path == "a.b"


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_500, "1.5µs"),
        (250_000_000, "250ms"),
        (SECOND, "1s"),
        (1_500_000_000, "1.5s"),
        (60 * SECOND, "1m0s"),
        (3600 * SECOND, "1h0m0s"),
        (90_061 * SECOND + 5, "25h1m1.000000005s"),
        (-5 * SECOND, "-5s"),
    ],
)
def test_durations(duration_ns: int, text: str) -> None:
    assert duration_text(duration_ns) == text
