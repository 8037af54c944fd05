"""Sets of rows: which nodes, which allocations. Roaring bitmaps inside, so a set of a million rows is small and its algebra is fast."""

from fastplan.bitset.rows import RowSet

__all__ = ["RowSet"]
