"""RowSet against Python's own sets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastplan.bitset import RowSet

# Small rows meet often; large ones cross the 2¹⁶ containers of a roaring bitmap.
rows = st.sets(st.one_of(st.integers(0, 40), st.integers(0, 2**17), st.integers(0, 2**32 - 1)), max_size=60)


@given(rows, rows)
def test_algebra_and_order_are_those_of_python_sets(left, right):
    a, b = RowSet(left), RowSet(right)
    assert list(a & b) == sorted(left & right)
    assert list(a | b) == sorted(left | right)
    assert list(a - b) == sorted(left - right)
    assert list(a ^ b) == sorted(left ^ right)
    assert (a <= b, a < b, a == b, a.isdisjoint(b)) == (left <= right, left < right, left == right, left.isdisjoint(right))
    assert (len(a), bool(a)) == (len(left), bool(left))


@given(rows)
def test_arrays_go_in_and_come_out(numbers):
    made = RowSet.from_rows(np.array(sorted(numbers, reverse=True), dtype=np.int64))
    assert made == RowSet(numbers)
    assert made.to_rows().dtype == np.uint32
    assert made.to_rows().tolist() == sorted(numbers)
    assert hash(made) == hash(RowSet(numbers))


@given(st.lists(st.booleans(), max_size=200), st.integers(0, 5))
def test_masks_go_in_and_come_out(flags, longer):
    made = RowSet.from_mask(np.array(flags, dtype=np.bool_))
    assert list(made) == [row for row, flag in enumerate(flags) if flag]
    assert made.to_mask(len(flags) + longer).tolist() == flags + [False] * longer


def test_a_row_beyond_the_mask_is_an_error():
    with pytest.raises(ValueError, match="row 7 does not lie in a mask of 7 rows"):
        RowSet([2, 7]).to_mask(7)


@pytest.mark.parametrize("wrong", [[-1], [2**32]])
def test_rows_out_of_range_are_an_error(wrong):
    with pytest.raises(ValueError, match="from 0 to 4294967295"):
        RowSet(wrong)
    with pytest.raises(ValueError, match="from 0 to 4294967295"):
        RowSet.from_rows(np.array(wrong, dtype=np.int64))
    assert wrong[0] not in RowSet([0])


@pytest.mark.parametrize("wrong", [np.zeros((2, 2), dtype=np.int64), np.ones(3)])
def test_other_arrays_are_no_rows(wrong):
    with pytest.raises(ValueError, match="one integer array"):
        RowSet.from_rows(wrong)


def test_numbers_are_no_mask():
    with pytest.raises(ValueError, match="one bool array"):
        RowSet.from_mask([0, 1])


def test_a_set_is_not_equal_to_something_else():
    assert RowSet([1]) != {1}


def test_repr_shows_few_rows_whole_and_many_cut():
    assert repr(RowSet([3, 1])) == "RowSet([1, 3])"
    assert repr(RowSet(range(100))) == "RowSet([0, 1, 2, 3, 4, 5, 6, 7, … 100 rows])"
