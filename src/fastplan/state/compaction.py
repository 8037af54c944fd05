"""Writing the allocations anew, without what is of no use any more: dead rows, outdated stamps, runs and claims."""

from __future__ import annotations

from typing import Any

import numpy
from numpy.typing import NDArray

from fastplan.fit._nodes import NodeTable
from fastplan.state._alloc_export import AllocExport
from fastplan.state._allocs import AllocTable
from fastplan.state.alloc_records import NO_ROW, Notes
from fastplan.state.shapes import Shapes

ROWS_AT_ONCE = 1 << 15


def compacted(old: AllocTable, nodes: NodeTable, shapes: Shapes, notes: Notes) -> tuple[AllocTable, Notes]:
    """Return a table of the next generation with the allocations of *old*, and the notes that it refers to.

    Rows keep their order and get new numbers. What the allocations use of the nodes does not change. *old* stays as it is, for its snapshots.
    """
    table = AllocTable(nodes, old.generation + 1)
    put_shapes(table, shapes)
    export = AllocExport(old, portable=False)
    inserter = ColumnInserter(table)
    used_notes = Notes()
    while (columns := export.take(ROWS_AT_ONCE)) is not None:
        inserter.insert(columns, [used_notes.intern(notes.items[number]) for number in columns["new_notes"]])
    for ref, row in old.bound_nodes():
        table.bind_node(table.intern_node(old.node_id_of_ref(ref)), row, counted=True)
    return table, used_notes


def put_shapes(table: AllocTable, shapes: Shapes) -> None:
    """Make all shapes known to an empty table."""
    for row, shape in enumerate(shapes.items):
        table.set_shape(row, *shape.amounts, shape.irregular)


class ColumnInserter:
    """Inserts what `AllocExport.take` gave, piece by piece, into a table that numbers nodes, evaluations, stamps and notes in its own way."""

    def __init__(self, table: AllocTable) -> None:
        self._table = table
        # By number of the export, with NO_ROW for NO_ROW at the end.
        self._nodes = _only_no_row()
        self._evals = _only_no_row()
        self._stamps = _only_no_row()
        self._notes = _only_no_row()

    def insert(self, columns: dict[str, Any], new_notes: list[int]) -> None:
        """Insert a piece. *new_notes*: the numbers that its new notes have here."""
        table = self._table
        self._nodes = _longer(self._nodes, table.intern_node_keys(columns["new_nodes"]))
        self._evals = _longer(self._evals, table.intern_eval_keys(columns["new_evals"]))
        self._stamps = _longer(self._stamps, table.add_stamps(columns["new_stamp_indexes"], columns["new_stamp_times"]))
        self._notes = _longer(self._notes, numpy.array(new_notes, numpy.uint32))
        table.insert_rows(
            _translated(self._stamps, columns["stamps"]),
            columns["ids"],
            _translated(self._nodes, columns["node_refs"]),
            columns["group_rows"],
            columns["job_version_rows"],
            _translated(self._evals, columns["eval_refs"]),
            columns["shape_rows"],
            columns["name_index"],
            columns["client_status"],
            columns["claim_offsets"],
            columns["claims"],
            desired_status=columns["desired_status"],
            irregular=columns["irregular"],
            extras=columns["extras"],
            notes=_translated(self._notes, columns["notes"]),
            create_stamps=_translated(self._stamps, columns["create_stamps"]),
            alloc_modify_stamps=_translated(self._stamps, columns["alloc_modify_stamps"]),
        )


def _only_no_row() -> NDArray[numpy.uint32]:
    return numpy.array([NO_ROW], numpy.uint32)


def _longer(numbers: NDArray[numpy.uint32], more: NDArray[numpy.uint32]) -> NDArray[numpy.uint32]:
    return numpy.concatenate([numbers[:-1], more, numbers[-1:]]) if len(more) else numbers


def _translated(numbers: NDArray[numpy.uint32], column: NDArray[numpy.uint32]) -> NDArray[numpy.uint32]:
    """Return *column* with other numbers. Raises IndexError for a number that the export has not introduced."""
    return numbers[numpy.where(column == NO_ROW, len(numbers) - 1, column)]
