"""Writing the allocations anew, without what is of no use any more: dead rows, outdated stamps, runs and claims."""

from __future__ import annotations

from typing import Any

import numpy

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
    used_notes = Notes()
    note_numbers: list[int] = []
    while (columns := export.take(ROWS_AT_ONCE)) is not None:
        note_numbers.extend(used_notes.intern(notes.items[number]) for number in columns["new_notes"])
        insert_columns(table, columns, note_numbers)
    for ref, row in old.bound_nodes():
        table.bind_node(table.intern_node(old.node_id_of_ref(ref)), row, counted=True)
    return table, used_notes


def put_shapes(table: AllocTable, shapes: Shapes) -> None:
    """Make all shapes known to an empty table."""
    for row, shape in enumerate(shapes.items):
        table.set_shape(row, *shape.amounts, shape.irregular)


def insert_columns(table: AllocTable, columns: dict[str, Any], note_numbers: list[int]) -> None:
    """Insert what `AllocExport.take` gave into a table that has got everything before it. *note_numbers*: of all notes of the export so far."""
    table.intern_node_keys(columns["new_nodes"])
    table.intern_eval_keys(columns["new_evals"])
    table.add_stamps(columns["new_stamp_indexes"], columns["new_stamp_times"])
    notes = columns["notes"]
    if note_numbers:
        noted = notes != NO_ROW
        notes = notes.copy()
        notes[noted] = numpy.array(note_numbers, numpy.uint32)[notes[noted]]
    table.insert_rows(
        columns["stamps"],
        columns["ids"],
        columns["node_refs"],
        columns["group_rows"],
        columns["job_version_rows"],
        columns["eval_refs"],
        columns["shape_rows"],
        columns["name_index"],
        columns["client_status"],
        columns["claim_offsets"],
        columns["claims"],
        desired_status=columns["desired_status"],
        irregular=columns["irregular"],
        extras=columns["extras"],
        notes=notes,
        create_stamps=columns["create_stamps"],
        alloc_modify_stamps=columns["alloc_modify_stamps"],
    )
