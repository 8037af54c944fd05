"""Evaluating a plan (plan-apply 5): compiled where state and plan have columns, in plain Python otherwise."""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from typing import Final

import numpy
from numpy.typing import NDArray

from fastplan.columns.ids import text_of
from fastplan.errors import PlanError, Reason
from fastplan.planner import reference
from fastplan.planner._overlay import Overlay
from fastplan.planner._verify import NOMAD_RULES, STRICT_RULES, live_preemptions, verify
from fastplan.planner.in_flight import InFlightState
from fastplan.planner.reference import NO_REFRESH_INDEX, OverQuota, StateReader
from fastplan.planner.result import NOTHING, Accepted, NodeVerdict, PlanResult, refusal
from fastplan.rules import Rules
from fastplan.state._plan_view import PlanView
from fastplan.state.plans import AnyPlan, PlanColumns
from fastplan.state.snapshot import StateReader as ColumnarState

REFERENCE_ONLY = os.environ.get("FASTPLAN_KERNELS") == "reference"
"""Asked for on purpose, to compare or to debug: every plan is evaluated by the reference."""

SLOW = -1

RULE_FLAGS: Final = {Rules.STRICT: STRICT_RULES, Rules.NOMAD: NOMAD_RULES}
"""Rule sets as compiled code knows them."""

NOTHING_KEPT: NDArray[numpy.uint8] = numpy.empty(0, numpy.uint8)
"""The preemptions of a plan that has none."""

_WITH_DETAIL = (Reason.NODE_PORTS, Reason.ALLOC_PORTS)


def evaluate_plan(snapshot: StateReader, plan: AnyPlan, rules: Rules = Rules.STRICT, *, over_quota: OverQuota | None = None) -> PlanResult:
    """Return what of *plan* is acceptable on *snapshot*; neither changes (plan-apply 5).

    *over_quota* is the quota hook (plan-apply 5.8): a plan for which it returns True is answered without looking at its nodes.

    Raises PlanError where the plan as a whole fails: an unknown id among its stops and preemptions (`alloc X doesn't exist`), a refusal without an index
    to refresh to, and under `Rules.NOMAD` a node where the check ends with an error. Raises InvalidInput for a plan that columns cannot hold: more than
    65,536 different resource shapes, groups or notes of stops.
    """
    if REFERENCE_ONLY or not isinstance(snapshot, ColumnarState):
        return reference.evaluate_plan(snapshot, plan, rules, over_quota=over_quota)
    return verify_plan(snapshot, plan, PlanColumns.of(plan, snapshot), rules, over_quota=over_quota).outcome()


def evaluate_node_plan(snapshot: StateReader, plan: AnyPlan, node_id: str, rules: Rules = Rules.STRICT) -> NodeVerdict:
    """Return what is thought of the part of *plan* that concerns one node, whatever the others say (plan-apply 5.2)."""
    return reference.evaluate_node_plan(snapshot, plan, node_id, rules)


class Verified:
    """A plan that was evaluated in columns.

    `codes` int8 (k): 0 where the node's part is acceptable, else a reason number. `in_flight`: something of it rests on a plan in flight, so that it
    may be different if that one fails. `kept_preemptions` uint8 (p): 1 where the preempted allocation has not ended (plan-apply 5.5).
    Either `result` or `error` is there.
    """

    __slots__ = ("_codes", "columns", "error", "in_flight", "kept_preemptions", "plan", "result")

    def __init__(self, plan: AnyPlan, columns: PlanColumns, codes: NDArray[numpy.int8] | None, in_flight: bool) -> None:
        """Begin a verdict. *codes* is None where every node's part is acceptable."""
        self.plan = plan
        self.columns = columns
        self.in_flight = in_flight
        self.kept_preemptions = NOTHING_KEPT
        self.result: PlanResult | None = None
        self.error: PlanError | None = None
        self._codes = codes

    @property
    def codes(self) -> NDArray[numpy.int8]:
        """The verdicts on the nodes, int8 (k)."""
        if self._codes is None:
            self._codes = numpy.zeros(len(self.columns.node_ids), numpy.int8)
        return self._codes

    def outcome(self) -> PlanResult:
        """Return the result, or raise the error."""
        if self.error is not None:
            raise self.error
        assert self.result is not None
        return self.result

    @property
    def accepted(self) -> NDArray[numpy.uint8]:
        """Which nodes of the plan are in the result: uint8 (k)."""
        accepted: NDArray[numpy.uint8] = ((self.codes == 0) & (self.columns.in_scope != 0)).astype(numpy.uint8)
        return accepted


def verify_plan(
    state: ColumnarState,
    plan: AnyPlan,
    columns: PlanColumns,
    rules: Rules = Rules.STRICT,
    *,
    overlay: Overlay | None = None,
    over_quota: OverQuota | None = None,
) -> Verified:
    """Evaluate *plan*, whose columns are *columns*, on *state* with the plans of *overlay* in flight on top (plan-apply 5, 6.9).

    *state* may be a snapshot, or the store itself in the thread of its writer. `InFlightState(state, overlay)` reads the same view as records.
    """
    count = len(columns.node_ids)
    codes = numpy.empty(count, numpy.int8)
    flags = numpy.empty(count, numpy.uint8)
    rule_flags = RULE_FLAGS[rules]
    view = columns.view()
    not_fit, undecided, missing, unknown, in_flight = verify(state.nodes_view, state.allocs_view, view, rule_flags, codes, flags, overlay)
    if missing and columns.locate(state):
        view = columns.view()
        not_fit, undecided, missing, unknown, in_flight = verify(state.nodes_view, state.allocs_view, view, rule_flags, codes, flags, overlay)
    verified = Verified(plan, columns, codes, in_flight)
    if unknown >= 0:
        codes.fill(Reason.INVALID)
        verified.error = PlanError(reference.unknown_alloc(columns.changed_id(unknown)))
        return verified
    reader: StateReader = state if overlay is None else InFlightState(state, overlay)
    if len(columns.preempt_ids):
        kept = verified.kept_preemptions = numpy.empty(len(columns.preempt_ids), numpy.uint8)
        if not live_preemptions(state.nodes_view, state.allocs_view, view, kept, overlay):
            for row in range(len(kept)):
                alloc = reader.alloc(text_of(columns.preempt_ids[row]))
                kept[row] = alloc is not None and not alloc.is_terminal
    if over_quota is not None and over_quota(reader, plan):
        codes.fill(Reason.INVALID)
        verified.result = PlanResult(plan, NOTHING, kept=False, refresh_index=reference.refresh_index(state))
        return verified
    judged: dict[int, NodeVerdict] = {}
    if columns.repeats_ids and rules is Rules.STRICT:
        # An id on several nodes is refused on all of them, which only shows when the nodes are looked at together.
        codes.fill(SLOW)
        not_fit = undecided = count
    if undecided or (not_fit and plan.all_at_once):
        not_fit = _settle(verified, reader, rules, judged)
    if verified.error is None and verified.result is None:
        verified.result = _result(verified, reader, rules, judged, not_fit)
    if not_fit and verified.result is not None and verified.result.refresh_index == 0 and not overlay:
        codes.fill(Reason.INVALID)
        verified.error, verified.result = PlanError(NO_REFRESH_INDEX), None
    return verified


def _settle(verified: Verified, reader: StateReader, rules: Rules, judged: dict[int, NodeVerdict]) -> int:
    """Have the reference decide what the compiled code could not, ascending by node id; return how many nodes are refused.

    Verdicts of the reference go to *judged*. An error, and a refusal of the whole plan, are put into *verified*.
    """
    plan, columns, codes = verified.plan, verified.columns, verified.codes
    repeated: Container[str] = reference.repeated_ids(plan) if columns.repeats_ids else ()
    refused = 0
    for i in numpy.flatnonzero(codes).tolist():
        code = int(codes[i])
        if code == SLOW:
            verdict = judged[i] = reference.judge(reader, plan, columns.node_ids[i], rules, repeated)
            if verdict.error:
                codes.fill(Reason.INVALID)
                verified.error = PlanError(verdict.error)
                return 0
            codes[i] = verdict.code
        if codes[i]:
            refused += 1
            if plan.all_at_once:
                # The lowest node id decides (plan-apply 5.5), and nothing of the plan is kept.
                node_id = columns.node_ids[i]
                verdict = _verdict(reader, plan, node_id, rules, int(codes[i]), judged.get(i), repeated)
                verified.result = PlanResult(plan, NOTHING, refused={node_id: verdict}, kept=False, refresh_index=reference.refresh_index(reader))
                codes.fill(codes[i])
                return 1
    return refused


def _verdict(
    reader: StateReader, plan: AnyPlan, node_id: str, rules: Rules, code: int, judged: NodeVerdict | None, repeated: Container[str] = ()
) -> NodeVerdict:
    """Return the whole verdict on a refused node. The reference knows the details of its text, unless the state is another one by now."""
    if judged is None and code in _WITH_DETAIL:
        judged = reference.judge(reader, plan, node_id, rules, repeated)
    return judged if judged is not None and judged.code == code else refusal(Reason(code))


def accepted_by(reader: StateReader) -> Callable[[PlanResult], Accepted]:
    """Return what makes the maps of a result on request, from what *reader* says then."""

    def accepted_parts(result: PlanResult) -> Accepted:
        return reference.accepted_parts(reader, result.plan, reference.resolve(reader, result.plan), result.refused)

    return accepted_parts


def whole_result(plan: AnyPlan, view: PlanView, accepted: Callable[[PlanResult], Accepted]) -> PlanResult:
    """Return the result of a plan of which nothing is refused."""
    placed = view.place_count
    return PlanResult(plan, accepted, counts=(view.stop_count, placed), planned=placed)


def _result(verified: Verified, reader: StateReader, rules: Rules, judged: dict[int, NodeVerdict], refused_count: int) -> PlanResult:
    """Return the result; its maps and reasons are made when somebody asks for them."""
    plan, columns = verified.plan, verified.columns
    if not refused_count:
        return whole_result(plan, columns.view(), accepted_by(reader))
    codes = verified.codes

    def refused_nodes() -> dict[str, NodeVerdict]:
        return {
            columns.node_ids[i]: _verdict(reader, plan, columns.node_ids[i], rules, int(codes[i]), judged.get(i)) for i in numpy.flatnonzero(codes).tolist()
        }

    def accepted_counts() -> tuple[int, int]:
        fits = codes == 0
        return int(numpy.diff(columns.stop_offsets)[fits].sum()), int(numpy.diff(columns.place_offsets)[fits].sum())

    return PlanResult(
        plan,
        accepted_by(reader),
        refused=refused_nodes,
        refresh_index=reference.refresh_index(reader),
        counts=accepted_counts,
        planned=len(columns.alloc_ids),
        rejected=tuple([columns.node_ids[i] for i in numpy.flatnonzero(codes).tolist()]),
    )
