"""The reference reads any state that has the few look-ups it needs, and is what an explicit request gets."""

from __future__ import annotations

import os
import subprocess
import sys

from fastplan import Allocation, Job, Node
from fastplan.planner import Rules, evaluate_plan, reference
from fastplan.structs import canonical_alloc, canonical_node
from tests.planner.cases import F, alloc, node, on, plan


class Dicts:
    """A state of two dicts."""

    def __init__(self, nodes: list[Node], allocs: list[Allocation]) -> None:
        self._nodes = {one.id: canonical_node(one) for one in nodes}
        self._allocs = {one.id: canonical_alloc(one) for one in sorted(allocs, key=lambda one: one.id)}

    def node(self, node_id: str) -> Node | None:
        return self._nodes.get(node_id)

    def alloc(self, alloc_id: str) -> Allocation | None:
        return self._allocs.get(alloc_id)

    def allocs_by_node(self, node_id: str) -> list[Allocation]:
        return [one for one in self._allocs.values() if one.node_id == node_id]

    def job(self, namespace: str, job_id: str) -> Job | None:
        return None

    def table_index(self, name: str) -> int:
        return 3 if name == "nodes" else 0


def state() -> Dicts:
    stored = on(F, alloc(4000, id="a", desired="stop"), alloc(3000, id="b"))
    return Dicts([Node.from_api(node())], [Allocation.from_api(one) for one in stored])


def test_a_state_without_columns_is_evaluated_too() -> None:
    result = evaluate_plan(state(), plan({F: [alloc(4000, id="new")]}), Rules.NOMAD)
    assert [one.id for one in result.node_allocation[F]] == ["new"]
    result = evaluate_plan(state(), plan({F: [alloc(4000, id="new")]}), Rules.STRICT)
    assert (result.reasons, result.refresh_index) == ({F: "cpu"}, 3)


def test_a_change_leaves_the_stored_allocation_alone() -> None:
    stored = Allocation.from_api(alloc(id="a", AllocStates=[{"Value": "x"}]))
    before = stored.to_api()
    diff = Allocation(id="a", desired_description="gone", client_status="lost", modify_time=4)
    after = reference.changed(stored, diff)
    assert (after.desired_status, after.client_status, after.alloc_states, after.modify_time) == ("stop", "lost", [], 4)
    assert after.allocated_resources is stored.allocated_resources
    assert stored.to_api() == before


def test_ids_on_several_nodes_are_found() -> None:
    assert reference.repeated_ids(plan({"m": [alloc(id="a"), alloc(id="a")], "n": [alloc(id="b")]})) == set()
    assert reference.repeated_ids(plan({"m": [alloc(id="a")], "n": [alloc(id="a"), alloc(id="b")]})) == {"a"}


def test_the_reference_can_be_asked_for() -> None:
    program = "from fastplan.planner import evaluate; print(evaluate.REFERENCE_ONLY)"
    for kernels, told in (("reference", "True"), ("", "False")):
        run = subprocess.run([sys.executable, "-c", program], env={**os.environ, "FASTPLAN_KERNELS": kernels}, capture_output=True, text=True, check=True)
        assert run.stdout.strip() == told
