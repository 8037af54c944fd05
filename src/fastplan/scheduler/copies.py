"""Placements of many equal allocations, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from fastplan.columns.ids import text_of
from fastplan.scheduler.alloc_facts import alloc_name
from fastplan.state.resource_shapes import ResourceShape
from fastplan.structs import Allocation, Job


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of one group, in the order in which they were chosen.

    `alloc_ids` uint8 (n, 16), `node_rows` uint32 (n) of the snapshot, `name_indexes` int32 (n), `claims` uint64 (n, slots of the shape).
    """

    group: str
    shape: ResourceShape
    alloc_ids: NDArray[numpy.uint8]
    node_rows: NDArray[numpy.uint32]
    name_indexes: NDArray[numpy.int32]
    claims: NDArray[numpy.uint64]

    def __len__(self) -> int:
        return len(self.node_rows)

    def records_on(self, row: int | None, node_id: str, eval_id: str, job: Job | None) -> Iterator[Allocation]:
        """Yield the copies on the node in *row* as records without job."""
        if row is None:
            return
        namespace, job_id = ("default", "") if job is None else (job.namespace or "default", job.id)
        for place in numpy.flatnonzero(self.node_rows == row).tolist():
            yield Allocation(
                id=text_of(self.alloc_ids[place]),
                namespace=namespace,
                eval_id=eval_id,
                name=alloc_name(job_id, self.group, int(self.name_indexes[place])),
                node_id=node_id,
                job_id=job_id,
                task_group=self.group,
                allocated_resources=self.shape.resources(self.claims[place].tolist()),
                desired_status="run",
                client_status="pending",
            )
