"""Commands applied to the store: every change of state that is not a plan.

A command is checked completely before it writes anything, so one that is refused changes nothing, and neither does a batch of
which one part is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial, singledispatchmethod
from typing import Any, TypeVar

from fastplan import codec
from fastplan.errors import FastplanError, InvalidInput, StateError
from fastplan.fsm.allocs import set_transitions, update_from_client
from fastplan.fsm.deployments import ACTIVE_STATUSES, check_promotion, promote, update_status
from fastplan.fsm.evaluations import check_status, upsert_evals
from fastplan.fsm.jobs import refresh_statuses
from fastplan.state import StateStore
from fastplan.structs import Allocation, Deployment, DeploymentUpdate, DesiredTransition, DrainStrategy, Evaluation, Job, Node
from fastplan.structs.times import time_ns

Write = Callable[[], object]
"""A change that has been checked and cannot fail."""

R = TypeVar("R", Node, Job, Evaluation, Allocation, Deployment)


class CommandWriter:
    """Applies one command at one index."""

    def __init__(self, store: StateStore, index: int, time_ns: int) -> None:
        self._store = store
        self._index = index
        self._time_ns = time_ns
        # What earlier commands of the same batch will have made or removed by the time of the next.
        self._made: dict[tuple[str, ...], bool] = {}

    def apply(self, command: codec.Command) -> str | None:
        """Write the command and return None, or why it is refused."""
        commands = command.commands if isinstance(command, codec.Batch) else [command]
        try:
            writes = [write for each in commands for write in self._check(each)]
        except FastplanError as error:
            return str(error)
        for write in writes:
            write()
        return None

    # Every method below raises what refuses its command, and returns the writes.

    @singledispatchmethod
    def _check(self, command: Any) -> list[Write]:
        raise StateError(f"no such command: {type(command).__name__}")

    @_check.register
    def _(self, command: codec.UpsertNodes) -> list[Write]:
        nodes = self._read(Node, command.nodes, "nodes")
        self._mark("node", (node.id for node in nodes), True)
        return [partial(self._store.upsert_node, self._index, node) for node in nodes]

    @_check.register
    def _(self, command: codec.UpdateNodeStatus) -> list[Write]:
        self._require_node(command.node_id)
        self._mark("node", [command.node_id], True)
        seconds = self._time_ns // 10**9
        return [partial(self._store.update_node_status, self._index, command.node_id, command.status, updated_at=seconds)]

    @_check.register
    def _(self, command: codec.UpdateNodeEligibility) -> list[Write]:
        self._require_node(command.node_id)
        if command.eligibility not in ("eligible", "ineligible"):
            raise InvalidInput("eligibility", command.eligibility, '"eligible" or "ineligible"')
        self._mark("node", [command.node_id], True)
        seconds = self._time_ns // 10**9
        return [partial(self._store.update_node_eligibility, self._index, command.node_id, command.eligibility, updated_at=seconds)]

    @_check.register
    def _(self, command: codec.UpdateNodeDrain) -> list[Write]:
        self._require_node(command.node_id)
        # Through a record, so that a drain that cannot be read is refused here.
        drain = Node.from_api({"ID": command.node_id, "DrainStrategy": command.drain_strategy}).drain_strategy
        self._mark("node", [command.node_id], True)
        return [partial(self._set_drain, command, drain)]

    def _set_drain(self, command: codec.UpdateNodeDrain, drain: DrainStrategy | None) -> None:
        node = self._store.node(command.node_id)
        assert node is not None
        node.drain_strategy = drain
        # Loading a node turns a drain into ineligibility (plan-apply 1.3).
        node.scheduling_eligibility = "eligible" if command.drain_strategy is None and command.eligible_after else "ineligible"
        node.status_updated_at = self._time_ns // 10**9
        self._store.upsert_node(self._index, node)

    @_check.register
    def _(self, command: codec.DeleteNodes) -> list[Write]:
        for node_id in dict.fromkeys(command.node_ids):
            self._require_node(node_id)
        self._mark("node", command.node_ids, False)
        return [partial(self._store.delete_node, self._index, node_id) for node_id in dict.fromkeys(command.node_ids)]

    @_check.register
    def _(self, command: codec.UpsertJob) -> list[Write]:
        (job,) = self._read(Job, [command.job], "jobs")
        key = (job.namespace or "default", job.id)
        self._mark("job", [key], True)
        return [partial(self._store.upsert_job, self._index, job, keep=True), partial(refresh_statuses, self._store, [key])]

    @_check.register
    def _(self, command: codec.DeleteJob) -> list[Write]:
        key = (command.namespace or "default", command.job_id)
        if not self._made.get(("job", *key), self._store.jobs_view.row_of(*key) is not None):
            raise StateError(f"job {command.job_id} does not exist in namespace {command.namespace}")
        self._mark("job", [key], False)
        return [partial(self._store.delete_job, self._index, command.namespace, command.job_id)]

    @_check.register
    def _(self, command: codec.UpsertEvals) -> list[Write]:
        evals = self._read(Evaluation, command.evals, "evals")
        for place, evaluation in enumerate(evals):
            check_status(f"evals[{place}].Status", evaluation.status)
            # Nobody could tell when to look at it.
            time_ns(evaluation.wait_until, f"evals[{place}].WaitUntil")
            # Whoever made it could not know the index of this entry.
            if not evaluation.job_modify_index and ("job", evaluation.namespace or "default", evaluation.job_id) in self._made:
                evaluation.job_modify_index = self._index
            if evaluation.node_id and not evaluation.node_modify_index and ("node", evaluation.node_id) in self._made:
                evaluation.node_modify_index = self._index
        return [partial(upsert_evals, self._store, self._index, self._time_ns, evals)]

    @_check.register
    def _(self, command: codec.DeleteEvals) -> list[Write]:
        return [partial(self._store.delete_evals, self._index, command.eval_ids)]

    @_check.register
    def _(self, command: codec.UpdateAllocsFromClient) -> list[Write]:
        records = []
        for place, update in enumerate(command.updates):
            said: dict[str, Any] = {
                "ID": update.alloc_id,
                "ClientStatus": update.client_status,
                "ClientDescription": update.client_description,
                "TaskStates": update.task_states,
                "DeploymentStatus": update.deployment_status,
                "ModifyTime": self._time_ns,
            }
            records.append(Allocation.from_api({key: value for key, value in said.items() if value is not None}, f"updates[{place}]"))
        return [partial(update_from_client, self._store, self._index, self._time_ns, records)]

    @_check.register
    def _(self, command: codec.UpdateAllocDesiredTransitions) -> list[Write]:
        transitions: dict[str, DesiredTransition] = {}
        for alloc_id, transition in command.transitions.items():
            record = Allocation.from_api({"DesiredTransition": transition}, f"transitions[{alloc_id}]")
            transitions[alloc_id] = record.desired_transition
        return [partial(set_transitions, self._store, self._index, self._time_ns, transitions)]

    @_check.register
    def _(self, command: codec.UpsertAllocs) -> list[Write]:
        allocs = self._read(Allocation, command.allocs, "allocs")
        jobs = {(alloc.namespace or "default", alloc.job_id) for alloc in allocs}
        return [partial(self._store.upsert_allocs, self._index, allocs), partial(refresh_statuses, self._store, jobs)]

    @_check.register
    def _(self, command: codec.DeleteAllocs) -> list[Write]:
        return [partial(self._store.delete_allocs, self._index, command.alloc_ids)]

    @_check.register
    def _(self, command: codec.UpsertDeployment) -> list[Write]:
        (deployment,) = self._read(Deployment, [command.deployment], "deployments")
        check_promotion(self._store, deployment)
        self._mark("deployment", [deployment.id], deployment.status in ACTIVE_STATUSES)
        return [partial(self._store.upsert_deployment, self._index, deployment)]

    @_check.register
    def _(self, command: codec.PromoteDeployment) -> list[Write]:
        self._require_active(command.deployment_id)
        return [partial(promote, self._store, self._index, self._time_ns, command.deployment_id, command.groups)]

    @_check.register
    def _(self, command: codec.UpdateDeploymentStatus) -> list[Write]:
        self._require_active(command.deployment_id)
        update = DeploymentUpdate(deployment_id=command.deployment_id, status=command.status, status_description=command.description)
        self._mark("deployment", [command.deployment_id], command.status in ACTIVE_STATUSES)
        return [partial(update_status, self._store, self._index, self._time_ns, update)]

    @_check.register
    def _(self, command: codec.DeleteDeployments) -> list[Write]:
        self._mark("deployment", command.deployment_ids, False)
        return [partial(self._store.delete_deployments, self._index, command.deployment_ids)]

    @_check.register
    def _(self, command: codec.UpsertNamespaces) -> list[Write]:
        self._check_named(command.namespaces, "namespaces")
        return [partial(self._store.upsert_namespace, self._index, each) for each in command.namespaces]

    @_check.register
    def _(self, command: codec.UpsertNodePools) -> list[Write]:
        self._check_named(command.node_pools, "node_pools")
        return [partial(self._store.upsert_node_pool, self._index, each) for each in command.node_pools]

    @_check.register
    def _(self, command: codec.SetSchedulerConfig) -> list[Write]:
        return [partial(self._store.set_scheduler_config, self._index, command.config)]

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _read(self, kind: type[R], records: Iterable[dict[str, Any]], table: str) -> list[R]:
        read = []
        for place, data in enumerate(records):
            record = kind.from_api(data, f"{table}[{place}]")
            if not record.id:
                raise InvalidInput(f"{table}[{place}].ID", record.id, "text that is not empty")
            read.append(record)
        return read

    def _check_named(self, records: Iterable[dict[str, Any]], table: str) -> None:
        for place, record in enumerate(records):
            name = record.get("Name")
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"{table}[{place}].Name", name, "text that is not empty")

    def _require_node(self, node_id: str) -> None:
        if not self._made.get(("node", node_id), self._store.node_row(node_id) is not None):
            raise StateError(f"node {node_id} does not exist")

    def _require_active(self, deployment_id: str) -> None:
        stored = self._store.deployment(deployment_id)
        if not self._made.get(("deployment", deployment_id), stored is not None and stored.status in ACTIVE_STATUSES):
            raise StateError(f"deployment {deployment_id} does not exist or is not active")

    def _mark(self, table: str, ids: Iterable[str | tuple[str, str]], exists: bool) -> None:
        for each in ids:
            self._made[(table, each) if isinstance(each, str) else (table, *each)] = exists
