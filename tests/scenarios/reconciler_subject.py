"""Evaluations as a story is told to the schedulers: what is described is scheduled under both rule sets, and where they differ the answer says so."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

from fastplan.errors import FastplanError
from fastplan.rules import Rules
from fastplan.structs import Allocation, AllocMetric, DeploymentState, Evaluation
from fastplan.structs.times import time_ns, time_text
from fastplan.testing import SchedulerHarness
from tests.scenarios.cluster_words import EVAL_ID, NOW_NS, ClusterWords
from tests.scenarios.runner import Arguments, duration

_MADE = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27}")
_LABELS = {Rules.NOMAD: "NOMAD: ", Rules.STRICT: "STRICT: "}


class ReconcilerSubject:
    """Commands, beside those of `ClusterWords`:

    new                          start with a cluster of nothing
    eval TRIGGER [blocked] [waited] [watched] [annotate] [where] [chosen] [write] [planner=MODE]
        `blocked`: it was waiting for room. `waited`: it was delayed itself. `watched`: somebody watches deployments. `where`: say on which node each
        allocation is placed, `write`: go on with what was planned. `planner` as in `fastplan.testing.SchedulerHarness`.

    An answer has a line for each kind of change of the last plan, then the evaluations that were created, then what became of this one. Lines that only one
    rule set has are marked.
    """

    def __init__(self) -> None:
        self._do_new(Arguments([]))

    def close(self) -> None:
        pass

    def run(self, command: str, arguments: Arguments) -> Iterable[str]:
        if command in ("new", "eval"):
            return list((self._do_new if command == "new" else self._do_eval)(arguments) or ())
        words, options = arguments.words, arguments.options
        for world in self._worlds.values():
            given = Arguments([])
            given.words, given.options = list(words), dict(options)
            getattr(world, f"do_{command}")(given)
            given.check_used()
        arguments.words, arguments.options = [], {}
        return []

    def _do_new(self, arguments: Arguments) -> None:
        self._worlds = {rules: ClusterWords() for rules in (Rules.NOMAD, Rules.STRICT)}

    def _do_eval(self, arguments: Arguments) -> Iterator[str]:
        trigger = arguments.word()
        flags = {name: arguments.flag(name) for name in ("blocked", "waited", "watched", "annotate", "where", "write")}
        planner = arguments.text("planner", "commit" if flags["write"] else "accept")
        told = {rules: list(_evaluated(world, rules, trigger, planner, flags)) for rules, world in self._worlds.items()}
        for line in difflib.ndiff(told[Rules.NOMAD], told[Rules.STRICT]):
            mark, text = line[:2], line[2:]
            if mark == "  ":
                yield text
            elif mark != "? ":
                yield _LABELS[Rules.NOMAD if mark == "- " else Rules.STRICT] + text


def _evaluated(world: ClusterWords, rules: Rules, trigger: str, planner: Any, flags: dict[str, bool]) -> Iterator[str]:
    # What is written has to have ids of its own.
    seed = len(world.allocs)
    harness = SchedulerHarness.from_dump(world.dump(), now_ns=NOW_NS, rules=rules, planner=planner, deployment_watcher=flags["watched"], seed=seed)
    evaluation = Evaluation(
        id=EVAL_ID,
        namespace="default",
        priority=50,
        type=world.job_type,
        job_id=world.job_id,
        triggered_by=trigger,
        status="blocked" if flags["blocked"] else "pending",
        wait_until=time_text(NOW_NS) if flags["waited"] else "",
        annotate_plan=flags["annotate"],
    )
    try:
        harness.process(evaluation)
    except FastplanError as error:
        yield f"error: {error}"
        return
    yield from _Told(world, harness, where=flags["where"]).lines()
    if flags["write"]:
        world.take(harness.store.snapshot().to_dump())


class _Told:
    """What became of an evaluation, line by line."""

    def __init__(self, world: ClusterWords, harness: SchedulerHarness, *, where: bool) -> None:
        self._known = world.allocs
        self._prefix = f"{world.job_id}."
        self._harness = harness
        self._where = where
        self._follow_ups: dict[str, list[str]] = {}

    def lines(self) -> Iterator[str]:
        harness = self._harness
        if len(harness.plans) > 1:
            yield f"plan {len(harness.plans)} times"
        if harness.plans:
            yield from self._plan(harness.plans[-1])
        for created in harness.created_evals:
            yield self._created(created)
        for reblocked in harness.reblocked_evals:
            yield f"blocked again{_failures(reblocked)}"
        for updated in harness.evals:
            yield self._updated(updated)

    def _short(self, alloc: Allocation) -> str:
        """Return the name that the story gave, or that of what a scheduler made."""
        return alloc.name.removeprefix(self._prefix) if _MADE.fullmatch(alloc.id) else alloc.id

    def _plan(self, plan: Any) -> Iterator[str]:
        stops = [(alloc, _of_stop(alloc)) for allocs in plan.node_update.values() for alloc in allocs or ()]
        entries = [alloc for _, allocs in sorted(plan.node_allocation.items()) for alloc in allocs or ()]
        placed = sorted((alloc for alloc in entries if alloc.id not in self._known), key=lambda alloc: (alloc.task_group, _index(alloc.name), alloc.name))
        written = [alloc for alloc in entries if alloc.id in self._known]
        for entry in [*written, *(alloc for alloc, _ in stops)]:
            if entry.followup_eval_id:
                self._follow_ups.setdefault(entry.followup_eval_id, []).append(self._short(entry))
        for how, ids in _grouped((how, self._short(alloc)) for alloc, how in stops):
            yield f"stop {ids}{how}"
        for how, ids in _grouped((self._of_update(alloc), self._short(alloc)) for alloc in written):
            yield f"{how} {ids}"
        for how, ids in _grouped((self._of_place(alloc), self._short(alloc)) for alloc in placed):
            yield f"place {ids}{how}"
        for node_id, victims in sorted(plan.node_preemptions.items()):
            yield f"preempt {' '.join(alloc.id for alloc in victims or ())} on {node_id}"
        if plan.deployment is not None:
            groups = ", ".join(f"{name} {_wanted(state)}" for name, state in sorted(plan.deployment.task_groups.items()))
            yield f"deployment {plan.deployment.status}: {groups}"
        for update in plan.deployment_updates:
            yield f"deployment {'that is new' if _MADE.fullmatch(update.deployment_id) else update.deployment_id} {update.status}: {update.status_description}"
        # Only a plan that was asked for them has a place for them.
        annotations = getattr(plan, "annotations", None)
        if annotations is not None:
            for group, counts in sorted(annotations.desired_tg_updates.items()):
                yield f"annotated {group}: {_counted(counts.to_api())}"

    def _of_update(self, alloc: Allocation) -> str:
        before = self._known[alloc.id]
        if alloc.client_status == "unknown" != before["ClientStatus"]:
            what = "unknown"
        elif len(alloc.alloc_states) > len(before.get("AllocStates") or ()):
            what = "reconnect"
        elif alloc.eval_id == EVAL_ID:
            what = "update in place"
        else:
            what = "note"
        tracker = alloc.reschedule_tracker
        if tracker is not None and tracker.last_reschedule == "no placement":
            what += " (no placement)"
        return what

    def _of_place(self, alloc: Allocation) -> str:
        text = ""
        if alloc.previous_allocation:
            text = " after an earlier one" if _MADE.fullmatch(alloc.previous_allocation) else f" after {alloc.previous_allocation}"
        if alloc.job is not None and self._harness.plans[-1].job is not None and alloc.job.version != self._harness.plans[-1].job.version:
            text += f" in version {alloc.job.version}"
        if alloc.deployment_status is not None and alloc.deployment_status.canary:
            text += " as canary"
        if self._where:
            text += f" on {alloc.node_id}"
        if alloc.preempted_allocations:
            text += f" instead of {' '.join(alloc.preempted_allocations)}"
        if alloc.reschedule_tracker is not None:
            delays = [event.delay / 1e9 for event in alloc.reschedule_tracker.events if event is not None]
            text += f", delays {' '.join(map(duration, delays))}"
        return text

    def _created(self, evaluation: Evaluation) -> str:
        wait_s = evaluation.wait / 1e9
        if evaluation.wait_until:
            wait_s = (time_ns(evaluation.wait_until, "WaitUntil") - NOW_NS) / 1e9
        when = f" in {duration(wait_s)}" if wait_s else ""
        named = self._follow_ups.get(evaluation.id)
        whose = f" for {' '.join(sorted(named))}" if named else ""
        what = "blocked evaluation, " if evaluation.status == "blocked" else ""
        description = f": {evaluation.status_description}" if evaluation.status_description else ""
        return f"create {what}{evaluation.triggered_by}{when}{whose}{description}"

    def _updated(self, evaluation: Evaluation) -> str:
        text = evaluation.status + (f" ({evaluation.status_description})" if evaluation.status_description else "")
        counts = [f"{group} {count}" for group, count in sorted(evaluation.queued_allocations.items())]
        text += f"; queued {', '.join(counts)}" if counts else ""
        if evaluation.blocked_eval:
            text += "; blocked"
        if evaluation.next_eval:
            text += "; next"
        return text + _failures(evaluation)


def _of_stop(alloc: Allocation) -> str:
    texts = [alloc.desired_description or "no reason"]
    if alloc.client_status == "lost":
        texts.append("lost")
    if alloc.desired_status != "stop":
        texts.append(f"says {alloc.desired_status}")
    tracker = alloc.reschedule_tracker
    if tracker is not None and tracker.last_reschedule:
        texts.append(f"noted {tracker.last_reschedule}")
    return f": {', '.join(texts)}"


def _failures(evaluation: Evaluation) -> str:
    return "".join(f"; failed {group}: {_failure(metric)}" for group, metric in sorted(evaluation.failed_tg_allocs.items()) if metric is not None)


def _failure(metric: AllocMetric) -> str:
    parts = [f"{name} {count}" for name, count in sorted({**metric.constraint_filtered, **metric.dimension_exhausted}.items())]
    if metric.coalesced_failures:
        parts.append(f"{metric.coalesced_failures} more")
    return ", ".join(parts) or "no node"


def _wanted(state: DeploymentState) -> str:
    return f"{state.desired_total} with {state.desired_canaries} canaries" if state.desired_canaries else str(state.desired_total)


def _counted(counts: dict[str, Any]) -> str:
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def _index(name: str) -> int:
    found = re.search(r"\[(\d+)\]$", name)
    return int(found[1]) if found else -1


def _grouped(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield what is said of several names once, with the names: runs of three and more by both ends."""
    groups: dict[str, list[str]] = {}
    for how, name in pairs:
        groups.setdefault(how, []).append(name)
    for how, found in groups.items():
        yield how, " ".join(_runs(found))


def _runs(found: list[str]) -> Iterator[str]:
    split = [re.fullmatch(r"(.*?)(\d+)(\]?)", name) for name in found]
    place = 0
    while place < len(found):
        end = place
        first = split[place]
        while first is not None and end + 1 < len(found) and (other := split[end + 1]) is not None:
            if (other[1], other[3], int(other[2])) != (first[1], first[3], int(first[2]) + end + 1 - place):
                break
            end += 1
        if first is not None and end > place + 1:
            last = int(first[2]) + end - place
            yield f"{first[1]}{first[2]}..{last}]" if first[3] else f"{first[1]}{first[2]}..{first[1]}{last}"
        else:
            end = place
            yield found[place]
        place = end + 1
