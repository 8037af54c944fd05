"""The rejection tracker: finds nodes whose plans are refused again and again (plan-apply 8).

Such a node is probably broken in a way that schedulers do not see, and would keep every plan that touches it from
finishing. The tracker reports it, and the applier then marks it ineligible in the log entry of that very plan.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from fastplan.clock import Clock
from fastplan.errors import InvalidInput

TRACKED_NODES: Final = 50
"""Nodes with a history; more would let one bad rack crowd out nothing but memory."""

REPORT_BURST: Final = 10
"""Reports that may follow each other at once."""

REPORTS_PER_SECOND: Final = 5 / (30 * 60)
"""Rate at which further reports become possible."""

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class TrackerSettings:
    """Settings of the tracker; `node_window_s` is in seconds. `check` raises `InvalidInput`."""

    enabled: bool = True
    node_threshold: int = 100
    node_window_s: float = 300.0

    def check(self) -> None:
        """Raise `InvalidInput` for a window or threshold under which no node could be tracked."""
        if not math.isfinite(self.node_window_s) or self.node_window_s <= 0:
            raise InvalidInput("plan_rejection_tracker.node_window", self.node_window_s, "a time: plan_rejection_tracker.node_window must be greater than 0")
        if self.node_threshold <= 0:
            raise InvalidInput("plan_rejection_tracker.node_threshold", self.node_threshold, "an integer greater than 0")


class TwoQueueCache(Generic[V]):
    """A cache of *size* values in which a burst of newcomers does not push out what is used often.

    A value enters *recent*; its second use moves it to *frequent*. Keys that fell out of *recent* are remembered for a
    while and enter *frequent* directly when they come back, with a new value.
    """

    def __init__(self, size: int) -> None:
        if size <= 0:
            raise ValueError("a cache needs room for one value at least")
        self._size = size
        self._recent_size = size // 4
        self._ghost_size = size // 2
        self._recent: OrderedDict[str, V] = OrderedDict()
        self._frequent: OrderedDict[str, V] = OrderedDict()
        self._ghosts: OrderedDict[str, None] = OrderedDict()

    def get(self, key: str) -> V | None:
        """Return the value of *key* and count the access, or `None`."""
        if key in self._frequent:
            self._frequent.move_to_end(key)
            return self._frequent[key]
        if key in self._recent:
            value = self._recent.pop(key)
            self._frequent[key] = value
            return value
        return None

    def add(self, key: str, value: V) -> None:
        """Put a value under a key that `get` has just not found."""
        if key in self._ghosts:
            self._make_room(coming_back=True)
            self._ghosts.pop(key, None)
            self._frequent[key] = value
            return
        self._make_room(coming_back=False)
        self._recent[key] = value

    def keys(self) -> list[str]:
        """Return the keys held: frequent ones, then recent ones, each from old to new."""
        return [*self._frequent, *self._recent]

    def __contains__(self, key: str) -> bool:
        return key in self._frequent or key in self._recent

    def __len__(self) -> int:
        return len(self._recent) + len(self._frequent)

    def _make_room(self, *, coming_back: bool) -> None:
        if len(self) < self._size:
            return
        recent = len(self._recent)
        if recent and (recent > self._recent_size or (recent == self._recent_size and not coming_back)):
            key, _ = self._recent.popitem(last=False)
            while self._ghosts and len(self._ghosts) >= self._ghost_size:
                self._ghosts.popitem(last=False)
            if self._ghost_size:
                self._ghosts[key] = None
        else:
            self._frequent.popitem(last=False)


class TokenBucket:
    """Permits *burst* actions at once and *rate_per_s* a second after that. Starts full."""

    def __init__(self, clock: Clock, burst: float, rate_per_s: float) -> None:
        self._clock = clock
        self._burst = burst
        self._rate_per_s = rate_per_s
        self._tokens = burst
        self._counted_s = clock.monotonic_s()

    @property
    def tokens(self) -> float:
        """Tokens in the bucket at this moment."""
        now_s = self._clock.monotonic_s()
        return min(self._burst, self._tokens + (now_s - self._counted_s) * self._rate_per_s)

    def take(self) -> bool:
        """Take one token if there is one."""
        tokens = self.tokens
        self._counted_s = self._clock.monotonic_s()
        # A token that is there but for the rounding of the clock counts: 1 − 1e-9 is a nanosecond at one token a second.
        if tokens < 1 - 1e-9:
            self._tokens = tokens
            return False
        self._tokens = max(tokens - 1, 0.0)
        return True


class RejectionTracker:
    """Counts refusals per node inside a sliding window and reports nodes at or above the threshold."""

    def __init__(
        self,
        clock: Clock,
        settings: TrackerSettings | None = None,
        *,
        tracked_nodes: int = TRACKED_NODES,
        report_burst: float = REPORT_BURST,
        reports_per_s: float = REPORTS_PER_SECOND,
    ) -> None:
        self.settings = settings or TrackerSettings()
        self.settings.check()
        self._clock = clock
        self._histories: TwoQueueCache[list[float]] = TwoQueueCache(tracked_nodes)
        self._bucket = TokenBucket(clock, report_burst, reports_per_s)

    @property
    def tokens(self) -> float:
        """Reports that may follow each other at this moment."""
        return self._bucket.tokens

    def record(self, node_id: str) -> bool:
        """Count a refusal of *node_id* now. True when the node is to be marked ineligible."""
        if not self.settings.enabled:
            return False
        history = self._histories.get(node_id)
        if history is None:
            history = []
            self._histories.add(node_id, history)
        history.append(self._clock.monotonic_s())
        self._discard_old(history)
        return len(history) >= self.settings.node_threshold and self._bucket.take()

    def scores(self) -> dict[str, float]:
        """Return the refusals inside the window per tracked node. Counts as an access of each, as in Nomad."""
        scores: dict[str, float] = {}
        tracked = self._histories.keys()  # a list: the accesses below reorder the cache
        for node_id in tracked:
            history = self._histories.get(node_id)
            if history is not None:
                self._discard_old(history)
                scores[node_id] = len(history)
        return scores

    def tracked(self) -> list[str]:
        """Return the ids of the tracked nodes."""
        return self._histories.keys()

    def _discard_old(self, history: list[float]) -> None:
        start_s = self._clock.monotonic_s() - self.settings.node_window_s
        if history and history[0] < start_s:
            del history[: bisect_left(history, start_s)]
