"""The bare loop commits in order, what fits and no more, and survives a restart of nothing: its file holds what it flushed."""

import asyncio
import zlib

import numpy
import pytest

from fastplan.benchmarks._bare_loop import check_and_commit
from fastplan.benchmarks.bare_loop import BareLoop, BarePlan


def _ask(*amounts):
    return numpy.array([[amount, amount, amount, 1] for amount in amounts], numpy.int64)


def test_rows_are_taken_in_order():
    free = numpy.array([[10, 10, 10, 5], [3, 3, 3, 5]], numpy.int64)
    accepted = numpy.empty(4, numpy.uint8)
    fitted = check_and_commit(free, numpy.array([0, 0, 1, 0], numpy.uint32), _ask(6, 5, 3, 4), accepted)
    assert (fitted, accepted.tolist()) == (3, [1, 0, 1, 1])
    assert free.tolist() == [[0, 0, 0, 3], [0, 0, 0, 4]]


@pytest.mark.parametrize(("rows", "asks", "room"), [([5], _ask(1), 1), ([0, 0], _ask(1), 2), ([0], _ask(1), 2)])
def test_what_does_not_belong_together_changes_nothing(rows, asks, room):
    free = numpy.full((2, 4), 9, numpy.int64)
    with pytest.raises(ValueError):
        check_and_commit(free, numpy.array(rows, numpy.uint32), asks, numpy.empty(room, numpy.uint8))
    assert free.tolist() == [[9] * 4] * 2


def test_plans_are_answered_after_one_flush_a_batch(tmp_path):
    async def run():
        loop = BareLoop(numpy.array([[10, 10, 10, 10]], numpy.int64), tmp_path / "log")
        plans = [BarePlan(priority, numpy.array([0, 0], numpy.uint32), _ask(2, 2)) for priority in (1, 9, 5)]
        answers = await asyncio.gather(*(loop.submit(plan) for plan in plans))
        loop.close()
        return answers, loop.syncs

    answers, syncs = asyncio.run(run())
    # The highest priority first; the last one finds room for one row.
    assert answers == [1, 2, 2]
    assert syncs == 1
    stored = (tmp_path / "log").read_bytes()
    size = 6 * (4 + 32 + 1)
    assert int.from_bytes(stored[:4], "little") == zlib.crc32(stored[4 : 4 + size])
