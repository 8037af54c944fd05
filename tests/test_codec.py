"""Log entries: round trips, golden files, and bytes that are no entries."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan import codec
from fastplan.columns.ids import key_of, keys_of, text_of, texts_of
from fastplan.errors import CodecError, VersionUnsupported
from fastplan.fit._nodes import NodeTable
from fastplan.fit.interning import number_of, text_of_number
from fastplan.state._plan_view import PlanView

GOLDEN = Path(__file__).parent / "golden"
TIME_NS = 1_700_000_000_123_456_789

PORT, CORE, DEVICE, VOLUME = range(4)


def claim(kind: int, subject: Any = None, value: Any = 0, flags: int = 0) -> int:
    subject_number = 0 if kind == CORE else number_of(subject)
    value_number = number_of(value) if kind == DEVICE else value
    return kind << 62 | subject_number << 34 | value_number << 4 | flags


def columns(nodes: int = 0, **changes: Any) -> SimpleNamespace:
    """Columns of a plan on *nodes* nodes, empty but for what is given."""

    def array(name: str, kind: Any, default: Any) -> Any:
        return numpy.array(changes.pop(name, default), kind)

    ids = changes.pop("alloc_ids", [])
    stops, preemptions, by = changes.pop("stop_ids", []), changes.pop("preempt_ids", []), changes.pop("preempted_by", [])
    count = len(ids)
    return SimpleNamespace(
        node_rows=array("node_rows", numpy.uint32, range(nodes)),
        node_generations=array("node_generations", numpy.uint32, [1] * nodes),
        in_scope=array("in_scope", numpy.uint8, [1] * nodes),
        place_offsets=array("place_offsets", numpy.uint32, [0] * (nodes + 1)),
        alloc_ids=keys_of(ids),
        shape_index=array("shape_index", numpy.uint16, [0] * count),
        group_index=array("group_index", numpy.uint16, [0] * count),
        name_index=array("name_index", numpy.int32, range(count)),
        client_status=array("client_status", numpy.uint8, [1] * count),
        place_flags=array("place_flags", numpy.uint8, [0] * count),
        claim_offsets=array("claim_offsets", numpy.uint32, [0] * (count + 1)),
        claims=array("claims", numpy.uint64, []),
        stop_offsets=array("stop_offsets", numpy.uint32, [0] * (nodes + 1)),
        stop_ids=keys_of(stops),
        stop_note_index=array("stop_note_index", numpy.uint16, [0] * len(stops)),
        stop_client=array("stop_client", numpy.uint8, [0] * len(stops)),
        stop_notes=changes.pop("stop_notes", []),
        preempt_offsets=array("preempt_offsets", numpy.uint32, [0] * (nodes + 1)),
        preempt_ids=keys_of(preemptions),
        preempted_by=keys_of(by),
        groups=changes.pop("groups", ["web"]),
        **changes,
    )


def view_of(plan: Any) -> PlanView:
    """The columns bound, with as many shapes as they need."""
    return PlanView(plan, numpy.zeros((max(plan.shape_index.tolist(), default=-1) + 1, 4), numpy.int64))


def encoded(plan: Any, accepted: list[int] | None = None, kept: list[int] | None = None, shapes: list[int | bytes] | None = None, **changes: Any) -> bytes:
    values = {
        "eval_key": None,
        "namespace": "default",
        "job_id": "job",
        "job_version": 3,
        "time_ns": TIME_NS,
        "verified_at": 41,
        "answer": None,
        "cold": None,
    } | changes
    return codec.encode_plan(
        view_of(plan),
        plan.groups,
        plan.stop_notes,
        None if accepted is None else numpy.array(accepted, numpy.uint8),
        None if kept is None else numpy.array(kept, numpy.uint8),
        values["eval_key"],
        values["namespace"],
        values["job_id"],
        values["job_version"],
        values["time_ns"],
        values["verified_at"],
        [7] if shapes is None else shapes,
        values["answer"],
        values["cold"],
        text_of_number,
    )


def decoded(entry: bytes) -> codec.PlanEntry:
    found = codec.decode(entry)
    assert isinstance(found, codec.PlanEntry)
    return found


def gathered(*plans: codec.PlanEntry) -> Any:
    shape_rows = [numpy.arange(len(plan.shapes), dtype=numpy.uint32) + 100 for plan in plans]
    group_rows = [numpy.arange(len(plan.groups), dtype=numpy.uint32) + 200 for plan in plans]
    return codec.gather(list(plans), shape_rows, group_rows, NodeTable(), number_of)


def golden_plan() -> Any:
    return columns(
        3,
        node_rows=[4, 9, 2],
        node_generations=[1, 2, 7],
        place_offsets=[0, 2, 2, 3],
        alloc_ids=["11111111-2222-3333-4444-555555555555", "an id that is no UUID", "66666666-7777-8888-9999-aaaaaaaaaaaa"],
        shape_index=[0, 1, 0],
        group_index=[1, 0, 1],
        name_index=[0, -1, 2],
        client_status=[1, 1, 2],
        claim_offsets=[0, 3, 3, 5],
        claims=[
            claim(PORT, "10.0.0.1", 8080),
            claim(CORE, value=3),
            claim(DEVICE, ("acme", "gpu", "x1"), "g0"),
            claim(PORT, "10.0.0.1", 0, flags=1),
            claim(VOLUME, "data", flags=4),
        ],
        stop_offsets=[0, 0, 2, 2],
        stop_ids=["bbbbbbbb-0000-0000-0000-000000000001", "bbbbbbbb-0000-0000-0000-000000000002"],
        stop_note_index=[1, 0],
        stop_notes=[("not needed", "", ""), ("lost", "lost", "cccccccc-0000-0000-0000-000000000001")],
        preempt_offsets=[0, 0, 0, 1],
        preempt_ids=["dddddddd-0000-0000-0000-000000000001"],
        preempted_by=["66666666-7777-8888-9999-aaaaaaaaaaaa"],
        groups=["api", "wéb"],
    )


def golden_entries() -> dict[str, bytes]:
    """One entry of every kind, byte for byte the same for ever."""
    cold = codec.ColdPart(
        job={"ID": "job", "Namespace": "default", "Version": 3},
        extras={1: {"ID": "an id that is no UUID", "Name": "odd"}},
        deployment={"ID": "d1", "TaskGroups": {}},
        deployment_updates=[{"DeploymentID": "d0", "Status": "cancelled"}],
        preemption_evals=[{"ID": "e9", "TriggeredBy": "preemption"}],
        ineligible_nodes=["n7"],
        identities={"a": {"web": "signed"}},
    )
    answer = codec.encode_answer(codec.AnswerPart(["n8"], 40))
    changes: list[codec.Command] = [
        codec.UpsertNodes([{"ID": "n1", "Status": "ready"}]),
        codec.UpdateNodeStatus("n1", "down"),
        codec.UpdateNodeEligibility("n1", "ineligible"),
        codec.UpdateNodeDrain("n1", {"Deadline": 5}),
        codec.UpdateNodeDrain("n1", None, False),
        codec.DeleteNodes(["n1"]),
        codec.UpsertJob({"ID": "j", "Priority": 50}),
        codec.DeleteJob("default", "j"),
        codec.UpsertEvals([{"ID": "e1"}]),
        codec.DeleteEvals(["e1"]),
        codec.UpdateAllocsFromClient(
            [codec.AllocClientUpdate("a1", "running"), codec.AllocClientUpdate("a2", "failed", "boom", {"t": {}}, {"Healthy": False})]
        ),
        codec.UpsertAllocs([{"ID": "a1"}]),
        codec.DeleteAllocs(["a1"]),
        codec.UpsertDeployment({"ID": "d1"}),
        codec.UpdateDeploymentStatus("d1", "failed", "because"),
        codec.DeleteDeployments(["d1"]),
        codec.UpsertNamespaces([{"Name": "dev"}]),
        codec.UpsertNodePools([{"Name": "gpu"}]),
        codec.SetSchedulerConfig({"SchedulerAlgorithm": "spread"}),
    ]
    batch = codec.Batch([change for change in changes if not isinstance(change, codec.Batch)])
    # Younger than the batch.
    changes += [
        codec.UpdateAllocDesiredTransitions({"a1": {"Migrate": True}}),
        codec.PromoteDeployment("d1"),
        codec.PromoteDeployment("d1", ["web"]),
    ]
    return {
        "plan": encoded(golden_plan(), shapes=[5, b"content"], eval_key=bytes(range(16)), answer=answer, cold=codec.encode_cold(cold)),
        "plan-part": encoded(golden_plan(), accepted=[1, 0, 1], kept=[0], shapes=[5, b"content"], answer=answer),
        "plan-empty": encoded(columns(), shapes=[], namespace="", job_id=""),
        **{f"command-{number:02}-{type(change).__name__}": codec.encode_command(change, TIME_NS) for number, change in enumerate(changes)},
        "command-batch": codec.encode_command(batch, TIME_NS),
    }


@pytest.mark.parametrize("name", golden_entries())
def test_golden_entries_of_this_version(name: str) -> None:
    stored = bytes.fromhex((GOLDEN / f"entries-v{codec.VERSION}" / f"{name}.hex").read_text())
    assert golden_entries()[name] == stored
    found = codec.decode(stored)
    if isinstance(found, codec.TimedCommand):
        assert codec.encode_command(found.command, found.time_ns) == stored


@pytest.mark.parametrize("version", range(1, codec.VERSION + 1))
def test_entries_of_every_version_are_readable(version: int) -> None:
    files = sorted((GOLDEN / f"entries-v{version}").glob("*.hex"))
    assert len(files) >= 20
    for file in files:
        codec.decode(bytes.fromhex(file.read_text()))


def test_a_plan_comes_back() -> None:
    plan = decoded(golden_entries()["plan"])
    assert (plan.time_ns, plan.eval_key, plan.verified_at) == (TIME_NS, bytes(range(16)), 41)
    assert (plan.eval_id, decoded(golden_entries()["plan-part"]).eval_id) == ("00010203-0405-0607-0809-0a0b0c0d0e0f", "")
    assert decoded(encoded(columns(), shapes=[], eval_key=key_of("no UUID"))).eval_id == "no UUID"
    assert (plan.namespace, plan.job_id, plan.job_version) == ("default", "job", 3)
    assert (plan.groups, plan.shapes) == (["api", "wéb"], [5, b"content"])
    assert (plan.node_count, plan.placement_count, plan.claim_count, plan.stop_count, plan.preemption_count) == (2, 3, 5, 2, 1)
    rows, generations, ends = plan.nodes()
    assert (rows.tolist(), generations.tolist(), ends.tolist()) == ([4, 2], [1, 7], [2, 3])
    keys, notes = plan.stops()
    assert [(text_of(key)[-1], plan.notes[note]) for key, note in zip(keys, notes, strict=True)] == [
        ("1", ("lost", "lost", "cccccccc-0000-0000-0000-000000000001")),
        ("2", ("not needed", "", "")),
    ]
    victims, makers = plan.preemptions()
    assert (texts_of(victims), texts_of(makers)) == (["dddddddd-0000-0000-0000-000000000001"], ["66666666-7777-8888-9999-aaaaaaaaaaaa"])
    source = golden_plan()
    numbers, ids, node_rows, groups, shapes, names, clients, offsets, claims, gone, twins = gathered(plan)
    assert texts_of(ids) == texts_of(source.alloc_ids)
    assert (numbers.tolist(), node_rows.tolist(), groups.tolist(), shapes.tolist()) == ([0, 0, 0], [4, 4, 2], [201, 200, 201], [100, 101, 100])
    assert (names.tolist(), clients.tolist(), offsets.tolist()) == ([0, -1, 2], [1, 1, 2], [0, 3, 3, 5])
    assert claims.tolist() == source.claims.tolist()
    assert gone == [0]
    assert not twins
    cold = codec.decode_cold(plan)
    assert codec.decode_answer(plan) == codec.AnswerPart(["n8"], 40)
    assert (cold.ineligible_nodes, cold.extras) == (["n7"], {1: {"ID": "an id that is no UUID", "Name": "odd"}})


def test_only_the_accepted_part_is_written() -> None:
    plan = decoded(golden_entries()["plan-part"])
    assert (plan.node_count, plan.placement_count, plan.claim_count, plan.stop_count, plan.preemption_count) == (2, 3, 5, 0, 0)
    plan = decoded(encoded(golden_plan(), accepted=[0, 1, 1], shapes=[1, 2]))
    assert (plan.node_count, plan.placement_count, plan.claim_count, plan.stop_count, plan.preemption_count) == (1, 1, 2, 2, 1)
    _, ids, rows, _, _, names, _, offsets, claims, _, _ = gathered(plan)
    assert (texts_of(ids), rows.tolist(), names.tolist(), offsets.tolist()) == (["66666666-7777-8888-9999-aaaaaaaaaaaa"], [2], [2], [0, 2])
    assert claims.tolist() == golden_plan().claims.tolist()[3:]


def test_numbers_of_this_process_stay_in_it() -> None:
    """The same plan gives the same bytes however many texts were interned before."""
    before = encoded(columns(1, place_offsets=[0, 1], alloc_ids=["a" * 36], claim_offsets=[0, 1], claims=[claim(PORT, "first address", 1)]))
    for number in range(100):
        number_of(f"noise {number} {before!r}")
    after = columns(1, place_offsets=[0, 1], alloc_ids=["a" * 36], claim_offsets=[0, 1], claims=[claim(PORT, "second address", 1)])
    assert encoded(after).replace(b"second address", b"first address")[40:80] == before[40:80]
    assert gathered(decoded(encoded(after)))[8].tolist() == after.claims.tolist()


def test_many_texts_take_the_hash_table() -> None:
    count = 1000
    plan = columns(
        1,
        place_offsets=[0, count],
        alloc_ids=[f"id {number}" for number in range(count)],
        claim_offsets=range(count + 1),
        claims=[claim(PORT, f"10.{number // 250}.{number % 250}.1", number) for number in range(count)],
    )
    assert gathered(decoded(encoded(plan)))[8].tolist() == plan.claims.tolist()


def test_texts_of_every_length_keep_their_numbers() -> None:
    """Short texts lie in the table of what this process knows, long ones elsewhere; equal beginnings are told apart."""
    subjects = [f"{'x' * size}{end}" for size in range(36, 56) for end in "ab"]
    devices = [("vendor" * size, "gpu", f"name {end}") for size in range(1, 9) for end in "ab"]
    claims = [claim(PORT, subject, 7) for subject in subjects] + [claim(DEVICE, device, subject) for device, subject in zip(devices, subjects, strict=False)]
    count = len(claims)
    plan = columns(1, place_offsets=[0, count], alloc_ids=[f"id {number}" for number in range(count)], claim_offsets=range(count + 1), claims=claims)
    entry = decoded(encoded(plan))
    # Met for the first time, and known.
    for _ in range(2):
        assert gathered(entry, entry)[8].tolist() == claims * 2


def test_gather_puts_plans_behind_each_other() -> None:
    first, second = decoded(golden_entries()["plan"]), decoded(golden_entries()["plan-part"])
    numbers, ids, _, _, _, _, _, offsets, claims, gone, twins = gathered(first, second, first)
    assert numbers.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert len(ids) == 9
    assert offsets.tolist() == [0, 3, 3, 5, 8, 8, 10, 13, 13, 15]
    assert claims.tolist() == golden_plan().claims.tolist() * 3
    assert gone == [0, 1, 2]
    assert twins


def test_columns_that_contradict_each_other() -> None:
    for changes in (
        {"place_offsets": [0, 2, 1, 3]},
        {"shape_index": [0, 2, 0]},
        {"group_index": [0, 2, 0]},
        {"claim_offsets": [0, 3, 2, 5]},
        {"stop_note_index": [0, 2]},
        {"node_rows": [1]},
        {"alloc_ids": ["a"]},
    ):
        plan = golden_plan()
        for name, value in changes.items():
            setattr(plan, name, keys_of(["a"]) if name == "alloc_ids" else numpy.array(value, getattr(plan, name).dtype))
        with pytest.raises((CodecError, ValueError)):
            encoded(plan, shapes=[1, 2])


# --- bytes that are no entries ----------------------------------------------------------------------------------------


def test_an_unknown_version_names_both() -> None:
    entry = bytearray(golden_entries()["plan"])
    entry[2] = 9
    with pytest.raises(VersionUnsupported, match=f"version 9 found, this release reads up to version {codec.VERSION}") as caught:
        codec.decode(bytes(entry))
    assert (caught.value.found, caught.value.supported) == (9, codec.VERSION)


def test_every_cut_is_noticed() -> None:
    for entry in golden_entries().values():
        for end in range(len(entry)):
            with pytest.raises(CodecError):
                codec.decode(entry[:end])
        with pytest.raises(CodecError):
            codec.decode(entry + b"\0")


def test_every_flipped_bit_is_noticed() -> None:
    for entry in (golden_entries()["plan"], golden_entries()["command-batch"]):
        for place in range(len(entry)):
            for bit in (1, 16, 128):
                changed = bytearray(entry)
                changed[place] ^= bit
                with pytest.raises(CodecError):
                    codec.decode(bytes(changed))


def sealed(entry: bytearray) -> bytes:
    """Give a changed entry a right length and checksum, so that the checks behind them are reached."""
    multiplier, mask = 0x9E3779B97F4A7C15, 2**64 - 1
    entry[16:20] = len(entry).to_bytes(4, "little")
    total = 0x2545F4914F6CDD1D ^ len(entry)
    for place in range(0, len(entry), 8):
        if place != 8:
            total = ((total ^ int.from_bytes(entry[place : place + 8], "little")) * multiplier) & mask
            total ^= total >> 29
    entry[8:16] = total.to_bytes(8, "little")
    return bytes(entry)


def read_completely(entry: bytes) -> None:
    found = codec.decode(entry)
    if isinstance(found, codec.PlanEntry):
        codec.decode_cold(found)
        codec.decode_answer(found)
        assert len(found.shapes) < 1000
        found.nodes()
        found.stops()
        found.preemptions()
        gathered(found)


def test_the_test_can_seal() -> None:
    for entry in golden_entries().values():
        assert sealed(bytearray(entry)) == entry


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    for entry in (data, b"fP\x01" + data):
        with pytest.raises(CodecError):
            codec.decode(entry)


def test_forged_entries_never_crash() -> None:
    """Changed behind the header and sealed again: read, or refused with an error of ours."""
    source = random.Random(11)
    entries = list(golden_entries().values())
    outcomes = {True: 0, False: 0}
    for _ in range(6000):
        entry = bytearray(source.choice(entries))
        for _ in range(source.choice((1, 1, 2, 5))):
            place = source.randrange(32, len(entry)) if len(entry) > 32 else 0
            kind = source.randrange(4)
            if kind == 0:
                entry[place] = source.randrange(256)
            elif kind == 1:
                entry[place : place + 4] = source.choice((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\1\0\0\0"))
            elif kind == 2:
                del entry[place : place + source.randrange(1, 9)]
            else:
                entry[place:place] = bytes(source.randrange(256) for _ in range(source.randrange(1, 9)))
        if source.random() < 0.1 and len(entry) > 5:
            entry[4] ^= 1 << source.randrange(8)
        if len(entry) < 32:
            continue
        try:
            read_completely(sealed(entry))
            outcomes[True] += 1
        except CodecError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 200


# --- keys -------------------------------------------------------------------------------------------------------------


def test_keys_of_plans() -> None:
    """Equal for the same plan, different for every other one."""

    def key(plan: Any = None, eval_id: str = "e1", token: str = "t1", index: int = 5) -> bytes:
        return codec.plan_key(view_of(plan or golden_plan()), eval_id, token, index)

    ids = ["a", "b", "c"]
    plans: list[Any] = [columns(1, place_offsets=[0, count], alloc_ids=ids[:count]) for count in range(4)]
    plans += [columns(1, stop_offsets=[0, count], stop_ids=ids[:count], stop_notes=[("", "", "")]) for count in range(1, 4)]
    plans += [columns(1, place_offsets=[0, 2], alloc_ids=["b", "a"]), golden_plan()]
    keys = [key(plan) for plan in plans]
    keys += [key(eval_id="e2"), key(token="t2"), key(index=6), key(eval_id="e1t", token="1"), key(eval_id="", token="e1t1"), key(eval_id="t1", token="e1")]
    assert len(set(keys)) == len(keys)
    numbered = [codec.numbered_key(*parts) for parts in (("e1", "t1", 1), ("e1", "t1", 2), ("e1", "t2", 1), ("e2", "t1", 1), ("e1t", "1", 1), ("t1", "e1", 1))]
    assert len({*keys, *numbered}) == len(keys) + len(numbered)
    assert codec.numbered_key("e1", "t1", 2) == numbered[1]
    assert {len(each) for each in keys + numbered} == {24}
    assert key() == keys[len(plans) - 1]
