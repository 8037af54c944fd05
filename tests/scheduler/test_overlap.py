"""Several live allocations in one slot: which one stays, and at which pace (schedulers 5; table 13.1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from fastplan.errors import PortsUnavailable
from fastplan.fit import PortIndex
from fastplan.structs import Job, Node
from fastplan.testing.builders import group_api, ready_node, service_job
from tests.scheduler.system_cluster import (
    CURRENT,
    LOST,
    MINUTE_NS,
    NOT_NEEDED,
    TAINTED,
    UPDATING,
    Allocs,
    Cluster,
    Outcome,
    down,
    draining,
    ineligible,
    job_of,
    nodes,
    older,
    reconnecting,
    successful,
    unknown_since,
)

SLOT = ("n0", "agent.web[0]")
PORT = {"Networks": [{"Mode": "host", "ReservedPorts": [{"Label": "http", "Value": 8080}]}]}
HOLDS_PORT = {"AllocatedResources": {"Shared": {"DiskMB": 300, "Ports": [{"Label": "http", "Value": 8080, "HostIP": "10.0.0.1"}]}}}

SYSTEM = job_of("system")
OF = Allocs(SYSTEM)


def limited(max_parallel: int, *, kind: str = "system", **more: Any) -> Job:
    return job_of(kind, group_api(**more), Update={"MaxParallel": max_parallel, "Stagger": 30 * 10**9})


def run(job: Job | None, cluster: list[Node], allocs: list[Any], **more: Any) -> Outcome:
    return Cluster(job, cluster, allocs, **more).run()


class OneSlot(NamedTuple):
    """One slot: its allocations as kind → fields, and what becomes of them."""

    allocs: dict[str, tuple[str, dict[str, Any]]]
    stopped: set[str]
    updated: set[str] = frozenset()  # type: ignore[assignment]
    replaced: set[str] = frozenset()  # type: ignore[assignment]


ONE_SLOT = {
    "O1": OneSlot({"a": ("cur", {"ci": 10}), "b": ("cur", {"ci": 20})}, {"a"}),
    "O2": OneSlot({"a": ("cur", {}), "b": ("old_d", {})}, {"b"}),
    "O3": OneSlot({"a": ("cur", {}), "b": ("old_i", {})}, {"b"}),
    "O4": OneSlot({"a": ("cur", {"ci": 5}), "b": ("old_i", {"ci": 50})}, {"b"}),
    "O5": OneSlot({"a": ("old_i", {"ci": 10}), "b": ("old_i", {"ci": 20})}, {"a"}, {"b"}),
    "O6": OneSlot({"a": ("old_i", {"ci": 10}), "b": ("old_d", {"ci": 20})}, {"b"}, {"a"}),
    "O9": OneSlot({"a": ("cur", {}), "b": ("cur", reconnecting(ci=20))}, {"b"}),
    "O10": OneSlot({"a": ("cur", reconnecting(ci=10)), "b": ("cur", reconnecting(ci=20))}, {"a"}, {"b"}),
    "O11": OneSlot({"a": ("old_d", {}), "b": ("cur", reconnecting(ci=20))}, {"b"}, replaced={"a"}),
    "O12": OneSlot({f"a{ci}": ("cur", {"ci": ci}) for ci in range(1, 6)}, {"a1", "a2", "a3", "a4"}),
    "O13": OneSlot({"b": ("cur", {}), "a": ("cur", {})}, {"b"}),
    "O14": OneSlot({"a": ("cur", {"ci": 20, "ClientStatus": "pending"}), "b": ("cur", {"ci": 10})}, {"b"}),
    "O15": OneSlot({"a": ("cur", {}), "b": ("cur", {"DesiredStatus": "stop"})}, set()),
    "O16": OneSlot({"a": ("cur", {}), "b": ("cur", {"ClientStatus": "failed"})}, set()),
    "all kinds": OneSlot({"a": ("old_d", {"ci": 90}), "b": ("old_i", {"ci": 80}), "c": ("cur", {"ci": 1}), "d": ("cur", reconnecting(ci=99))}, {"a", "b", "d"}),
}


@pytest.mark.parametrize("name", ONE_SLOT)
def test_one_slot(name: str) -> None:
    case = ONE_SLOT[name]
    for order in (1, -1):
        allocs = [getattr(OF, kind)(alloc_id, **fields) for alloc_id, (kind, fields) in case.allocs.items()][::order]
        cluster = Cluster(SYSTEM, nodes(1), allocs)
        outcome = cluster.run()
        assert outcome.stops == {**dict.fromkeys(case.stopped, NOT_NEEDED), **dict.fromkeys(case.replaced, UPDATING)}
        assert set(outcome.updated) == case.updated
        assert set(outcome.links.values()) == case.replaced
        assert len(outcome.plans) == bool(case.stopped)
        assert (outcome.final.status, outcome.created) == ("complete", [])
        # Stopping says nothing of the client.
        assert all(status in ("running", "pending") for status in outcome.client_statuses.values())
        assert cluster.live_slots == [SLOT]
        # O45: once applied, nothing is left to be done.
        assert cluster.run().is_idle


def test_o3_o51_what_is_counted() -> None:
    assert run(SYSTEM, nodes(1), [OF.cur("a"), OF.old_i("b")]).desired == {"web": {"Ignore": 1, "Stop": 1, "Place": 1}}


def test_o7_of_two_that_have_to_be_replaced_the_newer_specification_stays() -> None:
    older_one = Allocs(job_of("system", index=CURRENT)).old_d("a", ci=30)
    newer_one = OF.old_d("b", ci=10)
    newer_one.job = older(SYSTEM, destructive=True, index=150)
    assert run(SYSTEM, nodes(1), [older_one, newer_one]).links == {SLOT: "b"}


def test_o8_a_lone_slot_settles_in_one_pass() -> None:
    job = limited(1)
    of = Allocs(job)
    outcome = run(job, nodes(1), [of.old_d("a", ci=10), of.old_d("b", ci=20)])
    assert outcome.stops == {"a": NOT_NEEDED, "b": UPDATING}
    assert outcome.links == {SLOT: "b"}
    assert outcome.follow_ups == []


def test_o10_what_reconnects_has_another_record() -> None:
    outcome = run(SYSTEM, nodes(1), [OF.cur("a", **reconnecting(ci=10)), OF.cur("b", **reconnecting(ci=20))])
    states = outcome.updated["b"].alloc_states
    assert [state.value for state in states if state is not None] == ["unknown", "running"]


# --- what is no overlap ------------------------------------------------------------------------------------------------


def test_o17_a_name_that_is_not_wanted_is_stopped_by_itself() -> None:
    removed = Allocs(job_of("system", group_api("gone"))).cur("b", group="gone")
    outcome = run(SYSTEM, nodes(1), [OF.cur("a"), removed])
    assert outcome.stops == {"b": NOT_NEEDED}


def test_o18_o19_each_group_has_its_slots() -> None:
    job = job_of("system", group_api("a"), group_api("b"))
    of = Allocs(job)
    apart = [of.cur("one", group="a"), of.cur("two", group="b")]
    assert run(job, nodes(1), apart).is_idle
    assert run(job, nodes(1), [*apart, of.cur("three", group="a", ci=20)]).stops == {"one": NOT_NEEDED}


def test_o20_each_node_has_its_slots() -> None:
    assert run(SYSTEM, nodes(2), [OF.cur("a", "n0"), OF.cur("b", "n1")]).is_idle


# --- other fates -------------------------------------------------------------------------------------------------------

MIGRATE = {"DesiredTransition": {"Migrate": True}}


def test_o21_o22_what_is_to_migrate_takes_no_part() -> None:
    outcome = run(SYSTEM, nodes(1), [OF.cur("a", **MIGRATE), OF.cur("b")])
    assert (outcome.stops, outcome.placed) == ({"a": TAINTED}, {})
    outcome = run(SYSTEM, nodes(1), [OF.cur("a", **MIGRATE), OF.cur("b", **MIGRATE)])
    assert (outcome.stops, outcome.placed) == ({"a": TAINTED, "b": TAINTED}, {})
    outcome = run(SYSTEM, [draining(node) for node in nodes(1)], [OF.cur("a", **MIGRATE), OF.cur("b", **MIGRATE)])
    assert outcome.stops == {"a": TAINTED, "b": TAINTED}


def test_o23_on_a_dead_node_all_are_lost() -> None:
    outcome = run(SYSTEM, [down(node) for node in nodes(1)], [OF.cur("a"), OF.cur("b")])
    assert outcome.stops == {"a": LOST, "b": LOST}
    assert outcome.client_statuses == {"a": "lost", "b": "lost"}


def test_o24_a_disconnected_node_is_trimmed_once_both_are_unknown() -> None:
    job = job_of("system", group_api(Disconnect={"LostAfter": 10 * MINUTE_NS}))
    of = Allocs(job)
    away = nodes(1)
    away[0].status = "disconnected"
    cluster = Cluster(job, away, [of.cur("a", ci=10), of.cur("b", ci=20)])
    first = cluster.run()
    assert {alloc_id: alloc.client_status for alloc_id, alloc in first.updated.items()} == {"a": "unknown", "b": "unknown"}
    assert first.stops == {}
    assert cluster.run().stops == {"a": NOT_NEEDED}


def test_o25_o26_a_closed_node_is_trimmed_too() -> None:
    closed = [ineligible(node) for node in nodes(1)]
    assert run(SYSTEM, closed, [OF.cur("a", ci=10), OF.cur("b", ci=20)]).stops == {"a": NOT_NEEDED}
    outcome = run(SYSTEM, closed, [OF.cur("a"), OF.old_d("b")])
    assert (outcome.stops, outcome.updated, outcome.placed) == ({"b": NOT_NEEDED}, {}, {})


def test_o27_o28_all_of_a_job_that_is_stopped_or_gone_end_once() -> None:
    allocs = [OF.cur("a"), OF.cur("b", ci=20), OF.old_d("c")]
    stopped = job_of("system", Stop=True)
    assert run(stopped, nodes(1), allocs).stops == dict.fromkeys("abc", NOT_NEEDED)
    purged = Cluster(None, nodes(1), allocs[:2])
    outcome = purged.run()
    assert outcome.stops == {"a": NOT_NEEDED, "b": NOT_NEEDED}
    assert outcome.plans[-1].job is not None
    assert outcome.plans[-1].job.id == "agent"
    assert purged.live_slots == []


# --- pace --------------------------------------------------------------------------------------------------------------


def example(max_parallel: int, *, with_extra: bool = True) -> Outcome:
    """Node n0 has one that can stay and, as an extra, one that would have to be replaced; n1 has one of those; n2 is up to date."""
    job = limited(max_parallel)
    of = Allocs(job)
    allocs = [of.old_i("stays", "n0", ci=20), of.old_d("replaced", "n1"), of.cur("current", "n2")]
    return run(job, nodes(3), [*allocs, of.old_d("extra", "n0", ci=10)] if with_extra else allocs)


def test_o29_an_extra_that_would_have_been_replaced_uses_the_unit() -> None:
    outcome = example(1)
    assert outcome.stops == {"extra": NOT_NEEDED}
    assert set(outcome.updated) == {"stays"}
    assert outcome.placed == {}
    (follow_up,) = outcome.follow_ups
    assert (follow_up.wait, follow_up.previous_eval, outcome.final.next_eval) == (30 * 10**9, outcome.final.id, follow_up.id)


def test_o30_o31_with_room_for_two_or_without_the_extra_nothing_is_held_back() -> None:
    for outcome, extra in ((example(2), {"extra": NOT_NEEDED}), (example(1, with_extra=False), {})):
        assert outcome.stops == {**extra, "replaced": UPDATING}
        assert set(outcome.updated) == {"stays"}
        assert outcome.placed_nodes == ["n1"]
        assert outcome.follow_ups == []


def test_o32_each_slot_takes_one_unit() -> None:
    job = limited(1)
    of = Allocs(job)
    allocs = [of.old_d(f"{kind}{node}", f"n{node}", ci=ci) for node in range(3) for kind, ci in (("extra", 10), ("kept", 20))]
    outcome = run(job, nodes(3), allocs)
    assert outcome.stops == {**{f"extra{node}": NOT_NEEDED for node in range(3)}, "kept0": UPDATING}
    assert outcome.placed_nodes == ["n0"]
    assert len(outcome.follow_ups) == 1


def test_o33_slots_with_such_extras_come_first() -> None:
    job = limited(1)
    of = Allocs(job)
    allocs = [of.old_d("lone", "n3"), *(of.cur(f"cur{node}", f"n{node}") for node in range(3)), *(of.old_d(f"old{node}", f"n{node}") for node in range(3))]
    outcome = run(job, nodes(4), allocs)
    assert outcome.stops == {f"old{node}": NOT_NEEDED for node in range(3)}
    assert len(outcome.follow_ups) == 1
    # Without a limit nobody waits.
    unlimited = run(
        SYSTEM, nodes(4), [OF.old_d("lone", "n3"), *(make(f"{make.__name__}{node}", f"n{node}") for node in range(3) for make in (OF.cur, OF.old_d))]
    )
    assert unlimited.placed_nodes == ["n3"]
    assert unlimited.follow_ups == []


def test_o34_other_extras_use_nothing() -> None:
    job = limited(1)
    of = Allocs(job)
    allocs = [of.old_d("lone", "n3"), *(of.cur(f"cur{node}", f"n{node}") for node in range(3)), *(of.old_i(f"old{node}", f"n{node}") for node in range(3))]
    outcome = run(job, nodes(4), allocs)
    assert outcome.stops == {**{f"old{node}": NOT_NEEDED for node in range(3)}, "lone": UPDATING}
    assert outcome.follow_ups == []


def test_o35_a_keeper_that_may_not_stay_is_replaced() -> None:
    job = job_of("system", Constraints=[{"LTarget": "${attr.arch}", "Operand": "=", "RTarget": "arm64"}])
    of = Allocs(job)
    outcome = run(job, nodes(1), [of.old_i("a", ci=10), of.old_i("b", ci=20)])
    assert outcome.stops == {"a": NOT_NEEDED, "b": UPDATING}
    assert (outcome.placed, outcome.updated) == ({}, {})


def test_a_keeper_that_may_not_stay_draws_on_the_limit() -> None:
    job = job_of("system", Update={"MaxParallel": 1}, Constraints=[{"LTarget": "${attr.arch}", "Operand": "=", "RTarget": "arm64"}])
    of = Allocs(job)
    outcome = run(job, nodes(2), [of.old_i(f"a{node}{ci}", f"n{node}", ci=ci) for node in range(2) for ci in (10, 20)])
    assert outcome.stops == {"a010": NOT_NEEDED, "a110": NOT_NEEDED, "a020": UPDATING}


# --- ports -------------------------------------------------------------------------------------------------------------


def test_o36_a_node_on_which_two_hold_one_port_is_healed() -> None:
    job = job_of("system", group_api(**PORT))
    of = Allocs(job)
    cluster = Cluster(job, nodes(1), [of.old_d("a", ci=10, **HOLDS_PORT), of.old_d("b", ci=20, **HOLDS_PORT)])
    outcome = cluster.run()
    assert outcome.stops == {"a": NOT_NEEDED, "b": UPDATING}
    (placed,) = outcome.placed.values()
    assert placed.allocated_resources is not None
    assert [port.value for port in placed.allocated_resources.shared.ports] == [8080]
    assert cluster.live_slots == [SLOT]


def test_o37_only_enforcing_heals_a_port_that_two_hold() -> None:
    job = job_of("system", group_api(**PORT))
    of = Allocs(job)
    other = service_job("other", group_api("other"), CreateIndex=60, ModifyIndex=60, JobModifyIndex=60)
    allocs = [of.cur("a", ci=10, **HOLDS_PORT), of.cur("b", ci=20, **HOLDS_PORT)]

    def other_places(cluster: Cluster) -> Outcome:
        return cluster.run(job_id="other", type="service")

    left = Cluster(job, nodes(1), allocs, others=[other], overlap="head")
    assert left.run().is_idle
    failed = other_places(left).final.failed_tg_allocs["other"]
    assert failed is not None
    assert failed.dimension_exhausted == {"network: port collision": 1}
    healed = Cluster(job, nodes(1), allocs, others=[other])
    assert healed.run().stops == {"a": NOT_NEEDED}
    assert other_places(healed).placed_nodes == []
    healed.report("a", client_status="complete")
    assert other_places(healed).placed_nodes == ["n0"]


def test_o38_an_older_one_that_holds_the_port_too_is_stopped_and_no_more() -> None:
    job = job_of("system", group_api(**PORT))
    of = Allocs(job)
    cluster = Cluster(job, nodes(1), [of.cur("a", **HOLDS_PORT), of.old_d("b", **HOLDS_PORT)])
    outcome = cluster.run()
    assert (outcome.stops, outcome.placed) == ({"b": NOT_NEEDED}, {})
    assert cluster.run(triggered_by="node-update").is_idle


def test_o52_o53_one_free_port_is_not_given_twice() -> None:
    ask = {"Mode": "host", "DynamicPorts": [{"Label": label, "HostNetwork": "default"} for label in ("one", "two")]}
    narrow = ready_node("n0", NodeResources={**ready_node("n0").to_api()["NodeResources"], "MinDynamicPort": 20000, "MaxDynamicPort": 20000})
    with pytest.raises(PortsUnavailable, match="dynamic port selection failed"):
        PortIndex(narrow).assign(ask)
    job = job_of("system", group_api(Networks=[ask]))
    assert run(job, [narrow], []).placed == {}
    wider = Node.from_api({**narrow.to_api(), "NodeResources": {**narrow.to_api()["NodeResources"], "MaxDynamicPort": 20001}})
    (placed,) = run(job, [wider], []).placed.values()
    assert placed.allocated_resources is not None
    assert sorted(port.value for port in placed.allocated_resources.shared.ports) == [20000, 20001]


# --- sysbatch ----------------------------------------------------------------------------------------------------------


def batch(count: int) -> tuple[Job, Allocs]:
    job = job_of("sysbatch", group_api(count=count))
    return job, Allocs(job)


def test_o39_o40_o41_each_index_has_its_slot() -> None:
    job, of = batch(3)
    assert run(job, nodes(1), [of.cur(f"a{index}", index=index) for index in range(3)]).is_idle
    outcome = run(job, nodes(1), [of.cur("a", index=0, ci=10), of.cur("b", index=0, ci=20), of.cur("c", index=1)])
    assert outcome.stops == {"a": NOT_NEEDED}
    assert set(outcome.placed) == {("n0", "agent.web[2]")}
    job, of = batch(4)
    four = [of.cur(f"a{ci}", ci=ci) for ci in range(1, 5)]
    outcome = run(job, nodes(1), four)
    assert set(outcome.stops) == {"a1", "a2", "a3"}
    assert set(outcome.placed) == {("n0", f"agent.web[{index}]") for index in (1, 2, 3)}
    assert run(job, nodes(1), four, overlap="pr16097").stops == {}


def test_o42_o43_one_that_ended_is_no_twin() -> None:
    job, of = batch(1)
    assert run(job, nodes(1), [of.cur("a"), of.cur("b", ClientStatus="complete")]).is_idle
    cluster = Cluster(job, nodes(1), [of.cur("a", ci=10), of.cur("b", ci=20)])
    assert cluster.run().stops == {"a": NOT_NEEDED}
    cluster.report("b", client_status="complete")
    assert cluster.run().is_idle


def test_o44_what_ran_well_on_a_dead_node_is_trimmed_too() -> None:
    job, of = batch(1)
    outcome = run(job, [down(node) for node in nodes(1)], [of.cur("a", ci=10, **successful()), of.cur("b", ci=20, **successful())])
    assert outcome.stops == {"a": NOT_NEEDED}


def test_a_lower_count_stops_the_names_beyond_it() -> None:
    job, of = batch(1)
    assert set(run(job, nodes(1), [of.cur(f"a{index}", index=index) for index in range(3)]).stops) == {"a1", "a2"}


# --- as once proposed (5.8) --------------------------------------------------------------------------------------------


def proposed(count: int, allocs: dict[str, tuple[str, dict[str, Any]]]) -> tuple[set[str], set[str]]:
    """Return what is stopped, and what is updated or replaced, with a quota of *count* for each name."""
    job, of = batch(count)
    outcome = run(
        job, nodes(1, cpu_mhz=40_000, memory_mib=80_000), [getattr(of, kind)(name, **fields) for name, (kind, fields) in allocs.items()], overlap="pr16097"
    )
    surplus = {alloc_id for alloc_id, description in outcome.stops.items() if description == NOT_NEEDED}
    return surplus, {alloc_id for alloc_id in allocs if alloc_id in outcome.updated or alloc_id in outcome.links.values()}


def test_the_quota_is_filled_from_what_is_current_first() -> None:
    four = {"a": ("cur", {"ci": 10}), "b": ("cur", {"ci": 20}), "u": ("old_d", {"ci": 90}), "r": ("cur", reconnecting(ci=99))}
    assert proposed(1, four) == ({"a", "u", "r"}, set())


def test_the_quota_prefers_the_newer_specification() -> None:
    job, of = batch(1)
    newer_one = of.old_d("newer", ci=1)
    newer_one.job = older(job, destructive=True, index=150)
    outcome = run(job, nodes(1), [of.old_d("older", ci=90), newer_one, of.cur("r", **reconnecting(ci=99))], overlap="pr16097")
    assert outcome.stops == {"older": NOT_NEEDED, "r": NOT_NEEDED, "newer": UPDATING}


def test_the_quota_prefers_the_newer_of_two_that_reconnect() -> None:
    assert proposed(1, {"a": ("cur", reconnecting(ci=10)), "b": ("cur", reconnecting(ci=20))}) == ({"a"}, {"b"})


def test_o50_the_quota_counts_each_name_by_itself() -> None:
    five = {**{f"i{ci}": ("cur", {"ci": ci}) for ci in (1, 2, 3)}, "u4": ("old_i", {"ci": 4}), "u5": ("old_i", {"ci": 5})}
    assert proposed(4, five) == ({"u4"}, {"u5"})


def test_a_quota_that_is_not_reached_changes_nothing() -> None:
    nine = {f"{kind}{number}": (kind, {"ci": number + 1}) for kind in ("cur", "old_i") for number in range(3)}
    nine |= {f"r{number}": ("cur", reconnecting(ci=number + 50)) for number in range(3)}
    stopped, updated = proposed(20, nine)
    assert stopped == set()
    assert updated == {name for name in nine if not name.startswith("cur")}


def test_the_quota_charges_nothing() -> None:
    job = limited(1)
    of = Allocs(job)
    outcome = run(job, nodes(2), [of.cur("a", "n0"), of.old_d("extra", "n0"), of.old_d("b", "n1")], overlap="pr16097")
    assert outcome.stops == {"extra": NOT_NEEDED, "b": UPDATING}


def test_unknown_ones_are_candidates() -> None:
    job = job_of("system", group_api(Disconnect={"LostAfter": 10 * MINUTE_NS}))
    of = Allocs(job)
    outcome = run(job, nodes(1), [of.cur("a", ci=10), of.cur("b", **unknown_since(MINUTE_NS), ci=20)])
    assert outcome.stops == {"a": NOT_NEEDED}
