"""Numbers for texts: addresses, device kinds, instance ids and volume sources as parts of claims (docs/architecture.md, "Node rows").

One table for the process, append-only. The numbers never leave the process: two processes number differently.
"""

from __future__ import annotations

import threading

from fastplan.errors import StateError

Internable = str | tuple[str, str, str]
"""A text, or vendor, type and name of a device group."""

NUMBER_LIMIT = 1 << 28
"""Numbers are below this: a claim has 28 bits for its subject."""

_numbers: dict[Internable, int] = {}
_texts: list[Internable] = []
_device_kinds: list[tuple[str, str, str]] = []
_writing = threading.Lock()


def number_of(text: Internable) -> int:
    """Return the number of *text*, giving it the next free one if it is new. Safe from any thread.

    Raises `StateError` when the process has used up its 2**28 numbers.
    """
    number = _numbers.get(text)
    if number is not None:
        return number
    with _writing:
        number = _numbers.get(text)
        if number is None:
            number = len(_texts)
            if number >= NUMBER_LIMIT:
                raise StateError(f"more than {NUMBER_LIMIT} different addresses, devices and volumes in one process")
            # The text is there before its number can be seen.
            _texts.append(text)
            _numbers[text] = number
            if isinstance(text, tuple):
                _device_kinds.append(text)
    return number


def text_of_number(number: int) -> Internable:
    """Return the text with this number. Raises `StateError` for a number that was not given out."""
    if not 0 <= number < len(_texts):
        raise StateError(f"text number {number} was not given out")
    return _texts[number]


def text_count() -> int:
    """Return how many texts have a number so far; it only grows."""
    return len(_texts)


def device_kind_count() -> int:
    """Return how many device kinds have a number so far; it only grows."""
    return len(_device_kinds)


def device_kinds() -> list[tuple[str, str, str]]:
    """Return the device kinds that have a number, in order of appearance."""
    return list(_device_kinds)
