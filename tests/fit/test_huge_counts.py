"""Counts near 2**63 are an ask that no node meets, not an overflow."""

from __future__ import annotations

from typing import Any

import pytest

from fastplan.fit import FitChecker
from fastplan.structs import Job, Node
from tests.fit.fixture_f import node_f


@pytest.mark.parametrize("resources", [{"Cores": 2**63 - 1}, {"Devices": [{"Name": "gpu", "Count": 2**63 - 1}]}, {"CPU": 2**63 - 1}, {"MemoryMB": 2**63 - 1}])
@pytest.mark.parametrize("tasks", [1, 2])
def test_no_node_has_that_many(resources: dict[str, Any], tasks: int) -> None:
    job = Job.from_api({"ID": "j", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": f"t{number}", "Resources": resources} for number in range(tasks)]}]})
    checker = FitChecker([Node.from_api(node_f())], [])
    ask = (job, "g")
    assert checker.mask(ask).tolist() == [False]
    assert checker.headroom(ask).tolist() == [0]
    assert checker.assign(checker.node_ids[0], ask) is None
    assert [each.fits for each in checker.explain(ask)] == [False]
