"""Operations on lists of allocations (plan-apply 4)."""

from __future__ import annotations

from fastplan import Allocation
from fastplan.fit import alloc_subset, filter_terminal_allocs, remove_allocs


def allocs(*ids: str) -> list[Allocation]:
    return [Allocation(id=id) for id in ids]


def ids(some: list[Allocation]) -> list[str]:
    return [alloc.id for alloc in some]


def ended(id: str, name: str = "", index: int = 0, *, client: str = "complete") -> Allocation:
    return Allocation(id=id, name=name or id, create_index=index, client_status=client)


def test_remove_nothing_returns_the_same_list():
    given = allocs("a", "b")
    assert remove_allocs(given, []) is given


def test_remove_keeps_order_and_duplicates_of_the_rest():
    given = allocs("b", "a", "b", "c", "a", "d", "c")
    assert ids(remove_allocs(given, allocs("a", "x", "d"))) == ["b", "b", "c", "c"]
    assert ids(given) == ["b", "a", "b", "c", "a", "d", "c"]


def test_subset_looks_at_ids_only():
    assert alloc_subset([], [])
    assert alloc_subset(allocs("a"), allocs("a", "a"))
    assert alloc_subset(allocs("a", "b"), [Allocation(id="b", name="changed")])
    assert not alloc_subset(allocs("a"), allocs("a", "b"))
    assert not alloc_subset([], allocs("a"))


def test_terminal_ones_are_split_off_in_nomads_order():
    first, second = ended("T1"), ended("T2")
    given = [first, *allocs("A", "B"), second, *allocs("C")]
    live, terminal = filter_terminal_allocs(given)
    assert ids(live) == ["C", "A", "B"]
    assert terminal == {"T1": first, "T2": second}
    assert ids(given) == ["T1", "A", "B", "T2", "C"]


def test_terminal_at_the_end_and_everything_terminal():
    live, terminal = filter_terminal_allocs([*allocs("A"), ended("T1"), ended("T2")])
    assert (ids(live), sorted(terminal)) == (["A"], ["T1", "T2"])
    assert filter_terminal_allocs([ended("T1")])[0] == []
    assert filter_terminal_allocs([]) == ([], {})


def test_either_side_may_be_terminal():
    for client in ("complete", "failed", "lost"):
        assert filter_terminal_allocs([ended("T", client=client)])[0] == []
    for desired in ("stop", "evict"):
        assert filter_terminal_allocs([Allocation(id="T", desired_status=desired, client_status="running")])[0] == []
    assert ids(filter_terminal_allocs([Allocation(id="A", desired_status="run", client_status="unknown")])[0]) == ["A"]


def test_of_one_name_the_newest_stays_and_on_a_tie_the_first():
    _, terminal = filter_terminal_allocs([ended("old", "web[0]", 5), ended("new", "web[0]", 7), ended("tie", "web[0]", 7)])
    # The last entry fills the hole, so of a tie it is met before the middle one.
    assert terminal["web[0]"].id == "tie"
    _, unnamed = filter_terminal_allocs([Allocation(id="x", client_status="failed")])
    assert list(unnamed) == [""]
