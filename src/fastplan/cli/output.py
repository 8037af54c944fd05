"""What commands print: tables for people, one JSON object for programs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

# In a pipe there is no edge to wrap at; a table is as wide as its text.
_PIPE_WIDTH = 10_000


def console() -> Console:
    """Return a console on stdout: as wide as the terminal, and without an edge in a pipe."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, soft_wrap=False)


def table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table; a column whose name starts with ``>`` is set to the right."""
    made = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for column in columns:
        made.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold")
    return made


def add_row(to: Table, *cells: object) -> None:
    """Add one row; the cells are plain text, also where they look like markup."""
    to.add_row(*(escape(str(cell)) for cell in cells))


def print_undecided(facts: Sequence[str]) -> None:
    """Print what the input leaves open (plan-apply 1.13), if anything."""
    output = console()
    if facts:
        output.print("What this input cannot decide:")
    for fact in facts:
        output.print(f"  {fact}", markup=False)


def print_json(value: dict[str, Any]) -> None:
    """Print *value* as one JSON object on stdout."""
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")
