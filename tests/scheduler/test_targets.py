"""What the sides of constraints stand for (schedulers 8.3): rows F15 and F16, and the recorded answers."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.scheduler import resolve_device_target, resolve_target
from fastplan.scheduler.feasible.checks import constraint_holds
from fastplan.scheduler.targets import TargetKey, is_unique, read_key, value_at
from fastplan.structs import Attribute, Constraint, Node
from tests.scheduler.constraint_answers import attribute_from, recorded

NODE = Node.from_api(
    {
        "ID": "n1",
        "Name": "one",
        "Datacenter": "dc1",
        "NodeClass": "",
        "NodePool": "gpu",
        "Attributes": {"kernel.name": "linux", "x}": "brace", "empty": "", "": "nameless"},
        "Meta": {"rack": "r1"},
    }
)
DEVICE: dict[str, Any] = {
    "Vendor": "nvidia",
    "Type": "gpu",
    "Name": "t4",
    "Instances": [{"ID": "g0"}, None, {"ID": "g1"}],
    "Attributes": {"memory": {"Int": 16, "Unit": "GiB"}, "mig": {"Bool": False}, "hollow": {}, "odd": "16GiB", "wrong": {"Int": "16"}, "truth": {"Int": True}},
}


def test_recorded_answers():
    for case in recorded("target"):
        target, node = case["input"]["target"], Node.from_api(case["input"]["node"])
        value, found = resolve_target(target, node)
        assert (value or "", found) == (case["answer"]["value"] or "", case["answer"]["found"]), case["id"]


def test_recorded_answers_for_devices():
    for case in recorded("device-target"):
        value, found = resolve_device_target(case["input"]["target"], case["input"]["device"])
        assert (value, found) == (attribute_from(case["answer"]["value"]), case["answer"]["found"]), case["id"]


@pytest.mark.parametrize(
    ("target", "value", "found"),
    [
        ("${node.unique.id}", "n1", True),
        ("${node.unique.name}", "one", True),
        ("${node.datacenter}", "dc1", True),
        ("${node.class}", "", True),
        ("${node.pool}", "gpu", True),
        ("${attr.kernel.name}", "linux", True),
        ("${attr.kernel.name", "linux", True),
        ("${attr.x}}", "brace", True),
        ("${attr.empty}", "", True),
        ("${attr.}", "nameless", True),
        ("${meta.rack}", "r1", True),
        ("${meta.}", "", False),
        ("${attr.nope}", "", False),
        ("${node.region}", "", False),
        ("${NODE.CLASS}", "", False),
        ("${", "", False),
        ("", "", True),
        ("plain", "plain", True),
        # F16: no part of a longer text is replaced.
        ("prefix-${attr.kernel.name}", "prefix-${attr.kernel.name}", True),
        ("${attr.kernel.name}-suffix", "", False),
    ],
)
def test_targets(target, value, found):
    assert resolve_target(target, NODE) == (value, found)


@pytest.mark.parametrize(
    ("target", "key"),
    [
        ("${attr.kernel.name}", TargetKey("attr", "kernel.name")),
        ("${meta.rack", TargetKey("meta", "rack")),
        ("${node.class}", TargetKey("node", "node_class")),
        ("${node.unique.id}", TargetKey("node", "id")),
        ("${node.region}", None),
        ("linux", None),
    ],
)
def test_what_a_target_reads(target, key):
    assert read_key(target) == key
    if key is not None:
        assert value_at(key, NODE) == resolve_target(target, NODE)


@pytest.mark.parametrize(
    ("target", "unique"),
    [
        ("${unique.x}", True),
        ("${node.unique.id}", True),
        ("${attr.unique.hostname}", True),
        ("${meta.unique.x}", True),
        ("${attr.x.unique.y}", False),
        ("u", False),
    ],
)
def test_targets_that_tell_nodes_of_a_class_apart(target, unique):
    assert is_unique(target) is unique


@pytest.mark.parametrize(
    ("target", "value", "found"),
    [
        ("${device.ids}", Attribute("g0,g1"), True),
        ("${device.model}", Attribute("t4"), True),
        ("${device.vendor}", Attribute("nvidia"), True),
        ("${device.type}", Attribute("gpu"), True),
        ("${device.attr.memory}", Attribute(16, "GiB"), True),
        ("${device.attr.mig}", Attribute(False), True),
        ("${device.attr.nope}", None, False),
        ("${device.serial}", None, False),
        ("4 GiB", Attribute(4, "GiB"), True),
        # What nobody can read is there, and has no value.
        ("${device.attr.hollow}", None, True),
        ("${device.attr.odd}", None, True),
        ("${device.attr.wrong}", None, True),
        ("${device.attr.truth}", None, True),
    ],
)
def test_device_targets(target, value, found):
    assert resolve_device_target(target, DEVICE) == (value, found)


def test_a_device_with_nothing():
    assert resolve_device_target("${device.ids}", {}) == (Attribute(""), True)
    assert resolve_device_target("${device.attr.memory}", {}) == (None, False)


def test_f15_a_constraint_on_a_node():
    linux = Constraint(ltarget="${attr.kernel.name}", operand="=", rtarget="linux")
    assert constraint_holds(linux, NODE)
    assert not constraint_holds(linux, Node(id="n2"))


def test_f16_a_text_with_a_target_inside_is_a_literal():
    assert not constraint_holds(Constraint(ltarget="prefix-${attr.kernel.name}", operand="=", rtarget="prefix-linux"), NODE)


def test_both_sides_may_be_targets():
    assert constraint_holds(Constraint(ltarget="${meta.rack}", operand="!=", rtarget="${attr.kernel.name}"), NODE)
    assert not constraint_holds(Constraint(ltarget="${meta.rack}", operand="=", rtarget="${meta.nope}"), NODE)
