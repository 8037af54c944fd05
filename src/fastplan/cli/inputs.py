"""What commands read: JSON from a file or from stdin, turned into records. Every fault names the field."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any, TypeVar

import click

from fastplan.errors import InvalidInput
from fastplan.structs import Allocation, Node
from fastplan.structs.json_text import decode_json

STDIN = "-"

Identified = TypeVar("Identified", Node, Allocation)


def refuse_two_readers_of_stdin(*sources: str | None) -> None:
    """Raise click.UsageError when stdin is to be read twice."""
    if sources.count(STDIN) > 1:
        raise click.UsageError("only one input can be - (stdin)")


def read_json(source: str, name: str) -> Any:
    """Return the JSON value in the file *source*, or on stdin for ``-``. *name* stands for the input in errors (`allocs`).

    Raises InvalidInput for what cannot be read: a missing file, a folder, and everything that `decode_json` refuses.
    """
    try:
        data = sys.stdin.buffer.read() if source == STDIN else Path(source).read_bytes()
    except OSError as problem:
        raise InvalidInput(name, source, f"a JSON file that can be read ({problem.strerror})") from problem
    except ValueError as problem:
        raise InvalidInput(name, source, f"the name of a file ({problem})") from problem
    return decode_json(data, name)


def read_records(kind: type[Identified], source: str, one: str, many: str) -> list[Identified]:
    """Return the records of *kind* in *source*: a list of API objects, or one object. *one* and *many* stand for the input in errors.

    Raises InvalidInput naming the field for anything that `from_api` refuses, an empty ID, and an ID that stands there twice.
    """
    value = read_json(source, many)
    if not isinstance(value, list):
        return [_named(kind.from_api(value, one), one)]
    records = [_named(kind.from_api(item, f"{many}[{index}]"), f"{many}[{index}]") for index, item in enumerate(value)]
    first: dict[str, int] = {}
    for index, record in enumerate(records):
        if first.setdefault(record.id, index) != index:
            raise InvalidInput(f"{many}[{index}].ID", record.id, f"an ID that {many}[{first[record.id]}] does not have")
    return records


def _named(record: Identified, path: str) -> Identified:
    if not record.id:
        raise InvalidInput(f"{path}.ID", record.id, "an ID")
    return record


def at_path(problem: InvalidInput, root: str, path: str) -> InvalidInput:
    """Return *problem* with the first word of its path, *root*, replaced by *path*: `node.NodeResources` → `nodes[3].NodeResources`."""
    return InvalidInput(re.sub(rf"^{root}\b", lambda _: path, problem.path), problem.value, problem.expected)
