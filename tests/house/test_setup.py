"""What is missing on a machine is one clear sentence, and nothing is created."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.shared_data import PROJECT

# A Python that answers one of the script's questions with no.
PRETENDER = """#!/bin/sh
case "$*" in
    *--version*) echo "Python 3.9.2" ;;
    *'{question}'*) exit 1 ;;
    *) exec {python} "$@" ;;
esac
"""


@pytest.fixture
def create(tmp_path):
    """Runs a copy of the script, `create(PYTHON=…)`, and returns (exit code, stderr, whether .venv is there)."""
    (tmp_path / "scripts").mkdir()
    script = shutil.copy(PROJECT / "scripts" / "create_venv.sh", tmp_path / "scripts")

    def create(**variables):
        ran = subprocess.run(["sh", script], env={**os.environ, **variables}, capture_output=True, text=True, check=False)
        return ran.returncode, ran.stderr, (tmp_path / ".venv").exists()

    return create


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("version_info", "CPython 3.11 or newer is needed (found: Python 3.9.2)"),
        ("ensurepip", "has no venv module: install it (Debian and Ubuntu: apt-get install python3-venv)"),
        ("Python.h", "has no header files (Python.h): install them (Debian and Ubuntu: apt-get install python3-dev)"),
    ],
)
def test_a_python_that_will_not_do(create, tmp_path, question, sentence):
    python = tmp_path / "python"
    python.write_text(PRETENDER.format(question=question, python=sys.executable))
    python.chmod(0o755)
    code, said, created = create(PYTHON=str(python))
    assert (code, said.count("\n"), created) == (1, 1, False)
    assert said.startswith("fastplan: ")
    assert sentence in said


def test_no_python_at_all(create):
    code, said, created = create(PYTHON="no-such-python")
    assert (code, said.count("\n"), created) == (1, 1, False)
    assert "CPython 3.11 or newer is needed (found: none)" in said


def test_no_compiler(create):
    code, said, created = create(PYTHON=sys.executable, CC="no-such-compiler -O2")
    assert (code, said.count("\n"), created) == (1, 1, False)
    assert "no C compiler (no-such-compiler)" in said
