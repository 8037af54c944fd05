"""The state store: everything the cluster is known to be, written by one writer and read through snapshots (docs/architecture.md, "State")."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from os import PathLike
from typing import Any, TypeVar

from fastplan.errors import StateError
from fastplan.fit.encode import encode_node, status_flags
from fastplan.state import transfer
from fastplan.state.named import read_named, read_opaque
from fastplan.state.records import RecordMap
from fastplan.state.statuses import EVALS_ENDED
from fastplan.state.store_allocs import AllocWriter
from fastplan.structs import Deployment, Evaluation, Job, Node, canonical_node


class StateStore(AllocWriter):
    """The state, for its one writer: the state machine, or a loader before there is a log.

    Every writing method takes the index of the log entry that it belongs to, which becomes the last index of the tables it writes. Records given to it
    are copied. A method that raises has changed nothing. What belongs to one entry is written inside `with store.batch():`, so that nobody sees a half.
    """

    @classmethod
    def from_dump(cls, dump: Mapping[str, Any] | str | PathLike[str]) -> StateStore:
        """Return a store with the contents of a dump: a mapping, or a path of a JSON file or of a folder of them (`nodes.json`, `allocs.json`, …).

        Keys, each optional: `nodes`, `node_pools`, `namespaces`, `jobs` (registered now), `job_versions` (all that can be looked up), `allocs` (`Job`
        embedded, or looked up by namespace, `JobID` and `JobVersion`), `evals`, `deployments`, `scheduler_config`, `indexes` (table → last index; where
        one is left out, the largest `ModifyIndex`). References to what the dump does not hold are listed by `undecided`.
        Raises InvalidInput naming file, path and value for anything that cannot be read, an unknown key, and an id twice in one table.
        """
        from fastplan.state.dump import load_dump

        store = cls()
        load_dump(store, dump)
        return store

    @classmethod
    def load(cls, frames: Iterable[bytes]) -> StateStore:
        """Return a store with what `StateSnapshot.save` gave. Raises CodecError for what cannot be read, VersionUnsupported for another format."""
        store = cls()
        transfer.load(store, frames)
        return store

    # --- nodes ----------------------------------------------------------------------------------------------------

    def upsert_node(self, index: int, node: Node) -> None:
        """Write a node, in canonical form (plan-apply 1.3). Allocations that name it count on it from now on."""
        with self.batch():
            twin = node.copy()
            row = self._node_rows.get(node.id)
            twin.create_index = index if row is None else self._node_records[row].create_index
            twin.modify_index = index
            self.put_node(twin)
            self.touch(index, "nodes")

    def put_node(self, node: Node, reserved_row: int | None = None) -> None:
        """Write a node as it is, its indexes included, outside of the log: for loaders. *node* is kept. *reserved_row*: a row without supply for it."""
        node = canonical_node(node)
        numbers = encode_node(node)
        flags = status_flags(node.status, node.scheduling_eligibility)
        row = self._node_rows.get(node.id)
        if row is None:
            if reserved_row is None:
                row, _ = self.nodes_view.allocate(numbers, flags)
            else:
                row = reserved_row
                self.nodes_view.set_supply(row, numbers)
                self.nodes_view.set_status(row, flags)
            self._node_rows.set(node.id, row)
            self.allocs_view.bind_node(self.allocs_view.intern_node(node.id), row)
        else:
            if self.nodes_view.set_supply(row, numbers):
                self.allocs_view.recount_node(self.allocs_view.intern_node(node.id))
            self.nodes_view.set_status(row, flags)
        self._node_records.set(row, node)

    def delete_node(self, index: int, node_id: str) -> None:
        """Forget a node; its allocations stay and keep its id. Raises StateError if it does not exist."""
        with self.batch():
            row = self._required_node(node_id)
            self.allocs_view.unbind_node(self.allocs_view.intern_node(node_id))
            self.nodes_view.free(row)
            self._node_rows.delete(node_id)
            self._node_records.set(row, None)
            self.touch(index, "nodes")

    def update_node_status(self, index: int, node_id: str, status: str, *, updated_at: int | None = None) -> None:
        """Set a node's status; *updated_at* in Unix seconds, as the API has it. Raises StateError if the node does not exist."""
        self._change_node(index, node_id, status=status, status_updated_at=updated_at)

    def update_node_eligibility(
        self, index: int, node_id: str, eligibility: str, *, updated_at: int | None = None, event: dict[str, Any] | None = None
    ) -> None:
        """Set a node's scheduling eligibility and append *event*, if given, to its events. Raises StateError if the node does not exist."""
        self._change_node(index, node_id, scheduling_eligibility=eligibility, status_updated_at=updated_at, event=event)

    def _change_node(self, index: int, node_id: str, *, event: dict[str, Any] | None = None, **changes: Any) -> None:
        with self.batch():
            row = self._required_node(node_id)
            twin = copy.copy(self._node_records[row])
            for name, value in changes.items():
                if value is not None:
                    setattr(twin, name, value)
            if event is not None:
                twin.events = [*twin.events, event]
            twin.modify_index = index
            self.nodes_view.set_status(row, status_flags(twin.status, twin.scheduling_eligibility))
            self._node_records.set(row, twin)
            self.touch(index, "nodes")

    def _required_node(self, node_id: str) -> int:
        row = self._node_rows.get(node_id)
        if row is None:
            raise StateError(f"node {node_id} does not exist")
        return row

    # --- jobs -----------------------------------------------------------------------------------------------------

    def upsert_job(self, index: int, job: Job, *, keep: bool = False) -> int:
        """Register a job and return its version row. Versions that allocations use stay, and the newest few.

        *keep*: the record is nobody else's and need not be copied.

        `CreateIndex` of a registered job is kept, `ModifyIndex` and `JobModifyIndex` become *index*; the version number is the caller's to raise.
        """
        with self.batch():
            twin = job if keep else job.copy()
            twin.namespace = twin.namespace or "default"
            known = self.jobs_view.get(twin.namespace, twin.id)
            twin.create_index = index if known is None else known.create_index
            twin.modify_index = twin.job_modify_index = index
            row = self.jobs_view.register(twin)
            self.jobs_view.prune(twin.namespace, twin.id, self.allocs_view.version_uses)
            self.touch(index, "jobs")
            return row

    def delete_job(self, index: int, namespace: str, job_id: str) -> None:
        """Forget a job and its versions; its allocations keep theirs. Raises StateError if it is not registered."""
        with self.batch():
            namespace = namespace or "default"
            if self.jobs_view.row_of(namespace, job_id) is None:
                raise StateError(f"job {job_id} does not exist in namespace {namespace}")
            self.jobs_view.deregister(namespace, job_id, self.allocs_view.version_uses)
            self.touch(index, "jobs")

    # --- evaluations and the rest ---------------------------------------------------------------------------------

    def upsert_evals(self, index: int, evals: Iterable[Evaluation], *, keep: bool = False) -> None:
        """Write evaluations; `CreateIndex` of a stored one is kept. *keep*: the records are nobody else's and need not be copied."""
        with self.batch():
            for evaluation in evals:
                twin = evaluation if keep else evaluation.copy()
                known = self._evals.get(twin.id)
                twin.create_index = index if known is None else known.create_index
                twin.modify_index = index
                self.put_eval(twin)
                if self._written_evals is not None:
                    self._written_evals[twin.id] = twin
            self.touch(index, "evals")

    def note_written_evals(self, noting: bool) -> None:
        """Remember, or no longer remember, which evaluations entries write: for a leader, who hands them on."""
        self._written_evals = {} if noting else None

    def take_written_evals(self) -> list[Evaluation]:
        """Return the evaluations written since the last call, each as it is by now: shared, not to be changed."""
        if not self._written_evals:
            return []
        written, self._written_evals = self._written_evals, {}
        return list(written.values())

    def has_eval(self, eval_id: str) -> bool:
        """Return whether an evaluation exists, without copying it."""
        return eval_id in self._evals

    def touch_evals(self, touched: Iterable[tuple[int, str]]) -> None:
        """Set the modify indexes, given with their ids, of evaluations that exist: plans of them were committed (plan-apply 6.10 step 5)."""
        evals = self._evals
        last = 0
        for index, eval_id in touched:
            twin = copy.copy(evals[eval_id])
            twin.modify_index = last = index
            evals.set(eval_id, twin)
        if last:
            self.touch(last, "evals")

    def put_eval(self, evaluation: Evaluation) -> None:
        """Write an evaluation as it is, outside of the log: for loaders. It is kept."""
        evaluation.namespace = evaluation.namespace or "default"
        known = self._evals.get(evaluation.id)
        if known is not None:
            _disown(self._open_evals_of_job, known)
        _put_owned(self._evals, self._evals_of_job, evaluation)
        if evaluation.status not in EVALS_ENDED:
            key = (evaluation.namespace, evaluation.job_id)
            self._open_evals_of_job.set(key, (*self._open_evals_of_job.get(key, ()), evaluation.id))

    def delete_evals(self, index: int, eval_ids: Iterable[str], alloc_ids: Iterable[str] = ()) -> None:
        """Forget evaluations, and allocations with them. Unknown ids are passed over."""
        with self.batch():
            for eval_id in eval_ids:
                known = self._evals.get(eval_id)
                if known is not None:
                    _disown(self._open_evals_of_job, known)
                _delete_owned(self._evals, self._evals_of_job, eval_id)
            self.touch(index, "evals")
            alloc_ids = list(alloc_ids)
            if alloc_ids:
                self.delete_allocs(index, alloc_ids)

    def upsert_deployment(self, index: int, deployment: Deployment) -> None:
        """Write a deployment; `CreateIndex` of a stored one is kept."""
        with self.batch():
            twin = deployment.copy()
            known = self._deployments.get(twin.id)
            twin.create_index = index if known is None else known.create_index
            twin.modify_index = index
            self.put_deployment(twin)
            self.touch(index, "deployments")

    def put_deployment(self, deployment: Deployment) -> None:
        """Write a deployment as it is, outside of the log: for loaders. It is kept."""
        deployment.namespace = deployment.namespace or "default"
        _put_owned(self._deployments, self._deployments_of_job, deployment)

    def delete_deployments(self, index: int, deployment_ids: Iterable[str]) -> None:
        """Forget deployments. Unknown ids are passed over."""
        with self.batch():
            for deployment_id in deployment_ids:
                _delete_owned(self._deployments, self._deployments_of_job, deployment_id)
            self.touch(index, "deployments")

    def upsert_node_pool(self, index: int, pool: Mapping[str, Any]) -> None:
        """Write a node pool in the API's shape. Raises InvalidInput naming path and value."""
        name, record = read_named(pool, "node_pool")
        with self.batch():
            self._node_pools = {**self._node_pools, name: record}
            self.touch(index, "node_pools")

    def upsert_namespace(self, index: int, namespace: Mapping[str, Any]) -> None:
        """Write a namespace in the API's shape. Raises InvalidInput naming path and value."""
        name, record = read_named(namespace, "namespace")
        with self.batch():
            self._namespaces = {**self._namespaces, name: record}
            self.touch(index, "namespaces")

    def set_scheduler_config(self, index: int, config: Mapping[str, Any]) -> None:
        """Set the scheduler configuration, in the API's shape. Raises InvalidInput naming path and value."""
        record = read_opaque(config, "scheduler_config")
        with self.batch():
            self._scheduler_config = record
            self.touch(index, "scheduler_config")

    def restore_named(self, *, pools: dict[str, dict[str, Any]], namespaces: dict[str, dict[str, Any]], config: dict[str, Any] | None) -> None:
        """Add node pools and namespaces and set the configuration, outside of the log: for loaders. The records are kept."""
        self._node_pools = {**self._node_pools, **pools}
        self._namespaces = {**self._namespaces, **namespaces}
        self._scheduler_config = config


_Owned = TypeVar("_Owned", bound=Evaluation | Deployment)


def _put_owned(records: RecordMap[str, _Owned], of_job: RecordMap[tuple[str, str], tuple[str, ...]], record: _Owned) -> None:
    """Write a record that belongs to a job, and the list of its job's records."""
    known = records.get(record.id)
    if known is not None and (known.namespace, known.job_id) != (record.namespace, record.job_id):
        _delete_owned(records, of_job, record.id)
        known = None
    records.set(record.id, record)
    if known is None:
        key = (record.namespace, record.job_id)
        of_job.set(key, (*of_job.get(key, ()), record.id))


def _delete_owned(records: RecordMap[str, _Owned], of_job: RecordMap[tuple[str, str], tuple[str, ...]], record_id: str) -> None:
    known = records.get(record_id)
    if known is None:
        return
    records.delete(record_id)
    _disown(of_job, known)


def _disown(of_job: RecordMap[tuple[str, str], tuple[str, ...]], record: Evaluation | Deployment) -> None:
    """Take a record off the list of its job's records, if it is there."""
    key = (record.namespace, record.job_id)
    owned = of_job.get(key, ())
    if record.id not in owned:
        return
    left = tuple(other for other in owned if other != record.id)
    if left:
        of_job.set(key, left)
    else:
        of_job.delete(key)
