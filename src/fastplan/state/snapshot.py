"""Looking things up: what the store and its snapshots have in common."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from fastplan.errors import StateError
from fastplan.fit import FitChecker
from fastplan.fit._nodes import NodeTable
from fastplan.fit.checker import View
from fastplan.state._alloc_view import AllocView
from fastplan.state.alloc_records import NO_ROW, AllocFields, Notes, alloc_name, fill_record
from fastplan.state.jobs import JobsView
from fastplan.state.records import CHUNK_ROWS, CHUNK_SHIFT, MapView, RecordView
from fastplan.state.statuses import CLIENT_ENDED
from fastplan.structs import Allocation, Deployment, Evaluation, Job, Node, canonical_alloc

if TYPE_CHECKING:
    from fastplan.state.shapes import Shapes

TABLES = ("nodes", "node_pools", "namespaces", "jobs", "allocs", "evals", "deployments", "scheduler_config")
"""Names of the tables, as in `table_index` and the `indexes` of a dump."""


class NodeUse(NamedTuple):
    """What the allocations of a node use: MHz and MiB. `alloc_count` counts them."""

    cpu_mhz: int
    memory_mib: int
    disk_mib: int
    alloc_count: int


class StateReader:
    """The state at one moment: look-ups, and the columns behind them.

    Records are copies, except the job attached to an allocation, which is shared: copy it before changing it. Lists of allocations ascend by id.
    """

    nodes_view: NodeTable
    """Rows of the nodes: supply, use, claims (docs/architecture.md, "Node rows")."""
    allocs_view: AllocView
    """Rows of the allocations."""
    jobs_view: JobsView
    """Version rows of the jobs, and the group rows."""
    shapes: Shapes
    """Resource shapes by row; append-only."""
    notes: Notes
    """Stop notes by number; append-only."""

    _node_records: RecordView[Node]
    _node_rows: MapView[str, int]
    _extras: RecordView[Allocation | bytes]
    _evals: MapView[str, Evaluation]
    _evals_of_job: MapView[tuple[str, str], tuple[str, ...]]
    _open_evals_of_job: MapView[tuple[str, str], tuple[str, ...]]
    _deployments: MapView[str, Deployment]
    _deployments_of_job: MapView[tuple[str, str], tuple[str, ...]]
    _node_pools: Mapping[str, dict[str, object]]
    _namespaces: Mapping[str, dict[str, object]]
    _scheduler_config: dict[str, object] | None
    _indexes: dict[str, int]
    _latest_index: int

    # --- indexes --------------------------------------------------------------------------------------------------

    def latest_index(self) -> int:
        """Return the index of the last write of any table, 0 before the first."""
        return self._latest_index

    def table_index(self, name: str) -> int:
        """Return the index of the last write of a table (one of `TABLES`), 0 before the first."""
        return self._indexes.get(name, 0)

    def table_indexes(self) -> dict[str, int]:
        """Return the index of the last write of every table that was written."""
        return dict(self._indexes)

    # --- nodes ----------------------------------------------------------------------------------------------------

    def node(self, node_id: str) -> Node | None:
        """Return a node in canonical form (plan-apply 1.3), None if it does not exist."""
        row = self._node_rows.get(node_id)
        return None if row is None else self._node_records[row].copy()

    def nodes(self) -> list[Node]:
        """Return all nodes, ascending by id."""
        return [self._node_records[row].copy() for _, row in sorted(self._node_rows.items())]

    def nodes_by_prefix(self, prefix: str) -> list[Node]:
        """Return the nodes whose id text starts with *prefix*, ascending by id."""
        return [self._node_records[self._node_rows[node_id]].copy() for node_id in _starting(self._node_rows.keys(), prefix)]

    def node_count(self) -> int:
        """Return how many nodes there are."""
        return len(self._node_rows)

    def node_ids(self) -> list[str]:
        """Return the ids of all nodes, ascending."""
        return sorted(self._node_rows.keys())

    def node_row(self, node_id: str) -> int | None:
        """Return the row of a node in `nodes_view`, None if it does not exist."""
        return self._node_rows.get(node_id)

    def node_id(self, row: int) -> str | None:
        """Return the id of the node in a row, None if the row holds none."""
        record = self._node_records.get(row)
        return None if record is None else record.id

    def node_ids_at(self, rows: Iterable[int]) -> list[str]:
        """Return the ids of the nodes in *rows*. Raises StateError for a row that holds none."""
        chunks, _ = self.node_chunks()
        try:
            return [chunks[row >> CHUNK_SHIFT][row & (CHUNK_ROWS - 1)].id for row in rows]  # type: ignore[union-attr]
        except (AttributeError, IndexError) as error:
            raise StateError("a node row holds no node") from error

    def node_record(self, row: int) -> Node | None:
        """Return the canonical record of the node in a row without copying it: shared, not to be changed."""
        return self._node_records.get(row)

    def node_chunks(self) -> tuple[list[list[Node | None]], int]:
        """Return the records of all nodes in chunks by row, and the number of rows: shared, not to be changed.

        The list and each chunk are the same objects as in another snapshot as long as nothing in them changed.
        """
        return self._node_records.frozen_chunks()

    def node_generation(self, row: int) -> int:
        """Return the generation of a row: how often it has been given to another node. Raises StateError beyond the last row."""
        return self.nodes_view.row(row)["generation"]

    def node_used(self, node_id: str, *, physical: bool = True) -> NodeUse | None:
        """Return what a node's allocations use, None if the node does not exist.

        *physical*: everything whose client is not terminal; otherwise (*desired*) without what was told to stop.
        """
        node_row = self._node_rows.get(node_id)
        if node_row is None:
            return None
        row = self.nodes_view.row(node_row)
        sums = [row["used_cpu_mhz"], row["used_memory_mib"], row["used_disk_mib"], row["alloc_count"]]
        if not physical:
            stopping = (row["stopping_cpu_mhz"], row["stopping_memory_mib"], row["stopping_disk_mib"], row["stopping_count"])
            sums = [used - part for used, part in zip(sums, stopping, strict=True)]
        return NodeUse(*sums)

    def fit_checker(self, view: View = "scheduler") -> FitChecker:
        """Return a checker on this state, in O(1): its rows are those of `nodes_view`, what is added to it stays its own. *view* as of `FitChecker`."""
        return FitChecker.from_table(self.nodes_view, _Lookup(self), view)

    # --- jobs -----------------------------------------------------------------------------------------------------

    def job(self, namespace: str, job_id: str, version: int | None = None) -> Job | None:
        """Return the registered job, or the given version of it, None if it is not there."""
        job = self.jobs_view.get(namespace or "default", job_id, version)
        return None if job is None else job.copy()

    def jobs(self) -> list[Job]:
        """Return all registered jobs, ascending by namespace and id."""
        return [job.copy() for job in sorted(self.jobs_view.registered(), key=lambda job: (job.namespace, job.id))]

    def job_versions(self, namespace: str, job_id: str) -> list[Job]:
        """Return the versions of a job that can be looked up, newest first."""
        return [job.copy() for job in self.jobs_view.versions_of(namespace or "default", job_id)]

    def jobs_by_prefix(self, namespace: str, prefix: str) -> list[Job]:
        """Return the registered jobs of a namespace whose id starts with *prefix*, ascending by id."""
        namespace = namespace or "default"
        found = _starting((job_id for (in_namespace, job_id), _ in self.jobs_view.current.items() if in_namespace == namespace), prefix)
        return [self.jobs_view.versions[self.jobs_view.current[namespace, job_id]].copy() for job_id in found]

    def group_counts(self, namespace: str, job_id: str, group: str) -> tuple[list[int], int]:
        """Return ([allocations by client status number], how many are terminal on neither side) of a task group."""
        row = self.jobs_view.groups.find(namespace or "default", job_id, group)
        return self.allocs_view.group_counts(NO_ROW if row is None else row)

    # --- allocations ----------------------------------------------------------------------------------------------

    def alloc(self, alloc_id: str) -> Allocation | None:
        """Return an allocation with its job attached, None if it does not exist."""
        row = self.allocs_view.find(alloc_id)
        return None if row < 0 else self.alloc_at(row)

    def alloc_at(self, row: int) -> Allocation:
        """Return the allocation in a row of `allocs_view`. Raises StateError if the row holds none."""
        fields = AllocFields(*self.allocs_view.fields(row))
        extra = None if fields.extra == NO_ROW else self.extra(fields.extra)
        note = None if fields.note == NO_ROW else self.notes.items[fields.note]
        resources = None
        if extra is None or extra.allocated_resources is None:
            resources = self.shapes.resources(fields.shape_row, fields.claims)
        alloc = fill_record(fields, extra, note, resources)
        group = self.jobs_view.groups.keys[fields.group_row]
        alloc.namespace, alloc.job_id, alloc.task_group = group
        if fields.name_index >= 0:
            alloc.name = alloc_name(group.job_id, group.group, fields.name_index)
        alloc.node_id = self.allocs_view.node_id_of_ref(fields.node_ref)
        alloc.eval_id = self.allocs_view.eval_id_of_ref(fields.eval_ref)
        alloc.job = self.job_of_row(fields.job_version_row)
        if not alloc.node_name:
            node_row = self._node_rows.get(alloc.node_id)
            if extra is None and node_row is not None:
                alloc.node_name = self._node_records[node_row].name
        return alloc

    def extra(self, number: int) -> Allocation:
        """Return what columns do not hold of an allocation, as a partial record: shared, not to be changed. Raises KeyError for a number that is none."""
        found = self._extras[number]
        if isinstance(found, bytes):
            # As a snapshot of the log brought it: read when somebody wants it.
            found = Allocation.from_api(msgspec.msgpack.decode(found))
            self._extras.settle(number, found)
        return found

    def extra_api(self, number: int) -> dict[str, Any]:
        """Return the same in the API's shape."""
        found = self._extras[number]
        api: dict[str, Any] = msgspec.msgpack.decode(found) if isinstance(found, bytes) else found.to_api()
        return api

    def job_of_row(self, version_row: int) -> Job | None:
        """Return the job in a version row, None for NO_ROW: shared, not to be changed."""
        return None if version_row == NO_ROW else self.jobs_view.versions[version_row]

    def allocs(self) -> list[Allocation]:
        """Return all allocations."""
        return self._ascending(self.allocs_view.live_rows().tolist())

    def alloc_count(self) -> int:
        """Return how many allocations there are."""
        return len(self.allocs_view)

    def allocs_by_node(self, node_id: str, terminal: bool | None = None) -> list[Allocation]:
        """Return the allocations that name a node, whether it exists or not. *terminal*: None all, False those terminal on neither side, True the others."""
        return self._ascending(self.allocs_view.rows_of_node(self.allocs_view.node_ref(node_id), _terminal(terminal)))

    def allocs_held_on(self, node_id: str) -> list[Allocation]:
        """Return the allocations of a node whose clients have not ended: those that hold something."""
        view = self.allocs_view
        rows = view.rows_of_node(view.node_ref(node_id))
        return self._ascending(row for row in rows if view.row_state(row)[2] not in CLIENT_ENDED)

    def allocs_by_job(self, namespace: str, job_id: str, terminal: bool | None = None) -> list[Allocation]:
        """Return the allocations of a job, whether it is registered or not; *terminal* as in `allocs_by_node`."""
        rows: list[int] = []
        for group_row in self.jobs_view.groups.of_job(namespace or "default", job_id):
            rows.extend(self.allocs_view.rows_of_group(group_row, _terminal(terminal)))
        return self._ascending(rows)

    def allocs_by_group(self, namespace: str, job_id: str, group: str, terminal: bool | None = None) -> list[Allocation]:
        """Return the allocations of a task group; *terminal* as in `allocs_by_node`."""
        group_row = self.jobs_view.groups.find(namespace or "default", job_id, group)
        return [] if group_row is None else self._ascending(self.allocs_view.rows_of_group(group_row, _terminal(terminal)))

    def allocs_by_eval(self, eval_id: str, terminal: bool | None = None) -> list[Allocation]:
        """Return the allocations that carry an evaluation id; *terminal* as in `allocs_by_node`."""
        return self._ascending(self.allocs_view.rows_of_eval(eval_id, _terminal(terminal)))

    def allocs_by_prefix(self, prefix: str) -> list[Allocation]:
        """Return the allocations whose id text starts with *prefix*; hyphens are plain text."""
        return self._ascending(self.allocs_view.rows_by_prefix(prefix))

    def _ascending(self, rows: Iterable[int]) -> list[Allocation]:
        return [self.alloc_at(row) for row in sorted(rows, key=self.allocs_view.alloc_id)]

    # --- the rest -------------------------------------------------------------------------------------------------

    def eval(self, eval_id: str) -> Evaluation | None:
        """Return an evaluation, None if it does not exist."""
        found = self._evals.get(eval_id)
        return None if found is None else found.copy()

    def evals(self) -> list[Evaluation]:
        """Return all evaluations, ascending by id."""
        return [found.copy() for _, found in sorted(self._evals.items())]

    def evals_by_job(self, namespace: str, job_id: str) -> list[Evaluation]:
        """Return the evaluations of a job, ascending by id."""
        return [self._evals[eval_id].copy() for eval_id in sorted(self._evals_of_job.get((namespace or "default", job_id), ()))]

    def newest_eval_index(self, namespace: str, job_id: str) -> int:
        """Return the greatest modify index of a job's evaluations, 0 without any (worker-and-broker 4.1)."""
        owned = self._evals_of_job.get((namespace or "default", job_id), ())
        return max((self._evals[eval_id].modify_index for eval_id in owned), default=0)

    def eval_records_by_job(self, namespace: str, job_id: str) -> list[Evaluation]:
        """Return the evaluations of a job in no particular order, without copying them: shared, not to be changed."""
        return [self._evals[eval_id] for eval_id in self._evals_of_job.get((namespace or "default", job_id), ())]

    def open_evals_by_job(self, namespace: str, job_id: str) -> list[Evaluation]:
        """Return the evaluations of a job that have not ended, without copying them and without a look at the others: shared, not to be changed."""
        return [self._evals[eval_id] for eval_id in self._open_evals_of_job.get((namespace or "default", job_id), ())]

    def has_evals(self, namespace: str, job_id: str) -> bool:
        """Return whether a job has any evaluation."""
        return (namespace or "default", job_id) in self._evals_of_job

    def evals_by_prefix(self, prefix: str) -> list[Evaluation]:
        """Return the evaluations whose id starts with *prefix*, ascending by id."""
        return [self._evals[eval_id].copy() for eval_id in _starting(self._evals.keys(), prefix)]

    def deployment(self, deployment_id: str) -> Deployment | None:
        """Return a deployment, None if it does not exist."""
        found = self._deployments.get(deployment_id)
        return None if found is None else found.copy()

    def deployments(self) -> list[Deployment]:
        """Return all deployments, ascending by id."""
        return [found.copy() for _, found in sorted(self._deployments.items())]

    def deployments_by_job(self, namespace: str, job_id: str) -> list[Deployment]:
        """Return the deployments of a job, ascending by id."""
        return [self._deployments[found].copy() for found in sorted(self._deployments_of_job.get((namespace or "default", job_id), ()))]

    def deployments_by_prefix(self, prefix: str) -> list[Deployment]:
        """Return the deployments whose id starts with *prefix*, ascending by id."""
        return [self._deployments[found].copy() for found in _starting(self._deployments.keys(), prefix)]

    def node_pool(self, name: str) -> dict[str, object] | None:
        """Return a node pool in the API's shape, None if it does not exist."""
        found = self._node_pools.get(name)
        return None if found is None else dict(found)

    def node_pools(self) -> list[dict[str, object]]:
        """Return all node pools in the API's shape, ascending by name."""
        return [dict(pool) for _, pool in sorted(self._node_pools.items())]

    def node_pools_by_prefix(self, prefix: str) -> list[dict[str, object]]:
        """Return the node pools whose name starts with *prefix*, ascending by name."""
        return [dict(self._node_pools[name]) for name in _starting(self._node_pools, prefix)]

    def namespace(self, name: str) -> dict[str, object] | None:
        """Return a namespace in the API's shape, None if it does not exist. `default` always exists."""
        found = self._namespaces.get(name)
        return None if found is None else dict(found)

    def namespaces(self) -> list[dict[str, object]]:
        """Return all namespaces in the API's shape, ascending by name."""
        return [dict(namespace) for _, namespace in sorted(self._namespaces.items())]

    def namespaces_by_prefix(self, prefix: str) -> list[dict[str, object]]:
        """Return the namespaces whose name starts with *prefix*, ascending by name."""
        return [dict(self._namespaces[name]) for name in _starting(self._namespaces, prefix)]

    def scheduler_config(self) -> dict[str, object] | None:
        """Return the scheduler configuration in the API's shape, None if none was set."""
        return None if self._scheduler_config is None else dict(self._scheduler_config)

    # --- dumps ----------------------------------------------------------------------------------------------------

    def to_dump(self) -> dict[str, object]:
        """Return the whole state as one mapping in the API's shape; `StateStore.from_dump` makes an equal state of it."""
        from fastplan.state.dump import to_dump

        return to_dump(self)


class _Lookup:
    """A state as a `FitChecker` looks at it."""

    def __init__(self, state: StateReader) -> None:
        self._state = state

    def row_of(self, node_id: str) -> int | None:
        return self._state.node_row(node_id)

    def node(self, row: int) -> Node | None:
        return self._state.node_record(row)

    def alloc(self, alloc_id: str) -> tuple[int, Allocation] | None:
        alloc = self._state.alloc(alloc_id)
        if alloc is None or alloc.is_client_terminal:
            return None
        row = self._state.node_row(alloc.node_id)
        return None if row is None else (row, canonical_alloc(alloc))

    def allocs_on(self, row: int) -> list[Allocation]:
        node_id = self._state.node_id(row)
        return [] if node_id is None else [canonical_alloc(alloc) for alloc in self._state.allocs_held_on(node_id)]


class StateSnapshot(StateReader):
    """The state as it was at one moment. It never changes, costs what changes after it, and may be read from any thread."""

    shape_count: int
    """How many of `shapes` there were."""
    group_count: int
    """How many groups there were."""
    undecided: list[str]
    """As of the store."""

    def save(self) -> Iterator[bytes]:
        """Yield the whole state as frames, for `StateStore.load`; equal states give equal bytes. May run in any thread while the writer goes on."""
        from fastplan.state.transfer import save

        return save(self)


def _terminal(terminal: bool | None) -> int:
    return -1 if terminal is None else int(terminal)


def _starting(names: Iterable[str], prefix: str) -> Iterator[str]:
    return iter(sorted(name for name in names if name.startswith(prefix)))
