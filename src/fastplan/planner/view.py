"""The view that the pipeline verifies on: the store as it stands, with the results in flight on top (plan-apply 6.5, 6.9)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy

from fastplan.errors import InvalidInput, PlanError
from fastplan.planner._overlay import Overlay
from fastplan.planner._verify import verify_whole
from fastplan.planner.evaluate import RULE_FLAGS, Verified, accepted_by, verify_plan, whole_result
from fastplan.planner.in_flight import InFlightState
from fastplan.planner.reference import OverQuota
from fastplan.rules import Rules
from fastplan.state import StateStore
from fastplan.state._plan_view import PlanView
from fastplan.state.plans import AnyPlan, PlanColumns
from fastplan.structs import Plan


class OptimisticView:
    """Committed state is read where it lies: nothing is copied, and it is always the newest. Only in the thread of the store's writer."""

    def __init__(self, store: Callable[[], StateStore], rules: Rules = Rules.STRICT, *, over_quota: OverQuota | None = None) -> None:
        """*store*: the store of the state machine, which may be another one after a snapshot was installed."""
        self._store = store
        self._rules = rules
        self._over_quota = over_quota
        self._overlay = Overlay()
        self._groups: dict[int, list[PlanView]] = {}

    def latest_index(self) -> int:
        """Return the index of committed state."""
        return self._store().latest_index()

    def verify(self, plans: Sequence[AnyPlan], group: int | None) -> list[Verified]:
        """Verify plans in order, each on the accepted results of those before it, and add what is accepted to *group*; with None add nothing."""
        store = self._store()
        found: list[Verified] = []
        if group is None:
            for plan in plans:
                self._verify_alone(store, plan, None, found)
            return found
        members = self._groups.setdefault(group, [])
        owners = list(plans)
        # A quota wants to see every plan.
        views = [None if self._over_quota is not None else self._view_of(store, plan) for plan in owners]
        rests = numpy.zeros(len(owners), numpy.uint8)
        while len(found) < len(owners):
            first = len(found)
            alone = not len(self._overlay)
            end = verify_whole(store.nodes_view, store.allocs_view, views, owners, first, RULE_FLAGS[self._rules], self._overlay, rests)
            if first < end:
                accepted = accepted_by(InFlightState(store, self._overlay))
                for plan, view, rest in zip(owners[first:end], views[first:end], rests[first:end].tolist(), strict=True):
                    assert view is not None
                    members.append(view)
                    verdict = Verified(plan, plan._columns, None, rest != 0)
                    verdict.result = whole_result(plan, view, accepted_by(store) if alone else accepted)
                    found.append(verdict)
                    alone = False
            if end < len(owners):
                self._verify_alone(store, owners[end], members, found)
        return found

    def _view_of(self, store: StateStore, plan: AnyPlan) -> PlanView | None:
        """Return the columns of a plan that may be verified among others, None if it has none yet, or places one id on several nodes."""
        columns: PlanColumns | None = plan._columns
        if columns is None or columns.state_token is not store.shapes or columns.repeats_ids:
            return None
        return columns.bound or columns.view()

    def _verify_alone(self, store: StateStore, plan: AnyPlan, members: list[PlanView] | None, found: list[Verified]) -> None:
        """Verify one plan, and add what is accepted to *members* and the view, unless they are None."""
        verdict = self._verify_one(store, plan)
        found.append(verdict)
        result = verdict.result
        if result is None:
            return
        if result.partial:
            # Reasons have details; later the view is another one.
            _ = result.refused
        if len(verdict.columns.preempt_ids):
            # Once they are in flight, the victims have ended.
            _ = result.accepted
        if members is None or result.is_noop():
            return
        view = verdict.columns.view()
        try:
            self._overlay.add(view, plan, verdict.codes, verdict.kept_preemptions, store.nodes_view, store.allocs_view)
        except ValueError:
            # The very same plan is in flight already: the columns need a binding of their own.
            verdict.columns = copy.copy(verdict.columns)
            verdict.columns.bound = None
            view = verdict.columns.view()
            self._overlay.add(view, plan, verdict.codes, verdict.kept_preemptions, store.nodes_view, store.allocs_view)
        members.append(view)

    def _verify_one(self, store: StateStore, plan: AnyPlan) -> Verified:
        try:
            columns = PlanColumns.from_plan(plan, store)
        except InvalidInput as error:
            verdict = Verified(plan, PlanColumns.of(Plan(), store), numpy.empty(0, numpy.int8), False)
            verdict.error = PlanError(str(error))
            return verdict
        overlay = self._overlay
        return verify_plan(store, plan, columns, self._rules, overlay=overlay if len(overlay) else None, over_quota=self._over_quota)

    def drop(self, group: int) -> None:
        """Take the results of a group out of the view."""
        for view in self._groups.pop(group, ()):
            self._overlay.remove(view)

    def in_flight(self) -> int:
        """Return how many plans lie on top of committed state."""
        return len(self._overlay)
