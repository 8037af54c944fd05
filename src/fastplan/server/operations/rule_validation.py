"""What constraints, affinities and spreads may not say (schedulers 2.5, 8.4). Sentences are Nomad's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from fastplan.server.operations.faults import Faults
from fastplan.structs import Affinity, Constraint, Spread

WEIGHT_MAX: Final = 100

COMPARED: Final = frozenset({"=", "==", "is", "!=", "not", "<", "<=", ">", ">=", "regexp", "version", "semver"})
SETS: Final = frozenset({"set_contains", "set_contains_all", "set_contains_any"})
PRESENCE: Final = frozenset({"is_set", "is_not_set", "attribute_is_set", "attribute_is_not_set"})
DISTINCT: Final = frozenset({"distinct_hosts", "distinct_property"})
NEED_ATTRIBUTE: Final = SETS | PRESENCE | {"distinct_property"}


def check_constraints(faults: Faults, path: str, constraints: Sequence[Constraint | None]) -> None:
    """Note what is wrong with constraints. Whether a pattern or version can be read is found out when it filters nodes."""
    for place, constraint in enumerate(constraints):
        if constraint is None:
            continue
        inner = Faults(f"Constraint {place + 1} validation failed: ")
        _check_rule(inner, f"{path}.Constraints[{place}]", constraint, "constraint", COMPARED | SETS | PRESENCE | DISTINCT)
        faults.nest(inner)


def check_affinities(faults: Faults, path: str, affinities: Sequence[Affinity | None]) -> None:
    """Note what is wrong with affinities."""
    for place, affinity in enumerate(affinities):
        if affinity is None:
            continue
        inner = Faults(f"Affinity {place + 1} validation failed: ")
        where = f"{path}.Affinities[{place}]"
        _check_rule(inner, where, affinity, "affinity", COMPARED | SETS)
        if affinity.weight == 0:
            inner.add(f"{where}.Weight", 0, "integer from -100 to 100, not 0", "Affinity weight cannot be zero")
        elif abs(affinity.weight) > WEIGHT_MAX:
            inner.add(f"{where}.Weight", affinity.weight, "integer from -100 to 100, not 0", "Affinity weight must be within the range [-100,100]")
        faults.nest(inner)


def _check_rule(faults: Faults, path: str, rule: Constraint | Affinity, name: str, operands: frozenset[str]) -> None:
    operand = rule.operand
    if not operand:
        faults.add(f"{path}.Operand", operand, "an operand", f"Missing {name} operand")
        return
    if operand not in operands:
        faults.add(f"{path}.Operand", operand, "an operand of schedulers 8.4", f'Unknown {name} type "{operand}"')
        return
    if not rule.ltarget and operand in NEED_ATTRIBUTE:
        faults.add(f"{path}.LTarget", rule.ltarget, "an attribute", "no attribute provided but is required by operator")


def check_spreads(faults: Faults, path: str, spreads: Sequence[Spread | None]) -> None:
    """Note what is wrong with spreads."""
    for place, spread in enumerate(spreads):
        if spread is None:
            continue
        inner = Faults(f"Spread {place + 1} validation failed: ")
        _check_spread(inner, f"{path}.Spreads[{place}]", spread)
        faults.nest(inner)


def _check_spread(faults: Faults, path: str, spread: Spread) -> None:
    if not spread.attribute:
        faults.add(f"{path}.Attribute", spread.attribute, "an attribute", "Missing spread attribute")
    if not 1 <= spread.weight <= WEIGHT_MAX:
        faults.add(f"{path}.Weight", spread.weight, "integer from 1 to 100", "Spread block must have a positive weight from 0 to 100")
    seen: set[str] = set()
    total = 0
    for place, target in enumerate(spread.spread_target):
        if target is None:
            continue
        where = f"{path}.SpreadTarget[{place}]"
        if target.value in seen:
            faults.add(f"{where}.Value", target.value, "a value that no other target has", f'Spread target value "{target.value}" already defined')
        seen.add(target.value)
        if not 0 <= target.percent <= 100:
            sentence = f'Spread target percentage for value "{target.value}" must be between 0 and 100'
            faults.add(f"{where}.Percent", target.percent, "integer from 0 to 100", sentence)
        total += target.percent
    if total > 100:
        sentence = f"Sum of spread target percentages must not be greater than 100%; got {total}%"
        faults.add(f"{path}.SpreadTarget", total, "percentages whose sum is at most 100", sentence)
