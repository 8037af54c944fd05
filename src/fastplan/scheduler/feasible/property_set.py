"""How many allocations of a job there are for each value of a property of nodes (schedulers 8.5, 9.7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fastplan.scheduler.targets import resolve_target
from fastplan.structs import Allocation, Job, Node

if TYPE_CHECKING:
    from fastplan.scheduler.context import Context


class PropertySet:
    """The allocations of a job, or of one of its groups, by the value that an attribute has on their nodes."""

    def __init__(self, context: Context, job: Job, attribute: str, group: str | None = None) -> None:
        self._context = context
        self._job_id = job.id
        self._attribute = attribute
        self._group = group
        self._values: dict[str, str | None] = {}
        # Those of an earlier job with this id are somebody else's.
        ours = (alloc for alloc in context.job_allocs() if alloc.job is not None and alloc.job.create_index == job.create_index)
        self._existing = {alloc.id: value for alloc in ours if self._counts_here(alloc) and (value := self._value_on(alloc.node_id)) is not None}
        self._existing_counts = Counter(self._existing.values())

    def value_of(self, node: Node | None) -> str | None:
        """Return the value on a node, None where the node does not have the property."""
        if node is None:
            return None
        value, found = resolve_target(self._attribute, node)
        return value if found else None

    def counts(self) -> dict[str, int]:
        """Return value → how many allocations, as the plan stands now; a value that the plan has cleared stays, with 0.

        Under Nomad's rules an allocation that is updated in place counts twice and is cleared once; and where a value is both cleared and proposed, what
        was cleared counts one less if it was more than one.
        """
        draft = self._context.draft
        stops = [stop for entries in draft.node_update.values() for stop in entries if stop.job_id == self._job_id and self._is_in_group(stop)]
        proposed = [alloc for alloc in draft.placed_allocs() if self._counts_here(alloc)]
        used = self._existing_counts + Counter(self._values_on(proposed))
        if self._context.setting.strict:
            # What is stopped, and what is there in a new version, was counted as it is stored.
            for alloc_id in {alloc.id for alloc in (*stops, *proposed)} & self._existing.keys():
                used[self._existing[alloc_id]] -= 1
            return dict(used)
        cleared = Counter(self._values_on(stops))
        for value in set(self._values_on(proposed)):
            if cleared[value] > 1:
                cleared[value] -= 1
        return {value: max(count - cleared[value], 0) for value, count in used.items()}

    def _value_on(self, node_id: str) -> str | None:
        if node_id not in self._values:
            self._values[node_id] = self.value_of(self._context.node(node_id))
        return self._values[node_id]

    def _values_on(self, allocs: Iterable[Allocation]) -> list[str]:
        values = (self._value_on(alloc.node_id) for alloc in allocs)
        return [value for value in values if value is not None]

    def _counts_here(self, alloc: Allocation) -> bool:
        return not alloc.is_terminal and self._is_in_group(alloc)

    def _is_in_group(self, alloc: Allocation) -> bool:
        return self._group is None or alloc.task_group == self._group


class DistinctProperty(PropertySet):
    """A constraint `distinct_property`: at most so many allocations for each value."""

    def __init__(self, context: Context, job: Job, attribute: str, allowed: str, group: str | None = None) -> None:
        super().__init__(context, job, attribute, group)
        self._allowed, self._fault = _count(allowed)
        self._counts: dict[str, int] = {}

    def begin(self) -> None:
        """Count anew, for a selection."""
        self._counts = {} if self._fault else self.counts()

    def problem(self, node: Node) -> str:
        """Return why one more allocation may not go to a node, empty if it may."""
        if self._fault:
            return self._fault
        value = self.value_of(node)
        if value is None:
            return f'missing property "{self._attribute}"'
        used = self._counts.get(value, 0)
        if used < self._allowed:
            return ""
        return f"distinct_property: {self._attribute}={value} used by {used} allocs"


def _count(text: str) -> tuple[int, str]:
    """Return the number in a constraint, 1 if it has none, and what is wrong with it."""
    if not text:
        return 1, ""
    if not (text.isascii() and text.isdigit()):
        fault = "invalid syntax"
    elif len(text.lstrip("0")) > 20 or int(text) >= 2**64:
        fault = "value out of range"
    else:
        return int(text), ""
    return 0, f'failed to convert RTarget "{text}" to uint64: strconv.ParseUint: parsing "{text}": {fault}'
