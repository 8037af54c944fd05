"""The state as a sequence of frames, for snapshots of the log, and back.

A frame is MessagePack: [kind, contents]. The first one, the head, has the version of the format and everything small; node rows and their generations,
version rows, group rows and shape rows are numbered as in the store, so the restored one goes on like the one it came from. Allocations travel as
columns. Equal states give equal bytes, whatever process writes them: numbers that belong to a process (of texts, of refs) do not occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import numpy

from fastplan.columns.ids import key_of, odd_texts_of
from fastplan.errors import CodecError, FastplanError, VersionUnsupported
from fastplan.fit.interning import number_of, text_of_number
from fastplan.state._alloc_export import AllocExport, translate_claims
from fastplan.state.alloc_records import NO_ROW, StopNote
from fastplan.state.compaction import ROWS_AT_ONCE, ColumnInserter, put_shapes
from fastplan.state.dump import node_to_api
from fastplan.state.resource_shapes import ResourceShape
from fastplan.structs import Deployment, Evaluation, Job, Node
from fastplan.structs.record import Record

if TYPE_CHECKING:
    from fastplan.state.snapshot import StateSnapshot
    from fastplan.state.store import StateStore

VERSION: Final = 1
RECORDS_AT_ONCE: Final = 512

_DTYPES: Final = {
    "ids": numpy.uint8,
    "name_index": numpy.int32,
    "client_status": numpy.uint8,
    "desired_status": numpy.uint8,
    "irregular": numpy.uint8,
    "claims": numpy.uint64,
    "new_nodes": numpy.uint8,
    "new_evals": numpy.uint8,
    "new_stamp_indexes": numpy.uint64,
    "new_stamp_times": numpy.int64,
}
"""Types of the columns that are not uint32."""

_KEY_COLUMNS: Final = ("ids", "new_nodes", "new_evals")

R = TypeVar("R", bound=Record)


class _Head(msgspec.Struct, frozen=True):
    version: int
    indexes: dict[str, int]
    latest_index: int
    node_pools: dict[str, dict[str, Any]]
    namespaces: dict[str, dict[str, Any]]
    scheduler_config: dict[str, Any] | None
    shapes: list[ResourceShape]
    groups: list[tuple[str, str, str]]
    registered: list[tuple[str, str, int]]
    lookup: list[tuple[str, str, list[int]]]
    node_generations: list[int]
    free_node_rows: list[int]
    undecided: list[str]


class _Version(msgspec.Struct):
    version: int


def save(state: StateSnapshot) -> Iterator[bytes]:
    """Yield the frames of a snapshot; may run in another thread than the writer's, which goes on meanwhile."""
    nodes = state.nodes_view
    head = _Head(
        version=VERSION,
        indexes=dict(sorted(state.table_indexes().items())),
        latest_index=state.latest_index(),
        node_pools=dict(sorted(state._node_pools.items())),
        namespaces=dict(sorted(state._namespaces.items())),
        scheduler_config=state.scheduler_config(),
        shapes=list(state.shapes.items[: state.shape_count]),
        groups=[(key.namespace, key.job_id, key.group) for key in state.jobs_view.groups.keys[: state.group_count]],
        registered=sorted((namespace, job_id, row) for (namespace, job_id), row in state.jobs_view.current.items()),
        lookup=sorted((namespace, job_id, list(rows)) for (namespace, job_id), rows in state.jobs_view.lookup.items()),
        node_generations=[nodes.row(row)["generation"] for row in range(nodes.row_count)],
        free_node_rows=nodes.free_rows(),
        undecided=list(state.undecided),
    )
    yield _frame("head", head)
    yield from _records("nodes", state._node_records.items(), node_to_api)
    yield from _records("versions", state.jobs_view.versions.items(), Job.to_api)
    yield from _records("evals", sorted(state._evals.items()), Evaluation.to_api)
    yield from _records("deployments", sorted(state._deployments.items()), Deployment.to_api)
    yield from _alloc_frames(state)
    yield _frame("end", None)


def _frame(kind: str, contents: object) -> bytes:
    return msgspec.msgpack.encode((kind, contents), order="deterministic")


def _records(kind: str, items: Iterable[tuple[Any, R]], to_api: Callable[[R], dict[str, Any]]) -> Iterator[bytes]:
    waiting: list[tuple[Any, dict[str, Any]]] = []
    for key, record in items:
        waiting.append((key, to_api(record)))
        if len(waiting) == RECORDS_AT_ONCE:
            yield _frame(kind, waiting)
            waiting = []
    if waiting:
        yield _frame(kind, waiting)


def _alloc_frames(state: StateSnapshot) -> Iterator[bytes]:
    export = AllocExport(state.allocs_view, portable=True)
    while (columns := export.take(ROWS_AT_ONCE)) is not None:
        columns["new_notes"] = [tuple(state.notes.items[number]) for number in columns["new_notes"]]
        columns["new_texts"] = [text_of_number(number) for number in columns["new_texts"]]
        extras = columns.pop("extras")
        columns["extras"] = [
            (int(row), msgspec.msgpack.encode(state.extra_api(int(extras[row])), order="deterministic")) for row in numpy.flatnonzero(extras != NO_ROW)
        ]
        columns["texts_of_ids"] = [text for name in _KEY_COLUMNS for text in odd_texts_of(columns[name])]
        yield _frame("allocs", {name: column.tobytes() if isinstance(column, numpy.ndarray) else column for name, column in columns.items()})


def load(store: StateStore, frames: Iterable[bytes]) -> None:
    """Fill an empty store with what `save` gave. Raises CodecError for frames that cannot be read, VersionUnsupported for those of another format."""
    try:
        _Loader(store).read(frames)
    except CodecError:
        raise
    except (FastplanError, msgspec.MsgspecError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError) as error:
        raise CodecError(f"snapshot of the state: it cannot be read: {error}") from error


class _Loader:
    """Takes the frames one after the other, and puts together what they brought at the end."""

    def __init__(self, store: StateStore) -> None:
        self._store = store
        self._head: _Head | None = None
        self._versions: list[tuple[int, Job]] = []
        self._inserter = ColumnInserter(store.allocs_view)
        self._texts = numpy.empty(0, numpy.uint32)

    def read(self, frames: Iterable[bytes]) -> None:
        readers = {"nodes": self._read_nodes, "versions": self._read_versions, "evals": self._read_evals, "deployments": self._read_deployments}
        readers["allocs"] = self._read_allocs
        ended = False
        for frame in frames:
            if ended:
                raise CodecError("snapshot of the state: it goes on behind its end")
            kind, contents = msgspec.msgpack.decode(frame, type=tuple[str, msgspec.Raw])
            if self._head is None:
                if kind != "head":
                    raise CodecError("snapshot of the state: it does not start with its head")
                self._head = self._read_head(contents)
            elif kind == "end":
                ended = True
            elif kind in readers:
                readers[kind](contents)
            else:
                raise CodecError(f"snapshot of the state: it holds a frame of the unknown kind {kind!r}")
        if self._head is None or not ended:
            raise CodecError("snapshot of the state: it ends too early")
        self._finish(self._head)

    def _read_head(self, contents: msgspec.Raw) -> _Head:
        version = msgspec.msgpack.decode(contents, type=_Version).version
        if version != VERSION:
            raise VersionUnsupported("snapshot of the state", version, VERSION)
        head = msgspec.msgpack.decode(contents, type=_Head)
        for shape in head.shapes:
            self._store.shapes.intern(shape)
        put_shapes(self._store.allocs_view, self._store.shapes)
        self._store.nodes_view.restore_rows(head.node_generations, head.free_node_rows)
        return head

    def _read_nodes(self, contents: msgspec.Raw) -> None:
        # Before the allocations, so that these are counted as they come.
        for row, api in msgspec.msgpack.decode(contents, type=list[tuple[int, dict[str, Any]]]):
            self._store.put_node(Node.from_api(api), row)

    def _read_versions(self, contents: msgspec.Raw) -> None:
        self._versions.extend((row, Job.from_api(api)) for row, api in msgspec.msgpack.decode(contents, type=list[tuple[int, dict[str, Any]]]))

    def _read_evals(self, contents: msgspec.Raw) -> None:
        for _, api in msgspec.msgpack.decode(contents, type=list[tuple[str, dict[str, Any]]]):
            self._store.put_eval(Evaluation.from_api(api))

    def _read_deployments(self, contents: msgspec.Raw) -> None:
        for _, api in msgspec.msgpack.decode(contents, type=list[tuple[str, dict[str, Any]]]):
            self._store.put_deployment(Deployment.from_api(api))

    def _read_allocs(self, contents: msgspec.Raw) -> None:
        assert self._head is not None
        columns = msgspec.msgpack.decode(contents)
        for text in columns.pop("texts_of_ids"):
            # An odd id is found by its key once its text has been seen.
            key_of(text)
        extras, notes, texts = columns.pop("extras"), columns.pop("new_notes"), columns.pop("new_texts")
        for name, content in columns.items():
            column = numpy.frombuffer(bytearray(content), _DTYPES.get(name, numpy.uint32))
            columns[name] = column.reshape(-1, 16) if name in _KEY_COLUMNS else column
        if columns["group_rows"].max(initial=0) >= len(self._head.groups):
            raise CodecError("snapshot of the state: an allocation names a group that is not there")
        versions = columns["job_version_rows"]
        if versions[versions != NO_ROW].max(initial=0) > max((row for row, _ in self._versions), default=0):
            raise CodecError("snapshot of the state: an allocation names a job that is not there")
        numbers = [number_of(tuple(text) if isinstance(text, list) else text) for text in texts]
        self._texts = numpy.concatenate([self._texts, numpy.array(numbers, numpy.uint32)])
        translate_claims(columns["claims"], self._texts)
        columns["extras"] = numpy.full(len(columns["ids"]), NO_ROW, numpy.uint32)
        for position, extra in extras:
            columns["extras"][position] = self._store.put_extra(extra)
        self._inserter.insert(columns, [self._store.notes.intern(StopNote(*note)) for note in notes])

    def _finish(self, head: _Head) -> None:
        store = self._store
        store.jobs_view.restore(self._versions, head.registered, head.lookup, head.groups)
        store.restore_named(pools=head.node_pools, namespaces=head.namespaces, config=head.scheduler_config)
        for table, index in head.indexes.items():
            store.touch(index, table)
        store.touch(head.latest_index)
        store.undecided.extend(head.undecided)
