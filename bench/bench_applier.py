"""The durable applier: fastplan, the bare loop and two reference appliers run against each other inside the question."""


def test_closing_ratio(closing):
    figures = closing("applier", {"plans_per_s", "placements_per_s", "p50_ms", "p99_ms", "of_bare_loop", "plans_per_sync"}).figures
    assert figures["plans_per_sync"] >= 1
