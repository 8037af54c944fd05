"""Which tasks are safe together: never one too many, whatever the order and the choice of nodes."""

import random

import numpy

from fastplan.replay.room import Room


def room(*headrooms):
    return Room(lambda shape: numpy.array(headrooms[shape], numpy.int64))


def test_one_task_needs_one_node():
    assert room([0, 1, 0]).safe_prefix([(0, 1)]) == 1
    assert room([0, 0]).safe_prefix([(0, 1)]) == 0
    assert room([]).safe_prefix([(0, 1)]) == 0
    assert room([0, 4, 2]).for_copies(0) == 6


def test_tasks_of_one_shape_need_room_for_all():
    assert room([2, 1]).safe_prefix([(0, 1)] * 4) == 3
    assert room([5, 5]).safe_prefix([(0, 4), (0, 4), (0, 4)]) == 2


def test_every_copy_of_another_shape_may_spoil_the_best_node():
    # Two nodes for either shape: one copy of the other leaves one.
    assert room([1, 1], [1, 1]).safe_prefix([(0, 1), (1, 1)]) == 2
    assert room([1, 1], [1, 1]).safe_prefix([(0, 1), (1, 1), (0, 1)]) == 2
    # Eight fit on the first node alone, but it may be the one that is taken.
    assert room([8, 1], [1, 1]).safe_prefix([(0, 2), (1, 1)]) == 1


def test_what_is_called_safe_fits_whatever_is_chosen():
    """Nodes of three resources; tasks take any node that fits, in any order: nobody of a safe prefix is ever left over."""
    rng = random.Random(5)
    looked_at = 0
    for _ in range(300):
        nodes = [[rng.randrange(7) for _ in range(3)] for _ in range(rng.randrange(1, 7))]
        asks = [[rng.randrange(1, 4) if rng.random() < 0.7 else 0 for _ in range(3)] for _ in range(2)]
        asks = [ask if any(ask) else [1, 0, 0] for ask in asks]

        def copies(shape, nodes=nodes, asks=asks):
            return numpy.array([min(have // want for have, want in zip(node, asks[shape], strict=True) if want) for node in nodes], numpy.int64)

        tasks = [(rng.randrange(2), rng.randrange(1, 3)) for _ in range(6)]
        safe = tasks[: Room(copies).safe_prefix(tasks)]
        looked_at += len(safe)
        for _ in range(10):
            left = [list(node) for node in nodes]
            todo = [shape for shape, count in safe for _ in range(count)]
            rng.shuffle(todo)
            for shape in todo:
                fitting = [node for node in left if all(have >= want for have, want in zip(node, asks[shape], strict=True))]
                assert fitting, (nodes, asks, safe)
                chosen = rng.choice(fitting)
                for dimension, want in enumerate(asks[shape]):
                    chosen[dimension] -= want
    assert looked_at > 200
