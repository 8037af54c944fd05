"""`fastplan bench`: how fast is each part on this machine, beside a baseline of the same run?"""

from __future__ import annotations

from pathlib import Path

import click

from fastplan.benchmarks import QUESTIONS, ask, question
from fastplan.benchmarks.measuring import Answer, machine
from fastplan.cli import ALL_FITS
from fastplan.cli.output import add_row, console, print_json, table


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object: question → figure → number.")
@click.option("--size", type=click.Choice(["toy", "full"]), default="full", show_default=True, help="Toy sizes only show that it runs.")
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, writable=True, path_type=Path),
    help="Where files go: the disk that is measured. By default where the system puts temporary files.",
)
def command(names: tuple[str, ...], as_json: bool, size: str, directory: Path | None) -> int:
    """Measure fastplan on this machine.

    NAMEs are fit-batch, fit-one, evaluate-plan, applier, log, state and scaling; without one, all are asked. Each question first makes sure that subject and
    baseline give equal results, then measures both in turn. Exit code 2: an unknown name.
    """
    wanted = dict.fromkeys(names or QUESTIONS)
    for name in wanted:
        question(name)
    answers: dict[str, Answer] = {}
    for name in wanted:
        answers[name] = ask(name, size, directory)
        if not as_json:
            _print_lines(name, answers[name])
    if as_json:
        print_json({name: answer.figures for name, answer in answers.items()})
    else:
        _print_table(answers)
    return ALL_FITS


def _print_lines(name: str, answer: Answer) -> None:
    output = console()
    output.print(name, style="bold", markup=False)
    for line in answer.lines:
        output.print(f"  {line}", markup=False)


def _print_table(answers: dict[str, Answer]) -> None:
    figures = table("question", "figure", ">value")
    for name, answer in answers.items():
        for figure, value in answer.figures.items():
            add_row(figures, name, figure, f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}")
    output = console()
    output.print(figures)
    output.print(machine(), markup=False)
