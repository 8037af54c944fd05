"""The table in README.md is made from `fastplan bench --json`, and from nothing else."""

import re

import pytest

from scripts.write_figures import ROWS, table
from tests.shared_data import PROJECT

# The figures that `fastplan bench --json` promises (docs/guide/bench.md).
PROMISED = {
    "fit-batch": {"ns_per_row", "ratio_reference", "ratio_numpy", "load_50_over_10", "size_100k_over_1k"},
    "fit-one": {"ns", "ratio_reference"},
    "evaluate-plan": {"us_10", "us_1000", "ratio_10", "ratio_1000"},
    "applier": {"plans_per_s", "placements_per_s", "p50_ms", "p99_ms", "of_bare_loop", "plans_per_sync"},
    "log": {"entries_per_s", "of_raw"},
    "state": {"commit_ns", "snapshot_us", "bytes_per_alloc"},
    "broker": {"evals_per_s", "of_heapq"},
    "placement": {"placements_per_s", "ratio_reference", "spread_placements_per_s", "identical_placements_per_s"},
    "system": {"first_ms", "noop_ms", "ratio_first", "ratio_noop"},
    "simulation": {"seeds_per_s"},
    "scaling": {"slope_verify", "slope_commit"},
}


def test_the_table_shows_the_figures_it_is_given():
    numbers = iter(range(1_000, 9_000, 7))
    figures = {question: {figure: float(next(numbers)) for figure in sorted(names)} for question, names in PROMISED.items()}
    text = table(figures)
    assert text.count("\n| ") == len(ROWS) + 1
    assert f"| {figures['applier']['plans_per_s']:,.0f} plans/s |" in text
    assert "{" not in text


def test_a_figure_that_was_not_measured_is_an_error():
    with pytest.raises(KeyError):
        table({question: dict.fromkeys(names, 1.0) for question, names in PROMISED.items() if question != "log"})


def test_the_guide_names_every_promised_figure():
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (.*) \|$", (PROJECT / "docs/guide/bench.md").read_text(), re.MULTILINE))
    assert set(rows) == set(PROMISED)
    for question, names in PROMISED.items():
        assert names <= set(re.findall(r"`(\w+)`", rows[question])), question
