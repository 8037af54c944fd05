"""Whatever happens to a store, usage, indexes and counts equal a fresh sum over its records, and old snapshots never change."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import numpy
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fastplan.fit.demand import demand_of
from fastplan.state import StateReader, StateSnapshot, StateStore
from fastplan.state.alloc_records import preemption_note
from fastplan.state.statuses import CLIENT_TEXTS, client_number
from fastplan.structs import Allocation, Job, Node
from tests.state.clusters import alloc_api, job_api, node_api, numbers, place, resources_api, uuid

NODES = [uuid(number) for number in range(4)] + ["node-with-an-odd-id"]
ALLOCS = [uuid(number) for number in range(100, 124)] + ["odd alloc"]
JOBS = ["job-a", "job-b"]
EVALS = [uuid(900), uuid(901), ""]
RESOURCES = [
    resources_api(),
    resources_api(cpu_mhz=500, ports=(8000, 7000)),
    resources_api(ports=(8000,), gpus=("gpu-1",)),
    resources_api(memory_mib=0, gpus=("gpu-0", "unknown-gpu")),
    resources_api(cpu_mhz=-5, ports=(70000,)),
]
SUPPLIES: list[dict[str, Any]] = [{}, {"cpu_mhz": 100}, {"reserved_ports": "8000-8010"}, {"status": "down"}, {"SchedulingEligibility": "ineligible"}]


def in_order(allocs: list[dict[str, Any]]) -> list[str]:
    return sorted(alloc["ID"] for alloc in allocs)


def is_terminal(alloc: dict[str, Any]) -> bool:
    return Allocation.from_api(alloc).is_terminal


class StoreModel(RuleBasedStateMachine):
    """Drives a store and a model of plain records; the model says what an API reader must see."""

    def __init__(self) -> None:
        super().__init__()
        self.store = StateStore()
        self.nodes: dict[str, dict[str, Any]] = {}
        self.allocs: dict[str, dict[str, Any]] = {}
        self.snapshots: list[tuple[StateSnapshot, dict[str, Any]]] = []
        self.index = 0

    def next_index(self) -> int:
        self.index += 1
        return self.index

    # --- nodes and jobs -------------------------------------------------------------------------------------------

    @rule(node_id=st.sampled_from(NODES), supply=st.sampled_from(SUPPLIES))
    def upsert_node(self, node_id: str, supply: dict[str, Any]) -> None:
        api = node_api(node_id, **supply)
        self.store.upsert_node(self.next_index(), Node.from_api(api))
        self.nodes[node_id] = api

    @precondition(lambda self: self.nodes)
    @rule(data=st.data())
    def delete_node(self, data: st.DataObject) -> None:
        node_id = data.draw(st.sampled_from(sorted(self.nodes)))
        self.store.delete_node(self.next_index(), node_id)
        del self.nodes[node_id]

    @precondition(lambda self: self.nodes)
    @rule(data=st.data(), status=st.sampled_from(["ready", "down", "disconnected"]))
    def update_node_status(self, data: st.DataObject, status: str) -> None:
        node_id = data.draw(st.sampled_from(sorted(self.nodes)))
        self.store.update_node_status(self.next_index(), node_id, status)
        self.nodes[node_id] = {**self.nodes[node_id], "Status": status}

    @rule(job_id=st.sampled_from(JOBS), version=st.integers(0, 8))
    def upsert_job(self, job_id: str, version: int) -> None:
        self.store.upsert_job(self.next_index(), Job.from_api(job_api(job_id, version=version)))

    @rule(job_id=st.sampled_from(JOBS))
    def delete_job(self, job_id: str) -> None:
        if self.store.job("default", job_id) is not None:
            self.store.delete_job(self.next_index(), "default", job_id)

    # --- allocations ----------------------------------------------------------------------------------------------

    @rule(
        alloc_id=st.sampled_from(ALLOCS),
        node_id=st.sampled_from(NODES),
        job_id=st.sampled_from(JOBS),
        eval_id=st.sampled_from(EVALS),
        resources=st.sampled_from(RESOURCES),
        client=st.sampled_from(CLIENT_TEXTS),
        desired=st.sampled_from(["run", "stop", "evict", ""]),
        name=st.sampled_from([None, "a name of its own"]),
    )
    def upsert_record(
        self, alloc_id: str, node_id: str, job_id: str, eval_id: str, resources: dict[str, Any], client: str, desired: str, name: str | None
    ) -> None:
        api = alloc_api(alloc_id, node_id, job_id=job_id, eval_id=eval_id, AllocatedResources=resources, ClientStatus=client, DesiredStatus=desired)
        if name is not None:
            api["Name"] = name
        self.store.upsert_allocs(self.next_index(), [Allocation.from_api(api)])
        stored = self.allocs.get(alloc_id)
        if stored is not None and client not in ("lost", "unknown"):
            api["ClientStatus"] = stored["ClientStatus"]
        api["CreateIndex"] = self.index if stored is None else stored["CreateIndex"]
        api["ModifyIndex"] = api["AllocModifyIndex"] = self.index
        self.allocs[alloc_id] = api

    @rule(data=st.data(), job_id=st.sampled_from(JOBS), eval_id=st.sampled_from(EVALS), resources=st.lists(st.sampled_from(RESOURCES[:4]), max_size=5))
    def place_columns(self, data: st.DataObject, job_id: str, eval_id: str, resources: list[dict[str, Any]]) -> None:
        free = [alloc_id for alloc_id in ALLOCS if alloc_id not in self.allocs][: len(resources)]
        if not free:
            return
        nodes = [data.draw(st.sampled_from(NODES)) for _ in free]
        place(self.store, self.next_index(), free, nodes, job_id=job_id, eval_id=eval_id, resources=resources[: len(free)])
        for position, (alloc_id, node_id) in enumerate(zip(free, nodes, strict=True)):
            self.allocs[alloc_id] = alloc_api(
                alloc_id,
                node_id,
                job_id=job_id,
                eval_id=eval_id,
                index=position,
                AllocatedResources=resources[position],
                CreateIndex=self.index,
                ModifyIndex=self.index,
                AllocModifyIndex=self.index,
            )

    def some_rows(self, data: st.DataObject) -> list[str]:
        chosen = data.draw(st.lists(st.sampled_from(sorted(self.allocs)), max_size=6, unique=True))
        return list(chosen)

    def rows(self, alloc_ids: list[str]) -> Any:
        return numbers(*(self.store.allocs_view.find(alloc_id) for alloc_id in alloc_ids))

    @precondition(lambda self: self.allocs)
    @rule(data=st.data(), status=st.sampled_from(CLIENT_TEXTS))
    def update_client_columns(self, data: st.DataObject, status: str) -> None:
        chosen = self.some_rows(data)
        self.store.update_client_status(self.next_index(), self.index, self.rows(chosen), numpy.array([client_number(status)], numpy.uint8))
        for alloc_id in chosen:
            self.allocs[alloc_id].update(ClientStatus=status, ModifyIndex=self.index)

    @precondition(lambda self: self.allocs)
    @rule(data=st.data(), status=st.sampled_from(CLIENT_TEXTS[1:]), description=st.sampled_from(["", "said the client"]))
    def update_client_records(self, data: st.DataObject, status: str, description: str) -> None:
        chosen = self.some_rows(data)
        said = [Allocation(id=alloc_id, client_status=status, client_description=description) for alloc_id in chosen]
        self.store.update_allocs_from_client(self.next_index(), [*said, Allocation(id="unknown id", client_status=status)])
        for alloc_id in chosen:
            self.allocs[alloc_id].update(ClientStatus=status, ModifyIndex=self.index)

    @precondition(lambda self: self.allocs)
    @rule(data=st.data(), client=st.sampled_from([None, "lost", "unknown"]))
    def stop(self, data: st.DataObject, client: str | None) -> None:
        chosen = self.some_rows(data)
        status = 255 if client is None else client_number(client)
        self.store.stop_rows(self.next_index(), self.index, self.rows(chosen), numbers(self.store.note("no longer wanted")), numpy.array([status], numpy.uint8))
        for alloc_id in chosen:
            changed = {"DesiredStatus": "stop", "DesiredDescription": "no longer wanted", "ModifyIndex": self.index, "AllocModifyIndex": self.index}
            self.allocs[alloc_id].update(changed, **({} if client is None else {"ClientStatus": client}))

    @precondition(lambda self: self.allocs)
    @rule(data=st.data(), by=st.sampled_from(ALLOCS))
    def preempt(self, data: st.DataObject, by: str) -> None:
        chosen = self.some_rows(data)
        note = self.store.notes.intern(preemption_note(by))
        self.store.preempt_rows(self.next_index(), self.index, self.rows(chosen), numbers(note))
        for alloc_id in chosen:
            changed = {"DesiredStatus": "evict", "DesiredDescription": f"Preempted by alloc ID {by}", "PreemptedByAllocation": by}
            self.allocs[alloc_id].update(changed, ModifyIndex=self.index, AllocModifyIndex=self.index)

    @precondition(lambda self: self.allocs)
    @rule(data=st.data())
    def delete_allocs(self, data: st.DataObject) -> None:
        chosen = self.some_rows(data)
        self.store.delete_allocs(self.next_index(), [*chosen, "unknown id"])
        for alloc_id in chosen:
            del self.allocs[alloc_id]

    # --- the store itself -----------------------------------------------------------------------------------------

    @rule()
    def take_snapshot(self) -> None:
        snapshot = self.store.snapshot()
        self.snapshots.append((snapshot, copy.deepcopy(snapshot.to_dump())))

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def drop_snapshot(self, data: st.DataObject) -> None:
        snapshot, dump = self.snapshots.pop(data.draw(st.integers(0, len(self.snapshots) - 1)))
        assert snapshot.to_dump() == dump

    @rule()
    def compact(self) -> None:
        self.store.compact()

    @rule()
    def go_on_elsewhere(self) -> None:
        frames = list(self.store.snapshot().save())
        twin = StateStore.load(frames)
        assert list(twin.snapshot().save()) == frames
        assert twin.to_dump() == self.store.to_dump()
        assert [twin.nodes_view.row(row)["generation"] for row in range(twin.nodes_view.row_count)] == [
            self.store.nodes_view.row(row)["generation"] for row in range(self.store.nodes_view.row_count)
        ]
        self.store = twin

    # --- what must hold -------------------------------------------------------------------------------------------

    @invariant()
    def the_records_are_those_of_the_model(self) -> None:
        assert [node.id for node in self.store.nodes()] == sorted(self.nodes)
        assert [alloc.id for alloc in self.store.allocs()] == sorted(self.allocs)
        assert len(self.store.allocs_view) == len(self.allocs)
        for alloc_id, expected in self.allocs.items():
            alloc = self.store.alloc(alloc_id)
            assert alloc is not None
            shown = alloc.to_api()
            for key, value in expected.items():
                assert shown.get(key, type(value)()) == value, (alloc_id, key)

    @invariant()
    def indexes_and_counts_are_those_of_the_model(self) -> None:
        check_indexes(self.store, self.allocs)

    @invariant()
    def usage_is_a_fresh_sum(self) -> None:
        check_usage(self.store, self.nodes, self.allocs)

    def teardown(self) -> None:
        fresh = StateStore.from_dump(self.store.to_dump())
        assert fresh.to_dump() == self.store.to_dump()
        for node_id in self.nodes:
            mine, theirs = self.store.node_row(node_id), fresh.node_row(node_id)
            assert mine is not None
            assert theirs is not None
            assert {**self.store.nodes_view.row(mine), "generation": 0} == {**fresh.nodes_view.row(theirs), "generation": 0}
            assert self.store.nodes_view.claims(mine) == fresh.nodes_view.claims(theirs)
        for snapshot, dump in self.snapshots:
            assert snapshot.to_dump() == dump


def check_indexes(state: StateReader, allocs: dict[str, dict[str, Any]]) -> None:
    """Compare every look-up of allocations with the model."""
    by_hand: dict[bool | None, list[dict[str, Any]]] = {None: list(allocs.values())}
    by_hand[True] = [alloc for alloc in allocs.values() if is_terminal(alloc)]
    by_hand[False] = [alloc for alloc in allocs.values() if not is_terminal(alloc)]
    for terminal, chosen in by_hand.items():
        for node_id in NODES:
            assert [alloc.id for alloc in state.allocs_by_node(node_id, terminal)] == in_order([a for a in chosen if a["NodeID"] == node_id])
        for job_id in JOBS:
            assert [alloc.id for alloc in state.allocs_by_job("default", job_id, terminal)] == in_order([a for a in chosen if a["JobID"] == job_id])
            assert [alloc.id for alloc in state.allocs_by_group("", job_id, "web", terminal)] == in_order([a for a in chosen if a["JobID"] == job_id])
        for eval_id in EVALS[:2]:
            assert [alloc.id for alloc in state.allocs_by_eval(eval_id, terminal)] == in_order([a for a in chosen if a["EvalID"] == eval_id])
    for job_id in JOBS:
        counts, live = state.group_counts("default", job_id, "web")
        clients = Counter(alloc["ClientStatus"] for alloc in allocs.values() if alloc["JobID"] == job_id)
        assert counts == [clients[text] for text in CLIENT_TEXTS]
        assert live == sum(alloc["JobID"] == job_id for alloc in by_hand[False])


def check_usage(state: StateReader, nodes: dict[str, dict[str, Any]], allocs: dict[str, dict[str, Any]]) -> None:
    """Compare what the node table sums up with a sum over plain records."""
    for node_id in nodes:
        on_node = [Allocation.from_api(alloc) for alloc in allocs.values() if alloc["NodeID"] == node_id]
        for physical in (True, False):
            counted = [demand_of(alloc) for alloc in on_node if not alloc.is_client_terminal and (physical or not alloc.is_server_terminal)]
            regular = [demand for demand in counted if not demand.irregular]
            used = state.node_used(node_id, physical=physical)
            assert used == (
                sum(demand.cpu_mhz for demand in regular),
                sum(demand.memory_mib for demand in regular),
                sum(demand.disk_mib for demand in regular),
                len(counted),
            )


StoreModel.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestStoreModel = StoreModel.TestCase
