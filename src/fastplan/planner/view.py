"""The view that the pipeline verifies on: the store as it stands, with the results in flight on top (plan-apply 6.5, 6.9)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy

from fastplan.errors import InvalidInput, PlanError
from fastplan.planner._overlay import Overlay, PlanView
from fastplan.planner.evaluate import Verified, bound, verify_plan
from fastplan.planner.reference import OverQuota
from fastplan.rules import Rules
from fastplan.state import StateStore
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
        overlay = self._overlay
        members = None if group is None else self._groups.setdefault(group, [])
        found = []
        for plan in plans:
            verdict = self._verify_one(store, plan)
            found.append(verdict)
            result = verdict.result
            if result is None:
                continue
            if result.partial:
                # Reasons have details; later the view is another one.
                _ = result.refused
            if len(verdict.columns.preempt_ids):
                # Once they are in flight, the victims have ended.
                _ = result.accepted
            if members is None or result.is_noop():
                continue
            view = bound(verdict.columns)
            try:
                overlay.add(view, plan, verdict.codes, verdict.kept_preemptions, store.nodes_view, store.allocs_view)
            except ValueError:
                # The very same plan is in flight already: the columns need a binding of their own.
                verdict.columns = copy.copy(verdict.columns)
                verdict.columns.bound = None
                view = bound(verdict.columns)
                overlay.add(view, plan, verdict.codes, verdict.kept_preemptions, store.nodes_view, store.allocs_view)
            members.append(view)
        return found

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
