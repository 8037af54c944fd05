"""The `fastplan` command: `check`, `plan`, `schedule`, `replay`, `bench`.

A command lives in a module of its own, `fastplan.cli.NAME`, which defines one `click.Command` named `command`, and has one line in
`COMMANDS`. Modules are imported when their command runs, so `fastplan --help` starts fast. Commands raise errors of `fastplan.errors`
and return their exit code; this module alone turns errors into a line on stderr and an exit code:

| code | means |
| --- | --- |
| 0 | all fits, or the run succeeded |
| 1 | something does not fit, or the run did not reach its end |
| 2 | bad input: the line on stderr names the field |
| 3 | storage or environment: a disk, a data directory, a missing extension |
| 130 | stopped by Ctrl-C |
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence

import click

import fastplan
from fastplan.errors import CodecError, FastplanError, InvalidInput, ReplicationError

__all__ = ["ALL_FITS", "BAD_INPUT", "COMMANDS", "DOES_NOT_FIT", "ENVIRONMENT", "INTERRUPTED", "main"]

ALL_FITS = 0
DOES_NOT_FIT = 1
BAD_INPUT = 2
ENVIRONMENT = 3
INTERRUPTED = 130
_PIPE_CLOSED = 141

COMMANDS = {
    "check": "Check each node with the allocations that name it.",
    "plan": "Verify a plan against a state.",
    "schedule": "Show where a job would be placed on a state, or why not.",
    "replay": "Play a recorded or generated workload through the whole path.",
    "bench": "Measure fastplan on this machine, each part beside a baseline.",
}


class _LazyGroup(click.Group):
    """A group that imports the module of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"fastplan.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(fastplan.__version__, message="%(prog)s %(version)s")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens to stderr.")
def _fastplan(verbose: bool) -> None:
    """Verify and commit cluster scheduling plans, fast and safely."""
    if verbose:
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s: %(message)s")
    else:
        # Without any handler Python would print warnings, and a fault is one line of ours.
        logging.getLogger("fastplan").addHandler(logging.NullHandler())


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (*arguments*, else those of the process) and exit with its code."""
    sys.exit(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        with _fastplan.make_context("fastplan", list(sys.argv[1:] if arguments is None else arguments)) as context:
            code = _fastplan.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _complain("stopped", INTERRUPTED)
    except click.ClickException as problem:
        problem.show()
        return BAD_INPUT
    except BrokenPipeError:
        # The reader of our output has gone. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except InvalidInput as problem:
        return _complain(problem, BAD_INPUT)
    except (ReplicationError, CodecError) as problem:
        return _complain(problem, ENVIRONMENT)
    except FastplanError as problem:
        return _complain(problem, BAD_INPUT)
    except ImportError as problem:
        not_built = isinstance(problem, ModuleNotFoundError) and str(problem.name).rpartition(".")[0].startswith("fastplan")
        return _complain(f"the compiled module {problem.name} is missing: build it with `make setup`" if not_built else problem, ENVIRONMENT)
    except (OSError, MemoryError) as problem:
        return _complain(problem, ENVIRONMENT)
    return code if isinstance(code, int) else ALL_FITS


def _complain(problem: object, code: int) -> int:
    """Print *problem* on one line of stderr and return *code*."""
    text = " ".join(str(problem).split()) or type(problem).__name__
    click.echo(f"fastplan: {text}", err=True)
    return code
