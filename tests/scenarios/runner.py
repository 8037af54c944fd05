"""Scenarios: stories as text, told to one subject and compared with what it answers.

    # Row 7: the highest priority comes first.
    > enqueue low job=web priority=10
    > enqueue high job=db priority=30
    > dequeue
    high t1

A line after `>` is a command; the lines below it are its answer. Lines that begin with `#` and empty lines are for readers, and end an answer. Time is
virtual. With FASTPLAN_REWRITE=1 the answers in the file are replaced by what the subject says now: read the difference before you commit it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from fastplan.errors import FastplanError

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


class Subject(Protocol):
    """What a story is told to. A new one for each file."""

    def run(self, command: str, arguments: Arguments) -> Iterable[str]:
        """Do a command and return the lines of its answer. What fastplan raises becomes the line `error: …`."""
        ...

    def close(self) -> None:
        """End: the story is told."""
        ...


class Arguments:
    """The words behind a command, as `words` and `key=value` options. Every one has to be asked for: what nobody reads is a mistake in the story."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words: list[str] = []
        self.options: dict[str, str] = {}
        for word in words:
            key, equals, value = word.partition("=")
            if equals:
                self.options[key] = value
            else:
                self.words.append(word)

    def word(self, default: str | None = None) -> str:
        """Take the next word."""
        if self.words:
            return self.words.pop(0)
        if default is None:
            raise ValueError("a word is missing")
        return default

    def rest(self) -> list[str]:
        """Take all words that are left."""
        words, self.words = self.words, []
        return words

    def flag(self, name: str) -> bool:
        """Take the word *name* if it is there."""
        if name not in self.words:
            return False
        self.words.remove(name)
        return True

    def text(self, key: str, default: str = "") -> str:
        """Take an option."""
        return self.options.pop(key, default)

    def number(self, key: str, default: int = 0) -> int:
        """Take an option that is an integer."""
        return int(self.options.pop(key, default))

    def seconds(self, key: str, default: float = 0.0) -> float:
        """Take an option that is a duration."""
        return seconds(self.options.pop(key)) if key in self.options else default

    def check_used(self) -> None:
        """Raise ValueError for what was not taken."""
        if self.words or self.options:
            raise ValueError(f"not understood: {' '.join([*self.words, *self.options])}")


def seconds(text: str) -> float:
    """Return `5ms`, `-1h` or `20s` in seconds."""
    match = re.fullmatch(r"([+-]?[\d.]+)(ns|us|ms|s|m|h)", text)
    if match is None:
        raise ValueError(f"no duration: {text}")
    return float(match[1]) * _UNITS_S[match[2]]


def duration(seconds: float) -> str:
    """Return seconds as a story shows them: to a tenth of a millisecond."""
    shown_s = round(seconds, 4)
    return f"{shown_s:g}s" if shown_s >= 1 or shown_s == 0 else f"{shown_s * 1e3:g}ms"


def numbers(text: str) -> list[int]:
    """Return the integers of `1..3` or `3..1`, both ends included."""
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"no range: {text}")
    first, last = int(match[1]), int(match[2])
    return list(range(first, last + 1)) if first <= last else list(range(first, last - 1, -1))


@dataclass(slots=True)
class Step:
    """A command and its answer. `before`: the lines for readers above it."""

    command: str
    line: int
    answer: list[str] = field(default_factory=list)
    before: list[str] = field(default_factory=list)


def parse(text: str) -> tuple[list[Step], list[str]]:
    """Return the steps of a story, and the lines for readers at its end. Raises ValueError for an answer without a command."""
    steps: list[Step] = []
    remarks: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(">"):
            steps.append(Step(line[1:].strip(), number, before=remarks))
            remarks = []
        elif not line.strip() or line.startswith("#"):
            remarks.append(line)
        elif not steps or remarks:
            raise ValueError(f"line {number} is an answer to nothing: {line}")
        else:
            steps[-1].answer.append(line)
    return steps, remarks


def tell(subject: Subject, step: Step) -> list[str]:
    """Give the command of a step to the subject and return its answer."""
    command, *words = shlex.split(step.command)
    arguments = Arguments(words)
    try:
        answer = list(subject.run(command, arguments))
    except FastplanError as error:
        answer = [f"error: {error}"]
    arguments.check_used()
    return answer


def run_file(path: Path, subject: Subject, *, rewrite: bool) -> None:
    """Tell a story; raise AssertionError with the place where the subject answers otherwise, or put its answers into the file."""
    steps, remarks = parse(path.read_text())
    for step in steps:
        try:
            answer = tell(subject, step)
        except Exception as error:
            raise AssertionError(f"{path.name}:{step.line}: > {step.command}: {type(error).__name__}: {error}") from error
        if rewrite:
            step.answer = answer
        elif answer != step.answer:
            raise AssertionError("\n".join([f"{path.name}:{step.line}: > {step.command}", "expected:", *step.answer, "but it is:", *answer]))
    if rewrite:
        lines = [line for step in steps for line in (*step.before, f"> {step.command}", *step.answer)]
        path.write_text("\n".join([*lines, *remarks]) + "\n")
