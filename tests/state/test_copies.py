"""Plans whose copies join as columns say the same as plans that list each of them."""

from __future__ import annotations

import copy
import random

import numpy

from fastplan.columns.ids import keys_of
from fastplan.state import StateStore
from fastplan.state.copies import Copies, plan_with_copies
from fastplan.state.plans import PlanColumns
from fastplan.state.resource_shapes import shape_of
from fastplan.structs import AllocatedResources, Plan
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job


def resources(cpu_mhz: int) -> AllocatedResources:
    return AllocatedResources.from_api({"Tasks": {"web": {"Cpu": {"CpuShares": cpu_mhz}, "Memory": {"MemoryMB": 10}}}, "Shared": {"DiskMB": 5}})


def random_plan(rng: random.Random) -> tuple[StateStore, Plan, list[Copies]]:
    job = service_job("web", group_api("a", count=50), group_api("b", count=50))
    nodes = [ready_node(f"n{number}") for number in rng.sample(range(30), rng.randint(1, 9))]
    store = StateStore.from_dump({"nodes": [node.to_api() for node in nodes], "jobs": [job.to_api()]})
    plan = Plan(eval_id="e", eval_token="t", priority=50, job=job, snapshot_index=store.latest_index(), number=rng.randint(1, 9))
    for node in nodes:
        for number in range(rng.choice((0, 0, 1, 2))):
            alloc = running_alloc(f"{node.id}-{number}", job, node.id, group=rng.choice("ab"), index=number)
            alloc.job = None
            kind = rng.choice(("place", "stop", "preempt"))
            if kind == "place":
                ports = [{"Label": "http", "Value": rng.randint(1, 9)}] if rng.random() < 0.5 else []
                alloc.allocated_resources = AllocatedResources.from_api({"Tasks": {}, "Shared": {"DiskMB": 5, "Ports": ports}})
                plan.node_allocation.setdefault(node.id, []).append(alloc)
            elif kind == "stop":
                alloc.desired_status, alloc.desired_description = "stop", rng.choice(("x", "y"))
                plan.node_update.setdefault(node.id, []).append(alloc)
            else:
                alloc.preempted_by_allocation = "p"
                plan.node_preemptions.setdefault(node.id, []).append(alloc)
    batches = []
    for batch in range(rng.randint(1, 3)):
        count = rng.randint(1, 12)
        rows = numpy.array([store.node_row(rng.choice(nodes).id) for _ in range(count)], numpy.uint32)
        shape, _ = shape_of(resources(rng.choice((100, 200))))
        ids = keys_of([f"00000000-0000-4000-8000-{batch:04}{number:08}" for number in range(count)])
        batches.append(Copies(rng.choice("ab"), shape, ids, rows, numpy.arange(count, dtype=numpy.int32)))
    return store, plan, batches


def test_records_and_columns_say_the_same():
    for seed in range(150):
        store, plan, batches = random_plan(random.Random(seed))
        state = store.snapshot()
        joined = plan_with_copies(plan, batches, state)
        assert (joined.number, joined.snapshot_index) == (plan.number, plan.snapshot_index)
        listed = copy.deepcopy(plan)
        for batch in batches:
            for alloc in batch.records(state, "e", plan.job):
                listed.node_allocation.setdefault(alloc.node_id, []).append(alloc)
        assert {node: [alloc.to_api() for alloc in allocs] for node, allocs in joined.node_allocation.items()} == {
            node: [alloc.to_api() for alloc in allocs or ()] for node, allocs in listed.node_allocation.items()
        }
        columns, expected = joined.columns, PlanColumns.of(listed, state)
        for name in (
            "node_ids", "node_rows", "node_generations", "in_scope", "place_offsets", "alloc_ids", "name_index", "client_status", "place_flags",
            "claim_offsets", "claims", "stop_offsets", "stop_ids", "stop_note_index", "stop_notes", "preempt_offsets", "preempt_ids",
            "preempted_by", "repeats_ids",
        ):  # fmt: skip
            assert numpy.array_equal(getattr(columns, name), getattr(expected, name)), (seed, name)
        groups = [[each.groups[number] for number in each.group_index] for each in (columns, expected)]
        assert groups[0] == groups[1]
        amounts = [[each.shapes[number].amounts for number in each.shape_index] for each in (columns, expected)]
        assert amounts[0] == amounts[1]


def test_copies_are_records_by_node():
    store = StateStore.from_dump({"nodes": [ready_node("n1").to_api(), ready_node("n2").to_api()]})
    rows = numpy.array([store.node_row("n2"), store.node_row("n1"), store.node_row("n2")], numpy.uint32)
    shape, _ = shape_of(resources(100))
    copies = Copies("a", shape, keys_of(["x", "y", "z"]), rows, numpy.array([4, 5, 6], numpy.int32))
    records = list(copies.records(store, "e", service_job("web"), store.node_row("n2")))
    assert [(alloc.name, alloc.node_id, alloc.eval_id) for alloc in records] == [("web.a[4]", "n2", "e"), ("web.a[6]", "n2", "e")]
    assert all(alloc.allocated_resources == resources(100) for alloc in records)
