"""The names that the package exports."""

from __future__ import annotations

import msgspec
import pytest

import fastplan
from fastplan import structs
from fastplan.structs import Attribute, Record


def test_records_of_the_package_are_those_of_structs() -> None:
    for name in ("Node", "Job", "Allocation", "Evaluation", "Deployment", "Plan", "PlanResult"):
        assert getattr(fastplan, name) is getattr(structs, name)


@pytest.mark.parametrize("name", [name for name in structs.__all__ if isinstance(getattr(structs, name), type)])
def test_every_record_can_be_made_empty_and_read_back(name: str) -> None:
    cls = getattr(structs, name)
    if not issubclass(cls, Record):
        assert cls is Attribute
        return
    assert cls().to_api() == {}
    assert cls.from_api({}) == cls()
    assert all(
        default is not msgspec.NODEFAULT or factory is not msgspec.NODEFAULT
        for default, factory in ((f.default, f.default_factory) for f in msgspec.structs.fields(cls))
    )


def test_attribute_keeps_the_type_of_its_value() -> None:
    assert (Attribute(1).value, Attribute(1.0, "GiB").unit, type(Attribute(True).value)) == (1, "GiB", bool)
