"""The contract on the backend `local`: order, terms, limits, keys, waits, events, stopping (replication.md 1)."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fastplan.errors import Busy, Closed, InvalidInput, NotLeader, OutcomeUnknown, TooLarge
from fastplan.replication import BatchCommitted, Committed, Gained, LocalReplicator, LocalSettings, Lost, Role, Stopped
from tests.replication.machines import RememberingMachine, replicator

MIB = 1 << 20


@asynccontextmanager
async def running(directory: Path, machine: RememberingMachine | None = None, **changes: Any) -> AsyncIterator[tuple[LocalReplicator, RememberingMachine]]:
    machine = machine or RememberingMachine()
    log = replicator(directory, machine, **changes)
    await log.start()
    try:
        yield log, machine
    finally:
        await log.stop()


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await body()

    asyncio.run(bounded())


def test_entries_are_applied_in_the_order_of_the_calls_and_survive_a_restart(memory_path: Path) -> None:
    async def body() -> None:
        async with running(memory_path / "log") as (log, machine):
            status = log.status()
            assert (status.role, status.term, status.applied_index, status.health) == (Role.LEADER, 1, 1, ())
            first = log.propose(b"one", term=1)
            batch = log.propose_batch([b"two", b"three"], term=1, keys=[b"k2", None])
            last = log.propose(b"four", term=1, key=b"k4")
            # The place in the log is known before anything is written.
            assert (first.index, batch.first_index, batch.count, last.index) == (2, 3, 2, 5)
            assert await last == Committed(5, 1, 4)
            assert await batch == BatchCommitted(3, 1, [2, 3])
            assert await first == Committed(2, 1, 1)
            assert machine.log == [(2, 1, b"one", b""), (3, 1, b"two", b"k2"), (4, 1, b"three", b""), (5, 1, b"four", b"k4")]
        again = RememberingMachine()
        async with running(memory_path / "log", again) as (log, _):
            # A start is a new term, and its no-op takes an index.
            assert log.status().term == 2
            assert log.status().last_index == 6
            assert again.log == machine.log
            assert (await log.propose(b"five", term=2)).index == 7

    run(body)


def test_what_waits_during_a_flush_becomes_one_row_and_one_sync(memory_path: Path) -> None:
    async def body() -> None:
        async with running(memory_path / "log") as (log, machine):
            before = log.status().syncs
            handles = [log.propose(b"%d" % number, term=1) for number in range(500)]
            await handles[-1]
            assert all(handle.done() for handle in handles)
            # The first proposal may have gone alone, before the others were there.
            assert log.status().syncs - before <= 5
            assert sum(machine.batches) == 500
            assert machine.entries == [b"%d" % number for number in range(500)]

    run(body)


def test_an_old_term_is_refused(memory_path: Path) -> None:
    async def body() -> None:
        async with running(memory_path / "log"):
            pass
        async with running(memory_path / "log") as (log, machine):
            for term in (1, 3):
                with pytest.raises(NotLeader) as caught:
                    log.propose(b"late", term=term)
                assert caught.value.hint == "local"
            await log.barrier()
            assert machine.log == []

    run(body)


@pytest.mark.parametrize("size", [0, 1, 64 << 10, 8 * MIB])
def test_entries_of_every_size(memory_path: Path, size: int) -> None:
    """F13."""
    entry = random.Random(size).randbytes(size)

    async def body() -> None:
        async with running(memory_path / "log") as (log, _):
            assert (await log.propose(entry, term=1)).index == 2
            with pytest.raises(TooLarge, match="an entry of 8388609 bytes; the limit is 8388608"):
                log.propose(bytes(8 * MIB + 1), term=1)
            # Never wedged.
            assert (await log.propose(b"after", term=1)).index == 3
        async with running(memory_path / "log") as (_, machine):
            assert machine.entries == [entry, b"after"]

    run(body)


def test_a_retry_with_the_same_key_is_applied_once(memory_path: Path) -> None:
    """F16: the first replicator ends without an answer; the second is asked again with the same key."""

    async def body() -> None:
        machine = RememberingMachine()
        machine.fail_at = 2
        log = replicator(memory_path / "log", machine)
        await log.start()
        handle = log.propose(b"plan", term=1, key=b"evaluation/1")
        with pytest.raises(OutcomeUnknown) as caught:
            await handle
        assert (caught.value.index, caught.value.term) == (2, 1)
        await log.stop()
        async with running(memory_path / "log") as (log, again):
            retried = await log.propose(b"plan", term=2, key=b"evaluation/1")
            assert retried.result == 1
            assert again.entries == [b"plan"]
            await log.snapshot()
        async with running(memory_path / "log") as (log, third):
            assert third.restores == 1
            assert (await log.propose(b"plan", term=3, key=b"evaluation/1")).result == 1
            assert third.entries == [b"plan"]

    run(body)


def test_pending_work_is_bounded_and_ready_waits_for_room(memory_path: Path) -> None:
    async def body() -> None:
        async with running(memory_path / "log", max_pending_entries=10, max_pending_bytes=4000, max_entry_bytes=2000) as (log, machine):
            with pytest.raises(TooLarge, match="11 entries of 11 bytes at once"):
                log.propose_batch([b"x"] * 11, term=1)
            with pytest.raises(TooLarge, match="4002 bytes"):
                log.propose_batch([bytes(2000), bytes(2000), b"xx"], term=1)
            handle = log.propose_batch([b"x"] * 8, term=1)
            with pytest.raises(Busy, match="8 entries of 8 bytes are pending"):
                log.propose_batch([b"y"] * 3, term=1)
            assert (log.status().pending_entries, log.status().pending_bytes) == (8, 8)
            await log.ready(3)
            assert handle.done()
            large = log.propose_batch([bytes(2000)], term=1, keys=[bytes(1000)])
            with pytest.raises(Busy):
                log.propose(bytes(1001), term=1)
            await log.ready(size_bytes=1001)
            assert large.done()
            with pytest.raises(TooLarge):
                await log.ready(11)
            assert len(machine.log) == 9

    run(body)


def test_what_cannot_be_stored_is_refused_before_anything_is_written(memory_path: Path) -> None:
    async def body() -> None:
        async with running(memory_path / "log") as (log, machine):
            wrong: Any
            for wrong, keys in (
                ([], None),
                (["text"], None),
                ([b"a", bytearray(b"b")], None),
                ([b"a"], [b"k", b"l"]),
                ([b"a"], ["k"]),
                ([b"a"], [bytes(65_536)]),
            ):
                with pytest.raises(InvalidInput):
                    log.propose_batch(wrong, term=1, keys=keys)
            assert log.status().pending_entries == 0
            await log.propose_batch([b"a"], term=1, keys=[bytes(65_535)])
            assert machine.log == [(2, 1, b"a", bytes(65_535))]

    run(body)


def test_settings_are_checked(memory_path: Path) -> None:
    for wrong in (
        {"flush_bytes": 0},
        {"wal_bytes": -1},
        {"max_pending_entries": True},
        {"node_id": ""},
        {"cluster_id": b"short"},
        {"max_entry_bytes": 1 << 40},
    ):
        with pytest.raises(InvalidInput, match=r"^replication\."):
            LocalSettings(directory=memory_path, **wrong)


def test_waits_and_their_time_outs(memory_path: Path) -> None:
    async def body() -> None:
        async with running(memory_path / "log") as (log, machine):
            waiting = asyncio.create_task(log.wait_applied(4))
            with pytest.raises(TimeoutError):
                await log.wait_applied(4, 0.01)
            handles = [log.propose(b"x", term=1) for _ in range(3)]
            assert await log.barrier(10) == 4
            assert machine.applied == 4
            await waiting
            assert await log.read_barrier(1) == 4
            assert [handle.done() for handle in handles] == [True] * 3
            await log.wait_applied(2)

    run(body)


def test_cancelling_a_wait_ends_the_wait_and_not_the_entry(memory_path: Path) -> None:
    async def body() -> None:
        async with running(memory_path / "log") as (log, machine):
            handle = log.propose(b"x", term=1)
            hasty = asyncio.create_task(_awaited(handle))
            patient = asyncio.create_task(_awaited(handle))
            await asyncio.sleep(0)
            hasty.cancel()
            with pytest.raises(asyncio.CancelledError):
                await hasty
            assert (await patient).index == 2
            assert (await handle).index == 2
            assert machine.entries == [b"x"]

    run(body)


async def _awaited(handle: Awaitable[Committed]) -> Committed:
    return await handle


def test_events_tell_the_leadership_from_the_subscription_on(memory_path: Path) -> None:
    async def body() -> None:
        log = replicator(memory_path / "log", RememberingMachine())
        early = log.events()
        await log.start()
        late = log.events()
        handle = log.propose(b"x", term=1)
        await log.stop()
        # Lost comes after every handle of the term has ended.
        assert handle.done()
        expected = [Gained(1, 1), Lost(1, "the replicator has been stopped"), Stopped(None)]
        assert [event async for event in early] == expected
        assert [event async for event in late] == expected
        assert [event async for event in log.events()] == [Stopped(None)]

    run(body)


def test_stopping_finishes_what_is_pending_and_is_idempotent(memory_path: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        log = replicator(memory_path / "log", machine)
        with pytest.raises(NotLeader, match="has not been started"):
            log.propose(b"x", term=1)
        await log.start()
        handles = [log.propose(b"%d" % number, term=1) for number in range(100)]
        unreachable = asyncio.create_task(log.wait_applied(1000))
        await asyncio.sleep(0)
        await asyncio.gather(log.stop(), log.stop())
        await log.stop()
        assert [(await handle).index for handle in handles] == list(range(2, 102))
        with pytest.raises(Closed):
            await unreachable
        with pytest.raises(Closed, match="stopped"):
            log.propose(b"x", term=1)
        for wait in (log.ready(), log.read_barrier(), log.snapshot(), log.start()):
            with pytest.raises(Closed):
                await wait
        assert log.status().role is Role.STOPPED

    run(body)


def test_a_replicator_that_never_started_stops(memory_path: Path) -> None:
    async def body() -> None:
        log = replicator(memory_path / "log", RememberingMachine())
        await log.stop()
        with pytest.raises(Closed):
            await log.start()
        assert not (memory_path / "log").exists()

    run(body)


def test_a_start_that_is_cancelled_leaves_the_directory_free(memory_path: Path) -> None:
    class Slow(RememberingMachine):
        def restore(self, chunks: Iterable[bytes]) -> None:
            restoring.set()
            time.sleep(0.1)
            super().restore(chunks)

    restoring = threading.Event()

    async def body() -> None:
        async with running(memory_path / "log") as (log, _):
            await log.propose(b"x", term=1)
            await log.snapshot()
        log = replicator(memory_path / "log", Slow())
        starting = asyncio.create_task(log.start())
        await asyncio.to_thread(restoring.wait)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        async with running(memory_path / "log") as (_, machine):
            assert machine.entries == [b"x"]
        with pytest.raises(Closed):
            await log.start()
        await log.stop()

    run(body)


def test_64_proposers_and_a_stop_in_their_midst(memory_path: Path) -> None:
    """F14: each handle ends once, and what succeeded is a prefix of what was asked for."""

    async def body() -> None:
        machine = RememberingMachine()
        log = replicator(memory_path / "log", machine, max_pending_entries=100)
        await log.start()
        acknowledged: list[bytes] = []
        refused = 0

        async def propose(number: int) -> None:
            nonlocal refused
            for turn in itertools.count():
                entry = b"%d/%d" % (number, turn)
                try:
                    await log.ready()
                    handle = log.propose(entry, term=1)
                except Busy:
                    continue
                except Closed:
                    refused += 1
                    return
                assert (await handle).index > 1
                acknowledged.append(entry)

        proposers = [asyncio.create_task(propose(number)) for number in range(64)]
        while len(acknowledged) < 1000:
            await asyncio.sleep(0.001)
        await log.stop()
        await asyncio.gather(*proposers)
        assert refused == 64
        assert sorted(machine.entries) == sorted(acknowledged)
        async with running(memory_path / "log") as (_, again):
            assert again.log == machine.log

    run(body)


def test_a_state_machine_that_fails_stops_the_replica(memory_path: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        machine.fail_at = 5
        log = replicator(memory_path / "log", machine)
        events = log.events()
        await log.start()
        handles = [log.propose(b"%d" % number, term=1) for number in range(10)]
        outcomes = await asyncio.gather(*map(_awaited, handles), return_exceptions=True)
        # From the first failure on everything of the term fails.
        failed = [isinstance(outcome, OutcomeUnknown) for outcome in outcomes]
        assert failed[3:] == [True] * 7
        assert failed == sorted(failed)
        with pytest.raises(Closed, match="its state machine failed: ValueError"):
            log.propose(b"x", term=1)
        with pytest.raises(Closed):
            await log.wait_applied(50)
        seen = [event async for event in events]
        assert [type(event) for event in seen] == [Gained, Lost, Stopped]
        assert isinstance(seen[-1], Stopped)
        assert isinstance(seen[-1].error, ValueError)
        await log.stop()

    run(body)


def test_a_state_machine_that_lives_on_is_not_fed_twice(memory_path: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        async with running(memory_path / "log", machine) as (log, _):
            await log.propose_batch([b"a", b"b"], term=1)
            await log.snapshot()
            await log.propose(b"c", term=1)
        async with running(memory_path / "log", machine) as (log, _):
            await log.propose(b"d", term=2)
        assert machine.entries == [b"a", b"b", b"c", b"d"]
        assert machine.restores == 0

    run(body)


def test_a_state_machine_ahead_of_the_log_is_refused(memory_path: Path) -> None:
    async def body() -> None:
        machine = RememberingMachine()
        machine.applied = 70
        log = replicator(memory_path / "log", machine)
        with pytest.raises(InvalidInput, match="an index of this log, which ends at 0"):
            await log.start()
        await log.stop()
        async with running(memory_path / "log"):
            pass

    run(body)
