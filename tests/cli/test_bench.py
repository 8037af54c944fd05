"""`fastplan bench`: names, JSON, one table."""

import pytest

from fastplan import cli
from tests.house.test_figures import PROMISED


def test_json_has_the_promised_figures(fastplan, tmp_path):
    outcome = fastplan("bench", "fit-one", "log", "--size", "toy", "--json", "--directory", tmp_path)
    assert outcome.code == cli.ALL_FITS
    assert list(outcome.json) == ["fit-one", "log"]
    for name, figures in outcome.json.items():
        assert PROMISED[name] <= set(figures)
        assert all(isinstance(value, int | float) for value in figures.values())


def test_the_table_names_figures_and_machine(fastplan):
    outcome = fastplan("bench", "fit-one", "--size", "toy")
    assert outcome.code == cli.ALL_FITS
    assert "ratio_reference" in outcome.out
    assert "results equal to the reference" in outcome.out
    assert "CPython" in outcome.out.splitlines()[-1]


@pytest.mark.parametrize("arguments", [["fit-all"], ["fit-one", "fit-all"], ["--size", "huge"], ["--directory", "no-such-directory"]])
def test_unknown_names_are_bad_input(fastplan, arguments):
    outcome = fastplan("bench", *arguments)
    assert outcome.code == cli.BAD_INPUT
    assert outcome.out == ""
