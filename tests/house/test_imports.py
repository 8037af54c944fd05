"""Imports flow one way, and no module lies about unused (docs/architecture.md, Layers)."""

import pytest

from fastplan.cli import COMMANDS
from tests.house.tree import imports, modules, part_of

BASE = {"errors", "clock", "metrics", "rules"}
DATA = BASE | {"structs", "bitset", "columns"}
FIT = DATA | {"fit"}
STATE = FIT | {"state"}
CODEC = STATE | {"codec"}
ALL = CODEC | {"fsm", "replication", "planner", "broker", "scheduler", "worker", "server", "replay", "benchmarks", "cli", "testing"}

# What each part may import, besides itself.
MAY_IMPORT = {
    "": {"structs"},
    "errors": set(),
    "clock": {"errors"},
    "metrics": {"errors", "clock"},
    "rules": set(),
    "structs": BASE,
    "bitset": BASE,
    "columns": BASE,
    "fit": DATA,
    "state": FIT,
    "codec": STATE,
    "fsm": CODEC,
    "replication": BASE,
    "planner": CODEC | {"replication"},
    "broker": DATA,
    "scheduler": STATE,
    "worker": STATE | {"broker", "scheduler"},
    "server": ALL - {"replay", "benchmarks", "cli", "testing"},
    "testing": ALL,
    "replay": ALL,
    "benchmarks": ALL,
    "cli": ALL,
}
# These stand at the end: nothing below them may know them.
ENDS = {"cli", "benchmarks", "replay", "testing"}


@pytest.mark.parametrize("name", sorted(modules()))
def test_imports_flow_one_way(name):
    part = part_of(name)
    assert part in MAY_IMPORT, f"{part} is new: say in docs/architecture.md and here what it may import"
    reached = {part_of(module) for module in imports(name)} - {part, ""}
    assert reached <= MAY_IMPORT[part], f"{name} imports from {sorted(reached - MAY_IMPORT[part])}"


def test_the_ends_are_known_by_ends_alone():
    for part, allowed in MAY_IMPORT.items():
        assert part in ENDS or not allowed & ENDS


def test_compiled_modules_are_leaves():
    """A kernel knows other kernels, never a module in Python (except the error tree)."""
    compiled = {name for name, sources in modules().items() if sources[0].suffix == ".pyx"}
    assert compiled, "no extension found"
    # A cimport through a package names the package too.
    packages = {name.rpartition(".")[0] for name in compiled}
    for name in compiled:
        assert not imports(name) - compiled - packages - {"fastplan.errors"}, name


def test_every_module_is_used():
    used = {module for name in modules() for module in imports(name)}
    # A package is used if one of its modules is.
    used |= {module.rpartition(".")[0] for module in used}
    entries = {"fastplan", "fastplan.cli.__main__"} | {f"fastplan.cli.{name}" for name in COMMANDS}
    # What lies right below the package is public (docs/reference.md).
    entries |= {name for name in modules() if name.count(".") == 1}
    # Tools for tests are for whoever imports them.
    entries |= {name for name in modules() if name.startswith("fastplan.testing.")}
    assert sorted(set(modules()) - used - entries) == []


def test_every_command_has_its_module():
    assert {f"fastplan.cli.{name}" for name in COMMANDS} <= set(modules())
