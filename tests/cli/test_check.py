"""`fastplan check` on good, overfull and bad input."""

import json

import pytest

from fastplan.cli import ALL_FITS, BAD_INPUT, DOES_NOT_FIT
from tests.cli.command_line import alloc, node


@pytest.fixture
def check(fastplan, write):
    """Runs the command on Python values, `check(nodes, allocs, new)`."""

    def check(nodes, allocs, new=None, *options):
        added = [] if new is None else ["--add", write("new.json", new)]
        return fastplan("check", write("nodes.json", nodes), write("allocs.json", allocs), *added, *options)

    return check


def test_everything_fits(check):
    outcome = check([node("n1"), node("n2")], [alloc("a1"), alloc("a2", "n2")])
    assert (outcome.code, outcome.err) == (ALL_FITS, "")
    assert "2 of 2 nodes fit." in outcome.out
    assert "1000 / 4000" in outcome.out


def test_one_object_stands_for_a_list_of_one(check):
    outcome = check(node(), alloc("a1"), None, "--json")
    assert outcome.code == ALL_FITS
    assert outcome.json["nodes"][0]["allocs"] == ["a1"]


def test_an_overfull_node_names_its_first_reason(check):
    outcome = check([node()], [alloc("a1", cpu_mhz=3000), alloc("a2", cpu_mhz=1001)])
    assert outcome.code == DOES_NOT_FIT
    assert "cpu" in outcome.out
    assert "0 of 1 nodes fit.\n" in outcome.out


def test_new_allocations_are_checked_beside_the_old_ones(check):
    outcome = check([node("n1"), node("n2")], [alloc("a1", cpu_mhz=3000)], [alloc("b1", cpu_mhz=1500), alloc("b2", "n2")], "--json")
    assert outcome.code == DOES_NOT_FIT
    first, second = outcome.json["nodes"]
    assert (first["fits"], first["reason"], first["allocs"], first["new_allocs"]) == (False, "cpu", ["a1"], ["b1"])
    assert first["used"]["cpu_mhz"] == 4500
    assert first["supply"]["cpu_mhz"] == 4000
    (lack,) = first["failing"]
    assert (lack["alloc_id"], lack["dimension"], lack["asked"], lack["free"], lack["missing"]) == ("b1", "cpu", 1500, 1000, 500)
    assert (second["fits"], second["failing"]) == (True, [])


def test_the_holder_of_a_port_is_named(check):
    outcome = check([node()], [alloc("a1", port=8080)], [alloc("b1", port=8080)], "--json")
    (lack,) = outcome.json["nodes"][0]["failing"]
    assert (lack["dimension"], lack["subject"], lack["held_by"]) == ("port", "10.0.0.1:8080", ["a1"])
    text = check([node()], [alloc("a1", port=8080)], [alloc("b1", port=8080)]).out
    assert "10.0.0.1:8080" in text
    assert "0 of 1 nodes fit. Without what is new: 1; because of it 1 no longer fit." in text


def test_a_new_allocation_replaces_the_one_with_its_id(check):
    assert check([node()], [alloc("a1", cpu_mhz=3000)], [alloc("a1", cpu_mhz=4000)]).code == ALL_FITS
    moved = check([node("n1"), node("n2")], [alloc("a1", "n1", cpu_mhz=4500)], [alloc("a1", "n2")], "--json")
    assert moved.code == ALL_FITS
    assert [entry["allocs"] + entry["new_allocs"] for entry in moved.json["nodes"]] == [[], ["a1"]]


@pytest.mark.parametrize("status", ["complete", "failed", "lost"])
def test_what_has_ended_holds_nothing(check, status):
    assert check([node()], [alloc("a1", cpu_mhz=9000, ClientStatus=status)]).code == ALL_FITS


def test_what_was_told_to_stop_and_still_runs_counts(check):
    assert check([node()], [alloc("a1", cpu_mhz=4001, DesiredStatus="stop")]).code == DOES_NOT_FIT


def test_what_has_ended_does_not_count_for_the_maximum(check):
    ended = [alloc(f"a{number}", ClientStatus="complete") for number in range(5)]
    assert check([node(NodeMaxAllocs=1)], [*ended, alloc("b1")]).code == ALL_FITS
    assert check([node(NodeMaxAllocs=1)], [alloc("b1"), alloc("b2")]).code == DOES_NOT_FIT


def test_a_missing_node_is_a_refusal(check):
    outcome = check([node()], [alloc("a1", "gone")], [alloc("b1", "gone-too")], "--json")
    assert (outcome.code, outcome.err) == (DOES_NOT_FIT, "")
    assert outcome.json["missing_nodes"] == [
        {"node_id": "gone", "reason": "node does not exist", "allocs": ["a1"]},
        {"node_id": "gone-too", "reason": "node does not exist", "allocs": ["b1"]},
    ]
    text = check([node()], [alloc("a1", "gone")]).out
    assert "node does not exist" in text
    assert "Named and not there: 1." in text


def test_an_ended_allocation_of_a_missing_node_is_history(check):
    assert check([node()], [alloc("a1", "gone", ClientStatus="complete")]).code == ALL_FITS


def test_no_nodes_and_no_allocations_fit(check):
    outcome = check([], [])
    assert outcome.code == ALL_FITS
    assert "0 of 0 nodes fit." in outcome.out


def test_of_many_nodes_only_those_that_do_not_fit_are_shown(check):
    outcome = check([node(f"n{number}") for number in range(100)], [alloc("a1", "n77", cpu_mhz=5000)])
    assert "name-n77" in outcome.out
    assert "name-n76" not in outcome.out
    assert "99 of 100 nodes fit" in outcome.out


def test_markup_in_names_is_text(check):
    assert "[red]n1[/red]" in check([node("[red]n1[/red]", Name="")], [alloc("a1", "[red]n1[/red]")]).out


def test_stdin(fastplan, write):
    outcome = fastplan("check", "-", write("allocs.json", []), stdin=json.dumps([node()]))
    assert outcome.code == ALL_FITS
    outcome = fastplan("check", "-", "-", stdin="[]")
    assert outcome.code == BAD_INPUT
    assert "only one input can be -" in outcome.err


def deep(depth):
    return "[" * depth + "]" * depth


BAD_ALLOCS = {
    "no text": ("", 'fastplan: allocs: expected JSON, got ""'),
    "white space": (" \n", 'fastplan: allocs: expected JSON, got ""'),
    "cut off": ('[{"ID": "a1"', "allocs (line 1, column 13): expected JSON"),
    "foreign": ("<html>", "allocs (line 1, column 1): expected JSON"),
    "no comma": ("[\n  {} {}\n]", "allocs (line 2, column 6): expected JSON"),
    "not UTF-8": (b'[{"ID": "\xff"}]', "allocs: expected UTF-8 text"),
    "nested too deeply": (deep(100_000), "allocs: expected JSON that is nested less deeply"),
    "NaN": ('[{"ID": "a1", "CreateIndex": NaN}]', "allocs[0].CreateIndex: expected a finite number"),
    "infinite": ('[{"ID": "a1", "X": {"Y": [1, 1e999]}}]', "allocs[0].X.Y[1]: expected a finite number, got inf"),
    "a number": ("7", "alloc: expected"),
    "null": ("null", "alloc: expected"),
    "a list of numbers": ("[7]", "allocs[0]: expected"),
    "no ID": ([{"NodeID": "n1"}], "allocs[0].ID: expected an ID"),
    "an ID that is a number": ([{"ID": 5}], "allocs[0].ID: expected text, got 5"),
    "an ID twice": ([alloc("a1"), alloc("a2"), alloc("a1")], 'allocs[2].ID: expected an ID that allocs[0] does not have, got "a1"'),
    "text for a number": ([alloc("a1", cpu_mhz="12")], 'allocs[0].AllocatedResources.Tasks.server.Cpu.CpuShares: expected integer ≥ 0, got "12"'),
    "beyond 64 bits": ([alloc("a1", cpu_mhz=2**63)], "allocs[0].AllocatedResources.Tasks.server.Cpu.CpuShares: expected integer within signed 64 bits"),
    "far beyond 64 bits": ([alloc("a1", memory_mib=10**400)], "allocs[0].AllocatedResources.Tasks.server.Memory.MemoryMB: expected integer within"),
    "a fraction": ([alloc("a1", cpu_mhz=1.5)], "CpuShares: expected integer ≥ 0, got 1.5"),
    "a list for an object": ([{"ID": "a1", "AllocatedResources": []}], "allocs[0].AllocatedResources: expected"),
}


@pytest.mark.parametrize("name", BAD_ALLOCS)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_bad_input_names_the_field(check, name, options):
    content, message = BAD_ALLOCS[name]
    outcome = check([node()], content, None, *options)
    assert outcome.code == BAD_INPUT
    assert outcome.out == ""
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert len(outcome.err) < 400


@pytest.mark.parametrize(("nodes", "message"), [([node(), node()], 'nodes[1].ID: expected an ID that nodes[0] does not have, got "n1"'), ([{}], "nodes[0].ID")])
def test_bad_nodes(check, nodes, message):
    outcome = check(nodes, [])
    assert outcome.code == BAD_INPUT
    assert message in outcome.err


def test_a_node_without_resources_cannot_be_judged(check):
    outcome = check([node(), {"ID": "n2"}], [alloc("a1", "n2")])
    assert outcome.code == BAD_INPUT
    assert "nodes[1].NodeResources: expected an object, got null" in outcome.err


def test_bad_new_allocations_are_named_as_such(check):
    assert "new[0].ID: expected an ID" in check([node()], [], [{}]).err


def test_a_file_that_is_not_there(fastplan, write, tmp_path):
    outcome = fastplan("check", tmp_path / "nodes.json", write("allocs.json", []))
    assert outcome.code == BAD_INPUT
    assert outcome.err.startswith("fastplan: nodes: expected a JSON file that can be read (No such file or directory), got ")


def test_a_folder_is_no_file(fastplan, write, tmp_path):
    outcome = fastplan("check", write("nodes.json", []), tmp_path)
    assert outcome.code == BAD_INPUT
    assert "allocs: expected a JSON file that can be read (Is a directory)" in outcome.err


def test_a_name_with_a_zero_byte_is_no_file(fastplan, write):
    outcome = fastplan("check", write("nodes.json", []), "a\0b")
    assert outcome.code == BAD_INPUT
    assert "allocs: expected" in outcome.err


def test_what_the_source_leaves_open_is_said(check):
    outcome = check([node()], [alloc("a1")], None, "--json")
    assert any("came without topology" in fact for fact in outcome.json["undecided"])
    assert "What this input cannot decide:" in check([node()], [alloc("a1")]).out
