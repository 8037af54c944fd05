"""`fastplan replay`: the table, the object, exit codes and one clear line for every fault."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from fastplan.errors import StorageFailed
from fastplan.replay import session
from fastplan.replay.report import TIMED_FIGURES
from fastplan.server import Server
from tests.replay.traces import mixed_trace, node_line, pod_line, write_trace
from tests.shared_data import IMPORT_ROOT, PROJECT

KEYS = [
    "nodes",
    "pods",
    "placed",
    "waiting",
    "never_fitting",
    "reasons",
    "plans",
    "refused_plans",
    "over_committed_nodes",
    "restart_equal",
    "wall_s",
    "plans_per_s",
    "placements_per_s",
    "commit_p50_ms",
    "commit_p99_ms",
    "syncs",
    "log_bytes",
    "bytes_per_alloc",
    "peak_rss_bytes",
]

NODES = [node_line("n1", 8000, 32768), node_line("n2", 16000, 65536, 2, "T4")]
PODS = [pod_line("p1", 0, 10), pod_line("p2", 5, 20, gpus=2), pod_line("p3", 6, 9, gpus=1), pod_line("p4", 1, 2, gpus=3)]


@pytest.fixture
def trace(tmp_path):
    """Arguments of a replay of a small trace."""
    return arguments(tmp_path, NODES, PODS)


def arguments(folder, nodes, pods):
    files = write_trace(folder, nodes, pods)
    return ["replay", "openb", "--nodes", files[0], "--pods", files[1]]


def test_the_table_says_what_became_of_it(fastplan, trace):
    outcome = fastplan(*trace, "--workers", "2")
    assert (outcome.code, outcome.err) == (0, "")
    table = dict(line.strip().rsplit("  ", 1) for line in outcome.out.splitlines() if "  " in line.strip())
    table = {what.strip(): how_much.strip() for what, how_much in table.items()}
    assert table["pods arrived"] == "4 of 4"
    assert (table["placed"], table["waiting"], table["never fitting"], table["for lack of device"]) == ("2", "1", "1", "1")
    assert (table["over-committed nodes"], table["state after restart equals state before"]) == ("0", "yes")
    for what in ("refused plans", "plans per second", "placements per second", "commit, median and p99", "syncs", "log on disk", "peak memory"):
        assert table[what]


def test_the_object_has_every_figure(fastplan, trace):
    outcome = fastplan(*trace, "--json", "--workers", "1")
    assert (outcome.code, outcome.err) == (0, "")
    found = outcome.json
    assert set(KEYS) <= set(found)
    assert (found["nodes"], found["pods"], found["placed"], found["waiting"], found["never_fitting"]) == (2, 4, 2, 1, 1)
    assert found["reasons"] == {"device": 1}
    again = fastplan(*trace, "--json", "--workers", "1").json
    assert {key: again[key] for key in again if key not in TIMED_FIGURES} == {key: found[key] for key in found if key not in TIMED_FIGURES}


def test_old_snapshots_and_other_rules(fastplan, tmp_path):
    found = fastplan(*arguments(tmp_path, *mixed_trace(60)), "--stale", "8", "--rules", "nomad", "--json").json
    assert found["refused_plans"] > 0
    assert (found["over_committed_nodes"], found["restart_equal"]) == (0, True)


def test_c2m_counts_allocations(fastplan):
    found = fastplan("replay", "c2m", "--nodes", "3", "--allocs", "1500", "--json").json
    assert (found["allocs"], found["placed"], found["restart_equal"]) == (1500, 1500, True)
    assert "pods" not in found


def test_a_data_directory_is_kept_refused_and_gone_on_with(fastplan, trace, tmp_path):
    folder = tmp_path / "log"
    assert fastplan(*trace, "--data-dir", folder).code == 0
    assert (folder / "log.db").exists()
    refused = fastplan(*trace, "--data-dir", folder)
    assert (refused.code, refused.out) == (2, "")
    assert refused.err == f'fastplan: --data-dir: expected a new or an empty directory, or --resume to go on with what is there, got "{folder}"\n'
    again = fastplan(*trace, "--data-dir", folder, "--resume", "--json")
    assert again.code == 0
    assert (again.json["resumed"], again.json["placed"], again.json["plans"]) == (True, 2, 0)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--workers", "0"], "--workers: expected integer from 1 to 256, got 0"),
        (["--stale", "-1"], "--stale: expected integer from 1 to 1000000, got -1"),
        (["--resume"], "--resume: expected --data-dir"),
        (["--rules", "lax"], "Invalid value for '--rules'"),
        (["--seed", "x"], "Invalid value for '--seed'"),
        (["--unknown"], "No such option"),
    ],
)
def test_options_that_make_no_sense_are_bad_input(fastplan, trace, options, line):
    outcome = fastplan(*trace, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert line in outcome.err


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (["c2m", "--nodes", "0"], "--nodes: expected integer from 1"),
        (["c2m", "--allocs", "-5"], "--allocs: expected integer from 1"),
        (
            ["openb", "--nodes", "missing.csv", "--pods", "missing.csv"],
            'missing.csv: expected a CSV file that can be read (No such file or directory), got "missing.csv"',
        ),
        (["openb"], "Missing option '--nodes'"),
        (["elsewhere"], "No such command 'elsewhere'"),
    ],
)
def test_workloads_that_cannot_be_are_bad_input(fastplan, command, line):
    outcome = fastplan("replay", *command)
    assert (outcome.code, outcome.out) == (2, "")
    assert line in outcome.err


def test_a_fault_in_a_file_is_one_line(fastplan, tmp_path):
    outcome = fastplan(*arguments(tmp_path, NODES, [pod_line("p", 5, 4)]))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f'fastplan: {tmp_path / "pods.csv"} line 2, column deletion_time: expected a time not before creation_time (5), got "4"\n'


def test_a_directory_that_cannot_be_written_is_the_environments_fault(fastplan, trace, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = fastplan(*trace, "--data-dir", tmp_path / "file" / "log")
    assert outcome.code in (2, 3)
    assert outcome.err.startswith("fastplan: ")
    assert outcome.err.count("\n") == 1
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    locked = tmp_path / "locked"
    locked.mkdir(mode=0o500)
    outcome = fastplan(*trace, "--data-dir", locked / "log")
    assert outcome.code == 3
    assert outcome.err.startswith("fastplan: cannot use the data directory")


def test_a_failing_disk_is_the_environments_fault(fastplan, trace, monkeypatch):
    async def fail(*_):
        raise StorageFailed("log.db: disk I/O error")

    monkeypatch.setattr(Server, "register_job", fail)
    outcome = fastplan(*trace)
    assert (outcome.code, outcome.out, outcome.err) == (3, "", "fastplan: log.db: disk I/O error\n")


@pytest.mark.parametrize(("check", "wrong"), [("over_committed_nodes", ["n1"]), ("restart_differences", ["allocs"])])
def test_a_check_that_fails_is_exit_code_1(fastplan, trace, monkeypatch, check, wrong):
    monkeypatch.setattr(session, check, lambda *_: wrong)
    outcome = fastplan(*trace, "--json")
    assert outcome.code == 1
    assert (outcome.json["over_committed_nodes"], outcome.json["restart_equal"]) == ((1, True) if check == "over_committed_nodes" else (0, False))


def test_there_is_a_progress_bar_on_a_terminal_and_none_in_a_pipe(trace):
    command = [sys.executable, "-m", "fastplan.cli", *map(str, trace)]
    environment = {**os.environ, "PYTHONPATH": str(IMPORT_ROOT), "TERM": "xterm", "COLUMNS": "120"}
    piped = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    assert "replaying" not in piped.stdout
    assert "\x1b" not in piped.stdout

    mine, theirs = pty.openpty()
    with open(mine, "rb", buffering=0) as screen:
        child = subprocess.Popen(command, env=environment, stdout=theirs, stderr=theirs)
        os.close(theirs)
        shown = b""
        while part := _read(screen):
            shown += part
        assert child.wait(60) == 0
    assert b"replaying openb" in shown
    assert b"placed" in shown


def _read(screen) -> bytes:
    try:
        return screen.read(4096)
    except OSError:
        # The other end is closed.
        return b""


def test_the_demo_is_a_replay():
    assert "fastplan.cli replay gpu-fleet" in Path(PROJECT, "Makefile").read_text()
