"""The state machine: plan-apply 6.10, cases S1 to S18, known faults 43, 44 and 46; commands; keys; determinism."""

from __future__ import annotations

import random
from typing import Any

import pytest

from fastplan import codec
from fastplan.errors import CodecError, VersionUnsupported
from fastplan.fsm import Refused, Repeated, StateMachine
from fastplan.fsm.keys import KEYS_KEPT, RecentKeys
from fastplan.planner.entry import EntryMaker
from fastplan.planner.view import OptimisticView
from fastplan.structs import Plan
from tests.planner.site import JOB, alloc, node

NOW = 1_700_000_000_000_000_000


class Machine:
    """A state machine that is fed commands and plans, one entry each, at index 1, 2, …"""

    def __init__(self, *commands: codec.Command) -> None:
        self.machine = StateMachine()
        self.items: list[tuple[int, int, bytes, bytes]] = []
        self.now_ns = NOW
        for command in (codec.UpsertNodes([node("F", 100_000), node("G", 100_000)]), codec.UpsertJob(JOB), codec.UpsertEvals([{"ID": "e1"}]), *commands):
            assert self.command(command) is None

    @property
    def store(self) -> Any:
        return self.machine.store

    @property
    def index(self) -> int:
        return self.machine.applied

    def entry(self, entry: bytes, key: bytes = b"") -> Any:
        self.items.append((self.index + 1, 1, entry, key))
        return self.machine.apply(self.items[-1:])[0]

    def command(self, command: codec.Command, key: bytes = b"") -> Any:
        return self.entry(codec.encode_command(command, self.now_ns), key)

    def plan_entry(self, place: Any = None, stop: Any = None, **changes: Any) -> bytes:
        """Verify a plan on the present state and return its entry."""
        plan = Plan.from_api({"Job": JOB, "NodeAllocation": place or {}, "NodeUpdate": stop or {}, **changes})
        maker = EntryMaker(lambda: self.store, lambda: self.index, new_id=lambda: "preemption-eval")
        verdict = OptimisticView(lambda: self.store).verify([plan], None)[0]
        assert verdict.error is None
        verdict.outcome().ineligible_nodes = tuple(changes.get("Ineligible", ()))
        return maker.encode(verdict, self.now_ns)

    def plan(self, place: Any = None, stop: Any = None, key: bytes = b"", **changes: Any) -> Any:
        return self.entry(self.plan_entry(place, stop, **changes), key)

    def dump(self) -> Any:
        return self.store.to_dump()


def nothing_changes(machine: Machine, entry: bytes, reason: str) -> None:
    before = machine.dump()
    result = machine.entry(entry)
    assert result == Refused(reason)
    assert machine.dump() == before


# --- plans ------------------------------------------------------------------------------------------------------------


def test_s2_stamps() -> None:
    machine = Machine()
    assert machine.plan({"F": [alloc("new"), alloc("old", CreateTime=7)]}) is None
    new, old = machine.store.alloc("new"), machine.store.alloc("old")
    assert (new.create_time, new.modify_time) == (NOW, NOW)
    assert (old.create_time, old.modify_time) == (7, NOW)
    for stored in (new, old):
        assert stored.create_index == stored.modify_index == stored.alloc_modify_index == machine.index
        assert stored.node_id == "F"
        assert stored.job.id == "web"


def test_s3_and_s18_a_stop_keeps_the_job_version() -> None:
    machine = Machine()
    machine.plan({"F": [alloc("a")]})
    machine.command(codec.UpsertJob(JOB | {"Version": 1, "Priority": 70}))
    machine.now_ns += 5
    assert machine.plan(stop={"F": [{"ID": "a", "DesiredDescription": "gone", "ClientStatus": "lost", "FollowupEvalID": "f1"}]}) is None
    stored = machine.store.alloc("a")
    assert (stored.desired_status, stored.desired_description, stored.client_status, stored.followup_eval_id) == ("stop", "gone", "lost", "f1")
    assert (stored.job.version, stored.job.priority) == (0, 50)
    assert (stored.modify_time, stored.modify_index, stored.create_index) == (NOW + 5, machine.index, machine.index - 2)


def test_s4_a_stop_without_client_status() -> None:
    machine = Machine()
    machine.plan({"F": [alloc("a")]})
    machine.command(codec.UpdateAllocsFromClient([codec.AllocClientUpdate("a", "running")]))
    machine.plan(stop={"F": [{"ID": "a", "DesiredDescription": "x"}]})
    stored = machine.store.alloc("a")
    assert (stored.desired_status, stored.client_status) == ("stop", "running")


def test_s5_s6_preemption() -> None:
    gone = JOB | {"ID": "gone", "Priority": 5}
    low = JOB | {"ID": "low", "Priority": 20, "Type": "batch"}
    machine = Machine(codec.UpsertJob(low), codec.UpsertJob(gone))
    machine.plan({"F": [alloc("v1", 100, JobID="low"), alloc("v2", 100, JobID="low")]}, Job=low)
    machine.plan({"F": [alloc("v3", 100, JobID="gone")]}, Job=gone)
    machine.command(codec.DeleteJob("default", "gone"))
    machine.now_ns += 1
    preempted = [{"ID": name, "PreemptedByAllocation": "p"} for name in ("v1", "v2", "v3")]
    assert machine.plan({"F": [alloc("p")]}, NodePreemptions={"F": preempted}) is None
    victim = machine.store.alloc("v1")
    assert (victim.desired_status, victim.desired_description) == ("evict", "Preempted by alloc ID p")
    assert (victim.preempted_by_allocation, victim.job.id) == ("p", "low")
    evals = [each for each in machine.store.evals() if each.id != "e1"]
    assert len(evals) == 1
    (evaluation,) = evals
    assert (evaluation.triggered_by, evaluation.status, evaluation.job_id, evaluation.priority, evaluation.type) == (
        "preemption",
        "pending",
        "low",
        20,
        "batch",
    )
    assert (evaluation.create_time, evaluation.modify_time, evaluation.create_index) == (NOW + 1, NOW + 1, machine.index)


def test_known_fault_43_victims_keep_their_job() -> None:
    low = JOB | {"ID": "low", "Version": 3}
    machine = Machine(codec.UpsertJob(low))
    machine.plan({"F": [alloc("a", 100, JobID="low")]}, Job=low)
    machine.plan({"F": [alloc("b")]}, NodePreemptions={"F": [{"ID": "a", "PreemptedByAllocation": "b"}]})
    victim = machine.store.alloc("a")
    assert (victim.job.id, victim.job.version, victim.preempted_by_allocation) == ("low", 3, "b")


def test_s7_the_evaluation() -> None:
    machine = Machine()
    assert machine.plan({"F": [alloc("a")]}, EvalID="e1") is None
    assert machine.store.eval("e1").modify_index == machine.index
    entry = machine.plan_entry({"F": [alloc("b")]}, EvalID="unknown")
    nothing_changes(machine, entry, 'unable to find eval id "unknown"')


def test_s8_a_deployment_keeps_what_happened() -> None:
    machine = Machine()
    stored = {
        "ID": "d1",
        "JobID": "web",
        "Status": "running",
        "TaskGroups": {
            "g": {"HealthyAllocs": 2, "UnhealthyAllocs": 1, "PlacedAllocs": 4, "RequireProgressBy": "2026-01-01T00:00:00Z"},
            "h": {"DesiredTotal": 7},
        },
    }
    machine.command(codec.UpsertDeployment(stored))
    created = machine.index
    machine.plan(
        {"F": [alloc("a")]}, Deployment={"ID": "d1", "JobID": "web", "Status": "running", "TaskGroups": {"g": {"DesiredTotal": 9, "HealthyAllocs": 0}}}
    )
    deployment = machine.store.deployment("d1")
    group = deployment.task_groups["g"]
    assert (group.healthy_allocs, group.unhealthy_allocs, group.placed_allocs, group.desired_total) == (2, 1, 4, 9)
    assert group.require_progress_by == "2026-01-01T00:00:00Z"
    assert deployment.task_groups["h"].desired_total == 7
    assert (deployment.create_index, deployment.modify_index) == (created, machine.index)


def test_s9_a_promotion_cannot_be_undone() -> None:
    machine = Machine(codec.UpsertDeployment({"ID": "d1", "JobID": "web", "Status": "running", "TaskGroups": {"g": {"Promoted": True}}}))
    entry = machine.plan_entry({"F": [alloc("a")]}, Deployment={"ID": "d1", "JobID": "web", "TaskGroups": {"g": {"Promoted": False}}})
    nothing_changes(machine, entry, "deployment promotion cannot be undone")


def test_s10_updates_of_deployments_that_have_ended_are_dropped() -> None:
    machine = Machine(
        codec.UpsertDeployment({"ID": "d1", "JobID": "web", "Status": "failed"}),
        codec.UpsertDeployment({"ID": "d2", "JobID": "web", "Status": "running", "TaskGroups": {"g": {"ProgressDeadline": 600}}}),
    )
    update = {"DeploymentID": "d2", "Status": "paused", "StatusDescription": "by hand"}
    assert (
        machine.plan({"F": [alloc("a")]}, DeploymentUpdates=[update, {"DeploymentID": "d1", "Status": "successful"}, update | {"Status": "cancelled"}]) is None
    )
    assert machine.store.alloc("a") is not None
    assert machine.store.deployment("d1").status == "failed"
    second = machine.store.deployment("d2")
    # The first took effect, the second stopped the rest.
    assert (second.status, second.status_description, second.modify_index, second.modify_time) == ("paused", "by hand", machine.index, NOW)
    assert second.task_groups["g"].require_progress_by == NOW + 600


def test_a_successful_deployment_makes_its_job_version_stable() -> None:
    machine = Machine(codec.UpsertDeployment({"ID": "d1", "JobID": "web", "JobVersion": 0, "Status": "running"}))
    assert not machine.store.job("default", "web").stable
    machine.plan({"F": [alloc("a")]}, DeploymentUpdates=[{"DeploymentID": "d1", "Status": "successful"}])
    assert machine.store.job("default", "web").stable


def test_deployments_count_their_allocations() -> None:
    machine = Machine(codec.UpsertDeployment({"ID": "d1", "JobID": "web", "Status": "running", "TaskGroups": {"g": {"ProgressDeadline": 600}}}))
    machine.plan({"F": [alloc("a", DeploymentID="d1"), alloc("b", DeploymentID="d1", DeploymentStatus={"Canary": True, "Healthy": True})]})
    group = machine.store.deployment("d1").task_groups["g"]
    assert (group.placed_allocs, group.healthy_allocs, group.placed_canaries, group.require_progress_by) == (2, 1, ["b"], NOW + 600)
    machine.plan(
        {
            "F": [
                alloc("a", DeploymentID="d1", DeploymentStatus={"Healthy": False}),
                alloc("b", DeploymentID="d1", DeploymentStatus={"Canary": True, "Healthy": True}),
            ]
        }
    )
    group = machine.store.deployment("d1").task_groups["g"]
    assert (group.placed_allocs, group.healthy_allocs, group.unhealthy_allocs, group.placed_canaries) == (2, 1, 1, ["b"])


def test_s11_a_job_that_was_stopped_meanwhile() -> None:
    machine = Machine()
    machine.plan({"F": [alloc("running")]})
    entry = machine.plan_entry({"F": [alloc("running"), alloc("new")]}, {"G": []})
    machine.command(codec.UpsertJob(JOB | {"Version": 1, "Stop": True}))
    assert machine.entry(entry) is None
    assert machine.store.alloc("new") is None
    assert machine.store.alloc("running").modify_index == machine.index
    entry = machine.plan_entry({"F": [alloc("newer")]})
    machine.command(codec.DeleteJob("default", "web"))
    assert machine.entry(entry) is None
    assert machine.store.alloc("newer") is None
    assert machine.store.table_index("allocs") == machine.index


def test_s12_a_new_allocation_that_has_ended_and_has_no_job() -> None:
    machine = Machine()
    entry = machine.plan_entry({"F": [alloc("a"), alloc("ended", ClientStatus="failed")]})
    nothing_changes(machine, entry, 'attempting to upsert allocation "ended" without a job')


def test_s13_s14_the_clients_word_stays_unless_the_plan_says_lost_or_unknown() -> None:
    machine = Machine()
    machine.plan({"F": [alloc("a")]})
    machine.command(codec.UpdateAllocsFromClient([codec.AllocClientUpdate("a", "running", "fine", {"t": {"State": "running"}})]))
    machine.plan({"F": [alloc("a", ClientStatus="pending")]})
    stored = machine.store.alloc("a")
    assert (stored.client_status, stored.client_description, list(stored.task_states)) == ("running", "fine", ["t"])
    machine.plan({"F": [alloc("a", ClientStatus="unknown")]})
    assert machine.store.alloc("a").client_status == "unknown"


def test_s15_previous_and_next() -> None:
    machine = Machine()
    machine.plan({"F": [alloc("old")]})
    machine.plan({"G": [alloc("new", PreviousAllocation="old")]}, {"F": [{"ID": "old"}]})
    assert machine.store.alloc("old").next_allocation == "new"
    assert machine.store.alloc("new").previous_allocation == "old"
    machine.plan({"G": [alloc("newer", PreviousAllocation="unknown")]})
    assert machine.store.alloc("newer") is not None


def test_s16_the_index_of_the_allocations_moves_with_every_plan() -> None:
    machine = Machine()
    assert machine.plan(Deployment={"ID": "d1", "JobID": "web"}) is None
    assert machine.store.table_index("allocs") == machine.index
    assert machine.store.latest_index() == machine.index


def test_s17_ineligible_nodes() -> None:
    machine = Machine()
    assert machine.plan({"G": [alloc("a")]}, Ineligible=["F"]) is None
    closed = machine.store.node("F").to_api()
    assert (closed["SchedulingEligibility"], closed["StatusUpdatedAt"], closed["ModifyIndex"]) == ("ineligible", NOW // 10**9, machine.index)
    assert closed["Events"][-1]["Subsystem"] == "Scheduler"
    nothing_changes(machine, machine.plan_entry({"G": [alloc("b")]}, Ineligible=["F", "unknown"]), "node not found")


@pytest.mark.parametrize("change", ["stop", "preempt"])
def test_a_plan_that_moves_an_allocation_to_another_group_and_ends_it(change: str) -> None:
    """The record moves to another row, and that one ends."""
    job = JOB | {"TaskGroups": [{"Name": "g"}, {"Name": "h"}]}
    machine = Machine(codec.UpsertJob(job))
    machine.plan({"F": [alloc("a")]})
    moved = {"F": [alloc("a", TaskGroup="h", Name="web.h[0]")]}
    ended = {"stop": {"F": [{"ID": "a"}]}} if change == "stop" else {"NodePreemptions": {"F": [{"ID": "a", "PreemptedByAllocation": "b"}]}}
    assert machine.plan(moved, **ended, Job=job) is None
    stored = machine.store.alloc("a")
    assert (stored.task_group, stored.desired_status) == ("h", "stop" if change == "stop" else "evict")
    assert machine.store.node_used("F", physical=False).alloc_count == 0


def test_known_fault_46_a_stop_of_something_that_is_not_there() -> None:
    machine = Machine()
    machine.plan({"F": [alloc("a")]})
    entry = machine.plan_entry({"F": [alloc("b")]}, {"F": [{"ID": "a"}]})
    machine.command(codec.DeleteAllocs(["a"]))
    nothing_changes(machine, entry, "alloc a doesn't exist")


def test_a_node_that_went_away() -> None:
    machine = Machine()
    entry = machine.plan_entry({"F": [alloc("a")], "G": [alloc("b")]})
    machine.command(codec.DeleteNodes(["G"]))
    nothing_changes(machine, entry, "node does not exist")
    # Another node in the same row is not the node that was meant.
    machine.command(codec.UpsertNodes([node("H")]))
    nothing_changes(machine, entry, "node does not exist")


def test_an_id_that_is_placed_twice() -> None:
    machine = Machine()
    assert machine.plan({"F": [alloc("a", 100), alloc("a", 200)]}) is None
    stored = machine.store.alloc("a")
    assert stored.allocated_resources.tasks["t"].cpu.cpu_shares == 200
    assert machine.store.alloc_count() == 1


def test_known_fault_44_canaries_of_refused_nodes() -> None:
    machine = Machine()
    deployment = {"ID": "d1", "JobID": "web", "TaskGroups": {"g": {"PlacedCanaries": ["c1", "c2"]}}}
    assert machine.plan({"F": [alloc("c1")], "G": [alloc("c2", 10**6)]}, Deployment=deployment) is None
    assert machine.store.deployment("d1").task_groups["g"].placed_canaries == ["c1"]
    assert machine.store.alloc("c2") is None


def test_the_status_of_a_job_follows_its_allocations() -> None:
    machine = Machine()

    def status() -> str:
        return str(machine.store.job("default", "web").status)

    machine.plan({"F": [alloc("a"), alloc("b")]})
    assert status() == "running"
    machine.plan(stop={"F": [{"ID": "a"}]})
    # A status follows from the rest and moves no index.
    assert (status(), machine.store.table_index("jobs")) == ("running", 2)
    machine.command(codec.UpdateAllocsFromClient([codec.AllocClientUpdate("b", "complete")]))
    assert status() == "dead"
    machine.command(codec.UpsertEvals([{"ID": "e2", "Namespace": "default", "JobID": "web", "Status": "pending"}]))
    machine.plan({"F": [alloc("c")]}, {"F": [{"ID": "a"}]}, Deployment={"ID": "d1", "JobID": "web"})
    assert status() == "running"
    machine.plan(stop={"F": [{"ID": "c"}]})
    assert status() == "pending"


# --- commands ---------------------------------------------------------------------------------------------------------


def test_commands_change_what_they_name() -> None:
    machine = Machine()
    machine.command(codec.UpdateNodeStatus("F", "down"))
    assert (machine.store.node("F").status, machine.store.node("F").status_updated_at) == ("down", NOW // 10**9)
    machine.command(codec.UpdateNodeEligibility("F", "ineligible"))
    assert machine.store.node("F").scheduling_eligibility == "ineligible"
    machine.command(codec.UpdateNodeDrain("G", {"Deadline": 5}))
    assert machine.store.node("G").scheduling_eligibility == "ineligible"
    machine.command(codec.UpdateNodeDrain("G", None))
    assert (machine.store.node("G").scheduling_eligibility, machine.store.node("G").drain_strategy) == ("eligible", None)
    machine.command(codec.UpsertNamespaces([{"Name": "dev"}]))
    machine.command(codec.UpsertNodePools([{"Name": "gpu"}]))
    machine.command(codec.SetSchedulerConfig({"SchedulerAlgorithm": "spread"}))
    assert machine.store.namespace("dev") is not None
    assert machine.store.node_pool("gpu") is not None
    assert machine.store.scheduler_config() == {"SchedulerAlgorithm": "spread"}
    machine.command(codec.UpsertAllocs([alloc("a", NodeID="G")]))
    machine.command(codec.DeleteAllocs(["a", "unknown"]))
    machine.command(codec.DeleteEvals(["e1"]))
    machine.command(codec.UpsertDeployment({"ID": "d1", "JobID": "web", "Status": "running"}))
    machine.command(codec.UpdateDeploymentStatus("d1", "failed", "boom"))
    assert machine.store.deployment("d1").status == "failed"
    machine.command(codec.DeleteDeployments(["d1"]))
    machine.command(codec.DeleteJob("default", "web"))
    machine.command(codec.DeleteNodes(["F", "G"]))
    dump = machine.dump()
    assert [dump[table] for table in ("nodes", "jobs", "allocs", "evals", "deployments")] == [[], [], [], [], []]


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (codec.UpdateNodeStatus("X", "down"), "node X does not exist"),
        (codec.UpdateNodeEligibility("F", "maybe"), 'eligibility: expected "eligible" or "ineligible", got "maybe"'),
        (codec.UpdateNodeDrain("F", {"Deadline": "x"}), "node.DrainStrategy"),
        (codec.DeleteNodes(["F", "X"]), "node X does not exist"),
        (codec.DeleteJob("default", "X"), "job X does not exist"),
        (codec.UpsertNodes([node("N"), {"ID": 5}]), "nodes[1].ID: expected text, got 5"),
        (codec.UpsertNodes([{}]), "nodes[0].ID"),
        (codec.UpsertJob({"ID": "x", "Priority": "high"}), "jobs[0].Priority"),
        (codec.UpsertNamespaces([{"Name": "ok"}, {"Name": 3}]), "namespaces[1].Name"),
        (codec.UpdateAllocsFromClient([codec.AllocClientUpdate("a", "running", None, {"t": 7})]), "updates[0].TaskStates.t"),
        (codec.UpdateDeploymentStatus("d9", "failed", ""), "deployment d9 does not exist or is not active"),
        (codec.Batch([codec.UpsertNodes([node("N")]), codec.DeleteNodes(["N"]), codec.UpdateNodeStatus("N", "down")]), "node N does not exist"),
        (codec.Batch([codec.DeleteJob("default", "web"), codec.DeleteJob("default", "web")]), "job web does not exist"),
    ],
)
def test_a_refused_command_changes_nothing(command: codec.Command, reason: str) -> None:
    machine = Machine()
    before = machine.dump()
    result = machine.command(command)
    assert isinstance(result, Refused)
    assert result.refused.startswith(reason)
    assert machine.dump() == before


def test_a_batch_takes_effect_as_a_whole() -> None:
    machine = Machine()
    batch = codec.Batch([codec.UpsertNodes([node("N")]), codec.UpdateNodeStatus("N", "down"), codec.DeleteNodes(["F"]), codec.UpsertEvals([{"ID": "e2"}])])
    assert machine.command(batch) is None
    assert machine.store.node("N").status == "down"
    assert machine.store.node("F") is None
    assert {machine.store.table_index("nodes"), machine.store.table_index("evals")} == {machine.index}


# --- the log's contract -----------------------------------------------------------------------------------------------


def test_a_repeated_key_is_answered_with_the_first_result() -> None:
    machine = Machine()
    first = machine.plan_entry({"F": [alloc("a")], "G": [alloc("b", 10**6)]})
    assert machine.entry(first, b"k1") is None
    index = machine.index
    before = machine.dump()
    again = machine.entry(first, b"k1")
    assert again == Repeated(index, None, ("G",), 1)
    assert machine.command(codec.DeleteNodes(["X"]), b"k2") == Refused("node X does not exist")
    assert machine.command(codec.DeleteNodes(["F"]), b"k2") == Repeated(index + 2, "node X does not exist")
    assert machine.dump() == before
    assert machine.machine.result_of(b"k1") == again
    assert machine.machine.result_of(b"k3") is None


def test_a_repeated_key_inside_one_batch() -> None:
    machine = Machine()
    entry = machine.plan_entry({"F": [alloc("a")]})
    start = machine.index
    results = machine.machine.apply([(start + 1, 1, entry, b"k"), (start + 2, 1, entry, b"k"), (start + 3, 1, machine.plan_entry({"F": [alloc("b")]}), b"")])
    assert list(results) == [None, Repeated(start + 1), None]


def test_keys_are_forgotten_by_number_and_by_age() -> None:
    keys = RecentKeys()
    for number in range(KEYS_KEPT + 5):
        keys.add(str(number).encode(), NOW, number)
    assert len(keys) == KEYS_KEPT
    assert keys.get(b"4") is None
    assert keys.get(b"5") == Repeated(5)
    keys.add(b"later", NOW + 3600 * 10**9, 1)
    assert keys.get(b"5") is None
    assert keys.get(b"6") == Repeated(6)
    keys.add(b"much later", NOW + 3600 * 10**9 + 1, 2)
    assert len(keys) == 2
    assert [key for key, _, _ in keys.items()] == [b"later", b"much later"]


def test_unreadable_entries_stop_the_replica() -> None:
    machine = Machine()
    with pytest.raises(CodecError):
        machine.entry(b"rubbish")
    with pytest.raises(CodecError, match="comes after"):
        machine.machine.apply([(1, 1, codec.encode_command(codec.DeleteEvals([]), NOW), b"")])


def random_history(seed: int) -> Machine:
    """Plans and commands that place, update, stop, preempt, refuse and repeat."""
    source = random.Random(seed)
    machine = Machine(codec.UpsertNodes([node(f"n{number}", 3000) for number in range(4)]))
    known: list[tuple[str, str]] = []
    for step in range(60):
        machine.now_ns += source.randrange(10**9)
        kind = source.random()
        key = source.choice((b"", f"k{step}".encode(), f"k{source.randrange(60)}".encode()))
        if kind < 0.6:
            place: dict[str, list[Any]] = {}
            stop: dict[str, list[Any]] = {}
            preempt: dict[str, list[Any]] = {}
            for node_id in source.sample(["n0", "n1", "n2", "n3"], source.randint(1, 3)):
                new = [f"a{step}-{number}-{node_id}" for number in range(source.randint(0, 2))]
                place[node_id] = [alloc(name, source.choice((100, 500, 2000))) for name in new]
                here = [name for name, where in known if where == node_id and machine.store.alloc(name) is not None]
                source.shuffle(here)
                if here and source.random() < 0.5:
                    stop[node_id] = [{"ID": here.pop(), "DesiredDescription": source.choice("xy"), "ClientStatus": source.choice(("", "lost"))}]
                if here and source.random() < 0.3:
                    preempt[node_id] = [{"ID": here.pop(), "PreemptedByAllocation": new[0] if new else "p"}]
                if here and source.random() < 0.3:
                    place[node_id].append(alloc(here.pop(), 100))
                known.extend((name, node_id) for name in new)
            machine.plan(place, stop, key=key, NodePreemptions=preempt, EvalID=source.choice(("", "e1")))
        elif kind < 0.8 and known:
            machine.command(
                codec.UpdateAllocsFromClient([codec.AllocClientUpdate(source.choice(known)[0], source.choice(("running", "complete", "failed")))]), key
            )
        elif kind < 0.9:
            machine.command(codec.UpdateNodeStatus(f"n{source.randrange(5)}", source.choice(("ready", "ready", "down"))), key)
        else:
            machine.command(codec.UpsertJob(JOB | {"Version": step}), key)
    return machine


@pytest.mark.parametrize("seed", range(6))
def test_replicas_are_equal_however_the_log_is_cut(seed: int) -> None:
    history = random_history(seed)
    assert len(history.store.allocs()) > 5
    expected = [StateMachine().apply(history.items)]
    source = random.Random(seed)
    for _ in range(3):
        replica = StateMachine()
        results: list[Any] = []
        place = 0
        while place < len(history.items):
            count = source.choice((1, 2, 7, 30))
            results.extend(replica.apply(history.items[place : place + count]))
            place += count
        expected.append(results)
        assert replica.store.to_dump() == history.dump()
        assert replica.applied == history.index
        # Keys and refused plans too.
        assert b"".join(replica.snapshot()) == b"".join(history.machine.snapshot())
    assert all(list(results) == list(expected[0]) for results in expected)


# --- snapshots --------------------------------------------------------------------------------------------------------


def cut(data: bytes, source: random.Random) -> list[bytes]:
    """Cut bytes anywhere."""
    places = sorted(source.randrange(len(data)) for _ in range(20))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


@pytest.mark.parametrize("seed", range(4))
def test_a_restored_replica_goes_on_like_the_others(seed: int) -> None:
    history = random_history(seed)
    source = random.Random(seed)
    middle = len(history.items) // 2
    first = StateMachine()
    first.apply(history.items[:middle])
    snapshot = first.snapshot()
    # The snapshot does not see what comes after it was taken.
    rest = first.apply(history.items[middle:])
    second = StateMachine()
    second.apply(history.items[:3])
    second.restore(cut(b"".join(snapshot), source))
    assert second.applied == history.items[middle - 1][0]
    assert list(second.apply(history.items[middle:])) == list(rest)
    assert second.store.to_dump() == first.store.to_dump()
    assert b"".join(second.snapshot()) == b"".join(first.snapshot())


def test_damaged_snapshots_change_nothing() -> None:
    history = random_history(1)
    data = b"".join(history.machine.snapshot())
    replica = StateMachine()
    replica.apply(history.items[:5])
    before = replica.store.to_dump()
    source = random.Random(5)
    for damaged in ([], [data[: len(data) // 2]], [data[:-1]], [data + b"x"], [b"\xff" * 100], [data[:4] + b"\x00" + data[5:]], [b"\x00\x00\x00\x00" + data]):
        with pytest.raises(CodecError):
            replica.restore(damaged)
    for _ in range(200):
        place = source.randrange(len(data))
        try:
            StateMachine().restore([data[:place], bytes([data[place] ^ (1 << source.randrange(8))]), data[place + 1 :]])
        except CodecError:
            continue
    assert (replica.store.to_dump(), replica.applied) == (before, 5)


def test_a_snapshot_of_another_version_names_both() -> None:
    data = bytearray(b"".join(Machine().machine.snapshot()))
    place = data.index(b"fastplan-state") + len(b"fastplan-state")
    data[place] = 9
    with pytest.raises(VersionUnsupported, match="version 9 found, this release reads up to version 1"):
        StateMachine().restore([bytes(data)])
