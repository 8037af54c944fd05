"""F2 and F3: torn tails are cut off silently, damage to what was acknowledged is refused and named, and refusing changes nothing."""

from __future__ import annotations

import hashlib
import random
import shutil
import sqlite3
from pathlib import Path

import pytest

from fastplan.errors import Corrupt, FastplanError, VersionUnsupported
from fastplan.replication.recovery import PAGE_BYTES
from tests.replication.stores import OpenStore, entry_of
from tests.sizes import sized

FRAME_BYTES = PAGE_BYTES + 24
REBUILD = "to rebuild this replica"


def killed_log(root: Path) -> int:
    """Leave a log as after kill -9: five rows in the write-ahead file, the last one small. Return where that one's frames begin."""
    opened = OpenStore(root)
    for count in (3, 2, 5, 1):
        opened.append(count)
    wal_bytes = opened.directory.write_ahead.stat().st_size
    opened.append(1)
    opened.close(failed=True)
    return wal_bytes


def closed_log(root: Path) -> int:
    """Leave a log that was closed in order, with two snapshots and rows behind the older. Return its last index."""
    opened = OpenStore(root)
    opened.append_noop(1)
    for count in (3, 2, 5):
        opened.append(count)
    opened.snapshot()
    opened.append(4)
    opened.append_noop(2)
    opened.append(6, term=2)
    opened.snapshot()
    opened.append(5, term=2)
    last = opened.store.last_index
    opened.close()
    return last


def copy_of(root: Path, place: Path) -> Path:
    shutil.copytree(root, place)
    return place


def contents(root: Path) -> dict[str, str]:
    """Digests of all files that are not empty, but for the lock and SQLite's shared memory, which holds no data."""
    files = [path for path in root.rglob("*") if path.is_file() and path.stat().st_size and path.name not in {"lock", "log.db-shm"}]
    return {str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def refused(root: Path) -> Corrupt:
    """Open a log that must be refused, and assert that it stays as it is."""
    before = contents(root)
    with pytest.raises(Corrupt) as caught:
        OpenStore(root)
    assert contents(root) == before
    assert REBUILD in str(caught.value)
    return caught.value


@pytest.mark.parametrize("step", [509, pytest.param(sized(13, 1), marks=pytest.mark.slow)])
@pytest.mark.parametrize("tail", ["cut", "zeros", "garbage"])
def test_a_torn_last_commit_is_dropped_unless_it_was_acknowledged(memory_path: Path, step: int, tail: str) -> None:
    root = memory_path / "log"
    start = killed_log(root)
    written = (root / "log.db-wal").read_bytes()
    rng = random.Random(step)
    acknowledged = (root / "high-water").read_bytes()
    opened = OpenStore(copy_of(root, memory_path / "whole"))
    opened.check(12, 12)
    opened.close()
    # The mark as it stood before the last commit returned.
    other = OpenStore(memory_path / "shorter")
    other.append(11)
    other.close()
    unacknowledged = (memory_path / "shorter" / "high-water").read_bytes()
    last_frame = len(written) - FRAME_BYTES
    cuts = sorted({*range(start, len(written), step), start, start + 1, start + 23, start + 24, last_frame, last_frame + 24, len(written) - 1})
    for number, cut in enumerate(cuts):
        rest = {"cut": b"", "zeros": bytes(len(written) - cut), "garbage": rng.randbytes(len(written) - cut)}[tail]
        if written[:cut] + rest == written:
            continue
        place = copy_of(root, memory_path / f"torn-{number}")
        (place / "log.db-wal").write_bytes(written[:cut] + rest)
        (place / "high-water").write_bytes(acknowledged)
        problem = refused(place)
        assert problem.index == 12
        assert problem.file.endswith("log.db-wal")
        (place / "high-water").write_bytes(unacknowledged)
        torn = OpenStore(place)
        torn.check(11, 11)
        torn.append(2)
        torn.close()
        shutil.rmtree(place)


def test_a_flipped_bit_anywhere_in_the_write_ahead_file_is_refused(memory_path: Path) -> None:
    """SQLite stops silently at a damaged frame and would drop the good ones behind it."""
    root = memory_path / "log"
    killed_log(root)
    written = (root / "log.db-wal").read_bytes()
    rng = random.Random(5)
    for number in range(60):
        # A bit of the header, or of a frame.
        at = rng.randrange(32) if number % 6 == 0 else rng.randrange(32, len(written))
        place = copy_of(root, memory_path / f"flipped-{number}")
        flipped = bytearray(written)
        flipped[at] ^= 1 << rng.randrange(8)
        (place / "log.db-wal").write_bytes(flipped)
        if at % FRAME_BYTES in range(40, 48) or at < 32:
            # A few header fields are not covered by a checksum of their own; what matters is that nothing is lost in silence.
            _opens_whole_or_is_refused(place, 12)
        else:
            assert refused(place).index is not None
        shutil.rmtree(place)


@pytest.mark.parametrize("rounds", [4, pytest.param(sized(30, 200), marks=pytest.mark.slow)])
def test_a_flipped_bit_in_the_database_is_refused_or_harmless(memory_path: Path, rounds: int) -> None:
    root = memory_path / "log"
    last = closed_log(root)
    written = (root / "log.db").read_bytes()
    rng = random.Random(rounds)
    verdicts = []
    for page in range(len(written) // PAGE_BYTES):
        for number in range(rounds):
            place = copy_of(root, memory_path / f"flipped-{page}-{number}")
            flipped = bytearray(written)
            flipped[page * PAGE_BYTES + rng.randrange(PAGE_BYTES if number % 3 else 100)] ^= 1 << rng.randrange(8)
            (place / "log.db").write_bytes(flipped)
            verdicts.append(_opens_whole_or_is_refused(place, last))
            shutil.rmtree(place)
    assert verdicts.count("refused") > len(verdicts) // 3


def _opens_whole_or_is_refused(place: Path, last: int) -> str:
    before = contents(place)
    try:
        opened = OpenStore(place)
    except FastplanError:
        assert contents(place) == before
        return "refused"
    noops = {index for index in range(opened.snapshot_index + 1, last + 1) if index not in opened.entries}
    assert opened.store.last_index == last
    for index, entry in opened.entries.items():
        assert entry == entry_of(index)
    assert noops <= {1, 16}
    opened.close()
    return "whole"


def changed_by_hand(root: Path, *statements: str) -> None:
    connection = sqlite3.connect(root / "log.db", isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("statement", "index", "words"),
    [
        ("DELETE FROM log WHERE first_index = 17", 17, "entries 17 to 22 are missing"),
        ("DELETE FROM log WHERE first_index > 20", 23, "were acknowledged and cannot be read"),
        ("DELETE FROM log WHERE first_index < 17", 12, "neither in the table log nor in a valid snapshot"),
        ("UPDATE log SET term = 3 WHERE first_index = 17", 17, "the checksum of entries 17 to 22"),
        ("UPDATE log SET last_index = last_index + 1 WHERE first_index = 23", 23, "the checksum of entries"),
        ("UPDATE log SET previous_chain = previous_chain + 1 WHERE first_index = 17", 17, "the checksum of entries"),
        ("DELETE FROM log", 1, "ends at index 0, before the snapshot of index 22"),
        ("UPDATE meta SET value = 'n2' WHERE name = 'node_id'", None, "the table meta is damaged"),
        ("DROP TABLE log", None, "no such table"),
    ],
)
def test_damage_inside_the_tables_names_table_and_index(memory_path: Path, statement: str, index: int | None, words: str) -> None:
    root = memory_path / "log"
    closed_log(root)
    opened = OpenStore(root)
    assert (opened.store.snapshots[0].index, opened.store.snapshots[1].index, opened.store.last_index) == (22, 11, 27)
    opened.close()
    changed_by_hand(root, statement)
    if "first_index < 17" in statement:
        for path in (root / "snap").glob("*22-*"):
            path.write_bytes(b"damaged")
    problem = refused(root)
    assert problem.index == index
    assert words in str(problem)


def test_a_falling_term_is_refused(memory_path: Path) -> None:
    opened = OpenStore(memory_path / "log")
    opened.append(1, term=5)
    opened.append(1, term=4)
    opened.close()
    assert "the term falls from 5 to 4" in str(refused(memory_path / "log"))


def test_the_files_of_another_cluster_are_refused(memory_path: Path) -> None:
    killed_log(memory_path / "ours")
    other = OpenStore(memory_path / "other", cluster_id=bytes(16))
    other.append(20)
    other.close()
    shutil.copy(memory_path / "other" / "log.db", memory_path / "ours" / "log.db")
    (memory_path / "ours" / "log.db-wal").unlink()
    assert f"the log belongs to cluster {bytes(16).hex()}" in str(refused(memory_path / "ours"))


def test_the_high_water_mark_of_another_cluster_is_refused(memory_path: Path) -> None:
    killed_log(memory_path / "ours")
    other = OpenStore(memory_path / "other", cluster_id=bytes(16))
    other.close()
    shutil.copy(memory_path / "other" / "high-water", memory_path / "ours" / "high-water")
    assert "the high-water mark beside it" in str(refused(memory_path / "ours"))


@pytest.mark.parametrize("content", [None, b"", b"x" * 36])
def test_without_a_high_water_mark_it_says_so_and_goes_on(memory_path: Path, content: bytes | None) -> None:
    killed_log(memory_path / "log")
    mark = memory_path / "log" / "high-water"
    mark.unlink() if content is None else mark.write_bytes(content)
    opened = OpenStore(memory_path / "log")
    opened.check(12, 12)
    assert opened.store.warnings == ["the high-water mark is missing: it cannot be verified that no acknowledged entry at the end of the log is lost"]
    opened.append(1)
    opened.close()
    again = OpenStore(memory_path / "log")
    assert again.store.warnings == []
    again.close()


def test_a_newer_format_is_named_as_such(memory_path: Path) -> None:
    killed_log(memory_path / "log")
    changed_by_hand(memory_path / "log", "UPDATE meta SET value = '7' WHERE name = 'format_version'")
    with pytest.raises(VersionUnsupported, match="format version 7 found, this release reads up to version 1"):
        OpenStore(memory_path / "log")


def test_the_log_of_another_node_or_program_is_refused(memory_path: Path) -> None:
    killed_log(memory_path / "log")
    changed_by_hand(memory_path / "log", "PRAGMA application_id = 1")
    assert "not the database of a fastplan log" in str(refused(memory_path / "log"))
    foreign = memory_path / "foreign"
    foreign.mkdir()
    (foreign / "log.db").write_bytes(b"something else altogether" * 400)
    assert "file is not a database" in str(refused(foreign))


@pytest.mark.parametrize("keep_bytes", [0, 1, 4000, 8192])
def test_a_database_cut_short_is_refused(memory_path: Path, keep_bytes: int) -> None:
    closed_log(memory_path / "log")
    path = memory_path / "log" / "log.db"
    path.write_bytes(path.read_bytes()[:keep_bytes])
    refused(memory_path / "log")


def test_a_missing_database_is_not_taken_for_a_new_log(memory_path: Path) -> None:
    closed_log(memory_path / "log")
    (memory_path / "log" / "log.db").unlink()
    assert "high-water shows that a log was here" in str(refused(memory_path / "log"))
