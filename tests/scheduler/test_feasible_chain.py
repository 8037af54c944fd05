"""Checks of many nodes in one attempt (schedulers 8.1, 8.2, 8.5): rows F17 to F20, F26 to F34, and what is told to blocked evaluations."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.rules import Rules
from fastplan.structs import Allocation, Job, Node
from fastplan.testing.builders import batch_job, group_api, ready_node, running_alloc, service_job, sysbatch_job, system_job
from tests.scheduler.feasibility import Checks, constraint, rack_node

BOTH = pytest.mark.parametrize("rules", list(Rules))
INELIGIBLE = "computed class ineligible"
SICK: dict[str, Any] = {"Drivers": {"exec": {"Detected": True, "Healthy": False}}}


# --- classes (8.2) ---------------------------------------------------------------------------------------------------


@BOTH
def test_f17_a_constraint_on_one_node_escapes(rules):
    only = constraint("${node.unique.id}", "=", "n2")
    reason = "${node.unique.id} = n2"
    checks = Checks(service_job("web", group_api(Constraints=[only])), [ready_node("n1"), ready_node("n2"), ready_node("n3")], rules=rules)
    assert checks.reasons("n1", "n2", "n3") == [reason, "", reason]
    assert checks.context.eligibility.escaped()
    checks = Checks(service_job("web", Constraints=[only]), [ready_node("n1"), ready_node("n2"), ready_node("n3")], rules=rules)
    assert checks.reasons("n1", "n2", "n3") == [reason, "", reason]
    assert checks.context.eligibility.escaped()


def test_f18_a_second_node_of_a_class_that_failed():
    """As recorded, it is filtered by its class; under strict rules by its own reason, because it might have another one."""
    group = group_api(Constraints=[constraint("${attr.arch}", "=", "arm64")])
    own = "${attr.arch} = arm64"
    for rules, second in ((Rules.NOMAD, INELIGIBLE), (Rules.STRICT, own)):
        checks = Checks(service_job("web", group), [ready_node("n1"), ready_node("n2")], rules=rules)
        assert checks.reasons("n1", "n2") == [own, second]
        # What was found holds for later selections of the attempt.
        assert checks.reasons("n2") == [second]
        assert list(checks.context.eligibility.classes().values()) == [False]


def test_a_class_that_failed_the_constraints_of_the_job():
    own = "${attr.arch} = arm64"
    for rules, second in ((Rules.NOMAD, INELIGIBLE), (Rules.STRICT, own)):
        checks = Checks(service_job("web", Constraints=[constraint("${attr.arch}", "=", "arm64")]), [ready_node("n1"), ready_node("n2")], rules=rules)
        assert checks.reasons("n1", "n2") == [own, second]


@BOTH
def test_f19_the_checks_of_the_job_always_run(rules):
    tagged = constraint("${meta.unique.tag}", "is_set")
    nodes = [ready_node("n1", Meta={"unique.tag": "x"}), ready_node("n2"), ready_node("n3", Meta={"unique.tag": "y"})]
    checks = Checks(service_job("web", Constraints=[tagged]), nodes, rules=rules)
    assert checks.reasons("n1", "n2", "n3") == ["", "${meta.unique.tag} is_set ", ""]
    # The group of the class was found eligible by its first node.
    assert list(checks.context.eligibility.classes().values()) == [True]


@BOTH
def test_f20_volumes_are_looked_at_on_every_node(rules):
    group = group_api(Volumes={"v": {"Name": "v", "Type": "host", "Source": "disk"}})
    nodes = [ready_node("n1", HostVolumes={"disk": {"Name": "disk"}}), ready_node("n2"), ready_node("n3", HostVolumes={"disk": {"Name": "disk"}})]
    checks = Checks(service_job("web", group), nodes, rules=rules)
    assert checks.reasons("n1", "n2", "n3") == ["", "missing compatible host volumes", ""]
    assert list(checks.context.eligibility.classes().values()) == [True]


def test_health_of_drivers_is_not_part_of_a_class():
    """As recorded, the first node decides for its class: a sick one hides healthy ones, a healthy one lets sick ones pass."""
    sick, healthy = ready_node("n1", **SICK), ready_node("n2")
    order = {Rules.NOMAD: (["missing drivers", INELIGIBLE], ["", ""]), Rules.STRICT: (["missing drivers", ""], ["", "missing drivers"])}
    for rules, (sick_first, healthy_first) in order.items():
        assert Checks(service_job(), [sick, healthy], rules=rules).reasons("n1", "n2") == sick_first
        assert Checks(service_job(), [sick, healthy], rules=rules).reasons("n2", "n1") == healthy_first


def test_who_waits_for_a_class_is_woken_when_one_of_its_nodes_changes():
    """A blocked evaluation hears nothing of classes that cannot help; a sick driver can recover."""
    for rules, told in ((Rules.NOMAD, [False]), (Rules.STRICT, [])):
        checks = Checks(service_job(), [ready_node("n1", **SICK)], rules=rules)
        checks.reasons("n1")
        assert [usable for usable in checks.context.eligibility.classes().values() if not usable] == told
    bridge = group_api(Networks=[{"Mode": "bridge"}])
    for rules, told in ((Rules.NOMAD, [False]), (Rules.STRICT, [])):
        checks = Checks(service_job("web", bridge), [ready_node("n1")], rules=rules)
        checks.reasons("n1")
        assert [usable for usable in checks.context.eligibility.classes().values() if not usable] == told


def test_a_class_of_which_one_node_may_be_used_stays_eligible_under_strict_rules():
    liar = ready_node("n2", ComputedClass="v1:1", Attributes={"arch": "arm64"})
    group = group_api(Constraints=[constraint("${attr.arch}", "=", "amd64")])
    checks = Checks(service_job("web", group), [ready_node("n1", ComputedClass="v1:1"), liar])
    assert checks.reasons("n1", "n2") == ["", "${attr.arch} = amd64"]
    assert checks.context.eligibility.classes() == {"v1:1": True}
    checks = Checks(service_job("web", group), [ready_node("n1", ComputedClass="v1:1"), liar])
    assert checks.reasons("n2", "n1") == ["${attr.arch} = amd64", ""]
    assert checks.context.eligibility.classes() == {"v1:1": True}


@BOTH
def test_classes_of_several_groups(rules):
    arm = constraint("${attr.arch}", "=", "arm64")
    job = service_job("web", group_api("a", Constraints=[arm]), group_api("b"))
    checks = Checks(job, [ready_node("n1", ComputedClass="v1:1"), ready_node("n2", ComputedClass="v1:2", Attributes={"arch": "arm64"})], rules=rules)
    assert checks.reasons("n1", "n2", group="a") == ["${attr.arch} = arm64", ""]
    assert checks.context.eligibility.classes() == {"v1:1": False, "v1:2": True}
    assert checks.reasons("n1", group="b") == [""]
    assert checks.context.eligibility.classes() == {"v1:1": True, "v1:2": True}
    assert not checks.context.eligibility.escaped()


@BOTH
def test_nodes_of_classes_nobody_has_worked_out(rules):
    arm = constraint("${attr.arch}", "=", "arm64")
    nodes = [ready_node("n1"), ready_node("n2", Attributes={"arch": "arm64"})]
    assert Checks(service_job("web", group_api(Constraints=[arm])), nodes, rules=rules).reasons("n1", "n2") == ["${attr.arch} = arm64", ""]


@BOTH
@pytest.mark.parametrize("job_of", [system_job, sysbatch_job])
def test_a_system_stack_forgets_classes_at_each_selection(job_of, rules):
    job = job_of("agent", group_api(Constraints=[constraint("${attr.arch}", "=", "arm64")]))
    checks = Checks(job, [ready_node("n1", ComputedClass="v1:1"), ready_node("n2", ComputedClass="v1:1")], rules=rules)
    assert checks.reasons("n1") == ["${attr.arch} = arm64"]
    assert checks.reasons("n2") == ["${attr.arch} = arm64"]


# --- distinct hosts (8.5) ---------------------------------------------------------------------------------------------

DISTINCT = constraint("", "distinct_hosts")


def two_groups(*, of_job: list[dict[str, Any]] | None = None, of_group: list[dict[str, Any]] | None = None, of_task: list[dict[str, Any]] | None = None) -> Any:
    first = group_api("a", Constraints=of_group or [])
    first["Tasks"][0]["Constraints"] = of_task or []
    return service_job("web", first, group_api("b"), Constraints=of_job or [])


@BOTH
@pytest.mark.parametrize(
    ("levels", "other_group", "same_group"),
    [
        # F26
        ({"of_job": [DISTINCT]}, "distinct_hosts", "distinct_hosts"),
        # F27
        ({"of_group": [DISTINCT]}, "", "distinct_hosts"),
        # F28
        ({"of_job": [constraint("", "distinct_hosts", "false")]}, "", ""),
        ({"of_group": [constraint("", "distinct_hosts", "false")]}, "", ""),
        ({"of_job": [constraint("", "distinct_hosts", "true")]}, "distinct_hosts", "distinct_hosts"),
        ({"of_job": [constraint("", "distinct_hosts", "odd")]}, "distinct_hosts", "distinct_hosts"),
        # The first one counts.
        ({"of_job": [constraint("", "distinct_hosts", "false"), DISTINCT]}, "", ""),
        ({"of_job": [constraint("", "distinct_hosts", "false")], "of_group": [DISTINCT]}, "", "distinct_hosts"),
        # Those of tasks do not.
        ({"of_task": [DISTINCT]}, "", ""),
    ],
)
def test_f26_to_f28_distinct_hosts(levels, other_group, same_group, rules):
    job = two_groups(**levels)
    nodes = [ready_node("n1"), ready_node("n2"), ready_node("n3")]
    allocs = [running_alloc("a1", job, "n1", group="b"), running_alloc("a2", job, "n2", group="a")]
    assert Checks(job, nodes, allocs, rules=rules).reasons("n1", "n2", "n3", group="a") == [other_group, same_group, ""]


@BOTH
def test_distinct_hosts_look_at_what_is_proposed(rules):
    job = service_job("web", Constraints=[DISTINCT])
    allocs = [running_alloc("a1", job, "n1"), running_alloc("a2", job, "n2", ClientStatus="failed"), running_alloc("a3", job, "n3", DesiredStatus="stop")]
    other = service_job("web", Namespace="elsewhere")
    allocs.append(running_alloc("a4", other, "n4"))
    checks = Checks(job, [ready_node(f"n{number}") for number in range(1, 6)], allocs, rules=rules)
    draft = checks.context.draft
    draft.place(running_alloc("new", job, "n5"))
    # One that is told to stop is there until its client has stopped it; one of another namespace is no neighbour.
    assert checks.reasons("n1", "n2", "n3", "n4", "n5") == ["distinct_hosts", "", "distinct_hosts", "", "distinct_hosts"]
    draft.stop(allocs[0], "")
    assert checks.reasons("n1") == [""]


@BOTH
def test_distinct_hosts_of_a_system_job_do_not_count(rules):
    job = system_job("agent", group_api("a"), group_api("b"), Constraints=[DISTINCT])
    assert Checks(job, [ready_node("n1")], [running_alloc("a1", job, "n1", group="a")], rules=rules).reasons("n1", group="b") == [""]


# --- distinct property (8.5) ------------------------------------------------------------------------------------------

RACK = "${meta.rack}"


def by_rack(limit: str = "", **more: Any) -> Any:
    return service_job("web", Constraints=[constraint(RACK, "distinct_property", limit)], **more)


RACKS = [rack_node("n1", "r1"), rack_node("n2", "r1"), rack_node("n3", "r2"), rack_node("n4", None)]
USED = "distinct_property: ${meta.rack}=r1 used by 1 allocs"
NO_RACK = 'missing property "${meta.rack}"'


@BOTH
@pytest.mark.parametrize(
    ("limit", "reasons"),
    [
        # F29, F31
        ("", [USED, USED, "", NO_RACK]),
        ("1", [USED, USED, "", NO_RACK]),
        # F30
        ("2", ["", "", "", NO_RACK]),
        ("0", [USED, USED, "distinct_property: ${meta.rack}=r2 used by 0 allocs", NO_RACK]),
    ],
)
def test_f29_to_f31_distinct_property(limit, reasons, rules):
    job = by_rack(limit)
    checks = Checks(job, RACKS, [running_alloc("a1", job, "n1")], rules=rules)
    assert checks.reasons("n1", "n2", "n3", "n4") == reasons


@BOTH
@pytest.mark.parametrize(
    ("limit", "fault"),
    [("x", "invalid syntax"), ("-1", "invalid syntax"), ("1.5", "invalid syntax"), ("٣", "invalid syntax"), (str(2**64), "value out of range")],
)
def test_f32_a_limit_that_is_no_number(limit, fault, rules):
    reason = f'failed to convert RTarget "{limit}" to uint64: strconv.ParseUint: parsing "{limit}": {fault}'
    assert Checks(by_rack(limit), RACKS, rules=rules).reasons("n1", "n4") == [reason, reason]


@BOTH
def test_f33_a_planned_stop_frees_the_value(rules):
    job = by_rack()
    allocs = [running_alloc("a1", job, "n1")]
    checks = Checks(job, RACKS, allocs, rules=rules)
    checks.context.draft.stop(allocs[0], "")
    assert checks.reasons("n2", "n1") == ["", ""]
    checks.context.draft.place(running_alloc("new", job, "n2"))
    assert checks.reasons("n1", "n2", "n3") == [USED, USED, ""]


@BOTH
def test_f34_an_update_in_place_of_the_only_holder(rules):
    """While its own node is tried, its stop is planned; afterwards the new version is."""
    job = by_rack()
    allocs = [running_alloc("a1", job, "n1")]
    checks = Checks(job, RACKS, allocs, rules=rules)
    checks.context.draft.stop(allocs[0], "")
    assert checks.reasons("n1") == [""]


def test_an_update_in_place_counts_once():
    """As recorded it counts twice: as it is, and as it will be."""
    job = by_rack("2")
    for rules, reason in ((Rules.NOMAD, "distinct_property: ${meta.rack}=r1 used by 2 allocs"), (Rules.STRICT, "")):
        allocs = [running_alloc("a1", job, "n1")]
        checks = Checks(job, RACKS, allocs, rules=rules)
        checks.context.draft.place(allocs[0])
        assert checks.reasons("n2") == [reason]


def test_a_value_that_is_both_cleared_and_proposed():
    """As recorded, two that are cleared count as one where one is proposed."""
    job = by_rack("2")
    for rules, reason in ((Rules.NOMAD, "distinct_property: ${meta.rack}=r1 used by 2 allocs"), (Rules.STRICT, "")):
        allocs = [running_alloc("a1", job, "n1"), running_alloc("a2", job, "n2")]
        checks = Checks(job, RACKS, allocs, rules=rules)
        for alloc in allocs:
            checks.context.draft.stop(alloc, "")
        checks.context.draft.place(running_alloc("new", job, "n1"))
        assert checks.reasons("n2") == [reason]


@BOTH
def test_distinct_property_of_groups_and_jobs(rules):
    """At the level of the job all groups count, at that of a group or its tasks its own allocations."""
    limit = constraint(RACK, "distinct_property")
    task_level = group_api("c")
    task_level["Tasks"][0]["Constraints"] = [limit]
    job = service_job("web", group_api("a", Constraints=[limit]), group_api("b"), task_level)
    allocs = [running_alloc("a1", job, "n1", group="b"), running_alloc("a2", job, "n3", group="a"), running_alloc("a3", job, "n3", group="c")]
    checks = Checks(job, RACKS, allocs, rules=rules)
    used = "distinct_property: ${meta.rack}=r2 used by 1 allocs"
    assert checks.reasons("n1", "n3", group="a") == ["", used]
    assert checks.reasons("n1", "n3", group="b") == ["", ""]
    assert checks.reasons("n1", "n3", group="c") == ["", used]
    checks = Checks(by_rack(TaskGroups=[group_api("a"), group_api("b")]), RACKS, allocs[:1], rules=rules)
    assert checks.reasons("n1", "n3", group="a") == [USED, ""]


@BOTH
def test_what_distinct_property_does_not_count(rules):
    """Allocations that ended, that are told to stop, of an earlier job with this id, and on nodes that are gone."""
    job = by_rack(CreateIndex=500)
    earlier = by_rack(CreateIndex=100)
    allocs: list[Allocation] = [
        running_alloc("a1", job, "n1", ClientStatus="complete"),
        running_alloc("a2", job, "n1", DesiredStatus="stop"),
        running_alloc("a3", earlier, "n1"),
        running_alloc("a4", job, "gone"),
    ]
    assert Checks(job, RACKS, allocs, rules=rules).reasons("n1", "n2") == ["", ""]


@BOTH
def test_distinct_property_applies_to_every_type_of_job(rules):
    for job_of in (batch_job, system_job, sysbatch_job):
        job = job_of("x", Constraints=[constraint(RACK, "distinct_property")])
        checks = Checks(job, RACKS, [running_alloc("a1", job, "n1")], rules=rules)
        assert checks.reasons("n2", "n3", "n4") == [USED, "", NO_RACK]


@BOTH
def test_a_property_may_be_a_field_of_the_node(rules):
    job = service_job("web", Constraints=[constraint("${node.datacenter}", "distinct_property")])
    nodes = [ready_node("n1"), ready_node("n2"), ready_node("n3", datacenter="dc2")]
    checks = Checks(job, nodes, [running_alloc("a1", job, "n1")], rules=rules)
    assert checks.reasons("n2", "n3") == ["distinct_property: ${node.datacenter}=dc1 used by 1 allocs", ""]


# --- order of visits -------------------------------------------------------------------------------------------------


def random_site(draw: random.Random, *, sick: bool) -> tuple[Job, list[Node], list[Allocation]]:
    """Return a job with constraints of all kinds, nodes of few classes, and some allocations. *sick*: drivers may be ill."""
    pool = [
        constraint("${attr.arch}", "=", draw.choice(["amd64", "arm64"])),
        constraint("${meta.rack}", "regexp", draw.choice(["r[12]", "^r1$", "("])),
        constraint("${attr.version}", draw.choice(["version", "semver"]), ">= 1.1"),
        constraint("${node.unique.id}", "!=", "n3"),
        constraint(RACK, "distinct_property", draw.choice(["", "1", "2"])),
        DISTINCT,
    ]
    job = service_job("web", group_api(count=9, Constraints=draw.sample(pool, draw.randint(0, 3))), Constraints=draw.sample(pool, draw.randint(0, 3)))
    nodes = [
        rack_node(
            f"n{number}",
            draw.choice(["r1", "r2", None]),
            Attributes={"arch": draw.choice(["amd64", "arm64"]), "version": draw.choice(["1.0.0", "1.2.0", "odd"])},
            **(SICK if sick and draw.random() < 0.4 else {}),
        )
        for number in range(draw.randint(1, 8))
    ]
    return job, nodes, [running_alloc(f"a{number}", job, draw.choice(nodes).id) for number in range(draw.randint(0, 3))]


@given(st.integers(0, 2**32))
def test_under_strict_rules_the_order_of_visits_does_not_matter(seed):
    draw = random.Random(seed)
    job, nodes, allocs = random_site(draw, sick=True)
    ids = [node.id for node in nodes]
    there, back = Checks(job, nodes, allocs), Checks(job, nodes, allocs)
    assert there.reasons(*ids) == back.reasons(*reversed(ids))[::-1]
    assert there.context.eligibility.classes() == back.context.eligibility.classes()


@given(st.integers(0, 2**32))
def test_both_rules_accept_the_same_nodes_where_classes_tell_all(seed):
    """The class cache saves work, and changes nothing, as long as nothing counts that is not part of a class. Reasons may be those of the class."""
    draw = random.Random(seed)
    job, nodes, allocs = random_site(draw, sick=False)
    ids = [node.id for node in nodes]
    nomad, strict = (Checks(job, nodes, allocs, rules=rules) for rules in (Rules.NOMAD, Rules.STRICT))
    for _ in range(2):
        pairs = list(zip(nomad.reasons(*ids), strict.reasons(*ids), strict=True))
        assert all(bool(recorded) == bool(own) and recorded in (own, INELIGIBLE) for recorded, own in pairs)
    assert nomad.context.eligibility.classes() == strict.context.eligibility.classes()
    assert nomad.context.eligibility.escaped() == strict.context.eligibility.escaped()
