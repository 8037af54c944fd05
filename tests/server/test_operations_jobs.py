"""Registering, deregistering, scaling and dispatching jobs (worker-and-broker 2.3, schedulers 2.1)."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fastplan import codec
from fastplan.errors import InvalidInput, StateError
from fastplan.server.operations import Operation, deregister_job, dispatch_job, register_job, scale_job
from fastplan.structs import Job, Task, TaskGroup
from tests.server.operated import NOW, Operated, alloc, job

PERIODIC = {"Type": "batch", "Periodic": {"Enabled": True, "Spec": "0 3 * * *", "SpecType": "cron"}}
PARAMETERS = {"Payload": "optional", "MetaRequired": ["input"], "MetaOptional": ["mode"]}


@pytest.fixture
def site() -> Iterator[Operated]:
    site = Operated()
    yield site
    site.check_replay()


def parameterized(**changes: Any) -> Job:
    return job("par", Type="batch", Meta={"team": "core"}, ParameterizedJob=PARAMETERS | changes)


# --- registering ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["service", "batch", "system", "sysbatch"])
def test_a_new_job_is_evaluated_in_the_same_entry(site: Operated, kind: str) -> None:
    (evaluation,) = site.do(register_job, job(Type=kind, Priority=70))
    assert site.index == 1
    assert (evaluation.triggered_by, evaluation.status, evaluation.type, evaluation.priority) == ("job-register", "pending", kind, 70)
    assert (evaluation.namespace, evaluation.job_id, evaluation.job_modify_index) == ("default", "web", 1)
    assert (evaluation.create_index, evaluation.create_time, evaluation.modify_time) == (1, NOW, NOW)
    stored = site.store.job("default", "web")
    assert stored is not None
    assert (stored.version, stored.create_index, stored.job_modify_index, stored.submit_time) == (0, 1, 1, NOW)
    assert stored.status == ("running" if kind == "system" else "pending")
    assert site.operation.unblocks == []


def test_the_same_job_again_is_evaluated_and_not_written(site: Operated) -> None:
    site.do(register_job, job())
    site.apply(codec.UpsertEvals([]))
    (evaluation,) = site.do(register_job, job())
    stored = site.store.job("default", "web")
    assert stored is not None
    assert (stored.version, stored.job_modify_index, stored.modify_index) == (0, 1, 1)
    assert (evaluation.triggered_by, evaluation.create_index, evaluation.job_modify_index) == ("job-register", 3, 0)
    # What comes out of the state is the same job, with what servers wrote into it.
    site.do(register_job, stored)
    assert site.operation.commands == []


def test_a_changed_job_is_the_next_version(site: Operated) -> None:
    site.do(register_job, job())
    (evaluation,) = site.do(register_job, job(Priority=60), now_ns=NOW + 5)
    versions = site.store.job_versions("default", "web")
    assert [(each.version, each.priority, each.submit_time) for each in versions] == [(1, 60, NOW + 5), (0, 50, NOW)]
    assert (versions[0].create_index, versions[0].job_modify_index, evaluation.job_modify_index) == (1, 2, 2)


def test_what_servers_write_is_no_change_and_is_not_taken(site: Operated) -> None:
    given = job(Version=7, CreateIndex=9, ModifyIndex=9, JobModifyIndex=9, Status="dead", Stable=True, SubmitTime=1, StatusDescription="x")
    site.do(register_job, given)
    stored = site.store.job("default", "web")
    assert stored is not None
    assert (stored.version, stored.create_index, stored.status, stored.stable, stored.submit_time) == (0, 1, "pending", False, NOW)
    site.do(register_job, job())
    assert site.operation.commands == []
    # The input stays as it was.
    assert (given.version, given.priority, given.task_groups[0].count) == (7, 0, 0)


@pytest.mark.parametrize("changes", [PERIODIC, {"Type": "batch", "ParameterizedJob": PARAMETERS}])
def test_what_only_starts_jobs_is_not_evaluated(site: Operated, changes: dict[str, Any]) -> None:
    assert site.do(register_job, job(**changes)) == []
    stored = site.store.job("default", "web")
    assert stored is not None
    assert stored.status == "running"
    assert site.do(register_job, job(**changes)) == []
    assert site.operation == Operation()
    assert site.do(scale_job, "default", "web", "g", 3) == []
    assert site.do(deregister_job, "default", "web", False) == []
    stored = site.store.job("default", "web")
    assert stored is not None
    assert (stored.stop, stored.status) == (True, "dead")


def test_a_stopped_job_registered_again_runs_again(site: Operated) -> None:
    site.do(register_job, job())
    site.do(deregister_job, "default", "web", False)
    (evaluation,) = site.do(register_job, job())
    stored = site.store.job("default", "web")
    assert stored is not None
    assert (stored.version, stored.stop, evaluation.job_modify_index) == (2, False, 3)


def test_the_type_does_not_change(site: Operated) -> None:
    site.do(register_job, job())
    with pytest.raises(StateError, match='cannot update job from type "service" to "batch"'):
        site.work_out(register_job, job(Type="batch"))


def test_enforced_index(site: Operated) -> None:
    with pytest.raises(StateError, match="Enforcing job modify index 7: job does not exist"):
        site.work_out(register_job, job(), enforce_index=7)
    site.do(register_job, job(), enforce_index=0)
    with pytest.raises(StateError, match="Enforcing job modify index 0: job already exists"):
        site.work_out(register_job, job(), enforce_index=0)
    with pytest.raises(StateError, match="Enforcing job modify index 3: job exists with conflicting job modify index: 1"):
        site.work_out(register_job, job(), enforce_index=3)
    site.do(register_job, job(Priority=60), enforce_index=1)
    assert site.index == 2


def test_preserved_counts(site: Operated) -> None:
    site.do(register_job, job())
    site.do(scale_job, "default", "web", "g", 4)
    new = job(Priority=60)
    new.task_groups.append(TaskGroup(name="new", count=2, tasks=[Task(name="t", driver="exec")]))
    site.do(register_job, new, preserve_counts=True)
    stored = site.store.job("default", "web")
    assert stored is not None
    assert [(group.name, group.count) for group in stored.task_groups] == [("g", 4), ("new", 2)]


def test_priority_of_the_evaluation(site: Operated) -> None:
    (evaluation,) = site.do(register_job, job(Priority=40), eval_priority=90)
    assert evaluation.priority == 90
    (evaluation,) = site.do(deregister_job, "default", "web", False, eval_priority=1)
    assert evaluation.priority == 1
    for wrong in (0, 101, "high"):
        with pytest.raises(InvalidInput) as caught:
            site.work_out(register_job, job(), eval_priority=wrong)
        assert (caught.value.path, caught.value.value) == ("eval_priority", wrong)
        assert caught.value.wording == "Eval priority must be between 1 and 100 inclusively"


def test_namespace_and_pool_exist(site: Operated) -> None:
    with pytest.raises(InvalidInput) as caught:
        site.work_out(register_job, job(Namespace="ghost"))
    assert (caught.value.path, caught.value.value) == ("job.Namespace", "ghost")
    with pytest.raises(InvalidInput) as caught:
        site.work_out(register_job, job(NodePool="ghost"))
    assert (caught.value.path, caught.value.value) == ("job.NodePool", "ghost")
    assert 'job "web" is in nonexistent node pool "ghost"' in caught.value.wording
    site.apply(codec.Batch([codec.UpsertNamespaces([{"Name": "dev"}]), codec.UpsertNodePools([{"Name": "gpu"}])]))
    (evaluation,) = site.do(register_job, job(Namespace="dev", NodePool="gpu"))
    assert evaluation.namespace == "dev"
    site.do(register_job, job(NodePool="all"))


def test_a_job_made_in_python(site: Operated) -> None:
    made = Job(id="made", task_groups=[TaskGroup(name="g", tasks=[Task(name="t", driver="exec")])])
    site.do(register_job, made)
    stored = site.store.job("default", "made")
    assert stored is not None
    assert (stored.name, stored.type, stored.priority, stored.task_groups[0].count) == ("made", "service", 50, 1)


def test_a_job_of_very_many_groups(site: Operated) -> None:
    def seconds(count: int) -> float:
        groups = [{"Name": f"g{number}", "Tasks": [{"Name": "t", "Driver": "exec"}]} for number in range(count)]
        given = Job.from_api({"ID": f"job{count}", "TaskGroups": groups})
        begin_s = time.perf_counter()
        site.work_out(register_job, given)
        return time.perf_counter() - begin_s

    # A quadratic search for equal names would take 64 times as long.
    assert seconds(4_000) < 40 * max(seconds(500), 0.02)


# --- deregistering ----------------------------------------------------------------------------------------------------


def test_deregistering_is_a_new_version(site: Operated) -> None:
    site.do(register_job, job(Priority=60))
    (evaluation,) = site.do(deregister_job, "default", "web", False)
    stored = site.store.job("default", "web")
    assert stored is not None
    assert (stored.stop, stored.version, stored.job_modify_index, stored.status) == (True, 1, 2, "dead")
    assert (evaluation.triggered_by, evaluation.priority, evaluation.type, evaluation.job_modify_index) == ("job-deregister", 60, "service", 2)
    (again,) = site.do(deregister_job, "default", "web", False)
    assert (again.triggered_by, again.job_modify_index) == ("job-deregister", 3)


def test_purging(site: Operated) -> None:
    site.do(register_job, job())
    site.apply(codec.UpsertAllocs([alloc("a")]))
    (evaluation,) = site.do(deregister_job, "default", "web", True)
    assert site.store.job("default", "web") is None
    assert site.store.job_versions("default", "web") == []
    assert (evaluation.triggered_by, evaluation.job_id, evaluation.job_modify_index, evaluation.type) == ("job-deregister", "web", 3, "service")
    stored = site.store.alloc("a")
    assert stored is not None
    assert stored.job is not None


def test_deregistering_nothing_does_nothing(site: Operated) -> None:
    for purge in (False, True):
        assert site.do(deregister_job, "default", "ghost", purge) == []
        assert site.operation.entry() is None


# --- scaling ----------------------------------------------------------------------------------------------------------


def test_scaling(site: Operated) -> None:
    site.do(register_job, job(Priority=55))
    (evaluation,) = site.do(scale_job, "default", "web", "g", 5)
    assert (evaluation.triggered_by, evaluation.priority, evaluation.type, evaluation.job_modify_index) == ("job-scaling", 55, "service", 2)
    stored = site.store.job("default", "web")
    assert stored is not None
    assert (stored.task_groups[0].count, stored.version) == (5, 1)
    (same,) = site.do(scale_job, "default", "web", "g", 5)
    assert (same.job_modify_index, site.operation.commands) == (2, [])
    site.do(scale_job, "", "web", "g", 0)
    # Zero is what was asked for, also when the job comes back as it is stored.
    stored = site.store.job("default", "web")
    assert stored is not None
    site.do(register_job, stored)
    assert (stored.task_groups[0].count, site.operation.commands) == (0, [])


def test_scaling_within_bounds(site: Operated) -> None:
    groups = [{"Name": "g", "Count": 2, "Scaling": {"Min": 1, "Max": 4}, "Tasks": [{"Name": "t", "Driver": "exec"}]}]
    site.do(register_job, job(TaskGroups=groups))
    site.do(register_job, job("sys", Type="system"))
    for count, wording in ((9, "group count was greater than scaling policy maximum: 9 > 4"), (0, "group count was less than scaling policy minimum: 0 < 1")):
        with pytest.raises(InvalidInput) as caught:
            site.work_out(scale_job, "default", "web", "g", count)
        assert (caught.value.path, caught.value.value, caught.value.wording) == ("count", count, wording)
    with pytest.raises(InvalidInput) as caught:
        site.work_out(scale_job, "default", "sys", "g", 2)
    assert caught.value.wording == 'jobs of type "system" can only be scaled between 0 and 1'
    site.do(scale_job, "default", "sys", "g", 0)


@pytest.mark.parametrize(("group", "count"), [("", 1), ("g", -1), ("g", True), ("g", "3")])
def test_a_scaling_that_makes_no_sense(site: Operated, group: str, count: Any) -> None:
    site.do(register_job, job())
    with pytest.raises(InvalidInput) as caught:
        site.work_out(scale_job, "default", "web", group, count)
    assert caught.value.value in (group, count)


def test_scaling_what_is_not_there(site: Operated) -> None:
    site.do(register_job, job())
    with pytest.raises(StateError, match='job "ghost" not found'):
        site.work_out(scale_job, "default", "ghost", "g", 1)
    with pytest.raises(StateError, match='task group "nope" specified for scaling does not exist in job'):
        site.work_out(scale_job, "default", "web", "nope", 1)
    site.do(deregister_job, "default", "web", False)
    with pytest.raises(StateError, match='job "web" not found'):
        site.work_out(scale_job, "default", "web", "g", 1)


# --- dispatching ------------------------------------------------------------------------------------------------------


def test_dispatching(site: Operated) -> None:
    site.do(register_job, parameterized())
    (evaluation,) = site.do(dispatch_job, "default", "par", b"hello", {"input": "a.csv"})
    child = site.store.job("default", evaluation.job_id)
    assert child is not None
    assert child.id == site.operation.job_id == f"par/dispatch-1800000000-{evaluation.job_id[-8:]}"
    assert (child.name, child.parent_id, child.dispatched, child.version, child.status) == (child.id, "par", True, 0, "pending")
    assert (base64.b64decode(child.payload), child.meta) == (b"hello", {"team": "core", "input": "a.csv"})
    assert (evaluation.triggered_by, evaluation.type, evaluation.job_modify_index) == ("job-register", "batch", 2)
    (other,) = site.do(dispatch_job, "default", "par", b"", {"input": "b", "mode": "m"}, priority=88, id_prefix="run1")
    assert other.job_id.startswith("par/dispatch-run1-1800000000-")
    assert (other.priority, len({other.job_id, evaluation.job_id})) == (88, 2)
    parent = site.store.job("default", "par")
    assert parent is not None
    assert (parent.version, parent.dispatched, parent.payload) == (0, False, "")


def test_dispatching_with_a_token_once(site: Operated) -> None:
    site.do(register_job, parameterized())
    (evaluation,) = site.do(dispatch_job, "default", "par", b"", {"input": "c"}, idempotency_token="tok")
    assert site.do(dispatch_job, "default", "par", b"", {"input": "c"}, idempotency_token="tok") == []
    assert (site.operation.job_id, site.operation.entry()) == (evaluation.job_id, None)
    (other,) = site.do(dispatch_job, "default", "par", b"", {"input": "c"}, idempotency_token="tok-2")
    assert other.job_id != evaluation.job_id
    site.do(deregister_job, "default", evaluation.job_id, False)
    (later,) = site.do(dispatch_job, "default", "par", b"", {"input": "c"}, idempotency_token="tok")
    assert later.job_id != evaluation.job_id


@pytest.mark.parametrize(
    ("payload_rule", "payload", "meta", "path", "wording"),
    [
        ("optional", b"", {}, "meta", "Dispatch did not provide required meta keys: [input]"),
        ("optional", b"", {"input": "x", "zzz": "1"}, "meta", "Dispatch request included unpermitted metadata keys: [zzz]"),
        ("optional", b"x" * 20_000, {"input": "x"}, "payload", "Payload exceeds maximum size; 20000 > 16384"),
        ("required", b"", {"input": "x"}, "payload", "Payload is not provided but required by parameterized job"),
        ("forbidden", b"x", {"input": "x"}, "payload", "Payload provided but forbidden by parameterized job"),
        ("optional", "text", {"input": "x"}, "payload", ""),
        ("optional", b"", {"input": 3}, "meta['input']", ""),
    ],
)
def test_a_dispatch_that_makes_no_sense(site: Operated, payload_rule: str, payload: Any, meta: Any, path: str, wording: str) -> None:
    site.do(register_job, parameterized(Payload=payload_rule))
    with pytest.raises(InvalidInput) as caught:
        site.work_out(dispatch_job, "default", "par", payload, meta)
    assert (caught.value.path, caught.value.wording) == (path, wording)


def test_dispatching_what_takes_no_dispatches(site: Operated) -> None:
    site.do(register_job, job())
    site.do(register_job, parameterized())
    (evaluation,) = site.do(dispatch_job, "default", "par", b"", {"input": "a"})
    with pytest.raises(StateError, match="parameterized job not found"):
        site.work_out(dispatch_job, "default", "ghost", b"", {})
    for job_id in ("web", evaluation.job_id):
        with pytest.raises(StateError, match="is not a parameterized job"):
            site.work_out(dispatch_job, "default", job_id, b"", {})
    with pytest.raises(InvalidInput):
        site.work_out(dispatch_job, "default", "par", b"", {"input": "a"}, priority=101)
    site.do(deregister_job, "default", "par", False)
    with pytest.raises(StateError, match='Specified job "par" is stopped'):
        site.work_out(dispatch_job, "default", "par", b"", {"input": "a"})
