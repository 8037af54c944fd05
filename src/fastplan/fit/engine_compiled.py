"""The engine on the node table and the compiled scans."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from fastplan.errors import Reason
from fastplan.fit.encode import AllocNumbers, NodeNumbers
from fastplan.fit.engine import Codes, Counts, NodeOrder, Rows, Verdict
from fastplan.fit.interning import device_kind_count, device_kinds, number_of
from fastplan.fit.port_ranges import PORT_COUNT
from fastplan.fit.results import FitResult, UsedResources

try:
    from fastplan.fit._kernels import AskNumbers
    from fastplan.fit._nodes import NodeTable
    from fastplan.fit._scan import AskBatch, GroupNumbers, best_row, check_one, check_rows, copies_of, group_codes, result_of, score_one
except ImportError as problem:
    raise ImportError(
        f"the compiled kernels of fastplan.fit are not usable ({problem}): build them with `make setup`, or set FASTPLAN_KERNELS=reference to do without"
    ) from problem

if TYPE_CHECKING:
    from fastplan.fit.asks import PreparedAsk
    from fastplan.fit.group import GroupNeed

_REASONS = [(code, code.text) for code in Reason]

COUNT_LIMIT = 2**31 - 1
"""Counts of cores and device instances beyond this are left to the reference, so that kernels cannot overflow."""

RULE_PHYSICAL = 1
RULE_CHECK_DEVICES = 8


class CompiledEngine:
    """A node table and the view under which it is read. *physical*: what is told to stop counts until its client is terminal."""

    def __init__(self, table: NodeTable | None = None, *, physical: bool) -> None:
        self.table = NodeTable() if table is None else table
        self._rules = RULE_CHECK_DEVICES | (RULE_PHYSICAL if physical else 0)
        self._frozen: CompiledEngine | None = None

    def allocate(self, numbers: NodeNumbers, status: int) -> int:
        self._thaw()
        return self.table.allocate(numbers, status)[0]

    def add(self, row: int, numbers: AllocNumbers) -> None:
        self._thaw()
        self.table.add_alloc(row, AskNumbers(*numbers))

    def remove(self, row: int, numbers: AllocNumbers, *, stopping: bool) -> None:
        self._thaw()
        self.table.remove_alloc(row, AskNumbers(*numbers), stopping=stopping)

    def _thaw(self) -> None:
        """Before a write: let go of the view. If no reader holds it, the write happens in place."""
        self._frozen = None
        if self.table.read_only:
            self.table = self.table.fork()

    def frozen(self) -> CompiledEngine:
        if self.table.read_only:
            return self
        if self._frozen is None:
            self._frozen = CompiledEngine(self.table.view(self.table.blocks.domain.pin()), physical=self._rules & RULE_PHYSICAL != 0)
        return self._frozen

    @property
    def row_count(self) -> int:
        return self.table.row_count

    def remember(self, order: NodeOrder) -> None:
        self.table.remember(order)

    def remembered(self) -> NodeOrder | None:
        order: NodeOrder | None = self.table.remembered()
        return order

    def held(self, row: int) -> Sequence[int] | None:
        return self.table.regular_claims(row, self._rules & RULE_PHYSICAL != 0)

    def verdict(self, row: int, ask: PreparedAsk, release: tuple[AllocNumbers, int] | None) -> Verdict:
        compiled = ask.compiled if type(ask.compiled) is AskNumbers else compiled_ask(ask)
        return check_one(self.table, row, compiled, None if release is None else AskNumbers(*release[0], count=release[1]), self._rules)

    def result(self, verdict: Verdict, detail: str) -> FitResult:
        code, text = _REASONS[verdict[0]]
        result: FitResult = result_of(FitResult, UsedResources, verdict, code, f"{text}: {detail}" if detail else text)
        return result

    def codes(self, rows: Rows, asks: PreparedAsk | Sequence[PreparedAsk] | object) -> Codes:
        codes = np.empty(len(rows), np.int8)
        if isinstance(asks, AskBatch):
            check_rows(self.table, rows, asks, self._rules, codes)
        elif isinstance(asks, Sequence):
            compiled = [ask.compiled if type(ask.compiled) is AskNumbers else compiled_ask(ask) for ask in asks]
            literal = [ask for ask in compiled if isinstance(ask, AskNumbers)]
            if len(literal) == len(compiled):
                check_rows(self.table, rows, AskBatch(literal), self._rules, codes)
            else:
                for position, ask in enumerate(compiled):
                    self._codes_of(rows[position : position + 1], ask, codes[position : position + 1])
        else:
            self._codes_of(rows, compiled_ask(asks), codes)  # type: ignore[arg-type]
        return codes

    def _codes_of(self, rows: Rows, ask: AskNumbers | GroupNumbers, codes: Codes) -> None:
        if isinstance(ask, GroupNumbers):
            group_codes(self.table, rows, ask, self._rules, codes)
        else:
            check_rows(self.table, rows, ask, self._rules, codes)

    def batch(self, asks: Sequence[PreparedAsk]) -> object:
        literal = [numbers for ask in asks if isinstance(numbers := compiled_ask(ask), AskNumbers)]
        return AskBatch(literal) if len(literal) == len(asks) else asks

    def copies(self, ask: PreparedAsk, ready_only: bool, wanted: int) -> Counts:
        copies = np.empty(self.table.row_count, np.int64)
        copies_of(self.table, compiled_ask(ask), self._rules, ready_only, wanted, copies)
        return copies

    def best(
        self, ask: PreparedAsk, spread: bool, ready_only: bool, allowed: npt.NDArray[np.uint8] | None, order: npt.NDArray[np.uint32], step: float
    ) -> tuple[int, list[int]]:
        return best_row(self.table, compiled_ask(ask), self._rules, spread, ready_only, allowed, order, step)

    def score(self, row: int, ask: PreparedAsk, spread: bool) -> float | None:
        return score_one(self.table, row, compiled_ask(ask), self._rules, spread)


class _GroupForm:
    """A group in the form of the kernels, and how many device kinds it knew."""

    __slots__ = ("known_kinds", "numbers")

    def __init__(self, numbers: GroupNumbers, known_kinds: int) -> None:
        self.numbers = numbers
        self.known_kinds = known_kinds


def compiled_ask(ask: PreparedAsk) -> AskNumbers | GroupNumbers:
    """Return the ask in the form of the kernels, made once; a group anew when device kinds have turned up that it has not seen."""
    compiled = ask.compiled
    if isinstance(compiled, AskNumbers):
        return compiled
    if isinstance(compiled, _GroupForm) and compiled.known_kinds == device_kind_count():
        return compiled.numbers
    if ask.need is None:
        ask.compiled = literal = AskNumbers(*ask.numbers, count=len(ask.allocs))
        return literal
    known_kinds = device_kind_count()
    group = _group_numbers(ask.need, AskNumbers(*ask.numbers))
    ask.compiled = _GroupForm(group, known_kinds)
    return group


def _group_numbers(need: GroupNeed, base: AskNumbers) -> GroupNumbers:
    statics = [(number_of(port.host_network), port.value, port.ignore_collision) for port in need.static_ports]
    # Networks of single tasks, port numbers that cannot exist, and counts beyond what kernels count in, are tried out by the reference.
    if (
        need.has_task_networks
        or any(not 0 <= port < PORT_COUNT for _, port, _ in statics)
        or need.cores > COUNT_LIMIT
        or sum(request.count for request in need.device_requests) > COUNT_LIMIT
    ):
        return GroupNumbers(base, irregular=True)
    dynamics: list[tuple[int, int]] = []
    for port in need.dynamic_ports:
        alias = number_of(port.host_network)
        if dynamics and dynamics[-1][0] == alias:
            dynamics[-1] = (alias, dynamics[-1][1] + 1)
        else:
            dynamics.append((alias, 1))
    requests = need.device_requests
    devices: list[tuple[array[Any], int]] = []
    for pattern in dict.fromkeys(request.pattern for request in requests):
        widest = next(request for request in requests if request.pattern == pattern)
        kinds = sorted(number_of(kind) for kind in device_kinds() if widest.matches(kind))
        devices.append((array("I", kinds), sum(request.count for request in requests if widest.contains(request))))
    return GroupNumbers(base, statics, dynamics, need.cores, devices)
