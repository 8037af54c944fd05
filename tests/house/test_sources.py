"""The tree stays tidy: file lengths, no leftovers, nothing of one machine, every extension with its stub."""

import ast
import importlib
import re
import tomllib

import pytest

import fastplan
from tests.house.tree import EXT, SRC, extensions, lines_that_match, project_files
from tests.shared_data import PROJECT

SOURCES = (".py", ".pyx", ".pxd", ".pyi", ".h", ".sh")


def test_no_file_is_over_800_lines():
    long = [
        (str(path.relative_to(PROJECT)), count) for path in project_files() if path.suffix in SOURCES and (count := len(path.read_text().splitlines())) > 800
    ]
    assert long == []


def test_nothing_names_a_place_on_one_machine():
    pattern = re.compile(r"(?:^|[^\w.])/(?:work|root|home|farm|Users)\b/?")
    assert list(lines_that_match(pattern)) == []


def test_nothing_names_a_registry():
    hosts = ["pypi" + ".org", "pythonhosted" + ".org", "debian" + ".org", "golang" + ".org", "npmjs" + ".org"]
    assert list(lines_that_match(re.compile("|".join(map(re.escape, hosts))))) == []


def test_nothing_is_left_for_later():
    # Written apart, so that this file does not match.
    marks = ["TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK", "NotImplemented" + "Error"]
    pattern = re.compile(r"\b(?:" + "|".join(marks) + r")\b|except[^:]*: *pass\b|pragma: no" + " cover")
    assert list(lines_that_match(pattern, *SOURCES)) == []


def test_the_changelog_has_the_version():
    text = (PROJECT / "CHANGELOG.md").read_text()
    assert re.search(rf"^## {re.escape(fastplan.__version__)}\b", text, re.MULTILINE)
    assert re.search(r"^- \S", text, re.MULTILINE)


def test_every_cython_source_is_listed_and_mirrors_the_package():
    table = extensions()
    assert list(table) == sorted(table), "keep EXTENSIONS sorted"
    assert {name: "ext/" + "/".join(name.split(".")[1:]) + ".pyx" for name in table} == table
    assert {str(path.relative_to(PROJECT)) for path in EXT.rglob("*.pyx")} == set(table.values())


@pytest.mark.parametrize("name", sorted(extensions()))
def test_the_stub_names_what_the_extension_has(name):
    """Names only, because it is quick; `make lint` compares signatures with stubtest."""
    stub = SRC / (name.replace(".", "/") + ".pyi")
    assert stub.exists(), f"{name} has no stub"
    stated: set[str] = set()
    for node in ast.parse(stub.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            stated.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            stated.add(node.target.id)
    module = importlib.import_module(name)
    missing = {item for item in stated if not hasattr(module, item)}
    assert not missing, f"{name} lacks {missing}"
    own = {item for item, value in vars(module).items() if not item.startswith("_") and getattr(value, "__module__", name) == name and callable(value)}
    assert not own - stated, f"the stub of {name} lacks {own - stated}"


def test_locks_hold_what_the_project_asks_for():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    locks = {path.stem: path.read_text() for path in (PROJECT / "requirements").glob("*.txt")}
    assert set(locks) == {"build", "dev", "runtime", "test"}
    wanted = {"runtime": project["project"]["dependencies"]}
    groups = {name: [entry for entry in entries if isinstance(entry, str)] for name, entries in project["dependency-groups"].items()}
    groups["dev"] += groups.pop("lint") + groups.pop("fuzz")
    wanted |= groups
    for lock, requirements in wanted.items():
        for requirement in requirements:
            name = re.match(r"[\w-]+", requirement)
            assert name is not None
            assert re.search(rf"^{name.group()}==", locks[lock], re.MULTILINE), f"{requirement} is not in requirements/{lock}.txt: run make lock"
    versions = [dict(re.findall(r"^(\S+)==(\S+)", text, re.MULTILINE)) for text in locks.values()]
    for name in {name for lock in versions for name in lock}:
        assert len({lock[name] for lock in versions if name in lock}) == 1, name
