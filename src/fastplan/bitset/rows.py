"""`RowSet`: an immutable set of rows of one table."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyroaring import FrozenBitMap

_ROWS_END = 2**32


class RowSet:
    """An immutable set of rows (integers from 0 to 2³²−1) of one table, in ascending order.

    Sets combine with ``&``, ``|``, ``-`` and ``^``, compare with ``<=``, ``<`` and ``==``, and can be keys of a dict. They hold rows only:
    that two sets speak of the same table is the caller's business.

    >>> fits = RowSet.from_mask([True, False, True, True])
    >>> fits & RowSet([1, 2, 3])
    RowSet([2, 3])
    >>> len(fits), 1 in fits, fits.to_rows()
    (3, False, array([0, 2, 3], dtype=uint32))
    """

    __slots__ = ("_rows",)

    def __init__(self, rows: Iterable[int] = ()) -> None:
        """Make a set of *rows*, in any order, repeats allowed. Raises ValueError for a row outside 0…2³²−1."""
        try:
            self._rows = FrozenBitMap(array("I", rows))
        except OverflowError:
            raise ValueError("rows are integers from 0 to 4294967295") from None

    @classmethod
    def _of(cls, rows: FrozenBitMap) -> RowSet:
        made = cls.__new__(cls)
        made._rows = rows
        return made

    @classmethod
    def from_rows(cls, rows: ArrayLike) -> RowSet:
        """Make a set of an integer array of shape (k,). Raises ValueError for another shape or dtype, or a row outside 0…2³²−1."""
        numbers = np.asarray(rows)
        if numbers.size == 0:
            return cls()
        if numbers.ndim != 1 or numbers.dtype.kind not in "iu":
            raise ValueError(f"rows are one integer array of shape (k,), not {numbers.dtype} of shape {numbers.shape}")
        if numbers.dtype != np.uint32:
            if int(numbers.min()) < 0 or int(numbers.max()) >= _ROWS_END:
                raise ValueError("rows are integers from 0 to 4294967295")
            numbers = numbers.astype(np.uint32)
        return cls._of(FrozenBitMap(array("I", numbers.tobytes())))

    @classmethod
    def from_mask(cls, mask: ArrayLike) -> RowSet:
        """Make the set of the rows that are true in *mask*, a bool array of shape (table size,). Raises ValueError for another shape or dtype."""
        flags = np.asarray(mask)
        if flags.size == 0:
            return cls()
        if flags.ndim != 1 or flags.dtype != np.bool_:
            raise ValueError(f"a mask is one bool array of shape (n,), not {flags.dtype} of shape {flags.shape}")
        return cls.from_rows(np.flatnonzero(flags))

    def to_rows(self) -> NDArray[np.uint32]:
        """Return the rows in ascending order: uint32, shape (len(self),)."""
        return np.array(self._rows.to_array(), dtype=np.uint32)

    def to_mask(self, size: int) -> NDArray[np.bool_]:
        """Return a bool array of shape (*size*,) that is true at the rows of this set. Raises ValueError when a row does not lie in it."""
        if self._rows and self._rows.max() >= size:
            raise ValueError(f"row {self._rows.max()} does not lie in a mask of {size} rows")
        mask = np.zeros(size, dtype=np.bool_)
        mask[self.to_rows()] = True
        return mask

    def __and__(self, other: RowSet) -> RowSet:
        return RowSet._of(self._rows & other._rows)

    def __or__(self, other: RowSet) -> RowSet:
        return RowSet._of(self._rows | other._rows)

    def __sub__(self, other: RowSet) -> RowSet:
        return RowSet._of(self._rows - other._rows)

    def __xor__(self, other: RowSet) -> RowSet:
        return RowSet._of(self._rows ^ other._rows)

    def __le__(self, other: RowSet) -> bool:
        return self._rows <= other._rows

    def __lt__(self, other: RowSet) -> bool:
        return self._rows < other._rows

    def __eq__(self, other: object) -> bool:
        return self._rows == other._rows if isinstance(other, RowSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._rows)

    def isdisjoint(self, other: RowSet) -> bool:
        """Tell whether the two sets have no row in common."""
        return self._rows.isdisjoint(other._rows)

    def __contains__(self, row: int) -> bool:
        return 0 <= row < _ROWS_END and row in self._rows

    def __iter__(self) -> Iterator[int]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self._rows[:8]))
        return f"RowSet([{shown}, … {len(self)} rows])" if len(self) > 8 else f"RowSet([{shown}])"
