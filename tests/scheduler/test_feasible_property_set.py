"""Allocations by the value of a property (schedulers 8.5, 9.7) against the rule written out, and the class cache alone (8.2)."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from fastplan.rules import Rules
from fastplan.scheduler.feasible.eligibility import ClassEligibility, Known
from fastplan.scheduler.feasible.property_set import PropertySet
from fastplan.structs import Job
from fastplan.testing.builders import group_api, running_alloc, service_job
from tests.scheduler.feasibility import Checks, constraint, rack_node

RACK = "${meta.rack}"
RACKS = {"n1": "r1", "n2": "r1", "n3": "r2", "n4": "r3", "n5": None}
NODES = [rack_node(node_id, rack) for node_id, rack in RACKS.items()]


def job_with_two_groups() -> Job:
    return service_job("web", group_api("a", count=9), group_api("b", count=9))


@given(st.integers(0, 2**32), st.sampled_from(list(Rules)), st.sampled_from([None, "a"]))
def test_counts_are_existing_and_proposed_less_cleared(seed, rules, group):
    draw = random.Random(seed)
    job = job_with_two_groups()
    stored = [
        running_alloc(
            f"a{number}", job, draw.choice(list(RACKS)), group=draw.choice("ab"), index=number, DesiredStatus=draw.choice(["run", "run", "run", "stop"])
        )
        for number in range(draw.randint(0, 8))
    ]
    context = Checks(job, NODES, stored, rules=rules).context
    properties = PropertySet(context, context.job or job, RACK, group)
    stopped, updated, new = [], [], []
    for alloc in stored:
        fate = draw.choice(["stop", "update", "keep"])
        if fate == "stop":
            stopped.append(alloc)
            context.draft.stop(alloc, "")
        elif fate == "update" and alloc.desired_status == "run":
            updated.append(alloc)
            context.draft.place(alloc)
    for number in range(draw.randint(0, 4)):
        new.append(running_alloc(f"new{number}", job, draw.choice(list(RACKS)), group=draw.choice("ab")))
        context.draft.place(new[-1])

    def by_rack(allocs):
        return Counter(RACKS[alloc.node_id] for alloc in allocs if RACKS[alloc.node_id] and group in (None, alloc.task_group))

    live = [alloc for alloc in stored if alloc.desired_status == "run"]
    if rules is Rules.STRICT:
        stays = [alloc for alloc in live if alloc not in stopped]
        wanted = by_rack([*stays, *new])
        values = set(by_rack([*live, *new]))
    else:
        used, cleared, proposed = by_rack([*live, *updated, *new]), by_rack(stopped), by_rack([*updated, *new])
        for value in proposed:
            cleared[value] -= cleared[value] > 1
        wanted, values = Counter({value: max(0, count - cleared[value]) for value, count in used.items()}), set(used)
    assert properties.counts() == {value: wanted[value] for value in values}


def test_counts_follow_the_plan():
    job = job_with_two_groups()
    alloc = running_alloc("a1", job, "n1", group="a")
    context = Checks(job, NODES, [alloc]).context
    properties = PropertySet(context, context.job or job, RACK)
    assert properties.counts() == {"r1": 1}
    context.draft.stop(alloc, "")
    assert properties.counts() == {"r1": 0}
    context.draft.pop_stop(alloc)
    context.draft.place(running_alloc("new", job, "n3", group="b"))
    assert properties.counts() == {"r1": 1, "r2": 1}


def test_values_of_nodes():
    context = Checks(job_with_two_groups(), NODES).context
    properties = PropertySet(context, Job(), RACK)
    assert [properties.value_of(context.node(node_id)) for node_id in ("n1", "n4", "n5", "gone")] == ["r1", "r3", None, None]


def test_what_is_known_of_classes():
    job = job_with_two_groups()
    first, second = job.task_groups
    known = ClassEligibility()
    known.set_job(job)
    assert (known.of_job("c"), known.of_group(first, "c"), known.escaped()) == (Known.UNKNOWN, Known.UNKNOWN, False)
    known.note_job("c", True)
    known.note_group(first, "c", False)
    assert (known.of_job("c"), known.of_group(first, "c"), known.of_group(second, "c")) == (Known.ELIGIBLE, Known.INELIGIBLE, Known.UNKNOWN)
    # A job that is eligible fills gaps, and no more.
    known.note_job("d", True)
    assert known.classes() == {"c": False, "d": True}
    # One group is enough.
    known.note_group(second, "c", True)
    assert known.classes() == {"c": True, "d": True}
    known.note_group(first, "e", True)
    known.note_group(second, "e", False)
    assert known.classes() == {"c": True, "d": True, "e": True}
    # Where the job may not run, no group may.
    known.note_job("c", False)
    assert known.classes() == {"c": False, "d": True, "e": True}
    known.reset()
    assert (known.classes(), known.of_group(first, "c")) == ({}, Known.UNKNOWN)


def test_what_escapes_classes():
    unique = constraint("${attr.unique.hostname}", "=", "x")
    reverse = constraint("x", "=", "${node.unique.name}")
    in_task = group_api("t")
    in_task["Tasks"][0]["Constraints"] = [None, unique]
    csi = group_api("c", Volumes={"v": {"Name": "v", "Type": "csi", "Source": "s"}})
    job = service_job("web", group_api("a"), group_api("g", Constraints=[reverse]), in_task, csi)
    known = ClassEligibility()
    known.set_job(job)
    assert [known.of_group(group, "x") for group in job.task_groups] == [Known.UNKNOWN, Known.ESCAPED, Known.ESCAPED, Known.ESCAPED]
    assert (known.of_job("x"), known.escaped()) == (Known.UNKNOWN, True)
    # As recorded, groups that escaped are forgotten with the classes, a job is not.
    known.reset()
    assert not known.escaped()
    known.set_job(service_job("web", Constraints=[unique]))
    known.reset()
    assert (known.of_job("x"), known.escaped()) == (Known.ESCAPED, True)
