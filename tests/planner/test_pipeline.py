"""The pipeline with a real state machine under virtual time: plan-apply 6, cases L1 to L15, known faults 34 to 36 and 39 to 42."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from fastplan import codec
from fastplan.errors import NotLeader, OutcomeUnknown, PlanError, QueueDisabled, SnapshotTimeout, TooLarge
from fastplan.planner.pipeline import PipelineSettings
from fastplan.planner.tracker import TrackerSettings
from tests.planner.site import JOB, Site, alloc, answers, node, placed


def test_l1_two_plans_for_the_same_room() -> None:
    site = Site()

    async def run() -> None:
        first, second = await answers(site.send({"F": [alloc("a")]}), site.send({"F": [alloc("b")]}))
        assert placed(first) == {"F": ["a"]}
        assert (first.refresh_index, first.alloc_index) == (0, 3)
        assert placed(second) == {}
        assert second.alloc_index == 0
        assert second.refresh_index >= first.alloc_index
        assert second.reasons == {"F": "cpu"}

    site.run(run())


@pytest.mark.parametrize("depth", [1, 2, 16])
def test_l2_the_second_sees_the_first_while_it_commits(depth: int) -> None:
    site = Site(depth=depth, delay_s=lambda: 5.0)

    async def run() -> None:
        first = site.send({"F": [alloc("a")]})
        await asyncio.sleep(1)
        second = site.send({"F": [alloc("b")], "G": [alloc("c")]})
        await asyncio.sleep(3)
        assert not first.answered
        assert not second.answered
        if depth > 1:
            assert [len(batch.plans) for batch in site.applier.pipeline.in_flight] == [1, 1]
        first_result, second_result = await answers(first, second)
        assert placed(first_result) == {"F": ["a"]}
        assert placed(second_result) == {"G": ["c"]}
        assert second_result.rejected_nodes == ("F",)
        assert second_result.refresh_index == second_result.alloc_index == 4

    site.run(run())


@pytest.mark.parametrize("depth", [1, 2])
def test_l3_the_second_is_verified_again_when_the_first_fails(depth: int) -> None:
    site = Site(depth=depth, delay_s=lambda: 5.0)

    async def run() -> None:
        first = site.send({"F": [alloc("a")]})
        await asyncio.sleep(1)
        second = site.send({"F": [alloc("b")]})
        await asyncio.sleep(1)
        assert not second.answered
        site.log.fail_next_sync(OutcomeUnknown("the disk was slow"))
        first_error, second_result = await answers(first, second)
        assert isinstance(first_error, OutcomeUnknown)
        assert placed(second_result) == {"F": ["b"]}
        assert second_result.refresh_index == 0
        assert site.figure("fastplan.plan.verified_again") >= 1

    site.run(run())


@pytest.mark.parametrize("depth", [1, 2])
def test_l4_room_that_was_not_freed(depth: int) -> None:
    site = Site(depth=depth, delay_s=lambda: 5.0)

    async def run() -> None:
        await answers(site.send({"F": [alloc("holder")]}))
        await site.command(codec.UpdateAllocsFromClient([codec.AllocClientUpdate("holder", "running")]))
        first = site.send(stop={"F": [{"ID": "holder", "ClientStatus": "lost"}]})
        await asyncio.sleep(1)
        second = site.send({"F": [alloc("b")]})
        await asyncio.sleep(1)
        site.log.fail_next_sync(OutcomeUnknown("the disk was slow"))
        first_error, second_answer = await answers(first, second)
        assert isinstance(first_error, OutcomeUnknown)
        # With room for both in flight the second went down with the first; else it was verified again.
        assert isinstance(second_answer, OutcomeUnknown) if depth == 2 else placed(second_answer) == {}
        assert site.store.alloc("b") is None

    site.run(run())


def test_l4_freed_room_is_usable_before_it_is_committed() -> None:
    site = Site(delay_s=lambda: 5.0)

    async def run() -> None:
        await answers(site.send({"F": [alloc("holder")]}))
        first = site.send(stop={"F": [{"ID": "holder", "ClientStatus": "lost"}]})
        await asyncio.sleep(1)
        second = site.send({"F": [alloc("b")]})
        assert [placed(each) for each in await answers(first, second)] == [{}, {"F": ["b"]}]

    site.run(run())


def test_l5_and_l6_the_refresh_index_is_raised_to_the_commit_index() -> None:
    site = Site()

    async def run() -> None:
        await answers(site.send({"F": [alloc("a")]}))
        for number in range(10):
            await site.command(codec.UpsertEvals([{"ID": f"e{number}"}]))
        (partial,) = await answers(site.send({"F": [alloc("b")], "G": [alloc("c")]}))
        assert partial.refresh_index == partial.alloc_index == 14
        (refused,) = await answers(site.send({"F": [alloc("d")]}))
        assert (refused.refresh_index, refused.alloc_index) == (14, 0)
        (full,) = await answers(site.send(stop={"G": [{"ID": "c"}]}))
        assert (full.refresh_index, full.alloc_index) == (0, 15)

    site.run(run())


def test_l7_an_index_that_never_comes() -> None:
    site = Site()

    async def run() -> None:
        late = site.send({"F": [alloc("a")]}, SnapshotIndex=1000)
        good = site.send({"G": [alloc("b")]})
        assert placed(await good) == {"G": ["b"]}
        assert site.clock.monotonic_s() < 1
        with pytest.raises(
            SnapshotTimeout, match=r"^timed out after 10s waiting for index=1000 \(previous plan result index=1000; plan snapshot index=1000\)$"
        ):
            await late
        assert site.clock.monotonic_s() == pytest.approx(10, abs=0.1)
        assert placed(await site.send({"F": [alloc("c")]})) == {"F": ["c"]}
        assert site.figure("nomad.plan.wait_for_index", "count") == 1

    site.run(run())


def test_known_fault_34_a_plan_waits_for_the_state_it_was_made_on() -> None:
    site = Site()

    async def run() -> None:
        early = site.send({"N": [alloc("a")]}, SnapshotIndex=4)
        await asyncio.sleep(1)
        assert not early.answered
        await site.command(codec.UpsertEvals([{"ID": "e"}]))
        await asyncio.sleep(1)
        assert not early.answered
        await site.command(codec.UpsertNodes([node("N")]))
        assert placed(await early) == {"N": ["a"]}

    site.run(run())


def test_known_fault_35_a_time_out_fails_one_plan_only() -> None:
    site = Site(depth=1, delay_s=lambda: 30.0)

    async def run() -> None:
        first = site.send({"F": [alloc("a")]})
        await asyncio.sleep(0)
        late = site.send({"G": [alloc("b")]}, SnapshotIndex=1003)
        good = site.send({"G": [alloc("c")]})
        results = await answers(first, late, good)
        assert isinstance(results[1], SnapshotTimeout)
        assert [placed(results[0]), placed(results[2])] == [{"F": ["a"]}, {"G": ["c"]}]
        assert site.applier.pipeline.unfinished() == 0

    site.run(run())


def test_l8_many_plans_without_conflicts() -> None:
    names = tuple(f"n{number:02}" for number in range(20))
    site = Site(depth=16, nodes=names, settings=PipelineSettings(depth=16, batch_plans=1))

    async def run() -> None:
        results = await answers(*(site.send({name: [alloc(f"a{name}")]}) for name in names))
        assert [placed(result) for result in results] == [{name: [f"a{name}"]} for name in names]
        assert site.figure("nomad.plan.outstanding_apply", "greatest") > 0

    site.run(run())


@pytest.mark.parametrize("depth", [0, -3, 1])
def test_l9_l10_never_more_than_depth_batches(depth: int) -> None:
    site = Site(depth=depth, settings=PipelineSettings(depth=depth, batch_plans=2), nodes=tuple(f"n{number}" for number in range(10)))
    assert_depth(site, 1)


@pytest.mark.parametrize("depth", [2, 3, 16])
def test_l10_never_more_than_depth_batches(depth: int) -> None:
    site = Site(settings=PipelineSettings(depth=depth, batch_plans=2), nodes=tuple(f"n{number}" for number in range(10)))
    assert_depth(site, depth)


def assert_depth(site: Site, depth: int) -> None:
    most = 0
    propose = site.log.propose_batch

    def watch(entries: Any, **rest: Any) -> Any:
        nonlocal most
        handle = propose(entries, **rest)
        most = max(most, site.log.pending)
        return handle

    async def run() -> None:
        site.log.propose_batch = watch  # type: ignore[method-assign]
        results = await answers(*(site.send({f"n{number % 10}": [alloc(f"a{number}", 100)]}) for number in range(60)))
        assert all(len(placed(result)) == 1 for result in results)

    site.run(run())
    # A batch has at most two plans, so 60 plans want 30 batches.
    assert most == min(depth, 30)


def test_l11_leadership_lost() -> None:
    site = Site(depth=1, delay_s=lambda: 5.0)

    async def run() -> None:
        first = site.send({"F": [alloc("a")]})
        await asyncio.sleep(1)
        others = [site.send({"G": [alloc(name)]}) for name in "bcd"]
        await asyncio.sleep(1)
        queued = site.send({"G": [alloc("e")]})
        site.log.lose_leadership()
        site.applier.step_down()
        results = await answers(first, *others, queued)
        assert isinstance(results[0], OutcomeUnknown)
        assert [str(error) for error in results[1:]] == ["plan queue flushed"] * 4
        assert site.applier.pipeline is None
        with pytest.raises(QueueDisabled, match="plan queue is disabled"):
            site.send({"G": [alloc("f")]})

    site.run(run())


def test_the_log_says_first_that_leadership_is_over() -> None:
    site = Site()

    async def run() -> None:
        site.log.term = 7
        (error,) = await answers(site.send({"F": [alloc("a")]}))
        assert isinstance(error, NotLeader)
        assert site.applier.pipeline is None
        assert not site.applier.queue.enabled

    site.run(run())


def test_l12_a_noop_overtakes() -> None:
    for depth in (1, 2):
        site = Site(depth=depth, delay_s=lambda: 5.0)

        async def run(site: Site = site) -> None:
            first = site.send({"F": [alloc("a")]})
            await asyncio.sleep(1)
            noop = site.send(stop={"F": []})
            refused = site.send({"missing": [alloc("b")]})
            await asyncio.sleep(0.1)
            assert noop.answered
            assert refused.answered
            assert not first.answered
            assert refused.result().reasons == {"missing": "node does not exist"}
            await first

        site.run(run())


def test_l13_a_node_goes_down_between_two_plans() -> None:
    for depth in (1, 2):
        site = Site(depth=depth, delay_s=lambda: 5.0)

        async def run(site: Site = site) -> None:
            blocker = site.send({"F": [alloc("a")]})
            await asyncio.sleep(1)
            down = asyncio.create_task(site.command(codec.UpdateNodeStatus("G", "down")))
            await down
            await blocker
            (second,) = await answers(site.send({"G": [alloc("b")]}))
            assert second.reasons == {"G": "node is down and contains invalid updates"}

        site.run(run())


def test_l13_a_verdict_that_waits_to_be_sent_is_made_again() -> None:
    site = Site(depth=1, delay_s=lambda: 5.0)

    async def run() -> None:
        down = asyncio.create_task(site.command(codec.UpdateNodeStatus("G", "down")))
        await asyncio.sleep(1)
        blocker = site.send({"F": [alloc("a")]})
        await asyncio.sleep(1)
        second = site.send({"G": [alloc("b")]})
        await asyncio.sleep(1)
        assert site.applier.pipeline.unfinished() == 2
        await down
        await blocker
        assert (await second).reasons == {"G": "node is down and contains invalid updates"}

    site.run(run())


def test_l14_lost_and_regained_at_once() -> None:
    site = Site(delay_s=lambda: 5.0)

    async def run() -> None:
        first = site.send({"F": [alloc("a")]})
        await asyncio.sleep(1)
        old = site.applier.pipeline
        site.log.lose_leadership()
        site.applier.lead(site.log.term)
        assert site.applier.pipeline is not old
        results = await answers(first, site.send({"G": [alloc("b")]}))
        assert isinstance(results[0], OutcomeUnknown)
        assert placed(results[1]) == {"G": ["b"]}
        assert (old.unfinished(), old.stopped, site.applier.generation) == (0, True, 2)

    site.run(run())


def test_l15_the_tracker_closes_a_node() -> None:
    site = Site(tracker=TrackerSettings(node_threshold=100, node_window_s=300))

    async def run() -> None:
        await answers(site.send({"F": [alloc("a")]}))
        for number in range(99):
            (refused,) = await answers(site.send({"F": [alloc(f"b{number}")]}))
            assert refused.ineligible_nodes == ()
            assert refused.alloc_index == 0
        (last,) = await answers(site.send({"F": [alloc("last")]}))
        assert last.ineligible_nodes == last.rejected_nodes == ("F",)
        assert not last.is_noop()
        assert last.alloc_index == last.refresh_index == 4
        closed = site.store.node("F").to_api()
        assert closed["SchedulingEligibility"] == "ineligible"
        assert [(event["Subsystem"], "multiple plan rejections" in event["Message"]) for event in closed["Events"]] == [("Scheduler", True)]
        assert site.figure("nomad.plan.node_rejected", "values") == {"F": 100}

    site.run(run())


def test_known_fault_36_nonsense_does_not_stop_the_loop() -> None:
    site = Site()

    async def run() -> None:
        results = await answers(
            site.applier.enqueue(site.plan({"F": [alloc("a")]}, Job=None)),
            site.applier.enqueue(site.plan(None, None, NodeAllocation=None, NodeUpdate=None, NodePreemptions=None)),
            site.send({"F": [alloc("b")]}),
        )
        assert str(results[0]) == "plan missing embedded job"
        assert results[1].is_noop()
        assert placed(results[2]) == {"F": ["b"]}

    site.run(run())


def test_known_fault_39_reasons_counters_and_one_log_line_a_node(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(nodes=("n1", "n2", "n3"))

    async def run() -> None:
        await site.command(codec.UpsertEvals([{"ID": "e1"}]))
        with caplog.at_level(logging.INFO, "fastplan.planner"):
            port = {"AllocatedResources": {"Tasks": {}, "Shared": {"Ports": [{"Label": "p", "Value": 80, "HostIP": "10.0.0.1"}] * 2}}}
            (result,) = await answers(site.send({"n1": [alloc("a")], "n2": [alloc("b") | port], "n3": [alloc("c", 2000)]}, EvalID="e1"))
        assert placed(result) == {"n1": ["a"]}
        assert result.reasons["n3"] == "cpu"
        assert result.reasons["n2"].startswith("reserved alloc port collision: collision when reserving port for alloc b: ")
        assert site.figure("nomad.plan.node_rejected", "values") == {"n2": 1, "n3": 1}
        lines = [record.getMessage() for record in caplog.records]
        assert len(lines) == 2
        assert "node_id=n3 reason='cpu' eval_id=e1 namespace=default" in lines[1]

    site.run(run())


def test_known_fault_41_victims_that_have_ended() -> None:
    site = Site(nodes=("F",))

    async def run() -> None:
        low = JOB | {"ID": "low", "Priority": 10}
        await site.command(codec.UpsertJob(low))
        victims = [alloc(name, 400, JobID="low", Name=f"low.g[{name}]") for name in "AB"]
        await answers(site.applier.enqueue(site.plan({"F": victims}, Job=low)))
        await site.command(codec.UpdateAllocsFromClient([codec.AllocClientUpdate("B", "complete")]))
        preempt = {"F": [{"ID": name, "PreemptedByAllocation": "c"} for name in "AB"]}
        (result,) = await answers(site.send({"F": [alloc("c")]}, NodePreemptions=preempt))
        assert [each.id for each in result.node_preemptions["F"]] == ["A"]
        assert site.store.alloc("A").desired_status == "evict"
        assert site.store.alloc("B").desired_status == "run"
        evals = site.store.evals()
        assert [(each.job_id, each.triggered_by, each.status, each.priority, each.type) for each in evals] == [("low", "preemption", "pending", 10, "service")]

    site.run(run())


def test_s1_s19_s20_what_cannot_be_written_is_an_error_and_leaves_no_trace() -> None:
    def hook(plan: Any, result: Any) -> Any:
        if plan.eval_token == "unsigned":
            raise PlanError("keyring has not been initialized yet")
        return {alloc_id: {"t": "signed"} for allocs in placed(result).values() for alloc_id in allocs}

    site = Site(identity_hook=hook)

    async def run() -> None:
        results = await answers(
            site.applier.enqueue(site.plan({"F": [alloc("a")]}, Job=None, JobInfo={"Namespace": "default", "ID": "web"})),
            site.applier.enqueue(site.plan({"F": [alloc("b")]}, Job=JOB | {"Namespace": "gone"})),
            site.send({"F": [alloc("c")]}, EvalToken="unsigned"),
            site.send({"F": [alloc("d")]}, EvalID="unknown"),
            # Each of them would have filled F.
            site.send({"F": [alloc("e")]}),
        )
        assert [str(error) for error in results[:4]] == [
            "plan missing embedded job",
            'namespace "gone" not found for job "web"',
            "keyring has not been initialized yet",
            'unable to find eval id "unknown"',
        ]
        assert all(isinstance(error, PlanError) for error in results[:4])
        assert placed(results[4]) == {"F": ["e"]}
        assert site.store.alloc("e").to_api()["SignedIdentities"] == {"t": "signed"}
        assert len(site.log.committed) == 3

    site.run(run())


def test_a_full_log_is_waited_for() -> None:
    site = Site()

    async def run() -> None:
        site.log.set_busy(True)
        first = site.send({"F": [alloc("a")]})
        await asyncio.sleep(1)
        second = site.send({"F": [alloc("b")]})
        await asyncio.sleep(1)
        assert not first.answered
        site.log.set_busy(False)
        results = await answers(first, second)
        assert [placed(each) for each in results] == [{"F": ["a"]}, {}]
        assert site.figure("nomad.plan.node_rejected", "values") == {"F": 1}

    site.run(run())


def test_an_entry_that_is_too_large_fails_alone() -> None:
    site = Site(entry_limit_bytes=20_000, nodes=("F", "G", "H"))

    async def run() -> None:
        large = alloc("large", 10, ClientDescription="x" * 30_000)
        results = await answers(site.send({"F": [alloc("a")]}), site.send({"G": [large]}), site.send({"G": [alloc("b")]}), site.send({"H": [alloc("c")]}))
        assert isinstance(results[1], TooLarge)
        assert [placed(each) for each in (results[0], *results[2:])] == [{"F": ["a"]}, {"G": ["b"]}, {"H": ["c"]}]

    site.run(run())


def test_batches_are_limited_in_bytes() -> None:
    names = tuple(f"n{number}" for number in range(8))
    site = Site(nodes=names, settings=PipelineSettings(batch_bytes=100))

    async def run() -> None:
        results = await answers(*(site.send({name: [alloc(f"a{name}")]}) for name in names))
        assert [placed(each) for each in results] == [{name: [f"a{name}"]} for name in names]
        assert site.figure("fastplan.plan.batches") > 2

    site.run(run())


def test_a_plan_sent_again_is_applied_once() -> None:
    site = Site()

    async def run() -> None:
        await site.command(codec.UpsertEvals([{"ID": "e1"}]))
        place = {"F": [alloc("a")], "G": [alloc("b", 2000)]}
        (first,) = await answers(site.send(place, EvalID="e1", EvalToken="t"))
        assert first.rejected_nodes == ("G",)
        length = len(site.log.committed)
        (again,) = await answers(site.send(place, EvalID="e1", EvalToken="t"))
        assert len(site.log.committed) == length
        assert (again.alloc_index, again.refresh_index, again.rejected_nodes) == (first.alloc_index, first.refresh_index, first.rejected_nodes)
        assert placed(again) == placed(first)

    site.run(run())


def test_the_number_of_a_plan_tells_which_it_is() -> None:
    site = Site()

    async def run() -> None:
        await site.command(codec.UpsertEvals([{"ID": "e1"}]))
        place = {"F": [alloc("a")]}
        (first,) = await answers(site.send(place, EvalID="e1", EvalToken="t", Number=1))
        length = len(site.log.committed)
        # The same plan, made anew from what was received: whatever else it says, it was applied already.
        (again,) = await answers(site.send({"F": [alloc("b", 1)]}, EvalID="e1", EvalToken="t", Number=1, SnapshotIndex=1))
        assert (again.alloc_index, len(site.log.committed)) == (first.alloc_index, length)
        # The next plan of the run, with equal contents, and the first one of the next run.
        (second,) = await answers(site.send(place, EvalID="e1", EvalToken="t", Number=2))
        (other,) = await answers(site.send(place, EvalID="e1", EvalToken="u", Number=1))
        assert first.alloc_index < second.alloc_index < other.alloc_index
        assert [each.id for each in site.store.allocs()] == ["a"]

    site.run(run())


def test_a_numbered_plan_that_only_changes_a_deployment_is_applied_once() -> None:
    site = Site()

    async def run() -> None:
        await site.command(codec.UpsertEvals([{"ID": "e1"}]))
        plan = {"EvalID": "e1", "EvalToken": "t", "Number": 1, "Deployment": {"ID": "d", "JobID": "web", "Namespace": "default", "Status": "running"}}
        (first,) = await answers(site.send(**plan))
        length = len(site.log.committed)
        (again,) = await answers(site.send(**plan))
        assert (again.alloc_index, len(site.log.committed)) == (first.alloc_index, length)

    site.run(run())


def test_a_plan_sent_again_while_it_is_in_flight() -> None:
    for depth in (1, 2):
        site = Site(depth=depth, delay_s=lambda: 5.0)

        async def run(site: Site = site) -> None:
            await site.command(codec.UpsertEvals([{"ID": "e1"}]))
            plan = site.plan({"F": [alloc("a")]}, EvalID="e1", EvalToken="t")
            first = site.applier.enqueue(plan)
            await asyncio.sleep(1)
            second = site.applier.enqueue(plan)
            third = site.send({"F": [alloc("a")]}, EvalID="e1", EvalToken="t")
            results = await answers(first, second, third)
            assert [placed(each) for each in results] == [{"F": ["a"]}] * 3
            assert {each.alloc_index for each in results} == {results[0].alloc_index}
            assert len(site.store.allocs()) == 1

        site.run(run())


def test_priorities() -> None:
    site = Site()

    async def run() -> None:
        low, high = site.send({"F": [alloc("low")]}, Priority=10), site.send({"F": [alloc("high")]}, Priority=90)
        results = await answers(low, high)
        assert [placed(each) for each in results] == [{}, {"F": ["high"]}]

    site.run(run())


def test_what_rests_on_a_refused_plan_is_refused_too() -> None:
    """The evaluation of a plan goes away while the plan is on its way: the room it would have freed is not there."""
    site = Site(depth=2, delay_s=lambda: 5.0)

    async def run() -> None:
        await site.command(codec.UpsertEvals([{"ID": "e1"}]))
        await answers(site.send({"F": [alloc("holder")]}))
        gone = asyncio.create_task(site.command(codec.DeleteEvals(["e1"])))
        await asyncio.sleep(0)
        first = site.send(stop={"F": [{"ID": "holder", "ClientStatus": "lost"}]}, EvalID="e1")
        second = site.send({"F": [alloc("b")]})
        other = site.send({"G": [alloc("c")]})
        results = await answers(first, second, other)
        await gone
        assert str(results[0]) == 'unable to find eval id "e1"'
        assert str(results[1]) == "the plan was verified on another one that was refused"
        assert placed(results[2]) == {"G": ["c"]}
        assert site.store.alloc("b") is None
        # Later plans are not concerned.
        (later,) = await answers(site.send(stop={"F": [{"ID": "holder", "ClientStatus": "lost"}]}))
        assert later.alloc_index > 0
        assert placed((await answers(site.send({"F": [alloc("b")]})))[0]) == {"F": ["b"]}

    site.run(run())


def test_a_defect_leaves_nobody_waiting(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(delay_s=lambda: 5.0)

    async def run() -> None:
        first = site.send({"F": [alloc("a")]})
        await asyncio.sleep(1)
        pipeline = site.applier.pipeline
        verify = pipeline._view.verify

        def broken(plans: Any, group: Any) -> Any:
            if any(plan.priority == 13 for plan in plans):
                raise ZeroDivisionError("by zero")
            return verify(plans, group)

        monkeypatch.setattr(pipeline._view, "verify", broken)
        results = await answers(first, site.send({"G": [alloc("b")]}, Priority=13), site.send({"G": [alloc("c")]}, SnapshotIndex=99))
        assert placed(results[0]) == {"F": ["a"]}
        assert str(results[1]) == "the plan applier failed: by zero"
        assert str(results[2]) == "plan queue flushed"
        assert not site.applier.queue.enabled
        site.applier.lead(site.log.term)
        assert placed(await site.send({"G": [alloc("d")]})) == {"G": ["d"]}

    site.run(run())
    assert any(record.levelno == logging.ERROR for record in caplog.records)
