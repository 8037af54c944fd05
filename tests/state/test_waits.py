"""Waiting for an index, in threads and in coroutines."""

from __future__ import annotations

import asyncio
import threading

import pytest

from fastplan.state import StateStore
from fastplan.structs import Evaluation


def write(store: StateStore, index: int) -> None:
    store.upsert_evals(index, [Evaluation(id=f"eval-{index}", job_id="job")])


def test_an_index_that_is_reached_does_not_block() -> None:
    store = StateStore()
    write(store, 7)
    store.wait_for_index(7, 0)
    store.wait_for_index(0, 0)


def test_a_thread_is_let_through_when_its_index_comes() -> None:
    store = StateStore()
    seen: list[int] = []
    threads = []
    for index in (3, 1, 2):

        def wait(index: int = index) -> None:
            store.wait_for_index(index, 30)
            seen.append(store.latest_index())

        threads.append(threading.Thread(target=wait))
        threads[-1].start()
    for index in (1, 2, 3):
        write(store, index)
    for thread in threads:
        thread.join(30)
    assert len(seen) == 3
    assert min(seen) >= 1


def test_a_wait_ends_with_what_was_waited_for() -> None:
    store = StateStore()
    write(store, 4)
    with pytest.raises(TimeoutError, match=r"timed out after 0.01s waiting for index=5 \(state is at index=4\)"):
        store.wait_for_index(5, 0.01)


def test_coroutines_are_let_through_in_order() -> None:
    async def run() -> list[str]:
        store = StateStore()
        seen: list[str] = []

        async def wait(index: int) -> None:
            await store.index_reached(index, 30)
            seen.append(f"reached {index}")

        waits = [asyncio.create_task(wait(index)) for index in (2, 1)]
        await asyncio.sleep(0)
        for index in (1, 2):
            seen.append(f"write {index}")
            write(store, index)
            await asyncio.sleep(0.01)
        await asyncio.gather(*waits)
        await store.index_reached(2, 0)
        with pytest.raises(TimeoutError, match="waiting for index=9"):
            await store.index_reached(9, 0.01)
        return seen

    assert asyncio.run(run()) == ["write 1", "reached 1", "write 2", "reached 2"]


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async def run() -> None:
        store = StateStore()
        wait = asyncio.create_task(store.index_reached(5, 30))
        await asyncio.sleep(0)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        write(store, 5)

    asyncio.run(run())


def test_nobody_sees_half_of_a_batch() -> None:
    store = StateStore()
    with store.batch():
        write(store, 5)
        waiter = threading.Thread(target=lambda: seen.append(store.snapshot().table_index("deployments")))
        seen: list[int] = []
        waiter.start()
        with pytest.raises(TimeoutError):
            store.wait_for_index(5, 0.01)
        store.touch(5, "deployments")
    waiter.join(30)
    assert seen == [5]
    store.wait_for_index(5, 0)
