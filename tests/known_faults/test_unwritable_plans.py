"""A plan that no log entry can hold is answered on its own; it does not end the leadership (known fault 36)."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.errors import PlanError
from fastplan.structs import Plan
from tests.planner.site import Site, alloc, answers, placed

HALF = "\ud800"


def changed_plan(site: Site, kind: str) -> Plan:
    plan = site.plan({"F": [alloc("a", 10)]})
    one = (plan.node_allocation["F"] or [])[0]
    if kind == "id":
        one.id = HALF
    elif kind == "group":
        one.task_group = HALF
    elif kind == "description":
        one.desired_description = HALF
    else:
        setattr(plan, kind, HALF)
    return plan


@pytest.mark.parametrize("kind", ["id", "group", "description", "eval_id", "eval_token"])
def test_half_a_surrogate_pair(kind: str) -> None:
    site = Site()

    async def main() -> Any:
        return await answers(site.applier.enqueue(changed_plan(site, kind)), site.send({"F": [alloc("b", 10)]}))

    refused, good = site.run(main())
    if isinstance(refused, PlanError):
        assert "Unicode" in str(refused)
    else:
        assert placed(refused) == {}
        assert refused.rejected_nodes == ("F",)
    assert placed(good) == {"F": ["b"]}
    assert site.applier.generation == 1
