"""Names of allocations of a group (schedulers 7.4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fastplan.scheduler.reconciler.names import NameIndex
from fastplan.structs import Allocation


def allocs(*indexes: int) -> list[Allocation]:
    return [Allocation(id=f"a{place}", job_id="job", task_group="web", name=f"job.web[{index}]") for place, index in enumerate(indexes)]


def index(count: int, *indexes: int) -> NameIndex:
    return NameIndex("job", "web", count, allocs(*indexes))


def names(*indexes: int) -> list[str]:
    return [f"job.web[{number}]" for number in indexes]


def test_the_lowest_free_names_come_first_then_all_again() -> None:
    assert index(5, 0, 1, 4).next(4) == names(2, 3, 0, 1)


def test_the_highest_names_are_given_up_first() -> None:
    used = index(3, 0, 1, 2, 7)
    assert used.highest(2) == set(names(7, 2))
    assert used.next(1) == names(2)


def test_a_name_that_is_free_again_is_taken_again_unless_others_have_it() -> None:
    used = index(3, 0, 1, 1, 2)
    used.free(2)
    used.free(1)
    assert used.next(1) == names(2)


def test_a_name_of_several_is_exchanged_until_one_is_left() -> None:
    used = index(4, 1, 1, 1)
    assert [used.exchanged("job.web[1]", 1) for _ in range(3)] == names(0, 2, 1)


def test_canaries_take_the_names_of_what_they_will_replace() -> None:
    used = index(3, 0, 1, 2)
    assert used.next_canaries(2, allocs(0), allocs(0, 2)) == names(2, 3)


@given(st.integers(0, 12), st.lists(st.integers(0, 15), max_size=15), st.integers(0, 12))
def test_new_names_are_free_as_long_as_some_are(count: int, used: list[int], wanted: int) -> None:
    given_out = index(count, *used).next(wanted)
    free = [number for number in range(count) if number not in used]
    assert len(given_out) == wanted
    assert given_out[: len(free)] == names(*free[:wanted])
