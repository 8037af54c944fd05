"""Whether a new allocation of a group fits one node, and with what (schedulers 9.2, 11)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastplan.errors import InvalidInput, Reason
from fastplan.fit.demand import totals_of
from fastplan.fit.lists import remove_allocs
from fastplan.fit.reference import check
from fastplan.fit.results import Check, UsedResources
from fastplan.scheduler.group_ask import GroupAsk
from fastplan.scheduler.node_columns import facts_of_nodes
from fastplan.scheduler.node_facts import NodeFacts
from fastplan.scheduler.preemption import Preemptor, preempted_counts
from fastplan.scheduler.resources import ResourceChoice
from fastplan.structs import AllocatedResources, Allocation, Job, Node, TaskGroup
from fastplan.structs.canonical import canonical_alloc

if TYPE_CHECKING:
    from fastplan.scheduler.context import Context


@dataclass(frozen=True, slots=True)
class NodeFit:
    """What a new allocation would hold on a node, what is used then, and who has to give way. `device_score` is None where no request has affinities."""

    resources: AllocatedResources
    used: UsedResources
    device_score: float | None
    victims: list[Allocation]


class NodeFitter:
    """Fits allocations of one group after another on nodes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._nodes = facts_of_nodes(context.state)
        self._job = Job()
        self._ask = GroupAsk.of(TaskGroup(), oversubscription=False)

    def set_job(self, job: Job) -> None:
        """Say whose allocations are fitted."""
        self._job = job

    def set_group(self, group: TaskGroup) -> None:
        """Say which group's allocations are fitted."""
        self._ask = GroupAsk.of(group, oversubscription=self._context.config.memory_oversubscription)

    def facts(self, node: Node) -> NodeFacts:
        """Return a node taken apart."""
        return self._nodes.of(node)

    def preemptor(self) -> Preemptor:
        """Return who chooses victims: what the plan preempts already counts against the same groups."""
        entries = [entry for entries in self._context.draft.node_preemptions.values() for entry in entries]
        return Preemptor.of(self._job, preempted_counts(entries), strict=self._context.setting.strict)

    def fit(self, node: Node, proposed: list[Allocation], preemptor: Preemptor | None) -> NodeFit | str:
        """Return how an allocation fits beside what is *proposed* on a node, or the dimension that is exhausted (schedulers 12).

        Raises `InvalidInput` for a node or an allocation that cannot be read; under strict rules only that node is of no use.
        """
        try:
            return self._fit(self.facts(node), proposed, preemptor)
        except InvalidInput as problem:
            if not self._context.setting.strict:
                raise
            return Check(Reason.INVALID, str(problem)).reason

    def _fit(self, facts: NodeFacts, proposed: list[Allocation], preemptor: Preemptor | None) -> NodeFit | str:
        setting = self._context.setting
        choice = ResourceChoice(facts, [canonical_alloc(alloc) for alloc in proposed], setting.randomness, preemptor, exact=setting.strict)
        if problem := choice.choose(self._ask):
            return problem
        alloc = Allocation(
            namespace=self._job.namespace, job_id=self._job.id, job=self._job, task_group=self._ask.group.name, allocated_resources=choice.resources
        )
        verdict = self._check(facts, [*choice.proposed, alloc])
        victims = choice.victims
        if verdict.reason:
            if preemptor is None:
                return verdict.reason
            more = preemptor.for_resources(facts.supply, choice.proposed, totals_of(alloc))
            if more is None:
                return verdict.reason
            if preemptor.strict and (still := self._check(facts, [*remove_allocs(choice.proposed, more), alloc]).reason):
                return still
            victims = victims + more
        device_score = choice.matched_weight / choice.total_weight if choice.total_weight else None
        return NodeFit(choice.resources, verdict.used, device_score, victims)

    def _check(self, facts: NodeFacts, allocs: list[Allocation]) -> Check:
        """Check amounts, and under strict rules all else that the applier will: what it would refuse must not be proposed for ever."""
        strict = self._context.setting.strict
        new_ids = {allocs[-1].id}
        return check(facts.node, allocs, supply=facts.supply, check_devices=strict, check_ports=strict, strict=strict, new_ids=new_ids)
