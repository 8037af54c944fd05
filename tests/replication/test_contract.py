"""Handles: one outcome, any number of waits."""

from __future__ import annotations

import asyncio

import pytest

from fastplan.errors import StorageFailed
from fastplan.replication import BatchCommitted, BatchHandle, Committed, Handle


def test_a_handle_ends_once() -> None:
    for first, second in (("resolve", "fail"), ("fail", "resolve"), ("resolve", "resolve")):
        handle = BatchHandle(3, 1, 2)
        assert not handle.done()
        for turn, call in enumerate((first, second)):
            argument = [1, 2] if call == "resolve" else StorageFailed("x")
            if turn == 0:
                getattr(handle, call)(argument)
            else:
                with pytest.raises(RuntimeError, match="the handle of index 3 ended twice"):
                    getattr(handle, call)(argument)
        assert handle.done()


def test_every_wait_hears_the_outcome() -> None:
    async def body() -> None:
        good, bad = BatchHandle(3, 1, 2), BatchHandle(5, 1, 1)

        async def waiting(handle: BatchHandle) -> BatchCommitted:
            return await handle

        tasks = [asyncio.create_task(waiting(handle)) for handle in (good, good, bad, bad)]
        await asyncio.sleep(0)
        good.resolve(["a", "b"])
        bad.fail(StorageFailed("the disk is gone"))
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert outcomes[:2] == [BatchCommitted(3, 1, ["a", "b"])] * 2
        assert all(isinstance(outcome, StorageFailed) for outcome in outcomes[2:])
        assert await Handle(good) == Committed(3, 1, "a")
        with pytest.raises(StorageFailed):
            await bad

    asyncio.run(body())


def test_a_handle_that_fails_and_is_never_awaited_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    async def body() -> None:
        BatchHandle(3, 1, 2).fail(StorageFailed("x"))
        await asyncio.sleep(0)

    asyncio.run(body())
    assert caplog.records == []
