"""Named counters, gauges and timers, each with one sentence of description.

An instrument is made once and kept in an attribute; using it adds to numbers and allocates nothing else. Each server
owns one `Metrics` object, so several servers in one process never mix their figures. `snapshot()` turns all of it into
plain dicts for a page, a log line or a test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import numpy
import numpy.typing

from fastplan.clock import Clock

_BUCKETS_PER_OCTAVE: Final = 4
_BUCKET_COUNT: Final = 160  # quarter octaves of a microsecond: 1 µs … 12 days
_MICROSECONDS: Final = 1e6


class Counter:
    """A number that only grows."""

    __slots__ = ("description", "name", "value")

    kind: Final = "counter"

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.value = 0

    def add(self, amount: int = 1) -> None:
        """Add *amount* (0 or more)."""
        self.value += amount

    def read(self) -> dict[str, Any]:
        """Return the value as a plain dict."""
        return {"value": self.value}


class LabelledCounter:
    """A counter per value of one label, such as a node id."""

    __slots__ = ("description", "label", "name", "values")

    kind: Final = "counter"

    def __init__(self, name: str, description: str, label: str) -> None:
        self.name = name
        self.description = description
        self.label = label
        self.values: dict[str, int] = {}

    def add(self, label_value: str, amount: int = 1) -> None:
        """Add *amount* (0 or more) to the counter of *label_value*."""
        self.values[label_value] = self.values.get(label_value, 0) + amount

    def read(self) -> dict[str, Any]:
        """Return the values by label value."""
        return {"label": self.label, "values": dict(self.values)}


class Gauge:
    """The newest value of something that rises and falls."""

    __slots__ = ("description", "name", "value")

    kind: Final = "gauge"

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.value: float = 0

    def set(self, value: float) -> None:
        """Replace the value."""
        self.value = value

    def read(self) -> dict[str, Any]:
        """Return the value as a plain dict."""
        return {"value": self.value}


class LabelledGauge:
    """A gauge per value of one label; a label value that is no longer reported disappears."""

    __slots__ = ("description", "label", "name", "values")

    kind: Final = "gauge"

    def __init__(self, name: str, description: str, label: str) -> None:
        self.name = name
        self.description = description
        self.label = label
        self.values: dict[str, float] = {}

    def replace(self, values: dict[str, float]) -> None:
        """Replace all values by a copy of *values*."""
        self.values = dict(values)

    def read(self) -> dict[str, Any]:
        """Return the values by label value."""
        return {"label": self.label, "values": dict(self.values)}


class Sample:
    """A distribution of plain numbers: count, sum, least, greatest, newest."""

    __slots__ = ("count", "description", "greatest", "least", "name", "newest", "total")

    kind: Final = "sample"

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.count = 0
        self.total: float = 0
        self.least: float = 0
        self.greatest: float = 0
        self.newest: float = 0

    def record(self, value: float) -> None:
        """Add one observation."""
        if self.count == 0 or value < self.least:
            self.least = value
        if self.count == 0 or value > self.greatest:
            self.greatest = value
        self.count += 1
        self.total += value
        self.newest = value

    def read(self) -> dict[str, Any]:
        """Return count, mean, least, greatest and newest."""
        mean = self.total / self.count if self.count else 0.0
        return {"count": self.count, "mean": mean, "least": self.least, "greatest": self.greatest, "newest": self.newest}


class Timer:
    """A distribution of durations. Recorded in seconds, read in milliseconds (plan-apply 9).

    Quantiles come from buckets a quarter of an octave wide, so they are off by at most 19 %.
    """

    __slots__ = ("_buckets", "count", "description", "greatest_s", "name", "total_s")

    kind: Final = "timer"

    def __init__(self, name: str, description: str) -> None:
        self.name = name
        self.description = description
        self.count = 0
        self.total_s = 0.0
        self.greatest_s = 0.0
        self._buckets = [0] * _BUCKET_COUNT

    def record(self, duration_s: float, times: int = 1) -> None:
        """Add *times* observations of *duration_s* seconds; a negative duration counts as 0."""
        duration_s = max(duration_s, 0.0)
        self.count += times
        self.total_s += duration_s * times
        if duration_s > self.greatest_s:
            self.greatest_s = duration_s
        self._buckets[_bucket_of(duration_s)] += times

    def record_all(self, durations_s: numpy.typing.NDArray[numpy.float64]) -> None:
        """Add one observation for each of *durations_s* (float64, one dimension), at a small part of the cost of as many calls of `record`."""
        if not len(durations_s):
            return
        durations = numpy.maximum(durations_s, 0.0)
        self.count += len(durations)
        self.total_s += float(durations.sum())
        self.greatest_s = max(self.greatest_s, float(durations.max()))
        numbers = numpy.bincount(_buckets_of(durations), minlength=_BUCKET_COUNT)
        for position in numpy.flatnonzero(numbers).tolist():
            self._buckets[position] += int(numbers[position])

    @contextlib.contextmanager
    def time(self, clock: Clock) -> Iterator[None]:
        """Record how long the body takes, by *clock*; also when it raises."""
        start_s = clock.monotonic_s()
        try:
            yield
        finally:
            self.record(clock.monotonic_s() - start_s)

    def quantile_ms(self, fraction: float) -> float:
        """Return the upper bound in milliseconds of the bucket that holds the *fraction* quantile; 0 without observations."""
        if not self.count:
            return 0.0
        wanted = fraction * self.count
        seen = 0
        for position, number in enumerate(self._buckets):
            seen += number
            if number and seen >= wanted:
                return min(_upper_bound_s(position), self.greatest_s) * 1e3
        return self.greatest_s * 1e3

    def read(self) -> dict[str, Any]:
        """Return count, mean, p50, p99 and greatest, in milliseconds."""
        mean_ms = self.total_s / self.count * 1e3 if self.count else 0.0
        return {
            "count": self.count,
            "mean_ms": mean_ms,
            "p50_ms": self.quantile_ms(0.5),
            "p99_ms": self.quantile_ms(0.99),
            "greatest_ms": self.greatest_s * 1e3,
        }


def _bucket_of(duration_s: float) -> int:
    # Fixed point with two more bits than the microseconds need: the top three bits name octave and quarter without a logarithm.
    quarters = int(duration_s * _MICROSECONDS * _BUCKETS_PER_OCTAVE)
    octave = quarters.bit_length() - 3
    if octave < 0:
        return 0
    return min(octave * _BUCKETS_PER_OCTAVE + (quarters >> octave) - _BUCKETS_PER_OCTAVE + 1, _BUCKET_COUNT - 1)


def _buckets_of(durations_s: numpy.typing.NDArray[numpy.float64]) -> numpy.typing.NDArray[numpy.int64]:
    """Return `_bucket_of` of each duration."""
    quarters = numpy.minimum(durations_s * _MICROSECONDS * _BUCKETS_PER_OCTAVE, 2.0**60).astype(numpy.int64)
    # The exponent of a positive float is the bit length of its integer part; conversion rounds up only beyond 53 bits, which is the last bucket anyway.
    octaves = numpy.frexp(quarters.astype(numpy.float64))[1].astype(numpy.int64) - 3
    positions = octaves * _BUCKETS_PER_OCTAVE + (quarters >> numpy.maximum(octaves, 0)) - _BUCKETS_PER_OCTAVE + 1
    return numpy.where(octaves < 0, 0, numpy.minimum(positions, _BUCKET_COUNT - 1))


def _upper_bound_s(position: int) -> float:
    if position == 0:
        return 1 / _MICROSECONDS
    octave, quarter = divmod(position - 1, _BUCKETS_PER_OCTAVE)
    return float(((quarter + _BUCKETS_PER_OCTAVE + 1) << octave) / (_MICROSECONDS * _BUCKETS_PER_OCTAVE))


Instrument = Counter | LabelledCounter | Gauge | LabelledGauge | Sample | Timer
_I = TypeVar("_I", bound=Instrument)


class Metrics:
    """The instruments of one server, by name. A name is registered once; asking for it again is an error in the program."""

    def __init__(self) -> None:
        self._instruments: dict[str, Instrument] = {}

    def counter(self, name: str, description: str) -> Counter:
        """Register and return a `Counter`."""
        return self._add(Counter(name, description))

    def labelled_counter(self, name: str, description: str, label: str) -> LabelledCounter:
        """Register and return a `LabelledCounter`."""
        return self._add(LabelledCounter(name, description, label))

    def gauge(self, name: str, description: str) -> Gauge:
        """Register and return a `Gauge`."""
        return self._add(Gauge(name, description))

    def labelled_gauge(self, name: str, description: str, label: str) -> LabelledGauge:
        """Register and return a `LabelledGauge`."""
        return self._add(LabelledGauge(name, description, label))

    def sample(self, name: str, description: str) -> Sample:
        """Register and return a `Sample`."""
        return self._add(Sample(name, description))

    def timer(self, name: str, description: str) -> Timer:
        """Register and return a `Timer`."""
        return self._add(Timer(name, description))

    def _add(self, instrument: _I) -> _I:
        if instrument.name in self._instruments:
            raise ValueError(f"metric {instrument.name} is registered twice")
        self._instruments[instrument.name] = instrument
        return instrument

    def __iter__(self) -> Iterator[Instrument]:
        return iter(self._instruments.values())

    def __getitem__(self, name: str) -> Instrument:
        return self._instruments[name]

    def snapshot(self) -> dict[str, dict[str, Any]]:
        """Return `{name: {"kind", "description", …figures}}` of all instruments, in order of registration."""
        return {each.name: {"kind": each.kind, "description": each.description, **each.read()} for each in self}
