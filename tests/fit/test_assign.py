"""Choosing ports for an ask (schedulers.md 9.3)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan import Node
from fastplan.errors import InvalidInput, PortsUnavailable
from fastplan.fit import PortIndex, PortOffer
from tests.fit.fixture_f import FIVE, SIX, alloc, load, network, node_f, port, with_networks

FAILED = "dynamic port selection failed"


def index(low: int = 20000, high: int = 32000, *, node: dict[str, Any] | None = None, used: tuple[int, ...] = (), **resources: Any) -> PortIndex:
    """The index of node F with another dynamic range, and ports in use on its default address."""
    given = node_f() if node is None else node
    given["NodeResources"] |= {"MinDynamicPort": low, "MaxDynamicPort": high} | resources
    made = PortIndex(Node.from_api(given))
    assert made.add_allocs(load(alloc(id="holder", ports=[port(number) for number in used]))) == ""
    return made


def static(value: int, label: str = "s", network: str = "default", **more: Any) -> dict[str, Any]:
    return {"Label": label, "Value": value, "HostNetwork": network, **more}


def dynamic(label: str = "d", network: str = "default", **more: Any) -> dict[str, Any]:
    return {"Label": label, "HostNetwork": network, **more}


def ask(*ports: dict[str, Any]) -> dict[str, Any]:
    return {"ReservedPorts": [one for one in ports if "Value" in one], "DynamicPorts": [one for one in ports if "Value" not in one]}


def refusal(of: PortIndex, *ports: dict[str, Any]) -> str:
    with pytest.raises(PortsUnavailable) as caught:
        of.assign(ask(*ports))
    return str(caught.value)


def values(offer: list[PortOffer]) -> list[int]:
    return [one.value for one in offer]


def test_static_ports_come_first_and_keep_their_target():
    offer = index().assign(ask(dynamic(To=8080), static(443, To=-1), dynamic("e", "alt", To=-1)))
    assert offer == [PortOffer("s", 443, -1, FIVE), PortOffer("d", 20000, 8080, FIVE), PortOffer("e", 20001, 20001, SIX)]


def test_assign_books_nothing():
    ports = index()
    before = ports.used_ports()
    assert ports.assign(ask(dynamic(), static(80))) == ports.assign(ask(dynamic(), static(80)))
    assert ports.used_ports() == before


def test_static_port_in_use():
    assert refusal(index(used=(80,)), static(80, "http")) == "reserved port collision http=80"
    assert refusal(index(), static(22)) == "reserved port collision s=22"
    (offer,) = index(used=(80,)).assign(ask(static(80, IgnoreCollision=True)))
    assert (offer.value, offer.ignore_collision) == (80, True)
    assert values(index().assign(ask(static(80), static(80, "t")))) == [80, 80]


def test_static_port_once_for_each_address_of_the_alias():
    node = node_f()
    node["NodeResources"]["NodeNetworks"] = [{"Addresses": [{"Alias": "pub", "Address": "10.0.0.1"}, {"Alias": "pub", "Address": "10.0.0.2"}]}]
    ports = index(node=node)
    for address in ("10.0.0.1", "10.0.0.2"):
        (offer,) = ports.assign(ask(static(8080, network="pub")))
        assert offer.host_ip == address
        ports.add_allocs(load(alloc(id=address, ports=[port(8080, address)])))
    assert refusal(ports, static(8080, network="pub")) == "reserved port collision s=8080"


@pytest.mark.parametrize("value", [-1, 65536])
def test_static_port_out_of_range_is_noticed_only_on_a_known_network(value):
    assert refusal(index(), static(value)) == f"invalid port {value} (out of range)"
    assert refusal(index(), static(value, IgnoreCollision=True)) == f"invalid port {value} (out of range)"
    assert refusal(index(), static(value, network="nowhere")) == "no addresses available for nowhere network"


def test_network_without_addresses():
    assert refusal(index(), static(80, network="")) == "no addresses available for  network"
    assert refusal(index(), dynamic(network="nowhere")) == "no addresses available for nowhere network"


def test_lowest_free_port_without_a_random_source():
    assert values(index(used=(20000, 20001, 20003)).assign(ask(dynamic(), dynamic("e")))) == [20002, 20004]
    assert values(index(9100, 9104).assign(ask(dynamic(), dynamic("e")))) == [9103, 9104]


def test_two_dynamic_ports_of_one_ask_differ():
    both = [dynamic(), dynamic("e")]
    assert all(sorted(values(index(20000, 20001).assign(ask(*both), random.Random(seed)))) == [20000, 20001] for seed in range(1000))
    assert refusal(index(20000, 20001), *both, dynamic("f")) == FAILED


def test_dynamic_ports_differ_across_networks_and_from_static_ones():
    for seed in range(50):
        drawn = values(index(20000, 20003).assign(ask(static(20001), dynamic(), dynamic("e", "alt"), dynamic("f", "alt")), random.Random(seed)))
        assert sorted(drawn) == [20000, 20001, 20002, 20003]


def test_dynamic_port_falls_over_to_the_next_address():
    node = node_f()
    node["NodeResources"]["NodeNetworks"] = [{"Addresses": [{"Alias": "default", "Address": FIVE}, {"Alias": "default", "Address": SIX}]}]
    (offer,) = index(20000, 20000, node=node, used=(20000,)).assign(ask(dynamic()))
    assert (offer.value, offer.host_ip) == (20000, SIX)


@pytest.mark.parametrize("rng", [None, random.Random(1)])
def test_edges_of_the_range(rng):
    assert values(index(23000, 23000).assign(ask(dynamic()), rng)) == [23000]
    assert refusal(index(23000, 23000, used=(23000,)), dynamic()) == FAILED
    assert values(index(23000, 22000).assign(ask(dynamic()), rng)) == [23000]  # inverted: still its lower bound
    with pytest.raises(PortsUnavailable, match=FAILED):
        index(23000, 22000, used=(23000,)).assign(ask(dynamic()), rng)
    assert values(index(65535, 70000).assign(ask(dynamic()), rng)) == [65535]
    with pytest.raises(PortsUnavailable, match=FAILED):
        index(70000, 2**62).assign(ask(dynamic()), rng)


def test_range_of_the_node():
    assert index(0, 0).dynamic_range == (20000, 32000)
    assert index(-5, 100).dynamic_range == (20000, 100)
    assert index(100, 0).dynamic_range == (100, 32000)


def test_upper_bound_is_found_by_the_search_only():
    """Tries are drawn below the upper bound, so the last port is given out only when no other is left."""
    drawn = {values(index(20000, 20003).assign(ask(dynamic()), random.Random(seed)))[0] for seed in range(200)}
    assert drawn == {20000, 20001, 20002}
    assert values(index(20000, 20003, used=(20000, 20001, 20002)).assign(ask(dynamic()), random.Random(1))) == [20003]


def test_same_seed_same_offer():
    wanted = ask(*(dynamic(f"d{number}") for number in range(5)))
    assert index().assign(wanted, random.Random(7)) == index().assign(wanted, random.Random(7))
    assert index().assign(wanted, random.Random(7)) != index().assign(wanted, random.Random(8))


@given(st.integers(1, 12), st.integers(0, 11), st.sets(st.integers(20000, 20012)), st.one_of(st.none(), st.integers(0, 5)))
def test_an_offer_fits_the_node_or_there_is_none(count, width, used, seed):
    ports = index(20000, 20000 + width, used=tuple(used))
    free = [number for number in range(20000, 20001 + width) if number not in used]
    wanted = ask(*(dynamic(f"d{number}") for number in range(count)))
    rng = None if seed is None else random.Random(seed)
    if len(free) < count:
        with pytest.raises(PortsUnavailable, match=FAILED):
            ports.assign(wanted, rng)
        return
    offer = ports.assign(wanted, rng)
    assert len(set(values(offer))) == count
    assert set(values(offer)) <= set(free)
    assert ports.add_allocs(load(alloc(id="new", ports=[port(one.value, one.host_ip) for one in offer]))) == ""


# --- networks of single tasks -------------------------------------------------------------------------------------------

OLD = [{"Device": "eth0", "IP": "10.2.0.1", "CIDR": "10.2.0.1/32", "MBits": 100}, {"Mode": "bridge", "IP": "10.2.0.9"}]


def task_refusal(of: PortIndex, **wanted: Any) -> str:
    with pytest.raises(PortsUnavailable) as caught:
        of.assign_task(wanted)
    return str(caught.value)


def test_task_network():
    ports = index(Networks=OLD)
    offer = ports.assign_task({"MBits": 50, "ReservedPorts": [{"Label": "m", "Value": 80}], "DynamicPorts": [{"Label": "d", "To": -1}, {"Label": "e"}]})
    assert (offer.ip, offer.device, offer.mbits) == ("10.2.0.1", "eth0", 50)
    assert offer.reserved_ports == (PortOffer("m", 80, 0, "10.2.0.1"),)
    assert offer.dynamic_ports == (PortOffer("d", 20000, 20000, "10.2.0.1"), PortOffer("e", 20001, 0, "10.2.0.1"))
    assert ports.used_ports()["10.2.0.1"] == [(22, 22), (9100, 9102)]


def test_bandwidth_counts_here_and_comes_first():
    ports = index(Networks=OLD)
    assert task_refusal(ports, MBits=101, ReservedPorts=[{"Value": -1}]) == "bandwidth exceeded"
    assert ports.assign_task({"MBits": 100}).mbits == 100
    ports.add_allocs(load(with_networks("a", tasks={"t": [network(mbits=60)]})))
    assert ports.assign_task({"MBits": 40}).mbits == 40
    assert task_refusal(ports, MBits=41) == "bandwidth exceeded"
    ports.add_allocs(load(with_networks("b", group=[network(70000, mbits=10)])))  # an invalid port: its bandwidth is not added
    assert ports.assign_task({"MBits": 40}).mbits == 40


def test_refusals_of_task_networks():
    ports = index(23000, 23000, Networks=OLD)
    assert task_refusal(ports, ReservedPorts=[{"Label": "m", "Value": 22}]) == "reserved port collision m=22"
    assert task_refusal(ports, ReservedPorts=[{"Label": "m", "Value": 22, "IgnoreCollision": True}]) == "reserved port collision m=22"
    assert task_refusal(ports, ReservedPorts=[{"Value": 65536}]) == "invalid port 65536 (out of range)"
    assert task_refusal(ports, DynamicPorts=[{"Label": "d"}, {"Label": "e"}]) == FAILED
    assert task_refusal(ports, ReservedPorts=[{"Value": 23000}], DynamicPorts=[{"Label": "d"}]) == FAILED
    assert task_refusal(index()) == "no networks available"
    assert task_refusal(index(Networks=OLD[1:])) == "no networks available"


def test_task_addresses_come_from_the_block_of_the_network():
    block = [{"Device": "eth0", "IP": "10.2.0.0", "CIDR": "10.2.0.1/30", "MBits": 100}]
    wanted = {"ReservedPorts": [{"Label": "m", "Value": 22}]}
    assert index(Networks=block).assign_task(wanted).ip == "10.2.0.1"  # the node's ports are reserved on its own address only
    huge = [{"Device": "eth0", "IP": "fd00::", "CIDR": "fd00::/64", "MBits": 100}]
    assert task_refusal(index(Networks=huge), MBits=101) == "bandwidth exceeded"
    assert index(Networks=[{"Device": "eth0", "IP": "10.2.0.7", "MBits": 1}]).assign_task({}).ip == "10.2.0.7"
    assert task_refusal(index(Networks=[{"Device": "eth0", "IP": "10.2.0.7", "CIDR": "nonsense"}])) == "no networks available"


def test_next_task_network_is_tried():
    two = [OLD[0], {"Device": "eth1", "IP": "10.3.0.1", "CIDR": "10.3.0.1/32", "MBits": 1000}]
    assert index(Networks=two).assign_task({"MBits": 500}).device == "eth1"


# --- unreadable asks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "path"),
    [
        ([], "ask"),
        ({"ReservedPorts": 1}, "ask.ReservedPorts"),
        ({"ReservedPorts": [{"Value": "80"}]}, "ask.ReservedPorts[0].Value"),
        ({"DynamicPorts": [{"Label": "d"}, {"To": True}]}, "ask.DynamicPorts[1].To"),
        ({"DynamicPorts": [{"HostNetwork": 5}]}, "ask.DynamicPorts[0].HostNetwork"),
        ({"MBits": 2**63}, "ask.MBits"),
    ],
)
def test_unreadable_ask(wanted, path):
    for assign in (index().assign, index().assign_task):
        with pytest.raises(InvalidInput) as caught:
            assign(wanted)
        assert caught.value.path == path
