"""How equal nodes are told apart when every node is scored: by a permutation that differs from evaluation to evaluation.

Workers that all prefer the node with the lowest id would propose the same node again and again, and most of their plans would be refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

SCORE_GRID: Final = 2**30
"""Scores are compared as multiples of one by this: differences below it are noise of floating point."""

PARTS: Final = 420
"""A common multiple of 1 to 7: no option has more scores, so their mean is a whole number of parts."""

_MASK: Final = 2**64 - 1
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FIRST_FACTOR: Final = 0xBF58476D1CE4E5B9
_SECOND_FACTOR: Final = 0x94D049BB133111EB


def tie_seed(eval_id: str, snapshot_index: int, attempt: int) -> int:
    """Return the seed of one attempt, an unsigned 64-bit number: another evaluation, snapshot or attempt breaks ties in another way."""
    text = f"{eval_id}\n{snapshot_index}\n{attempt}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def tie_key(seed: int, node_row: int) -> int:
    """Return the key of a node row, an unsigned 64-bit number; of equal nodes the one with the least key wins. Different rows have different keys."""
    mixed = seed ^ ((node_row + 1) * _GOLDEN & _MASK)
    mixed = (mixed ^ (mixed >> 30)) * _FIRST_FACTOR & _MASK
    mixed = (mixed ^ (mixed >> 27)) * _SECOND_FACTOR & _MASK
    return mixed ^ (mixed >> 31)


def on_grid(score: float) -> int:
    """Return a score on the grid on which scores are compared: rounded half to even."""
    return round(score * SCORE_GRID)


def fit_steps(attempt: int) -> int:
    """Return in how many steps the fit counts: 16, and fewer after each refusal.

    Nodes that fit an allocation nearly equally well are equal, so that parallel workers go to different ones. Whoever was refused nevertheless is told apart
    from the others more and more by the permutation alone.
    """
    return max(16 >> 2 * attempt, 1)


def final_key(scores: Sequence[float], steps: int) -> int:
    """Return by what options are compared: the mean of their scores on the grid, in whole parts. The fit comes first, in *steps*. Greater is better."""
    fit, *others = scores
    return (round(fit * steps) * (SCORE_GRID // steps) + sum(map(on_grid, others))) * (PARTS // len(scores))
