"""All checks of a node in their order (schedulers 8.1), with what is known of classes of nodes (8.2)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Literal

from fastplan.errors import InvalidInput
from fastplan.fit.demand import VolumeClaim, volume_claims
from fastplan.scheduler.feasible.checks import (
    CLASS_INELIGIBLE,
    DEFAULT_MODE,
    DISTINCT_HOSTS,
    SHARED_CLAIM,
    Problem,
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
from fastplan.scheduler.node_columns import facts_of_nodes
from fastplan.scheduler.targets import is_unique
from fastplan.structs import Affinity, Allocation, Constraint, Job, Node, Port, RequestedDevice, TaskGroup, VolumeRequest

if TYPE_CHECKING:
    from fastplan.scheduler.context import Context

_DEVICE_IDS: Final = "${device.ids}"


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
        self._facts = facts_of_nodes(context.state)
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
        problem = self.lasting_problem(node) or self.passing_problem(node)
        if problem is not None:
            self._context.metrics.filter_node(node, problem.reason)
        return problem is None

    def lasting_problem(self, node: Node) -> Problem | None:
        """Return why a node may not be used whatever the plan holds."""
        return self._class_problem(node, self._facts.of(node).computed_class) or volume_problem(self._volumes, self._alloc_name, node)

    def passing_problem(self, node: Node) -> Problem | None:
        """Return why a node may not be used as the plan stands now; a plan that places more never heals it."""
        return (self._claim_problem(node) if self._strict and self._volumes else None) or self._distinct_problem(node)

    @property
    def tells_nodes_apart(self) -> bool:
        """Whether a lasting problem may differ between nodes of one kind (`node_columns`)."""
        constraints: list[Constraint | Affinity] = [*self._job_constraints, *self._group_constraints]
        for device in self._devices:
            constraints += [each for each in (*device.constraints, *device.affinities) if each is not None]
        targets = [target for each in constraints for target in (each.ltarget, each.rtarget)] + [port.host_network for port in self._ports]
        return any(is_unique(target) or target == _DEVICE_IDS for target in targets)

    @property
    def names_volumes(self) -> bool:
        """Whether each allocation has volumes of its own."""
        return any(request.per_alloc for request in self._volumes)

    @property
    def has_passing_problems(self) -> bool:
        """Whether some passing problem is possible other than a neighbour on the node."""
        return bool(self._volumes or self._properties)

    @property
    def distinct_hosts(self) -> Literal["", "group", "job"]:
        """Whether no two allocations of the group, or of the whole job, may share a node."""
        return "job" if self._job_distinct_hosts else "group" if self._group_distinct_hosts else ""

    # --- checks that hold for a class (8.2) ---------------------------------------------------------------------------

    def _class_problem(self, node: Node, node_class: str) -> Problem | None:
        known = self._context.eligibility
        of_job = known.of_job(node_class)
        if of_job is Known.INELIGIBLE and not self._strict:
            return Problem(CLASS_INELIGIBLE)
        # That a class is eligible does not spare its nodes the checks of the job.
        problem = constraint_problem(self._job_constraints, node)
        if self._is_news(of_job, problem):
            known.note_job(node_class, problem is None)
        if problem is not None:
            return problem
        of_group = known.of_group(self._group, node_class)
        if not self._strict and of_group in (Known.INELIGIBLE, Known.ELIGIBLE):
            return Problem(CLASS_INELIGIBLE) if of_group is Known.INELIGIBLE else None
        problem = self._group_problem(node)
        if self._is_news(of_group, problem):
            known.note_group(self._group, node_class, problem is None)
        return problem

    def _is_news(self, before: Known, problem: Problem | None) -> bool:
        """Return whether what was found of a node says something new of its class.

        Under strict rules what is a matter of the single node says nothing: whoever waits for the class must be woken when that node changes.
        """
        if before is Known.ESCAPED:
            return False
        if problem is None:
            return before is not Known.ELIGIBLE
        return not self._strict or (problem.of_class and before is not Known.ELIGIBLE)

    def _group_problem(self, node: Node) -> Problem | None:
        return (
            driver_problem(self._drivers, node)
            or constraint_problem(self._group_constraints, node)
            or (device_problem(self._devices, self._facts.of(node), exact=self._strict) if self._devices else None)
            or network_problem(self._mode, self._ports, node)
            or secrets_problem(self._group, node)
        )

    # --- checks of each node ------------------------------------------------------------------------------------------

    def _claim_problem(self, node: Node) -> Problem | None:
        """Return whether a volume that tolerates one claim would get another one: the applier would refuse that for ever (schedulers 8.5)."""
        new = Allocation(task_group=self._group.name)
        claims: list[VolumeClaim] = []
        try:
            for alloc, job in [(new, self._job), *((alloc, alloc.job) for alloc in self._context.proposed_allocs(node.id))]:
                claims.extend(volume_claims(alloc, job))
        except InvalidInput as error:
            # The applier cannot read it either.
            return Problem(f"invalid input: {error}", of_class=False)
        counts = Counter(claim.source for claim in claims)
        return Problem(SHARED_CLAIM, of_class=False) if any(claim.exclusive and counts[claim.source] > 1 for claim in claims) else None

    def _distinct_problem(self, node: Node) -> Problem | None:
        if self._generic and (self._job_distinct_hosts or self._group_distinct_hosts) and self._has_neighbour(node):
            return Problem(DISTINCT_HOSTS, of_class=False)
        reason = next((reason for each in self._properties if (reason := each.problem(node))), "")
        return Problem(reason, of_class=False) if reason else None

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
