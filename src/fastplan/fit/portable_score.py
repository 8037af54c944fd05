"""The fit score to the last bit as the kernels compute it, on every machine (schedulers 9.2)."""

from __future__ import annotations

import math
from typing import Final

from fastplan.fit.results import UsedResources
from fastplan.fit.score import BEST_SCORE
from fastplan.fit.supply import NodeSupply

_EXPONENT_MAX: Final = 300.0
_ROUNDING: Final = 6755399441055744.0
"""1.5 * 2**52: adding it rounds to a whole number."""

_LOG2_OF_10: Final = 3.32192809488736234787
_LOG10_OF_2: Final = (0.3010299955494702, 1.1451100898021838e-10)
_LN_OF_10: Final = 2.30258509299404568402
_TAYLOR: Final = (
    1.6059043836821613e-10,
    2.08767569878681e-09,
    2.505210838544172e-08,
    2.755731922398589e-07,
    2.7557319223985893e-06,
    2.48015873015873e-05,
    1.984126984126984e-04,
    1.388888888888889e-03,
    8.333333333333333e-03,
    4.1666666666666664e-02,
    1.6666666666666666e-01,
    0.5,
    1.0,
    1.0,
)


def power_of_ten(exponent: float) -> float:
    """Return 10**exponent, the exponent cut to ±300, in the steps of `ext/include/fastplan_score.h`."""
    x = exponent if exponent > -_EXPONENT_MAX else -_EXPONENT_MAX
    x = x if x < _EXPONENT_MAX else _EXPONENT_MAX
    n = x * _LOG2_OF_10 + _ROUNDING - _ROUNDING
    rest = (x - n * _LOG10_OF_2[0]) - n * _LOG10_OF_2[1]
    t = rest * _LN_OF_10
    p = _TAYLOR[0]
    for factor in _TAYLOR[1:]:
        p = p * t + factor
    return math.ldexp(p, int(n))


def portable_score(supply: NodeSupply, used: UsedResources, algorithm: str) -> float:
    """Return the score of *used* on a node, from 0 to 18: `score_on_supply` within 1e-12, and the same bits as the kernels. *algorithm* as there."""
    powers = power_of_ten(_free_share(used.cpu_mhz, supply.cpu_mhz)) + power_of_ten(_free_share(used.memory_mib, supply.memory_mib))
    score = -2.0 + powers if algorithm == "spread" else 20.0 - powers
    return min(max(score, 0.0), BEST_SCORE)


def _free_share(used: int, capacity: int) -> float:
    if capacity == 0:
        return 0.0 if used == 0 else math.copysign(_EXPONENT_MAX, -used)
    try:
        return 1.0 - float(used) / float(capacity)
    except OverflowError:
        return -math.inf if (used > 0) == (capacity > 0) else math.inf
