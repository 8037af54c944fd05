"""`fastplan schedule`: placements, changes, and the reasons why something has no place; bad input."""

from __future__ import annotations

import time

import pytest

from fastplan.cli import ALL_FITS, BAD_INPUT, DOES_NOT_FIT, ENVIRONMENT
from tests.cli.command_line import alloc, node

EXEC = {"exec": {"Detected": True, "Healthy": True}}


def group(name="web", count=1, **changes):
    """A group of one exec task of 1,500 MHz and 512 MiB."""
    task = {"Name": "server", "Driver": "exec", "Resources": {"CPU": 1500, "MemoryMB": 512}}
    return {"Name": name, "Count": count, "EphemeralDisk": {"SizeMB": 300}, "Tasks": [task], **changes}


def job(*groups, **changes):
    """A service job in every datacenter; one group unless others are given."""
    return {"ID": "site", "Name": "site", "Type": "service", "Datacenters": ["*"], "TaskGroups": list(groups or [group()]), **changes}


def state(*allocs, nodes=("n1", "n2"), **changes):
    """A cluster of ready nodes that run exec tasks."""
    listed = [node(entry, Drivers=EXEC) if isinstance(entry, str) else entry for entry in nodes]
    return {"nodes": listed, "allocs": list(allocs), "indexes": {"nodes": 1001}, **changes}


@pytest.fixture
def schedule(fastplan, write):
    """Runs the command on Python values, `schedule(state, job, *options)`."""

    def schedule(state, job, *options):
        return fastplan("schedule", write("state.json", state), write("job.json", job), *options)

    return schedule


@pytest.mark.parametrize("rules", ["strict", "nomad"])
@pytest.mark.parametrize(("job_type", "placed"), [("service", 3), ("batch", 3), ("system", 2), ("sysbatch", 2)])
def test_every_type_of_job_is_placed(schedule, rules, job_type, placed):
    count = 1 if job_type in ("system", "sysbatch") else 3
    outcome = schedule(state(), {"Job": job(group(count=count), Type=job_type)}, "--json", "--rules", rules)
    assert (outcome.code, outcome.err) == (ALL_FITS, "")
    assert len(outcome.json["placed"]) == placed
    assert {entry["node_id"] for entry in outcome.json["placed"]} == {"n1", "n2"}
    assert outcome.json["fits"]
    assert not outcome.json["failed"]


def test_the_same_seed_prints_the_same(schedule):
    asked = job(group(count=3, Networks=[{"DynamicPorts": [{"Label": "http"}]}]))
    outcomes = [schedule(state(), asked, "--seed", seed).out for seed in (7, 7, 8)]
    assert outcomes[0] == outcomes[1] != outcomes[2]


def test_text_of_placements_and_of_what_is_missing(schedule):
    """Golden text: four of five have a place, and it is said what the nearest node lacks, and who holds it."""
    outcome = schedule(state(), job(group(count=5)))
    assert outcome.code == DOES_NOT_FIT
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert lines[0] == "site.web: 5 to place."
    assert sum(line.startswith("site.web[") for line in lines) == 4
    assert "site.web: 1 has no place; 2 nodes were looked at." in lines
    assert "2 exhausted: cpu" in lines
    assert any(line.startswith("n1 cpu 1500 1000 500 ") for line in lines)
    assert "\x1b" not in outcome.out


def test_who_holds_what_is_missing(schedule):
    held = [alloc("small", cpu_mhz=500), alloc("large", cpu_mhz=3000), alloc("ended", ClientStatus="complete")]
    (near,) = schedule(state(*held, nodes=["n1"]), job(), "--json").json["nearest"]["web"]
    assert near == {
        "node_id": "n1",
        "failing": [{"dimension": "cpu", "subject": "", "asked": 1500, "free": 500, "missing": 1000, "held_by": ["large", "small"]}],
    }


def test_a_static_port_names_its_holder(schedule):
    asked = job(group(Networks=[{"ReservedPorts": [{"Label": "http", "Value": 8080}]}]))
    outcome = schedule(state(alloc("a1", port=8080), nodes=["n1"]), asked, "--json")
    assert outcome.code == DOES_NOT_FIT
    (shortfall,) = outcome.json["nearest"]["web"][0]["failing"]
    assert (shortfall["dimension"], shortfall["subject"], shortfall["held_by"]) == ("port", "10.0.0.1:8080", ["a1"])


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        ({"LTarget": "${attr.kernel.name}", "RTarget": "windows", "Operand": "="}, "${attr.kernel.name} = windows"),
        ({"LTarget": "${attr.kernel.name}", "RTarget": "(", "Operand": "regexp"}, "${attr.kernel.name} regexp ("),
        ({"LTarget": "${attr.kernel.name}", "RTarget": "not one", "Operand": "version"}, "${attr.kernel.name} version not one"),
    ],
)
def test_filtered_nodes_are_counted_by_constraint(schedule, constraint, reason):
    """A constraint that cannot be parsed filters the node as one that does not hold; a thousand nodes are one line."""
    nodes = [node(f"n{number}", Drivers=EXEC, Attributes={"kernel.name": "linux"}) for number in range(1000)]
    outcome = schedule(state(nodes=nodes), job(Constraints=[constraint]))
    assert outcome.code == DOES_NOT_FIT
    assert f"1000 filtered: {reason}" in [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert len(outcome.out.splitlines()) < 20


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ([], "job"),
        ({"Job": 3}, "job"),
        ("no JSON", "job"),
        (job(TaskGroups=[]), "TaskGroups"),
        (job(group(count=-1)), "Count"),
        (job(group(count="three")), "job.TaskGroups[0].Count"),
        (job(Type="daemon"), "Type"),
        (job(Constraints=[{"LTarget": "a", "RTarget": "b", "Operand": "resembles"}]), "job.Constraints[0].Operand"),
    ],
)
def test_bad_jobs_name_the_field(schedule, bad, named):
    outcome = schedule(state(), bad)
    assert outcome.code == BAD_INPUT
    assert named in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_missing_files_and_two_readers_of_stdin(fastplan, write):
    assert fastplan("schedule", "nowhere.json", write("job.json", job())).code == BAD_INPUT
    assert fastplan("schedule", write("state.json", state()), "nowhere.json").code == BAD_INPUT
    assert fastplan("schedule", "-", "-").code == BAD_INPUT


def known(schedule, count=2):
    """The job as a registration stores it, and its running allocations on n1."""
    registered = schedule(state(), job(group(count=count)), "--json").json["plan"]["Job"]
    runs = [alloc(f"a{number}", JobID="site", Name=f"site.web[{number}]", Job=registered, CreateIndex=6, ModifyIndex=6) for number in range(count)]
    return registered, runs


def test_a_smaller_count_shows_what_is_stopped(schedule):
    registered, runs = known(schedule)
    outcome = schedule(state(*runs, jobs=[registered]), job(group(count=1)), "--json")
    assert outcome.code == ALL_FITS
    assert [(entry["alloc_id"], entry["name"], entry["node_id"]) for entry in outcome.json["stopped"]] == [("a1", "site.web[1]", "n1")]
    assert outcome.json["desired_updates"]["web"]["Stop"] == 1
    text = schedule(state(*runs, jobs=[registered]), job(group(count=1))).out
    assert "1 to stop" in text
    assert "site.web[1]" in text


def test_a_changed_task_shows_what_is_replaced(schedule):
    registered, runs = known(schedule, count=1)
    changed = job(group())
    changed["TaskGroups"][0]["Tasks"][0]["Config"] = {"command": "/bin/other"}
    outcome = schedule(state(*runs, jobs=[registered]), changed, "--json")
    assert outcome.code == ALL_FITS
    assert [entry["alloc_id"] for entry in outcome.json["stopped"]] == ["a0"]
    assert [entry["replaces"] for entry in outcome.json["placed"]] == ["a0"]
    assert "1 to replace" in schedule(state(*runs, jobs=[registered]), changed).out


def test_an_allocation_on_a_node_that_is_not_there(schedule):
    """The reference leads nowhere: the allocation holds nothing on the nodes that are there."""
    outcome = schedule(state(alloc("a1", "gone"), nodes=["n1"]), job(), "--json")
    assert outcome.code == ALL_FITS
    assert [entry["node_id"] for entry in outcome.json["placed"]] == ["n1"]


def test_no_nodes(schedule):
    outcome = schedule({}, job())
    assert outcome.code == DOES_NOT_FIT
    assert "site.web: 1 has no place; 0 nodes were looked at." in outcome.out


def test_many_groups_that_fail(schedule):
    """A text of bounded length, however many groups there are."""
    groups = [group(f"g{number}") for number in range(300)]
    outcome = schedule(state(), job(*groups))
    assert outcome.code == DOES_NOT_FIT
    assert "… and 276 more groups have no place for all of theirs; --json has their counts." in outcome.out
    assert len(outcome.out.splitlines()) < 400


def test_devices_are_given_and_missed(schedule):
    """Two instances for three: the third copy names who holds them."""
    gpus = [{"Vendor": "nvidia", "Type": "gpu", "Name": "t4", "Instances": [{"ID": "g0", "Healthy": True}, {"ID": "g1", "Healthy": True}]}]
    bare = node("n1", Drivers=EXEC)
    equipped = {**bare, "NodeResources": {**bare["NodeResources"], "Devices": gpus}}
    asked = group(count=3)
    asked["Tasks"][0]["Resources"] = {"CPU": 100, "MemoryMB": 64, "Devices": [{"Name": "nvidia/gpu/t4", "Count": 1}]}
    outcome = schedule(state(nodes=[equipped]), job(asked), "--json")
    assert outcome.code == DOES_NOT_FIT
    assert [entry["given"] for entry in outcome.json["placed"]] == [["nvidia/gpu/t4 g0"], ["nvidia/gpu/t4 g1"]]
    (shortfall,) = outcome.json["nearest"]["web"][0]["failing"]
    assert (shortfall["dimension"], shortfall["missing"]) == ("device", 1)
    assert set(shortfall["held_by"]) == {entry["alloc_id"] for entry in outcome.json["placed"]}


def test_who_is_evicted_and_by_whom(schedule):
    low = alloc("low", cpu_mhz=3500, Job={**job(), "ID": "job", "Name": "job", "Priority": 10})
    config = {"PreemptionConfig": {"ServiceSchedulerEnabled": True}}
    outcome = schedule(state(low, nodes=["n1"], scheduler_config=config), job(Priority=90), "--json")
    assert outcome.code == ALL_FITS
    (placed,), (evicted,) = outcome.json["placed"], outcome.json["preempted"]
    assert placed["preempts"] == ["low"]
    assert (evicted["alloc_id"], evicted["job_id"], evicted["node_id"]) == ("low", "job", "n1")
    assert placed["alloc_id"] in evicted["reason"]
    assert "1 preemptions" in schedule(state(low, nodes=["n1"], scheduler_config=config), job(Priority=90)).out


def test_what_is_updated_in_place(schedule):
    """Another priority changes no task: the allocation stays where it is, and is written anew."""
    registered, runs = known(schedule, count=1)
    outcome = schedule(state(*runs, jobs=[registered]), job(group(count=1), Priority=70), "--json")
    assert outcome.code == ALL_FITS
    assert [(entry["alloc_id"], entry["node_id"]) for entry in outcome.json["updated"]] == [("a0", "n1")]
    assert (outcome.json["placed"], outcome.json["stopped"]) == ([], [])


def test_nothing_to_do(schedule):
    registered, runs = known(schedule)
    outcome = schedule(state(*runs, jobs=[registered]), registered)
    assert outcome.code == ALL_FITS
    assert "No allocation would change." in outcome.out


def test_several_reasons_at_once(schedule):
    """Of three nodes one is filtered by its driver, one by the job's constraint, and one is full."""
    nodes = [node("n1", Meta={"zone": "a"}), node("n2", Drivers=EXEC, Meta={"zone": "b"}), node("n3", Drivers=EXEC, Meta={"zone": "a"})]
    asked = job(Constraints=[{"LTarget": "${meta.zone}", "RTarget": "a", "Operand": "="}])
    outcome = schedule(state(alloc("a1", "n3", memory_mib=8000), nodes=nodes), asked)
    assert outcome.code == DOES_NOT_FIT
    lines = [" ".join(line.split()) for line in outcome.out.splitlines()]
    assert "1 exhausted: memory" in lines
    assert {line for line in lines if " filtered: " in line} == {"1 filtered: missing drivers", "1 filtered: ${meta.zone} = a"}
    assert any(line.startswith("n3 memory 512 192 320 a1") for line in lines)


def test_many_placements_are_cut_off(schedule):
    outcome = schedule(state(nodes=[f"n{number}" for number in range(60)]), job(group(count=100)))
    assert outcome.code == ALL_FITS
    assert "… and 60 more; --json has all." in outcome.out
    assert len(outcome.out.splitlines()) < 60


def test_a_terminal_of_80_columns(schedule, monkeypatch):
    """Long ids are folded, and no line is cut or too long."""
    monkeypatch.setattr("fastplan.cli.output._PIPE_WIDTH", 80)
    node_id = "0b9f9fd2-7a0a-4f30-9f4e-0d3f0d9a1c0a"
    outcome = schedule(state(alloc("a1", node_id, cpu_mhz=3000), nodes=[node_id]), job())
    assert max(map(len, outcome.out.splitlines())) <= 80
    text = "".join(outcome.out.split())
    assert node_id[:21] in text
    assert "a1" in text


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        ({"nodes": 3}, "fastplan: nodes: expected list"),
        ({"nodes": [{"ID": "n1", "Status": 3}]}, "Status"),
        ({"nodes": [node(), node()]}, "n1"),
        ({"allocs": [alloc("a1", cpu_mhz="many")]}, "CpuShares"),
    ],
)
def test_bad_states_name_the_field(schedule, bad, named):
    outcome = schedule(bad, job())
    assert outcome.code == BAD_INPUT
    assert named in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_a_missing_extension_is_a_fault_of_the_environment(schedule, monkeypatch):
    def missing(*_):
        raise ModuleNotFoundError("No module named 'fastplan.state._rows'", name="fastplan.state._rows")

    monkeypatch.setattr("fastplan.cli.schedule.dry_run", missing)
    outcome = schedule(state(), job())
    assert outcome.code == ENVIRONMENT
    assert "make setup" in outcome.err


@pytest.mark.slow
def test_twenty_thousand_groups_end_in_seconds(schedule):
    started_s = time.monotonic()
    outcome = schedule(state(), job(*[group(f"g{number}") for number in range(20_000)]))
    assert time.monotonic() - started_s < 120
    assert outcome.code == DOES_NOT_FIT
    assert "… and 19976 more groups have no place for all of theirs; --json has their counts." in outcome.out
    assert len(outcome.out.splitlines()) < 400
