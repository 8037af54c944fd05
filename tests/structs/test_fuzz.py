"""Arbitrary input never breaks a record, and valid records survive the round trip."""

from __future__ import annotations

import copy
import functools
import types
import typing
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastplan import Allocation, Deployment, Evaluation, Job, Node, Plan, PlanResult
from fastplan.errors import InvalidInput
from fastplan.structs.record import INT64_MAX, INT64_MIN, Integer, Record, Time, schema_of

RECORDS: list[type[Record]] = [Node, Job, Allocation, Evaluation, Deployment, Plan, PlanResult]

names = st.sampled_from(["web", "n1", "", "é", "a.b"])
numbers = st.one_of(st.integers(-3, 3), st.sampled_from([INT64_MIN, INT64_MAX, 2**64, -(2**70), 65536]))
scalars = st.one_of(st.none(), st.booleans(), numbers, st.floats(), st.text(max_size=3), st.just("\ud800"))
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3), max_leaves=8)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(INT64_MIN, INT64_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=2),
    max_leaves=4,
)


def value_of(hint: Any, fault: st.SearchStrategy[Any] | None) -> st.SearchStrategy[Any]:
    """Return JSON for a field of the type *hint*; with *fault*, that strategy may take the place of any value."""
    good = _value_of(hint, fault)
    return good if fault is None else st.integers(0, 19).flatmap(lambda number: fault if number == 0 else good)


def _value_of(hint: Any, fault: st.SearchStrategy[Any] | None) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint == Time:
        return st.sampled_from(["", "2026-12-01T00:00:00Z", 0, 5])
    if origin is Annotated and isinstance(arguments[1], Integer):
        return st.integers(arguments[1].low, arguments[1].high) | st.just(0)
    if origin in (typing.Union, types.UnionType):
        return st.none() | value_of(arguments[0], fault)
    if origin is list:
        return st.lists(value_of(arguments[0], fault), max_size=2)
    if origin is dict:
        return st.dictionaries(names, value_of(arguments[1], fault), max_size=2)
    if isinstance(hint, type) and issubclass(hint, Record):
        return objects_of(hint, fault)
    plain: dict[Any, st.SearchStrategy[Any]] = {
        str: names,
        bool: st.booleans(),
        int: st.integers(INT64_MIN, INT64_MAX) | st.just(0),
        float: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-5, 5),
        Any: json_values,
    }
    return plain[hint]


@functools.cache
def objects_of(cls: type[Record], fault: st.SearchStrategy[Any] | None) -> st.SearchStrategy[dict[str, Any]]:
    """Return objects for *cls* with a few of its keys, some null, and sometimes an unknown one."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = {key: st.none() | value_of(hints[name], fault) for name, key in schema_of(cls).keys.items()}
    fields["Unheard"] = json_values if fault is None else json_values | fault
    chosen = st.lists(st.sampled_from(sorted(fields)), max_size=8, unique=True)
    return chosen.flatmap(lambda keys: st.fixed_dictionaries({key: fields[key] for key in keys}))


def mutables(value: Any) -> Iterator[int]:
    """Yield the identity of everything inside *value* that can change."""
    inner: Iterable[Any] = ()
    if isinstance(value, Record):
        inner = [getattr(value, name) for name in schema_of(type(value)).keys]
    elif isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    else:
        return
    yield id(value)
    for part in inner:
        yield from mutables(part)


def loaded(cls: type[Record], value: Any) -> tuple[Record | None, str]:
    """Return the record, or None and the text of the refusal."""
    try:
        return cls.from_api(value), ""
    except InvalidInput as problem:
        return None, str(problem)


@pytest.mark.parametrize("cls", RECORDS)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_anything_loads_or_is_refused_by_name(cls: type[Record], data: st.DataObject) -> None:
    value: Any = data.draw(anything | objects_of(cls, anything))
    before = copy.deepcopy(value)
    record, problem = loaded(cls, value)
    if record is not None:
        assert record.to_api() == before
    else:
        assert problem.startswith(cls.ROOT)
        assert problem.encode().decode() == problem
    assert repr(value) == repr(before)


@pytest.mark.parametrize("cls", RECORDS)
@given(data=st.data())
@settings(max_examples=80, deadline=None)
def test_valid_records_survive_the_round_trip(cls: type[Record], data: st.DataObject) -> None:
    value = data.draw(objects_of(cls, None))
    before = copy.deepcopy(value)
    record = cls.from_api(value)
    twin = record.copy()
    assert record.to_api() == before
    assert twin == record
    assert twin.to_api() == before
    assert cls.from_api(record.to_api()) == record
    assert value == before
    holders: list[Any] = [value, record, twin, record.to_api(), record.to_api()]
    found = [set(mutables(holder)) for holder in holders]
    assert len(set().union(*found)) == sum(map(len, found)), "two of them share a part that can change"
