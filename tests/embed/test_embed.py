"""A package of somebody else builds against the headers that fastplan ships, and gets the answers of the checker."""

import importlib
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fastplan import Allocation, Node
from fastplan.fit import FitChecker
from fastplan.fit._kernels import AskNumbers
from fastplan.fit._nodes import NodeTable
from fastplan.fit.asks import prepare
from fastplan.fit.encode import encode_node, status_flags
from fastplan.structs import canonical_node
from tests.cli.command_line import alloc, node


@pytest.fixture(scope="module")
def fleetcount(tmp_path_factory):
    """The built module."""
    folder = tmp_path_factory.mktemp("embed") / "fleetcount"
    shutil.copytree(Path(__file__).parent / "fleetcount", folder)
    built = subprocess.run([sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"], cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        return importlib.import_module("fleetcount")


def test_a_loop_of_a_stranger_gets_the_verdicts_of_the_checker(fleetcount):
    draw = random.Random(7)
    fleet = [Node.from_api(node(f"n{number}")) for number in range(200)]
    held = [
        Allocation.from_api(alloc(f"a{number}", draw.choice(fleet).id, cpu_mhz=draw.randrange(200, 1500), port=draw.choice([None, 8080, 9000 + number])))
        for number in range(300)
    ]
    held = [entry for number, entry in enumerate(held) if not _port_is_taken(entry, held[:number])]
    table = NodeTable()
    rows = {}
    for bare in map(canonical_node, fleet):
        rows[bare.id], _ = table.allocate(encode_node(bare), status_flags(bare.status, bare.scheduling_eligibility))
    for entry in held:
        table.add_alloc(rows[entry.node_id], _numbers(entry))

    ask = Allocation.from_api(alloc("new", "", cpu_mhz=1800, port=8080))
    codes = fleetcount.verdicts(table, _numbers(ask))

    assert codes.tolist() == FitChecker(fleet, held).fits_rows(range(len(fleet)), ask).tolist()
    assert len(set(codes.tolist())) >= 3  # fits, cpu, port


def _numbers(entry):
    return AskNumbers(*prepare(entry).numbers)


def _ports(entry):
    return {port.value for port in entry.allocated_resources.shared.ports}


def _port_is_taken(entry, before):
    return any(other.node_id == entry.node_id and _ports(other) & _ports(entry) for other in before)
