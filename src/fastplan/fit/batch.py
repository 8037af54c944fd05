"""One ask a row, prepared once for many calls of `FitChecker.fits_rows`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastplan.fit.asks import PreparedAsk
    from fastplan.fit.bindings import Bindings
    from fastplan.fit.engine import Engine


class PreparedBatch:
    """Asks by position, and the form in which the engine takes them quickest. Made by `FitChecker.prepare_many`."""

    def __init__(self, asks: Sequence[PreparedAsk]) -> None:
        self.asks = list(asks)
        self._compiled: object | None = None
        self._by_id: dict[str, list[int]] | None = None
        self._replacing: tuple[Bindings, int, list[int]] | None = None

    def __len__(self) -> int:
        return len(self.asks)

    def compiled(self, engine: Engine) -> object:
        """Return the asks as the engine wants them, made once."""
        if self._compiled is None:
            self._compiled = engine.batch(self.asks)
        return self._compiled

    def replacing(self, bindings: Bindings, version: int) -> list[int]:
        """Return the positions of asks that replace something bound, remembered until *version* changes."""
        known = self._replacing
        if known is not None and known[0] is bindings and known[1] == version:
            return known[2]
        if self._by_id is None:
            self._by_id = {}
            for position, ask in enumerate(self.asks):
                for alloc_id in ask.alloc_ids:
                    self._by_id.setdefault(alloc_id, []).append(position)
        positions = sorted({position for alloc_id in bindings.bound_among(self._by_id) for position in self._by_id[alloc_id]})
        self._replacing = (bindings, version, positions)
        return positions
