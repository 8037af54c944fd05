"""What makes no sense, and what is far too much: each is a named error or a defined answer, under both rule sets, and never without end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from fastplan.errors import InvalidInput, SchedulerError
from fastplan.rules import Rules
from fastplan.structs import Allocation, Job, Node
from fastplan.testing.builders import batch_job, group_api, ready_node, running_alloc, service_job, sysbatch_job, system_job
from tests.scheduler.generic_cluster import BOTH_RULES, MINUTE_NS, NOW_NS, Outcome, down, failed_fields, nodes
from tests.sizes import sized

JOB_INDEX = {"JobModifyIndex": 200, "ModifyIndex": 200, "CreateIndex": 100}
NOT_NEEDED = "alloc not needed due to job update"
LOST = "alloc is lost since its node is down"
DAY_NS = 24 * 60 * MINUTE_NS

GENERIC = (service_job, batch_job)
EVERY_NODE = (system_job, sysbatch_job)

Build = Callable[..., Job]

both = pytest.mark.parametrize("rules", BOTH_RULES)
of_every_type = pytest.mark.parametrize("build", [*GENERIC, *EVERY_NODE])
generic = pytest.mark.parametrize("build", GENERIC)
on_every_node = pytest.mark.parametrize("build", EVERY_NODE)


def web(build: Build, count: int = 1, **more: Any) -> Job:
    """Return a job `web` with one group `web`; *more*: of the job."""
    return build("web", group_api(count=count), **JOB_INDEX, **more)


def completed(outcome: Outcome) -> None:
    """The evaluation came to its end, and nothing is queued below zero."""
    assert outcome.final is not None
    assert (outcome.final.status, outcome.final.status_description) == ("complete", "")
    assert min(outcome.final.queued_allocations.values(), default=0) >= 0


# --- the job -----------------------------------------------------------------------------------------------------------


@both
@of_every_type
def test_a_negative_count_is_none(build: Build, rules: Rules) -> None:
    """A registration refuses it; in a state that has it anyway nothing is placed and all is stopped."""
    job = web(build, -3)
    outcome = Outcome(job, nodes(2), [running_alloc("a0", job, "n0"), running_alloc("a1", job, "n1")], rules=rules)
    completed(outcome)
    assert outcome.placed == []
    assert outcome.stopped == {"a0": NOT_NEEDED, "a1": NOT_NEEDED}


@both
@of_every_type
@pytest.mark.parametrize(
    ("operand", "wanted"),
    [
        ("resembles", "linux"),
        ("", "linux"),
        ("regexp", "("),
        ("regexp", "(?=linux)"),
        ("version", "not a version"),
        ("version", "~> one, two"),
        ("version", ""),
        ("semver", ">= 1"),
        ("semver", "latest"),
    ],
)
def test_a_constraint_that_cannot_be_read_filters_every_node(build: Build, rules: Rules, operand: str, wanted: str) -> None:
    job = web(build, Constraints=[{"LTarget": "${attr.kernel.name}", "RTarget": wanted, "Operand": operand}])
    outcome = Outcome(job, nodes(2), rules=rules)
    completed(outcome)
    assert outcome.placed == []
    assert outcome.final is not None
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    # As recorded, a class of nodes is looked at once.
    by_class = {"computed class ineligible": 1} if rules is Rules.NOMAD and build in GENERIC else {}
    reason = f"${{attr.kernel.name}} {operand} {wanted}"
    assert metric.constraint_filtered == {reason: 1 if by_class else 2, **by_class}
    assert metric.nodes_filtered == 2
    assert metric.dimension_exhausted == {}


@both
@generic
@pytest.mark.parametrize(("operand", "wanted"), [("regexp", "("), ("version", "one"), ("semver", ""), ("resembles", "linux")])
def test_an_affinity_that_cannot_be_read_draws_to_no_node(build: Build, rules: Rules, operand: str, wanted: str) -> None:
    job = web(build, Affinities=[{"LTarget": "${attr.kernel.name}", "RTarget": wanted, "Operand": operand, "Weight": 100}])
    outcome = Outcome(job, nodes(2), rules=rules)
    completed(outcome)
    assert outcome.names == ["web.web[0]"]


@both
@generic
def test_a_spread_over_what_no_node_has(build: Build, rules: Rules) -> None:
    outcome = Outcome(web(build, 3, Spreads=[{"Attribute": "${meta.nothing}", "Weight": 100}]), nodes(2), rules=rules)
    completed(outcome)
    assert len(outcome.placed) == 3


@both
@of_every_type
def test_a_job_without_groups(build: Build, rules: Rules) -> None:
    job = Job.from_api({**web(build).to_api(), "TaskGroups": []})
    outcome = Outcome(job, nodes(1), [running_alloc("a0", web(build), "n0")], rules=rules)
    completed(outcome)
    assert (outcome.placed, outcome.stopped) == ([], {"a0": NOT_NEEDED})


# --- references --------------------------------------------------------------------------------------------------------


@both
@of_every_type
def test_a_purged_job_stops_what_is_left_of_it(build: Build, rules: Rules) -> None:
    job = web(build)
    outcome = Outcome(None, nodes(1), [running_alloc("a0", job, "n0")], rules=rules, job_type=job.type)
    completed(outcome)
    assert (outcome.placed, outcome.stopped) == ([], {"a0": NOT_NEEDED})
    nothing_left = Outcome(None, nodes(1), rules=rules, job_type=job.type)
    completed(nothing_left)
    assert (nothing_left.placed, nothing_left.stopped, nothing_left.created) == ([], {}, [])


@both
@of_every_type
def test_an_allocation_on_a_node_that_is_gone_is_lost(build: Build, rules: Rules) -> None:
    job = web(build)
    outcome = Outcome(job, nodes(1), [running_alloc("a0", job, "gone")], rules=rules)
    completed(outcome)
    assert outcome.stopped == {"a0": LOST}
    assert [alloc.node_id for alloc in outcome.placed] == ["n0"]


@both
@of_every_type
def test_a_deployment_that_is_gone(build: Build, rules: Rules) -> None:
    """Named by the evaluation and by an allocation: what runs is left alone."""
    job = web(build)
    outcome = Outcome(job, nodes(1), [running_alloc("a0", job, "n0", DeploymentID="gone")], rules=rules, deployment_id="gone")
    completed(outcome)
    assert (outcome.placed, outcome.stopped) == ([], {})


@both
@of_every_type
@pytest.mark.parametrize("links", [("a1", "a0"), ("a0", "a1"), ("gone", "gone")], ids=["ring", "each itself", "nowhere"])
@pytest.mark.parametrize("field", ["PreviousAllocation", "NextAllocation", "both"])
def test_chains_of_allocations_that_never_end(build: Build, rules: Rules, links: tuple[str, str], field: str) -> None:
    """Failed allocations that replace each other, or themselves: no walk along the chain is without end, and no name is given twice."""
    policy = {"Attempts": 3, "Interval": DAY_NS, "Delay": 5 * 10**9, "DelayFunction": "fibonacci", "MaxDelay": DAY_NS, "Unlimited": False}
    job = build("web", group_api(count=2, ReschedulePolicy=policy), **JOB_INDEX)
    fields = ("PreviousAllocation", "NextAllocation") if field == "both" else (field,)
    tracker = {"RescheduleTracker": {"Events": [{"RescheduleTime": NOW_NS - MINUTE_NS, "PrevAllocID": "a0", "PrevNodeID": "n0", "Delay": 5 * 10**9}]}}
    allocs = [
        running_alloc(f"a{index}", job, f"n{index}", index=index, **failed_fields(MINUTE_NS), **tracker, **dict.fromkeys(fields, links[index]))
        for index in range(2)
    ]
    outcome = Outcome(job, nodes(2), allocs, rules=rules)
    completed(outcome)
    slots = [(alloc.node_id if build in EVERY_NODE else "", alloc.name) for alloc in outcome.placed]
    assert len(slots) == len(set(slots))


# --- nodes -------------------------------------------------------------------------------------------------------------


@both
@of_every_type
@pytest.mark.parametrize("resources", [{}, {"NodeResources": None}, {"NodeResources": {}}], ids=["missing", "null", "empty"])
def test_a_node_without_resources_takes_nothing(build: Build, rules: Rules, resources: dict[str, Any]) -> None:
    full = ready_node("n0").to_api()
    bare = Node.from_api({key: value for key, value in full.items() if key not in ("NodeResources", "Resources")} | resources)
    outcome = Outcome(web(build), [bare], rules=rules)
    completed(outcome)
    assert outcome.placed == []
    assert outcome.final is not None
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    assert (metric.nodes_evaluated, metric.constraint_filtered) == (1, {"missing network": 1})


@both
@generic
def test_no_node_at_all(build: Build, rules: Rules) -> None:
    outcome = Outcome(web(build), [down(ready_node("n0"))], rules=rules)
    completed(outcome)
    assert outcome.final is not None
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    assert metric.nodes_evaluated == 0
    assert [waiting.status for waiting in outcome.created] == ["blocked"]


@both
@on_every_node
def test_no_node_at_all_is_nothing_to_do_for_a_job_of_every_node(build: Build, rules: Rules) -> None:
    outcome = Outcome(web(build), [down(ready_node("n0"))], rules=rules)
    completed(outcome)
    assert (outcome.plans, outcome.created) == ([], [])


# --- evaluations -------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("kind", ["daemon", "_core", "", "Service"])
def test_an_evaluation_of_unknown_type_is_an_error_that_names_it(rules: Rules, kind: str) -> None:
    with pytest.raises(SchedulerError) as caught:
        Outcome(web(service_job), nodes(1), rules=rules, type=kind)
    assert str(caught.value) == f"unknown scheduler '{kind}'"


@both
@of_every_type
def test_an_evaluation_for_an_unknown_reason_fails_and_says_so(build: Build, rules: Rules) -> None:
    outcome = Outcome(web(build), nodes(1), rules=rules, triggered_by="full-moon")
    assert outcome.final is not None
    assert (outcome.final.status, outcome.final.status_description) == ("failed", "scheduler cannot handle 'full-moon' evaluation reason")
    assert outcome.plans == []


# --- time --------------------------------------------------------------------------------------------------------------


@both
@of_every_type
@pytest.mark.parametrize("ahead_ns", [MINUTE_NS, 10 * DAY_NS, 50 * 365 * DAY_NS])
def test_what_runs_since_tomorrow_is_left_alone(build: Build, rules: Rules, ahead_ns: int) -> None:
    """The clock was set back: all that is known comes from the future."""
    job = web(build)
    outcome = Outcome(job, nodes(1), [running_alloc("a0", job, "n0", CreateTime=NOW_NS + ahead_ns, ModifyTime=NOW_NS + ahead_ns)], rules=rules)
    completed(outcome)
    assert (outcome.placed, outcome.stopped) == ([], {})


@both
@generic
@pytest.mark.parametrize("ahead_ns", [MINUTE_NS, 10 * DAY_NS])
def test_what_fails_tomorrow_is_replaced_once(build: Build, rules: Rules, ahead_ns: int) -> None:
    """A failure in the future is replaced now or by a follow-up that waits; never twice."""
    policy = {"Delay": 5 * 10**9, "DelayFunction": "exponential", "MaxDelay": 3600 * 10**9, "Unlimited": True}
    job = build("web", group_api(ReschedulePolicy=policy), **JOB_INDEX)
    outcome = Outcome(job, nodes(1), [running_alloc("a0", job, "n0", CreateTime=NOW_NS + ahead_ns, **failed_fields(-ahead_ns))], rules=rules)
    completed(outcome)
    assert len(outcome.placed) + len(outcome.created) == 1


# --- far too much ------------------------------------------------------------------------------------------------------


@both
@generic
def test_a_million_copies_on_few_nodes(build: Build, rules: Rules) -> None:
    """What has room is placed, the rest is one number."""
    count = sized(200_000, 1_000_000)
    started_s = time.monotonic()
    outcome = Outcome(web(build, count), nodes(3), rules=rules)
    assert time.monotonic() - started_s < 60
    completed(outcome)
    assert len(outcome.placed) == 24
    assert outcome.final is not None
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    assert (metric.coalesced_failures, metric.dimension_exhausted) == (count - 25, {"cpu": 3})
    assert outcome.final.queued_allocations == {"web": count - 24}


@both
@on_every_node
def test_a_million_copies_on_every_node(build: Build, rules: Rules) -> None:
    """A node that has no room for one more is not asked again."""
    count = sized(100_000, 1_000_000)
    started_s = time.monotonic()
    outcome = Outcome(web(build, count), nodes(2), rules=rules)
    assert time.monotonic() - started_s < 60
    completed(outcome)
    assert len(outcome.placed) == 16
    assert outcome.final is not None
    metric = outcome.final.failed_tg_allocs["web"]
    assert metric is not None
    assert metric.coalesced_failures == 2 * count - 17
    assert [waiting.status for waiting in outcome.created] == ["blocked"]


@both
@of_every_type
def test_twenty_thousand_groups(build: Build, rules: Rules) -> None:
    """Under Nomad's rules each group of a job of every node that finds no room makes an evaluation that tells of all before it, so they are fewer here."""
    told_again = rules is Rules.NOMAD and build in EVERY_NODE
    groups = [group_api(f"g{number}") for number in range(150 if told_again else sized(1000, 20_000))]
    started_s = time.monotonic()
    outcome = Outcome(build("web", *groups, **JOB_INDEX), nodes(2), rules=rules)
    assert time.monotonic() - started_s < 120
    completed(outcome)
    assert len(outcome.placed) == 16
    assert outcome.final is not None
    assert len(outcome.final.failed_tg_allocs) == len(groups) - (16 if build in GENERIC else 8)


@both
def test_an_amount_beyond_64_bits_is_refused_where_it_is_read(rules: Rules) -> None:
    with pytest.raises(InvalidInput) as caught:
        Outcome(service_job("web", group_api(cpu_mhz=2**64), **JOB_INDEX), nodes(1), rules=rules)
    assert caught.value.path == "job.TaskGroups[0].Tasks[0].Resources.CPU"


@both
@of_every_type
def test_sums_that_do_not_fit_64_bits_do_not_fit_a_node(build: Build, rules: Rules) -> None:
    job = build("web", group_api(cpu_mhz=2**62), **JOB_INDEX)
    held: list[Allocation] = [running_alloc("x0", service_job("other"), "n0", cpu_mhz=2**62)]
    outcome = Outcome(job, nodes(1), held, rules=rules)
    completed(outcome)
    assert outcome.placed == []
