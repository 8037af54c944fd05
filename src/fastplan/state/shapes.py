"""Resource shapes by row: what many allocations ask alike, interned once (docs/architecture.md, "Shapes and demands")."""

from __future__ import annotations

from fastplan.state.resource_shapes import ResourceShape
from fastplan.structs import AllocatedResources


class Shapes:
    """Numbers of shapes, append-only, so all snapshots share them."""

    def __init__(self) -> None:
        self.items: list[ResourceShape] = []
        self._rows: dict[ResourceShape, int] = {}

    def intern(self, shape: ResourceShape) -> int:
        """Return the row of a shape, giving it one if it is new."""
        row = self._rows.get(shape)
        if row is None:
            row = len(self.items)
            self.items.append(shape)
            self._rows[shape] = row
        return row

    def find(self, shape: ResourceShape) -> int | None:
        """Return the row of a shape, None if it has none."""
        return self._rows.get(shape)

    def resources(self, row: int, claims: list[int]) -> AllocatedResources | None:
        """Return what an allocation of this shape with these claims holds, None for a shape without a template."""
        return self.items[row].resources(claims)
