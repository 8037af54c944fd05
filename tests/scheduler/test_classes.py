"""Classes of nodes (schedulers 8.2, row F38), datacenters and pools (2.6, row F36)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.scheduler.classes import computed_class
from fastplan.scheduler.globs import matches_datacenter, node_in_pool
from fastplan.structs import Node

GPU: dict[str, Any] = {
    "Vendor": "nvidia",
    "Type": "gpu",
    "Name": "t4",
    "Instances": [{"ID": "g0", "Healthy": True}],
    "Attributes": {"memory": {"Int": 16, "Unit": "GiB"}},
}
NODE: dict[str, Any] = {
    "ID": "n1",
    "Name": "one",
    "Datacenter": "dc1",
    "NodeClass": "big",
    "NodePool": "default",
    "Attributes": {"arch": "amd64", "unique.hostname": "one"},
    "Meta": {"rack": "r1", "unique.tag": "x"},
    "Status": "ready",
    "Drivers": {"exec": {"Detected": True, "Healthy": True}},
    "NodeResources": {"Memory": {"MemoryMB": 100}, "Devices": [GPU]},
}


def class_of(**more: Any) -> str:
    return computed_class(Node.from_api({**NODE, **more}))


SAME = {
    "ID": "n2",
    "Name": "two",
    "Status": "down",
    "Attributes": {"arch": "amd64", "unique.hostname": "two", "unique.more": "y"},
    "Meta": {"rack": "r1"},
    "Drivers": {},
    "HostVolumes": {"data": {"Name": "data", "Path": "/srv"}},
    "NodeResources": {
        "Memory": {"MemoryMB": 200},
        "Devices": [{**GPU, "Instances": [], "Attributes": {**GPU["Attributes"], "unique.serial": {"String": "7"}}}],
    },
}
OTHER = {
    "Datacenter": "dc2",
    "NodeClass": "small",
    "NodePool": "gpu",
    "Attributes": {"arch": "arm64"},
    "Meta": {"rack": "r1", "x.unique.y": "z"},
    "NodeResources": {"Devices": [{**GPU, "Attributes": {}}]},
}


@pytest.mark.parametrize("field", sorted(SAME))
def test_f38_what_is_not_part_of_a_class(field):
    assert class_of(**{field: SAME[field]}) == class_of()


@pytest.mark.parametrize("field", sorted(OTHER))
def test_what_is_part_of_a_class(field):
    assert class_of(**{field: OTHER[field]}) != class_of()


def test_a_class_is_stable():
    """The number is part of the contract: dumps hold it, and blocked evaluations name it."""
    assert class_of() == "v1:8630435772597834572"
    assert computed_class(Node()) == "v1:17667060552619557512"


def test_the_order_of_keys_does_not_count():
    assert class_of(Meta={"a": "1", "b": "2"}) == class_of(Meta={"b": "2", "a": "1"})


def test_a_node_that_says_its_class_is_believed():
    assert class_of(ComputedClass="v1:7") == "v1:7"


def test_a_node_without_resources_or_with_odd_devices_has_a_class():
    assert class_of(NodeResources=None) != class_of()
    assert class_of(Meta={"half": "\\ud800"}) != class_of(Meta={"half": "?"})
    assert class_of(NodeResources={"Devices": [None, {"Attributes": {"odd": "x", "none": None}}]}).startswith("v1:")


@pytest.mark.parametrize(
    ("globs", "datacenter", "matches"),
    [
        (["us-*"], "us-east", True),
        (["us-*"], "eu-us-", False),
        (["us-*"], "us-", True),
        (["*"], "", True),
        (["dc?"], "dc1", True),
        (["dc?"], "dc12", False),
        (["dc?"], "dc", False),
        (["DC1"], "dc1", False),
        (["dc1", "dc2"], "dc2", True),
        ([], "dc1", False),
        ([""], "", True),
        (["*-?-*"], "eu-1-a", True),
        (["dc.1"], "dcx1", False),
        (["[ab]"], "a", False),
        (["a\\*"], "a*", False),
        (["*"], "two\nlines", True),
    ],
)
def test_f36_datacenters(globs, datacenter, matches):
    assert matches_datacenter(globs, datacenter) is matches


@pytest.mark.parametrize(("glob", "datacenter", "nomad", "strict"), [("d?1", "dc1", False, True), ("d?1", "d?1", True, True), ("d?*", "dc1", False, True)])
def test_a_question_mark_is_a_letter_as_recorded(glob, datacenter, nomad, strict):
    assert [matches_datacenter([glob], datacenter, strict=rules) for rules in (False, True)] == [nomad, strict]


@given(st.text(alphabet="ab-", max_size=6))
def test_a_name_without_wildcards_matches_itself_alone(name):
    assert matches_datacenter([name], name)
    assert not matches_datacenter([name], name + "x")
    assert matches_datacenter([name + "*"], name + "anything")


@pytest.mark.parametrize(
    ("pool", "of_node", "is_in"),
    [("all", "gpu", True), ("", "gpu", True), ("gpu", "gpu", True), ("gpu", "default", False), ("default", "", True), ("default", "gpu", False)],
)
def test_pools(pool, of_node, is_in):
    assert node_in_pool(pool, Node(node_pool=of_node)) is is_in
