"""Strict JSON: what is read is exact, what is refused says where."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.errors import InvalidInput
from fastplan.structs.json_text import decode_json

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_values_survive_exactly(value):
    read = decode_json(json.dumps(value).encode(), "dump")
    assert read == value
    assert json.dumps(read) == json.dumps(value)


@given(st.binary(max_size=40) | st.text(alphabet='[]{},:"\\0123456789.eE+-truefalsnI ', max_size=40).map(str.encode))
def test_bytes_are_read_or_refused_by_name(data):
    try:
        decode_json(data, "dump")
    except InvalidInput as problem:
        assert problem.path.startswith("dump")
        assert len(str(problem)) < 300


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('{"a": [1, NaN]}', "dump.a[1]"),
        ("[-Infinity]", "dump[0]"),
        ('{"a": {"b": 1e999}}', "dump.a.b"),
        ("1e400", "dump"),
        ("[1,\n 2 3]", "dump (line 2, column 4)"),
    ],
)
def test_the_place_is_named(text, path):
    with pytest.raises(InvalidInput) as problem:
        decode_json(text.encode(), "dump")
    assert problem.value.path == path


@pytest.mark.parametrize("text", ["", " \n\t", "[" * 100_000, "[" * 100_000 + "]" * 100_000, '"\\ud800"', "9" * 5000 + "x"])
def test_hostile_texts_are_refused(text):
    with pytest.raises(InvalidInput):
        decode_json(text.encode(), "dump")
