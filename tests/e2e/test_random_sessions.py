"""Whole sessions from a seed: random clusters, plans as records and as columns, on snapshots of different age, several in flight, commands in between.

After each step what the node table sums up is a fresh sum; the compiled verdicts are those of the reference under both rule sets; and under strict
rules no plan over-commits a node, however the node came to be what it is.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import Any

import pytest

from fastplan import Plan, codec
from fastplan.errors import InvalidInput, Reason
from fastplan.fit.demand import demand_of
from fastplan.fit.encode import encode_demand
from fastplan.fit.reference import check
from fastplan.fsm import Refused, StateMachine
from fastplan.planner import Rules, evaluate_plan, reference
from fastplan.planner.entry import EntryMaker
from fastplan.planner.view import OptimisticView
from fastplan.state import StateStore
from fastplan.state.plan_builder import ColumnarPlan, PlanBuilder
from fastplan.state.resource_shapes import shape_of
from fastplan.state.snapshot import StateSnapshot
from fastplan.structs import AllocatedResources, canonical_alloc, canonical_node
from tests.planner.random_plans import CLIENTS, GROUPS, JOB, new_id, random_alloc, random_dump, random_node, random_plan, random_resources
from tests.planner.test_verify import answer

STEPS = 25


class Session:
    """One cluster with its log, driven from a seed."""

    def __init__(self, seed: int) -> None:
        self.source = source = random.Random(seed)
        self.odd = source.choice((0.0, 0.0, 0.1))
        self.rules = source.choice((Rules.STRICT, Rules.STRICT, Rules.NOMAD))
        dump = random_dump(source, self.odd, nodes=source.choice((1, 3, 5))) | {"indexes": {"nodes": 5, "allocs": 5}}
        self.node_ids = [each["ID"] for each in dump["nodes"]]
        self.machine = StateMachine(StateStore.from_dump(dump))
        self.index = 10
        self.view = OptimisticView(lambda: self.machine.store, self.rules)
        numbers = itertools.count()
        self.maker = EntryMaker(lambda: self.machine.store, lambda: self.machine.applied, new_id=lambda: f"follow-up-{next(numbers)}")
        self.snapshots: list[tuple[StateSnapshot, Any]] = []
        self.outcomes: Counter[str] = Counter()
        self.command(codec.UpsertEvals([{"ID": "e1"}]))
        self.keep_snapshot()

    @property
    def store(self) -> StateStore:
        return self.machine.store

    def keep_snapshot(self) -> None:
        snapshot = self.store.snapshot()
        self.snapshots = [*self.snapshots[-3:], (snapshot, snapshot.to_dump())]

    def some_snapshot(self) -> StateSnapshot:
        return self.source.choice(self.snapshots)[0]

    def apply(self, entries: list[tuple[bytes, bytes]]) -> None:
        items = [(self.index + number, 1, entry, key) for number, (entry, key) in enumerate(entries, 1)]
        self.index += len(items)
        for result in self.machine.apply(items):
            self.outcomes["refused by the state" if isinstance(result, Refused) else "written"] += 1

    def command(self, command: codec.Command) -> None:
        self.apply([(codec.encode_command(command, self.index * 1000), b"")])

    # --- plans --------------------------------------------------------------------------------------------------------

    def record_plan(self) -> Plan:
        snapshot = self.some_snapshot()
        allocs = [each.to_api() | {"Job": JOB} for each in snapshot.allocs()]
        api = random_plan(self.source, {"nodes": [{"ID": each} for each in snapshot.node_ids() or ["gone"]], "allocs": allocs}, self.odd)
        return Plan.from_api(api | {"Job": JOB, "EvalID": self.source.choice(("", "e1", "nobody")), "EvalToken": str(self.index)})

    def columnar_plan(self) -> ColumnarPlan:
        source, snapshot = self.source, self.some_snapshot()
        builder = PlanBuilder(snapshot, snapshot.job("default", "planned"), all_at_once=source.random() < 0.1, randomness=source.randbytes)
        for _ in range(source.randint(1, 5) if snapshot.node_ids() else 0):
            node_id = source.choice(snapshot.node_ids())
            row = snapshot.node_row(node_id)
            assert row is not None
            here = [each.id for each in snapshot.allocs_by_node(node_id)]
            kind = source.random()
            if kind < 0.7:
                try:
                    shape, claims = shape_of(AllocatedResources.from_api(random_resources(source, 0.0)))
                except InvalidInput:
                    continue
                alloc_id = source.choice(here) if here and source.random() < 0.1 else ""
                builder.place(row, shape, source.choice(GROUPS), source.randrange(5), claims, alloc_id=alloc_id)
            elif here and kind < 0.85:
                builder.stop(row, source.choice(here), "no longer wanted", source.choice(("", "lost")))
            elif here:
                builder.preempt(row, source.choice(here), new_id(source))
        return builder.build()

    def compare(self, plan: Plan | ColumnarPlan) -> None:
        snapshot = self.source.choice((self.some_snapshot(), self.store.snapshot()))
        for rules in Rules:
            assert answer(evaluate_plan, snapshot, plan, rules) == answer(reference.evaluate_plan, snapshot, Plan.from_api(plan.to_api()), rules)

    def plans(self) -> None:
        plans = [self.columnar_plan() if self.source.random() < 0.4 else self.record_plan() for _ in range(self.source.randint(1, 4))]
        for plan in plans:
            self.compare(plan)
        before = {node_id: self.fits(node_id) for node_id in self.store.node_ids()}
        verdicts = [verdict for plan in plans if self.maker.obstacle(plan) is None for verdict in self.view.verify([plan], 1)]
        entries = []
        for verdict in verdicts:
            self.outcomes["error" if verdict.result is None else "partial" if verdict.result.partial else "full"] += 1
            if verdict.result is not None and not verdict.result.is_noop():
                entries.append((self.maker.encode(verdict, self.index * 1000 + 5), self.maker.key(verdict.plan)))
        if self.source.random() < 0.1:
            # The log failed.
            entries = []
        elif self.source.random() < 0.15:
            # Something comes between: what was verified does not hold any more.
            self.command(codec.DeleteNodes([self.source.choice(self.node_ids)]))
        self.apply(entries)
        self.view.drop(1)
        assert self.view.in_flight() == 0
        if self.rules is Rules.STRICT:
            for node_id in self.store.node_ids():
                assert self.fits(node_id) or not before[node_id], node_id

    # --- what else happens --------------------------------------------------------------------------------------------

    def something_else(self) -> None:
        source = self.source
        node_id = source.choice(self.node_ids)
        alloc_ids = [each.id for each in self.store.allocs()]
        some = source.sample(alloc_ids, min(3, len(alloc_ids)))
        kind = source.randrange(10)
        if kind < 2:
            self.command(codec.UpdateAllocsFromClient([codec.AllocClientUpdate(each, source.choice(CLIENTS)) for each in some]))
        elif kind == 2:
            self.command(codec.UpdateNodeStatus(node_id, source.choice(("ready", "ready", "down", "disconnected"))))
        elif kind == 3:
            self.command(codec.DeleteNodes([node_id]))
        elif kind == 4:
            self.command(codec.UpsertNodes([{"NodeResources": {}, **random_node(source, source.choice((node_id, "another")))}]))
        elif kind == 5:
            self.command(codec.DeleteAllocs([*some, "unknown"]))
        elif kind == 6:
            self.command(codec.UpsertJob(JOB | {"Version": source.randint(0, 3), "Stop": source.random() < 0.2}))
        elif kind == 7:
            self.command(codec.UpsertAllocs([random_alloc(source, new_id(source), node_id, self.odd) | {"Job": JOB} for _ in range(2)]))
        elif kind == 8:
            chunks = list(self.machine.snapshot())
            self.machine.restore(iter(chunks))
            assert list(self.machine.snapshot()) == chunks
            self.snapshots = []
            self.keep_snapshot()
        else:
            self.store.compact()

    # --- what must hold -----------------------------------------------------------------------------------------------

    def fits(self, node_id: str) -> bool:
        """Whether what is wanted on a node fits it. Whoever ignores collisions of ports does so for good: who came first is not known any more."""
        node = self.store.node(node_id)
        assert node is not None
        live = [canonical_alloc(each).copy() for each in self.store.allocs_by_node(node_id, terminal=False)]
        for alloc in live:
            if alloc.allocated_resources is not None:
                ports = alloc.allocated_resources.shared.ports
                alloc.allocated_resources.shared.ports = [port for port in ports if not port.ignore_collision]
        return check(canonical_node(node), live, strict=True, new_ids=()).code is Reason.FITS

    def sums_are_fresh(self) -> None:
        for node_id in self.store.node_ids():
            for physical in (True, False):
                counted = [
                    encode_demand(demand_of(canonical_alloc(each)))
                    for each in self.store.allocs_by_node(node_id)
                    if not each.is_client_terminal and (physical or not each.is_server_terminal)
                ]
                regular = [each for each in counted if not each.irregular]
                sums = [sum(each.cpu_mhz for each in regular), sum(each.memory_mib for each in regular), sum(each.disk_mib for each in regular)]
                assert self.store.node_used(node_id, physical=physical) == (*sums, len(counted)), node_id

    def run(self) -> None:
        for _ in range(STEPS):
            if self.source.random() < 0.6:
                self.plans()
            else:
                self.something_else()
            self.sums_are_fresh()
            if self.source.random() < 0.4:
                self.keep_snapshot()
        for snapshot, dump in self.snapshots:
            assert snapshot.to_dump() == dump
        fresh = StateStore.from_dump(self.store.to_dump())
        for node_id in self.store.node_ids():
            mine, other = self.store.node_row(node_id), fresh.node_row(node_id)
            assert mine is not None
            assert other is not None
            assert self.store.nodes_view.row(mine) | {"generation": 0} == fresh.nodes_view.row(other) | {"generation": 0}
            assert self.store.nodes_view.claims(mine) == fresh.nodes_view.claims(other)


def sessions(seeds: range) -> None:
    outcomes: Counter[str] = Counter()
    for seed in seeds:
        session = Session(seed)
        try:
            session.run()
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        outcomes += session.outcomes
    assert min(outcomes[each] for each in ("written", "refused by the state", "full", "partial", "error")) > len(seeds) / 4


def test_random_sessions() -> None:
    sessions(range(15))


@pytest.mark.slow
def test_many_random_sessions() -> None:
    sessions(range(1000, 1400))
