"""Lists of faults inside lists of faults, in the words that Nomad's clients read."""

from __future__ import annotations

from typing import Any

import msgspec

from fastplan.errors import InvalidInput


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong: where it stands, what stands there, what should, and Nomad's sentence about it."""

    path: str
    value: Any
    expected: str
    sentence: str


class Faults:
    """What is wrong with one part of an input. Falsy when nothing is."""

    def __init__(self, heading: str = "") -> None:
        """*heading*: what stands before the list where it is an item of another one."""
        self.heading = heading
        self._items: list[Fault | Faults] = []

    def __bool__(self) -> bool:
        return bool(self._items)

    def add(self, path: str, value: Any, expected: str, sentence: str) -> None:
        """Note one fault; arguments as of `Fault`."""
        self._items.append(Fault(path, value, expected, sentence))

    def nest(self, inner: Faults) -> None:
        """Note the faults of a part as one item; an empty list is no item."""
        if inner:
            self._items.append(inner)

    def first(self) -> Fault:
        """Return the first fault. Raises IndexError if nothing is wrong."""
        item = self._items[0]
        return item if isinstance(item, Fault) else item.first()

    def text(self) -> str:
        """Return all of it as Nomad writes it."""
        count = len(self._items)
        lines = (item.sentence if isinstance(item, Fault) else item.heading + item.text() for item in self._items)
        return f"{count} error{'' if count == 1 else 's'} occurred:\n" + "".join(f"\t* {line}\n" for line in lines) + "\n"

    def check(self) -> None:
        """Raise InvalidInput, naming the first fault and with all of them in `wording`, if anything is wrong."""
        if self:
            fault = self.first()
            raise InvalidInput(fault.path, fault.value, fault.expected, wording=self.text())
