"""Whole replays: what comes out, again and again, with old snapshots, interrupted and gone on with."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from fastplan.errors import Corrupt, DirectoryInUse, InvalidInput, ReplicationError, StateError
from fastplan.planner import Rules
from fastplan.replay.audit import over_committed_nodes, restart_differences
from fastplan.replay.c2m import c2m
from fastplan.replay.cluster import Cluster, TraceClock, log_settings
from fastplan.replay.driver import START_NS, Driver
from fastplan.replay.nomad_bench import nomad_bench
from fastplan.replay.openb import read_openb
from fastplan.replay.report import TIMED_FIGURES, Figures
from fastplan.replay.session import ReplaySettings, replay
from fastplan.replication.local import LocalReplicator
from fastplan.state import StateStore
from fastplan.structs import Allocation
from tests.replay.traces import mixed_trace, node_line, pod_line, workload, write_trace
from tests.shared_data import IMPORT_ROOT, shared_path

OUTCOME = ("arrived", "placed", "ended", "waiting", "never_fitting", "reasons", "over_committed_nodes", "restart_equal", "stopped")


def outcome(figures: Figures):
    found = figures.to_json()
    return {key: found[key] for key in OUTCOME}


def log_entries(directory: Path) -> list[tuple[int, int, bytes, bytes]]:
    """Return every entry of a closed log."""
    found: list[tuple[int, int, bytes, bytes]] = []

    class Recorder:
        applied = 0

        def apply(self, batch):
            found.extend((index, term, bytes(entry), bytes(key)) for index, term, entry, key in batch)
            self.applied = batch[-1][0]
            return [None] * len(batch)

        def snapshot(self):
            raise AssertionError("too little for a snapshot")

        def restore(self, chunks):
            raise AssertionError("there is no snapshot")

    async def read():
        log = LocalReplicator(log_settings(directory, 0), Recorder())
        await log.start()
        await log.stop()

    asyncio.run(read())
    return found


def dump(directory: Path, seed: int = 0):
    async def read():
        cluster = Cluster(directory, rules=Rules.STRICT, clock=TraceClock(START_NS), seed=seed)
        await cluster.open()
        try:
            return cluster.state.to_dump()
        finally:
            await cluster.close()

    return asyncio.run(read())


@pytest.fixture
def mixed(tmp_path):
    return workload(tmp_path, *mixed_trace())


def test_a_mixed_trace_ends_in_order(mixed, tmp_path):
    figures = replay(mixed, ReplaySettings(workers=2, data_dir=tmp_path / "log"))
    found = figures.to_json()
    assert found["pods"] == found["arrived"] == found["placed"] + found["waiting"] + found["never_fitting"] == 82
    assert found["never_fitting"] == 2
    assert found["reasons"] == {"cpu": 1, "device": 1}
    assert found["waiting"] > 0
    assert found["ended"] == found["placed"] > 50
    assert (found["over_committed_nodes"], found["restart_equal"], found["stopped"], found["resumed"]) == (0, True, False, False)
    assert found["plans"] >= found["placed"]
    assert min(found[key] for key in ("syncs", "entries", "log_bytes", "wall_s", "plans_per_s", "placements_per_s", "peak_rss_bytes")) > 0
    assert 0 < found["commit_p50_ms"] <= found["commit_p99_ms"]

    state = dump(tmp_path / "log")
    stopped = {job["ID"] for job in state["jobs"] if bool(job.get("Stop"))}
    assert {"too-large", "no-such-gpu"} <= stopped
    ran = {alloc["JobID"] for alloc in state["allocs"]}
    assert not ran & stopped
    assert len(ran | stopped) == 82
    assert {alloc["ClientStatus"] for alloc in state["allocs"]} == {"complete"}
    # Nothing is left to be looked at.
    assert {evaluation["Status"] for evaluation in state["evals"]} <= {"complete", "canceled"}


def test_allocations_begin_and_end_in_the_time_of_the_trace(tmp_path):
    replay(workload(tmp_path, [node_line("n")], [pod_line("a", 10, 20), pod_line("b", 15, 30)]), ReplaySettings(workers=1, data_dir=tmp_path / "log"))
    times = {alloc["JobID"]: (alloc["CreateTime"], alloc["ModifyTime"]) for alloc in dump(tmp_path / "log")["allocs"]}
    assert {job: end - START_NS for job, (_, end) in times.items()} == {"a": 20 * 10**9, "b": 30 * 10**9}
    assert all(10 * 10**9 <= start - START_NS <= 15 * 10**9 for start, _ in times.values())


def test_one_worker_and_one_seed_give_the_same_bytes(mixed, tmp_path):
    runs = []
    for name in ("one", "two"):
        figures = replay(mixed, ReplaySettings(workers=1, stale=3, data_dir=tmp_path / name)).to_json()
        runs.append(({key: value for key, value in figures.items() if key not in TIMED_FIGURES}, log_entries(tmp_path / name), dump(tmp_path / name)))
    assert runs[0] == runs[1]
    assert len(runs[0][1]) > 200


def test_another_seed_gives_other_ids_and_the_same_end(tmp_path):
    trace = mixed_trace(50)
    first = replay(workload(tmp_path, *trace, seed=1), ReplaySettings(workers=1, seed=1, data_dir=tmp_path / "one"))
    second = replay(workload(tmp_path, *trace, seed=2), ReplaySettings(workers=1, seed=2, data_dir=tmp_path / "two"))
    assert (first.arrived, first.never_fitting) == (second.arrived, second.never_fitting)
    ids = [{alloc["ID"] for alloc in dump(tmp_path / name, seed)["allocs"]} for name, seed in (("one", 1), ("two", 2))]
    assert not ids[0] & ids[1]


def test_old_snapshots_are_refused_and_change_nothing_about_the_end(tmp_path):
    """There is room for all, so every worker count and every age of snapshots places all."""
    nodes = [node_line(f"n{number}", 16000, 65536, 4, "T4") for number in range(12)]
    pods = [pod_line(f"p{number:03d}", number // 4, number // 4 + 8, 2000, 2048, 1) for number in range(160)]
    crowded = workload(tmp_path, nodes, pods)
    fresh = replay(crowded, ReplaySettings(workers=1))
    for workers in (1, 4):
        stale = replay(crowded, ReplaySettings(workers=workers, stale=8))
        assert stale.refused_plans > 0
        assert outcome(stale) == outcome(fresh)
    assert fresh.refused_plans == 0
    assert fresh.placed == 160


def test_a_task_waits_until_room_is_made_and_the_oldest_goes_first(tmp_path):
    pods = [pod_line("long", 0, 50, 8000), pod_line("late", 10, 100, 8000), pod_line("later", 20, 90, 8000), pod_line("gone", 5, 40, 8000)]
    figures = replay(workload(tmp_path, [node_line("n", 8000)], pods), ReplaySettings(workers=1, data_dir=tmp_path / "log"))
    state = dump(tmp_path / "log")
    # "gone" gives up at 40, "late" follows "long" at 50, "later" gives up at 90.
    assert {alloc["JobID"]: alloc["CreateTime"] - START_NS for alloc in state["allocs"]} == {"long": 0, "late": 50 * 10**9}
    assert (figures.placed, figures.waiting, figures.ended) == (2, 2, 2)


@pytest.mark.parametrize("rules", Rules)
def test_both_rule_sets_come_to_a_good_end(mixed, rules):
    found = outcome(replay(mixed, ReplaySettings(workers=3, stale=4, rules=rules)))
    assert (found["over_committed_nodes"], found["restart_equal"], found["never_fitting"]) == (0, True, 2)


def test_c2m_is_one_plan_a_job():
    figures = replay(c2m(10, 5_500, seed=0), ReplaySettings(workers=1))
    assert (figures.placed, figures.plans, figures.waiting, figures.refused_plans) == (5_500, 6, 0, 0)
    found = figures.to_json()
    # The first blocks of the columns are shared by few here.
    assert 40 < found["bytes_per_alloc"] < 2_000
    # Six jobs and six evaluations of some kilobytes.
    assert 1 < found["record_bytes_per_alloc"] < 20
    assert (figures.over_committed_nodes, figures.restart_equal) == (0, True)


def test_c2m_fills_the_cluster_to_the_last_copy():
    """Ten nodes have room for 5 × 533 + 3 × 800 + 2 × 1,066 copies; the rest of one job waits, and others wait whole."""
    figures = replay(c2m(10, 9_000, seed=0), ReplaySettings(workers=3, stale=2))
    assert (figures.placed, figures.waiting) == (7_197, 1_803)
    assert (figures.over_committed_nodes, figures.restart_equal) == (0, True)


def test_services_come_and_go_one_after_the_other(tmp_path):
    figures = replay(nomad_bench(150, racks=5, rounds=1, spread=True, seed=0), ReplaySettings(data_dir=tmp_path / "log"))
    assert (figures.placed, figures.ended, figures.waiting, figures.over_committed_nodes, figures.restart_equal) == (3_050, 3_050, 0, 0, True)
    state = dump(tmp_path / "log")
    assert {job["Stop"] for job in state["jobs"]} == {True}
    assert {(alloc["DesiredStatus"], alloc["ClientStatus"]) for alloc in state["allocs"]} == {("stop", "complete")}
    racks = {node["ID"]: node["Meta"]["rack"] for node in state["nodes"]}
    counts = Counter(racks[alloc["NodeID"]] for alloc in state["allocs"] if alloc["JobID"] == "bench-000")
    assert set(counts.values()) == {10}


# --- stopped, and gone on with ----------------------------------------------------------------------------------------


def stop_after(monkeypatch, plans: int):
    """Have a replay stop once it has submitted so many plans."""
    note_plan, run = Figures.note_plan, Driver.run
    running: list[Driver] = []

    def counted(self, *arguments):
        note_plan(self, *arguments)
        if self.plans >= plans:
            running[-1].stop()

    async def noted(self):
        running.append(self)
        await run(self)

    monkeypatch.setattr(Figures, "note_plan", counted)
    monkeypatch.setattr(Driver, "run", noted)


@pytest.mark.parametrize("workers", [1, 3])
def test_a_replay_goes_on_where_its_log_ends(mixed, tmp_path, monkeypatch, workers):
    whole = replay(mixed, ReplaySettings(workers=1))
    settings = ReplaySettings(workers=workers, data_dir=tmp_path / "log", resume=True)
    placed_before = 0
    for plans in (1, 5, 17, 30, 1000):
        with monkeypatch.context() as patched:
            stop_after(patched, plans)
            figures = replay(mixed, settings)
        assert figures.placed_before == placed_before
        assert figures.placed >= placed_before
        assert (figures.over_committed_nodes, figures.restart_equal) == (0, True)
        placed_before = figures.placed
        if not figures.stopped:
            break
    assert not figures.stopped
    assert figures.arrived == whole.arrived
    assert figures.never_fitting == whole.never_fitting
    assert figures.placed + figures.waiting + figures.never_fitting == figures.arrived
    ran = [alloc["JobID"] for alloc in dump(tmp_path / "log")["allocs"]]
    assert len(ran) == len(set(ran)) == figures.placed


def test_a_finished_replay_has_nothing_left_to_do(mixed, tmp_path):
    first = replay(mixed, ReplaySettings(workers=2, data_dir=tmp_path / "log"))
    again = replay(mixed, ReplaySettings(workers=2, data_dir=tmp_path / "log", resume=True))
    assert again.plans == 0
    assert outcome(again) == outcome(first)


def test_half_a_job_is_gone_on_with(tmp_path, monkeypatch):
    """A job of 1,000 that found room for some of them only, and is then looked at again."""
    figures = replay(c2m(1, 1_500, seed=0), ReplaySettings(workers=1, data_dir=tmp_path / "log"))
    again = replay(c2m(1, 1_500, seed=0), ReplaySettings(workers=1, data_dir=tmp_path / "log", resume=True))
    assert outcome(again) == outcome(figures)
    assert figures.placed == 533


def test_what_a_broken_run_did_not_see_is_seen_in_the_allocations(tmp_path, monkeypatch):
    """ "late" is placed when "long" ends, and the run breaks before it has looked: it must not be given up at its end."""
    trace = workload(tmp_path, [node_line("n", 8000)], [pod_line("long", 0, 50, 8000), pod_line("late", 10, 100, 8000)])
    judge = Driver._judge

    async def broken(self, tasks):
        if self._figures.ended == 1:
            raise StateError("broken off")
        await judge(self, tasks)

    with monkeypatch.context() as patched:
        patched.setattr(Driver, "_judge", broken)
        with pytest.raises(StateError, match="broken off"):
            replay(trace, ReplaySettings(workers=1, data_dir=tmp_path / "log"))
    figures = replay(trace, ReplaySettings(workers=1, data_dir=tmp_path / "log", resume=True))
    assert (figures.placed, figures.placed_before, figures.ended, figures.waiting, figures.restart_equal) == (2, 2, 2, 0, True)
    assert {bool(job.get("Stop")) for job in dump(tmp_path / "log")["jobs"]} == {False}


def test_the_log_of_another_replay_is_refused(mixed, tmp_path):
    settings = ReplaySettings(workers=1, data_dir=tmp_path / "log", resume=True)
    replay(c2m(2, 10, seed=0), settings)
    with pytest.raises(InvalidInput, match="--data-dir: expected the log of a replay of this very workload"):
        replay(mixed, settings)
    with pytest.raises(InvalidInput, match="--data-dir"):
        replay(c2m(2, 11, seed=0), settings)
    assert replay(c2m(2, 10, seed=0), settings).placed == 10


def test_a_directory_that_holds_something_is_refused(mixed, tmp_path):
    used = tmp_path / "used"
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    with pytest.raises(InvalidInput, match="a new or an empty directory, or --resume"):
        replay(mixed, ReplaySettings(data_dir=used))
    with pytest.raises(Corrupt, match=r"notes\.txt"):
        replay(mixed, ReplaySettings(data_dir=used, resume=True))
    with pytest.raises(InvalidInput, match="expected a directory"):
        replay(mixed, ReplaySettings(data_dir=used / "notes.txt"))
    assert [path.name for path in used.iterdir()] == ["notes.txt"]


def test_a_second_replay_on_the_same_directory_is_refused(mixed, tmp_path):
    async def run():
        first = Cluster(tmp_path / "log", rules=Rules.STRICT, clock=TraceClock(0), seed=0)
        await first.open()
        try:
            with pytest.raises(DirectoryInUse):
                await Cluster(tmp_path / "log", rules=Rules.STRICT, clock=TraceClock(0), seed=0).open()
        finally:
            await first.close()

    asyncio.run(run())


@pytest.mark.parametrize("settings", [{"workers": 0}, {"workers": -1}, {"stale": 0}, {"resume": True}])
def test_settings_that_make_no_sense(settings):
    with pytest.raises(InvalidInput, match=f"--{next(iter(settings))}"):
        ReplaySettings(**settings)


def test_a_log_that_takes_no_more_ends_the_replay(mixed, monkeypatch):
    arrive = Driver._arrive

    async def fail(self, tasks):
        if self._figures.plans >= 10:
            await self._cluster._log.stop()
        await arrive(self, tasks)

    monkeypatch.setattr(Driver, "_arrive", fail)
    with pytest.raises(ReplicationError):
        replay(mixed, ReplaySettings(workers=2))


# --- the closing checks find what they are there for -------------------------------------------------------------------


def finished(tmp_path) -> Cluster:
    """Return a closed cluster with one node and two tasks that ran one after the other."""
    replay(workload(tmp_path, [node_line("n")], [pod_line("a", 0, 5, 6000), pod_line("b", 6, 9, 6000)]), ReplaySettings(data_dir=tmp_path / "log"))

    async def read():
        cluster = Cluster(tmp_path / "log", rules=Rules.STRICT, clock=TraceClock(0), seed=0)
        await cluster.open()
        await cluster.close()
        return cluster

    return asyncio.run(read())


def test_the_audit_sees_a_node_that_was_over_committed_for_a_moment(tmp_path):
    store = finished(tmp_path).state
    assert over_committed_nodes(store) == []
    (first, second) = sorted(store.allocs(), key=lambda alloc: alloc.create_index)
    # As if the first one had ended one index after the second began.
    store.update_allocs_from_client(second.create_index + 1, [Allocation(id=first.id, client_status="complete")])
    assert over_committed_nodes(store) == [first.node_id]


def test_the_audit_sees_what_is_held_twice_or_does_not_exist(tmp_path):
    """Amounts are fine; the second allocation is given the GPU of the first, then one that the node does not have, then a core."""
    trace = workload(tmp_path, [node_line("n", 64000, 262144, 2, "T4")], [pod_line("a", 0, 9, gpus=1), pod_line("b", 1, 8, gpus=1)])
    replay(trace, ReplaySettings(workers=1, data_dir=tmp_path / "log"))
    whole = dump(tmp_path / "log")
    for alloc in whole["allocs"]:
        alloc["ClientStatus"] = "running"
    device = whole["allocs"][1]["AllocatedResources"]["Tasks"]["task"]["Devices"][0]
    cpu = whole["allocs"][1]["AllocatedResources"]["Tasks"]["task"]["Cpu"]
    (other,) = whole["allocs"][0]["AllocatedResources"]["Tasks"]["task"]["Devices"][0]["DeviceIDs"]
    (own,) = device["DeviceIDs"]
    for ids, cores, wrong in (([own], [], False), ([other], [], True), (["none"], [], True), ([own], [0], True)):
        device["DeviceIDs"], cpu["ReservedCores"] = ids, cores
        assert over_committed_nodes(StateStore.from_dump(whole)) == ([trace.nodes[0].id] if wrong else [])


def test_the_comparison_names_the_table_that_differs(tmp_path):
    machine, other = finished(tmp_path).machine, finished_again(tmp_path)
    assert restart_differences(machine, other) == []
    store = other.store
    store.update_node_status(store.latest_index(), store.node_ids()[0], "down")
    assert restart_differences(machine, other) == ["nodes", "indexes"]
    alloc = store.allocs()[0]
    store.update_allocs_from_client(store.latest_index(), [Allocation(id=alloc.id, client_status="failed")])
    assert restart_differences(machine, other) == ["nodes", "indexes", "allocs"]
    store.delete_allocs(store.latest_index(), [alloc.id])
    assert restart_differences(machine, other) == ["nodes", "indexes", "allocs"]


def finished_again(tmp_path):
    async def read():
        cluster = Cluster(tmp_path / "log", rules=Rules.STRICT, clock=TraceClock(0), seed=0)
        await cluster.open()
        await cluster.close()
        return cluster.machine

    return asyncio.run(read())


def test_a_replay_runs_outside_of_the_main_thread(mixed):
    found = []
    thread = threading.Thread(target=lambda: found.append(replay(mixed, ReplaySettings(workers=2))))
    thread.start()
    thread.join()
    assert found[0].restart_equal


# --- signals ----------------------------------------------------------------------------------------------------------


def started(tmp_path, pods: int) -> subprocess.Popen[str]:
    """Return a replay of so many pods in a process of its own, some moments after it began to write."""
    nodes = [node_line(f"n{number}", 64000, 262144, 8, "T4") for number in range(20)]
    files = write_trace(tmp_path, nodes, [pod_line(f"p{number:05d}", number, number + 40, 2000, 2048, number % 2) for number in range(pods)])
    command = [sys.executable, "-m", "fastplan.cli", "replay", "openb", "--nodes", files[0], "--pods", files[1], "--data-dir", tmp_path / "log"]
    environment = {**os.environ, "PYTHONPATH": str(IMPORT_ROOT)}
    child = subprocess.Popen([*command, "--workers", "2"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    deadline_s = time.monotonic() + 60
    while not (tmp_path / "log" / "log.db-wal").exists() and child.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.02)
    time.sleep(0.3)
    return child


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_cleanly_and_nothing_acknowledged_is_lost(tmp_path, number):
    child = started(tmp_path, 20_000)
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (130, "")
    assert "openb, stopped early" in out
    table = dict(line.rsplit("  ", 1) for line in map(str.strip, out.splitlines()) if "  " in line)
    table = {what.strip(): how_much.strip() for what, how_much in table.items()}
    assert table["over-committed nodes"] == "0"
    assert table["state after restart equals state before"] == "yes"
    placed = int(table["placed"].replace(",", ""))
    assert 0 <= placed < 20_000
    assert len(dump(tmp_path / "log")["allocs"]) == placed


def test_a_killed_replay_is_gone_on_with(tmp_path):
    child = started(tmp_path, 400)
    child.kill()
    child.communicate(timeout=60)
    trace = read_openb(tmp_path / "nodes.csv", tmp_path / "pods.csv", seed=0)
    figures = replay(trace, ReplaySettings(workers=2, data_dir=tmp_path / "log", resume=True))
    assert outcome(figures) == {
        "arrived": 400,
        "placed": 400,
        "ended": 400,
        "waiting": 0,
        "never_fitting": 0,
        "reasons": {},
        "over_committed_nodes": 0,
        "restart_equal": True,
        "stopped": False,
    }
    ran = [alloc["JobID"] for alloc in dump(tmp_path / "log")["allocs"]]
    assert len(ran) == len(set(ran)) == 400


@pytest.mark.slow
@pytest.mark.parametrize("stale", [1, 8])
def test_the_recorded_trace_with_four_workers(stale):
    folder = shared_path("data", "openb")
    trace = read_openb(folder / "openb_node_list_all_node.csv", folder / "openb_pod_list_default.csv", seed=0)
    figures = replay(trace, ReplaySettings(workers=4, stale=stale))
    assert (figures.placed, figures.waiting, figures.never_fitting, figures.ended) == (8152, 0, 0, 8152)
    assert (figures.over_committed_nodes, figures.restart_equal) == (0, True)
    if stale > 1:
        assert figures.refused_plans > 0
