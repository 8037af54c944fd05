"""Tells each story of this folder to its subject: the folder that a file lies in names it."""

import contextlib
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.scenarios.applier_subject import ApplierSubject
from tests.scenarios.blocked_subject import BlockedSubject
from tests.scenarios.broker_subject import BrokerSubject
from tests.scenarios.leader_subject import LeaderSubject
from tests.scenarios.reconciler_subject import ReconcilerSubject
from tests.scenarios.runner import Arguments, Subject, parse, run_file, seconds
from tests.scenarios.worker_subject import WorkerSubject

HERE = Path(__file__).parent


def rows(first, last, letter=""):
    return {f"{letter}{number}" for number in range(first, last + 1)}


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "applier": ApplierSubject,
    "blocked": BlockedSubject,
    "broker": BrokerSubject,
    "leader": LeaderSubject,
    "reconciler": ReconcilerSubject,
    "worker": WorkerSubject,
}
STORIES = sorted(HERE.glob("*/*.txt"))

# Which rows of the tables of the specification stories tell (worker-and-broker 11, schedulers 13.3, plan-apply 10.6). Row 45 is a property, rows 88 to 90
# are numbers.
TOLD = {
    "broker": rows(1, 44) | rows(46, 47),
    "blocked": rows(66, 87),
    "leader": rows(48, 57) | rows(59, 65) | rows(108, 112),
    "worker": rows(91, 107),
    "reconciler": rows(1, 42, "G"),
    "applier": rows(1, 15, "L") | rows(58, 58),
}


@pytest.mark.parametrize("path", STORIES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_story(path):
    with contextlib.closing(SUBJECTS[path.parent.name]()) as subject:
        run_file(path, subject, rewrite=os.environ.get("FASTPLAN_REWRITE") == "1")


@pytest.mark.parametrize("folder", SUBJECTS)
def test_every_row_is_told(folder):
    headings = [line.partition(":")[0] for path in HERE.glob(f"{folder}/*.txt") for line in path.read_text().splitlines() if line.startswith("# ")]
    assert TOLD[folder] - {row for heading in headings for row in re.findall(r"\b[A-Z]?\d+\b", heading)} == set()


class Echo:
    def run(self, command, arguments):
        return [command, *arguments.rest()]


def test_a_wrong_answer_is_named_with_its_line(tmp_path):
    story = tmp_path / "story.txt"
    story.write_text("# A remark.\n\n> say hello\nsay\nhello\n> say more\nsay\nless\n")
    with pytest.raises(AssertionError, match=r"story.txt:6: > say more\nexpected:\nsay\nless\nbut it is:\nsay\nmore"):
        run_file(story, Echo(), rewrite=False)


def test_rewriting_changes_answers_only(tmp_path):
    story = tmp_path / "story.txt"
    story.write_text("# A remark.\n\n> say hello\nwrong\n\n# The end.\n")
    run_file(story, Echo(), rewrite=True)
    assert story.read_text() == "# A remark.\n\n> say hello\nsay\nhello\n\n# The end.\n"
    run_file(story, Echo(), rewrite=False)


def test_what_the_subject_does_not_understand_fails(tmp_path):
    story = tmp_path / "story.txt"
    story.write_text("> say loud=yes\nsay\n")
    with pytest.raises(AssertionError, match="not understood: loud"):
        run_file(story, Echo(), rewrite=False)


def test_an_answer_to_nothing_is_a_mistake():
    with pytest.raises(ValueError, match="line 3 is an answer to nothing"):
        parse("> say\n\nhello\n")


@pytest.mark.parametrize(("text", "expected"), [("5ms", 0.005), ("-1h", -3600.0), ("+1.5s", 1.5)])
def test_durations(text, expected):
    assert seconds(text) == pytest.approx(expected)


def test_arguments_are_taken_once():
    arguments = Arguments(["a", "x=1", "off"])
    assert (arguments.flag("off"), arguments.word(), arguments.number("x"), arguments.text("y")) == (True, "a", 1, "")
    arguments.check_used()
