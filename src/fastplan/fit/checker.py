"""The checker: a cluster bound once, and then asked many times (design, section 4)."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numpy as np
import numpy.typing as npt

from fastplan.errors import InvalidInput, Reason, StateError
from fastplan.fit.asks import Ask, PreparedAsk, is_group, prepare, prepare_list, total_numbers
from fastplan.fit.batch import PreparedBatch
from fastplan.fit.bindings import AllocLookup, Bindings
from fastplan.fit.encode import AllocNumbers, encode_node, status_flags
from fastplan.fit.engine import SLOW, Codes, Counts, Engine, NodeOrder, make_engine
from fastplan.fit.explain import NodeExplanation, shortfalls
from fastplan.fit.judge import UNLIMITED, Judge
from fastplan.fit.placement import Refusal
from fastplan.fit.results import MAX_ALLOCS_ERROR, NOTHING_USED, FitResult
from fastplan.structs import Allocation
from fastplan.structs.canonical import canonical_alloc, canonical_node

if TYPE_CHECKING:
    from fastplan.fit._nodes import NodeTable
    from fastplan.structs import Node

View = Literal["scheduler", "plan"]
Algorithm = Literal["binpack", "spread"]
Result = TypeVar("Result")

TOO_MANY_ALLOCS = FitResult(False, Reason.MAX_ALLOCS.text, MAX_ALLOCS_ERROR, NOTHING_USED, Reason.MAX_ALLOCS)
"""The answer that has no sum (plan-apply 2.2 step 1)."""

_ATTEMPTS = 3


class FitChecker:
    """What fits where in a cluster: nodes and the allocations on them, bound once, in columns inside.

    *view*: with `"scheduler"` an allocation counts until its client is terminal, with `"plan"` one that was told to stop does not count either
    (plan-apply 5.3). Only resources are looked at; status and eligibility count where `ready_only` says so. Rules are those of `Rules.NOMAD`.

    An **ask** is an `Allocation` (its ports, cores and device ids taken literally) or a pair of a `Job` and the name of one of its groups (ports by host
    network, cores and devices by count). A literal ask whose ID is bound replaces that allocation. `prepare` takes an ask apart once.

    Any number of threads may read, and one may write meanwhile: each answer is of one moment, before or after a write. Long scans run on a frozen view
    without the interpreter lock, so reads do not wait for each other; a scan during which somebody wrote is repeated if its answer needs more than the view.
    Records are kept, not copied: do not change them while they are bound.

    Raises `StateError` for an id bound twice and for an allocation on a node that is not bound, unless its client is terminal.
    """

    def __init__(self, nodes: Iterable[Node], allocs: Iterable[Allocation] = (), view: View = "scheduler") -> None:
        self._start(Bindings(drop_stopping=_drops_stopping(view)), make_engine(physical=view == "scheduler"))
        self._nodes: list[Node | None] = []
        for node in nodes:
            canonical = canonical_node(node)
            if canonical.id in self._rows:
                raise StateError(f"node {canonical.id!r} is bound twice")
            self._rows[canonical.id] = self._engine.allocate(encode_node(canonical), status_flags(canonical.status, canonical.scheduling_eligibility))
            self._nodes.append(canonical)
        self.add(allocs)

    @classmethod
    def from_table(cls, table: NodeTable, lookup: AllocLookup, view: View = "scheduler") -> FitChecker:
        """Return a checker on a node table that exists already, in O(1): a view, which is forked at the first write, or a writable table of its own.

        Rows are those of the table. *lookup* gives nodes and allocations; it must show the same moment as the table.
        """
        from fastplan.fit.engine_compiled import CompiledEngine

        checker = cls.__new__(cls)
        checker._start(Bindings(lookup, drop_stopping=_drops_stopping(view)), CompiledEngine(table, physical=view == "scheduler"))
        checker._lookup = lookup
        return checker

    def _start(self, bindings: Bindings, engine: Engine) -> None:
        self._bindings = bindings
        self._engine = engine
        self._lookup: AllocLookup | None = None
        self._rows: dict[str, int] = {}
        self._version = 0
        self._lock = threading.RLock()
        self._judge = Judge(self._node, bindings.counted_on, lambda row: self._engine.held(row))

    # --- nodes ----------------------------------------------------------------------------------------------------

    @property
    def node_ids(self) -> list[str]:
        """The ids of the nodes by row, in the order in which they were bound; empty text for a row that holds no node. Not to be changed."""
        return self._node_order().node_ids

    def _node_order(self) -> NodeOrder:
        """Return ids and ranks by row; worked out once for all checkers on the same nodes."""
        order = self._engine.remembered()
        if order is None:
            ids = list(self._rows)
            if self._lookup is not None:
                ids = [node.id if node is not None else "" for node in map(self._lookup.node, range(self._engine.row_count))]
            ranks = np.empty(len(ids), np.uint32)
            ranks[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids), dtype=np.uint32)
            order = NodeOrder(ids, ranks)
            self._engine.remember(order)
        return order

    def _row(self, node_id: str) -> int:
        row = self._rows.get(node_id) if self._lookup is None else self._lookup.row_of(node_id)
        if row is None:
            raise StateError(f"node {node_id!r} is not bound")
        return row

    def _node(self, row: int) -> Node:
        node = self._nodes[row] if self._lookup is None else self._lookup.node(row)
        if node is None:
            raise StateError(f"node row {row} holds no node")
        return node

    def _has_node(self, row: int) -> bool:
        return self._lookup is None or self._lookup.node(row) is not None

    # --- writes ---------------------------------------------------------------------------------------------------

    def add(self, allocs: Iterable[Allocation]) -> None:
        """Bind more allocations. All or none: raises `StateError`, with nothing changed, for an id that is bound or occurs twice, or an unknown node."""
        with self._lock:
            fresh: dict[str, tuple[Allocation, int | None]] = {}
            for alloc in map(canonical_alloc, allocs):
                if alloc.id in fresh or self._bindings.get(alloc.id) is not None:
                    raise StateError(f"allocation {alloc.id!r} is bound already")
                row = self._rows.get(alloc.node_id) if self._lookup is None else self._lookup.row_of(alloc.node_id)
                if row is None and not alloc.is_client_terminal:
                    raise StateError(f"allocation {alloc.id!r} is on node {alloc.node_id!r}, which is not bound")
                fresh[alloc.id] = (alloc, row)
            for alloc, row in fresh.values():
                if row is not None:
                    bound = self._bindings.bind(alloc, row)
                    if bound.summed:
                        self._engine.add(row, bound.numbers)
            self._version += 1

    def remove(self, alloc_ids: Iterable[str]) -> None:
        """Take allocations off. All or none: raises `StateError`, with nothing changed, for an id that is not bound or occurs twice."""
        with self._lock:
            leaving = list(alloc_ids)
            for position, alloc_id in enumerate(leaving):
                if self._bindings.get(alloc_id) is None:
                    raise StateError(f"allocation {alloc_id!r} is not bound")
                if alloc_id in leaving[:position]:
                    raise StateError(f"allocation {alloc_id!r} is named twice")
            for alloc_id in leaving:
                bound = self._bindings.release(alloc_id)
                if bound.summed:
                    self._engine.remove(bound.row, bound.numbers, stopping=bound.stopping)
            self._version += 1

    # --- one node -------------------------------------------------------------------------------------------------

    def prepare(self, ask: Ask) -> PreparedAsk:
        """Take an ask apart once, for many calls of any checker. Raises `InvalidInput` for something that is no ask, or a group with a negative amount."""
        return prepare(ask)

    def fits(self, node_id: str, allocs: Ask | Sequence[Ask]) -> FitResult:
        """Return whether an ask, or several allocations together, fit a node beside what is bound there; equal to `allocs_fit` on the whole list.

        Bound allocations come first, ascending by ID; those whose ID is asked for are replaced. Raises `StateError` for an unknown node and
        `InvalidInput` where Nomad crashes (plan-apply 2.10).
        """
        ask = allocs if type(allocs) is PreparedAsk else prepare_list(allocs)
        with self._lock:
            row = self._rows.get(node_id)
            if row is None:
                row = self._row(node_id)
            released = self._released(row, ask)
            verdict = self._engine.verdict(row, ask, released)
            code = verdict[0]
            if code == SLOW or (ask.need is not None and (code != 0 or ask.need.cores)):
                return FitResult.of(self._judge.check(row, ask))
            if code == Reason.MAX_ALLOCS:
                return TOO_MANY_ALLOCS
            if code == Reason.NODE_PORTS or code == Reason.ALLOC_PORTS:
                return self._engine.result(verdict, self._judge.port_detail(row, ask, None if released is None else released[0]))
            return self._engine.result(verdict, "")

    def _released(self, row: int, ask: PreparedAsk) -> tuple[AllocNumbers, int] | None:
        """Return what the ask replaces on a row, and how many allocations that is."""
        replaced: dict[str, AllocNumbers] = {}
        for alloc_id in ask.alloc_ids:
            bound = self._bindings.get(alloc_id)
            if bound is not None and bound.counted and bound.row == row:
                replaced[alloc_id] = bound.numbers
        return (total_numbers(list(replaced.values())), len(replaced)) if replaced else None

    def assign(self, node_id: str, ask: Ask) -> dict[str, Any] | None:
        """Return the `AllocatedResources` (API shape) that the ask would get on a node, or None if it does not fit.

        A group gets the lowest free ports of its host networks, the lowest free cores and device instances, and the MHz of its cores. A literal ask
        gets what it names. Nothing is booked. Raises `StateError` for an unknown node.
        """
        prepared = prepare(ask)
        with self._lock:
            chosen = self._chosen(self._row(node_id), prepared)
            resources = None if chosen is None else chosen.allocs[0].allocated_resources
            return None if resources is None else resources.to_api()

    def choose(self, row: int, ask: Ask) -> PreparedAsk | None:
        """Return what `assign` would give a group on the node in *row*, as the allocation that it would be, prepared; None if it does not fit.

        A literal ask is returned as it is. For callers that go on with records and claims and not with JSON.
        """
        prepared = prepare(ask)
        with self._lock:
            return self._chosen(row, prepared)

    def _chosen(self, row: int, ask: PreparedAsk) -> PreparedAsk | None:
        if ask.need is None:
            return ask if self._code(row, ask) == Reason.FITS else None
        if self._engine.verdict(row, ask, None)[0] not in (SLOW, Reason.FITS):
            return None
        placed = self._judge.place(row, ask)
        if isinstance(placed, Refusal):
            return None
        chosen = prepare(placed[1])
        return chosen if self._code(row, chosen) == Reason.FITS else None

    def _code(self, row: int, ask: PreparedAsk) -> int:
        code = self._engine.verdict(row, ask, self._released(row, ask))[0]
        return self._judge.code(row, ask) if code == SLOW else code

    # --- many nodes -----------------------------------------------------------------------------------------------

    def prepare_many(self, asks: Sequence[Ask]) -> PreparedBatch:
        """Take one ask a row apart, for many calls of `fits_rows`."""
        return PreparedBatch([ask if type(ask) is PreparedAsk else prepare(ask) for ask in asks])

    def fits_rows(self, node_rows: npt.ArrayLike, asks: Ask | Sequence[Ask] | PreparedBatch) -> Codes:
        """Return the verdict on each row: an int8 array of `Reason` numbers, 0 where it fits.

        *node_rows*: positions in `node_ids`, any integer dtype, shape (n,). *asks*: one ask for all rows, or one a row, best from `prepare_many`.
        Rows do not see each other. Raises `StateError` for a row that does not exist and `InvalidInput` for rows that are no list of integers and
        lengths that differ. Where Nomad would crash the code is `Reason.INVALID`.
        """
        rows = _row_numbers(node_rows)
        if isinstance(asks, PreparedBatch):
            batch: PreparedAsk | PreparedBatch = asks
        elif isinstance(asks, PreparedAsk | Allocation) or is_group(asks):
            batch = prepare(asks)
        else:
            batch = self.prepare_many(cast("Sequence[Ask]", asks))
        if isinstance(batch, PreparedBatch) and len(batch) != len(rows):
            raise InvalidInput("asks", len(batch), f"as many asks as rows ({len(rows)})")

        def scan(engine: Engine) -> Codes:
            return engine.codes(rows, batch if isinstance(batch, PreparedAsk) else batch.compiled(engine))

        def complete(codes: Codes) -> None:
            for position in self._undecided(rows, codes, batch):
                row = int(rows[position])
                if self._has_node(row):
                    codes[position] = self._code(row, batch if isinstance(batch, PreparedAsk) else batch.asks[position])

        return self._scan(scan, complete)

    def _undecided(self, rows: npt.NDArray[np.int64], codes: Codes, batch: PreparedAsk | PreparedBatch) -> list[int]:
        """Positions that the engine left open, or where the ask replaces something bound there."""
        if isinstance(batch, PreparedAsk):
            replaced = [bound.row for alloc_id in batch.alloc_ids if (bound := self._bindings.get(alloc_id)) is not None and bound.counted]
            return np.flatnonzero((codes == SLOW) | np.isin(rows, replaced)).tolist() if replaced else np.flatnonzero(codes == SLOW).tolist()
        open_positions: list[int] = np.flatnonzero(codes == SLOW).tolist() if (codes == SLOW).any() else []
        return open_positions + batch.replacing(self._bindings, self._version)

    def _scan(self, scan: Callable[[Engine], Result], complete: Callable[[Result], None]) -> Result:
        """Scan a frozen engine without holding the lock, then complete the answer under it, if nobody wrote in between."""
        for attempt in range(_ATTEMPTS):
            with self._lock:
                engine, version = self._engine.frozen(), self._version
                if attempt == _ATTEMPTS - 1:
                    # Somebody writes all the time: keep them out.
                    result = scan(engine)
                    complete(result)
                    return result
            result = scan(engine)
            del engine
            with self._lock:
                if self._version == version:
                    complete(result)
                    return result
        raise AssertionError("the last attempt returns")

    def mask(self, ask: Ask, ready_only: bool = True) -> npt.NDArray[np.bool_]:
        """Return by row whether one copy of the ask fits; with *ready_only* only on nodes that are ready and eligible."""
        return self._copies(prepare(ask), ready_only, 1) > 0

    def headroom(self, ask: Ask, ready_only: bool = True) -> Counts:
        """Return by row how many copies of the ask fit, int64: ports, cores, devices and the maximum of allocations included.

        2**63 - 1 where nothing limits them. Of a literal ask with ports, cores, known device instances or a single-writer volume at most one fits.
        """
        return self._copies(prepare(ask), ready_only, UNLIMITED)

    def _copies(self, ask: PreparedAsk, ready_only: bool, wanted: int) -> Counts:
        def complete(copies: Counts) -> None:
            replaced = {bound.row for alloc_id in ask.alloc_ids if (bound := self._bindings.get(alloc_id)) is not None and bound.counted}
            for row in {*np.flatnonzero(copies == SLOW).tolist(), *(row for row in replaced if not ready_only or _is_ready(self._node(row)))}:
                copies[row] = self._judge.copies(row, ask, wanted) if self._has_node(row) else 0

        return self._scan(lambda engine: engine.copies(ask, ready_only, wanted), complete)

    def best_node(
        self,
        ask: Ask,
        algorithm: Algorithm = "binpack",
        ready_only: bool = True,
        allowed: npt.ArrayLike | None = None,
        *,
        score_step: float = 0.0,
        permutation: npt.ArrayLike | None = None,
    ) -> int:
        """Return the row of the node with the best score among those where the ask fits, or -1 (schedulers.md 9.2).

        *allowed*: bool by row, shape (rows,), leaves nodes out. Of equal scores the lowest node id wins, or the row with the lowest number in
        *permutation*, uint32 by row, shape (rows,), all different. With a *score_step* above 0 scores are equal that lie in one interval
        [i * step, (i + 1) * step). So schedulers that work at the same time, each with a permutation of its own, come to different nodes.
        Raises `InvalidInput` for an argument that does not fit the cluster.
        """
        prepared, spread = prepare(ask), _is_spread(algorithm)
        permitted = None if allowed is None else np.ascontiguousarray(allowed, np.bool_).view(np.uint8)
        ranks = self._node_order().ranks if permutation is None else np.ascontiguousarray(permutation, np.uint32)
        for name, given in (("allowed", permitted), ("permutation", ranks)):
            if given is not None and given.shape != (self._engine.row_count,):
                raise InvalidInput(name, list(given.shape), f"one entry for each of the {self._engine.row_count} rows")
        if not 0.0 <= score_step < math.inf:
            raise InvalidInput("score_step", score_step, "finite number ≥ 0")

        def coarse(score: float) -> float:
            return score // score_step if score_step > 0.0 else score

        def complete(found: tuple[list[int], list[int]]) -> None:
            (best,), slow = found
            best_key = None if best < 0 or not slow else (-coarse(self._score(best, prepared, spread)), int(ranks[best]))
            for row in slow:
                if self._has_node(row) and self._judge.code(row, prepared) == Reason.FITS:
                    key = (-coarse(self._judge.score(row, prepared, spread)), int(ranks[row]))
                    if best_key is None or key < best_key:
                        best, best_key = row, key
            found[0][0] = best

        def scan(engine: Engine) -> tuple[list[int], list[int]]:
            best, slow = engine.best(prepared, spread, ready_only, permitted, ranks, score_step)
            return [best], slow

        return self._scan(scan, complete)[0][0]

    def score(self, row: int, ask: Ask, algorithm: Algorithm = "binpack") -> float:
        """Return the score of the node in *row*, 0 to 18, once the ask is on it, which must fit there (schedulers.md 9.2)."""
        with self._lock:
            return self._score(row, prepare(ask), _is_spread(algorithm))

    def _score(self, row: int, ask: PreparedAsk, spread: bool) -> float:
        score = self._engine.score(row, ask, spread)
        return self._judge.score(row, ask, spread) if score is None else score

    def explain(self, ask: Ask) -> list[NodeExplanation]:
        """Return for each node whether the ask fits, and if not every failing dimension with what is asked, free and missing, and who holds it.

        In the order of `node_ids`. A node that cannot be read at all does not fit, without a shortfall.
        """
        prepared = prepare(ask)
        with self._lock:
            explanations: list[NodeExplanation] = []
            for row, node_id in enumerate(self.node_ids):
                if not self._has_node(row):
                    continue
                if self._code(row, prepared) == Reason.FITS:
                    explanations.append(NodeExplanation(node_id, True))
                else:
                    failing = shortfalls(prepared, self._node(row), self._judge.supply(row), self._judge.others(row, prepared))
                    explanations.append(NodeExplanation(node_id, False, failing))
            return explanations


def _row_numbers(node_rows: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return *node_rows* as int64. A mask, fractions and texts are refused: numpy would make row numbers of them."""
    rows = np.asarray(node_rows)
    if rows.ndim != 1 or (rows.dtype.kind not in "iu" and rows.size):
        raise InvalidInput("node_rows", f"{rows.dtype} in {rows.ndim} dimensions", "integers in one dimension")
    return np.ascontiguousarray(rows, np.int64)


def _is_ready(node: Node) -> bool:
    return node.status == "ready" and node.scheduling_eligibility != "ineligible"


def _is_spread(algorithm: str) -> bool:
    if algorithm not in ("binpack", "spread"):
        raise InvalidInput("algorithm", algorithm, '"binpack" or "spread"')
    return algorithm == "spread"


def _drops_stopping(view: str) -> bool:
    if view not in ("scheduler", "plan"):
        raise InvalidInput("view", view, '"scheduler" or "plan"')
    return view == "plan"
