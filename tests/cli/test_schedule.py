"""`fastplan schedule`: placements, changes, and the reasons why something has no place; bad input."""

from __future__ import annotations

import pytest

from fastplan.cli import ALL_FITS, BAD_INPUT, DOES_NOT_FIT
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
