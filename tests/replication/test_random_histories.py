"""Random histories of a log store against a toy model, and random mixtures of damage."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from fastplan.errors import FastplanError
from tests.replication.stores import OpenStore, entry_of, state_at
from tests.replication.test_damage import contents
from tests.sizes import sized


class Model:
    """What the log must hold: terms and indexes are enough, entries follow from their index."""

    def __init__(self) -> None:
        self.last = 0
        self.term = 1
        self.noops: set[int] = set()
        self.snapshots: list[int] = []

    def check(self, opened: OpenStore) -> None:
        assert opened.store.last_index == self.last
        assert opened.store.warnings == []
        newest = self.snapshots[-1] if self.snapshots else 0
        assert opened.snapshot_index == newest
        if newest:
            assert opened.snapshot_state == state_at(newest)
        assert opened.entries == {index: entry_of(index) for index in range(newest + 1, self.last + 1) if index not in self.noops}
        assert [record.index for record in opened.store.snapshots] == self.snapshots[:-3:-1]


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, sized(40, 200)))])
def test_a_random_history_reads_back_as_the_model_says(memory_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    model = Model()
    opened = OpenStore(memory_path / "log")
    for _ in range(60):
        action = rng.choice(["append"] * 6 + ["snapshot", "checkpoint", "finish", "compact", "reopen", "kill"])
        if action == "append":
            count = rng.choice((1, 1, 2, 7, 40))
            opened.append(count, term=model.term)
            model.last += count
        elif action == "snapshot":
            if model.last and model.last not in model.snapshots:
                opened.snapshot()
                model.snapshots.append(model.last)
        elif action == "checkpoint":
            opened.store.checkpoint()
        elif action == "finish":
            opened.store.finish_checkpoint()
        elif action == "compact":
            opened.store.compact_step()
        else:
            opened.close(failed=action == "kill")
            opened = OpenStore(memory_path / "log")
            model.check(opened)
            model.term += 1
            opened.append_noop(model.term)
            model.last += 1
            model.noops.add(model.last)
    opened.close()


def damage(path: Path, rng: random.Random) -> None:
    """Do one thing to a file that disks, people and bad copies do."""
    content = bytearray(path.read_bytes())
    at = rng.randrange(len(content) + 1)
    length = rng.choice((1, 16, 512, 4096))
    kind = rng.choice(("cut", "zeros", "noise", "swap", "grow", "remove"))
    if kind == "remove":
        path.unlink()
        return
    if kind == "cut":
        del content[at:]
    elif kind == "zeros":
        content[at : at + length] = bytes(len(content[at : at + length]))
    elif kind == "noise":
        content[at : at + length] = rng.randbytes(len(content[at : at + length]))
    elif kind == "grow":
        content += rng.randbytes(length)
    else:
        other = rng.randrange(len(content) + 1) // 4096 * 4096
        at = at // 4096 * 4096
        content[at : at + 4096], content[other : other + 4096] = content[other : other + 4096], content[at : at + 4096]
    path.write_bytes(content)


@pytest.mark.parametrize("rounds", [60, pytest.param(sized(500, 3_000), marks=pytest.mark.slow)])
def test_any_mixture_of_damage_is_refused_or_harmless(memory_path: Path, rounds: int) -> None:
    rng = random.Random(rounds)
    origin = memory_path / "log"
    opened = OpenStore(origin)
    for count in (3, 4, 5, 6):
        opened.append(count)
        opened.snapshot()
    opened.store.finish_checkpoint()
    for count in (2, 1, 3):
        opened.append(count)
    opened.close(failed=True)
    refused = 0
    for number in range(rounds):
        place = memory_path / str(number)
        shutil.copytree(origin, place)
        files = sorted(path for path in place.rglob("*") if path.is_file() and path.name not in {"lock", "reserve", "log.db-shm"})
        for path in rng.sample(files, rng.choice((1, 1, 2, 3))):
            damage(path, rng)
        before = contents(place)
        try:
            opened = OpenStore(place)
        except FastplanError:
            assert contents(place) == before
            refused += 1
        else:
            # Without its high-water mark a log cannot know how long it was, and says so.
            least = 0 if opened.store.warnings else 24
            opened.check(least, 24)
            opened.append(1)
            opened.close()
        shutil.rmtree(place)
    assert rounds // 4 < refused < rounds
