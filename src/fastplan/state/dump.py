"""Dumps: the state as JSON in the shape of Nomad's API, read from a mapping, a file or a folder of files, and written as a mapping.

What a dump leaves open is listed, not guessed (plan-apply 1.13).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fastplan.errors import InvalidInput
from fastplan.state.named import read_named, read_opaque
from fastplan.state.undecided import list_undecided
from fastplan.structs import Allocation, Deployment, Evaluation, Job, Node
from fastplan.structs.json_text import decode_json
from fastplan.structs.record import Record

if TYPE_CHECKING:
    from fastplan.state.snapshot import StateReader
    from fastplan.state.store import StateStore

DUMP_KEYS = ("nodes", "node_pools", "namespaces", "jobs", "job_versions", "allocs", "evals", "deployments", "scheduler_config", "indexes")
"""What a dump may hold; every key is optional."""

NO_JOB = -1
"""`JobVersion` of an allocation that has no job although one with its id is registered."""

R = TypeVar("R", bound=Record)


def load_dump(store: StateStore, dump: Mapping[str, Any] | str | os.PathLike[str]) -> None:
    """Fill an empty store from a dump; the contract is that of `StateStore.from_dump`."""
    source = ""
    if isinstance(dump, str | os.PathLike):
        path = Path(dump)
        if path.is_dir():
            _load(store, *_read_folder(path))
            return
        source = f"{path}: "
        dump = _read_json(path)
    _load(store, _checked_keys(dump, source), dict.fromkeys(DUMP_KEYS, source))


def _read_json(path: Path) -> Any:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InvalidInput(str(path), error.strerror or str(error), "a readable file") from error
    except ValueError as error:
        # A path with a null character or half a surrogate pair.
        raise InvalidInput("dump", str(path), "the path of a readable file") from error
    return decode_json(content, str(path))


def _read_folder(folder: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the tables of a folder and, for each, the words that start its paths."""
    tables, sources = {}, {}
    for path in sorted(folder.glob("*.json")):
        if path.stem not in DUMP_KEYS:
            raise InvalidInput(str(path), path.name, f"one of {', '.join(f'{key}.json' for key in DUMP_KEYS)}")
        tables[path.stem] = _read_json(path)
        sources[path.stem] = f"{path}: "
    if not tables:
        raise InvalidInput(str(folder), "no such file", "a folder with nodes.json, allocs.json, …")
    return tables, sources


def _checked_keys(dump: Any, source: str) -> Mapping[str, Any]:
    if not isinstance(dump, Mapping):
        raise InvalidInput(f"{source}dump", dump, f"object with the keys {', '.join(DUMP_KEYS)}")
    for key in dump:
        if key not in DUMP_KEYS:
            raise InvalidInput(f"{source}{key}" if isinstance(key, str) else f"{source}dump", dump[key], f"one of the keys {', '.join(DUMP_KEYS)}")
    return dump


class _Tables:
    """Reads the tables of one dump."""

    def __init__(self, tables: Mapping[str, Any], sources: Mapping[str, str]) -> None:
        self._tables = tables
        self._sources = sources

    def path(self, name: str) -> str:
        return f"{self._sources.get(name, '')}{name}"

    def get(self, name: str) -> Any:
        return self._tables.get(name)

    def rows(self, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (path, object) of a table."""
        table = self._tables.get(name)
        if table is None:
            return
        path = self.path(name)
        if not isinstance(table, list | tuple):
            raise InvalidInput(path, table, "list")
        for i, row in enumerate(table):
            if not isinstance(row, Mapping):
                raise InvalidInput(f"{path}[{i}]", row, "object")
            yield f"{path}[{i}]", dict(row)

    def records(self, name: str, cls: type[R], key_of: Callable[[R], tuple[object, ...]], *, id_key: str = "ID") -> list[R]:
        """Return the records of a table. Raises InvalidInput for an empty id, and for a key that occurs twice."""
        seen: set[tuple[object, ...]] = set()
        records = []
        for path, row in self.rows(name):
            record = cls.from_api(row, path)
            key = key_of(record)
            if not key[-1] and key[-1] != 0:
                raise InvalidInput(f"{path}.{id_key}", row.get(id_key), "text that is not empty")
            if key in seen:
                raise InvalidInput(f"{path}.{id_key}", row.get(id_key), f"an id that occurs once in {name}")
            seen.add(key)
            records.append(record)
        return records


def _load(store: StateStore, dump: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    tables = _Tables(dump, sources)
    newest: dict[str, int] = {}

    def note_indexes(table: str, records: list[Any]) -> None:
        newest[table] = max((record.modify_index for record in records), default=0)

    nodes = tables.records("nodes", Node, lambda node: (node.id,))
    versions = tables.records("job_versions", Job, lambda job: (job.namespace or "default", job.id, job.version))
    jobs = tables.records("jobs", Job, lambda job: (job.namespace or "default", job.id))
    allocs = tables.records("allocs", Allocation, lambda alloc: (alloc.id,))
    evals = tables.records("evals", Evaluation, lambda evaluation: (evaluation.id,))
    deployments = tables.records("deployments", Deployment, lambda deployment: (deployment.id,))
    for job in (*versions, *jobs):
        job.namespace = job.namespace or "default"

    for place, alloc in enumerate(allocs):
        for key, index in (("CreateIndex", alloc.create_index), ("ModifyIndex", alloc.modify_index), ("AllocModifyIndex", alloc.alloc_modify_index)):
            if index < 0:
                raise InvalidInput(f"{tables.path('allocs')}[{place}].{key}", index, "integer ≥ 0")

    given = list_undecided(nodes, [*versions, *jobs], allocs)
    for job in sorted(versions, key=lambda job: job.version):
        store.jobs_view.add_version(job)
    for job in jobs:
        store.jobs_view.register(job)
    for node in nodes:
        store.put_node(node)
    store.put_allocs(allocs)
    for evaluation in evals:
        store.put_eval(evaluation)
    for deployment in deployments:
        store.put_deployment(deployment)
    store.restore_named(
        pools=_named(tables, "node_pools"),
        namespaces=_named(tables, "namespaces"),
        config=None if tables.get("scheduler_config") is None else read_opaque(tables.get("scheduler_config"), tables.path("scheduler_config")),
    )
    store.undecided.extend(given)

    for table, records in (("nodes", nodes), ("jobs", [*versions, *jobs]), ("allocs", allocs), ("evals", evals), ("deployments", deployments)):
        note_indexes(table, records)
    newest.update(_indexes(tables))
    for table, index in newest.items():
        if index:
            store.touch(index, table)


def _named(tables: _Tables, name: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for path, row in tables.rows(name):
        key, record = read_named(row, path)
        # Recorded states have several rows for one pool: the last stands, as if they were written one after the other.
        if key in found and name != "node_pools":
            raise InvalidInput(f"{path}.Name", key, f"a name that occurs once in {name}")
        found[key] = record
    return found


def _indexes(tables: _Tables) -> dict[str, int]:
    indexes = tables.get("indexes")
    path = tables.path("indexes")
    if indexes is None:
        return {}
    if not isinstance(indexes, Mapping):
        raise InvalidInput(path, indexes, "object")
    for table, index in indexes.items():
        if not isinstance(table, str):
            raise InvalidInput(path, table, "text as key")
        if type(index) is not int or not 0 <= index < 2**63:
            raise InvalidInput(f"{path}.{table}", index, "integer ≥ 0")
    return dict(indexes)


def to_dump(state: StateReader) -> dict[str, object]:
    """Return the whole state as one mapping in the API's shape; the contract is that of `StateReader.to_dump`."""
    return {
        "nodes": [node_to_api(node) for node in state.nodes()],
        "node_pools": state.node_pools(),
        "namespaces": state.namespaces(),
        "jobs": [job.to_api() for job in state.jobs()],
        "job_versions": [job.to_api() for namespace, job_id in sorted(state.jobs_view.lookup.keys()) for job in state.jobs_view.versions_of(namespace, job_id)],
        "allocs": [_alloc_to_api(state, alloc) for alloc in state.allocs()],
        "evals": [evaluation.to_api() for evaluation in state.evals()],
        "deployments": [deployment.to_api() for deployment in state.deployments()],
        "scheduler_config": state.scheduler_config(),
        "indexes": state.table_indexes(),
    }


def node_to_api(node: Node) -> dict[str, Any]:
    """Return a canonical node so that reading it makes it canonical again: the layout before the split is written as it came (plan-apply 1.4)."""
    api = node.to_api()
    if node._is_split:
        api.pop("NodeResources", None)
        api.pop("ReservedResources", None)
    return api


def _alloc_to_api(state: StateReader, alloc: Allocation) -> dict[str, Any]:
    """Return *alloc* with its job embedded only where a look-up would not find the same one."""
    job, alloc.job = alloc.job, None
    api = alloc.to_api()
    if job is None:
        if state.jobs_view.row_of(alloc.namespace, alloc.job_id) is not None:
            api["JobVersion"] = NO_JOB
    elif state.jobs_view.get(alloc.namespace, alloc.job_id, job.version) is job:
        api["JobVersion"] = job.version
    else:
        api["Job"] = job.to_api()
    return api
