"""Documents say what is so: public names, docstrings, commands, examples, links."""

import ast
import doctest
import importlib
import inspect
import re

import pytest

from fastplan.cli import COMMANDS
from scripts.write_reference import REFERENCE, own_docstring, reference
from tests.house.tree import modules, public_modules, public_names
from tests.shared_data import PROJECT

DOCUMENTS = sorted([*PROJECT.glob("*.md"), *(PROJECT / "docs").rglob("*.md")])


def members(value):
    """Yield the public methods and properties that a class of ours defines itself."""
    for name, member in vars(value).items():
        if not name.startswith("_") and (inspect.isroutine(member) or isinstance(member, property | classmethod | staticmethod)):
            yield name, member.fget if isinstance(member, property) else getattr(member, "__func__", member)


@pytest.mark.parametrize("module_name", public_modules())
def test_exported_names_have_docstrings(module_name):
    module = importlib.import_module(module_name)
    assert own_docstring(module)
    missing = []
    for name in public_names(module):
        value = getattr(module, name)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        if not own_docstring(value):
            missing.append(name)
        if inspect.isclass(value):
            missing += [f"{name}.{member}" for member, function in members(value) if not own_docstring(function)]
    assert missing == []


def test_every_module_says_what_it_is():
    sources = [source for files in modules().values() for source in files if source.suffix == ".py"]
    assert [str(source) for source in sources if not ast.get_docstring(ast.parse(source.read_text()))] == []


@pytest.mark.parametrize("name", [name for name, (source, *_) in modules().items() if source.suffix == ".py" and ">>>" in source.read_text()])
def test_examples_in_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted
    assert not result.failed


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if ">>>" in path.read_text()], ids=lambda path: path.name)
def test_examples_in_documents_hold(path):
    result = doctest.testfile(str(path), module_relative=False)
    assert result.attempted
    assert not result.failed


def test_commands_in_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    for path in DOCUMENTS:
        text = path.read_text()
        code = re.findall(r"`([^`\n]+)`", text) + [
            line for block in re.findall(r"^```(?:sh|console)?\n(.*?)^```", text, re.DOTALL | re.MULTILINE) for line in block.splitlines()
        ]
        for line in code:
            for target in re.findall(r"(?:^|\s)make ([a-z-]+)", line):
                assert target in targets, f"{path.name}: make {target}"
            for command in re.findall(r"(?:^\$? ?|[|;&] )fastplan ([a-z]+)", line):
                assert command in COMMANDS, f"{path.name}: fastplan {command}"


def test_links_between_documents_lead_somewhere():
    for path in DOCUMENTS:
        for target in re.findall(r"\]\((?!https?:|#)([^)#\s]+)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.relative_to(PROJECT)} links to {target}"


def test_the_reference_is_up_to_date():
    assert REFERENCE.read_text() == reference(), "run `make reference`"


def test_tests_that_documents_name_exist():
    for path in DOCUMENTS:
        for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)", path.read_text()):
            source = PROJECT / file
            assert source.exists(), f"{path.name}: {file}"
            assert re.search(rf"^\s*(async )?def {name}\(", source.read_text(), re.MULTILINE), f"{path.name}: {file}::{name}"
        for story in re.findall(r"`tests/scenarios/test_scenarios\.py::test_story\[([\w/]+)\]`", path.read_text()):
            assert (PROJECT / f"tests/scenarios/{story}.txt").exists(), f"{path.name}: {story}"


def test_every_row_of_the_rules_names_a_test():
    rows = [line for line in (PROJECT / "docs/rules.md").read_text().splitlines() if line.startswith("| ") and not line.startswith(("| case", "| ---"))]
    assert rows
    assert [row for row in rows if "`tests/" not in row.rsplit("|", 2)[1]] == []
