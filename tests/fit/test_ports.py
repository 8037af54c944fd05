"""Port accounting through the fit check and through the index (plan-apply 10.2, 3)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan import Allocation, Node
from fastplan.errors import InvalidInput, Reason
from fastplan.fit import PortIndex, allocs_fit
from tests.fit.fixture_f import FIVE, SIX, alloc, load, load_node, network, node_f, port, with_networks

PC = "reserved alloc port collision: collision when reserving port for "
NODE = "reserved node port collision: error parsing reserved_ports"


def holding(id: str, *ports: dict[str, Any], client: str = "running") -> dict[str, Any]:
    return alloc(id=id, ports=list(ports), client=client)


def reason(*allocs: dict[str, Any], node: dict[str, Any] | None = None) -> str:
    return allocs_fit(load_node(node), load(*allocs)).reason


def taken(number: int) -> str:
    return f"port {number} already in use"


@pytest.mark.parametrize(
    ("allocs", "expected"),
    [
        pytest.param([holding("a", port(8000)), holding("b", port(8000))], f"{PC}alloc b: [{taken(8000)}]", id="N1"),
        pytest.param([holding("a", port(8000)), holding("b", port(8000, SIX))], "", id="N2"),
        pytest.param([holding("a", port(9101, SIX))], f"{PC}alloc a: [{taken(9101)}]", id="N3"),
        pytest.param([holding("a", port(8443))], "", id="N4 on .5"),
        pytest.param([holding("a", port(8443, SIX))], f"{PC}alloc a: [{taken(8443)}]", id="N4 on .6"),
        pytest.param([holding("a", port(22, "172.16.0.1"))], "", id="N5"),
        pytest.param(
            [holding("a", port(8000), port(8001)), holding("b", port(8000), port(8001))], f"{PC}alloc b: [{taken(8000)} {taken(8001)}]", id="N6"
        ),
        pytest.param([holding("a", port(8000), port(8001)), holding("b", port(8000)), holding("c", port(8001))], f"{PC}alloc c: [{taken(8001)}]", id="N7"),
        pytest.param([holding("a", port(8000)), holding("b", port(8000), port(65536), port(9999))], f"{PC}alloc b: [invalid port 65536]", id="N8"),
        pytest.param([holding("a", port(-1))], f"{PC}alloc a: [invalid port -1]", id="N9"),
        pytest.param([with_networks("a", ports=[port(8000)], tasks={"t": [network(7777)]}), with_networks("b", group=[network(7777)])], "", id="N10"),
        pytest.param(
            [with_networks("a", group=[network(1), network(dynamic=(1,))])], f"{PC}network {FIVE} in alloc a: [{taken(1)}]", id="N11"
        ),
        pytest.param([with_networks("a", tasks={"t": [network(1), network(1)]})], "", id="N12"),
        pytest.param(
            [with_networks("a", group=[network(1)], tasks={"t": [network(dynamic=(1,))]})], f"{PC}network {FIVE} in task t of alloc a: [{taken(1)}]", id="N13"
        ),
        pytest.param([holding("a", port(0)), holding("b", port(0))], f"{PC}alloc b: [{taken(0)}]", id="N14"),
        pytest.param([holding("a", port(8000)), holding("b", port(8000, ignore=True))], "", id="N15"),
        pytest.param([holding("a", port(8000, ignore=True)), holding("b", port(8000))], f"{PC}alloc b: [{taken(8000)}]", id="N16"),
        pytest.param([holding("a", port(22, ignore=True))], "", id="N17"),
        pytest.param([with_networks("a", tasks={"t": [network(mbits=10**6)]})], "", id="N19"),
        pytest.param([holding("a", port(8000), client="complete"), holding("b", port(8000))], "", id="N23"),
    ],
)  # fmt: skip
def test_table(allocs, expected):
    result = allocs_fit(load_node(), load(*allocs))
    assert result.reason == expected
    assert result.code is (Reason.ALLOC_PORTS if expected else Reason.FITS)


def test_n18_flag_of_a_port_in_a_network_is_not_read():
    flagged = network(8000)
    flagged["ReservedPorts"][0]["IgnoreCollision"] = True
    assert reason(holding("a", port(8000)), with_networks("b", group=[flagged])) == f"{PC}network {FIVE} in alloc b: [{taken(8000)}]"


def test_n20_unreadable_text_of_the_node():
    node = node_f()
    node["ReservedResources"]["Networks"]["ReservedHostPorts"] = "80,abc"
    assert reason(node=node) == f'{NODE}: strconv.ParseUint: parsing "abc": invalid syntax'


def test_n21_unreadable_text_of_an_address():
    node = node_f()
    node["NodeResources"]["NodeNetworks"][0]["Addresses"][1]["ReservedPorts"] = "8-5"
    assert reason(node=node) == f'{NODE} for network "alt": invalid range: ending value (5) less than starting (8) value'


def test_n22_text_that_reaches_65536_is_invalid_where_it_applies():
    everywhere, one_address, nowhere = node_f(), node_f(), node_f()
    everywhere["ReservedResources"]["Networks"]["ReservedHostPorts"] = "65536"
    one_address["NodeResources"]["NodeNetworks"][0]["Addresses"][1]["ReservedPorts"] = "1-65536"
    for node in (everywhere, one_address):
        with pytest.raises(InvalidInput, match="ports below 65536"):
            reason(node=node)
        with pytest.raises(InvalidInput):
            PortIndex(Node.from_api(node))
        assert reason(alloc(99999), node=node) == "cpu"
    nowhere["ReservedResources"]["Networks"]["ReservedHostPorts"] = "65536"
    nowhere["NodeResources"]["NodeNetworks"] = []
    assert reason(node=nowhere) == ""


def test_the_first_problem_of_the_node_counts():
    """A bad text before the address that 65536 applies to is an error, after it the input is invalid."""
    node = node_f()
    addresses = node["NodeResources"]["NodeNetworks"][0]["Addresses"]
    addresses[0]["ReservedPorts"], addresses[1]["ReservedPorts"] = "x", "65536"
    assert reason(node=node).startswith(f'{NODE} for network "default"')
    addresses[0]["ReservedPorts"], addresses[1]["ReservedPorts"] = "65536", "x"
    with pytest.raises(InvalidInput):
        reason(node=node)
    node["ReservedResources"]["Networks"]["ReservedHostPorts"] = "y"
    assert reason(node=node) == f'{NODE}: strconv.ParseUint: parsing "y": invalid syntax'


@pytest.mark.parametrize("kind", ["Networks", "NodeNetworks"])
def test_null_network_of_a_node(kind):
    node = node_f()
    node["NodeResources"][kind] = [None]
    assert reason(alloc(99999), node=node) == "cpu"
    with pytest.raises(InvalidInput, match=rf"{kind}\[0\]"):
        reason(node=node)


def test_tasks_are_looked_at_by_name_and_the_last_collision_counts():
    colliding = with_networks("b", tasks={"z": [network(1)], "b": [network(2)], "t": [network(3)]})
    for numbers, name in [((1, 2), "z"), ((2, 3), "t"), ((2,), "b")]:
        holder = holding("a", *(port(number) for number in numbers))
        assert f"in task {name} of alloc b" in reason(holder, colliding)


def test_an_invalid_port_ends_its_list_only():
    index = PortIndex(load_node())
    text = index.add_allocs(load(with_networks("a", group=[network(1, 70000, 2, mbits=5), network(3)]), holding("b", port(3))))
    assert text == f"collision when reserving port for alloc b: [{taken(3)}]"
    assert [number for number in (1, 2, 3) if any(first <= number <= last for first, last in index.used_ports()[FIVE])] == [1, 3]


@pytest.mark.parametrize("number", [-1, 65536, 70000, 2**63 - 1, -(2**63)])
def test_numbers_out_of_range_mark_nothing(number):
    index = PortIndex(load_node())
    before = index.used_ports()
    assert f"invalid port {number}" in index.add_allocs(load(holding("a", port(number))))
    assert index.used_ports() == before


def test_global_list_reaches_networks_with_a_device_and_every_host_address():
    node = node_f()
    node["NodeResources"]["Networks"] = [{"Device": "eth0", "IP": "10.1.0.7"}, {"Mode": "bridge", "IP": "10.1.0.8"}]
    used = PortIndex(Node.from_api(node)).used_ports()
    assert used == {"10.1.0.7": [(22, 22), (9100, 9102)], FIVE: [(22, 22), (9100, 9102)], SIX: [(22, 22), (8443, 8443), (9100, 9102)]}


def test_reservations_may_overlap():
    """The same port named globally, on an address, and by two aliases of one address is no clash."""
    addresses = [
        {"Alias": "pub", "Address": "10.0.0.1", "ReservedPorts": "22,80"},
        {"Alias": "adm", "Address": "10.0.0.1", "ReservedPorts": "80-90"},
    ]
    node = node_f()
    node["NodeResources"]["NodeNetworks"] = [{"Addresses": addresses}]
    node["ReservedResources"]["Networks"]["ReservedHostPorts"] = "22"
    assert reason(alloc(), node=node) == ""
    assert [bool(reason(holding("a", port(number, "10.0.0.1")), node=node)) for number in (22, 443, 85)] == [True, False, True]
    index = PortIndex(Node.from_api(node))
    assert index.used_ports() == {"10.0.0.1": [(22, 22), (80, 90)]}
    assert index.host_networks == {"pub": ["10.0.0.1"], "adm": ["10.0.0.1"]}


def test_j6_host_network_is_made_from_the_older_list():
    node = node_f()
    node["NodeResources"]["NodeNetworks"] = None
    node["NodeResources"]["Networks"] = [{"Device": "eth0", "IP": "10.9.0.1"}, {"Mode": "bridge"}]
    assert PortIndex(Node.from_api(node)).host_networks == {"default": ["10.9.0.1"]}


def test_addresses_are_texts():
    """No wildcard, no protocol, no other spelling: the specification wins over what other schedulers do."""
    assert reason(holding("a", port(8080, "0.0.0.0")), holding("b", port(8080, FIVE))) == ""
    assert reason(holding("a", port(8080, "::1")), holding("b", port(8080, "0:0:0:0:0:0:0:1"))) == ""
    assert reason(holding("a", port(8080, "")), holding("b", port(8080, ""))) == f"{PC}alloc b: [{taken(8080)}]"


def test_two_tasks_of_one_group_with_the_same_port():
    twice = with_networks("a", tasks={"t1": [network(8080)], "t2": [network(8080)]})
    assert reason(twice) == f"{PC}network {FIVE} in task t2 of alloc a: [{taken(8080)}]"


def test_shared_port_of_an_updated_allocation_stays_taken():
    assert "port 9000" in reason(holding("a", port(9000)), holding("b", port(9000)))


def test_adding_in_steps_equals_adding_at_once():
    allocs = load(*(holding(f"a{index}", port(8000 + index // 2), port(9000 + index)) for index in range(8)))
    at_once, in_steps = PortIndex(load_node()), PortIndex(load_node())
    last = at_once.add_allocs(allocs)
    assert [text for one in allocs if (text := in_steps.add_allocs([one]))][-1] == last
    assert at_once.used_ports() == in_steps.used_ports()


# --- against a naive model ----------------------------------------------------------------------------------------------

ADDRESSES = st.sampled_from([FIVE, SIX, "172.16.0.1", ""])
NUMBERS = st.sampled_from([-1, 0, 21, 22, 8000, 8001, 8443, 9100, 9103, 65535, 65536])


def random_alloc(id: str) -> st.SearchStrategy[dict[str, Any]]:
    entries = st.lists(st.builds(port, NUMBERS, ADDRESSES, ignore=st.booleans()), max_size=3)
    networks = st.lists(st.builds(network, NUMBERS, dynamic=st.lists(NUMBERS, max_size=2).map(tuple), address=ADDRESSES), max_size=2)
    tasks = st.dictionaries(st.sampled_from(["t", "u"]), networks, max_size=2)
    client = st.sampled_from(["running", "running", "unknown", "failed"])
    return st.builds(
        lambda shared, group, own, status: with_networks(id, ports=shared, group=group, tasks=own) | {"ClientStatus": status}, entries, networks, tasks, client
    )


def naive_accounting(node: Node, allocs: list[Allocation]) -> tuple[str, dict[str, set[int]]]:
    """Plan-apply 3.4 word by word, one set of ports for each address."""
    used: dict[str, set[int]] = {address: {p for a, b in ranges for p in range(a, b + 1)} for address, ranges in PortIndex(node).used_ports().items()}
    reason = ""
    for one in allocs:
        if one.client_status in ("complete", "failed", "lost"):
            continue
        resources = one.allocated_resources
        assert resources is not None
        lists = [(f"alloc {one.id}", [(p.host_ip, p.value, p.ignore_collision) for p in resources.shared.ports])]
        if not resources.shared.ports:
            networks = [("", net) for net in resources.shared.networks]
            networks += [(f"task {name} of ", resources.tasks[name].networks[0]) for name in sorted(resources.tasks) if resources.tasks[name].networks]  # type: ignore[union-attr]
            lists = [
                (f"network {net.ip} in {owner}alloc {one.id}", [(net.ip, p.value, False) for p in [*net.reserved_ports, *net.dynamic_ports]])
                for owner, net in networks
                if net is not None
            ]
        for owner, wanted in lists:
            texts = []
            for address, number, ignores in wanted:
                if number < 0 or number >= 65536:
                    texts = [f"invalid port {number}"]
                    break
                if number not in used.setdefault(address, set()):
                    used[address].add(number)
                elif not ignores:
                    texts.append(f"port {number} already in use")
            if texts:
                reason = f"collision when reserving port for {owner}: [{' '.join(texts)}]"
    return reason, used


@given(st.tuples(*(random_alloc(f"a{index}") for index in range(4))))
def test_index_agrees_with_the_naive_model(dicts):
    node, allocs = load_node(), load(*dicts)
    index = PortIndex(node)
    reason, used = naive_accounting(node, allocs)
    assert index.add_allocs(allocs) == reason
    held = {address: {p for a, b in ranges for p in range(a, b + 1)} for address, ranges in index.used_ports().items()}
    assert {address: ports for address, ports in held.items() if ports} == {address: ports for address, ports in used.items() if ports}
    for ranges in index.used_ports().values():
        assert ranges == sorted(ranges)
        assert all(before[1] + 1 < after[0] for before, after in itertools.pairwise(ranges))


@given(st.tuples(*(random_alloc(f"a{index}") for index in range(3))))
def test_a_port_is_fine_exactly_if_all_but_its_first_holder_ignore(dicts):
    """Plan-apply 3.5, for `Shared.Ports` with numbers in range; the node's reservation is the first holder."""
    allocs = load(*(one | {"ClientStatus": "running"} for one in dicts))
    for one in allocs:
        assert one.allocated_resources is not None
        for task in one.allocated_resources.tasks.values():
            assert task is not None
            task.networks = []
        one.allocated_resources.shared.networks = []
        one.allocated_resources.shared.ports = [held for held in one.allocated_resources.shared.ports if 0 <= held.value < 65536]
    index = PortIndex(load_node())
    reserved = {(address, number) for address, ranges in index.used_ports().items() for a, b in ranges for number in range(a, b + 1)}
    holders: dict[tuple[str, int], list[bool]] = {key: [False] for key in reserved}
    for one in allocs:
        assert one.allocated_resources is not None
        for held in one.allocated_resources.shared.ports:
            holders.setdefault((held.host_ip, held.value), []).append(held.ignore_collision)
    fine = all(all(ignores for ignores in flags[1:]) for flags in holders.values())
    assert (index.add_allocs(allocs) == "") is fine
