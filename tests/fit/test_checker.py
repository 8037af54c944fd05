"""The checker against the ordered reference, on clusters where everything happens: verdict and reason are equal, whatever computes them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fastplan.errors import InvalidInput, Reason, StateError
from fastplan.fit import allocs_fit, score_fit
from fastplan.fit._kernels import AskNumbers
from fastplan.fit._nodes import NodeTable
from fastplan.fit.asks import numbers_of
from fastplan.fit.checker import FitChecker, View
from fastplan.fit.encode import NodeNumbers, encode_node, status_flags
from fastplan.structs import AllocatedResources, Allocation, Job, Node
from fastplan.structs.canonical import canonical_alloc, canonical_node
from tests.fit.clusters import random_alloc, random_cluster, random_job


@pytest.fixture(params=["compiled", "reference"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs a test with both engines."""
    monkeypatch.setenv("FASTPLAN_KERNELS", request.param)
    name: str = request.param
    return name


def proposed(bound: list[Allocation], node: Node, asked: list[Allocation], view: View) -> list[Allocation]:
    """The list that the reference is to judge."""
    ids = {alloc.id for alloc in asked}
    kept = [
        alloc
        for alloc in bound
        if alloc.node_id == node.id and alloc.id not in ids and not alloc.is_client_terminal and not (view == "plan" and alloc.is_server_terminal)
    ]
    return sorted(kept, key=lambda alloc: alloc.id) + asked


def answer(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except InvalidInput as problem:
        return str(problem)


@pytest.mark.parametrize("view", ["scheduler", "plan"])
@pytest.mark.parametrize("seed", range(8))
def test_fits_equals_the_reference(seed: int, view: View, kernels: str) -> None:
    rng = random.Random(seed)
    nodes, allocs = random_cluster(rng, 12, 3)
    checker = FitChecker(nodes, allocs, view)
    for step in range(60):
        node = rng.choice(nodes)
        asked = [random_alloc(rng, f"new-{step}-{index}", node.id) for index in range(rng.choice([0, 1, 1, 1, 2]))]
        on_node = [alloc for alloc in allocs if alloc.node_id == node.id]
        if asked and on_node and rng.random() < 0.4:
            asked[0].id = rng.choice(on_node).id
        expected = answer(lambda: allocs_fit(node, proposed(allocs, node, asked, view)))
        assert answer(lambda: checker.fits(node.id, asked)) == expected
        if len(asked) == 1:
            assert answer(lambda: checker.fits(node.id, checker.prepare(asked[0]))) == expected


@pytest.mark.parametrize("view", ["scheduler", "plan"])
@pytest.mark.parametrize("seed", range(8))
def test_fits_rows_equals_the_reference(seed: int, view: View, kernels: str) -> None:
    rng = random.Random(100 + seed)
    nodes, allocs = random_cluster(rng, 20, 2)
    checker = FitChecker(nodes, allocs, view)
    rows = np.array([rng.randrange(len(nodes)) for _ in range(150)])
    asks = [random_alloc(rng, f"new-{index}", "") for index in range(len(rows))]
    for index in rng.sample(range(len(asks)), 20):
        asks[index].id = rng.choice(allocs).id

    def expected(row: int, ask: Allocation) -> int:
        result = answer(lambda: allocs_fit(nodes[row], proposed(allocs, nodes[row], [ask], view)))
        return int(Reason.INVALID if isinstance(result, str) else result.code)

    codes = checker.fits_rows(rows, checker.prepare_many(asks))
    assert codes.tolist() == [expected(row, ask) for row, ask in zip(rows, asks, strict=True)]
    assert checker.fits_rows(rows, asks).tolist() == codes.tolist()
    one = checker.fits_rows(np.arange(len(nodes)), asks[0])
    assert one.tolist() == [expected(row, asks[0]) for row in range(len(nodes))]
    ready = np.array([node.status == "ready" and node.scheduling_eligibility != "ineligible" for node in nodes])
    assert checker.mask(asks[0], ready_only=False).tolist() == (one == 0).tolist()
    assert checker.mask(asks[0]).tolist() == ((one == 0) & ready).tolist()


@pytest.mark.parametrize("view", ["scheduler", "plan"])
@pytest.mark.parametrize("seed", range(6))
def test_adding_and_removing_equals_binding_anew(seed: int, view: View, kernels: str) -> None:
    rng = random.Random(200 + seed)
    nodes, allocs = random_cluster(rng, 10, 3)
    checker = FitChecker(nodes, [], view)
    bound: list[Allocation] = []
    asks = [random_alloc(rng, f"ask-{index}", "") for index in range(5)]
    for _ in range(40):
        if bound and rng.random() < 0.4:
            leaving = rng.sample(bound, rng.randint(1, min(3, len(bound))))
            checker.remove([alloc.id for alloc in leaving])
            bound = [alloc for alloc in bound if alloc not in leaving]
        else:
            coming = [alloc for alloc in rng.sample(allocs, min(4, len(allocs))) if alloc not in bound]
            checker.add(coming)
            bound += coming
    fresh = FitChecker(nodes, bound, view)
    for ask in asks:
        assert checker.fits_rows(range(len(nodes)), ask).tolist() == fresh.fits_rows(range(len(nodes)), ask).tolist()
        assert checker.headroom(ask).tolist() == fresh.headroom(ask).tolist()


def copies_by_trying(checker: FitChecker, node: Node, ask: Allocation | tuple[Job, str], most: int) -> int:
    """How many copies can be bound one after the other."""
    count = 0
    while count < most:
        resources = checker.assign(node.id, ask)
        if resources is None:
            break
        job = ask.job if isinstance(ask, Allocation) else ask[0]
        copy = Allocation(
            id=f"copy-{count}", node_id=node.id, task_group="g", job=job, client_status="running", allocated_resources=AllocatedResources.from_api(resources)
        )
        assert checker.fits(node.id, copy).fit
        checker.add([copy])
        count += 1
    checker.remove([f"copy-{index}" for index in range(count)])
    return count


@pytest.mark.parametrize("seed", range(6))
def test_headroom_is_what_can_be_bound_one_after_the_other(seed: int, kernels: str) -> None:
    rng = random.Random(300 + seed)
    nodes, allocs = random_cluster(rng, 8, 2, odd=0.05)
    checker = FitChecker(nodes, allocs)
    jobs = [random_job(rng, number) for number in range(6)]
    asks: list[Any] = [(job, "g") for job in jobs]
    asks += [random_alloc(rng, "", "", odd=0) for _ in range(3)]
    for ask in asks:
        if isinstance(ask, Allocation):
            ask.client_status = "pending"
        headroom = checker.headroom(ask, ready_only=False)
        mask = checker.mask(ask, ready_only=False)
        for row, node in enumerate(nodes):
            tried = copies_by_trying(checker, node, ask, 25)
            assert min(int(headroom[row]), 25) == tried, (node.id, ask)
            assert mask[row] == (tried > 0)
        explained = checker.explain(ask)
        assert [explanation.fits for explanation in explained] == mask.tolist()
        for explanation in explained:
            # Where Nomad would crash there is no answer to explain.
            if not isinstance(answer(lambda node_id=explanation.node_id: checker.fits(node_id, ask)), str):  # type: ignore[misc]
                assert explanation.fits == (not explanation.failing)


@pytest.mark.parametrize("algorithm", ["binpack", "spread"])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_node_has_the_best_score(seed: int, algorithm: Any, kernels: str) -> None:
    rng = random.Random(400 + seed)
    nodes, allocs = random_cluster(rng, 15, 2)
    rng.shuffle(nodes)
    checker = FitChecker(nodes, allocs)
    allowed = np.array([rng.random() < 0.8 for _ in nodes])
    for _ in range(10):
        ask = random_alloc(rng, "ask", "", odd=0)
        ask.client_status = "pending"
        best: tuple[float, str] | None = None
        for row, node in enumerate(nodes):
            result = answer(lambda: checker.fits(node.id, ask))
            if isinstance(result, str) or not result.fit or not checker.mask(ask)[row] or not allowed[row]:
                continue
            key = (-round(score_fit(node, result.used, algorithm=algorithm), 10), node.id)
            best = key if best is None or key < best else best
        found = checker.best_node(ask, algorithm, allowed=allowed)
        assert (nodes[found].id if found >= 0 else None) == (best[1] if best else None)


@pytest.mark.parametrize("algorithm", ["binpack", "spread"])
def test_of_equally_good_nodes_the_permutation_decides(algorithm: Any, kernels: str) -> None:
    rng = random.Random(11)
    nodes, allocs = random_cluster(rng, 40, 2)
    checker = FitChecker(nodes, allocs)
    differing = 0
    for number in range(30):
        ask = random_alloc(rng, "ask", "", odd=0)
        ask.client_status = "pending"
        order = np.array(rng.sample(range(1000), len(nodes)), np.uint32)
        fitting = np.flatnonzero(checker.mask(ask)).tolist()
        for step in (0.0, 0.5, 18.0, 100.0):
            found = checker.best_node(ask, algorithm, score_step=step, permutation=order)
            keys = {row: (-(score // step if step else score), order[row]) for row in fitting for score in [checker.score(row, ask, algorithm)]}
            assert found == min(keys, key=keys.__getitem__, default=-1), number
            differing += found != checker.best_node(ask, algorithm)
    assert differing > 10
    for wrong in ({"permutation": np.zeros(3, np.uint32)}, {"score_step": -1.0}, {"score_step": float("nan")}):
        with pytest.raises(InvalidInput, match=next(iter(wrong))):
            checker.best_node(plain_alloc("c"), **wrong)


def test_a_choice_is_what_assign_gives(kernels: str) -> None:
    rng = random.Random(12)
    nodes, allocs = random_cluster(rng, 15, 2)
    checker = FitChecker(nodes, allocs)
    chosen = 0
    for number in range(30):
        ask = (random_job(rng, number), "g")
        for row, node in enumerate(nodes):
            choice = answer(lambda: checker.choose(row, ask))
            given = answer(lambda: checker.assign(node.id, ask))
            if choice is None or isinstance(choice, str):
                assert given == choice
                continue
            (alloc,) = choice.allocs
            assert alloc.allocated_resources.to_api() == given
            assert checker.fits(node.id, alloc).fit
            chosen += 1
    assert chosen > 20


def test_both_engines_choose_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(7)
    nodes, allocs = random_cluster(rng, 20, 3)
    checkers = []
    for name in ("compiled", "reference"):
        monkeypatch.setenv("FASTPLAN_KERNELS", name)
        checkers.append(FitChecker(nodes, allocs))
    for number in range(30):
        ask = (random_job(rng, number), "g")
        assert len({checker.best_node(ask) for checker in checkers}) == 1
        assert checkers[0].headroom(ask).tolist() == checkers[1].headroom(ask).tolist()
        assert checkers[0].explain(ask) == checkers[1].explain(ask)
        for node in nodes[:5]:
            assert answer(lambda: checkers[0].assign(node.id, ask)) == answer(lambda: checkers[1].assign(node.id, ask))
            assert answer(lambda: checkers[0].fits(node.id, ask)) == answer(lambda: checkers[1].fits(node.id, ask))


def plain_node(node_id: str = "n1", **more: Any) -> Node:
    resources = {
        "Processors": {"Topology": {"Cores": [{"ID": core, "BaseSpeed": 1000} for core in range(4)]}},
        "Memory": {"MemoryMB": 1000},
        "Disk": {"DiskMB": 1000},
        "NodeNetworks": [{"Mode": "host", "Device": "eth0", "Addresses": [{"Alias": "default", "Address": "10.0.0.1"}]}],
        "Devices": [{"Vendor": "nvidia", "Type": "gpu", "Name": "t4", "Instances": [{"ID": f"gpu{index}", "Healthy": True} for index in range(3)]}],
    }
    return Node.from_api({"ID": node_id, "Status": "ready", "NodeResources": resources, **more})


def plain_alloc(
    alloc_id: str, node_id: str = "n1", *, cpu: int = 100, ports: tuple[int, ...] = (), cores: tuple[int, ...] = (), gpus: tuple[str, ...] = ()
) -> Allocation:
    task: dict[str, Any] = {"Cpu": {"CpuShares": cpu, "ReservedCores": list(cores)}, "Memory": {"MemoryMB": 100}}
    if gpus:
        task["Devices"] = [{"Vendor": "nvidia", "Type": "gpu", "Name": "t4", "DeviceIDs": list(gpus)}]
    shared = {"DiskMB": 10, "Ports": [{"Label": f"p{port}", "Value": port, "HostIP": "10.0.0.1"} for port in ports]}
    return Allocation.from_api({"ID": alloc_id, "NodeID": node_id, "ClientStatus": "running", "AllocatedResources": {"Tasks": {"web": task}, "Shared": shared}})


def test_wrong_calls_have_clear_errors(kernels: str) -> None:
    checker = FitChecker([plain_node()], [plain_alloc("a")])
    with pytest.raises(StateError, match="'n9' is not bound"):
        checker.fits("n9", [])
    with pytest.raises(StateError, match="'n9' is not bound"):
        checker.assign("n9", plain_alloc("b"))
    with pytest.raises(StateError, match="'a' is bound already"):
        checker.add([plain_alloc("b"), plain_alloc("a")])
    with pytest.raises(StateError, match="'b' is bound already"):
        checker.add([plain_alloc("b"), plain_alloc("b")])
    with pytest.raises(StateError, match="'n9', which is not bound"):
        checker.add([plain_alloc("b"), plain_alloc("c", "n9")])
    checker.add([plain_alloc("b")])
    with pytest.raises(StateError, match="'c' is not bound"):
        checker.remove(["b", "c"])
    with pytest.raises(StateError, match="named twice"):
        checker.remove(["b", "b"])
    checker.remove(["b"])
    with pytest.raises(StateError, match="row 5 does not exist"):
        checker.fits_rows([0, 5], plain_alloc("c"))
    with pytest.raises(InvalidInput, match="as many asks as rows"):
        checker.fits_rows([0], [plain_alloc("c"), plain_alloc("d")])
    for rows in ([True, False], [0.0], ["n1"], [[0]], 0, [2**64]):
        with pytest.raises(InvalidInput, match="node_rows: expected integers in one dimension"):
            checker.fits_rows(rows, plain_alloc("c"))
    assert checker.fits_rows([], plain_alloc("c")).tolist() == []
    with pytest.raises(InvalidInput, match="allocs: expected an ask"):
        checker.fits("n1", 5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="an Allocation"):
        checker.mask("cpu")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="one of its groups"):
        checker.mask((random_job(random.Random(0), 1), "nope"))
    with pytest.raises(InvalidInput, match="algorithm"):
        checker.best_node(plain_alloc("c"), "worst")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="view"):
        FitChecker([], [], "mine")  # type: ignore[arg-type]
    with pytest.raises(StateError, match="bound twice"):
        FitChecker([plain_node(), plain_node()])


def test_an_ask_with_a_negative_amount_is_limited_by_the_others(kernels: str) -> None:
    checker = FitChecker([plain_node()])
    ask = plain_alloc("c", cpu=-5)
    assert checker.headroom(ask).tolist() == [10]
    assert copies_by_trying(checker, plain_node(), ask, 100) == 10


def test_copies_of_an_irregular_ask_on_a_huge_node_are_counted_without_making_them(kernels: str) -> None:
    huge = plain_node()
    assert huge.node_resources is not None
    huge.node_resources.memory.memory_mb = huge.node_resources.disk.disk_mb = 2**62
    # 100 MiB of memory and 10 of disk each.
    assert int(FitChecker([huge]).headroom(plain_alloc("c", cpu=-5))[0]) == 2**62 // 100


def test_an_unknown_kernel_name_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FASTPLAN_KERNELS", "fast")
    with pytest.raises(InvalidInput, match="FASTPLAN_KERNELS"):
        FitChecker([])


def test_what_is_told_to_stop_counts_in_one_view_only(kernels: str) -> None:
    stopping = plain_alloc("a", ports=(8080,))
    stopping.desired_status = "stop"
    ask = plain_alloc("b", ports=(8080,))
    assert FitChecker([plain_node()], [stopping], "scheduler").fits("n1", ask).code is Reason.ALLOC_PORTS
    assert FitChecker([plain_node()], [stopping], "plan").fits("n1", ask).fit


def test_terminal_ones_can_be_bound_removed_and_replaced(kernels: str) -> None:
    done = plain_alloc("a", "gone")
    done.client_status = "complete"
    here = plain_alloc("b")
    here.client_status = "failed"
    checker = FitChecker([plain_node(NodeMaxAllocs=1)], [done, here])
    assert checker.fits("n1", plain_alloc("b")).used.cpu_mhz == 100
    checker.remove(["b"])
    assert checker.headroom(plain_alloc("c")).tolist() == [1]


def test_explanations_name_everything_and_who_holds_it(kernels: str) -> None:
    node = plain_node()
    holders = [plain_alloc("x", ports=(8080,), cores=(1,), gpus=("gpu0",), cpu=2500), plain_alloc("y", ports=(8081,), gpus=("gpu1",), cpu=1000)]
    checker = FitChecker([node], holders)
    [explanation] = checker.explain(plain_alloc("ask", ports=(8080, 8081, 9000), cores=(1,), gpus=("gpu0",), cpu=3000))
    failing = [(item.dimension, item.subject, item.asked, item.free, item.missing, item.held_by) for item in explanation.failing]
    assert failing == [
        ("cpu", "", 3000, 500, 2500, []),
        ("cores", "1", 1, 0, 1, ["x"]),
        ("port", "10.0.0.1:8080", 1, 0, 1, ["x"]),
        ("port", "10.0.0.1:8081", 1, 0, 1, ["y"]),
        ("device", "nvidia/gpu/t4/gpu0", 1, 0, 1, ["x"]),
    ]
    job = Job.from_api(
        {
            "ID": "j",
            "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t", "Resources": {"Cores": 4, "MemoryMB": 5000, "Devices": [{"Name": "gpu", "Count": 2}]}}]}],
        }
    )
    [explanation] = checker.explain((job, "g"))
    failing = [(item.dimension, item.subject, item.asked, item.free, item.missing, item.held_by) for item in explanation.failing]
    assert failing == [
        ("cpu", "", 3000, 500, 2500, []),
        ("cores", "", 4, 3, 1, ["x"]),
        ("memory", "", 5000, 800, 4200, []),
        ("device", "gpu", 2, 1, 1, ["x", "y"]),
    ]


def test_the_lowest_of_everything_is_assigned(kernels: str) -> None:
    checker = FitChecker([plain_node()], [plain_alloc("x", ports=(20000,), cores=(0,), gpus=("gpu0",))])
    job = Job.from_api(
        {
            "ID": "j",
            "TaskGroups": [
                {
                    "Name": "g",
                    "Networks": [
                        {"Mode": "host", "ReservedPorts": [{"Label": "http", "Value": 80}], "DynamicPorts": [{"Label": "a", "To": -1}, {"Label": "b", "To": 9}]}
                    ],
                    "Tasks": [{"Name": "t", "Resources": {"Cores": 2, "MemoryMB": 50, "Devices": [{"Name": "nvidia/gpu", "Count": 2}]}}],
                    "EphemeralDisk": {"SizeMB": 7},
                }
            ],
        }
    )
    resources = checker.assign("n1", (job, "g"))
    assert resources is not None
    assert resources["Shared"]["Ports"] == [
        {"Label": "http", "Value": 80, "To": 0, "HostIP": "10.0.0.1"},
        {"Label": "a", "Value": 20001, "To": 20001, "HostIP": "10.0.0.1"},
        {"Label": "b", "Value": 20002, "To": 9, "HostIP": "10.0.0.1"},
    ]
    assert resources["Shared"]["DiskMB"] == 7
    assert resources["Tasks"]["t"] == {
        "Cpu": {"CpuShares": 2000, "ReservedCores": [1, 2]},
        "Memory": {"MemoryMB": 50, "MemoryMaxMB": 0},
        "Devices": [{"Vendor": "nvidia", "Type": "gpu", "Name": "t4", "DeviceIDs": ["gpu1", "gpu2"]}],
    }


def test_wide_device_patterns_leave_narrow_ones_what_they_need(kernels: str) -> None:
    job = Job.from_api(
        {
            "ID": "j",
            "TaskGroups": [
                {
                    "Name": "g",
                    "Tasks": [
                        {"Name": "wide", "Resources": {"Devices": [{"Name": "gpu", "Count": 1}]}},
                        {"Name": "narrow", "Resources": {"Devices": [{"Name": "nvidia/gpu/t4", "Count": 2}]}},
                    ],
                }
            ],
        }
    )
    checker = FitChecker([plain_node()])
    assert checker.headroom((job, "g")).tolist() == [1]
    resources = checker.assign("n1", (job, "g"))
    assert resources is not None
    assert resources["Tasks"]["narrow"]["Devices"][0]["DeviceIDs"] == ["gpu0", "gpu1"]
    assert resources["Tasks"]["wide"]["Devices"][0]["DeviceIDs"] == ["gpu2"]


def test_networks_of_single_tasks_are_assigned(kernels: str) -> None:
    node = plain_node()
    assert node.node_resources is not None
    raw = node.to_api()
    raw["NodeResources"]["Networks"] = [{"Mode": "host", "Device": "eth0", "IP": "10.0.0.1", "CIDR": "10.0.0.1/32", "MBits": 100}]
    job = Job.from_api(
        {
            "ID": "j",
            "TaskGroups": [
                {
                    "Name": "g",
                    "Tasks": [
                        {
                            "Name": "t",
                            "Resources": {"Networks": [{"MBits": 60, "ReservedPorts": [{"Label": "x", "Value": 80}], "DynamicPorts": [{"Label": "y"}]}]},
                        }
                    ],
                }
            ],
        }
    )
    checker = FitChecker([Node.from_api(raw)])
    assert checker.headroom((job, "g")).tolist() == [1]
    resources = checker.assign("n1", (job, "g"))
    assert resources is not None
    [network] = resources["Tasks"]["t"]["Networks"]
    assert network["IP"] == "10.0.0.1"
    assert [port["Value"] for port in network["ReservedPorts"] + network["DynamicPorts"]] == [80, 20000]


def test_readers_see_one_moment_while_somebody_writes() -> None:
    nodes = [plain_node(f"n{index}") for index in range(50)]
    checker = FitChecker(nodes)
    pair = [plain_alloc(f"a{index}", f"n{index}", ports=(8080,)) for index in range(50)]
    ask = checker.prepare(plain_alloc("ask", ports=(8080,)))
    batch = checker.prepare_many([ask] * 50)
    rows = np.arange(50)
    problems: list[Any] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            for codes in (checker.fits_rows(rows, ask), checker.fits_rows(rows, batch), checker.headroom(ask)):
                if len(set(codes.tolist())) != 1:
                    problems.append(codes)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(200):
        checker.add(pair)
        checker.remove([alloc.id for alloc in pair])
    done.set()
    for reader in readers:
        reader.join()
    assert not problems


class Lookup:
    """Nodes and allocations by row, as a state would give them."""

    def __init__(self, nodes: list[Node], allocs: list[Allocation]) -> None:
        self.nodes = [canonical_node(node) for node in nodes]
        self.rows = {node.id: row for row, node in enumerate(nodes)}
        self.allocs = {alloc.id: canonical_alloc(alloc) for alloc in allocs if not alloc.is_client_terminal}

    def row_of(self, node_id: str) -> int | None:
        return self.rows.get(node_id)

    def node(self, row: int) -> Node | None:
        return self.nodes[row] if row < len(self.nodes) else None

    def alloc(self, alloc_id: str) -> tuple[int, Allocation] | None:
        alloc = self.allocs.get(alloc_id)
        return None if alloc is None else (self.rows[alloc.node_id], alloc)

    def allocs_on(self, row: int) -> list[Allocation]:
        return [alloc for alloc in self.allocs.values() if self.rows[alloc.node_id] == row]


@pytest.mark.parametrize("view", ["scheduler", "plan"])
@pytest.mark.parametrize("seed", range(4))
def test_a_checker_on_a_table_equals_one_that_was_bound(seed: int, view: View) -> None:
    rng = random.Random(500 + seed)
    nodes, allocs = random_cluster(rng, 12, 3)
    table = NodeTable()
    rows = {
        node.id: table.allocate(encode_node(canonical_node(node)), status_flags(canonical_node(node).status, canonical_node(node).scheduling_eligibility))[0]
        for node in nodes
    }
    gone, _ = table.allocate(NodeNumbers(), 0)
    table.free(gone)
    for alloc in map(canonical_alloc, allocs):
        if not alloc.is_client_terminal:
            table.add_alloc(rows[alloc.node_id], AskNumbers(*numbers_of(alloc)), stopping=alloc.is_server_terminal)
    frozen = table.view(table.blocks.domain.pin())
    before = [frozen.claims(row) for row in range(frozen.row_count)]
    checker, bound = FitChecker.from_table(frozen, Lookup(nodes, allocs), view), FitChecker(nodes, allocs, view)
    assert checker.node_ids == [*bound.node_ids, ""]
    live = [alloc for alloc in allocs if not alloc.is_client_terminal]
    for step in range(20):
        asks: list[Any] = [random_alloc(rng, f"ask-{step}", ""), random_alloc(rng, rng.choice(live).id, ""), (random_job(rng, step), "g")]
        for ask in asks:
            assert checker.fits_rows(range(len(nodes)), ask).tolist() == bound.fits_rows(range(len(nodes)), ask).tolist()
            assert checker.headroom(ask).tolist() == [*bound.headroom(ask).tolist(), 0]
            assert checker.best_node(ask) == bound.best_node(ask)
            assert checker.explain(ask) == bound.explain(ask)
            node = rng.choice(nodes)
            assert answer(lambda: checker.fits(node.id, ask)) == answer(lambda: bound.fits(node.id, ask))
        for each in (checker, bound):
            each.add([random_alloc(random.Random(step), f"new-{step}", nodes[step % len(nodes)].id)])
        if step % 3 == 2 and live:
            leaving = live.pop(rng.randrange(len(live)))
            for each in (checker, bound):
                each.remove([leaving.id])
    assert [frozen.claims(row) for row in range(frozen.row_count)] == before
