"""All checks of a node in their order (schedulers 8.1), with what is known of classes of nodes (8.2)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from fastplan.fit.demand import volume_claims
from fastplan.scheduler.classes import computed_class
from fastplan.scheduler.feasible.checks import (
    CLASS_INELIGIBLE,
    DEFAULT_MODE,
    DISTINCT_HOSTS,
    SHARED_CLAIM,
    constraint_problem,
    device_problem,
    driver_problem,
    is_on,
    network_problem,
    secrets_problem,
    volume_problem,
)
from fastplan.scheduler.feasible.eligibility import Known
from fastplan.scheduler.feasible.property_set import DistinctProperty
from fastplan.scheduler.node_facts import FactsOfNodes
from fastplan.structs import Allocation, Constraint, Job, Node, Port, RequestedDevice, TaskGroup, VolumeRequest

if TYPE_CHECKING:
    from fastplan.scheduler.context import Context


class Feasibility:
    """Checks nodes for one group after the other. A node that fails leaves exactly one event in the context's metrics.

    Under Nomad's rules what was found of one node of a class holds for the others; under strict rules every node is looked at, and a class may be used if
    one of its nodes may.
    """

    def __init__(self, context: Context, *, generic: bool) -> None:
        """*generic*: of service and batch jobs, which may ask for distinct hosts; others reset what is known of classes at each selection."""
        self._context = context
        self._generic = generic
        self._strict = context.setting.strict
        self._facts = FactsOfNodes()
        self._job = Job()
        self._job_constraints: list[Constraint] = []
        self._group = TaskGroup()
        self._alloc_name = ""
        self._group_constraints: list[Constraint] = []
        self._drivers: list[str] = []
        self._devices: list[RequestedDevice] = []
        self._volumes: list[VolumeRequest] = []
        self._mode = DEFAULT_MODE
        self._ports: list[Port] = []
        self._job_distinct_hosts = self._group_distinct_hosts = False
        self._properties: list[DistinctProperty] = []
        self._known_properties: dict[tuple[str, str, str | None], DistinctProperty] = {}

    def set_job(self, job: Job) -> None:
        """Say whose allocations are placed."""
        self._job = job
        self._job_constraints = [constraint for constraint in job.constraints if constraint is not None]
        self._job_distinct_hosts = _asks_for_distinct_hosts(self._job_constraints)
        self._known_properties = {}
        self._context.eligibility.set_job(job)

    def set_group(self, group: TaskGroup, alloc_name: str = "") -> None:
        """Begin a selection for a group. *alloc_name*: of the new allocation; its volumes may depend on it."""
        if not self._generic:
            self._context.eligibility.reset()
        self._group = group
        self._alloc_name = alloc_name
        own = [constraint for constraint in group.constraints if constraint is not None]
        self._group_constraints = own + [constraint for task in group.tasks for constraint in task.constraints if constraint is not None]
        self._drivers = list(dict.fromkeys(task.driver for task in group.tasks))
        self._devices = [device for task in group.tasks if task.resources is not None for device in task.resources.devices if device is not None]
        self._volumes = [request for request in group.volumes.values() if request is not None]
        self._set_network(group)
        self._group_distinct_hosts = _asks_for_distinct_hosts(own)
        self._set_properties(group)

    def _set_network(self, group: TaskGroup) -> None:
        network = group.networks[0] if group.networks else None
        if network is not None:
            self._mode = network.mode or DEFAULT_MODE
            self._ports = [*network.dynamic_ports, *network.reserved_ports]
        elif self._strict:
            # As recorded, the network of the group before is asked for.
            self._mode, self._ports = DEFAULT_MODE, []

    def _set_properties(self, group: TaskGroup) -> None:
        tasks = [constraint for task in group.tasks for constraint in task.constraints]
        of_group = [(constraint, group.name) for constraint in (*group.constraints, *tasks)]
        self._properties = []
        for constraint, name in [*((constraint, None) for constraint in self._job_constraints), *of_group]:
            if constraint is None or constraint.operand != "distinct_property":
                continue
            key = (constraint.ltarget, constraint.rtarget, name)
            known = self._known_properties.get(key)
            if known is None:
                known = self._known_properties[key] = DistinctProperty(self._context, self._job, constraint.ltarget, constraint.rtarget, name)
            known.begin()
            self._properties.append(known)

    def check(self, node: Node) -> bool:
        """Return whether a node may be used; the reason why not goes to the metrics."""
        problem = self._problem(node)
        if problem:
            self._context.metrics.filter_node(node, problem)
        return not problem

    def _problem(self, node: Node) -> str:
        node_class = computed_class(node) if self._strict else node.computed_class
        problem = self._class_problem(node, node_class)
        return problem or self._availability_problem(node) or self._distinct_problem(node)

    # --- checks that hold for a class (8.2) ---------------------------------------------------------------------------

    def _class_problem(self, node: Node, node_class: str) -> str:
        known = self._context.eligibility
        of_job = Known.UNKNOWN if self._strict else known.of_job(node_class)
        if of_job is Known.INELIGIBLE:
            return CLASS_INELIGIBLE
        # That a class is eligible does not spare its nodes the checks of the job.
        problem = constraint_problem(self._job_constraints, node)
        self._note(node_class, problem, of_job, group=False)
        if problem:
            return problem
        of_group = Known.UNKNOWN if self._strict else known.of_group(self._group, node_class)
        if of_group is Known.INELIGIBLE:
            return CLASS_INELIGIBLE
        if of_group is Known.ELIGIBLE:
            return ""
        problem = self._group_problem(node)
        self._note(node_class, problem, of_group, group=True)
        return problem

    def _note(self, node_class: str, problem: str, before: Known, *, group: bool) -> None:
        known = self._context.eligibility
        if self._strict:
            # One node that may be used is enough to look at its class again.
            now = known.of_group(self._group, node_class) if group else known.of_job(node_class)
            if now is Known.ESCAPED or (problem and now is Known.ELIGIBLE):
                return
        elif before is Known.ESCAPED or (not problem and before is Known.ELIGIBLE):
            return
        if group:
            known.note_group(self._group, node_class, not problem)
        else:
            known.note_job(node_class, not problem)

    def _group_problem(self, node: Node) -> str:
        return (
            driver_problem(self._drivers, node)
            or constraint_problem(self._group_constraints, node)
            or device_problem(self._devices, self._facts.of(node), exact=self._strict)
            or network_problem(self._mode, self._ports, node)
            or secrets_problem(self._group, node)
        )

    # --- checks of each node ------------------------------------------------------------------------------------------

    def _availability_problem(self, node: Node) -> str:
        problem = volume_problem(self._volumes, self._alloc_name, node)
        if problem or not self._strict or not self._volumes:
            return problem
        return SHARED_CLAIM if self._shares_claim(node) else ""

    def _shares_claim(self, node: Node) -> bool:
        """Return whether a volume that tolerates one claim would get another one: the applier would refuse that for ever (schedulers 8.5)."""
        probe = Allocation(id="", task_group=self._group.name)
        counts: Counter[str] = Counter()
        exclusive: set[str] = set()
        for alloc, job in [(probe, self._job), *((alloc, alloc.job) for alloc in self._context.proposed_allocs(node.id))]:
            if job is None or job.group(alloc.task_group) is None:
                continue
            for source, is_exclusive in volume_claims(alloc, job):
                counts[source] += 1
                if is_exclusive:
                    exclusive.add(source)
        return any(counts[source] > 1 for source in exclusive)

    def _distinct_problem(self, node: Node) -> str:
        if self._generic and (self._job_distinct_hosts or self._group_distinct_hosts) and self._has_neighbour(node):
            return DISTINCT_HOSTS
        for property_set in self._properties:
            problem = property_set.problem(node)
            if problem:
                return problem
        return ""

    def _has_neighbour(self, node: Node) -> bool:
        """Return whether a node has an allocation of the job, or of the group where only that is asked for."""
        job = self._job
        for alloc in self._context.proposed_allocs(node.id):
            if alloc.job_id == job.id and alloc.namespace == job.namespace and (self._job_distinct_hosts or alloc.task_group == self._group.name):
                return True
        return False


def _asks_for_distinct_hosts(constraints: list[Constraint]) -> bool:
    """Return whether the first constraint of that kind is on; others do not count."""
    first = next((constraint for constraint in constraints if constraint.operand == DISTINCT_HOSTS), None)
    return first is not None and is_on(first.rtarget)
