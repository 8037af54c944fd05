"""What all commands share: help, version, exit codes, a clean end."""

import importlib
import subprocess
import sys

import click
import pytest

import fastplan as package
from fastplan import cli, errors


def test_help_lists_every_command(fastplan):
    outcome = fastplan("--help")
    assert outcome.code == 0
    for name, sentence in cli.COMMANDS.items():
        assert f"{name} " in outcome.out
        assert sentence.split(maxsplit=1)[0] in outcome.out


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(fastplan, name):
    outcome = fastplan(name, "--help")
    assert outcome.code == 0
    assert outcome.out.startswith(f"Usage: fastplan {name}")


def test_version(fastplan):
    assert fastplan("--version").out == f"fastplan {package.__version__}\n"


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["--no-such-option"], ["check", "only-one"], ["plan", "a", "b", "--rules", "other"]])
def test_wrong_usage_is_bad_input(fastplan, arguments):
    outcome = fastplan(*arguments)
    assert outcome.code == cli.BAD_INPUT
    assert outcome.out == ""
    assert "Usage: fastplan" in outcome.err


def test_help_imports_no_command():
    """Help is there at once because nothing heavy is imported: no arrays, no tables, no command."""
    program = "import sys; sys.argv = ['fastplan', '--help']\nfrom fastplan.cli import main\ntry: main()\nexcept SystemExit: print(*sorted(sys.modules))"
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    imported = set(output.splitlines()[-1].split())
    assert "fastplan.cli" in imported
    assert not imported & {"numpy", "rich", "pyroaring", "fastplan.cli.check", "fastplan.fit", "fastplan.state"}


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (errors.InvalidInput("nodes[0].ID", "", "an ID"), cli.BAD_INPUT),
        (errors.StateError("no such node"), cli.BAD_INPUT),
        (errors.DirectoryInUse("data is in use"), cli.ENVIRONMENT),
        (errors.Corrupt("damaged", "log.db"), cli.ENVIRONMENT),
        (errors.CodecError("truncated"), cli.ENVIRONMENT),
        (OSError(28, "No space left on device"), cli.ENVIRONMENT),
        (ImportError("extension missing: run make setup"), cli.ENVIRONMENT),
        (KeyboardInterrupt(), cli.INTERRUPTED),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_errors_become_one_line_and_an_exit_code(fastplan, monkeypatch, problem, code):
    @click.command()
    def command():
        raise problem

    monkeypatch.setattr("fastplan.cli.check.command", command)
    outcome = fastplan("check")
    assert outcome.code == code
    assert outcome.err.startswith("fastplan: ")
    assert outcome.err.count("\n") == 1


def test_a_missing_extension_is_named_with_what_to_do(fastplan, monkeypatch):
    @click.command()
    def command():
        importlib.import_module("fastplan.fit._nothing")

    monkeypatch.setattr("fastplan.cli.check.command", command)
    outcome = fastplan("check")
    assert outcome.code == cli.ENVIRONMENT
    assert outcome.err == "fastplan: the compiled module fastplan.fit._nothing is missing: build it with `make setup`\n"


def test_a_defect_keeps_its_traceback(monkeypatch):
    @click.command()
    def command():
        raise ZeroDivisionError

    monkeypatch.setattr("fastplan.cli.check.command", command)
    with pytest.raises(ZeroDivisionError):
        cli.main(["check"])


def test_a_line_break_in_input_does_not_break_the_line(fastplan, write):
    outcome = fastplan("check", write("nodes.json", [{"ID": "a\nb", "NodeResources": {"Cpu": "x\ny"}}]), write("allocs.json", []))
    assert outcome.code == cli.BAD_INPUT
    assert outcome.err.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error():
    process = subprocess.Popen([sys.executable, "-m", "fastplan.cli", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.wait() == 141
    assert process.stderr.read() == b""
    process.stderr.close()
