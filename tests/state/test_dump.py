"""Dumps: what is read, what is refused and where, what is left open, and that writing one and reading it back changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fastplan.errors import InvalidInput
from fastplan.state import StateStore
from fastplan.state.dump import DUMP_KEYS
from fastplan.structs import Job, Node
from tests.state.clusters import alloc_api, job_api, node_api, resources_api, uuid

NODE, OTHER = uuid(1), uuid(2)
ALLOC = uuid(100)


def full_dump() -> dict[str, Any]:
    """Return a dump with something under every key."""
    return {
        "nodes": [node_api(NODE, CreateIndex=5, ModifyIndex=9, Unknown={"kept": [1, None]})],
        "node_pools": [{"Name": "gpu", "Description": "with GPUs"}],
        "namespaces": [{"Name": "team", "Meta": {"a": "b"}}],
        "jobs": [job_api("job", version=2, ModifyIndex=7)],
        "job_versions": [job_api("job", version=1), job_api("job", version=2, ModifyIndex=7)],
        "allocs": [
            alloc_api(ALLOC, NODE, eval_id=uuid(900), JobVersion=1, CreateIndex=6, ModifyIndex=8, CreateTime=123, TaskStates={"web": {"State": "running"}}),
            alloc_api(uuid(101), NODE, Job=job_api("job", version=7), ClientStatus="complete", AllocatedResources=resources_api(ports=(8000,))),
            alloc_api("an odd id", OTHER, job_id="gone", DesiredStatus="stop", DesiredDescription="why", AllocStates=[{"Field": 0, "Value": "unknown"}]),
        ],
        "evals": [{"ID": uuid(900), "Namespace": "default", "JobID": "job", "Status": "complete", "ModifyIndex": 8}],
        "deployments": [{"ID": uuid(950), "Namespace": "default", "JobID": "job", "Status": "running", "ModifyIndex": 4}],
        "scheduler_config": {"PreemptionConfig": {"SystemSchedulerEnabled": True}},
        "indexes": {"nodes": 1001, "allocs": 1002},
    }


def test_reading_back_what_was_written_changes_nothing() -> None:
    store = StateStore.from_dump(full_dump())
    dump = store.to_dump()
    twin = StateStore.from_dump(dump)
    assert twin.to_dump() == dump
    assert json.loads(json.dumps(dump)) == dump
    assert twin.latest_index() == store.latest_index() == 1002


def test_a_dump_is_neither_changed_nor_kept() -> None:
    dump = full_dump()
    store = StateStore.from_dump(dump)
    assert dump == full_dump()
    before = store.to_dump()
    dump["nodes"][0]["Unknown"]["kept"].append(2)
    dump["scheduler_config"]["PreemptionConfig"]["SystemSchedulerEnabled"] = False
    assert store.to_dump() == before


def test_records_come_out_as_they_went_in() -> None:
    store = StateStore.from_dump(full_dump())
    given = full_dump()
    node = store.node(NODE)
    assert node is not None
    assert node.to_api()["Unknown"] == {"kept": [1, None]}
    assert node.scheduling_eligibility == "eligible"
    alloc = store.alloc(ALLOC)
    assert alloc is not None
    assert alloc.job is not None
    assert alloc.job.version == 1
    assert {key: value for key, value in alloc.to_api().items() if key in given["allocs"][0]} == given["allocs"][0]
    embedded = store.alloc(uuid(101))
    assert embedded is not None
    assert embedded.job is not None
    assert embedded.job.version == 7
    assert store.job("default", "job", 7) is None
    assert [job.version for job in store.job_versions("default", "job")] == [2, 1]
    orphan = store.alloc("an odd id")
    assert orphan is not None
    assert orphan.job is None
    assert [state.value for state in orphan.alloc_states if state is not None] == ["unknown"]


def test_indexes_are_those_given_else_the_largest_modify_index() -> None:
    store = StateStore.from_dump(full_dump())
    assert {table: store.table_index(table) for table in ("nodes", "jobs", "allocs", "evals", "deployments", "node_pools")} == {
        "nodes": 1001,
        "jobs": 7,
        "allocs": 1002,
        "evals": 8,
        "deployments": 4,
        "node_pools": 0,
    }


def test_an_empty_dump_is_an_empty_store() -> None:
    tables = [key for key in DUMP_KEYS if key not in ("scheduler_config", "indexes")]
    dumps: list[dict[str, Any]] = [{}, dict.fromkeys(DUMP_KEYS), {key: [] for key in tables}]
    for dump in dumps:
        store = StateStore.from_dump(dump)
        assert store.latest_index() == 0
        assert [namespace["Name"] for namespace in store.namespaces()] == ["default"]
        assert store.nodes() == store.allocs() == store.jobs() == store.undecided == []


# --- files ----------------------------------------------------------------------------------------------------------


def test_a_file_and_a_folder_say_the_same_as_the_mapping(tmp_path: Path) -> None:
    (tmp_path / "all.json").write_text(json.dumps(full_dump()))
    folder = tmp_path / "dump"
    folder.mkdir()
    for key, value in full_dump().items():
        (folder / f"{key}.json").write_text(json.dumps(value))
    (folder / "README.md").write_text("not a table")
    expected = StateStore.from_dump(full_dump()).to_dump()
    assert StateStore.from_dump(tmp_path / "all.json").to_dump() == expected
    assert StateStore.from_dump(str(folder)).to_dump() == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"nodes": [',
        "",
        "[1, 2",
        '{"nodes": [{"ID": "a", "NodeMaxAllocs": NaN}]}',
        '{"nodes": [{"ID": "a", "Meta": {"a": 1e999}}]}',
        "\ufeff{}x",
        '{"nodes": "\\ud800"}',
    ],
)
def test_malformed_files_are_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(InvalidInput) as problem:
        StateStore.from_dump(path)
    assert str(path) in problem.value.path


def test_a_truncated_table_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps([node_api(NODE)])[:-30])
    with pytest.raises(InvalidInput, match=r"nodes\.json"):
        StateStore.from_dump(tmp_path)


def test_what_is_wrong_in_a_file_is_named_with_file_and_path(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(json.dumps([node_api(NODE), {**node_api(OTHER), "NodeMaxAllocs": "12"}]))
    with pytest.raises(InvalidInput) as problem:
        StateStore.from_dump(tmp_path)
    assert problem.value.path == f"{tmp_path / 'nodes.json'}: nodes[1].NodeMaxAllocs"
    assert problem.value.value == "12"


@pytest.mark.parametrize("name", ["missing", "empty", "foreign"])
def test_folders_that_are_no_dump_are_refused(tmp_path: Path, name: str) -> None:
    if name != "missing":
        (tmp_path / name).mkdir()
    if name == "foreign":
        (tmp_path / name / "package.json").write_text("{}")
    with pytest.raises(InvalidInput, match=name):
        StateStore.from_dump(tmp_path / name)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dump", "path"),
    [
        ({"node": []}, "node"),
        ({1: []}, "dump"),
        (None, "dump"),
        ("\0", "dump"),
        ("\ud800", "dump"),
        ([], "dump"),
        (b"nodes", "dump"),
        ({"allocs": [{"ID": "a", "CreateIndex": -1}]}, "allocs[0].CreateIndex"),
        ({"allocs": [{"ID": "a", "ModifyIndex": -1}]}, "allocs[0].ModifyIndex"),
        ({"allocs": [{"ID": "a", "AllocModifyIndex": -1}]}, "allocs[0].AllocModifyIndex"),
        ("no such file", "no such file"),
        ({"nodes": {}}, "nodes"),
        ({"nodes": [[]]}, "nodes[0]"),
        ({"nodes": [None]}, "nodes[0]"),
        ({"nodes": [{}]}, "nodes[0].ID"),
        ({"nodes": [{"ID": "a"}, {"ID": "b"}, {"ID": "a"}]}, "nodes[2].ID"),
        ({"nodes": [{"ID": "a", "NodeMaxAllocs": 2**64}]}, "nodes[0].NodeMaxAllocs"),
        ({"nodes": [{"ID": "a", "NodeMaxAllocs": True}]}, "nodes[0].NodeMaxAllocs"),
        ({"nodes": [{"ID": "a", "Anything": float("nan")}]}, "nodes[0].Anything"),
        ({"allocs": [{"ID": "a"}, {"ID": "a"}]}, "allocs[1].ID"),
        ({"allocs": [{"ID": "a", "AllocatedResources": {"Shared": {"DiskMB": 1.5}}}]}, "allocs[0].AllocatedResources.Shared.DiskMB"),
        ({"jobs": [{"ID": "a"}, {"ID": "a", "Namespace": "default"}]}, "jobs[1].ID"),
        ({"job_versions": [{"ID": "a", "Version": 1}, {"ID": "a", "Version": 1}]}, "job_versions[1].ID"),
        ({"evals": [{"ID": "a"}, {"ID": "a"}]}, "evals[1].ID"),
        ({"deployments": [{"ID": "a"}, {"ID": "a"}]}, "deployments[1].ID"),
        ({"node_pools": [{"Name": ""}]}, "node_pools[0].Name"),
        ({"namespaces": [{"Name": "a"}, {"Name": "a"}]}, "namespaces[1].Name"),
        ({"scheduler_config": []}, "scheduler_config"),
        ({"scheduler_config": {"A": float("inf")}}, "scheduler_config.A"),
        ({"indexes": [1]}, "indexes"),
        ({"indexes": {"nodes": -1}}, "indexes.nodes"),
        ({"indexes": {"nodes": 1.0}}, "indexes.nodes"),
        ({"indexes": {"nodes": 2**63}}, "indexes.nodes"),
    ],
)
def test_bad_dumps_are_refused_with_the_place(dump: Any, path: str) -> None:
    with pytest.raises(InvalidInput) as problem:
        StateStore.from_dump(dump)
    assert problem.value.path == path


@pytest.mark.parametrize("text", ["[]", "null", "12", '"nodes"'])
def test_the_top_of_a_file_must_be_an_object(tmp_path: Path, text: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(text)
    with pytest.raises(InvalidInput) as problem:
        StateStore.from_dump(path)
    assert problem.value.path == f"{path}: dump"


def test_jobs_of_two_namespaces_may_have_one_id() -> None:
    store = StateStore.from_dump({"jobs": [job_api("a"), {**job_api("a"), "Namespace": "team"}]})
    assert [job.namespace for job in store.jobs()] == ["default", "team"]


# --- what is left open ----------------------------------------------------------------------------------------------


def test_a_complete_dump_leaves_nothing_open() -> None:
    dump = full_dump()
    dump["allocs"].pop()
    assert StateStore.from_dump(dump).undecided == []


def test_missing_nodes_and_jobs_are_listed() -> None:
    assert StateStore.from_dump(full_dump()).undecided == [
        f"allocation an odd id: node {OTHER} is not in the dump, usage is counted once it appears",
        "allocation an odd id: job default/gone is not in the dump, volume claims are not known",
    ]


def test_a_missing_version_is_listed() -> None:
    undecided = StateStore.from_dump(
        {"nodes": [node_api(NODE)], "jobs": [job_api("job", version=2)], "allocs": [alloc_api(ALLOC, NODE, JobVersion=1)]}
    ).undecided
    assert undecided == [f"allocation {ALLOC}: job default/job version 1 is not in the dump, volume claims are not known"]


def test_what_lossy_sources_cannot_say_is_listed_once_for_all_that_it_concerns() -> None:
    nodes = [{"ID": f"n{i}", "Drain": False, "NodeResources": {"Cpu": {"CpuShares": 100, "TotalCpuCores": 1}}} for i in range(2)]
    allocs = [{"ID": f"a{i}", "NodeID": "n0", "JobID": "job", "AllocatedResources": {"Shared": {"DiskMB": 1}}} for i in range(3)]
    allocs.append({"ID": "stub", "NodeID": "n1", "JobID": "job", "ClientStatus": "running"})
    assert StateStore.from_dump({"nodes": nodes, "jobs": [job_api("job")], "allocs": allocs}).undecided == [
        "2 nodes, n0 the first: came from a list, whether the number of allocations is limited is not known",
        "2 nodes, n0 the first: came without topology, cores are made up from the CPU block, so core ids may differ",
        "3 allocations, a0 the first: came without TaskLifecycles, demand is summed over all tasks, so cpu and memory may be judged too strictly",
        "allocation stub: came without resources, no check of its node is possible",
    ]


def test_usage_on_a_missing_node_counts_once_the_node_appears() -> None:
    store = StateStore.from_dump({"allocs": [alloc_api(ALLOC, NODE), alloc_api(uuid(101), NODE, ClientStatus="lost")]})
    assert store.node_used(NODE) is None
    assert [alloc.id for alloc in store.allocs_by_node(NODE)] == [ALLOC, uuid(101)]
    store.upsert_node(5, Node.from_api(node_api(NODE)))
    assert store.node_used(NODE) == (100, 64, 10, 1)


def test_a_node_of_the_layout_before_the_split_keeps_its_reserved_ports() -> None:
    node = {
        "ID": NODE,
        "Status": "ready",
        "Resources": {"CPU": 1000, "MemoryMB": 1000, "DiskMB": 1000},
        "Reserved": {"CPU": 100, "Networks": [{"IP": "10.0.0.1", "ReservedPorts": [{"Label": "ssh", "Value": 22}]}]},
    }
    store = StateStore.from_dump({"nodes": [node]})
    twin = StateStore.from_dump(store.to_dump())
    third = StateStore.load(store.snapshot().save())
    for each in (store, twin, third):
        found = each.node(NODE)
        assert found is not None
        assert [network.ip for network in found.legacy_reserved_networks if network is not None] == ["10.0.0.1"]
        assert each.nodes_view.row(0)["cpu_mhz"] == 900


def test_an_allocation_without_a_job_stays_without_one() -> None:
    store = StateStore.from_dump({"nodes": [node_api(NODE)], "allocs": [alloc_api(ALLOC, NODE)]})
    store.upsert_job(9, Job.from_api(job_api("job")))
    twin = StateStore.from_dump(store.to_dump())
    for each in (store, twin):
        alloc = each.alloc(ALLOC)
        assert alloc is not None
        assert alloc.job is None
    assert twin.to_dump() == store.to_dump()
