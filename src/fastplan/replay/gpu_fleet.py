"""A small fleet of machines with GPUs and a day of work for it, generated from the figures below: nothing is read, the seed decides.

The fleet is busy enough that tasks wait in the afternoon, and a few ask for what no machine has.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Final, NamedTuple

import numpy

from fastplan.replay.shapes import NodeShape, ShapeTable, Tasks, TaskShape, Workload, address_of, id_maker, uuid_text
from fastplan.structs import Node

TASKS: Final = 2_000
DAYS: Final = 1
_DAY_S: Final = 86_400

_FLEET: Final = (
    (12, NodeShape(192_000, 524_288, 2_000_000, cores=64, gpus=8, gpu_name="g80")),
    (20, NodeShape(83_200, 262_144, 1_000_000, cores=32, gpus=4, gpu_name="g40")),
    (16, NodeShape(38_400, 131_072, 500_000, cores=16, gpus=2, gpu_name="g16")),
    (24, NodeShape(120_000, 262_144, 1_000_000, cores=48)),
    (8, NodeShape(60_800, 524_288, 1_000_000, cores=32)),
)
"""How many machines of each kind: MHz, MiB memory and disk, cores, GPUs."""


class _Kind(NamedTuple):
    """A kind of task: its share of all tasks, how long it runs at the median, in seconds, and what it may ask for."""

    share: float
    median_s: float
    shape: Callable[[random.Random], TaskShape]


def _inference(rng: random.Random) -> TaskShape:
    models: tuple[str, ...] = rng.choice(((), (), ("g16",), ("g40", "g80")))
    cpu_mhz = rng.choice((2_000, 4_000, 6_000))
    return TaskShape(cpu_mhz, rng.choice((8_192, 16_384)), 2_000, gpus=1, gpu_names=models, dynamic_ports=("http", "metrics"), priority=80)


def _training(rng: random.Random) -> TaskShape:
    gpus = rng.choices((1, 2, 4, 8), (4, 3, 2, 1))[0]
    models = ("g80",) if gpus == 8 else rng.choice(((), ("g80",), ("g40", "g80")))
    return TaskShape(4_000 * gpus, 24_576 * gpus, 20_000, gpus=gpus, gpu_names=models, priority=50)


def _pinned(rng: random.Random) -> TaskShape:
    return TaskShape(0, rng.choice((4_096, 16_384)), 1_000, cores=rng.choice((2, 4, 8)), dynamic_ports=("rpc",), priority=70)


def _gateway(rng: random.Random) -> TaskShape:
    # The static port makes it one a node.
    return TaskShape(rng.choice((1_000, 2_000)), 2_048, 500, static_ports=(("https", rng.choice((443, 8443))),), priority=80)


def _batch(rng: random.Random) -> TaskShape:
    return TaskShape(rng.choice((1_000, 2_000, 4_000, 8_000)), rng.choice((2_048, 4_096, 16_384, 32_768)), rng.choice((10, 5_000)), priority=20)


def _impossible(rng: random.Random) -> TaskShape:
    return rng.choice(
        (
            TaskShape(16_000, 65_536, 10_000, gpus=16, priority=50),
            TaskShape(4_000, 16_384, 1_000, gpus=1, gpu_names=("g160",), priority=50),
            TaskShape(8_000, 1_048_576, 1_000, priority=20),
            TaskShape(0, 8_192, 1_000, cores=96, priority=70),
        )
    )


_KINDS: Final = (
    _Kind(0.30, 3_600.0, _inference),
    _Kind(0.16, 7_200.0, _training),
    _Kind(0.12, 3_000.0, _pinned),
    _Kind(0.06, 5_400.0, _gateway),
    _Kind(0.35, 1_800.0, _batch),
    _Kind(0.01, 1_800.0, _impossible),
)


def gpu_fleet(*, seed: int) -> Workload:
    """Return the fleet of 80 machines and its 2,000 tasks."""
    rng = random.Random(f"gpu-fleet {seed}")
    draw = id_maker(seed)
    nodes: list[Node] = []
    for count, shape in _FLEET:
        for _ in range(count):
            number = len(nodes)
            nodes.append(shape.node(uuid_text(draw(16, "node", number)), f"fleet-{number:03d}", address_of(number)))
    kinds = rng.choices(_KINDS, [kind.share for kind in _KINDS], k=TASKS)
    shapes = ShapeTable()
    numbers = [shapes.number(kind.shape(rng)) for kind in kinds]
    arrivals_s = sorted(_arrival_s(rng) for _ in range(TASKS))
    # Spread over about two orders of magnitude, as run times are.
    lengths_s = [kind.median_s * math.exp(rng.gauss(0.0, 1.0)) for kind in kinds]
    tasks = Tasks(
        names=[f"task-{number:04d}" for number in range(TASKS)],
        shapes=numpy.array(numbers, numpy.uint32),
        counts=numpy.ones(TASKS, numpy.int64),
        arrivals_ns=numpy.array([round(arrival) * 10**9 for arrival in arrivals_s], numpy.int64),
        ends_ns=numpy.array([round(arrival + length) * 10**9 for arrival, length in zip(arrivals_s, lengths_s, strict=True)], numpy.int64),
    )
    return Workload("gpu-fleet", "pods", nodes, shapes.shapes, tasks)


def _arrival_s(rng: random.Random) -> float:
    """Return a time of arrival: three times as likely in the early afternoon as at night."""
    while True:
        at_s = rng.random() * DAYS * _DAY_S
        if rng.random() * 3.0 < 2.0 - math.cos(2.0 * math.pi * (at_s / _DAY_S - 0.08)):
            return at_s
