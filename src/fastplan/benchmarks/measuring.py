"""How the benchmarks measure: sides in turn (A B A B), minima for kernels, medians for services, the machine beside the figures."""

from __future__ import annotations

import contextlib
import gc
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

import numpy

Work = Callable[[], object]


@dataclass(slots=True)
class Answer:
    """What a question found: figures for programs, lines for people; the last line is the closing ratio."""

    figures: dict[str, float] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


def interleave(sides: Mapping[str, Work], *, rounds: int, least_s: float = 0.001, budget_s: float = 60.0) -> dict[str, list[float]]:
    """Run the *sides* in turn for so many *rounds* and return for each the nanoseconds of one call in every round.

    Each side warms up for *least_s*, at least once, and is then repeated within its turn for about as long. Rounds end early, but not before the third,
    when *budget_s* is used up. A short call has its caches back before the clock runs. Nothing is collected while the clock runs.
    """
    repeats = {}
    for name, work in sides.items():
        times_s: list[float] = []
        while not times_s or sum(times_s) < least_s:
            start = perf_counter_ns()
            work()
            times_s.append(max(perf_counter_ns() - start, 1) / 1e9)
        repeats[name] = max(1, round(least_s / min(times_s)))
    times: dict[str, list[float]] = {name: [] for name in sides}
    deadline = perf_counter_ns() + int(budget_s * 1e9)
    for number in range(rounds):
        if number >= 3 and perf_counter_ns() > deadline:
            break
        for name, work in sides.items():
            with uncollected():
                if repeats[name] > 1:
                    # The other sides have taken the caches.
                    work()
                start = perf_counter_ns()
                for _ in range(repeats[name]):
                    work()
                times[name].append((perf_counter_ns() - start) / repeats[name])
    return times


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Keep the garbage collector from running inside the block."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def minima(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the best time of each side: the figure for kernels, which have no reason to be slow but others on the machine."""
    return {name: min(each) for name, each in times.items()}


def medians(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the middle time of each side: the figure for services."""
    return {name: statistics.median(each) for name, each in times.items()}


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value below which the *share* (0 to 1) of *values* lies."""
    return float(numpy.quantile(numpy.fromiter(values, numpy.float64), share))


def log_slope(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the exponent of growth: the slope of the best line through log(cost) over log(size)."""
    return float(numpy.polyfit(numpy.log(sizes), numpy.log(costs), 1)[0])


def assert_equal(found: object, expected: object, what: str) -> None:
    """Raise AssertionError, with or without `python -O`, unless subject and baseline agree on *what*."""
    if isinstance(found, numpy.ndarray) or isinstance(expected, numpy.ndarray):
        equal = bool(numpy.array_equal(numpy.asarray(found), numpy.asarray(expected)))
    else:
        equal = bool(found == expected)
    if not equal:
        raise AssertionError(f"{what}: subject and baseline differ; a ratio between them would mean nothing")


def machine() -> str:
    """Return one line on what the figures were measured on."""
    return (
        f"{_cpu_name()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}, CPython {platform.python_version()}, "
        f"NumPy {numpy.__version__}, load {os.getloadavg()[0]:.1f}"
    )


def _cpu_name() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def file_system(path: str) -> str:
    """Return the type of the file system that *path* lies on, as the mount table has it; the operating system's name where there is none."""
    path = os.path.realpath(path)
    best, kind = "", sys.platform
    with contextlib.suppress(OSError), open("/proc/mounts") as lines:
        for line in lines:
            _, point, found, *_ = line.split()
            if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
                best, kind = point, found
    return kind
