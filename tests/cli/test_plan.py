"""`fastplan plan` on accepted, refused and bad plans."""

import json

import pytest

from fastplan.cli import ALL_FITS, BAD_INPUT, DOES_NOT_FIT
from tests.cli.command_line import alloc, node

JOB = {"ID": "job", "Namespace": "default", "Type": "service", "Priority": 50, "TaskGroups": [{"Name": "web", "Count": 1, "Tasks": [{"Name": "server"}]}]}


def state(*allocs, **changes):
    """A cluster of the ready nodes n1 and n2."""
    return {"nodes": [node("n1"), node("n2")], "jobs": [JOB], "allocs": list(allocs), "indexes": {"nodes": 1001, "allocs": 1002}, **changes}


def plan(placements=(), stops=(), **changes):
    """A plan that places and stops allocations, each on the node that it names."""
    parts: dict[str, dict[str, list[object]]] = {"NodeAllocation": {}, "NodeUpdate": {}}
    for part, allocs in (("NodeAllocation", placements), ("NodeUpdate", stops)):
        for entry in allocs:
            parts[part].setdefault(entry["NodeID"], []).append(entry)
    return {"EvalID": "e1", "Priority": 50, "Job": JOB, **parts, **changes}


@pytest.fixture
def evaluate(fastplan, write):
    """Runs the command on Python values, `evaluate(state, plan, *options)`."""

    def evaluate(state, plan, *options):
        return fastplan("plan", write("state.json", state), write("plan.json", plan), *options)

    return evaluate


def test_a_plan_that_fits(evaluate):
    outcome = evaluate(state(), plan([alloc("b1"), alloc("b2", "n2")]))
    assert (outcome.code, outcome.err) == (ALL_FITS, "")
    assert "2 of 2 placements accepted, 0 of 2 nodes refused." in outcome.out


def test_an_empty_plan_fits(evaluate):
    outcome = evaluate(state(), plan(), "--json")
    assert outcome.code == ALL_FITS
    assert (outcome.json["expected"], outcome.json["placed"], outcome.json["refused"]) == (0, 0, {})


def test_a_refused_node_is_named_with_its_reason(evaluate):
    arguments = state(alloc("a1", cpu_mhz=3500)), plan([alloc("b1"), alloc("b2", "n2")])
    outcome = evaluate(*arguments, "--json")
    assert outcome.code == DOES_NOT_FIT
    answer = outcome.json
    assert (answer["fits"], answer["error"], answer["expected"], answer["placed"]) == (False, "", 2, 1)
    assert answer["refused"] == {"n1": "cpu"}
    assert answer["result"]["RejectedNodes"] == ["n1"]
    assert answer["result"]["RefreshIndex"] == 1002
    assert list(answer["result"]["NodeAllocation"]) == ["n2"]
    text = evaluate(*arguments).out
    assert "1 of 2 placements accepted, 1 of 2 nodes refused; refresh to index 1002." in text


def test_stops_of_the_plan_make_room(evaluate):
    old = alloc("a1", cpu_mhz=3500)
    assert evaluate(state(old), plan([alloc("b1")])).code == DOES_NOT_FIT
    assert evaluate(state(old), plan([alloc("b1")], [{**old, "DesiredStatus": "stop"}])).code == ALL_FITS


def test_a_missing_node_is_a_refusal(evaluate):
    outcome = evaluate(state(), plan([alloc("b1", "gone")]), "--json")
    assert (outcome.code, outcome.err) == (DOES_NOT_FIT, "")
    assert outcome.json["refused"] == {"gone": "node does not exist"}


def test_all_at_once_refuses_the_whole(evaluate):
    outcome = evaluate(state(alloc("a1", cpu_mhz=3500)), plan([alloc("b1"), alloc("b2", "n2")], AllAtOnce=True), "--json")
    assert outcome.code == DOES_NOT_FIT
    assert outcome.json["placed"] == 0


def test_the_rules_decide_what_a_full_node_means(evaluate):
    """Under Nomad's rules the maximum of allocations makes the whole plan an error (plan-apply 11, trap 1)."""
    full = state(alloc("a1"), nodes=[node("n1", NodeMaxAllocs=1), node("n2")])
    proposed = plan([alloc("b1"), alloc("b2", "n2")])
    strict = evaluate(full, proposed, "--json")
    assert (strict.code, strict.json["refused"], strict.json["placed"]) == (DOES_NOT_FIT, {"n1": "max allocation exceeded"}, 1)
    nomad = evaluate(full, proposed, "--rules", "nomad", "--json")
    assert (nomad.code, nomad.json["result"]) == (DOES_NOT_FIT, None)
    assert "plan exceeds max allocation" in nomad.json["error"]
    assert "The whole plan is an error: " in evaluate(full, proposed, "--rules", "nomad").out


def test_what_the_dump_cannot_decide_is_said(evaluate):
    outcome = evaluate(state(alloc("a1", "gone")), plan(), "--json")
    assert any("gone" in fact for fact in outcome.json["undecided"])
    assert "What this input cannot decide:" in evaluate(state(alloc("a1", "gone")), plan()).out


def test_a_folder_is_a_state(fastplan, write, tmp_path):
    write("nodes.json", [node()])
    write("allocs.json", [alloc("a1", cpu_mhz=3500)])
    (tmp_path / "plans").mkdir()
    proposed = write("plans/plan.json", plan([alloc("b1")]))
    outcome = fastplan("plan", tmp_path, proposed, "--json")
    assert outcome.json["refused"] == {"n1": "cpu"}


def test_stdin(fastplan, write):
    assert fastplan("plan", "-", write("plan.json", plan([alloc("b1")])), stdin=json.dumps(state())).code == ALL_FITS
    assert fastplan("plan", write("state.json", state()), "-", stdin=json.dumps(plan([alloc("b1")]))).code == ALL_FITS
    assert fastplan("plan", "-", "-").code == BAD_INPUT


BAD_STATES = {
    "no text": ("", "state: expected JSON"),
    "malformed": ("{", "state (line 1, column 2): expected JSON"),
    "a list": ([], "state: expected an object"),
    "unknown key": ({"node": []}, "node: expected one of the keys"),
    "an object for a list": ({"nodes": {}}, "nodes: expected list"),
    "a node twice": (state(nodes=[node(), node()]), "nodes[1].ID: expected an id that occurs once in nodes"),
    "an allocation twice": (state(alloc("a1"), alloc("a1")), "allocs[1].ID: expected an id that occurs once in allocs"),
    "text for a number": (state(alloc("a1", cpu_mhz="12")), 'allocs[0].AllocatedResources.Tasks.server.Cpu.CpuShares: expected integer ≥ 0, got "12"'),
    "beyond 64 bits": (state(alloc("a1", cpu_mhz=2**64)), "allocs[0].AllocatedResources.Tasks.server.Cpu.CpuShares: expected integer within signed 64 bits"),
    "NaN": ('{"indexes": {"nodes": NaN}}', "state.indexes.nodes: expected a finite number"),
    "an index below zero": ({"indexes": {"nodes": -1}}, "indexes.nodes: expected integer ≥ 0, got -1"),
}

BAD_PLANS = {
    "no text": ("", "plan: expected JSON"),
    "malformed": ('{"EvalID"}', "plan (line 1, column 10): expected JSON"),
    "a list": ([], "plan: expected"),
    "a list for a map": ({"NodeAllocation": []}, "plan.NodeAllocation: expected"),
    "text for a number": (plan([alloc("b1", cpu_mhz="1")]), "plan.NodeAllocation.n1[0].AllocatedResources.Tasks.server.Cpu.CpuShares: expected integer"),
    "beyond 64 bits": ({"Priority": 2**63}, "plan.Priority: expected integer within signed 64 bits"),
    "NaN": ('{"Priority": NaN}', "plan.Priority: expected a finite number"),
}


@pytest.mark.parametrize("name", BAD_STATES)
def test_a_bad_state_is_named(evaluate, name):
    content, message = BAD_STATES[name]
    outcome = evaluate(content, plan())
    assert (outcome.code, outcome.out) == (BAD_INPUT, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("name", BAD_PLANS)
def test_a_bad_plan_is_named(evaluate, name):
    content, message = BAD_PLANS[name]
    outcome = evaluate(state(), content)
    assert (outcome.code, outcome.out) == (BAD_INPUT, "")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


def test_an_unknown_stop_fails_the_plan(evaluate):
    outcome = evaluate(state(), plan(stops=[alloc("unknown")]), "--json")
    assert outcome.code == DOES_NOT_FIT
    assert "unknown" in outcome.json["error"]


def test_files_that_cannot_be_read(fastplan, write, tmp_path):
    good = write("plan.json", plan())
    missing = fastplan("plan", tmp_path / "nothing.json", good)
    assert missing.code == BAD_INPUT
    assert "state: expected a JSON file that can be read (No such file or directory)" in missing.err
    folder = fastplan("plan", write("state.json", state()), tmp_path)
    assert folder.code == BAD_INPUT
    assert "plan: expected a JSON file that can be read (Is a directory)" in folder.err
    (tmp_path / "empty").mkdir()
    assert fastplan("plan", tmp_path / "empty", good).code == BAD_INPUT
