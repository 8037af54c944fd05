"""Writes docs/reference.md: every public name with the first sentence of its docstring. `make reference` runs it; a test compares."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import public_modules, public_names

REFERENCE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"

HEAD = """\
# Reference

What is public: the names below, and their public attributes. Everything else may change in any release.
Docstrings say the rest: `python -c "help(…)"`. This page is written by `make reference`.
"""


def own_docstring(value: object) -> str:
    """Return the docstring that someone wrote for *value*; "" for none, and for what dataclasses and Cython make up."""
    text = vars(value).get("__doc__") if inspect.isclass(value) else getattr(value, "__doc__", None)
    text = (text or "").strip()
    if re.match(rf"(?:\w+\.)?{getattr(value, '__name__', '')}\(", text):
        # A signature stands first: embedded by Cython, with the docstring below it.
        text = text.partition("\n")[2].strip()
    return text


def first_sentence(text: str) -> str:
    """Return the first sentence of a docstring on one line, fit for a table cell."""
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=[^.]\.)\s+(?=[A-Z`*])", paragraph)[0].replace("|", "\\|")


def sections() -> Iterator[str]:
    """Yield one section for each public module."""
    for module_name in public_modules():
        module = importlib.import_module(module_name)
        yield f"\n## `{module_name}`\n\n{first_sentence(own_docstring(module))}\n"
        rows = []
        for name in public_names(module):
            value = getattr(module, name)
            documented = inspect.isclass(value) or inspect.isroutine(value)
            rows.append(f"| `{name}` | {first_sentence(own_docstring(value)) if documented else f'`{value!r}`' if isinstance(value, int | str) else ''} |\n")
        if rows:
            yield "\n| name | |\n| --- | --- |\n" + "".join(rows)


def reference() -> str:
    """Return the whole page."""
    return HEAD + "".join(sections())


if __name__ == "__main__":
    REFERENCE.write_text(reference())
