"""Versioned blocks: a pinned view never changes, a fork never shows through, and nothing leaks."""

from __future__ import annotations

import gc
import random

import pytest

from fastplan.columns._blocks import BlockArray, Domain, memory_used


def contents(array: BlockArray, sizes: list[int]) -> list[bytes]:
    return [array.read_bytes(i, sizes[i]) for i in range(len(array))]


class Side:
    """One writable array with the model of what it must hold."""

    def __init__(self, array: BlockArray, model: list[bytes]) -> None:
        self.array = array
        self.model = model

    def check(self) -> None:
        assert contents(self.array, [len(block) for block in self.model]) == self.model


@pytest.mark.parametrize("seed", range(30))
def test_views_and_forks_keep_what_they_saw(seed: int) -> None:
    rng = random.Random(seed)
    gc.collect()
    before = memory_used()
    sides = [Side(BlockArray(Domain()), [])]
    views: list[tuple[BlockArray, list[bytes]]] = []
    for step in range(400):
        side = rng.choice(sides)
        action = rng.random()
        if action < 0.35 or not side.model:
            content = rng.randbytes(rng.choice((1, 64, 200)))
            side.array.append_bytes(content)
            side.model.append(content)
        elif action < 0.75:
            i = rng.randrange(len(side.model))
            content = rng.randbytes(rng.choice((1, 30, 700)))
            offset = rng.randrange(len(side.model[i]) + 1)
            side.array.write_bytes(i, offset, content)
            old = side.model[i].ljust(offset + len(content), b"\0")
            side.model[i] = old[:offset] + content + old[offset + len(content) :]
        elif action < 0.87:
            views.append((side.array.view(side.array.domain.pin()), list(side.model)))
        elif action < 0.92 and views:
            view, model = rng.choice(views)
            sides.append(Side(view.fork(), list(model)))
        elif views:
            views.pop(rng.randrange(len(views)))
        if len(sides) > 1 and rng.random() < 0.03:
            sides.pop(rng.randrange(1, len(sides)))
        if step % 20 == 0:
            for checked in sides:
                checked.check()
            for view, model in views:
                assert contents(view, [len(block) for block in model]) == model
    order = [*sides, *views]
    rng.shuffle(order)
    sides.clear()
    views.clear()
    del side, view, model, checked
    while order:
        order.pop()
    gc.collect()
    assert memory_used() == before


def test_directory_grows_beyond_many_pages() -> None:
    array = BlockArray(Domain())
    for i in range(5000):
        array.append_bytes(i.to_bytes(8, "little"))
    view = array.view(array.domain.pin())
    for i in range(0, 5000, 7):
        array.write_bytes(i, 0, b"\xff" * 8)
    array.append_bytes(b"\x01" * 8)
    assert [int.from_bytes(view.read_bytes(i, 8), "little") for i in range(len(view))] == list(range(5000))
    assert array.read_bytes(7, 8) == b"\xff" * 8
    assert len(view) == 5000
    assert len(array) == 5001


def test_a_write_copies_only_what_it_touches() -> None:
    array = BlockArray(Domain())
    for _ in range(1000):
        array.append_bytes(b"\0" * 1000)
    view = array.view(array.domain.pin())
    blocks, used = memory_used()
    array.write_bytes(500, 0, b"x")
    more_blocks, more_used = memory_used()
    assert more_blocks - blocks == 3  # the block, its page, the root
    assert more_used - used < 4096
    array.write_bytes(500, 1, b"y")
    assert memory_used() == (more_blocks, more_used)
    assert view.read_bytes(500, 2) == b"\0\0"


def test_a_block_goes_with_the_last_pin_that_sees_it() -> None:
    array = BlockArray(Domain())
    array.append_bytes(b"a" * 500)
    old = array.view(array.domain.pin())
    array.write_bytes(0, 0, b"b" * 500)
    middle = array.view(array.domain.pin())
    array.write_bytes(0, 0, b"c" * 500)
    new = array.view(array.domain.pin())
    array.write_bytes(0, 0, b"d" * 500)
    used = memory_used()[0]
    del new
    assert memory_used()[0] < used
    assert old.read_bytes(0, 1) + middle.read_bytes(0, 1) == b"ab"
    used = memory_used()[0]
    del middle
    assert memory_used()[0] < used
    assert old.read_bytes(0, 500) == b"a" * 500


def test_misuse_is_refused() -> None:
    array = BlockArray(Domain())
    array.append_bytes(b"a")
    pin = array.domain.pin()
    array.write_bytes(0, 0, b"b")
    with pytest.raises(ValueError, match="after the last write"):
        array.view(pin)
    with pytest.raises(ValueError, match="own domain"):
        array.view(Domain().pin())
    view = array.view(array.domain.pin())
    with pytest.raises(TypeError):
        view.write_bytes(0, 0, b"c")
    with pytest.raises(TypeError):
        view.append_bytes(b"c")
    with pytest.raises(TypeError):
        array.fork()
    with pytest.raises(IndexError):
        array.read_bytes(1, 1)
    with pytest.raises(IndexError):
        array.write_bytes(-1, 0, b"c")
