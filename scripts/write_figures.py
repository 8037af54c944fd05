"""Writes the table of figures in README.md from `fastplan bench --json` on this machine. `make figures` runs it."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- bench: begin -->\n", "<!-- bench: end -->\n"

# What is measured, its figure, and the baseline of the same run. Fields are question.figure.
ROWS = (
    (
        "check one row of a batch: 10 allocations a node, an ask with 2 ports",
        "{fit-batch.ns_per_row:,.0f} ns",
        "{fit-batch.ratio_reference:,.0f} × the plain-Python reference",
    ),
    ("check one node for one prepared ask", "{fit-one.ns:,.0f} ns", "{fit-one.ratio_reference:,.0f} × the reference"),
    ("verify a plan for 10 nodes", "{evaluate-plan.us_10:,.1f} µs", "{evaluate-plan.ratio_10:,.0f} × the reference"),
    ("verify a plan for 1,000 nodes", "{evaluate-plan.us_1000:,.0f} µs", "{evaluate-plan.ratio_1000:,.0f} × the reference"),
    ("durable applier, 256 submitters of 10 placements", "{applier.plans_per_s:,.0f} plans/s", "{applier.of_bare_loop:.0%} of a bare event loop"),
    ("its latency, 50 % and 99 %", "{applier.p50_ms:,.1f} ms, {applier.p99_ms:,.1f} ms", "{applier.plans_per_sync:,.0f} plans a sync"),
    ("durable log alone", "{log.entries_per_s:,.0f} entries/s", "{log.of_raw:.0%} of raw write and flush"),
    ("commit one allocation into the state", "{state.commit_ns:,.0f} ns", ""),
    ("take a snapshot of the state", "{state.snapshot_us:,.1f} µs", ""),
    ("memory for one allocation, indexes included", "{state.bytes_per_alloc:,.0f} bytes", ""),
    ("hand out and take back evaluations, 10,000 deep", "{broker.evals_per_s:,.0f} evaluations/s", "{broker.of_heapq:.0%} of a bare heap of objects"),
    ("simulate a whole server from a seed, with everything that goes wrong", "{simulation.seeds_per_s:,.1f} seeds/s", ""),
    ("growth per row from 1,000 to 100,000 nodes, verify and commit", "{scaling.slope_verify:.2f}, {scaling.slope_commit:.2f}", "log–log slope; 0 is none"),
)


def table(figures: Mapping[str, Mapping[str, float]]) -> str:
    """Return the table, with the machine it was measured on. A KeyError names a figure that is not there."""

    def filled(template: str) -> str:
        return re.sub(r"\{([\w-]+)\.(\w+):([^}]+)\}", lambda field: format(figures[field[1]][field[2]], field[3]), template)

    lines = ["| question | answer | beside it |\n", "| --- | --- | --- |\n"]
    lines += [f"| {question} | {filled(answer)} | {filled(beside)} |\n" for question, answer, beside in ROWS]
    return "".join([*lines, f"\nMeasured on {platform.system()} {platform.machine()}, {os.cpu_count()} cores, CPython {platform.python_version()}.\n"])


def main() -> None:
    output = subprocess.run([sys.executable, "-m", "fastplan.cli", "bench", "--json"], check=True, stdout=subprocess.PIPE, text=True).stdout
    text = README.read_text()
    before, _, rest = text.partition(BEGIN)
    README.write_text(before + BEGIN + table(json.loads(output)) + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
