"""Questions are asked by name; what `bench/` runs at toy size, a user gets as `fastplan bench`."""

import pytest

from fastplan.benchmarks import QUESTIONS, ask, question
from fastplan.errors import InvalidInput
from tests.house.test_figures import PROMISED


def test_every_promised_question_is_there():
    assert set(QUESTIONS) == set(PROMISED)
    for name in QUESTIONS:
        assert set(question(name).SIZES) == {"toy", "full"}


@pytest.mark.parametrize(("name", "size", "path"), [("fit-all", "toy", "question"), ("fit-one", "huge", "size")])
def test_an_unknown_name_or_size_is_bad_input(name, size, path):
    with pytest.raises(InvalidInput) as problem:
        ask(name, size)
    assert problem.value.path == path


def test_files_of_a_question_are_removed(tmp_path):
    answer = ask("log", "toy", tmp_path)
    assert PROMISED["log"] <= set(answer.figures)
    assert list(tmp_path.iterdir()) == []
