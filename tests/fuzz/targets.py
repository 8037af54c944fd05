"""What is fuzzed: each target takes bytes, makes something hostile of them, and lets through any error that is not one of ours.

Records and plans start as good ones and are changed in a few places, so that the bytes reach what lies behind the first check.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

from fastplan import Allocation, Deployment, Evaluation, Job, Node, Plan, PlanResult, codec
from fastplan.errors import CodecError, FastplanError, InvalidInput, PlanError
from fastplan.fit import FitChecker, allocs_fit
from fastplan.fsm import StateMachine
from fastplan.planner import Rules, evaluate_plan, reference
from fastplan.state import StateStore
from fastplan.state.plans import PlanColumns
from tests.fit import fixture_f
from tests.test_codec import golden_entries, sealed

RECORDS = (Node, Job, Allocation, Evaluation, Deployment, Plan, PlanResult)
HOSTILE: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 65535, 65536, 70000, 2**31, 2**47, 2**63 - 1, -(2**63), 2**63, 2**70, 1.5, float("nan"), float("inf")),
    *("", "F", "a", "é", "\ud800", "\0", "x" * 36, "8000-70000", "complete", "lost", "unknown", "stop", [], {}, [None], {"": None}, [[[[[[]]]]]]),
)
FIVE = fixture_f.FIVE


class Bytes:
    """Reads decisions from bytes; zero once they are used up."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def below(self, limit: int) -> int:
        """Return a number below *limit*."""
        taken = self._data[self._at : self._at + 2]
        self._at += 2
        return int.from_bytes(taken, "little") % limit

    def pick(self, things: Any) -> Any:
        return things[self.below(len(things))]

    @property
    def left(self) -> bool:
        return self._at < len(self._data)


def changed(value: Any, source: Bytes) -> Any:
    """Return a copy of JSON that is changed in as many places as the bytes last for, at most 8."""
    root = [copy.deepcopy(value)]
    for _ in range(8):
        if not source.left:
            break
        holder: Any = root
        place: Any = 0
        while isinstance(holder[place], dict | list) and holder[place] and source.below(8):
            holder = holder[place]
            place = source.pick(sorted(holder, key=str)) if isinstance(holder, dict) else source.below(len(holder))
        kind = source.below(8)
        if kind == 0 and holder is not root:
            del holder[place]
        elif kind == 1 and isinstance(holder, list) and holder is not root:
            holder.append(copy.deepcopy(holder[place]))
        elif kind == 2 and isinstance(holder[place], dict):
            holder[place][source.pick(("ID", "Unheard", "Tasks", "Job", "NodeID"))] = copy.deepcopy(source.pick(HOSTILE))
        else:
            holder[place] = copy.deepcopy(source.pick(HOSTILE))
    return root[0]


@functools.cache
def good() -> dict[str, Any]:
    """Return one good record of each kind, and a dump and a plan that use much of what there is."""
    port, task = fixture_f.port, fixture_f.task
    job = {
        "ID": "job",
        "Namespace": "default",
        "Type": "service",
        "TaskGroups": [{"Name": "web", "Tasks": [{"Name": "t", "Resources": {"CPU": 10, "Cores": 0}}]}],
    }
    everything = {
        "Tasks": {"t": task(cores=(1,), devices=[fixture_f.gpu("g0")])},
        "Shared": {"DiskMB": 5, "Ports": [port(8000)], "Networks": [fixture_f.network(22, dynamic=(20000,))]},
    }
    allocs = [
        {"ID": alloc_id, "NodeID": "F", "JobID": "job", "TaskGroup": "web", "Name": f"job.web[{number}]", "AllocatedResources": resources, "Job": job}
        for number, (alloc_id, resources) in enumerate((("a", everything), ("b", {"Tasks": {"t": task()}, "Shared": {}})))
    ]
    node = {**fixture_f.node_f(), "ID": "F"}
    plan: dict[str, Any] = {
        "Job": job,
        "EvalID": "e",
        "NodeAllocation": {"F": [{**allocs[0], "ID": "c", "Job": None}, {**allocs[1], "Job": None}], "G": [{**allocs[1], "ID": "d", "NodeID": "G"}]},
        "NodeUpdate": {"F": [{"ID": "a", "ClientStatus": "lost"}]},
        "NodePreemptions": {"F": [{"ID": "b", "PreemptedByAllocation": "c"}]},
        "Deployment": {"ID": "x", "TaskGroups": {"web": {"PlacedCanaries": ["c"]}}},
    }
    dump: dict[str, Any] = {
        "nodes": [node, {**node, "ID": "G"}],
        "jobs": [job],
        "allocs": allocs,
        "evals": [{"ID": "e", "JobID": "job"}],
        "indexes": {"nodes": 5, "allocs": 6},
    }
    result = {key: plan[key] for key in ("NodeAllocation", "NodeUpdate", "NodePreemptions", "Deployment")} | {"RefreshIndex": 5}
    return {
        "records": dict(zip(RECORDS, (node, job, allocs[0], dump["evals"][0], plan["Deployment"], plan, result), strict=True)),
        "dump": dump,
        "plan": plan,
    }


def records(data: bytes) -> None:
    """A record loads and comes out as it went in, or is refused by name; the fit check answers whatever was loaded."""
    source = Bytes(data)
    cls = source.pick(RECORDS)
    api = changed(good()["records"][cls], source)
    try:
        record = cls.from_api(api)
    except InvalidInput as error:
        str(error).encode()
        return
    assert record.to_api() == api
    if not isinstance(record, Node | Allocation):
        return
    node = record if isinstance(record, Node) else Node.from_api(good()["dump"]["nodes"][0])
    alloc = record if isinstance(record, Allocation) else Allocation.from_api(good()["dump"]["allocs"][0])
    try:
        expected = allocs_fit(node, [alloc])
    except FastplanError:
        return
    found = FitChecker([node], []).fits(node.id, [alloc])
    assert (found.fit, found.reason, found.error) == (expected.fit, expected.reason, expected.error)


def dumps(data: bytes) -> None:
    """A dump loads and comes out so that it loads again, or is refused by name."""
    try:
        store = StateStore.from_dump(changed(good()["dump"], Bytes(data)))
    except InvalidInput:
        return
    dump = store.to_dump()
    assert StateStore.from_dump(dump).to_dump() == dump


def answer(run: Callable[..., Any], *arguments: Any) -> Any:
    """Return everything that a caller can see of an evaluation."""
    try:
        result = run(*arguments)
    except PlanError as error:
        return str(error)
    return result.to_api(), result.reasons, result.refresh_index


def plans(data: bytes) -> None:
    """The columns of a plan give the answer of the reference under both rule sets, and neither plan nor state changes."""
    source = Bytes(data)
    dump = changed(good()["dump"], source) if source.below(2) else good()["dump"]
    api = changed(good()["plan"], source)
    try:
        snapshot = StateStore.from_dump(dump).snapshot()
        plan = Plan.from_api(api)
    except InvalidInput:
        return
    before = snapshot.to_dump()
    for rules in Rules:
        assert answer(evaluate_plan, snapshot, plan, rules) == answer(reference.evaluate_plan, snapshot, Plan.from_api(api), rules)
    PlanColumns.of(plan, snapshot)
    assert plan.to_api() == api
    assert snapshot.to_dump() == before


@functools.cache
def seeds() -> tuple[bytes, ...]:
    return tuple(entry for _, entry in sorted(golden_entries().items()))


def entries(data: bytes) -> None:
    """A forged entry with a right checksum is applied or refused; only one that cannot be read stops the replica, with an error that says so."""
    source = Bytes(data)
    machine = StateMachine(StateStore.from_dump(good()["dump"]))
    forged = bytearray(source.pick(seeds()))
    for _ in range(8):
        if not source.left:
            break
        place = 32 + source.below(max(len(forged) - 32, 1))
        kind = source.below(4)
        if kind == 0:
            forged[place : place + 1] = bytes([source.below(256)])
        elif kind == 1:
            forged[place : place + 4] = source.pick((b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\1\0\0\0"))
        elif kind == 2:
            del forged[place : place + 1 + source.below(8)]
        else:
            forged[place:place] = bytes(source.below(256) for _ in range(1 + source.below(8)))
    try:
        machine.apply([(10, 1, sealed(forged), b"")])
        machine.store.to_dump()
    except FastplanError:
        return


COMMANDS: tuple[Callable[[dict[str, Any]], codec.Command], ...] = (
    lambda dump: codec.UpsertNodes(dump["nodes"]),
    lambda dump: codec.UpsertAllocs(dump["allocs"]),
    lambda dump: codec.UpsertJob(dump["jobs"][0]),
    lambda dump: codec.UpsertEvals(dump["evals"]),
    lambda dump: codec.UpsertDeployment(good()["plan"]["Deployment"] | dump["jobs"][0]),
    lambda dump: codec.Batch([codec.UpsertNodes(dump["nodes"]), codec.UpsertAllocs(dump["allocs"]), codec.DeleteNodes(["F"])]),
)


def commands(data: bytes) -> None:
    """A command is applied or refused. It never stops the replica, and a refused one changes nothing."""
    source = Bytes(data)
    make = source.pick(COMMANDS)
    try:
        entry = codec.encode_command(make(changed(good()["dump"], source)), 1)
        codec.decode(entry)
    except (CodecError, TypeError, KeyError, IndexError, AttributeError, OverflowError, UnicodeEncodeError):
        # The change made something that nobody could propose.
        return
    machine = StateMachine(StateStore.from_dump(good()["dump"]))
    before = machine.store.to_dump()
    (result,) = machine.apply([(10, 1, entry, b"")])
    after = machine.store.to_dump()
    if result is not None:
        assert after == before
    assert StateStore.from_dump(after).to_dump() == after


TARGETS: dict[str, Callable[[bytes], None]] = {
    "records": records,
    "dumps": dumps,
    "plans": plans,
    "entries": entries,
    "commands": commands,
}
