"""The checks of one node (schedulers 8.5): rows F21 to F25, F37, F39, and the rules that differ."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan.rules import Rules
from fastplan.scheduler.feasible.checks import Problem, device_problem, driver_problem, is_on, network_problem, volume_source
from fastplan.scheduler.node_facts import NodeFacts
from fastplan.structs import Node, Port, RequestedDevice, VolumeRequest
from fastplan.testing.builders import group_api, ready_node, running_alloc, service_job, system_job
from tests.scheduler.feasibility import Checks, constraint

BOTH = pytest.mark.parametrize("rules", list(Rules))
HEALTHY = {"Detected": True, "Healthy": True}


def group_with_task(name: str = "web", *, resources: dict[str, Any] | None = None, task: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """Return a group of one exec task with further resources and fields of the task."""
    group = group_api(name, **more)
    group["Tasks"][0]["Resources"].update(resources or {})
    group["Tasks"][0].update(task or {})
    return group


def reason_on(node: Node, *groups: dict[str, Any], rules: Rules = Rules.STRICT, alloc_name: str = "") -> str:
    """Return why a node may not be used for the first group."""
    return Checks(service_job("web", *groups), [node], rules=rules).reasons(node.id, alloc_name=alloc_name)[0]


# --- drivers --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("drivers", "attributes", "reason"),
    [
        ({"exec": HEALTHY}, {}, ""),
        # F21
        ({"exec": {"Detected": True, "Healthy": False}}, {"driver.exec": "1"}, "missing drivers"),
        ({"exec": {"Detected": False, "Healthy": True}}, {}, "missing drivers"),
        ({"exec": {}}, {"driver.exec": "1"}, "missing drivers"),
        ({"exec": None}, {"driver.exec": "1"}, "missing drivers"),
        # F22
        ({}, {"driver.exec": "1"}, ""),
        ({}, {"driver.exec": "true"}, ""),
        ({}, {"driver.exec": "TRUE"}, ""),
        ({}, {"driver.exec": "yes"}, "missing drivers"),
        ({}, {"driver.exec": "0"}, "missing drivers"),
        ({}, {}, "missing drivers"),
        ({"docker": HEALTHY}, {}, "missing drivers"),
    ],
)
def test_f21_f22_drivers(drivers, attributes, reason, rules):
    assert reason_on(ready_node("n1", Drivers=drivers, Attributes=attributes), rules=rules) == reason


@BOTH
def test_every_task_needs_its_driver(rules):
    group = group_api()
    group["Tasks"].append({"Name": "side", "Driver": "qemu", "Resources": {"CPU": 1}})
    assert reason_on(ready_node("n1"), group, rules=rules) == "missing drivers"
    assert reason_on(ready_node("n1", Attributes={"driver.qemu": "t"}), group, rules=rules) == ""


def test_what_a_node_says_of_a_driver_is_its_own():
    """The class of a node holds attributes, and not what it says of drivers."""
    assert driver_problem(["exec"], ready_node("n1", Drivers={"exec": {}})) == Problem("missing drivers", of_class=False)
    assert driver_problem(["exec"], ready_node("n1", Drivers={})) == Problem("missing drivers", of_class=True)


# --- constraints ----------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (constraint("${attr.kernel.name}", "=", "linux"), ""),
        (constraint("${attr.kernel.name}", "=", "darwin"), "${attr.kernel.name} = darwin"),
        (constraint("${meta.rack}", "is_set"), "${meta.rack} is_set "),
        (constraint("${attr.kernel.name}", "nobody_knows", "linux"), "${attr.kernel.name} nobody_knows linux"),
        # F35
        (constraint("${attr.kernel.name}", "regexp", "("), "${attr.kernel.name} regexp ("),
        (constraint("${attr.kernel.name}", "version", "> nonsense"), "${attr.kernel.name} version > nonsense"),
        (constraint("${attr.kernel.name}", "semver", "~> 1.0"), "${attr.kernel.name} semver ~> 1.0"),
        (constraint("${node.region}", "=", ""), "${node.region} = "),
        ({}, "  "),
    ],
)
@pytest.mark.parametrize("level", ["job", "group", "task"])
def test_constraints_of_every_level_filter_with_their_text(asked, reason, level, rules):
    group = group_with_task(task={"Constraints": [asked]} if level == "task" else {}, **({"Constraints": [asked]} if level == "group" else {}))
    job = service_job("web", group, **({"Constraints": [None, asked]} if level == "job" else {}))
    assert Checks(job, [ready_node("n1")], rules=rules).reasons("n1") == [reason]


@BOTH
def test_the_first_failing_check_is_named(rules):
    """Job constraints, then drivers, then constraints of the group before those of its tasks."""
    failing = [constraint("${meta.a}", "is_set"), constraint("${meta.b}", "is_set"), constraint("${meta.c}", "is_set")]
    group = group_with_task(task={"Constraints": [failing[2]], "Driver": "qemu"}, Constraints=[failing[1]])
    nodes = {
        "n1": (None, "${meta.a} is_set "),
        "n2": ({"a": ""}, "missing drivers"),
        "n3": ({"a": ""}, "${meta.b} is_set "),
        "n4": ({"a": "", "b": ""}, "${meta.c} is_set "),
        "n5": ({"a": "", "b": "", "c": ""}, ""),
    }
    drivers: dict[str, Any] = {"Attributes": {"driver.qemu": "1"}}
    records = [ready_node(node_id, Meta=meta, **({} if node_id < "n3" else drivers)) for node_id, (meta, _) in nodes.items()]
    checks = Checks(service_job("web", group, Constraints=[failing[0]]), records, rules=rules)
    assert checks.reasons(*nodes) == [reason for _, reason in nodes.values()]


# --- devices --------------------------------------------------------------------------------------------------------


def device_group(name: str, count: int, *, broken: int = 0, vendor: str = "nvidia", kind: str = "gpu", **attributes: Any) -> dict[str, Any]:
    instances = [{"ID": f"{name}-{number}", "Healthy": number < count} for number in range(count + broken)]
    return {"Vendor": vendor, "Type": kind, "Name": name, "Instances": instances, "Attributes": attributes}


def device_node(*groups: dict[str, Any] | None) -> Node:
    node = ready_node("n1").to_api()
    node["NodeResources"]["Devices"] = list(groups)
    return Node.from_api(node)


def ask(name: str, count: int = 1, *constraints: dict[str, Any]) -> dict[str, Any]:
    return {"Name": name, "Count": count, "Constraints": list(constraints)}


@BOTH
@pytest.mark.parametrize(
    ("devices", "asks", "reason"),
    [
        ([device_group("t4", 1)], [ask("gpu")], ""),
        ([device_group("t4", 1)], [ask("nvidia/gpu")], ""),
        ([device_group("t4", 1)], [ask("nvidia/gpu/t4")], ""),
        ([device_group("t4", 1)], [ask("nvidia/gpu/a100")], "missing devices"),
        ([device_group("t4", 1)], [ask("amd/gpu")], "missing devices"),
        ([], [ask("gpu")], "missing devices"),
        ([None], [ask("gpu")], "missing devices"),
        ([device_group("t4", 0, broken=2)], [ask("gpu")], "missing devices"),
        ([device_group("t4", 1, broken=1)], [ask("gpu", 2)], "missing devices"),
        # F39
        ([device_group("t4", 1)], [ask("gpu"), ask("gpu")], "missing devices"),
        ([device_group("t4", 2)], [ask("gpu"), ask("gpu")], ""),
        # One request may take from several groups.
        ([device_group("t4", 1), device_group("a100", 1)], [ask("gpu", 2)], ""),
        ([device_group("t4", 1), device_group("a100", 1)], [ask("gpu", 3)], "missing devices"),
        ([device_group("t4", 1), device_group("a100", 1)], [ask("nvidia/gpu/t4"), ask("gpu")], ""),
        ([device_group("t4", 1), device_group("a100", 2)], [ask("gpu"), ask("nvidia/gpu/t4"), ask("nvidia/gpu/t4")], "missing devices"),
        ([device_group("t4", 1, memory={"Int": 16, "Unit": "GiB"})], [ask("gpu", 1, constraint("${device.attr.memory}", ">=", "8 GiB"))], ""),
        ([device_group("t4", 1, memory={"Int": 16, "Unit": "GiB"})], [ask("gpu", 1, constraint("${device.attr.memory}", ">=", "32 GiB"))], "missing devices"),
        ([device_group("t4", 1, memory="16GiB")], [ask("gpu", 1, constraint("${device.attr.memory}", ">=", "8 GiB"))], "missing devices"),
        ([device_group("t4", 1)], [ask("gpu", 1, constraint("${device.model}", "regexp", "("))], "missing devices"),
        ([device_group("t4", 1)], [ask("gpu", 10**9)], "missing devices"),
    ],
)
def test_f39_devices(devices, asks, reason, rules):
    assert reason_on(device_node(*devices), group_with_task(resources={"Devices": asks}), rules=rules) == reason


@BOTH
def test_requests_of_all_tasks_count_together(rules):
    group = group_with_task(resources={"Devices": [ask("gpu")]})
    group["Tasks"].append({"Name": "side", "Driver": "exec", "Resources": {"Devices": [ask("gpu")]}})
    assert reason_on(device_node(device_group("t4", 1)), group, rules=rules) == "missing devices"
    assert reason_on(device_node(device_group("t4", 2)), group, rules=rules) == ""


def test_strict_finds_some_way_to_share_devices_out():
    """As recorded, a request takes what comes first, and may leave nothing for one that is more particular."""
    node = device_node(device_group("t4", 1), device_group("a100", 1))
    group = group_with_task(resources={"Devices": [ask("gpu"), ask("nvidia/gpu/t4")]})
    assert reason_on(node, group, rules=Rules.NOMAD) == "missing devices"
    assert reason_on(node, group, rules=Rules.STRICT) == ""


def test_devices_by_the_thousand():
    node = device_node(device_group("t4", 1200), device_group("a100", 1200))
    group = group_with_task(resources={"Devices": [ask("gpu", 1200), ask("nvidia/gpu/t4", 1200)]})
    assert reason_on(node, group) == ""


def test_strict_compares_device_attributes_exactly():
    node = device_node(device_group("t4", 1, power={"Int": 1499, "Unit": "mW"}))
    group = group_with_task(resources={"Devices": [ask("gpu", 1, constraint("${device.attr.power}", ">", "1 W"))]})
    assert reason_on(node, group, rules=Rules.NOMAD) == "missing devices"
    assert reason_on(node, group, rules=Rules.STRICT) == ""


def test_kinds_of_devices_belong_to_a_class_and_their_health_does_not():
    facts = NodeFacts.of(device_node(device_group("t4", 0, broken=1)))
    wanted = [RequestedDevice(name="gpu", count=1)]
    assert device_problem(wanted, facts, exact=True) == Problem("missing devices", of_class=False)
    other = [RequestedDevice(name="fpga", count=1)]
    assert device_problem(other, facts, exact=True) == device_problem([*wanted, *other], facts, exact=True) == Problem("missing devices", of_class=True)


def possible(wanted: list[int], free: list[int], matching: list[list[int]]) -> bool:
    """Return whether requests can be served, by trying every way."""
    if not wanted:
        return True
    first, *others = wanted

    def shares(missing: int, places: list[int], left: list[int]) -> bool:
        if missing == 0:
            return possible(others, left, matching[1:])
        if not places:
            return False
        place, *rest = places
        return any(shares(missing - taken, rest, [*left[:place], left[place] - taken, *left[place + 1 :]]) for taken in range(min(missing, left[place]) + 1))

    return shares(first, matching[0], free)


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_sharing_devices_out_agrees_with_trying_every_way(seed):
    draw = random.Random(seed)
    names = ["a", "b", "c", "d"][: draw.randint(2, 4)]
    healthy = [draw.randint(0, 2) for _ in names]
    facts = NodeFacts.of(device_node(*(device_group(name, count) for name, count in zip(names, healthy, strict=True))))
    asked = [(draw.sample(names, draw.randint(1, 2) if draw.random() < 0.9 else 0), draw.randint(0, 2)) for _ in range(draw.randint(2, 5))]
    requests = []
    for allowed, count in asked:
        named = constraint("${device.model}", "regexp", f"^({'|'.join(allowed) or '-'})$")
        requests.append(RequestedDevice.from_api({"Name": "gpu", "Count": count, "Constraints": [named]}))
    matching = [[place for place, name in enumerate(names) if name in allowed] for allowed, _ in asked]
    assert (device_problem(requests, facts, exact=True) is None) == possible([count for _, count in asked], healthy, matching)
    if device_problem(requests, facts, exact=False) is None:
        assert device_problem(requests, facts, exact=True) is None


# --- networks -------------------------------------------------------------------------------------------------------


def network_node(*modes: str, aliases: tuple[str, ...] = ("default",), **more: Any) -> Node:
    node = ready_node("n1", **more).to_api()
    node["NodeResources"]["Networks"] = [{"Mode": mode, "Device": "eth0"} for mode in modes]
    node["NodeResources"]["NodeNetworks"] = [{"Mode": "host", "Device": "eth0", "Addresses": [{"Alias": alias, "Address": "10.0.0.1"} for alias in aliases]}]
    return Node.from_api(node)


@BOTH
@pytest.mark.parametrize(
    ("modes", "network", "reason"),
    [
        (["host"], {"Mode": "host"}, ""),
        ([""], {}, ""),
        # F23
        (["host"], {"Mode": "bridge"}, "missing network"),
        (["host", "bridge"], {"Mode": "bridge"}, ""),
        (["host"], {"Mode": "cni/mine"}, "missing network"),
        (["cni/mine"], {"Mode": "cni/mine"}, ""),
        (["host"], {"Mode": "none"}, ""),
    ],
)
def test_f23_networks(modes, network, reason, rules):
    assert reason_on(network_node(*modes), group_api(Networks=[network]), rules=rules) == reason


def test_without_any_network_nothing_but_none_fits():
    node = Node(id="n1")
    assert network_problem("host", [], node) == Problem("missing network", of_class=False)
    assert network_problem("none", [Port(label="p", host_network="x")], node) is None


@BOTH
@pytest.mark.parametrize("kind", ["ReservedPorts", "DynamicPorts"])
@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ("", ""),
        ("default", ""),
        ("private", ""),
        # F25
        ("public", 'missing host network "public" for port "http"'),
        ("${meta.net}", ""),
        ("${meta.other}", 'missing host network "elsewhere" for port "http"'),
        ("${meta.nope}", 'invalid host network "${meta.nope}" template for port "http"'),
    ],
)
def test_f25_host_networks(kind, asked, reason, rules):
    node = network_node("host", aliases=("default", "private"), Meta={"net": "private", "other": "elsewhere"})
    port = {"Label": "http", "Value": 80, "HostNetwork": asked}
    assert reason_on(node, group_api(Networks=[{kind: [port]}]), rules=rules) == reason


def test_an_alias_is_not_part_of_a_class():
    node = network_node("host")
    assert network_problem("host", [Port(label="p", host_network="public")], node) == Problem('missing host network "public" for port "p"', of_class=False)
    template = network_problem("host", [Port(label="p", host_network="${meta.x}")], node)
    own_template = network_problem("host", [Port(label="p", host_network="${meta.unique.x}")], node)
    assert template is not None
    assert own_template is not None
    assert (template.of_class, own_template.of_class) == (True, False)


def test_f24_a_group_without_a_network_after_one_with():
    """As recorded, the network of the group before is asked for."""
    first = group_api("a", Networks=[{"Mode": "bridge", "DynamicPorts": [{"Label": "p", "HostNetwork": "public"}]}])
    job = service_job("web", first, group_api("b"), group_api("c", Networks=[{"Mode": "host"}]))
    for rules, reason in ((Rules.NOMAD, "missing network"), (Rules.STRICT, "")):
        checks = Checks(job, [network_node("host")], rules=rules)
        assert checks.reasons("n1", group="b") == [""]
        assert checks.reasons("n1", group="a") == ["missing network"]
        assert checks.reasons("n1", group="c") == [""]
        checks = Checks(job, [network_node("host")], rules=rules)
        assert checks.reasons("n1", group="a") == ["missing network"]
        assert checks.reasons("n1", group="b") == [reason]


# --- secrets --------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(
    ("secrets", "reason"),
    [
        ([], ""),
        ([{"Name": "s", "Provider": "vault"}], ""),
        ([{"Name": "s", "Provider": "aws"}], "missing secrets provider"),
        ([{"Name": "s", "Provider": "vault"}, {"Name": "t", "Provider": "aws"}], "missing secrets provider"),
        ([None, "odd", {"Name": "s"}], ""),
    ],
)
def test_secrets_providers(secrets, reason, rules):
    node = ready_node("n1", Attributes={"plugins.secrets.vault.version": "1"})
    assert reason_on(node, group_with_task(task={"Secrets": secrets}), rules=rules) == reason


# --- volumes --------------------------------------------------------------------------------------------------------


def volume(source: str = "disk", **more: Any) -> dict[str, Any]:
    return {"Name": "data", "Type": "host", "Source": source, **more}


VOLUMES = {
    "disk": {"Name": "disk", "Path": "/srv"},
    "frozen": {"Name": "frozen", "Path": "/iso", "ReadOnly": True},
    "disk[1]": {"Name": "disk[1]", "Path": "/srv1"},
    "void": None,
}


@BOTH
@pytest.mark.parametrize(
    ("request_", "alloc_name", "reason"),
    [
        (volume(), "", ""),
        (volume("nowhere"), "", "missing compatible host volumes"),
        (volume("void"), "", "missing compatible host volumes"),
        # F37
        (volume("frozen"), "", "missing compatible host volumes"),
        (volume("frozen", ReadOnly=True), "", ""),
        (volume(ReadOnly=True), "", ""),
        (volume(PerAlloc=True), "web.web[1]", ""),
        (volume(PerAlloc=True), "web.web[2]", "missing compatible host volumes"),
        (volume(Type=""), "", ""),
        (volume("remote", Type="csi"), "", "missing CSI volume(s) remote"),
        (volume("remote", Type="csi", PerAlloc=True), "web.web[3]", "missing CSI volume(s) remote[3]"),
    ],
)
def test_f37_volumes(request_, alloc_name, reason, rules):
    node = ready_node("n1", HostVolumes=VOLUMES)
    assert reason_on(node, group_api(Volumes={"data": request_}), rules=rules, alloc_name=alloc_name) == reason


def test_the_source_of_a_volume_of_its_own():
    request = VolumeRequest(source="disk", per_alloc=True)
    assert [volume_source(request, name) for name in ("web.web[12]", "odd", "")] == ["disk[12]", "disk", "disk"]
    assert volume_source(VolumeRequest(source="disk"), "web.web[12]") == "disk"


SHARED = "conflicting claims for host volume with single-writer"


@pytest.mark.parametrize(
    ("held", "asked", "strict"),
    [
        ("single-node-single-writer", "single-node-single-writer", SHARED),
        ("single-node-multi-writer", "single-node-single-writer", SHARED),
        ("single-node-single-writer", "single-node-multi-writer", SHARED),
        ("single-node-multi-writer", "single-node-multi-writer", ""),
    ],
)
def test_a_claim_on_a_volume_with_one_writer(held, asked, strict):
    """As recorded the plan is proposed, and refused by the applier if that counts claims of placements."""
    holder = service_job("db", group_api("db", Volumes={"v": volume(AccessMode=held)}))
    job = service_job("web", group_api(Volumes={"v": volume(AccessMode=asked)}))
    nodes = [ready_node("n1", HostVolumes=VOLUMES), ready_node("n2", HostVolumes=VOLUMES)]
    for rules, reason in ((Rules.NOMAD, ""), (Rules.STRICT, strict)):
        checks = Checks(job, nodes, [running_alloc("a1", holder, "n1")], rules=rules)
        assert checks.reasons("n1", "n2") == [reason, ""]
    # What this plan stops, and what has ended, claims nothing.
    checks = Checks(job, nodes, [running_alloc("a1", holder, "n1"), running_alloc("a2", holder, "n2", ClientStatus="complete")])
    checks.context.draft.stop(checks.context.draft.stored_allocs("n1")[0], "")
    assert checks.reasons("n1", "n2") == ["", ""]


def test_two_claims_of_one_group_on_a_volume_with_one_writer():
    claim = volume(AccessMode="single-node-single-writer")
    node = ready_node("n1", HostVolumes=VOLUMES)
    assert reason_on(node, group_api(Volumes={"v": claim, "w": claim})) == SHARED


def test_claims_that_cannot_be_read_filter_the_node():
    holder = service_job("db", group_api("db", Volumes={"v": None}))
    job = service_job("web", group_api(Volumes={"v": volume()}))
    checks = Checks(job, [ready_node("n1", HostVolumes=VOLUMES)], [running_alloc("a1", holder, "n1")])
    assert checks.reasons("n1")[0].startswith("invalid input: alloc a1.Job.TaskGroups[db].Volumes[v]")


@BOTH
def test_volumes_of_a_system_job(rules):
    job = system_job("agent", group_api(Volumes={"v": volume()}))
    checks = Checks(job, [ready_node("n1", HostVolumes=VOLUMES), ready_node("n2")], rules=rules)
    assert checks.reasons("n1", "n2") == ["", "missing compatible host volumes"]


@pytest.mark.parametrize(("text", "on"), [("", True), ("true", True), ("1", True), ("false", False), ("0", False), ("F", False), ("no", True), ("fAlse", True)])
def test_what_turns_distinct_hosts_off(text, on):
    assert is_on(text) is on
