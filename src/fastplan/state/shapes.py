"""Resource shapes by row: what many allocations ask alike, interned once (docs/architecture.md, "Shapes and demands")."""

from __future__ import annotations

from typing import NamedTuple

from fastplan.fit.encode import AllocNumbers
from fastplan.structs import AllocatedResources


class PlainShape(NamedTuple):
    """The amounts of allocations whose resources stand in their own record: MHz and MiB. An irregular one has none."""

    cpu_mhz: int
    memory_mib: int
    memory_max_mib: int
    disk_mib: int
    irregular: bool


class Shapes:
    """Numbers of shapes, append-only, so all snapshots share them."""

    def __init__(self) -> None:
        self.items: list[PlainShape] = []
        self._rows: dict[PlainShape, int] = {}

    def intern(self, shape: PlainShape) -> int:
        """Return the row of a shape, giving it one if it is new."""
        row = self._rows.get(shape)
        if row is None:
            row = len(self.items)
            self.items.append(shape)
            self._rows[shape] = row
        return row

    def resources(self, row: int, claims: list[int]) -> AllocatedResources | None:
        """Return what an allocation of this shape with these claims holds, None for a shape without a template."""
        return None


def plain_shape(numbers: AllocNumbers) -> PlainShape:
    """Return the shape of an allocation whose resources stand in its own record."""
    return PlainShape(numbers.cpu_mhz, numbers.memory_mib, numbers.memory_max_mib, numbers.disk_mib, numbers.irregular)
